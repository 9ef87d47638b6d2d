//! What to do next with a job: the state machine of a run. Pure: all that is known comes in, time too.
//!
//! `operator/doc/design.md` draws it. What is decided here is written into the status before anything is made
//! for it, so an operator that is killed anywhere decides the same again.

use std::time::Duration;

use contract::{Phase, RunResult, Side};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

use crate::{
    api::{ActiveRun, RunCause, RunFolder, RunProgress, Stage, SyncJobStatus, SyncRun, conditions::reason},
    fault::Fault,
    human,
    model::{
        claims::Blocked,
        observe::EndState,
        outcome::{self, Outcome},
        pairs::{self, Pair, Stand},
        record::Record,
        retry, status,
        validate::{ValidatedSyncJob, VolumeFolder},
    },
    names::LABEL_SIDE,
    resources::service::PORT,
    schedule::{Past, Schedule},
};

/// How often to look for warnings while pods do not start: events do not wake the controller.
const WARNINGS_PERIOD: SignedDuration = SignedDuration::from_secs(10);
/// How long an end waits on its node for a partner that cannot start.
const PARTNER_PATIENCE: SignedDuration = SignedDuration::from_secs(30);
/// How often to look again at what is not watched: storage classes and namespaces.
const SLOW_PERIOD: SignedDuration = SignedDuration::from_secs(60);
/// How soon to look again for a SyncRun that is on its way out.
const RECORD_PERIOD: SignedDuration = SignedDuration::from_secs(1);
/// How often to look whether a run has fallen due, at least: somebody may set the clock.
const CLOCK_PERIOD: SignedDuration = SignedDuration::from_hours(1);

/// What a spec demands, as far as it decides about runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Demand {
    /// Start no run.
    pub suspend: bool,
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
    /// What became of a claim that cannot be used again: it is gone, about to go, or lost its volume; with whose it is.
    pub lost: Option<(Side, Fault)>,
    /// The destination's claim is not the one that the last successful run wrote to.
    pub is_new_destination: bool,
    /// Whether the run under way may use its claims now, as far as other runs go.
    pub turn: Turn,
    /// The two ends of each shard of the run under way.
    pub pairs: Vec<Pair>,
    /// Where the SyncRun of the run under way is.
    pub record: Record,
    /// The SyncRun by which a person asks for a run now.
    pub asked: Option<&'a SyncRun>,
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

/// Whether the other runs that use its claims leave a run its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turn {
    /// Nobody looked, because the run under way has pods.
    Unknown,
    /// It has.
    Free,
    /// It waits for others.
    Taken(Fault),
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
    /// Record a run before anything is made for it; also a run of which nothing is made yet, for a newer
    /// spec.
    Begin(ActiveRun),
    /// Take a place among the runs that use the same claims.
    Queue,
    /// Wait for other runs, with nothing made; a run that was started and has not made anything is no longer.
    Wait(Fault),
    /// It is the run's turn: record that before anything is made for it.
    Admit,
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
    /// The run is over.
    Finish(Outcome),
}

impl Step {
    /// The stage that a run is in with this step, which was in another before.
    pub fn stage(&self, before: Stage) -> Stage {
        match self {
            Self::Rest | Self::Suspend | Self::Refuse(_) | Self::Block(_) | Self::Halt(_) => Stage::Queued,
            Self::Begin(_) | Self::Queue | Self::Wait(_) => Stage::Queued,
            Self::Admit | Self::Retry(..) | Self::Postpone(..) => Stage::Preparing,
            Self::Launch | Self::Start(_) | Self::Dismiss(..) | Self::Withdraw => Stage::Starting,
            Self::Run => Stage::Running,
            Self::Finish(_) => Stage::Finishing,
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

/// What to do next, and when to look again if nothing happens until then.
pub fn next(situation: &Situation<'_>) -> (Step, Option<Timestamp>) {
    match (&situation.status.active_run, &situation.demand) {
        (Some(run), _) => active(situation, run),
        (None, Err(fault)) => (Step::Refuse(fault.clone()), after(situation, SLOW_PERIOD)),
        (None, Ok(demand)) => idle(situation, demand),
    }
}

fn idle(situation: &Situation<'_>, demand: &Demand) -> (Step, Option<Timestamp>) {
    if demand.suspend {
        return (Step::Suspend, None);
    }
    let asked = situation.asked.map(|asked| (RunCause::Manual, asked.metadata.name.clone()));
    let Some((cause, id)) = asked.or_else(|| due(situation, demand).map(|cause| (cause, None))) else {
        let tick = after(situation, CLOCK_PERIOD);
        let again = due_time(situation, demand).and_then(|due| tick.map(|tick| due.min(tick)));
        return match &situation.lost {
            Some((_, fault)) => (Step::Block(Blocked::Stalled(fault.clone())), again),
            None => (Step::Rest, again),
        };
    };
    if let Err(blocked) = &situation.claims {
        return (Step::Block(blocked.clone()), after(situation, SLOW_PERIOD));
    }
    let number = situation.status.last_run.as_ref().map_or(0, |run| run.number) + 1;
    let (generation, trigger) = (situation.generation, demand.trigger.clone());
    let run = status::new_run(situation.job, number, generation, trigger, situation.now);
    let id = id.unwrap_or_else(|| run.id.clone());
    let run = ActiveRun { id, cause: Some(cause), spec_hash: Some(situation.spec_hash.into()), ..run };
    (Step::Begin(demanded(demand, run, situation.now)), None)
}

/// The run as the spec demands it, with a place among the others and nothing made of it yet.
fn demanded(demand: &Demand, run: ActiveRun, now: Timestamp) -> ActiveRun {
    ActiveRun {
        uid: None,
        stage: Stage::Queued,
        shards: shards(demand),
        local: demand.is_local,
        source: Some(demand.source.clone()),
        destination: Some(demand.destination.clone()),
        queue_time: Some(MicroTime(now)),
        start_time: None,
        try_time: None,
        ..run
    }
}

/// One run for each value of the trigger, for a destination's claim that was made anew and, with a schedule, for its times;
/// without one, for each change of the spec that matters to a run.
fn due(situation: &Situation<'_>, demand: &Demand) -> Option<RunCause> {
    if demand.trigger.is_some() && demand.trigger != situation.status.last_trigger {
        return Some(RunCause::Trigger);
    }
    let succeeded = situation.status.last_run.as_ref().is_some_and(|run| run.result == RunResult::Succeeded);
    if succeeded && situation.is_new_destination {
        return Some(RunCause::Destination);
    }
    if demand.schedule.is_some() {
        return due_time(situation, demand).filter(|due| *due <= situation.now).map(|_| RunCause::Schedule);
    }
    let Some(last) = &situation.status.last_run else { return Some(RunCause::Spec) };
    let is_new =
        last.generation != situation.generation && last.spec_hash.as_deref() != Some(situation.spec_hash);
    is_new.then_some(RunCause::Spec)
}

/// When the next run falls due by the schedule, or fell due.
fn due_time(situation: &Situation<'_>, demand: &Demand) -> Option<Timestamp> {
    let status = situation.status;
    let last = status.last_run.as_ref().and_then(|run| run.start_time.as_ref()).map(|time| time.0);
    let active = status.active_run.as_ref().and_then(|run| run.start_time.as_ref()).map(|time| time.0);
    let past = Past {
        recorded: status.next_run_time.as_ref().map(|time| time.0),
        is_of_this_spec: status.observed_generation == Some(situation.generation),
        last_start: active.or(last),
    };
    demand.schedule.as_ref()?.due(situation.uid, past, situation.now)
}

/// What `status.nextRunTime` is after a step. While suspended, and while the spec cannot be run, no run is ahead, and what
/// falls due then is not made up.
pub fn next_run(situation: &Situation<'_>, step: &Step) -> Option<Timestamp> {
    let is_active = situation.status.active_run.is_some();
    match &situation.demand {
        Err(_) if is_active => situation.status.next_run_time.as_ref().map(|time| time.0),
        Err(_) => None,
        Ok(demand) if demand.suspend => None,
        Ok(demand) => match step {
            Step::Begin(_) if !is_active => demand.schedule.as_ref()?.after(situation.uid, situation.now),
            _ => due_time(situation, demand),
        },
    }
}

/// A run that has no turn yet. It has no children: what there is of it was made from an older spec, and is removed.
fn waiting(situation: &Situation<'_>, run: &ActiveRun) -> (Step, Option<Timestamp>) {
    let demand = match &situation.demand {
        Ok(demand) => demand,
        Err(fault) => return (Step::Finish(Outcome::stopped(fault.clone())), None),
    };
    if demand.suspend {
        return (Step::Suspend, None);
    }
    if !is_bare(situation) || run.generation != situation.generation {
        return renew(situation, run);
    }
    if let Err(blocked) = &situation.claims {
        return (Step::Block(blocked.clone()), after(situation, SLOW_PERIOD));
    }
    match &situation.turn {
        _ if run.queue_time.is_none() => (Step::Queue, None),
        Turn::Free => (Step::Admit, None),
        Turn::Taken(fault) => (Step::Wait(fault.clone()), after(situation, WARNINGS_PERIOD)),
        Turn::Unknown => (Step::Linger, after(situation, WARNINGS_PERIOD)),
    }
}

fn active(situation: &Situation<'_>, run: &ActiveRun) -> (Step, Option<Timestamp>) {
    if situation.record == Record::Deleted {
        return (Step::Finish(Outcome::canceled(deleted(run))), None);
    }
    if !run.is_started() {
        return waiting(situation, run);
    }
    let deadline = deadline(situation, run);
    let try_time = run.try_time.as_ref().map_or(situation.now, |time| time.0);
    let pairs: Vec<Pair> = situation.pairs.iter().map(|pair| pair.settled(run)).collect();
    let stand = pairs::stand(&pairs, situation.now);
    let (step, again) = match stand {
        Stand::Over(outcome) => return conclude(situation, run, *outcome),
        stand if situation.now >= deadline => {
            let timeout = situation.demand.as_ref().map_or(Duration::ZERO, |demand| demand.timeout);
            let obstacle = obstacle(situation, &stand);
            return (Step::Finish(Outcome::stopped(outcome::timed_out(timeout, &obstacle))), None);
        }
        // What is written to a claim that is about to go is lost with it, and the claim goes only when no pod uses it.
        _ if let Some((Side::Sink, fault)) = &situation.lost => {
            return (Step::Halt(Blocked::Stalled(fault.clone())), None);
        }
        _ if situation.now < try_time => return (Step::Await, Some(try_time)),
        Stand::Ending(until) => return (Step::Linger, Some(until)),
        // Before anything is made beside it: what is on its way out may take the keys of a launch with it.
        Stand::Stopping => (Step::Linger, None),
        Stand::Absent => return launch(situation, run),
        Stand::Running => (Step::Run, None),
        Stand::Starting(_) if is_behind(situation, run) => return renew(situation, run),
        Stand::Starting(fault) => {
            (start(&pairs, fault, try_time, situation.now), after(situation, WARNINGS_PERIOD))
        }
    };
    (step, Some(again.map_or(deadline, |again| again.min(deadline))))
}

/// An end that cannot start is left to Kubernetes, and its partner does not wait for it on a node.
fn start(pairs: &[Pair], fault: Option<Fault>, try_time: Timestamp, now: Timestamp) -> Step {
    let (Some(side), Some(fault)) = (pairs::partner_of_stuck(pairs), fault.clone()) else {
        return Step::Start(fault);
    };
    let is_there = pairs.iter().any(|pair| *pair.end(side) != EndState::Absent);
    if is_there && now.duration_since(try_time) < PARTNER_PATIENCE {
        return Step::Start(Some(fault));
    }
    let other = pairs::other(side);
    let message = format!(
        "{} Until the {other} runs there is no {side} pod, which would hold room on its node for nothing.",
        human::sentence(&fault.message)
    );
    let fault = Fault::new(fault.reason, message);
    if is_there { Step::Dismiss(side, fault) } else { Step::Start(Some(fault)) }
}

/// What held up a run that took too long, as a sentence after another; empty if nothing is known.
fn obstacle(situation: &Situation<'_>, stand: &Stand) -> String {
    let known = match stand {
        Stand::Starting(Some(fault)) => Some(fault.message.clone()),
        Stand::Absent => {
            let status = || status::obstacle(situation.status).map(Into::into);
            situation.leftovers.clone().or_else(status)
        }
        Stand::Running => (!have_met(situation)).then(not_met),
        _ => None,
    };
    known.map(|message| format!(" {message}")).unwrap_or_default()
}

/// Whether the ends of the run under way got beyond connecting, all of them, as far as they have said; one pod has nobody to meet.
fn have_met(situation: &Situation<'_>) -> bool {
    let is_local = situation.status.active_run.as_ref().is_some_and(|run| run.local);
    is_local || situation.progress.is_some_and(|it| it.progress.phase != Phase::Connect)
}

fn not_met() -> String {
    format!(
        "Source and sink run, and have not said that they met: a NetworkPolicy may keep the pods labelled {LABEL_SIDE}=source \
         from UDP port {PORT} of those labelled {LABEL_SIDE}=sink; config/samples/networkpolicy.yaml is one that lets them."
    )
}

fn launch(situation: &Situation<'_>, run: &ActiveRun) -> (Step, Option<Timestamp>) {
    if let Err(fault) = &situation.demand {
        return (Step::Finish(Outcome::stopped(fault.clone())), None);
    }
    if let Some(leftovers) = &situation.leftovers {
        let fault = Fault::new(reason::PREPARING, leftovers);
        return (Step::Start(Some(fault)), after(situation, WARNINGS_PERIOD));
    }
    if is_behind(situation, run) {
        return renew(situation, run);
    }
    if let Err(blocked) = &situation.claims {
        return (Step::Block(blocked.clone()), after(situation, SLOW_PERIOD));
    }
    match &situation.turn {
        // Of two runs that were started at a time, one gives way before anything is made of it.
        Turn::Taken(fault) => (Step::Wait(fault.clone()), after(situation, WARNINGS_PERIOD)),
        Turn::Free | Turn::Unknown => match &situation.record {
            Record::Kept => (Step::Launch, after(situation, WARNINGS_PERIOD)),
            Record::Taken(fault) => (Step::Start(Some(fault.clone())), after(situation, WARNINGS_PERIOD)),
            _ => (Step::Linger, after(situation, RECORD_PERIOD)),
        },
    }
}

/// Whether the children of a try that has not come to run are to be others by now: the spec was corrected, or
/// the operator has another image.
fn is_behind(situation: &Situation<'_>, run: &ActiveRun) -> bool {
    situation.demand.is_ok() && (run.generation != situation.generation || situation.outdated)
}

/// The same run, from the newest spec, its trigger included: nothing was done for the older one. First what was made from
/// an older one is removed, since the newer one may name other claims.
fn renew(situation: &Situation<'_>, run: &ActiveRun) -> (Step, Option<Timestamp>) {
    if let Ok(demand) = &situation.demand
        && run.generation != situation.generation
        && is_bare(situation)
    {
        let (generation, trigger) = (situation.generation, demand.trigger.clone());
        let spec_hash = Some(situation.spec_hash.into());
        let run = ActiveRun { generation, spec_hash, trigger, ..run.clone() };
        return (Step::Begin(demanded(demand, run, situation.now)), None);
    }
    (Step::Withdraw, after(situation, WARNINGS_PERIOD))
}

fn deleted(run: &ActiveRun) -> Fault {
    let message = format!(
        "The SyncRun {} was deleted, which ends the run. Change spec.trigger, or create a SyncRun, to run again.",
        run.id
    );
    Fault::new("RunDeleted", message)
}

fn is_bare(situation: &Situation<'_>) -> bool {
    situation.pairs.iter().all(Pair::is_absent)
}

fn conclude(situation: &Situation<'_>, run: &ActiveRun, outcome: Outcome) -> (Step, Option<Timestamp>) {
    if outcome.found_in_use() {
        let at =
            situation.now.checked_add(retry::wait(run.postponed.saturating_add(1))).unwrap_or(Timestamp::MAX);
        return (Step::Postpone(outcome, at), Some(at));
    }
    let limit = situation.demand.as_ref().map_or(0, |demand| demand.retries);
    let next = retry::next(run.retries, limit, deadline(situation, run), situation.now);
    match next.filter(|_| outcome.may_retry) {
        Some(at) => (Step::Retry(outcome, at), Some(at)),
        None => (Step::Finish(outcome), None),
    }
}

/// When the run is given up. A spec that cannot be read any more sets no new deadline; the Jobs have their
/// own.
fn deadline(situation: &Situation<'_>, run: &ActiveRun) -> Timestamp {
    let started = run.start_time.as_ref().map_or(situation.now, |time| time.0);
    let timeout = situation.demand.as_ref().map(|demand| demand.timeout);
    timeout.ok().and_then(|timeout| started.checked_add(timeout).ok()).unwrap_or(Timestamp::MAX)
}

/// As the status has it.
fn shards(demand: &Demand) -> i32 {
    i32::try_from(demand.shards).unwrap_or(1)
}

fn after(situation: &Situation<'_>, period: SignedDuration) -> Option<Timestamp> {
    situation.now.checked_add(period).ok()
}

#[cfg(test)]
mod tests;
