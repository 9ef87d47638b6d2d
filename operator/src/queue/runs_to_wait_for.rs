//! Determines the runs of other SyncJobs that a run has to wait for, because one would write what the other reads or
//! writes. Pure.
//!
//! `operator/doc/design.md` explains why two such runs never start together, and why none waits forever.

use contract::{Reason, Side};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaimVolumeSource;
use kube::ResourceExt as _;

use super::place::{self, Place, Recorded};
use crate::{
    api::{ActiveRun, RunFolder, SyncJob},
    ends::end_namespaces,
    fault::Fault,
    names::{self, TryNames},
    pods::{pod_state, stored_fields::Pod},
};

/// The number of runs that a message names.
const NAMED: usize = 3;

/// The other users of claims, in all namespaces.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Rivals {
    /// The namespace of the job whose rivals these are.
    namespace: String,
    runs: Vec<Rival>,
    pods: Vec<Stray>,
}

/// A run recorded in another SyncJob's status.
#[derive(Debug, Clone, PartialEq)]
struct Rival {
    /// The job's name, with its namespace if that is another one.
    job: String,
    place: Place,
    run: ActiveRun,
    /// The label of the pods of its current try.
    label: String,
}

/// A pod of a run or a try that is over or was never recorded, whose process may still be running.
#[derive(Debug, Clone, PartialEq)]
struct Stray {
    name: String,
    namespace: String,
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
    /// Collects the rivals of the job of that namespace and name from all SyncJobs and syncer pods.
    pub fn new<'a>(
        namespace: &str,
        name: &str,
        jobs: impl IntoIterator<Item = &'a SyncJob>,
        pods: Vec<Pod>,
    ) -> Self {
        let own = seen_from(namespace, namespace, name);
        let runs = jobs.into_iter().filter_map(|job| rival(job, namespace));
        let runs: Vec<Rival> = runs.filter(|rival| rival.job != own).collect();
        let is_recorded = |pod: &Pod, job: &str| {
            let of_try = pod.labels().get(names::LABEL_TRY);
            let of_job = |rival: &&Rival| rival.job == job && rival.run.is_started();
            // The next run of the job may use other claims.
            runs.iter().filter(of_job).any(|rival| of_try.is_none_or(|label| *label == rival.label))
        };
        let is_stray =
            |pod: &Pod| owner(pod, namespace).is_some_and(|job| job != own && !is_recorded(pod, &job));
        let pods =
            pods.into_iter().filter(|pod| is_stray(pod) && pod_state::is_alive(pod)).map(stray).collect();
        Self { namespace: namespace.into(), runs, pods }
    }

    /// Returns which runs and pods `run` of the job with that name and UID waits for before its objects are created;
    /// `None` if it is its turn.
    ///
    /// A started run is always waited for, even by a run that was started a moment ago and has no objects yet. Of two
    /// runs that have not started, the one with the later place waits. A run that pauses before its next try and only
    /// reads what this run writes is not waited for: it looks again before that try, and gives way then.
    pub fn ahead_of(&self, run: &ActiveRun, name: &str, uid: &str, now: Timestamp) -> Option<Fault> {
        let place = Place::of(run, name, uid);
        let run = &located(run, &self.namespace);
        let is_ahead = |rival: &&Rival| {
            let is_earlier = place.as_ref().is_some_and(|own| rival.place < *own);
            is_earlier || rival.run.is_started()
        };
        let runs = self.runs.iter().filter(is_ahead).filter_map(|rival| rival.in_the_way_of(run, now));
        let said: Vec<String> =
            runs.chain(self.pods.iter().filter_map(|pod| pod.in_the_way_of(run))).collect();
        (!said.is_empty()).then(|| waiting(run, &said))
    }

    /// Returns a sentence about the runs and pods that probably use the volume of that end, which a syncer found in
    /// use.
    pub fn suspects(&self, run: &ActiveRun, side: Side) -> String {
        let run = &located(run, &self.namespace);
        let Some(folder) = run.folder(side) else { return String::new() };
        if folder.address.is_some() {
            return String::new();
        }
        let uses = |it: Option<&RunFolder>| it.is_some_and(|it| it.is_of_same_claim(folder));
        let runs = self.runs.iter().filter(|rival| rival.run.is_started());
        let runs =
            runs.filter(|rival| uses(rival.run.source.as_ref()) || uses(rival.run.destination.as_ref()));
        let runs = runs.map(|rival| format!("run {} of SyncJob {}", rival.run.id, rival.job));
        let pods = self.pods.iter().filter(|pod| pod.claims.iter().any(|it| pod.is_of(it, folder)));
        let said: Vec<String> = runs.chain(pods.map(Stray::described)).collect();
        let claim = &folder.claim_name;
        if said.is_empty() {
            format!(
                "No other run that the operator knows uses the claim {claim}: a syncer of another namespace or cluster probably does, \
             or one that was started by hand."
            )
        } else {
            format!("The claim {claim} is used by {}.", listed(&said))
        }
    }
}

impl Rival {
    fn in_the_way_of(&self, run: &ActiveRun, now: Timestamp) -> Option<String> {
        let Conflict { folder, theirs, ours } = conflict(&self.run, run)?;
        if theirs == Use::Reads && self.pauses(now) {
            return None;
        }
        let verb = if self.run.is_started() { theirs.verb() } else { theirs.plan() };
        let ours = ours.verb();
        Some(format!(
            "run {} of SyncJob {}, which {verb} the {folder} that this run {ours}",
            self.run.id, self.job
        ))
    }

    /// Returns whether the run has failed, and waits for the time of its next try.
    fn pauses(&self, now: Timestamp) -> bool {
        let is_due = self.run.try_time.as_ref().is_none_or(|time| time.0 <= now);
        self.run.is_started() && !is_due
    }
}

impl Stray {
    fn is_of(&self, claim: &PersistentVolumeClaimVolumeSource, folder: &RunFolder) -> bool {
        folder.address.is_none()
            && folder.namespace.as_ref() == Some(&self.namespace)
            && folder.claim_name == claim.claim_name
    }

    fn described(&self) -> String {
        let node = self.node.as_deref().map(|node| format!(" on node {node}")).unwrap_or_default();
        format!("the pod {}{node}, which is left of a run that is over", self.name)
    }

    fn in_the_way_of(&self, run: &ActiveRun) -> Option<String> {
        let is_in_the_way = uses(run).any(|(folder, ours)| {
            let used = |it: &&PersistentVolumeClaimVolumeSource| self.is_of(it, &folder);
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

/// A folder that two runs use, at least one of which writes.
struct Conflict {
    folder: RunFolder,
    theirs: Use,
    ours: Use,
}

fn conflict(theirs: &ActiveRun, ours: &ActiveRun) -> Option<Conflict> {
    uses(theirs).find_map(|(their, they)| {
        let is_disputed =
            |(our, we): &(RunFolder, Use)| their.overlaps(our) && (they == Use::Writes || *we == Use::Writes);
        let (_, we) = uses(ours).find(is_disputed)?;
        Some(Conflict { folder: their, theirs: they, ours: we })
    })
}

/// Returns how a run uses the folders of its claims. A benchmark writes at the root of both volumes.
fn uses(run: &ActiveRun) -> impl Iterator<Item = (RunFolder, Use)> {
    let is_benchmark = run.benchmark.is_some();
    let used = move |folder: &RunFolder, used| {
        if is_benchmark {
            (RunFolder { path: "/".into(), ..folder.clone() }, Use::Writes)
        } else {
            (folder.clone(), used)
        }
    };
    let written = run.destination.as_ref().map(|folder| used(folder, Use::Writes));
    written.into_iter().chain(run.source.as_ref().map(|folder| used(folder, Use::Reads)))
}

fn rival(job: &SyncJob, namespace: &str) -> Option<Rival> {
    let Recorded { place, run } = place::recorded(job)?;
    let (own, uid) = (job.namespace().unwrap_or_default(), job.uid().unwrap_or_default());
    let label = TryNames::new(&job.name_any(), &uid, run.number, run.past_tries()).label();
    Some(Rival { job: seen_from(namespace, &own, &job.name_any()), place, run: located(run, &own), label })
}

/// Returns the run of a job of that namespace, with the namespaces of its claims.
fn located(run: &ActiveRun, namespace: &str) -> ActiveRun {
    let located = |folder: &Option<RunFolder>| folder.as_ref().map(|it| it.seen_from(namespace));
    ActiveRun { source: located(&run.source), destination: located(&run.destination), ..run.clone() }
}

/// Returns a job's name, with its namespace unless that is `from`.
fn seen_from(from: &str, namespace: &str, name: &str) -> String {
    if from == namespace { name.into() } else { format!("{namespace}/{name}") }
}

fn owner(pod: &Pod, from: &str) -> Option<String> {
    let name = pod.annotations().get(names::ANNOTATION_SYNCJOB)?;
    Some(seen_from(from, &end_namespaces::job_namespace(pod)?, name))
}

fn stray(pod: Pod) -> Stray {
    let (name, namespace) = (pod.name_any(), pod.namespace().unwrap_or_default());
    let spec = pod.spec.unwrap_or_default();
    let volumes = spec.volumes.unwrap_or_default().into_iter();
    let claims = volumes.filter_map(|volume| volume.persistent_volume_claim).collect();
    Stray { name, namespace, node: spec.node_name, claims }
}

fn waiting(run: &ActiveRun, said: &[String]) -> Fault {
    Fault::new(
        Reason::WaitingForRun,
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
