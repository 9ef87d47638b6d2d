//! The input and the result of the stages' decisions. Pure.

use std::time::Duration;

use contract::Side;
use jiff::{SignedDuration, Timestamp};

use crate::{
    api::{ActiveRun, Hooks, RunFolder, RunProgress, Stage, StoppedRun, SyncJobStatus, SyncRun},
    fault::Fault,
    hooks::hook_state::Point,
    queue::{crowd::Crowd, turns::Queued},
    run::{outcome::Outcome, record::Record, schedule::Schedule, shard_pairs::Pair},
    snapshots::source_capture::Captured,
    spec::validate::ValidatedSyncJob,
    volumes::claims::Blocked,
};

/// How long pods usually take to start. Causes of a delay are not looked for earlier.
pub const USUAL_START: SignedDuration = SignedDuration::from_secs(5);

/// How long of many runs each waits for its next news, so that one write tells both.
const MOMENT: SignedDuration = SignedDuration::from_secs(5);

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

/// Everything that a decision depends on.
#[derive(Debug, Clone)]
pub struct Situation<'a> {
    /// The job's name.
    pub job: &'a str,
    /// The job's UID.
    pub uid: &'a str,
    /// The spec's generation.
    pub generation: i64,
    /// The hash of the spec by [`spec_hash`](crate::spec::spec_hash).
    pub spec_hash: &'a str,
    /// The job's status.
    pub status: &'a SyncJobStatus,
    /// The demands of the spec, or why it cannot be run.
    pub demand: Result<Demand, Fault>,
    /// Whether both claims can be mounted, and otherwise why not.
    pub claims: Result<(), Blocked>,
    /// Whether the destination's claim has to be created: it does not exist, and the spec says how to create it.
    pub creates: bool,
    /// Whether the destination's claim has to grow: it is too small, and the spec allows it to grow.
    pub grows: bool,
    /// The fault of a claim that is missing, terminating or lost, and the claim's side.
    pub lost: Option<(Side, Fault)>,
    /// Whether the destination's claim is not the one that the last successful run wrote to.
    pub is_new_destination: bool,
    /// Whether a person has just accepted another volume as the destination.
    pub is_accepted: bool,
    /// Whether other runs allow the run under way to start.
    pub turn: Turn,
    /// The queue round for a run that takes a place now.
    pub round: i64,
    /// The number of runs under way.
    pub crowd: Crowd,
    /// The nodes on which a run that takes a place now counts.
    pub nodes: &'a [String],
    /// The two ends of each shard of the run under way.
    pub pairs: Vec<Pair>,
    /// The state of the SyncRun of the run under way.
    pub record: Record,
    /// The SyncRun by which a person asks for a run now; while a run is under way, only one for a restore.
    pub asked: Option<&'a SyncRun>,
    /// Whether a person has canceled the run under way by the annotation that names it.
    pub is_canceled: bool,
    /// Why the benchmark under way cannot be run; `None` if it can, or for other runs.
    pub refused: Option<Fault>,
    /// Why the run under way may no longer use a claim of another namespace; `None` if it may.
    pub withdrawn: Option<&'a Fault>,
    /// The hooks of the run under way, as its own spec has them.
    pub hooks: Option<&'a Hooks>,
    /// Whether all pods of the current try have found their volumes free.
    pub is_free: bool,
    /// How far the capture of the source is.
    pub captured: &'a Captured,
    /// How far the VolumeSnapshot of the destination is.
    pub imaged: &'a Captured,
    /// The progress of the current try that its pods have reported.
    pub progress: Option<&'a RunProgress>,
    /// When the last process of the current try began, by the kubelets' clocks; `None` unless all have begun.
    pub ran_since: Option<Timestamp>,
    /// Whether the SyncRun tells that the run is under way without a write of the operator.
    pub is_told_by_agents: bool,
    /// The message about objects that do not belong to the current try; `None` if none exist.
    pub leftovers: Option<String>,
    /// Whether the current try has a Job with an outdated spec generation, image or node.
    pub outdated: bool,
    /// The present time.
    pub now: Timestamp,
}

impl Situation<'_> {
    /// Returns whether a person asks for a restore in place while another run is under way. The restore goes first, so
    /// that the other run neither writes what the restore replaces nor drops the snapshot.
    pub fn is_restore_asked_for(&self) -> bool {
        self.asked.is_some_and(|asked| asked.spec.restore.is_some())
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

/// The next step of a job.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Nothing is due.
    Rest,
    /// Start no run, because the job is suspended. A run that has not started is removed.
    Suspend,
    /// Remove the run under way, which has not started, because a restore that a person asks for goes first.
    Yield,
    /// Report that the spec cannot be run.
    Refuse(Fault),
    /// Report that a due run cannot start.
    Block(Blocked),
    /// Create the destination's claim.
    Create,
    /// Expand the destination's claim.
    Grow,
    /// Record a run before any of its objects are created, or record a newer spec for a run without objects.
    Begin(Box<ActiveRun>),
    /// Queue the run.
    Queue,
    /// Wait for other runs without any objects. A run that was started and has none counts as not started again.
    Wait(Fault),
    /// Record that it is the run's turn, before any of its objects are created.
    Admit,
    /// Record that the run has to run its hook `after`, since its pods are about to start and it has no hook `before`.
    OpenHooks,
    /// Record that a hook starts, before its command does.
    BeginHook {
        /// The hook.
        point: Point,
        /// Whether pods of the run may still be running, and have to be stopped.
        stops: bool,
        /// The result of the run, if it can no longer be determined after the hook.
        stopped: Option<Box<StoppedRun>>,
    },
    /// Run the command of a hook, or wait for it to end.
    AwaitHook(Point),
    /// Record that a hook has ended, with its failure if any.
    EndHook(Point, Option<String>),
    /// Record that the capture of the source begins, under that name, before anything is made for it.
    BeginCapture(String),
    /// Make what the capture needs and lacks, and wait for it; with the obstacle, if any.
    Capture(Option<Fault>),
    /// Record that the source is captured.
    EndCapture,
    /// Record that the storage takes a VolumeSnapshot of the destination under that name, before it is made.
    BeginImage(String),
    /// Make that VolumeSnapshot if it is missing, and wait for it; with the obstacle, if any.
    Image(Option<Fault>),
    /// Create the missing objects of the run under way.
    Launch,
    /// Remove the objects of the run under way, which does not run yet, to create them again.
    Withdraw,
    /// Wait for pods to start; with the obstacle, if any.
    Start(Option<Fault>),
    /// Wait for the ends, both of which are running.
    Run,
    /// Wait for the time of the next try.
    Await,
    /// Remove the running end, since the other cannot start; it is created again as soon as that one can.
    Dismiss(Side, Fault),
    /// Stop the run under way until a person has acted; then it starts over.
    Halt(Blocked),
    /// Wait for some ends while others have ended, and leave the status unchanged.
    Linger,
    /// Record that the try failed, and try again at that time.
    Retry(Outcome, Timestamp),
    /// Record that the try found a volume in use, and take a place again at that time, which costs no retry.
    Postpone(Outcome, Timestamp),
    /// Record that the run has ended.
    Finish(Outcome),
}

impl Step {
    /// Returns the stage of a run in this step, given its stage before.
    pub fn stage(&self, before: Stage) -> Stage {
        match self {
            Self::Rest | Self::Suspend | Self::Yield | Self::Refuse(_) | Self::Block(_) | Self::Halt(_) => {
                Stage::Queued
            }
            Self::Create | Self::Grow | Self::Begin(_) | Self::Queue | Self::Wait(_) => Stage::Queued,
            Self::Postpone(..) => Stage::Queued,
            Self::Admit | Self::Retry(..) | Self::OpenHooks => Stage::Preparing,
            // The pods of the run wait for this hook.
            Self::BeginHook { point: Point::Before, .. }
            | Self::AwaitHook(Point::Before)
            | Self::EndHook(Point::Before, _)
                if before == Stage::Starting =>
            {
                before
            }
            Self::BeginHook { point: Point::Before, .. }
            | Self::AwaitHook(Point::Before)
            | Self::EndHook(Point::Before, _) => Stage::Preparing,
            Self::BeginCapture(_) | Self::Capture(_) | Self::EndCapture => Stage::Capturing,
            Self::BeginHook { .. } | Self::AwaitHook(_) | Self::EndHook(..) if before == Stage::Capturing => {
                before
            }
            Self::BeginHook { .. } | Self::AwaitHook(_) | Self::EndHook(..) => Stage::Finishing,
            Self::Launch | Self::Start(_) | Self::Dismiss(..) | Self::Withdraw => Stage::Starting,
            Self::Run => Stage::Running,
            Self::BeginImage(_) | Self::Image(_) | Self::Finish(_) => Stage::Finishing,
            Self::Await | Self::Linger => before,
        }
    }

    /// Returns whether the pods of the current try are gone after this step, so that a run which is still started has
    /// to look again for its turn.
    pub fn ends_launch(&self) -> bool {
        matches!(self, Self::Withdraw | Self::Retry(..) | Self::Postpone(..) | Self::Begin(_))
    }

    /// Returns the obstacle of a run in this step, if any.
    pub fn obstacle(&self) -> Option<&Fault> {
        match self {
            Self::Wait(fault) | Self::Dismiss(_, fault) | Self::Refuse(fault) => Some(fault),
            Self::Block(Blocked::Waiting(fault) | Blocked::Stalled(fault))
            | Self::Halt(Blocked::Waiting(fault) | Blocked::Stalled(fault)) => Some(fault),
            Self::Start(fault) | Self::Capture(fault) | Self::Image(fault) => fault.as_ref(),
            _ => None,
        }
    }
}

/// Returns the step that the claims need before a run can start, if any.
pub(super) fn of_claims(situation: &Situation<'_>) -> Option<Step> {
    match &situation.claims {
        _ if situation.creates => Some(Step::Create),
        _ if situation.grows => Some(Step::Grow),
        Err(blocked) => Some(Step::Block(blocked.clone())),
        Ok(()) => None,
    }
}

/// Returns the step of a run without a turn, and when to check again; `None` if it has its turn.
pub(super) fn wait(situation: &Situation<'_>, turn: &Turn) -> Option<(Step, Option<Timestamp>)> {
    let (fault, period) = match turn {
        Turn::Free | Turn::Unknown => return None,
        Turn::Taken(fault) => (fault, WARNINGS_PERIOD),
        Turn::Queued(queued) => (&queued.fault, queued.patience()),
    };
    Some((Step::Wait(fault.clone()), after(situation, period)))
}

pub(super) fn after(situation: &Situation<'_>, period: SignedDuration) -> Option<Timestamp> {
    situation.now.checked_add(period).ok()
}

/// Returns until when one of many runs waits for its next news after an event `at` that time; `None` if it is over. The
/// time comes from a node, whose clock may differ.
pub(super) fn moment(situation: &Situation<'_>, at: Timestamp) -> Option<Timestamp> {
    let (until, latest) = (at.checked_add(MOMENT).ok()?, situation.now.checked_add(MOMENT).ok()?);
    (situation.crowd.is_dense() && situation.now < until && until <= latest).then_some(until)
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
    situation.demand.is_ok() && (run.generation != situation.generation || situation.outdated)
}

pub(super) fn is_bare(situation: &Situation<'_>) -> bool {
    situation.pairs.iter().all(Pair::is_absent)
}
