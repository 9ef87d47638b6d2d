//! The last step: updates the status after each step of a run. Pure; `volferry-operator run` prints the results of
//! these functions.

use contract::{Bottleneck, Progress, Rates, Report, RunResult, Timings, Work, regression::RunKind};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, MicroTime, Time};
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{benchmark, claims::Blocked, hooks, outcome::Outcome, restore, snapshots, validate::KeptRuns};
use crate::{
    api::{
        ActiveRun, EarlierTries, HistoryEntry, Run, RunCause, RunHooks, Stage, Summary, Superseded,
        SyncJobPhase, SyncJobStatus,
        conditions::{self, Cause, reason},
    },
    fault::Fault,
    human, names,
};

/// The bounds for text from a pod before it gets into a status.
const MAX_MESSAGE_BYTES: usize = 4096;
const MAX_NOTES: usize = 20;
const MAX_NOTE_BYTES: usize = 1024;
/// The number of left-out entries that a condition names.
const NAMED: usize = 3;

/// Returns a run of one shard that starts now: the `number`th run of the job named `job`.
pub fn new_run(
    job: &str,
    number: i64,
    generation: i64,
    trigger: Option<String>,
    now: Timestamp,
) -> ActiveRun {
    ActiveRun {
        id: names::run_id(job, number),
        number,
        uid: None,
        cause: None,
        stage: Stage::Queued,
        shards: 1,
        local: false,
        retries: 0,
        postponed: 0,
        generation,
        spec_hash: None,
        trigger,
        restore: None,
        benchmark: None,
        source: None,
        destination: None,
        queue_time: Some(MicroTime(now)),
        priority: 0,
        queue_round: 0,
        nodes: Vec::new(),
        start_time: Some(MicroTime(now)),
        try_time: Some(MicroTime(now)),
        pods_ready_time: None,
        earlier: None,
        reported: None,
        hooks: None,
    }
}

/// Starts a run. From here on, the spec counts as observed.
pub fn begin(status: &mut SyncJobStatus, run: ActiveRun, now: Timestamp) {
    status.observed_generation = Some(run.generation);
    if run.benchmark.is_none() {
        status.last_trigger = run.trigger.clone().or_else(|| status.last_trigger.take());
        restore::tell(&mut status.conditions, &run, now);
    }
    status.phase = Some(SyncJobPhase::Preparing);
    let message = format!("Run {} begins.", run.id);
    let cause = Cause { reason: reason::PREPARING, message: &message, generation: run.generation };
    conditions::reconciling(&mut status.conditions, cause, now);
    status.active_run = Some(run);
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
        (run.start_time, run.try_time, run.hooks) = (None, None, None);
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
    let message = format!("The pods of run {} start.", run.id);
    let (reason, message) = match fault {
        Some(fault) => (fault.reason.as_str(), fault.message.as_str()),
        None => (reason::PREPARING, message.as_str()),
    };
    let cause = Cause { reason, message, generation: run.generation };
    conditions::reconciling(&mut status.conditions, cause, now);
    status.phase = Some(SyncJobPhase::Preparing);
}

/// Returns the obstacle of the run under way that the status reports, if any.
pub fn obstacle(status: &SyncJobStatus) -> Option<&str> {
    let ready = conditions::find(&status.conditions, conditions::READY)?;
    let calm = [
        reason::PREPARING,
        reason::RUNNING,
        reason::RETRYING,
        reason::SUCCEEDED,
        reason::SUSPENDED,
        reason::SCHEDULED,
    ];
    (ready.status != "True" && !calm.contains(&&*ready.reason)).then_some(&ready.message)
}

/// Records that both ends of the run are running.
pub fn running(status: &mut SyncJobStatus, now: Timestamp) {
    let Some(run) = &mut status.active_run else { return };
    run.pods_ready_time.get_or_insert(MicroTime(now));
    let message = format!("Run {} is under way.", run.id);
    let cause = Cause { reason: reason::RUNNING, message: &message, generation: run.generation };
    conditions::reconciling(&mut status.conditions, cause, now);
    status.phase = Some(SyncJobPhase::Running);
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
    retract(status);
    let Some(run) = &mut status.active_run else { return };
    run.earlier = Some(tries_until(run, &outcome.report, now));
    run.retries += 1;
    run.try_time = Some(MicroTime(at));
    run.pods_ready_time = None;
    let report = &outcome.report;
    let message = format!(
        "Run {} failed ({}): {} It is tried again at {} (retry {}).",
        run.id,
        report.reason.as_deref().unwrap_or("no reason"),
        human::sentence(&human::clipped(&report.message, MAX_MESSAGE_BYTES)),
        whole_seconds(at),
        run.retries
    );
    let cause = Cause { reason: reason::RETRYING, message: &message, generation: run.generation };
    conditions::reconciling(&mut status.conditions, cause, now);
    status.phase = Some(SyncJobPhase::Preparing);
}

/// Records that a try found a volume in use, and that the next one starts `at` that time. The run's timeout does not
/// count the wait. `suspects` is a sentence about the users of the volume.
pub fn postpone(
    status: &mut SyncJobStatus,
    outcome: &Outcome,
    suspects: &str,
    at: Timestamp,
    now: Timestamp,
) {
    let Some(run) = &mut status.active_run else { return };
    let tried = run.try_time.as_ref().map_or(now, |time| time.0);
    if let Some(started) = &mut run.start_time {
        started.0 = started.0.checked_add(at.duration_since(tried)).unwrap_or(started.0);
    }
    another_try(run, Some(at));
    let report = &outcome.report;
    let message = format!(
        "Run {} waits for a volume ({}): {} {suspects} It is tried again at {}; waiting uses up neither retries nor \
         spec.limits.timeout.",
        run.id,
        report.reason.as_deref().unwrap_or_default(),
        human::sentence(&human::clipped(&report.message, MAX_MESSAGE_BYTES)),
        whole_seconds(at)
    );
    preparing(status, Some(&Fault::new(reason::WAITING_FOR_RUN, message)), now);
}

/// Stops the run, which starts again once a person has acted.
pub fn halt(status: &mut SyncJobStatus, why: &Blocked, now: Timestamp) {
    let Some(run) = &mut status.active_run else { return };
    another_try(run, None);
    let generation = run.generation;
    blocked(status, why, generation, now);
}

/// Moves on to another try, whose objects have different names.
fn another_try(run: &mut ActiveRun, at: Option<Timestamp>) {
    run.postponed = run.postponed.saturating_add(1);
    run.hooks = None;
    run.try_time = at.map(MicroTime);
    run.pods_ready_time = None;
}

/// Removes a run that cannot use its place from the queue, so that it keeps no other run waiting.
fn leave_queue(status: &mut SyncJobStatus) {
    if let Some(run) = &mut status.active_run {
        (run.queue_time, run.start_time, run.try_time, run.hooks) = (None, None, None, None);
    }
}

/// Records a success that all ends of the run have reported, without waiting for the kubelet. The run remains the one
/// under way until the kubelet confirms it.
pub fn report(
    status: &mut SyncJobStatus,
    outcome: &Outcome,
    history_limit: Option<KeptRuns>,
    now: Timestamp,
) {
    let superseded = Superseded {
        last_success_time: status.last_success_time.clone(),
        destination: status.destination.clone(),
    };
    let active = status.active_run.clone();
    finish(status, outcome, history_limit, now);
    status.active_run = active.map(|run| ActiveRun { reported: Some(superseded), ..run });
}

/// Withdraws a reported success, because the kubelet contradicts it.
fn retract(status: &mut SyncJobStatus) {
    let Some(run) = &mut status.active_run else { return };
    let Some(superseded) = run.reported.take() else { return };
    let id = run.id.clone();
    status.last_success_time = superseded.last_success_time;
    status.destination = superseded.destination;
    status.history.retain(|entry| entry.id != id);
    status.last_run.take_if(|run| run.id == id);
    status.last_benchmark.take_if(|run| run.id == id);
}

/// Ends the run: it becomes `lastRun` and an entry of the history, which keeps all entries if `history_limit` is
/// `None`. A benchmark only becomes `lastBenchmark`.
pub fn finish(
    status: &mut SyncJobStatus,
    outcome: &Outcome,
    history_limit: Option<KeptRuns>,
    now: Timestamp,
) {
    retract(status);
    let Some(active) = status.active_run.take() else { return };
    let mut run = finished_run(&active, outcome, now);
    if active.benchmark.is_some() {
        status.last_benchmark = Some(run);
        return after_benchmark(status, active.generation, now);
    }
    status.summary = Some(summary_of(&run));
    if matches!(run.result, RunResult::Succeeded | RunResult::PartiallyFailed) {
        left_out(&mut status.conditions, &run, now);
        if active.restore.is_none() {
            snapshots::tell(&mut status.conditions, &run, now);
        }
        status.snapshots = snapshots::status(&run, status.snapshots.take());
        snapshots::tell_damage(status, &run, now);
        let known = std::mem::replace(&mut status.notes, run.notes.clone());
        run.notes.retain(|note| !known.contains(note));
    }
    let is_copied = run.result == RunResult::Succeeded || snapshots::found_only_damage(&run);
    if is_copied && active.restore.is_none() {
        status.last_success_time.clone_from(&run.completion_time);
    }
    status.history.insert(0, history_entry(&run));
    if let Some(limit) = history_limit {
        shorten(&mut status.history, limit);
    }
    status.last_run = Some(run);
    rest(status, active.generation, now);
}

/// Updates a job after a benchmark: its last run decides about the conditions. A job without a run does not become
/// ready.
fn after_benchmark(status: &mut SyncJobStatus, generation: i64, now: Timestamp) {
    if status.last_run.is_some() {
        return rest(status, generation, now);
    }
    let message = "A benchmark has ended, and no run has begun yet.";
    let cause = Cause { reason: reason::QUEUED, message, generation };
    conditions::reconciling(&mut status.conditions, cause, now);
    status.phase = Some(SyncJobPhase::Pending);
}

/// Marks a job whose run was stopped for the next one as progressing, so that it is not stalled for a moment.
pub fn give_way(status: &mut SyncJobStatus, now: Timestamp) {
    let Some(run) = &status.last_run else { return };
    if run.reason.as_deref() != Some(reason::REPLACED) {
        return;
    }
    let message = run.message.clone().unwrap_or_default();
    let cause = Cause { reason: reason::REPLACED, message: &message, generation: run.generation };
    conditions::reconciling(&mut status.conditions, cause, now);
    status.phase = Some(SyncJobPhase::Preparing);
}

fn shorten(history: &mut Vec<HistoryEntry>, limit: KeptRuns) {
    let (mut succeeded, mut failed) = (limit.succeeded, limit.failed);
    history.retain(|entry| {
        let left = if entry.result == RunResult::Succeeded { &mut succeeded } else { &mut failed };
        let is_kept = *left > 0;
        *left = left.saturating_sub(1);
        is_kept
    });
}

/// Sets or removes the condition about the entries that a completed run left out.
fn left_out(conditions: &mut Vec<Condition>, run: &Run, now: Timestamp) {
    let count = run.work.files_failed;
    if count == 0 {
        return conditions::remove(conditions, conditions::INCOMPLETE);
    }
    let named = run.failures.iter().take(NAMED);
    let mut named: Vec<String> =
        named.map(|it| format!("{} ({}: {})", it.path, it.operation, it.error)).collect();
    if count > named.len() as u64 {
        named.push("…".into());
    }
    let entries = if count == 1 { "1 entry".into() } else { format!("{count} entries") };
    let message =
        format!("Run {} left out {entries}; missing or old in the copy: {}", run.id, named.join(", "));
    let message = human::clipped(&message, MAX_MESSAGE_BYTES);
    let cause = Cause { reason: reason::FILES_LEFT_OUT, message: &message, generation: run.generation };
    conditions::set(conditions, conditions::INCOMPLETE, true, cause, now);
}

/// Records that nothing is due: the last run decides about the conditions.
pub fn rest(status: &mut SyncJobStatus, generation: i64, now: Timestamp) {
    let next = status.next_run_time.as_ref().map(|time| time.0);
    let Some(run) = &status.last_run else { return scheduled(status, next, generation, now) };
    let ahead = match (run.result, next) {
        (RunResult::Succeeded, _) => String::new(),
        (_, Some(next)) => format!(" The next run starts at {}.", whole_seconds(next)),
        (_, None) => " Change spec.trigger to run again.".into(),
    };
    let message = standing_message(run) + &ahead;
    let cause = Cause { reason: standing_reason(run), message: &message, generation };
    match (run.result, next) {
        (RunResult::Succeeded, _) => conditions::ready(&mut status.conditions, cause, now),
        (_, Some(_)) => conditions::failed(&mut status.conditions, cause, now),
        (_, None) => conditions::stalled(&mut status.conditions, cause, now),
    }
    status.phase = Some(run.result.into());
    status.observed_generation = Some(generation);
}

/// Records that no run has been started, and that the first one waits for the schedule.
fn scheduled(status: &mut SyncJobStatus, next: Option<Timestamp>, generation: i64, now: Timestamp) {
    let message = next.map_or("The schedule names no time that is ahead.".into(), |next| {
        format!("The first run starts at {}.", whole_seconds(next))
    });
    let cause = Cause { reason: reason::SCHEDULED, message: &message, generation };
    conditions::ready(&mut status.conditions, cause, now);
    status.phase = Some(SyncJobPhase::Pending);
    status.observed_generation = Some(generation);
}

/// Records that the job is suspended. The last run decides about `Ready` and `Stalled`, as without the suspension.
pub fn suspended(status: &mut SyncJobStatus, is_scheduled: bool, generation: i64, now: Timestamp) {
    let failed = status.last_run.as_ref().filter(|run| run.result != RunResult::Succeeded);
    let standing = status.last_run.as_ref().map(|run| format!(" {}", standing_message(run)));
    let message =
        format!("No run is started while spec.suspend is true.{}", standing.as_deref().unwrap_or_default());
    let cause = |reason| Cause { reason, message: &message, generation };
    conditions::set(
        &mut status.conditions,
        conditions::READY,
        failed.is_none(),
        cause(reason::SUSPENDED),
        now,
    );
    restore::resume(&mut status.conditions);
    conditions::remove(&mut status.conditions, conditions::RECONCILING);
    match failed.filter(|_| !is_scheduled) {
        Some(run) => {
            let cause = cause(standing_reason(run));
            conditions::set(&mut status.conditions, conditions::STALLED, true, cause, now);
        }
        None => conditions::remove(&mut status.conditions, conditions::STALLED),
    }
    status.phase = Some(SyncJobPhase::Suspended);
    status.observed_generation = Some(generation);
    leave_queue(status);
}

/// Records that the spec cannot be run.
pub fn refused(status: &mut SyncJobStatus, fault: &Fault, generation: i64, now: Timestamp) {
    blocked(status, &Blocked::Stalled(fault.clone()), generation, now);
}

/// Records that a run is due, but cannot start.
pub fn blocked(status: &mut SyncJobStatus, why: &Blocked, generation: i64, now: Timestamp) {
    let (Blocked::Waiting(fault) | Blocked::Stalled(fault)) = why;
    let cause = Cause { reason: &fault.reason, message: &fault.message, generation };
    match why {
        Blocked::Waiting(_) => {
            conditions::reconciling(&mut status.conditions, cause, now);
            status.phase = Some(SyncJobPhase::Preparing);
        }
        Blocked::Stalled(_) => {
            conditions::stalled(&mut status.conditions, cause, now);
            status.phase = Some(SyncJobPhase::Stalled);
        }
    }
    status.observed_generation = Some(generation);
    leave_queue(status);
}

/// Returns the values of the printer columns while a run is under way.
pub fn summary_of_progress(progress: &Progress) -> Summary {
    Summary {
        files: format!("{}/{}", progress.files, progress.files_total),
        transferred: human::bytes(progress.bytes),
        duration: None,
    }
}

/// Returns the JSON merge patch (RFC 7386) from `old` to `new`, bound to one version of the object, so that the API
/// server answers 409 if the object has changed since; `None` if they are equal.
pub fn patch(
    old: &SyncJobStatus,
    new: &SyncJobStatus,
    resource_version: &str,
) -> serde_json::Result<Option<Value>> {
    let difference = difference(old, new)?;
    Ok(difference.map(|status| json!({"metadata": {"resourceVersion": resource_version}, "status": status})))
}

/// Returns the JSON merge patch from `old` to `new`; `None` if they are equal.
pub fn difference<T: Serialize>(old: &T, new: &T) -> serde_json::Result<Option<Value>> {
    Ok(merge_patch(&serde_json::to_value(old)?, &serde_json::to_value(new)?))
}

/// Returns the message for a run in that stage without an obstacle.
pub fn stage_message(run: &ActiveRun, stage: Stage) -> String {
    if let Some(point) = hooks::in_progress(run) {
        return hooks::message(run, point);
    }
    let id = &run.id;
    match stage {
        Stage::Queued => format!("Run {id} waits for its turn."),
        Stage::Preparing => format!("Run {id} has its turn, and waits for its next try."),
        Stage::Starting => format!("The pods of run {id} start."),
        Stage::Running => format!("Run {id} is under way."),
        Stage::Finishing | Stage::Done => format!("Run {id} has ended."),
    }
}

fn merge_patch(old: &Value, new: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        return (old != new).then(|| new.clone());
    };
    let mut patch = Map::new();
    for (key, value) in new {
        if let Some(change) = merge_patch(old.get(key).unwrap_or(&Value::Null), value) {
            patch.insert(key.clone(), change);
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Returns the entry for `lastRun`, over all tries of the run. Its timings add up to `total`: `podStart` is the time
/// from the start of each try until both ends ran, the phases are as measured by the ends, and `queue` is the rest.
fn finished_run(active: &ActiveRun, outcome: &Outcome, now: Timestamp) -> Run {
    let report = &outcome.report;
    let started = active.start_time.as_ref().map_or(now, |time| time.0);
    let completed = report.completion_time.parse().unwrap_or(now).max(started);
    let EarlierTries { mut timings, work, usage, notes } = tries_until(active, report, now);
    timings.queue = ms_between(started, completed).saturating_sub(timings.total);
    timings.total += timings.queue;
    Run {
        id: active.id.clone(),
        number: active.number,
        generation: active.generation,
        spec_hash: active.spec_hash.clone(),
        cause: active.cause,
        result: report.result,
        reason: report.reason.as_deref().map(conditions::reason_word),
        message: some_text(&human::clipped(&report.message, MAX_MESSAGE_BYTES)),
        retries: active.retries,
        start_time: Some(Time(started)),
        completion_time: Some(Time(completed)),
        timings,
        bottleneck: report.bottleneck.as_ref().map(bounded_bottleneck),
        work,
        rates: rates(work, timings),
        usage,
        failures: report.failures.iter().take(contract::MAX_FAILURES).cloned().collect(),
        notes,
        snapshot: report.snapshot.as_ref().map(snapshots::bounded),
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
    let began =
        [&active.try_time, &active.start_time].into_iter().flatten().next().map_or(now, |time| time.0);
    let ready = active.pods_ready_time.as_ref().map(|time| time.0);
    let ran = report.start_time.parse().ok().or(ready);
    let unreported =
        if report.timings.total == 0 { ready.map_or(0, |ready| ms_between(ready, now)) } else { 0 };
    let pod_start = ms_between(began, ran.unwrap_or(now));
    let total = pod_start + unreported + report.timings.total;
    Timings { queue: 0, pod_start, total, ..report.timings }
}

/// Returns the rates over all tries together, over the time during which both ends ran.
fn rates(work: Work, timings: Timings) -> Rates {
    let timings = Timings { total: timings.running(), ..timings };
    let mut report = Report { work, timings, ..Report::default() };
    report.fill_rates();
    report.rates
}

/// Returns the values of the printer columns for a run that ended.
pub fn summary_of(run: &Run) -> Summary {
    Summary {
        files: format!("{}/{}", changed(run), run.work.files_scanned),
        transferred: human::bytes(run.work.bytes_changed),
        duration: Some(human::milliseconds(run.timings.running())),
    }
}

/// Returns the message on how a run ended.
pub fn standing_message(run: &Run) -> String {
    let what =
        run.message.as_deref().map(|message| format!(" {}", human::sentence(message))).unwrap_or_default();
    let what = what + &other_owners(run.work.owners_not_kept);
    if let Some(figures) = run.benchmark.as_ref().filter(|_| run.result == RunResult::Succeeded) {
        return benchmark::message(run, figures);
    }
    if run.result == RunResult::Succeeded {
        let Summary { files, transferred, duration } = summary_of(run);
        let took = duration.unwrap_or_default();
        return format!("Run {}: {files} entries changed, {transferred} bytes, in {took}.{what}", run.id);
    }
    let tries = match run.retries {
        0 => String::new(),
        1 => " after 1 retry".into(),
        retries => format!(" after {retries} retries"),
    };
    format!("Run {} did not succeed{tries}.{what}", run.id)
}

/// Returns the condition reason for how a run ended.
pub fn standing_reason(run: &Run) -> &str {
    match run.result {
        RunResult::Succeeded => reason::SUCCEEDED,
        _ => run.reason.as_deref().unwrap_or(reason::FAILED),
    }
}

/// Returns the sentence about entries whose owners were not preserved, with a leading space; empty if there are none.
fn other_owners(count: u64) -> String {
    if count == 0 {
        return String::new();
    }
    let entries = if count == 1 { "1 entry does".into() } else { format!("{count} entries do") };
    format!(
        " At least {entries} not have the owner that the source says: to keep owners, annotate the namespace with \
         `{}: \"true\"`; to do without, set spec.files.preserve.ownership to Never.",
        names::ANNOTATION_PRIVILEGED
    )
}

fn history_entry(run: &Run) -> HistoryEntry {
    HistoryEntry {
        id: run.id.clone(),
        result: run.result,
        reason: run.reason.clone(),
        start_time: run.start_time.clone(),
        completion_time: run.completion_time.clone(),
        kind: is_comparable(run).then(|| RunKind::of(&run.work)),
        files_scanned: run.work.files_scanned,
        files_changed: changed(run),
        files_failed: run.work.files_failed,
        bytes_changed: run.work.bytes_changed,
        bytes_on_wire: run.work.bytes_on_wire,
        timings: run.timings,
    }
}

/// Returns whether the duration of a run can predict that of others.
fn is_comparable(run: &Run) -> bool {
    run.result == RunResult::Succeeded && run.cause != Some(RunCause::Restore)
}

fn changed(run: &Run) -> u64 {
    run.work.files_created + run.work.files_updated + run.work.files_deleted
}

fn some_text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_string())
}

fn whole_seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Returns the milliseconds between two times; 0 if the second is earlier, since the two may come from different
/// clocks.
fn ms_between(from: Timestamp, to: Timestamp) -> u64 {
    u64::try_from(to.duration_since(from).as_millis()).unwrap_or(0)
}

#[cfg(test)]
mod tests;
