//! `kubectl volferry pair`, `unpair` and `rotate`: a SyncEndpoint of a claim in one cluster and a SyncJob that dials it
//! in the other, each of which knows the other's public key. Nothing private passes here.

mod manifests;
mod owners;
mod rotate;
mod trial;
pub(super) mod waits;

use std::fmt::Debug;

use contract::{PublicKey, Side};
use kube::{
    Api, Resource, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use self::{manifests::document, waits::Waits};
use super::{
    args::Scope,
    claim_pod::claim_named,
    cluster::Cluster,
    error::PluginError,
    output,
    pair_args::{MadeFlags, PairCommand, PairFlags},
};
use crate::{
    api::{EndpointPeer, RemoteEndpoint, SyncEndpoint, SyncJob},
    ends::remote_end::RemoteEnd,
    names,
    signals::Stops,
};

/// The owner of the fields that `--apply` sets.
const FIELD_MANAGER: &str = "kubectl-volferry";
/// The longest name of a peer, before a hyphen and what tells it from those of other clusters.
const MAX_PEER_STEM: usize = 47;

/// The most attempts to change an endpoint that others change at the same time.
const MAX_CHANGES: u32 = 5;

/// What to do if a pair is not found.
const NAMED: &str = "name the claims as for `pair`, with --serve and --name if they were given there";

/// Carries out a command about a pair.
pub(super) async fn run(command: PairCommand, scope: &Scope) -> Result<(), PluginError> {
    match command {
        PairCommand::Pair { flags, made } if !made.apply => print(&flags.at(scope), &made),
        PairCommand::Pair { flags, made } => PairedClusters::connect(&flags, scope).await?.make(&made).await,
        PairCommand::Unpair { flags } => PairedClusters::connect(&flags, scope).await?.delete().await,
        PairCommand::Rotate { flags, endpoint: false } => {
            PairedClusters::connect(&flags, scope).await?.rotate().await
        }
        PairCommand::Rotate { flags, .. } => {
            PairedClusters::connect(&flags, scope).await?.rotate_endpoint().await
        }
    }
}

fn print(flags: &PairFlags, made: &MadeFlags) -> Result<(), PluginError> {
    let (served, dialling) = (flags.served_claim(), flags.dialling_claim());
    let mut lines = document(&format!("For {served}, which is served."), &manifests::endpoint(flags, made))?;
    let notes = format!(
        "For {dialling}, which dials. Fill in status.address and status.publicKey of the SyncEndpoint, and list \
         this SyncJob's status.identity.publicKey among its peers; --apply does all that."
    );
    lines.extend(document(&notes, &manifests::job(flags, None))?);
    output::yaml(&lines)
}

/// Says what has been done. Standard output is for manifests.
fn say(text: &str) {
    output::complain(text);
}

/// The two clusters of a pair, and the APIs of its objects.
struct PairedClusters<'a> {
    flags: &'a PairFlags,
    name: &'a str,
    /// What the command line says about both clusters.
    typed: Scope,
    /// Where the SyncJob is.
    dials: Cluster,
    jobs: Api<SyncJob>,
    /// Where the SyncEndpoint is.
    serves: Cluster,
    endpoints: Api<SyncEndpoint>,
}

impl<'a> PairedClusters<'a> {
    async fn connect(flags: &'a PairFlags, scope: &Scope) -> Result<Self, PluginError> {
        let (served, dialling) = (flags.served_claim(), flags.dialling_claim());
        let dials = Cluster::connect(&dialling.scope(scope)).await?;
        let serves = Cluster::connect(&served.scope(scope)).await?;
        Ok(Self {
            flags,
            name: manifests::name(flags),
            typed: scope.clone(),
            jobs: Api::namespaced(dials.client.clone(), &dials.namespace),
            endpoints: Api::namespaced(serves.client.clone(), &serves.namespace),
            dials,
            serves,
        })
    }

    fn waits(&self) -> Waits<'_> {
        Waits { most: self.flags.timeout, name: self.name }
    }

    /// Makes both objects, tries the way between them, introduces them to each other, and waits for a run.
    async fn make(&self, made: &MadeFlags) -> Result<(), PluginError> {
        self.check_claims().await?;
        self.check_free().await?;
        let endpoint = manifests::endpoint(self.flags, made);
        let endpoint = apply(&self.endpoints, self.name, &endpoint, &self.serves).await?;
        let reached = self.waits().address(&self.endpoints, None).await?;
        say(&format!("SyncEndpoint {} serves {reached}", self.name));
        if !made.no_trial {
            trial::run(&self.dials, self.flags, made, &reached, &endpoint.spec.service.protocols).await?;
        }
        let mut stops = Stops::new().map_err(PluginError::Signals)?;
        tokio::select! {
            met = self.introduce(&endpoint, &reached) => met,
            () = stops.next() => Err(self.refused("stopped on request", "what is made stays; `unpair` removes it")),
        }
    }

    /// Refuses claims that are missing or one and the same.
    async fn check_claims(&self) -> Result<(), PluginError> {
        let (served, dialling) = (self.flags.served_claim(), self.flags.dialling_claim());
        let one = claim_named(&self.serves, &served.claim).await?;
        let other = claim_named(&self.dials, &dialling.claim).await?;
        if one.uid() != other.uid() {
            return Ok(());
        }
        Err(PluginError::OneClaim { namespace: self.serves.namespace.clone(), name: served.claim.clone() })
    }

    /// Refuses names that objects of other claims have. To apply the manifests would point those at these claims.
    async fn check_free(&self) -> Result<(), PluginError> {
        let (job, endpoint) = (self.dials.job_if_any(self.name).await?, self.endpoint_if_any().await?);
        let is_own = job.is_none_or(|job| self.dials_for_claim(&job));
        if is_own && endpoint.is_none_or(|endpoint| self.serves_claim(&endpoint)) {
            return Ok(());
        }
        Err(self.refused("there is a SyncJob or SyncEndpoint of other claims", "give another --name"))
    }

    /// Makes the SyncJob, whose pod makes a key, lists that at the endpoint, and waits for a run.
    async fn introduce(&self, endpoint: &SyncEndpoint, reached: &RemoteEnd) -> Result<(), PluginError> {
        let job = manifests::job(self.flags, Some(reached));
        let job = apply(&self.jobs, self.name, &job, &self.dials).await?;
        let key = self.waits().key(&self.jobs, None).await?;
        self.change_peers(endpoint, |peers| with_key(peers, &self.peer(&job), key)).await?;
        say("the SyncJob's key is among the endpoint's peers");
        let (flags, name) = (self.dials.flags(), self.name);
        let goes_on = || format!("the first run goes on; `kubectl volferry status{flags} {name}` shows it");
        say(&self.waits().run(&self.jobs).await?.unwrap_or_else(goes_on));
        Ok(())
    }

    /// Deletes what was made for the pair. The endpoint stays if it has other peers.
    async fn delete(&self) -> Result<(), PluginError> {
        let job = self.dials.job_if_any(self.name).await?;
        let endpoint = self.endpoint_if_any().await?;
        let is_own = job.as_ref().is_none_or(|job| self.dials_for_claim(job))
            && endpoint.as_ref().is_none_or(|endpoint| self.serves_claim(endpoint));
        if !is_own {
            return Err(self.no_pair());
        }
        if let (Some(job), Some(endpoint)) = (&job, &endpoint) {
            self.check(job, endpoint)?;
        }
        let tools = [
            job.as_ref().and_then(|job| owners::from_manifests(job, &[])),
            endpoint.as_ref().and_then(|endpoint| owners::from_manifests(endpoint, &[])),
        ];
        if let Some(tool) = tools.into_iter().flatten().next() {
            say(&format!(
                "note: {tool} makes them from manifests: take them out there, too, or they come back"
            ));
        }
        // The endpoint first: without the SyncJob, nothing tells which of the peers it was.
        if let Some(endpoint) = &endpoint {
            let own = job.as_ref().map(|job| self.own_keys(job)).unwrap_or_default();
            if others(&endpoint.spec.peers, &own).is_empty() {
                delete(&self.endpoints, endpoint, &self.serves).await?;
            } else {
                self.change_peers(endpoint, |peers| others(&peers, &own)).await?;
                say(&format!("SyncEndpoint {} stays, as it has other peers", self.name));
                if job.is_none() {
                    self.report_left_peers(endpoint);
                }
            }
        }
        match &job {
            Some(job) => delete(&self.jobs, job, &self.dials).await,
            None if endpoint.is_none() => {
                Err(self.refused("there is neither a SyncJob nor a SyncEndpoint", NAMED))
            }
            None => Ok(()),
        }
    }

    async fn endpoint(&self) -> Result<SyncEndpoint, PluginError> {
        let missing =
            || self.refused("there is no such SyncEndpoint", &format!("`{}` makes it", self.pair_line()));
        self.endpoint_if_any().await?.ok_or_else(missing)
    }

    /// Returns the command that makes the pair, with what the user typed to get to both clusters.
    fn pair_line(&self) -> String {
        let PairFlags { from, to, .. } = self.flags.clone().at(&self.typed);
        let serve = if self.flags.served() == Side::Source { " --serve=from" } else { "" };
        let name = self.flags.name.iter().map(|name| format!(" --name={name}")).collect::<String>();
        let file = Scope { context: None, ..self.typed.clone() }.cluster_flags();
        format!("kubectl volferry pair --from={from} --to={to}{serve}{name}{file} --apply")
    }

    /// Names the peers that may be SyncJobs of this name. Only the UID of a SyncJob tells which of them was its own.
    fn report_left_peers(&self, endpoint: &SyncEndpoint) {
        let stem = self.peer_stem();
        let mut names: Vec<&str> = endpoint.spec.peers.iter().map(|peer| peer.name.as_str()).collect();
        names.retain(|name| name.rsplit_once('-').is_some_and(|(head, _)| head == stem));
        names.dedup();
        if !names.is_empty() {
            let names = names.join(", ");
            say(&format!(
                "note: the SyncJob is gone; if one of these peers was its key, take it out: {names}"
            ));
        }
    }

    /// Refuses two objects that do not belong to each other, or are of other claims.
    fn check(&self, job: &SyncJob, endpoint: &SyncEndpoint) -> Result<(), PluginError> {
        if is_dialled(job, endpoint) && self.dials_for_claim(job) && self.serves_claim(endpoint) {
            return Ok(());
        }
        Err(self.no_pair())
    }

    fn no_pair(&self) -> PluginError {
        self.refused("SyncJob and SyncEndpoint are no pair of these claims", NAMED)
    }

    /// Returns whether a SyncJob is between an endpoint and the claim that dials, in the direction of the flags.
    fn dials_for_claim(&self, job: &SyncJob) -> bool {
        let (source, destination) = (&job.spec.source, &job.spec.destination);
        let (own, is_remote) = match self.flags.served() {
            Side::Source => (&destination.persistent_volume_claim, source.endpoint.is_some()),
            Side::Sink => (&source.persistent_volume_claim, destination.endpoint.is_some()),
        };
        is_remote && own.as_ref().is_some_and(|claim| claim.claim_name == self.flags.dialling_claim().claim)
    }

    fn serves_claim(&self, endpoint: &SyncEndpoint) -> bool {
        endpoint.spec.persistent_volume_claim.claim_name == self.flags.served_claim().claim
    }

    fn refused(&self, why: &str, hint: &str) -> PluginError {
        PluginError::Blocked { why: format!("{}: {why}", self.name), hint: hint.into() }
    }

    async fn endpoint_if_any(&self) -> Result<Option<SyncEndpoint>, PluginError> {
        let found = self.endpoints.get_opt(self.name).await;
        found
            .map_err(self.serves.failed(format!("read SyncEndpoint {}/{}", self.serves.namespace, self.name)))
    }

    /// Returns the name of a SyncJob among the endpoint's peers, which no SyncJob of another cluster has.
    fn peer(&self, job: &SyncJob) -> String {
        format!("{}-{}", self.peer_stem(), names::fingerprint(&job.uid().unwrap_or_default()))
    }

    fn peer_stem(&self) -> String {
        names::shorten(&format!("{}.{}", self.dials.namespace, self.name), MAX_PEER_STEM)
    }

    /// Returns the name and the key by which the endpoint knows a SyncJob.
    fn own_keys(&self, job: &SyncJob) -> Vec<String> {
        let key = job.status.as_ref().and_then(|status| status.identity);
        [self.peer(job)].into_iter().chain(key.map(|key| key.public_key.to_string())).collect()
    }

    /// Changes the peers of the endpoint that was seen, from what they are by now.
    async fn change_peers(
        &self,
        seen: &SyncEndpoint,
        change: impl Fn(Vec<EndpointPeer>) -> Vec<EndpointPeer>,
    ) -> Result<(), PluginError> {
        let doing = || format!("change the peers of SyncEndpoint {}/{}", self.serves.namespace, self.name);
        for attempt in 1.. {
            let found = self.endpoints.get(self.name).await.map_err(self.serves.failed(doing()))?;
            if found.uid() != seen.uid() {
                return Err(
                    self.refused("another SyncEndpoint has its name by now", "run the same command again")
                );
            }
            let metadata = json!({"uid": found.uid(), "resourceVersion": found.resource_version()});
            let patch = json!({"metadata": metadata, "spec": {"peers": change(found.spec.peers)}});
            match self.endpoints.patch(self.name, &PatchParams::default(), &Patch::Merge(patch)).await {
                Err(kube::Error::Api(answer)) if answer.is_conflict() && attempt < MAX_CHANGES => {}
                patched => return patched.map(drop).map_err(self.serves.failed(doing())),
            }
        }
        Ok(())
    }
}

/// Returns whether a SyncJob names an endpoint, by its key or, after that has changed, by its address.
fn is_dialled(job: &SyncJob, endpoint: &SyncEndpoint) -> bool {
    let status = endpoint.status.as_ref();
    let key = status.and_then(|status| status.public_key.as_deref());
    let address = status.and_then(|status| status.address.as_deref());
    remote(job).is_some_and(|remote| {
        key.is_none_or(|key| remote.public_key == key) || address == Some(remote.address.as_str())
    })
}

/// Returns the endpoint that a SyncJob names.
fn remote(job: &SyncJob) -> Option<&RemoteEndpoint> {
    job.spec.source.endpoint.as_ref().or(job.spec.destination.endpoint.as_ref())
}

/// Returns the peers with one more key.
fn with_key(mut peers: Vec<EndpointPeer>, name: &str, key: PublicKey) -> Vec<EndpointPeer> {
    let public_key = key.to_string();
    if !peers.iter().any(|peer| peer.public_key == public_key) {
        peers.push(EndpointPeer { name: name.into(), public_key });
    }
    peers
}

/// Returns the peers without those that have one of these names or keys.
fn others(peers: &[EndpointPeer], own: &[String]) -> Vec<EndpointPeer> {
    let is_own = |peer: &&EndpointPeer| own.contains(&peer.name) || own.contains(&peer.public_key);
    peers.iter().filter(|peer| !is_own(peer)).cloned().collect()
}

/// Sets the fields of an object that the manifest has. Those of others stay.
async fn apply<K>(api: &Api<K>, name: &str, manifest: &Value, at: &Cluster) -> Result<K, PluginError>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let what = format!("{} {}/{name}", K::kind(&()), at.namespace);
    let applied = api.patch(name, &PatchParams::apply(FIELD_MANAGER), &Patch::Apply(manifest)).await;
    let applied = applied.map_err(at.failed(format!("apply {what}")))?;
    say(&format!("{what} applied"));
    Ok(applied)
}

/// Deletes an object, unless another one has its name by now.
async fn delete<K>(api: &Api<K>, seen: &K, at: &Cluster) -> Result<(), PluginError>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let what = format!("{} {}/{}", K::kind(&()), at.namespace, seen.name_any());
    let preconditions = Some(Preconditions { uid: seen.uid(), ..Preconditions::default() });
    match api.delete(&seen.name_any(), &DeleteParams { preconditions, ..DeleteParams::default() }).await {
        Ok(_) => say(&format!("{what} deleted")),
        Err(kube::Error::Api(status)) if status.is_not_found() => say(&format!("{what} is gone already")),
        Err(error) => return Err(at.failed(format!("delete {what}"))(error)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(name: &str, key: &str) -> EndpointPeer {
        EndpointPeer { name: name.into(), public_key: key.into() }
    }

    #[test]
    fn a_pair_is_known_by_its_address_after_its_key_has_changed() {
        let served = json!({"address": "h:7400::web", "publicKey": "new"});
        let spec = json!({"persistentVolumeClaim": {"claimName": "web"}, "access": "Write"});
        let endpoint =
            serde_json::from_value(json!({"metadata": {}, "spec": spec, "status": served})).unwrap();
        let dials = |address: &str, key: &str| {
            let remote = json!({"endpoint": {"address": address, "publicKey": key}});
            let own = json!({"persistentVolumeClaim": {"claimName": "web"}});
            let spec = json!({"source": own, "destination": remote});
            is_dialled(&serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap(), &endpoint)
        };
        assert!(dials("h:7400::web", "former") && dials("other:7400::web", "new"));
        assert!(!dials("other:7400::web", "former"));
    }

    #[test]
    fn a_key_is_listed_once_and_others_stay() {
        let key = "2Ej8lyFbGXtk9sU3e3mYwA3HnJpKKeG1kcLEcQWvY1Q=".parse().unwrap();
        let one = with_key(vec![peer("laptop", "a")], "web", key);
        assert_eq!((one.len(), one[1].name.as_str()), (2, "web"));
        assert_eq!(with_key(one.clone(), "web", key), one);
        assert_eq!(others(&one, &["web".into()]), [peer("laptop", "a")]);
        assert_eq!(others(&one, &["other".into(), key.to_string()]), [peer("laptop", "a")]);
    }
}
