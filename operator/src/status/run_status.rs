//! The last step: updates the status after each step of a run. Pure; `volferry-operator run` prints the results of
//! these functions.

use contract::{Bottleneck, Rates, Reason, Report, RunResult, Timings, Work};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};

use super::{
    history_limits::{history_entry, shorten},
    printer_columns, readiness, synced,
    text_bounds::{MAX_MESSAGE_BYTES, MAX_NOTE_BYTES, MAX_NOTES},
};
use crate::{
    api::{
        ActiveRun, EarlierTries, HookRun, JobIdentity, Run, RunHooks, StoppedRun, SyncJobPhase,
        SyncJobStatus,
        conditions::{self, Cause},
    },
    fault::Fault,
    hooks::hook_state::{self, Point},
    human, names,
    run::{outcome::Outcome, restore},
    snapshots::engine_snapshots,
    spec::validate::KeptRuns,
};

/// Returns a run of one shard that starts now: the `number`th run of the job named `job`.
pub fn new_run(
    job: &str,
    number: i64,
    generation: i64,
    trigger: Option<String>,
    now: Timestamp,
) -> ActiveRun {
    let now = Some(MicroTime(now));
    let times =
        ActiveRun { queue_time: now.clone(), start_time: now.clone(), try_time: now, ..ActiveRun::default() };
    ActiveRun { id: names::run_id(job, number), number, generation, trigger, shards: 1, ..times }
}

/// Starts a run. From here on, the spec counts as observed.
pub fn begin(status: &mut SyncJobStatus, run: ActiveRun, now: Timestamp) {
    status.observed_generation = Some(run.generation);
    if run.benchmark.is_none() {
        status.last_trigger = run.trigger.clone().or_else(|| status.last_trigger.take());
        restore::set_conditions(&mut status.conditions, &run, now);
    }
    let message = format!("Run {} begins.", run.id);
    status.active_run = Some(ActiveRun { reason: None, message: None, ..run });
    readiness::under_way(status, SyncJobPhase::Preparing, &Fault::new(Reason::Preparing, message), now);
}

/// Queues the run in that round and on those nodes.
pub fn queue(status: &mut SyncJobStatus, round: i64, nodes: &[String], now: Timestamp) {
    let Some(run) = &mut status.active_run else { return };
    (run.queue_time, run.queue_round, run.nodes) = (Some(MicroTime(now)), round, nodes.to_vec());
    preparing(status, None, now);
}

/// Records that the run waits for others, and counts as not started.
pub fn wait(status: &mut SyncJobStatus, fault: &Fault, now: Timestamp) {
    if let Some(run) = &mut status.active_run {
        (run.start_time, run.try_time, run.hooks, run.capture) = (None, None, None, None);
    }
    preparing(status, Some(fault), now);
}

/// Starts the run: other runs that need its claims wait for it from now on.
pub fn admit(status: &mut SyncJobStatus, now: Timestamp) {
    let Some(run) = &mut status.active_run else { return };
    (run.start_time, run.try_time) = (Some(MicroTime(now)), Some(MicroTime(now)));
    preparing(status, None, now);
}

/// Records that the run's pods are being created or starting; `fault` is the obstacle, if any.
pub fn preparing(status: &mut SyncJobStatus, fault: Option<&Fault>, now: Timestamp) {
    let Some(run) = &status.active_run else { return };
    let usual = Fault::new(Reason::Preparing, format!("The pods of run {} start.", run.id));
    readiness::under_way(status, SyncJobPhase::Preparing, fault.unwrap_or(&usual), now);
    readiness::hindered(status, fault);
}

/// Records that both ends of the run are running.
pub fn running(status: &mut SyncJobStatus, now: Timestamp) {
    let Some(run) = &mut status.active_run else { return };
    run.pods_ready_time.get_or_insert(MicroTime(now));
    let message = format!("Run {} is under way.", run.id);
    readiness::under_way(status, SyncJobPhase::Running, &Fault::new(Reason::Running, message), now);
    readiness::hindered(status, None);
}

/// Records since when all pods of the run's try have run, unless that is known. The clock of their nodes may be slow.
pub fn ran_since(status: &mut SyncJobStatus, since: Timestamp) {
    let Some(run) = &mut status.active_run else { return };
    let tried = run.try_time.as_ref().map_or(since, |time| time.0);
    run.pods_ready_time.get_or_insert(MicroTime(since.max(tried)));
}

/// Counts the run on the nodes of its pods, too.
pub fn stand_on(status: &mut SyncJobStatus, nodes: &[String]) {
    let Some(run) = &mut status.active_run else { return };
    let new: Vec<String> = nodes.iter().filter(|node| !run.nodes.contains(node)).cloned().collect();
    run.nodes.extend(new);
}

/// Records that a try failed, and that the next one starts `at` that time.
pub fn retry(status: &mut SyncJobStatus, outcome: &Outcome, at: Timestamp, now: Timestamp) {
    let Some(run) = &mut status.active_run else { return };
    run.earlier = Some(tries_until(run, &outcome.report, now));
    run.retries += 1;
    (run.busy_since, run.again_time) = (None, None);
    run.try_time = Some(MicroTime(at));
    run.pods_ready_time = None;
    let report = &outcome.report;
    let message = format!(
        "Run {} failed ({}): {} It is tried again at {} (retry {}).",
        run.id,
        report.reason.as_deref().unwrap_or("no reason"),
        human::sentence(&human::clipped(&report.message, MAX_MESSAGE_BYTES)),
        human::seconds(at),
        run.retries
    );
    let fault = Fault::new(Reason::Retrying, message);
    readiness::under_way(status, SyncJobPhase::Preparing, &fault, now);
    readiness::hindered(status, Some(&fault));
}

/// Records that a try found a volume in use, or that its pods do not start while others wait. The run gives its place
/// up, and takes one again `at` that time. `suspects` is a sentence about the users of the volume.
pub fn postpone(
    status: &mut SyncJobStatus,
    outcome: &Outcome,
    suspects: &str,
    at: Timestamp,
    now: Timestamp,
) {
    let Some(run) = &mut status.active_run else { return };
    let is_met = outcome.is_stranger() || outcome.found_in_use();
    let since = run.try_time.take().filter(|_| !is_met);
    another_try(run);
    run.busy_since.get_or_insert(since.unwrap_or(MicroTime(now)));
    run.again_time = Some(MicroTime(at));
    let fault = if outcome.is_stranger() {
        stranger(run, status.identity, at)
    } else if is_met {
        in_use(run, outcome, suspects, at)
    } else {
        not_started(run, &outcome.report, at)
    };
    readiness::leave_queue(status);
    preparing(status, Some(&fault), now);
}

fn in_use(run: &ActiveRun, outcome: &Outcome, suspects: &str, at: Timestamp) -> Fault {
    let report = &outcome.report;
    let message = format!(
        "Run {} waits for a volume ({}): {} {suspects} It looks again at {}. Until then it takes no place in the queue; \
         waiting uses up no retries, and ends after spec.limits.timeout.",
        run.id,
        report.reason.as_deref().unwrap_or_default(),
        human::sentence(&human::clipped(&report.message, MAX_MESSAGE_BYTES)),
        human::seconds(at)
    );
    Fault::new(Reason::WaitingForRun, message)
}

/// Returns the fault of a run whose pods do not start, and which gave its place to others.
fn not_started(run: &ActiveRun, report: &Report, at: Timestamp) -> Fault {
    let message = format!(
        "{} Others wait for their turn, so run {} gave its place up. It takes one again at {}; that uses up no retries, \
         and ends after spec.limits.timeout.",
        human::sentence(&human::clipped(&report.message, MAX_MESSAGE_BYTES)),
        run.id,
        human::seconds(at)
    );
    Fault::new(report.reason.clone().unwrap_or_default(), message)
}

/// Returns the fault of a run whose key the endpoint does not list yet.
fn stranger(run: &ActiveRun, identity: Option<JobIdentity>, at: Timestamp) -> Fault {
    let mut folders = run.folders();
    let address = folders.find_map(|folder| folder.address.as_deref()).unwrap_or_default();
    let key = identity.map_or_else(String::new, |identity| format!(" {}", identity.public_key));
    let message = format!(
        "The endpoint {address} does not accept the key of this SyncJob yet: add{key} (status.identity.publicKey) to the peers \
         of the other side. Run {} looks again at {} and goes on by itself; waiting uses up no retries.",
        run.id,
        human::seconds(at)
    );
    Fault::new(Reason::KeyNotAccepted, message)
}

/// Stops the run, which starts again once a person has acted.
pub fn halt(status: &mut SyncJobStatus, why: &Fault, now: Timestamp) {
    let Some(run) = &mut status.active_run else { return };
    another_try(run);
    let generation = run.generation;
    readiness::refused(status, why, generation, now);
}

/// Moves on to another try, whose objects have different names.
fn another_try(run: &mut ActiveRun) {
    run.postponed = run.postponed.saturating_add(1);
    (run.hooks, run.capture, run.image) = (None, None, None);
    run.try_time = None;
    run.pods_ready_time = None;
}

/// Ends the run: it becomes `lastRun` and an entry of the history, which keeps all entries if `history_limit` is
/// `None`. A benchmark only becomes `lastBenchmark`.
pub fn finish(
    status: &mut SyncJobStatus,
    outcome: &Outcome,
    history_limit: Option<KeptRuns>,
    now: Timestamp,
) {
    let Some(active) = status.active_run.take() else { return };
    let mut run = finished_run(&active, outcome, now);
    if active.benchmark.is_some() {
        status.last_benchmark = Some(run);
        return after_benchmark(status, active.generation, now);
    }
    status.summary = Some(printer_columns::summary_of(&run));
    if matches!(run.result, RunResult::Succeeded | RunResult::PartiallyFailed) {
        synced::report_left_out(&mut status.conditions, &run, now);
        synced::report_owners(&mut status.conditions, &run, now);
        if active.restore.is_none() {
            engine_snapshots::set_conditions(&mut status.conditions, &run, now);
            // The snapshots of another volume are none of this one's.
            let is_same = status.destination.as_ref().map(|known| known.volume) == outcome.report.volume;
            let before = status.snapshots.as_ref().filter(|_| is_same);
            engine_snapshots::report_gone(&mut status.conditions, &run, before, now);
        }
        status.snapshots = engine_snapshots::status(run.snapshot.as_ref(), status.snapshots.take());
        engine_snapshots::report_damage(status, &run, now);
        let known = std::mem::replace(&mut status.notes, run.notes.clone());
        run.notes.retain(|note| !known.contains(note));
    }
    if synced::is_copied(&run) && active.restore.is_none() {
        status.last_success_time.clone_from(&run.completion_time);
    }
    status.history.insert(0, history_entry(&run));
    if let Some(limit) = history_limit {
        shorten(&mut status.history, limit);
    }
    status.last_run = Some(run);
    readiness::rest(status, active.generation, now);
}

/// Updates a job after a benchmark: its last run decides about the conditions. A job without a run does not become
/// ready.
fn after_benchmark(status: &mut SyncJobStatus, generation: i64, now: Timestamp) {
    if status.last_run.is_some() || status.next_run_time.is_some() {
        return readiness::rest(status, generation, now);
    }
    let message = "A benchmark has ended, and no run has begun yet.";
    let cause = Cause { reason: &Reason::Queued, message, generation };
    conditions::reconciling(&mut status.conditions, cause, now);
    status.phase = Some(SyncJobPhase::Pending);
}

/// Records that a hook starts, before its command does.
pub fn hook_begun(status: &mut SyncJobStatus, point: Point, stopped: Option<&StoppedRun>, now: Timestamp) {
    let Some(run) = &mut status.active_run else { return };
    match point {
        Point::Before => {
            run.hooks = Some(RunHooks { before: Some(HookRun::begun(now)), ..RunHooks::default() });
        }
        Point::After => {
            let hooks = run.hooks.get_or_insert_default();
            (hooks.after, hooks.stopped) = (Some(HookRun::begun(now)), stopped.cloned());
        }
    }
    let message = hook_state::message(run, point);
    let reason = if point == Point::Before { Reason::Preparing } else { Reason::Running };
    let phase = if point == Point::Before { SyncJobPhase::Preparing } else { SyncJobPhase::Running };
    readiness::under_way(status, phase, &Fault::new(reason, message), now);
    readiness::hindered(status, None);
}

/// Returns the entry for `lastRun`, over all tries of the run. Its timings add up to `total`: `podStart` is the time
/// from the start of each try until both ends ran, the phases are as measured by the ends, and `queue` is the rest.
fn finished_run(active: &ActiveRun, outcome: &Outcome, now: Timestamp) -> Run {
    let report = &outcome.report;
    let started = active.start_time.as_ref().map_or(now, |time| time.0);
    // The clock of the end that reports may be off.
    let completed = report.completion_time.parse().unwrap_or(now).min(now).max(started);
    let EarlierTries { mut timings, work, usage, notes } = tries_until(active, report, now);
    timings.queue = ms_between(started, completed).saturating_sub(timings.total);
    timings.total = timings.total.saturating_add(timings.queue);
    Run {
        id: active.id.clone(),
        number: active.number,
        uid: active.uid.clone(),
        generation: active.generation,
        spec_hash: active.spec_hash.clone(),
        cause: active.cause,
        result: report.result,
        reason: report.reason.as_deref().map(conditions::reason_word),
        message: Some(human::clipped(&report.message, MAX_MESSAGE_BYTES)).filter(|text| !text.is_empty()),
        needs_person: outcome.needs_person(),
        retries: active.retries,
        start_time: Some(Time(started)),
        completion_time: Some(Time(completed)),
        timings,
        bottleneck: report.bottleneck.as_ref().map(bounded_bottleneck),
        work,
        rates: rates(work, timings),
        usage,
        free_bytes: report.free_bytes,
        failures: report.failures.iter().take(contract::MAX_FAILURES).cloned().collect(),
        notes,
        snapshot: report.snapshot.as_ref().map(engine_snapshots::bounded),
        history: report.history.as_ref().map(engine_snapshots::bounded_history),
        hooks: active.hooks.clone().filter(|hooks| *hooks != RunHooks::default()),
        benchmark: report.benchmark.clone().filter(|_| active.benchmark.is_some()),
    }
}

/// Bounds a bottleneck, whose message comes from a syncer and may have any length.
fn bounded_bottleneck(told: &Bottleneck) -> Bottleneck {
    let share = told.share.min(100);
    Bottleneck { cause: told.cause, share, message: human::clipped(&told.message, MAX_NOTE_BYTES) }
}

/// Sums up what the tries of a run did, including the one that has just ended with `report`.
fn tries_until(active: &ActiveRun, report: &Report, now: Timestamp) -> EarlierTries {
    let earlier = active.earlier.clone().unwrap_or_default();
    let mut all = EarlierTries {
        timings: timings_of_try(active, report, now),
        work: report.work,
        usage: report.usage,
        notes: earlier.notes,
    };
    all.timings.add_try(&earlier.timings);
    all.work.add_try(&earlier.work);
    all.usage.add(&earlier.usage);
    let notes = report.notes.iter().map(|note| human::clipped(note, MAX_NOTE_BYTES));
    let new: Vec<String> = notes.filter(|note| !all.notes.contains(note)).collect();
    all.notes.extend(new);
    all.notes.truncate(MAX_NOTES);
    all
}

/// Returns the timings of a try that has just ended. If it left no report, the time during which both ends ran is only
/// in `total`.
fn timings_of_try(active: &ActiveRun, report: &Report, now: Timestamp) -> Timings {
    let began = active.try_time.as_ref().or(active.start_time.as_ref()).map_or(now, |time| time.0);
    let ready = active.pods_ready_time.as_ref().map(|time| time.0);
    let ran = report.start_time.parse().ok().filter(|ran| *ran <= now).or(ready);
    let unreported =
        if report.timings.total == 0 { ready.map_or(0, |ready| ms_between(ready, now)) } else { 0 };
    let pod_start = ms_between(began, ran.unwrap_or(now));
    let total = report.timings.total.saturating_add(pod_start + unreported);
    Timings { queue: 0, pod_start, total, ..report.timings }
}

/// Returns the rates over all tries together, over the time during which both ends ran.
fn rates(work: Work, timings: Timings) -> Rates {
    let timings = Timings { total: timings.running(), ..timings };
    let mut report = Report { work, timings, ..Report::default() };
    report.fill_rates();
    report.rates
}

/// Returns the milliseconds between two times; 0 if the second is earlier, since the two may come from different
/// clocks.
fn ms_between(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.duration_since(from).as_millis()).unwrap_or(0)
}

#[cfg(test)]
pub(crate) mod tests;
