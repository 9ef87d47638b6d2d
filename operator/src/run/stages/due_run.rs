//! The stage Done, in which no run is under way: decides whether one is due, and when the next one will be. Pure.

use contract::{Reason, RunResult};
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use super::{
    queued,
    situation::{Demand, SLOW_PERIOD, Situation, after},
    step::{Decision, Step},
};
use crate::{
    api::{ActiveRun, RunCause, SyncRun},
    names,
    run::{due_times::Past, restore},
    status::run_status,
    volumes::claims::Blocked,
};

/// The longest interval between checks whether a run has fallen due, since the clock may be set.
const CLOCK_PERIOD: SignedDuration = SignedDuration::from_hours(1);

pub(super) fn next(situation: &Situation<'_>, demand: &Demand) -> Decision {
    if demand.suspend {
        return Step::Suspend.into();
    }
    if let Some(step) = situation.claim_step {
        return Step::Claim(step).again(after(situation, SLOW_PERIOD));
    }
    let asked_run = situation.facts.asked.as_ref();
    let asked = asked_run.map(|asked| (cause_of(asked), asked.metadata.name.clone()));
    let Some((cause, id)) = asked.or_else(|| due(situation, demand).map(|cause| (cause, None))) else {
        let tick = after(situation, CLOCK_PERIOD);
        let again = due_time(situation, demand).and_then(|due| tick.map(|tick| due.min(tick)));
        return match &situation.lost {
            Some(lost) => Step::Block(Blocked::Stalled(lost.fault.clone())).again(again),
            None => Step::Rest.again(again),
        };
    };
    if let Err(blocked) = &situation.claims {
        return Step::Block(blocked.clone()).again(after(situation, SLOW_PERIOD));
    }
    let number = next_number(situation);
    let (generation, trigger) = (situation.job.generation, demand.trigger.clone());
    let run = run_status::new_run(&situation.job.name, number, generation, trigger, situation.now);
    let id = id.unwrap_or_else(|| run.id.clone());
    let asked = asked_run.map(|asked| &asked.spec);
    let restore = asked.and_then(|asked| asked.restore.clone());
    let benchmark = asked.and_then(|asked| asked.benchmark.clone());
    let force = asked.is_some_and(|asked| asked.force);
    let spec_hash = Some(situation.job.spec_hash.clone());
    let uid = asked_run.and_then(ResourceExt::uid);
    let asked_time = asked_run.and_then(ResourceExt::creation_timestamp);
    let run =
        ActiveRun { id, uid, cause: Some(cause), asked_time, spec_hash, force, restore, benchmark, ..run };
    Step::Begin(Box::new(queued::demanded(situation, demand, run))).into()
}

/// Returns the number of the next run, after those of the status and of the records: the status may have been erased,
/// and a number that comes again would name what an earlier run has made. Leaves out one whose name is that of a
/// record: a person has chosen it for an earlier run.
fn next_number(situation: &Situation<'_>) -> i64 {
    let last = [&situation.status.last_run, &situation.status.last_benchmark].into_iter().flatten();
    let last = last.map(|run| run.number).max().unwrap_or(0).max(situation.facts.last_number);
    let next = last.saturating_add(1);
    let is_free =
        |number: &i64| !situation.facts.ended.contains(&names::run_id(&situation.job.name, *number));
    (next..=i64::MAX).find(is_free).unwrap_or(next)
}

/// Whether another run takes the place of the one under way.
#[derive(Debug, Default)]
pub(super) struct Replacement {
    /// Why it does so now.
    pub cause: Option<RunCause>,
    /// When it may do so.
    pub due: Option<Timestamp>,
}

/// Decides whether the run under way has to be stopped because a restore was asked for or the next one falls due.
pub(super) fn replacing(situation: &Situation<'_>, run: &ActiveRun) -> Replacement {
    let by = |cause| Replacement { cause, due: None };
    if situation.is_restore_asked_for() {
        return by(Some(RunCause::Restore));
    }
    let demand = situation.demand.as_ref().ok();
    let Some(demand) = demand.filter(|demand| demand.replaces && !demand.suspend && run.is_plain()) else {
        return by(None);
    };
    if demand.trigger.is_some() && demand.trigger != run.trigger {
        return by(Some(RunCause::Trigger));
    }
    if demand.schedule.is_some() {
        let due = due_time(situation, demand);
        let is_due = due.is_some_and(|due| due <= situation.now);
        return Replacement { cause: is_due.then_some(RunCause::Schedule), due };
    }
    let is_new = run.generation != situation.job.generation
        && run.spec_hash.as_deref() != Some(&*situation.job.spec_hash);
    by(is_new.then_some(RunCause::Spec))
}

fn cause_of(asked: &SyncRun) -> RunCause {
    match (&asked.spec.restore, &asked.spec.benchmark) {
        (Some(_), _) => RunCause::Restore,
        (None, Some(_)) => RunCause::Benchmark,
        (None, None) => RunCause::Manual,
    }
}

/// Returns why a run is due now. The causes are a new value of the trigger, a recreated destination claim, and either
/// the schedule or, without one, a change of the spec that matters to a run. After a restore in place, only the trigger
/// counts.
fn due(situation: &Situation<'_>, demand: &Demand) -> Option<RunCause> {
    if demand.trigger.is_some() && demand.trigger != situation.status.last_trigger {
        return Some(RunCause::Trigger);
    }
    if restore::holds(situation.status) {
        return None;
    }
    let succeeded = situation.status.last_run.as_ref().is_some_and(|run| run.result == RunResult::Succeeded);
    if situation.is_accepted || (succeeded && situation.is_new_destination) {
        return Some(RunCause::Destination);
    }
    if demand.schedule.is_some() {
        return due_time(situation, demand).filter(|due| *due <= situation.now).map(|_| RunCause::Schedule);
    }
    let Some(last) = &situation.status.last_run else { return Some(RunCause::Spec) };
    if last.reason == Some(Reason::NotGranted) {
        return Some(RunCause::Spec);
    }
    let is_new = last.generation != situation.job.generation
        && last.spec_hash.as_deref() != Some(&*situation.job.spec_hash);
    is_new.then_some(RunCause::Spec)
}

/// Returns when the next run falls due by the schedule, or fell due.
fn due_time(situation: &Situation<'_>, demand: &Demand) -> Option<Timestamp> {
    let status = situation.status;
    if restore::holds(status) {
        return None;
    }
    let last = status.last_run.as_ref().and_then(|run| run.start_time.as_ref()).map(|time| time.0);
    let active = status.active_run.as_ref().filter(|run| run.benchmark.is_none());
    let active = active.and_then(|run| run.start_time.as_ref()).map(|time| time.0);
    let past = Past {
        recorded: status.next_run_time.as_ref().map(|time| time.0),
        is_of_this_spec: status.observed_generation == Some(situation.job.generation),
        last_start: active.or(last),
    };
    demand.schedule.as_ref()?.due(&situation.job.uid, past, situation.now)
}

/// Returns `status.nextRunTime` after a step. While the job is suspended or its spec is invalid, there is no next run,
/// and times that pass meanwhile are not made up for.
pub fn next_run(situation: &Situation<'_>, step: &Step) -> Option<Timestamp> {
    let is_active = situation.status.active_run.is_some();
    match &situation.demand {
        Err(_) if is_active => situation.status.next_run_time.as_ref().map(|time| time.0),
        Err(_) => None,
        Ok(demand) if demand.suspend => None,
        Ok(demand) => match step {
            Step::Begin(run) if !is_active && run.benchmark.is_none() => {
                demand.schedule.as_ref()?.after(&situation.job.uid, situation.now)
            }
            _ => due_time(situation, demand),
        },
    }
}
