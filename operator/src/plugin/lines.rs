//! Formats objects as lines of text. Pure.

use contract::{Report, regression::PHASES};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;

use super::{args::Scope, cluster::OPERATOR_PODS, table::table};
use crate::{
    api::{
        ActiveRun, KnownDestination, Run, RunProgress, SnapshotStatus, SyncJob, SyncJobPhase, SyncJobStatus,
        SyncRun, conditions,
    },
    human, names,
    run::restore,
    status::readiness,
};

/// The placeholder for a missing value.
const NONE: &str = "-";

/// Returns the state of a SyncJob, with a line for each heading. `progress` is the one of its run under way.
pub(super) fn job(job: &SyncJob, progress: Option<&RunProgress>, at: &Scope) -> Vec<String> {
    let status = job.status.clone().unwrap_or_default();
    let (reason, message) = readiness::told(&status).map(|told| (told.reason.into(), told.message)).unzip();
    let last = status.last_run.as_ref();
    let synced = conditions::find(&status.conditions, conditions::SYNCED);
    let lines = [
        ("SyncJob", Some(path(job))),
        ("State", Some(state(job))),
        ("Reason", reason),
        ("Message", message),
        ("Synced", synced.map(|synced| format!("{}: {}", synced.status, synced.message))),
        ("Run now", status.active_run.as_ref().map(|run| active(run, progress))),
        ("Last run", Some(last.map_or_else(|| "none yet".into(), ended))),
        ("Timings", last.map(timings)),
        ("Work", last.map(work)),
        ("Last success", status.last_success_time.as_ref().map(time)),
        ("Next run", Some(next_run(job))),
    ];
    let lines = lines.into_iter().filter_map(|(heading, text)| Some((heading, text?)));
    let mut lines: Vec<String> = lines.map(|(heading, text)| format!("{heading:14}{text}")).collect();
    lines.extend(others(&status));
    lines.extend(hint(job, at).map(|hint| format!("hint: {hint}")));
    lines
}

/// Returns the conditions besides `Ready` and `Synced` that report other problems.
fn others(status: &SyncJobStatus) -> Vec<String> {
    let kinds = [
        conditions::INCOMPLETE,
        conditions::OWNERS_NOT_KEPT,
        conditions::SNAPSHOT_FAILED,
        conditions::SNAPSHOTS_GONE,
        conditions::CORRUPT,
        conditions::RESTORED,
        conditions::PERFORMANCE_REGRESSED,
    ];
    let found = kinds.into_iter().filter_map(|kind| conditions::find(&status.conditions, kind));
    let raised = found.filter(|condition| condition.status == "True");
    raised.map(|condition| format!("{}: {}", condition.type_, condition.message)).collect()
}

/// Returns a table with a line for each SyncJob.
pub(super) fn jobs(jobs: &[SyncJob], with_namespace: bool) -> Vec<String> {
    let first = if with_namespace { &["NAMESPACE"][..] } else { &[] };
    let headings = ["NAME", "READY", "SYNCED", "STATE", "REASON", "LAST SUCCESS", "NEXT RUN", "DURATION"];
    let mut rows = vec![first.iter().chain(&headings).map(ToString::to_string).collect::<Vec<_>>()];
    rows.extend(jobs.iter().map(|job| {
        let namespace = job.namespace().filter(|_| with_namespace);
        namespace.into_iter().chain(job_cells(job)).collect()
    }));
    table(&rows)
}

fn job_cells(job: &SyncJob) -> [String; 8] {
    let status = job.status.clone().unwrap_or_default();
    let condition = |kind| conditions::find(&status.conditions, kind).map(|it| it.status.clone());
    let shown = |text: Option<String>| text.unwrap_or_else(|| NONE.into());
    [
        job.name_any(),
        shown(condition(conditions::READY)),
        shown(condition(conditions::SYNCED)),
        state(job),
        shown(readiness::told(&status).map(|told| told.reason.into())),
        shown(status.last_success_time.as_ref().map(time)),
        shown(status.next_run_time.as_ref().map(time)),
        shown(status.summary.and_then(|summary| summary.duration)),
    ]
}

/// Returns a table with a line for each SyncRun, in their order.
pub(super) fn runs(runs: &[SyncRun]) -> Vec<String> {
    let headings =
        ["NAME", "CAUSE", "STAGE", "RESULT", "REASON", "FILES", "TRANSFERRED", "DURATION", "CREATED"];
    let mut rows = vec![headings.map(String::from).to_vec()];
    rows.extend(runs.iter().map(|run| run_cells(run).to_vec()));
    table(&rows)
}

fn run_cells(run: &SyncRun) -> [String; 9] {
    let status = run.status.clone().unwrap_or_default();
    let (report, summary) = (status.report.as_ref(), status.summary.as_ref());
    let shown = |text: Option<String>| text.unwrap_or_else(|| NONE.into());
    let ready = conditions::find(&status.conditions, conditions::READY);
    let waits = ready.filter(|ready| report.is_none() && ready.status != "True");
    [
        run.name_any(),
        shown(run.spec.cause.map(|cause| format!("{cause:?}"))),
        shown(status.stage.map(|stage| stage.reason().into())),
        shown(report.map(|report| format!("{:?}", report.result))),
        shown(match report {
            Some(report) => report.reason.clone().map(String::from),
            None => waits.map(|ready| ready.reason.clone()),
        }),
        shown(summary.map(|summary| summary.files.clone())),
        shown(summary.map(|summary| summary.transferred.clone())),
        shown(summary.and_then(|summary| summary.duration.clone())),
        shown(run.created().map(human::seconds)),
    ]
}

/// Returns the damage that the last verification found, the number of snapshots, and a table of the newest.
pub(super) fn snapshots(status: &SnapshotStatus, damage: Option<&str>) -> Vec<String> {
    let mut rows = vec![["NAME", "TIME", "TAGS", "KEPT BY"].map(String::from).to_vec()];
    let shown = |words: &[String]| if words.is_empty() { NONE.into() } else { words.join(",") };
    rows.extend(status.items.iter().map(|item| {
        let taken = item.time.as_ref().map_or_else(|| NONE.into(), time);
        vec![item.name.clone(), taken, shown(&item.tags), shown(&item.reasons)]
    }));
    let count = format!(
        "{} kept, {} added; the newest {}:",
        status.count,
        human::bytes(status.bytes),
        status.items.len()
    );
    let damage = damage.map(|damage| format!("Corrupt: {damage}"));
    [damage.into_iter().collect(), vec![count], table(&rows)].concat()
}

/// Returns a sentence on how a SyncRun ended.
pub(super) fn ended(run: &Run) -> String {
    let reason = run.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let at = run.completion_time.as_ref().map(|at| format!(", ended {}", time(at))).unwrap_or_default();
    format!("{}, {:?}{reason}{at}, took {}", run.id, run.result, human::milliseconds(run.timings.total))
}

/// Returns the run's report in the form that `volferry --report` writes.
pub(super) fn report(run: &Run, destination: Option<&KnownDestination>) -> Report {
    let time = |time: &Option<Time>| time.as_ref().map(|time| time.0.to_string()).unwrap_or_default();
    Report {
        run: run.id.clone(),
        result: run.result,
        reason: run.reason.clone(),
        message: run.message.clone().unwrap_or_default(),
        start_time: time(&run.start_time),
        completion_time: time(&run.completion_time),
        volume: destination.map(|destination| destination.volume),
        timings: run.timings,
        bottleneck: run.bottleneck.clone(),
        work: run.work,
        rates: run.rates,
        usage: run.usage,
        failures: run.failures.clone(),
        notes: run.notes.clone(),
        snapshot: run.snapshot.clone(),
        history: run.history.clone(),
        ..Report::default()
    }
}

/// Returns the name of a SyncJob with its namespace.
pub(super) fn path(job: &SyncJob) -> String {
    format!("{}/{}", job.namespace().unwrap_or_default(), job.name_any())
}

/// Returns the state of a SyncJob, including its suspension.
pub(super) fn state(job: &SyncJob) -> String {
    let status = job.status.as_ref();
    let phase = status.and_then(|status| status.phase).unwrap_or_default();
    let is_active = status.and_then(|status| status.active_run.as_ref()).is_some_and(ActiveRun::is_started);
    match (job.spec.suspend, is_active) {
        (true, true) => format!("{phase:?}, suspended after this run"),
        (true, false) => format!("{:?}", SyncJobPhase::Suspended),
        (false, _) => format!("{phase:?}"),
    }
}

fn active(run: &ActiveRun, progress: Option<&RunProgress>) -> String {
    let progress = progress.filter(|progress| progress.run == names::try_id(&run.id, run.past_tries()));
    let far = progress.map(|RunProgress { progress, .. }| {
        let (bytes, total) = (human::bytes(progress.bytes), human::bytes(progress.bytes_total));
        format!(
            ", {:?} {}/{} files, {bytes} of {total}",
            progress.phase, progress.files, progress.files_total
        )
    });
    let retries = if run.retries > 0 { format!(", retry {}", run.retries) } else { String::new() };
    format!("{}, {}{retries}{}", run.id, run.stage.reason(), far.unwrap_or_default())
}

/// Returns the phases that took time, starting with the wait for pods.
fn timings(run: &Run) -> String {
    let before = [("queue", run.timings.queue), ("podStart", run.timings.pod_start)];
    let phases = PHASES.map(|(name, of)| (name, of(&run.timings)));
    let took = before.into_iter().chain(phases).filter(|(_, ms)| *ms > 0);
    took.map(|(name, ms)| format!("{name} {}", human::milliseconds(ms))).collect::<Vec<_>>().join(", ")
}

fn work(run: &Run) -> String {
    let work = &run.work;
    let failed =
        if work.files_failed > 0 { format!(", {} left out", work.files_failed) } else { String::new() };
    format!(
        "{}/{} entries changed, {} bytes, {} on the wire{failed}",
        work.changed(),
        work.files_scanned,
        human::bytes(work.bytes_changed),
        human::bytes(work.bytes_on_wire)
    )
}

fn next_run(job: &SyncJob) -> String {
    let next = job.status.as_ref().and_then(|status| status.next_run_time.as_ref());
    match (job.spec.suspend, &job.spec.schedule, next) {
        (true, _, _) => "none while suspended".into(),
        _ if job.status.as_ref().is_some_and(restore::holds) => {
            "none until it is resumed, after the restore".into()
        }
        (false, None, _) => "at a change of the spec, or run-now (no schedule)".into(),
        (false, Some(_), Some(next)) => time(next),
        (false, Some(_), None) => "not known yet".into(),
    }
}

/// Returns the command to continue with, if the SyncJob has a problem or is suspended.
fn hint(job: &SyncJob, at: &Scope) -> Option<String> {
    let status = job.status.clone().unwrap_or_default();
    let flags = at.flags_in(&job.namespace().unwrap_or_default());
    let command = |words: &str| format!("kubectl volferry {words}{flags} {}", job.name_any());
    if status.observed_generation < job.metadata.generation && status.active_run.is_none() {
        let operator = format!("kubectl get pods -A -l {OPERATOR_PODS}{}", at.cluster_flags());
        return Some(format!("the operator has not seen this spec yet; see whether it runs: {operator}"));
    }
    if job.spec.suspend || restore::held_by(&status).is_some() {
        return Some(command("resume"));
    }
    let failed = matches!(
        status.phase,
        Some(SyncJobPhase::Failed | SyncJobPhase::PartiallyFailed | SyncJobPhase::Stalled)
    );
    (failed && status.last_run.is_some()).then(|| command("logs"))
}

fn time(time: &Time) -> String {
    human::seconds(time.0)
}

#[cfg(test)]
mod tests;
