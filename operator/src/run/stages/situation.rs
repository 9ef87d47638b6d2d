//! The input of the stages' decisions. Pure.

use std::{collections::BTreeSet, time::Duration};

use contract::Side;
use jiff::{SignedDuration, Timestamp};

use super::step::{ClaimStep, Decision, Step};
use crate::{
    api::{ActiveRun, Hooks, RunFolder, RunProgress, SyncJobStatus, SyncRun},
    fault::Fault,
    queue::turns::Queued,
    run::{due_times::Schedule, record::Record, shard_pairs::Pair},
    snapshots::source_capture::Captured,
    spec::validate::ValidatedSyncJob,
    volumes::claims::{Blocked, LostClaim},
};

/// How long pods usually take to start. Causes of a delay are not looked for earlier.
pub const USUAL_START: SignedDuration = SignedDuration::from_secs(5);

/// The interval between checks for warnings while pods do not start, because events do not wake the controller.
pub(super) const WARNINGS_PERIOD: SignedDuration = SignedDuration::from_secs(10);

/// The interval between checks of unwatched objects: storage classes and namespaces.
pub(super) const SLOW_PERIOD: SignedDuration = SignedDuration::from_secs(60);

/// The parts of a spec that decide about runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// Whether no run may start.
    pub suspend: bool,
    /// Whether a run that falls due stops the one under way.
    pub replaces: bool,
    /// The priority of runs in the queue; the highest comes first.
    pub priority: i32,
    /// The schedule, if any.
    pub schedule: Option<Schedule>,
    /// `spec.trigger`.
    pub trigger: Option<String>,
    /// How long the capture of the source may take; `None` if it is not captured.
    pub capture_timeout: Option<Duration>,
    /// How long the VolumeSnapshot of the destination may take; `None` if none is taken.
    pub image_timeout: Option<Duration>,
    /// The maximum duration of a run, including retries.
    pub timeout: Duration,
    /// The maximum number of retries of a failed run.
    pub retries: u32,
    /// The number of shards that the tree is divided into.
    pub shards: u32,
    /// Whether one pod mounts both volumes.
    pub is_local: bool,
    /// The claim and folder that are read.
    pub source: RunFolder,
    /// The claim and folder that are written.
    pub destination: RunFolder,
}

impl From<&ValidatedSyncJob> for Demand {
    fn from(job: &ValidatedSyncJob) -> Self {
        Self {
            suspend: job.suspend,
            replaces: job.replaces,
            priority: job.priority,
            schedule: job.schedule.clone(),
            trigger: job.trigger.clone(),
            capture_timeout: job.capture.as_ref().map(|capture| capture.timeout),
            image_timeout: job.images.as_ref().map(|images| images.timeout),
            timeout: job.timeout,
            retries: job.retries,
            shards: job.parallelism,
            is_local: job.is_local,
            source: job.run_folder(Side::Source),
            destination: job.run_folder(Side::Sink),
        }
    }
}

/// The SyncJob that is decided about.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Subject {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The spec's generation.
    pub generation: i64,
    /// The hash of the spec by [`spec_hash`](crate::spec::spec_hash).
    pub spec_hash: String,
}

/// What was read for a job, and decides as it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    /// The queue round for a run that takes a place now.
    pub round: i64,
    /// The nodes of the job's volumes and of its run's pods, on which a run that takes a place now counts; looked up
    /// only if runs per node are limited.
    pub nodes: Vec<String>,
    /// The state of the SyncRun of the run under way with regard to the run, such as missing.
    pub record: Record,
    /// The SyncRun by which a person asks for a run now; while a run is under way, only one for a restore.
    pub asked: Option<SyncRun>,
    /// The names of the job's SyncRuns with the record of a run that has ended.
    pub ended: BTreeSet<String>,
    /// The highest number of these runs; 0 without any.
    pub last_number: i64,
    /// Why the run under way may no longer use a claim of another namespace; `None` if it may.
    pub withdrawn: Option<Fault>,
    /// How far the capture of the source of the run under way is; only while that has no pods
    /// and does not wait in the queue.
    pub captured: Captured,
    /// How far the VolumeSnapshot of the destination of the run under way is; only once that run has asked for it.
    pub imaged: Captured,
}

/// Everything that a decision depends on.
#[derive(Debug, Clone)]
pub struct Situation<'a> {
    /// The job.
    pub job: &'a Subject,
    /// The job's status.
    pub status: &'a SyncJobStatus,
    /// What was read for it.
    pub facts: &'a Facts,
    /// The demands of the spec, or why it cannot be run.
    pub demand: Result<Demand, Fault>,
    /// Whether both claims can be mounted, and otherwise why not.
    pub claims: Result<(), Blocked>,
    /// Why the spec may not use a claim of another namespace; `None` if it may.
    pub not_granted: Option<Fault>,
    /// What has to be done to the destination's claim, as the spec says: it does not exist, or is too small.
    pub claim_step: Option<ClaimStep>,
    /// A claim that is missing, terminating or lost.
    pub lost: Option<LostClaim>,
    /// Whether the destination's claim is not the one that the last successful run wrote to.
    pub is_new_destination: bool,
    /// Whether a person has just accepted another volume as the destination.
    pub is_accepted: bool,
    /// Whether other runs allow the run under way to start.
    pub turn: Turn,
    /// Whether other runs wait for their turn, because there may be only so many.
    pub keeps_others_waiting: bool,
    /// The two ends of each shard of the run under way.
    pub pairs: Vec<Pair>,
    /// Whether a person has canceled the run under way by the annotation that names it.
    pub is_canceled: bool,
    /// Why the benchmark under way cannot be run; `None` if it can, or for other runs.
    pub refused: Option<Fault>,
    /// The hooks of the run under way, as its own spec has them.
    pub hooks: Option<&'a Hooks>,
    /// Whether all pods of the current try have found their volumes free.
    pub is_free: bool,
    /// The progress of the current try that its pods have reported.
    pub progress: Option<&'a RunProgress>,
    /// The message about objects that do not belong to the current try; `None` if none exist.
    pub leftovers: Option<String>,
    /// Whether the current try has a Job with an outdated spec generation, image or node.
    pub outdated: bool,
    /// When the first of the pods of the try that are being deleted counts as lost, if it is still there then.
    pub overdue: Option<Timestamp>,
    /// The present time.
    pub now: Timestamp,
}

impl Situation<'_> {
    /// Returns whether a person asks for a restore in place while another run is under way. The restore goes first, so
    /// that the other run neither writes what the restore replaces nor drops the snapshot.
    pub fn is_restore_asked_for(&self) -> bool {
        self.facts.asked.as_ref().is_some_and(|asked| asked.spec.restore.is_some())
    }
}

/// Whether other runs give a run its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    /// Not checked, because the run under way has pods.
    Unknown,
    /// It has its turn.
    Free,
    /// It waits for other runs that use its claims.
    Taken(Fault),
    /// It waits because a limit on concurrent runs is reached.
    Queued(Queued),
}

/// Returns the step that the claims need before a run can start, if any.
pub(super) fn of_claims(situation: &Situation<'_>) -> Option<Step> {
    match &situation.claims {
        _ if let Some(step) = situation.claim_step => Some(Step::Claim(step)),
        Err(blocked) => Some(Step::Block(blocked.clone())),
        Ok(()) => None,
    }
}

/// Returns the step of a run without a turn, and when to check again; `None` if it has its turn.
pub(super) fn wait(situation: &Situation<'_>, turn: &Turn) -> Option<Decision> {
    let (fault, period) = match turn {
        Turn::Free | Turn::Unknown => return None,
        Turn::Taken(fault) => (fault, WARNINGS_PERIOD),
        Turn::Queued(queued) => (&queued.fault, queued.patience()),
    };
    Some(Step::Wait(fault.clone()).again(after(situation, period)))
}

pub(super) fn after(situation: &Situation<'_>, period: SignedDuration) -> Option<Timestamp> {
    situation.now.checked_add(period).ok()
}

/// Returns when the run is given up. If the spec is no longer valid, the run gets no deadline here; its Jobs have their
/// own.
pub(super) fn deadline(situation: &Situation<'_>, run: &ActiveRun) -> Timestamp {
    let started = run.start_time.as_ref().map_or(situation.now, |time| time.0);
    let timeout = situation.demand.as_ref().map(|demand| demand.timeout);
    timeout.ok().and_then(|timeout| started.checked_add(timeout).ok()).unwrap_or(Timestamp::MAX)
}

/// Returns whether the objects of a try that does not run yet are outdated, because the spec or the operator's image
/// has changed.
pub(super) fn is_behind(situation: &Situation<'_>, run: &ActiveRun) -> bool {
    situation.demand.is_ok() && (run.generation != situation.job.generation || situation.outdated)
}

pub(super) fn is_bare(situation: &Situation<'_>) -> bool {
    situation.pairs.iter().all(Pair::is_absent)
}
