//! The SyncJobs that copy the claims, and their runs: one while the workload runs, one for the rest, and those that
//! compare all content until they find nothing.

use contract::RunResult;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::super::{
    cluster::{Cluster, failed},
    error::PluginError,
    output,
    pair::waits::{Obstacle, Standing, Waits, observed, standing},
};
use super::{
    record::{MoveRecord, MovedClaim},
    wait_for_objects::Patience,
};
use crate::api::{AccessMode, GROUP, SyncJob, VERSION, conditions};

/// The first words of `spec.trigger`, in the order of the runs. The last ones compare content. Behind all but the first
/// is the state of the workload, after an `@`: no run counts for another state.
const PASSES: [&str; 5] = ["copy", "rest", "verify-1", "verify-2", "verify-3"];
const REST: usize = 1;
const FIRST_VERIFY: usize = 2;
/// Longer than any run.
const NO_LIMIT: std::time::Duration = std::time::Duration::from_secs(10 * 365 * 24 * 3600);

/// What is asked of the copies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Demands {
    pub(super) verify: bool,
    pub(super) any_owner: bool,
}

/// The SyncJobs of a move.
pub(super) struct Passes<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) record: &'a MoveRecord,
    /// Fields of each SyncJob's `spec.pods`.
    pub(super) pods: &'a Value,
    pub(super) patience: Patience,
    pub(super) demands: Demands,
}

impl Passes<'_> {
    /// Copies all claims once.
    pub(super) async fn copy(&self) -> Result<(), PluginError> {
        for claim in &self.record.claims {
            self.make_once(claim).await?;
        }
        let copied = self.record.claims.iter().map(async |claim| {
            self.seen(claim).await?;
            self.ended(claim).await
        });
        let jobs = futures::future::try_join_all(copied).await?;
        jobs.iter().try_for_each(|job| self.check_owners(job))
    }

    /// Copies the rest of all claims, and compares them.
    pub(super) async fn finish(&self) -> Result<(), PluginError> {
        let equal = self.record.claims.iter().map(|claim| self.until_equal(claim));
        futures::future::try_join_all(equal).await.map(drop)
    }

    /// Deletes the SyncJobs, whose pods hold the copies.
    pub(super) async fn delete(&self) -> Result<(), PluginError> {
        for claim in &self.record.claims {
            if let Some(job) = self.cluster.job_if_any(&claim.copy()).await? {
                self.patience.delete(&self.api(), &job).await?;
            }
        }
        Ok(())
    }

    async fn make_once(&self, claim: &MovedClaim) -> Result<(), PluginError> {
        let name = claim.copy();
        let Some(there) = self.cluster.job_if_any(&name).await? else {
            return self.make(claim, PASSES[0]).await;
        };
        let is_own =
            |(_, it): (_, &crate::api::ClaimReference)| [&name, &claim.name].contains(&&it.claim_name);
        let class =
            there.spec.destination.create.as_ref().and_then(|create| create.storage_class_name.as_ref());
        let is_of_class = class == Some(&self.record.class);
        if is_of_class && there.spec.claims().count() == 2 && there.spec.claims().all(is_own) {
            return self.ask_again_if_stuck(claim, &there).await;
        }
        Err(PluginError::blocked(format!("SyncJob {name} is none of this move"), "delete it"))
    }

    async fn make(&self, claim: &MovedClaim, trigger: &str) -> Result<(), PluginError> {
        let job: SyncJob = serde_json::from_value(manifest(claim, &self.record.class, self.pods, trigger))?;
        let made = self.api().create(&PostParams::default(), &job).await;
        made.map(drop).map_err(failed(format!("create SyncJob {}", claim.copy())))
    }

    /// Returns the SyncJob, unless it is to be deleted or gone.
    async fn lasting(&self, claim: &MovedClaim) -> Result<Option<SyncJob>, PluginError> {
        match self.cluster.job_if_any(&claim.copy()).await? {
            Some(job) if job.metadata.deletion_timestamp.is_some() => {
                self.patience.delete(&self.api(), &job).await.map(|()| None)
            }
            job => Ok(job),
        }
    }

    /// Waits until an operator has looked at the SyncJob.
    async fn seen(&self, claim: &MovedClaim) -> Result<(), PluginError> {
        let name = claim.copy();
        let waits = Waits { most: self.patience.0, name: &name };
        match waits.until(&self.api(), observed, |_| Standing::Done(())).await? {
            Standing::Waits(why @ Obstacle::Unseen) => Err(PluginError::blocked(
                format!("SyncJob {name}: {why}"),
                format!(
                    "`kubectl volferry doctor{}` looks for the operator; the workload runs as before",
                    self.cluster.flags()
                ),
            )),
            _ => Ok(()),
        }
    }

    /// Returns the SyncJob once the run has succeeded that its trigger asks for.
    async fn ended(&self, claim: &MovedClaim) -> Result<SyncJob, PluginError> {
        let name = claim.copy();
        match (Waits { most: NO_LIMIT, name: &name }).until(&self.api(), observed, of_trigger).await? {
            Standing::Done(job) => Ok(*job),
            Standing::Waits(why) | Standing::Stuck(why) => Err(PluginError::blocked(
                format!("SyncJob {name}: {why}"),
                "run the same command again once that is out of the way, or with --back",
            )),
        }
    }

    async fn until_equal(&self, claim: &MovedClaim) -> Result<(), PluginError> {
        let stopped_at = self.record.stopped_at.as_deref().unwrap_or_default();
        let mut pass = REST;
        match self.lasting(claim).await? {
            None => self.make(claim, &trigger(pass, stopped_at)).await?,
            Some(job) if pass_of(&job, stopped_at) < REST => {
                self.ask(claim, &trigger(pass, stopped_at)).await?;
            }
            Some(job) => {
                pass = pass_of(&job, stopped_at);
                self.ask_again_if_stuck(claim, &job).await?;
            }
        }
        loop {
            let job = self.ended(claim).await?;
            self.check_owners(&job)?;
            // A run on a device has compared all of it.
            let is_enough = !self.demands.verify || claim.is_device();
            let is_equal = pass >= FIRST_VERIFY && differences(&job) == 0;
            if is_enough || is_equal {
                return Ok(());
            }
            if pass >= FIRST_VERIFY {
                output::complain(&format!("note: claim {}: {} differences", claim.name, differences(&job)));
            }
            pass += 1;
            if pass == PASSES.len() {
                let why = format!("the copy of claim {} differs from it again and again", claim.name);
                return Err(PluginError::blocked(
                    why,
                    "see what writes to it; --back starts the workload as it was",
                ));
            }
            self.ask(claim, &trigger(pass, stopped_at)).await?;
        }
    }

    /// Asks for another run in the place of one that has failed, which nothing else does.
    async fn ask_again_if_stuck(&self, claim: &MovedClaim, job: &SyncJob) -> Result<(), PluginError> {
        let is_seen = observed(job) >= job.metadata.generation;
        if !is_seen || !matches!(of_trigger(job), Standing::Stuck(_)) {
            return Ok(());
        }
        let trigger = job.spec.trigger.clone().unwrap_or_default();
        let (word, times) = trigger.split_once(' ').unwrap_or((&trigger, "1"));
        let times = times.parse::<u32>().unwrap_or(1).saturating_add(1);
        self.ask(claim, &format!("{word} {times}")).await
    }

    async fn ask(&self, claim: &MovedClaim, trigger: &str) -> Result<(), PluginError> {
        let mut spec = json!({"trigger": trigger});
        if !claim.is_device() {
            spec["files"] = json!({"compare": trigger.starts_with("verify").then_some("Content")});
        }
        let patch = Patch::Merge(json!({"spec": spec}));
        let asked = self.api().patch(&claim.copy(), &PatchParams::default(), &patch).await;
        asked.map(drop).map_err(failed(format!("ask for a run of SyncJob {}", claim.copy())))
    }

    fn check_owners(&self, job: &SyncJob) -> Result<(), PluginError> {
        let all = job.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        let told = conditions::find(all, conditions::OWNERS_NOT_KEPT).filter(|it| it.status == "True");
        let Some(told) = told.filter(|_| !self.demands.any_owner) else { return Ok(()) };
        let why = format!("SyncJob {}: {}", job.name_any(), told.message);
        Err(PluginError::blocked(
            why,
            "let syncers run as root here and run the same command again, or add --any-owner",
        ))
    }

    fn api(&self) -> Api<SyncJob> {
        Api::namespaced(self.cluster.client.clone(), &self.cluster.namespace)
    }
}

/// Returns the trigger of a run for a state of the workload.
fn trigger(pass: usize, stopped_at: &str) -> String {
    format!("{}@{stopped_at}", PASSES[pass])
}

/// Returns the place of the run that a SyncJob was asked for last, if that was for this state of the workload.
fn pass_of(job: &SyncJob, stopped_at: &str) -> usize {
    let trigger = job.spec.trigger.as_deref().unwrap_or_default();
    let (word, state) = trigger.split(' ').next().and_then(|it| it.split_once('@')).unwrap_or_default();
    let found = PASSES.iter().position(|pass| *pass == word);
    found.filter(|_| state == stopped_at).unwrap_or_default()
}

fn of_trigger(job: &SyncJob) -> Standing<Box<SyncJob>> {
    let status = job.status.clone().unwrap_or_default();
    let is_answered = status.last_trigger == job.spec.trigger && status.active_run.is_none();
    let has_succeeded = status.last_run.as_ref().is_some_and(|run| run.result == RunResult::Succeeded);
    match standing(&status.conditions) {
        Standing::Stuck(why) => Standing::Stuck(why),
        _ if is_answered && has_succeeded => Standing::Done(Box::new(job.clone())),
        other => other,
    }
}

/// Returns how much the last run of a SyncJob has changed.
fn differences(job: &SyncJob) -> u64 {
    let work = job.status.as_ref().and_then(|status| Some(&status.last_run.as_ref()?.work));
    work.map_or(0, |work| work.files_created + work.files_deleted + work.bytes_changed)
}

/// Returns the SyncJob that copies a claim into one of another class.
fn manifest(claim: &MovedClaim, class: &str, pods: &Value, trigger: &str) -> Value {
    let is_mode = |mode: &&Value| serde_json::from_value::<AccessMode>((*mode).clone()).is_ok();
    let modes = claim.field("/spec/accessModes").as_array();
    let modes: Vec<_> = modes.into_iter().flatten().filter(is_mode).collect();
    let modes = if modes.is_empty() { json!(["ReadWriteOnce"]) } else { json!(modes) };
    let mut destination = json!({
        "persistentVolumeClaim": {"claimName": claim.copy()},
        "create": {"storageClassName": class, "accessModes": modes},
    });
    if let Some(node) = &claim.node {
        let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
        let terms = json!({"nodeSelectorTerms": [{"matchFields": [field]}]});
        destination["pods"] =
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}});
    }
    let source = json!({"persistentVolumeClaim": {"claimName": claim.name}});
    let mut spec = json!({"source": source, "destination": destination, "trigger": trigger, "pods": pods});
    if !claim.is_device() {
        spec["files"] = json!({"delete": true, "deleteLimit": {"percent": 100}, "exclude": ["/lost+found/"]});
    }
    let metadata = json!({"name": claim.copy()});
    json!({"apiVersion": format!("{GROUP}/{VERSION}"), "kind": "SyncJob", "metadata": metadata, "spec": spec})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::validate;

    fn claim(spec: &Value, node: Option<&str>) -> MovedClaim {
        MovedClaim {
            name: "data-db-0".into(),
            manifest: json!({"spec": spec}),
            old_volume: "pv-1".into(),
            new_volume: None,
            node: node.map(Into::into),
        }
    }

    fn job(claim: &MovedClaim) -> SyncJob {
        let pods = json!({"securityContext": {"fsGroup": 7}});
        serde_json::from_value(manifest(claim, "fast", &pods, PASSES[0])).unwrap()
    }

    #[test]
    fn a_copy_has_the_modes_and_the_node_of_its_claim_and_the_spec_is_valid() {
        let modes = json!({"accessModes": ["ReadOnlyMany", "ReadWriteMany"]});
        let made = job(&claim(&modes, Some("node-1")));
        validate::validate(&made.spec, &made.name_any(), "prod").unwrap();
        let create = made.spec.destination.create.as_ref().unwrap();
        assert_eq!(create.access_modes, [AccessMode::ReadWriteMany]);
        assert_eq!(create.storage_class_name.as_deref(), Some("fast"));
        let affinity = json!(made.spec.destination.pods.affinity).to_string();
        assert!(affinity.contains("metadata.name") && affinity.contains("node-1"), "{affinity}");
        let device = job(&claim(&json!({"volumeMode": "Block"}), None));
        validate::validate(&device.spec, &device.name_any(), "prod").unwrap();
        assert!(!device.spec.files.delete);
        assert_eq!(device.spec.destination.create.unwrap().access_modes, [AccessMode::ReadWriteOnce]);
    }

    #[test]
    fn a_run_is_over_once_it_has_answered_the_trigger() {
        let at = |trigger: &str, last: &str, active: Value| {
            let mut job = job(&claim(&json!({}), None));
            job.spec.trigger = Some(trigger.into());
            let run = json!({"id": "m-1", "result": "Succeeded"});
            job.status = serde_json::from_value(
                json!({"lastTrigger": last, "lastRun": run, "activeRun": active, "conditions": []}),
            )
            .unwrap();
            job
        };
        let active = json!({"id": "m-2", "number": 2, "generation": 2});
        assert!(matches!(of_trigger(&at("rest", "rest", Value::Null)), Standing::Done(_)));
        assert!(matches!(of_trigger(&at("rest", "copy", Value::Null)), Standing::Waits(_)));
        assert!(matches!(of_trigger(&at("rest", "rest", active)), Standing::Waits(_)));
    }

    #[test]
    fn a_run_counts_for_the_state_of_the_workload_that_it_was_asked_for() {
        let mut job = job(&claim(&json!({}), None));
        for (trigger, pass) in [
            ("verify-1@u/7 3", FIRST_VERIFY),
            ("rest@u/7", REST),
            ("copy", 0),
            ("verify-1@u/6", 0),
            ("verify-1", 0),
        ] {
            job.spec.trigger = Some(trigger.into());
            assert_eq!(pass_of(&job, "u/7"), pass, "{trigger}");
        }
        assert_eq!(trigger(REST, "u/7"), "rest@u/7");
    }
}
