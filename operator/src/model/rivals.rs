//! Determines the runs of other SyncJobs that a run has to wait for, because one would write what the other reads or
//! writes. Pure.
//!
//! `operator/doc/design.md` explains why two such runs never start together, and why none waits forever.

use contract::Side;
use k8s_openapi::api::core::v1::PersistentVolumeClaimVolumeSource;
use kube::ResourceExt as _;

use super::{
    observe,
    place::{self, Place},
    stored::Pod,
};
use crate::{
    api::{ActiveRun, RunFolder, SyncJob, conditions::reason},
    fault::Fault,
    names,
};

/// The number of runs that a message names.
const NAMED: usize = 3;

/// The other users of a namespace's claims.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rivals {
    runs: Vec<Rival>,
    pods: Vec<Stray>,
}

/// A run recorded in another SyncJob's status.
#[derive(Debug, Clone, PartialEq)]
struct Rival {
    job: String,
    place: Place,
    run: ActiveRun,
}

/// A pod of a run that is over or was never recorded, whose process may still be running.
#[derive(Debug, Clone, PartialEq)]
struct Stray {
    name: String,
    node: Option<String>,
    claims: Vec<PersistentVolumeClaimVolumeSource>,
}

/// How a run uses a claim that another run uses, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    Reads,
    Writes,
}

impl Rivals {
    /// Collects the rivals of the job of that name from the SyncJobs and the syncer pods of its namespace.
    pub fn new<'a>(name: &str, jobs: impl IntoIterator<Item = &'a SyncJob>, pods: Vec<Pod>) -> Self {
        let others = jobs.into_iter().filter(|job| job.name_any() != name);
        let runs: Vec<Rival> = others.filter_map(rival).collect();
        let is_recorded = |job: &str| runs.iter().any(|rival| rival.job == job && rival.run.is_started());
        let is_stray = |pod: &Pod| owner(pod).is_some_and(|job| job != name && !is_recorded(job));
        let pods =
            pods.into_iter().filter(|pod| is_stray(pod) && observe::is_alive(pod)).map(stray).collect();
        Self { runs, pods }
    }

    /// Returns which runs and pods `run` of the job with that name and UID waits for before its objects are created;
    /// `None` if it is its turn.
    ///
    /// A started run is always waited for, even by a run that was started a moment ago and has no objects yet. Of two
    /// runs that have not started, the one with the later place waits.
    pub fn ahead_of(&self, run: &ActiveRun, name: &str, uid: &str) -> Option<Fault> {
        let place = Place::of(run, name, uid);
        let is_ahead = |rival: &&Rival| {
            let is_earlier = place.as_ref().is_some_and(|own| rival.place < *own);
            is_earlier || rival.run.is_started()
        };
        let runs = self.runs.iter().filter(is_ahead).filter_map(|rival| rival.in_the_way_of(run));
        let said: Vec<String> =
            runs.chain(self.pods.iter().filter_map(|pod| pod.in_the_way_of(run))).collect();
        (!said.is_empty()).then(|| waiting(run, &said))
    }

    /// Returns a sentence about the runs and pods that probably use the volume of that end, which a syncer found in
    /// use.
    pub fn suspects(&self, run: &ActiveRun, side: Side) -> String {
        let Some(folder) = folder(run, side) else { return String::new() };
        let uses = |it: Option<&RunFolder>| it.is_some_and(|it| it.claim_name == folder.claim_name);
        let runs = self.runs.iter().filter(|rival| rival.run.is_started());
        let runs =
            runs.filter(|rival| uses(rival.run.source.as_ref()) || uses(rival.run.destination.as_ref()));
        let runs = runs.map(|rival| format!("run {} of SyncJob {}", rival.run.id, rival.job));
        let pods =
            self.pods.iter().filter(|pod| pod.claims.iter().any(|it| it.claim_name == folder.claim_name));
        let said: Vec<String> = runs.chain(pods.map(Stray::described)).collect();
        let claim = &folder.claim_name;
        match said.is_empty() {
            true => format!(
                "No other run of this namespace uses the claim {claim}: a syncer of another namespace or cluster probably does, \
                 or one that was started by hand."
            ),
            false => format!("The claim {claim} is used by {}.", listed(&said)),
        }
    }
}

impl Rival {
    fn in_the_way_of(&self, run: &ActiveRun) -> Option<String> {
        let (claim, theirs, ours) = conflict(&self.run, run)?;
        let verb = if self.run.is_started() { theirs.verb() } else { theirs.plan() };
        let ours = ours.verb();
        Some(format!(
            "run {} of SyncJob {}, which {verb} the claim {claim} that this run {ours}",
            self.run.id, self.job
        ))
    }
}

impl Stray {
    fn described(&self) -> String {
        let node = self.node.as_deref().map(|node| format!(" on node {node}")).unwrap_or_default();
        format!("the pod {}{node}, which is left of a run that is over", self.name)
    }

    fn in_the_way_of(&self, run: &ActiveRun) -> Option<String> {
        let is_in_the_way = uses(run).any(|(folder, ours)| {
            let used = |it: &&PersistentVolumeClaimVolumeSource| folder.claim_name == it.claim_name;
            let writes = |it: &PersistentVolumeClaimVolumeSource| it.read_only != Some(true);
            self.claims.iter().filter(used).any(|it| ours == Use::Writes || writes(it))
        });
        is_in_the_way.then(|| self.described())
    }
}

impl Use {
    fn verb(self) -> &'static str {
        match self {
            Self::Reads => "reads",
            Self::Writes => "writes",
        }
    }

    fn plan(self) -> &'static str {
        match self {
            Self::Reads => "is to read",
            Self::Writes => "is to write",
        }
    }
}

/// Returns the claim on which two runs conflict because at least one of them writes, and how each of them uses it.
fn conflict(theirs: &ActiveRun, ours: &ActiveRun) -> Option<(String, Use, Use)> {
    uses(theirs).find_map(|(their, they)| {
        let is_disputed =
            |(our, we): &(RunFolder, Use)| their.overlaps(our) && (they == Use::Writes || *we == Use::Writes);
        let (_, we) = uses(ours).find(is_disputed)?;
        Some((their.claim_name.clone(), they, we))
    })
}

/// Returns how a run uses the folders of its claims. A benchmark writes at the root of both volumes.
fn uses(run: &ActiveRun) -> impl Iterator<Item = (RunFolder, Use)> {
    let is_benchmark = run.benchmark.is_some();
    let used = move |folder: &RunFolder, used| match is_benchmark {
        true => (RunFolder { path: "/".into(), ..folder.clone() }, Use::Writes),
        false => (folder.clone(), used),
    };
    let written = run.destination.as_ref().map(|folder| used(folder, Use::Writes));
    written.into_iter().chain(run.source.as_ref().map(|folder| used(folder, Use::Reads)))
}

fn rival(job: &SyncJob) -> Option<Rival> {
    let (place, run) = place::recorded(job)?;
    Some(Rival { job: job.name_any(), place, run: run.clone() })
}

fn owner(pod: &Pod) -> Option<&str> {
    pod.annotations().get(names::ANNOTATION_SYNCJOB).map(String::as_str)
}

fn stray(pod: Pod) -> Stray {
    let name = pod.name_any();
    let spec = pod.spec.unwrap_or_default();
    let volumes = spec.volumes.unwrap_or_default().into_iter();
    let claims = volumes.filter_map(|volume| volume.persistent_volume_claim).collect();
    Stray { name, node: spec.node_name, claims }
}

fn folder(run: &ActiveRun, side: Side) -> Option<&RunFolder> {
    match side {
        Side::Source => run.source.as_ref(),
        Side::Sink => run.destination.as_ref(),
    }
}

fn waiting(run: &ActiveRun, said: &[String]) -> Fault {
    Fault::new(
        reason::WAITING_FOR_RUN,
        format!(
            "Run {} waits for {}. It starts as soon as that is over; waiting uses up neither retries nor spec.limits.timeout.",
            run.id,
            listed(said)
        ),
    )
}

fn listed(said: &[String]) -> String {
    let others = said.len().saturating_sub(NAMED);
    let named = said[..said.len() - others].join("; ");
    if others == 0 { named } else { format!("{named}; and {others} more") }
}

#[cfg(test)]
mod tests;
