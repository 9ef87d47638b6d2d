//! `kubectl volferry rotate`: gives one side of a pair another key. The other side knows both until a run has been
//! accepted with the new one, and a command that was stopped halfway goes on with what it finds.

use contract::{PublicKey, Reason, RunResult};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;
use tokio::time::timeout;

use super::{PairedClusters, apply, manifests, others, owners, remote, say, with_key};
use crate::{
    api::{EndpointPeer, Run, SyncEndpoint, SyncJob, SyncRun, SyncRunSpec},
    human, names,
    plugin::error::PluginError,
    spec::spec_hash,
};

/// A run, by its name, and the key that its pod has made.
struct RunWithKey {
    run: String,
    key: PublicKey,
}

/// The most peers that a SyncEndpoint can have, by its CRD.
const MAX_PEERS: usize = 64;

impl PairedClusters<'_> {
    /// Gives the SyncJob another key. The endpoint lists both until a run has succeeded with the new one.
    pub(super) async fn rotate(&self) -> Result<(), PluginError> {
        let (job, endpoint) = (self.dials.job(self.name).await?, self.endpoint().await?);
        self.check(&job, &endpoint)?;
        if remote(&job).is_some_and(|remote| remote.identity.is_some()) {
            let hint =
                "put another key there, list both at the endpoint, and take the old one out after a run";
            return Err(self.refused("the SyncJob's key is in a Secret that you made", hint));
        }
        let name = self.peer(&job);
        if let Some(run) = half_rotated(&job, &endpoint, &name) {
            let new = self.waits().key(&self.jobs, None).await?;
            return self.change_over(&endpoint, &name, &run, new).await;
        }
        self.check_idle(&job)?;
        if let Some(tool) = owners::from_manifests(&endpoint, &["peers"]) {
            let hint = "make another key in a Secret for the SyncJob's endpoint.identity, list it beside the old one in those manifests, \
                        and take the old one out after a run";
            return Err(self.refused(&format!("{tool} sets the endpoint's peers from manifests"), hint));
        }
        if endpoint.spec.peers.len() >= MAX_PEERS {
            let hint = "take one of them out first: for a while it has both keys of the SyncJob";
            return Err(self.refused("the endpoint has as many peers as it can have", hint));
        }
        let old = self.waits().key(&self.jobs, None).await?;
        // A key that was listed by hand gets the name by which this command finds it, should it have to run again.
        let named = |peers: Vec<_>| with_key(others(&peers, &[old.to_string()]), &name, old);
        self.change_peers(&endpoint, named).await?;
        // The pods of later runs find no key and make one. A run in progress has its own copy.
        self.forget_key(&job).await?;
        let RunWithKey { run, key } = self.run_with_key_after(old).await?;
        self.change_over(&endpoint, &name, &run, key).await
    }

    /// Lists the new key of a SyncJob, waits until a run has been accepted with it, and takes the old one out.
    async fn change_over(
        &self,
        endpoint: &SyncEndpoint,
        peer: &str,
        run: &str,
        new: PublicKey,
    ) -> Result<(), PluginError> {
        self.change_peers(endpoint, |peers| with_key(peers, peer, new)).await?;
        say("both keys are among the endpoint's peers");
        self.until_met(run).await?;
        let only_new = |peers: Vec<_>| with_key(others(&peers, &[peer.to_string()]), peer, new);
        self.change_peers(endpoint, only_new).await?;
        say("the endpoint has accepted the new key; the old one is taken out");
        Ok(())
    }

    /// Gives the SyncEndpoint another key, and has the SyncJob expect it. The endpoint serves with both.
    pub(super) async fn rotate_endpoint(&self) -> Result<(), PluginError> {
        let (job, endpoint) = (self.dials.job(self.name).await?, self.endpoint().await?);
        if !(self.dials_for_claim(&job) && self.serves_claim(&endpoint)) {
            return Err(self.no_pair());
        }
        self.check_idle(&job)?;
        let end = if job.spec.source.endpoint.is_some() { "source" } else { "destination" };
        let tool = owners::from_manifests(&endpoint, &["keyVersion"])
            .or_else(|| owners::from_manifests(&job, &[end, "endpoint", "publicKey"]));
        if let Some(tool) = tool {
            let hint = "raise spec.keyVersion of the SyncEndpoint by one in those manifests; once its status has another publicKey, \
                        write that into the SyncJob's";
            return Err(self.refused(&format!("{tool} sets the endpoint's key from manifests"), hint));
        }
        let known = remote(&job).and_then(|remote| remote.public_key.parse().ok());
        let mut reached = self.waits().address(&self.endpoints, None).await?;
        // Otherwise there is another key already, as after a command that was stopped halfway, and one more would shut
        // out all who know the first.
        if known == Some(reached.public_key) && !has_met(&job) {
            // As after a command whose run was refused. One key more would shut out all who know the one before.
            say(
                "the last run of the SyncJob as it is has not succeeded: no other key is made before one does",
            );
            let run = self.dials.create_run(self.name, "rotate", SyncRunSpec::default()).await?;
            self.until_met(&run.name_any()).await?;
            let hint = "it is the new one if this command was stopped before; for another one, run it again";
            return Err(self.refused("a run has met the endpoint with the key that it has", hint));
        }
        if known == Some(reached.public_key) {
            // Another command that changes it at the same time asks for the same number, and none goes back.
            let version = json!({"keyVersion": endpoint.spec.key_version.max(1) + 1});
            let metadata = json!({"uid": endpoint.uid()});
            let patch = Patch::Merge(json!({"metadata": metadata, "spec": version}));
            let patched = self.endpoints.patch(self.name, &PatchParams::default(), &patch).await;
            patched.map_err(self.serves.failed(format!("change the key of SyncEndpoint {}", self.name)))?;
            reached = self.waits().address(&self.endpoints, known).await?;
        }
        say(&format!(
            "SyncEndpoint {} serves with the key {}, and with the one before",
            self.name, reached.public_key
        ));
        let job = manifests::job(self.flags, Some(&reached));
        apply(&self.jobs, self.name, &job, &self.dials).await?;
        let run = self.dials.create_run(self.name, "rotate", SyncRunSpec::default()).await?;
        self.until_met(&run.name_any()).await?;
        say("a run has met the endpoint with its new key; give that to its other peers, too");
        Ok(())
    }

    /// Refuses a SyncJob of which no run can begin now.
    fn check_idle(&self, job: &SyncJob) -> Result<(), PluginError> {
        if !job.spec.suspend && job.status.as_ref().is_none_or(|status| status.active_run.is_none()) {
            return Ok(());
        }
        let hint = "resume it, or wait for the end of its run, and run the same command again";
        Err(self.refused("the SyncJob is suspended or has a run, so no run with a new key can begin", hint))
    }

    /// Starts a run whose pod makes a key. A run without retries ends because the old key is gone, and the next one
    /// makes another.
    async fn run_with_key_after(&self, old: PublicKey) -> Result<RunWithKey, PluginError> {
        let waits = self.waits();
        for is_last in [false, true] {
            let run = self.dials.create_run(self.name, "rotate", SyncRunSpec::default()).await?.name_any();
            let ended = tokio::select! {
                key = waits.key(&self.jobs, Some(old)) => return Ok(RunWithKey { run, key: key? }),
                ended = self.dials.ended(&run) => report(ended?),
            };
            if is_last || ended.reason != Some(Reason::KeyNotStored) {
                return Err(self.not_met(&run, ended));
            }
        }
        unreachable!("the last one has returned")
    }

    /// Deletes the Secret with the SyncJob's key, which only the garbage collector would.
    async fn forget_key(&self, job: &SyncJob) -> Result<(), PluginError> {
        let namespace = &self.dials.namespace;
        let secrets = Api::<Secret>::namespaced(self.dials.client.clone(), namespace);
        let name = names::job_key(self.name, &job.uid().unwrap_or_default());
        match secrets.delete(&name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            deleted => {
                deleted.map(drop).map_err(self.dials.failed(format!("delete Secret {namespace}/{name}")))
            }
        }
    }

    /// Waits until a run has ended that the endpoint has accepted, whether or not it left files out.
    async fn until_met(&self, run: &str) -> Result<(), PluginError> {
        let most = self.flags.timeout;
        let ended = timeout(most, self.dials.ended(run)).await;
        let ended = report(ended.map_err(|_| PluginError::TooLong { after: human::duration(most) })??);
        match ended.result {
            RunResult::Succeeded | RunResult::PartiallyFailed => Ok(()),
            _ => Err(self.not_met(run, ended)),
        }
    }

    fn not_met(&self, run: &str, ended: Run) -> PluginError {
        let how = ended.message.unwrap_or_else(|| format!("{:?}", ended.result));
        let hint = "the old key is accepted, too; run the same command again once runs succeed";
        self.refused(&format!("run {run} has not succeeded: {how}"), hint)
    }
}

/// Returns whether a run of the SyncJob as it is now has met its endpoint.
fn has_met(job: &SyncJob) -> bool {
    let last = job.status.as_ref().and_then(|status| status.last_run.as_ref());
    last.is_some_and(|run| {
        let hash = spec_hash::of(&job.spec);
        // The hash tells suspending and the like from what matters to a run; versions hash differently.
        let is_of_spec =
            Some(run.generation) == job.metadata.generation || run.spec_hash.as_deref() == Some(&*hash);
        is_of_spec && matches!(run.result, RunResult::Succeeded | RunResult::PartiallyFailed)
    })
}

/// Returns the run with a SyncJob's new key that a `rotate` has left which was stopped halfway: the endpoint still
/// lists another key under the SyncJob's name.
fn half_rotated(job: &SyncJob, endpoint: &SyncEndpoint, name: &str) -> Option<String> {
    let status = job.status.as_ref()?;
    let run = status.active_run.as_ref().filter(|_| !job.spec.suspend)?;
    let own = status.identity.map(|identity| identity.public_key.to_string());
    let is_old = |peer: &EndpointPeer| peer.name == name && Some(&peer.public_key) != own.as_ref();
    endpoint.spec.peers.iter().any(is_old).then(|| run.id.clone())
}

/// Returns what a SyncRun that has ended reports.
fn report(run: SyncRun) -> Run {
    run.status.and_then(|status| status.report).unwrap_or_default()
}
