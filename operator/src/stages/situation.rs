//! What the stages decide by, and what they decide. Pure.

use std::time::Duration;

use contract::Side;
use jiff::{SignedDuration, Timestamp};

use crate::{
    api::{ActiveRun, Hooks, RunFolder, RunProgress, Stage, StoppedRun, SyncJobStatus, SyncRun},
    fault::Fault,
    model::{
        claims::Blocked,
        hooks::Point,
        outcome::Outcome,
        pairs::Pair,
        queue::Queued,
        record::Record,
        validate::{ValidatedSyncJob, VolumeFolder},
    },
    schedule::Schedule,
};

/// How long pods usually take to start. Nobody looks for the reasons of a delay before.
pub const USUAL_START: SignedDuration = SignedDuration::from_secs(5);

/// How often to look for warnings while pods do not start: events do not wake the controller.
pub(super) const WARNINGS_PERIOD: SignedDuration = SignedDuration::from_secs(10);

/// How often to look again at what is not watched: storage classes and namespaces.
pub(super) const SLOW_PERIOD: SignedDuration = SignedDuration::from_secs(60);

/// What a spec demands, as far as it decides about runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// Start no run.
    pub suspend: bool,
    /// A run that falls due stops the one under way.
    pub replaces: bool,
    /// Which place a run takes among those that wait; the highest comes first.
    pub priority: i32,
    /// When runs fall due.
    pub schedule: Option<Schedule>,
    /// `spec.trigger`.
    pub trigger: Option<String>,
    /// The longest that a run may take, retries included.
    pub timeout: Duration,
    /// How often a failed run is tried again.
    pub retries: u32,
    /// How many shards the tree is dealt into.
    pub shards: u32,
    /// One pod has both volumes.
    pub is_local: bool,
    /// What is read.
    pub source: RunFolder,
    /// What is written.
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
            timeout: job.timeout,
            retries: job.retries,
            shards: job.parallelism,
            is_local: job.is_local,
            source: folder(&job.source),
            destination: folder(&job.destination),
        }
    }
}

fn folder(volume: &VolumeFolder) -> RunFolder {
    RunFolder { claim_name: volume.claim.name.clone(), path: volume.folder.as_str().into() }
}

/// All that the decision depends on.
#[derive(Debug, Clone)]
pub struct Situation<'a> {
    /// The job's name.
    pub job: &'a str,
    /// The job's UID.
    pub uid: &'a str,
    /// The spec's generation.
    pub generation: i64,
    /// What [`spec_hash`](crate::model::spec_hash) makes of the spec.
    pub spec_hash: &'a str,
    /// The job's status.
    pub status: &'a SyncJobStatus,
    /// What the spec demands, or why it cannot be run.
    pub demand: Result<Demand, Fault>,
    /// Whether both claims can be mounted.
    pub claims: Result<(), Blocked>,
    /// The destination's claim is to be created: it is not there, and the spec says how to make it.
    pub creates: bool,
    /// What became of a claim that cannot be used again: it is gone, about to go, or lost its volume; with whose it is.
    pub lost: Option<(Side, Fault)>,
    /// The destination's claim is not the one that the last successful run wrote to.
    pub is_new_destination: bool,
    /// Whether the run under way may start now, as far as other runs go.
    pub turn: Turn,
    /// The round of the queue that a run gets which takes a place now.
    pub round: i64,
    /// The two ends of each shard of the run under way.
    pub pairs: Vec<Pair>,
    /// Where the SyncRun of the run under way is.
    pub record: Record,
    /// The SyncRun by which a person asks for a run now.
    pub asked: Option<&'a SyncRun>,
    /// Why the benchmark under way cannot be run.
    pub refused: Option<Fault>,
    /// The hooks of the run under way, as its spec has them.
    pub hooks: Option<&'a Hooks>,
    /// How far the try under way is, as far as its pods have said.
    pub progress: Option<&'a RunProgress>,
    /// There are children that do not belong to the try under way; with what is said of them.
    pub leftovers: Option<String>,
    /// The try under way has a Job that was made from another generation than the run's, or with another
    /// image than the operator's.
    pub outdated: bool,
    /// The present time.
    pub now: Timestamp,
}

/// Whether other runs leave a run its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    /// Nobody looked, because the run under way has pods.
    Unknown,
    /// It has.
    Free,
    /// It waits for others that use its claims.
    Taken(Fault),
    /// It waits because the most runs that may be under way are.
    Queued(Queued),
}

/// What to do next.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Nothing is due.
    Rest,
    /// Nothing is started, on request.
    Suspend,
    /// The spec cannot be run.
    Refuse(Fault),
    /// What is due cannot begin.
    Block(Blocked),
    /// Create the destination's claim.
    Create,
    /// Record a run before anything is made for it; also a run of which nothing is made yet, for a newer
    /// spec.
    Begin(ActiveRun),
    /// Take a place among the runs that are due.
    Queue,
    /// Wait for other runs, with nothing made; a run that was started and has not made anything is no longer.
    Wait(Fault),
    /// It is the run's turn: record that before anything is made for it.
    Admit,
    /// Record that the run owes its hook `after`, since its pods are about to start and it has no hook `before`.
    OpenHooks,
    /// Record that a hook begins, before its command is started.
    BeginHook {
        /// Which one.
        point: Point,
        /// Whether pods of the run may still run, and are to be stopped.
        stops: bool,
        /// How the run ends after the hook, if nothing of it can say that any more.
        stopped: Option<Box<StoppedRun>>,
    },
    /// Run the command of a hook, or wait for it to end.
    AwaitHook(Point),
    /// A hook has ended; with why it failed, if it did.
    EndHook(Point, Option<String>),
    /// Make the children of the run under way that are not there.
    Launch,
    /// Remove the children of the run under way, none of which has done anything yet, to make them anew.
    Withdraw,
    /// Wait for pods that start.
    Start(Option<Fault>),
    /// Wait for the ends, both of which run.
    Run,
    /// Wait for the time of the next try.
    Await,
    /// Remove the end that runs, since the other cannot start; it is made again when that can.
    Dismiss(Side, Fault),
    /// Stop the run under way, which cannot go on before a person has acted; then it begins again.
    Halt(Blocked),
    /// Wait for one end, the other being over; the status stays as it is.
    Linger,
    /// The try failed, and there will be another.
    Retry(Outcome, Timestamp),
    /// The try found a volume in use, and there will be another that costs neither a retry nor time.
    Postpone(Outcome, Timestamp),
    /// All ends of the run have reported success: that is said, and the run keeps its claims until its pods have ended.
    Report(Outcome),
    /// The pods of a run that was reported as succeeded have ended as reported.
    Confirm,
    /// The run is over.
    Finish(Outcome),
}

impl Step {
    /// The stage that a run is in with this step, which was in another before.
    pub fn stage(&self, before: Stage) -> Stage {
        match self {
            Self::Rest | Self::Suspend | Self::Refuse(_) | Self::Block(_) | Self::Halt(_) => Stage::Queued,
            Self::Create | Self::Begin(_) | Self::Queue | Self::Wait(_) => Stage::Queued,
            Self::Admit | Self::Retry(..) | Self::Postpone(..) | Self::OpenHooks => Stage::Preparing,
            Self::BeginHook { point: Point::Before, .. }
            | Self::AwaitHook(Point::Before)
            | Self::EndHook(Point::Before, _) => Stage::Preparing,
            Self::BeginHook { .. } | Self::AwaitHook(_) | Self::EndHook(..) => Stage::Finishing,
            Self::Launch | Self::Start(_) | Self::Dismiss(..) | Self::Withdraw => Stage::Starting,
            Self::Run => Stage::Running,
            Self::Report(_) | Self::Confirm | Self::Finish(_) => Stage::Finishing,
            Self::Await | Self::Linger => before,
        }
    }

    /// What is in the way of a run with this step.
    pub fn obstacle(&self) -> Option<&Fault> {
        match self {
            Self::Wait(fault) | Self::Dismiss(_, fault) | Self::Refuse(fault) => Some(fault),
            Self::Block(Blocked::Waiting(fault) | Blocked::Stalled(fault))
            | Self::Halt(Blocked::Waiting(fault) | Blocked::Stalled(fault)) => Some(fault),
            Self::Start(fault) => fault.as_ref(),
            _ => None,
        }
    }
}

/// What a run does that has not got its turn, and when it looks again: the sooner the further ahead it is in the queue,
/// since it is woken when its turn comes.
pub(super) fn wait(situation: &Situation<'_>, turn: &Turn) -> Option<(Step, Option<Timestamp>)> {
    let (fault, period) = match turn {
        Turn::Free | Turn::Unknown => return None,
        Turn::Taken(fault) => (fault, WARNINGS_PERIOD),
        Turn::Queued(queued) => {
            let seconds = i64::try_from(queued.position).unwrap_or(i64::MAX).saturating_mul(5);
            let longest = SLOW_PERIOD.as_secs() * 5;
            (&queued.fault, SignedDuration::from_secs(seconds.clamp(WARNINGS_PERIOD.as_secs(), longest)))
        }
    };
    Some((Step::Wait(fault.clone()), after(situation, period)))
}

pub(super) fn after(situation: &Situation<'_>, period: SignedDuration) -> Option<Timestamp> {
    situation.now.checked_add(period).ok()
}

/// When the run is given up. A spec that cannot be read any more sets no new deadline; the Jobs have their
/// own.
pub(super) fn deadline(situation: &Situation<'_>, run: &ActiveRun) -> Timestamp {
    let started = run.start_time.as_ref().map_or(situation.now, |time| time.0);
    let timeout = situation.demand.as_ref().map(|demand| demand.timeout);
    timeout.ok().and_then(|timeout| started.checked_add(timeout).ok()).unwrap_or(Timestamp::MAX)
}

/// Whether the children of a try that has not come to run are to be others by now: the spec was corrected, or
/// the operator has another image.
pub(super) fn is_behind(situation: &Situation<'_>, run: &ActiveRun) -> bool {
    situation.demand.is_ok() && (run.generation != situation.generation || situation.outdated)
}

pub(super) fn is_bare(situation: &Situation<'_>) -> bool {
    situation.pairs.iter().all(Pair::is_absent)
}
