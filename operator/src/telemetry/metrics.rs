//! The metrics of the operator for Prometheus.

use std::{fmt::Write as _, sync::atomic::AtomicU64};

use contract::{Reason, RunResult, Timings, regression::PHASES};
use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Registry, Unit},
};

use super::job_gauges::JobState;
use crate::api::Run;

/// The bucket bounds of the run-duration histogram, in seconds: from a run without changes to one that takes a day.
const DURATION_BOUNDS_S: [f64; 13] =
    [0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 10_800.0, 21_600.0, 43_200.0, 86_400.0];

/// The labels of the series of one SyncJob. They are removed when the job is deleted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct JobLabels {
    /// The job's namespace.
    pub namespace: String,
    /// The job's name.
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabels {
    namespace: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    namespace: String,
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabels {
    namespace: String,
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PhaseLabels {
    phase: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HookLabels {
    hook: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct BuildLabels {
    version: &'static str,
}

/// All series of the operator.
pub struct Metrics {
    registry: Registry,
    runs: Family<ResultLabels, Counter>,
    failures: Family<ReasonLabels, Counter>,
    retries: Family<NamespaceLabels, Counter>,
    duration: Family<ResultLabels, Histogram>,
    phases: Family<PhaseLabels, Histogram>,
    bytes: Family<KindLabels, Counter>,
    files: Family<KindLabels, Counter>,
    last_success: Family<JobLabels, Gauge<f64, AtomicU64>>,
    success_deadline: Family<JobLabels, Gauge<f64, AtomicU64>>,
    last_duration: Family<JobLabels, Gauge<f64, AtomicU64>>,
    active: Family<JobLabels, Gauge>,
    waiting: Family<JobLabels, Gauge>,
    failed: Family<JobLabels, Gauge>,
    stalled: Family<JobLabels, Gauge>,
    incomplete: Family<JobLabels, Gauge>,
    regressed: Family<JobLabels, Gauge>,
    suspended: Family<JobLabels, Gauge>,
    held: Family<JobLabels, Gauge>,
    owners_not_kept: Family<JobLabels, Gauge>,
    queued_since: Family<JobLabels, Gauge<f64, AtomicU64>>,
    newest_snapshot: Family<JobLabels, Gauge<f64, AtomicU64>>,
    destination_free: Family<JobLabels, Gauge>,
    damaged_snapshot_objects: Family<JobLabels, Gauge>,
    hooks: Family<HookLabels, Histogram>,
    reconcile: Histogram,
    reconcile_errors: Counter,
    build: Family<BuildLabels, Gauge>,
    leader: Gauge,
    watch_failing: Family<WatchLabels, Gauge>,
    watch_heard: Family<WatchLabels, Gauge<f64, AtomicU64>>,
    held_by_other: Family<HolderLabels, Gauge>,
    claims_filled: Family<NamespaceLabels, Counter>,
    claims_waiting: Family<JobLabels, Gauge>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HolderLabels {
    namespace: String,
    holder: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WatchLabels {
    kind: String,
    namespace: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NamespaceLabels {
    namespace: String,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut all = Self {
            registry: Registry::with_prefix("volferry"),
            runs: Family::default(),
            failures: Family::default(),
            retries: Family::default(),
            duration: Family::new_with_constructor(|| Histogram::new(DURATION_BOUNDS_S)),
            phases: Family::new_with_constructor(|| Histogram::new(DURATION_BOUNDS_S)),
            bytes: Family::default(),
            files: Family::default(),
            last_success: Family::default(),
            success_deadline: Family::default(),
            last_duration: Family::default(),
            active: Family::default(),
            waiting: Family::default(),
            failed: Family::default(),
            stalled: Family::default(),
            incomplete: Family::default(),
            regressed: Family::default(),
            suspended: Family::default(),
            held: Family::default(),
            owners_not_kept: Family::default(),
            queued_since: Family::default(),
            newest_snapshot: Family::default(),
            destination_free: Family::default(),
            damaged_snapshot_objects: Family::default(),
            hooks: Family::new_with_constructor(|| Histogram::new(DURATION_BOUNDS_S)),
            reconcile: Histogram::new([0.005, 0.02, 0.1, 0.5, 2.0, 10.0]),
            reconcile_errors: Counter::default(),
            build: Family::default(),
            leader: Gauge::default(),
            watch_failing: Family::default(),
            watch_heard: Family::default(),
            held_by_other: Family::default(),
            claims_filled: Family::default(),
            claims_waiting: Family::default(),
        };
        all.build.get_or_create(&BuildLabels { version: env!("CARGO_PKG_VERSION") }).set(1);
        all.register();
        all
    }
}

impl Metrics {
    fn register(&mut self) {
        self.register_runs();
        self.register_jobs();
        self.register_operator();
    }

    fn register_runs(&mut self) {
        let r = &mut self.registry;
        r.register("runs", "Runs that ended, by result", self.runs.clone());
        r.register("run_failures", "Runs that did not succeed, by reason", self.failures.clone());
        r.register(
            "run_retries",
            "Tries of runs that failed and were followed by another",
            self.retries.clone(),
        );
        let help = "Time that both ends of runs ran, all tries together";
        r.register_with_unit("run_duration", help, Unit::Seconds, self.duration.clone());
        let help = "Time that each phase of runs took, and the wait for their turn and their pods";
        r.register_with_unit("run_phase", help, Unit::Seconds, self.phases.clone());
        r.register("bytes", "Bytes of runs that ended: changed, on the wire, reused", self.bytes.clone());
        r.register(
            "files",
            "Entries of runs that ended: created, updated, deleted, failed",
            self.files.clone(),
        );
    }

    fn register_jobs(&mut self) {
        let r = &mut self.registry;
        let help = "When the last successful run ended, since 1970";
        r.register_with_unit("last_success_timestamp", help, Unit::Seconds, self.last_success.clone());
        let help = "When the second scheduled run after the last success, or after the job was created, is due, since 1970";
        let unit = Unit::Seconds;
        r.register_with_unit("success_deadline_timestamp", help, unit, self.success_deadline.clone());
        let help = "Time that both ends of the last run ran, all tries together";
        r.register_with_unit("last_run_duration", help, Unit::Seconds, self.last_duration.clone());
        r.register("active", "1 while a run is under way", self.active.clone());
        r.register("waiting", "1 while a run is due and has not begun", self.waiting.clone());
        let help = "1 while the last run is one that failed, or left files or its snapshot out";
        r.register("failed", help, self.failed.clone());
        r.register("stalled", "1 while the job will not go on without a person", self.stalled.clone());
        let help = "1 while the copy lacks files that the last run that got to its end left out";
        r.register("incomplete", help, self.incomplete.clone());
        let help = "1 while runs take longer than usual by more than spec.regression allows";
        r.register("performance_regressed", help, self.regressed.clone());
        r.register("suspended", "1 while spec.suspend holds back all runs", self.suspended.clone());
        let help = "1 while a restore in place holds back the runs that no person asks for";
        r.register("held", help, self.held.clone());
        let help = "Entries of the copy that have another owner than at the source, at least";
        r.register("owners_not_kept", help, self.owners_not_kept.clone());
        self.register_ages_and_room();
    }

    fn register_ages_and_room(&mut self) {
        let r = &mut self.registry;
        let help = "When the run that waits took its place in the queue, since 1970";
        r.register_with_unit("queued_timestamp", help, Unit::Seconds, self.queued_since.clone());
        let help = "When the newest snapshot of the job was taken, since 1970";
        r.register_with_unit("newest_snapshot_timestamp", help, Unit::Seconds, self.newest_snapshot.clone());
        let help = "Bytes that were free on the destination when the last run ended there";
        r.register_with_unit("destination_free", help, Unit::Bytes, self.destination_free.clone());
        let help = "Objects of the destination's snapshots that are damaged and have no good copy";
        r.register("snapshot_damaged_objects", help, self.damaged_snapshot_objects.clone());
    }

    fn register_operator(&mut self) {
        let r = &mut self.registry;
        let help = "Time that reconciling one job once took";
        r.register_with_unit("reconcile_duration", help, Unit::Seconds, self.reconcile.clone());
        r.register(
            "reconcile_errors",
            "Reconciliations that failed and are tried again",
            self.reconcile_errors.clone(),
        );
        let help = "Time that hooks of runs took";
        r.register_with_unit("hook_duration", help, Unit::Seconds, self.hooks.clone());
        r.register("build_info", "1, with the version of the operator", self.build.clone());
        r.register("leader", "1 while this replica reconciles SyncJobs", self.leader.clone());
        let help = "1 while the API server refuses to list or watch a kind, in a namespace or (empty) in all";
        r.register("watch_failing", help, self.watch_failing.clone());
        let help = "When the API server last sent something on the watch of a kind, since 1970";
        r.register_with_unit("watch_heard_timestamp", help, Unit::Seconds, self.watch_heard.clone());
        let help = "1 while another release of the operator holds a namespace that this one watches";
        r.register("namespace_held_by_other", help, self.held_by_other.clone());
        let help = "Claims that the populator has given a filled volume";
        r.register("claims_filled", help, self.claims_filled.clone());
        let help = "1 while something keeps the populator from filling a claim, whose events say what";
        r.register("claim_waiting", help, self.claims_waiting.clone());
    }

    /// Counts a claim that has got its volume.
    pub fn claim_filled(&self, namespace: &str) {
        self.claims_filled.get_or_create(&NamespaceLabels { namespace: namespace.into() }).inc();
    }

    /// Shows whether something keeps a claim from being filled.
    pub fn claim_waits(&self, claim: &JobLabels, waits: bool) {
        if waits {
            self.claims_waiting.get_or_create(claim).set(1);
        } else {
            self.claims_waiting.remove(claim);
        }
    }

    /// Shows whether the API server refuses a watch.
    pub fn watch_stands(&self, kind: &str, namespace: &str, fails: bool) {
        let labels = WatchLabels { kind: kind.into(), namespace: namespace.into() };
        self.watch_failing.get_or_create(&labels).set(fails.into());
    }

    /// Shows when the API server sent something on a watch, in seconds since 1970.
    pub fn watch_heard(&self, kind: &str, namespace: &str, time_s: f64) {
        let labels = WatchLabels { kind: kind.into(), namespace: namespace.into() };
        self.watch_heard.get_or_create(&labels).set(time_s);
    }

    /// Shows whether another release of the operator holds a namespace.
    pub fn held_by_other(&self, namespace: &str, holder: &str, is_held: bool) {
        let labels = HolderLabels { namespace: namespace.into(), holder: holder.into() };
        if is_held {
            self.held_by_other.get_or_create(&labels).set(1);
        } else {
            self.held_by_other.remove(&labels);
        }
    }

    /// Counts a run that ended. Call it once for each run, after its end has been recorded.
    pub fn run_ended(&self, job: &JobLabels, run: &Run) {
        let namespace = job.namespace.clone();
        let result = ResultLabels { namespace: namespace.clone(), result: word(run.result) };
        let seconds = run.timings.running() as f64 / 1000.0;
        self.runs.get_or_create(&result).inc();
        self.duration.get_or_create(&result).observe(seconds);
        self.last_duration.get_or_create(job).set(seconds);
        self.phases_ended(&run.timings);
        self.hooks_ended(run);
        if run.result != RunResult::Succeeded {
            let reason = run.reason.as_ref().map_or("Unknown", series_word).into();
            self.failures.get_or_create(&ReasonLabels { namespace: namespace.clone(), reason }).inc();
        }
        let kind = |kind| KindLabels { namespace: namespace.clone(), kind };
        let work = &run.work;
        for (name, bytes) in
            [("changed", work.bytes_changed), ("wire", work.bytes_on_wire), ("reused", work.bytes_reused)]
        {
            self.bytes.get_or_create(&kind(name)).inc_by(bytes);
        }
        for (name, files) in [
            ("created", work.files_created),
            ("updated", work.files_updated),
            ("deleted", work.files_deleted),
            ("delete_kept_back", work.deletes_kept_back),
            ("failed", work.files_failed),
        ] {
            self.files.get_or_create(&kind(name)).inc_by(files);
        }
    }

    fn phases_ended(&self, timings: &Timings) {
        let phases = PHASES.map(|(name, of)| (name, of(timings)));
        for (phase, ms) in
            [("queue", timings.queue), ("podStart", timings.pod_start)].into_iter().chain(phases)
        {
            self.phases.get_or_create(&PhaseLabels { phase }).observe(ms as f64 / 1000.0);
        }
    }

    fn hooks_ended(&self, run: &Run) {
        let Some(hooks) = &run.hooks else { return };
        for (hook, state) in [("before", &hooks.before), ("after", &hooks.after)] {
            let Some((state, end)) = state.as_ref().and_then(|it| Some((it, it.completion_time.as_ref()?)))
            else {
                continue;
            };
            let seconds = end.0.duration_since(state.start_time.0).as_secs_f64();
            self.hooks.get_or_create(&HookLabels { hook }).observe(seconds);
        }
    }

    /// Says whether this replica is the one that reconciles SyncJobs.
    pub fn leads(&self, is_leader: bool) {
        self.leader.set(is_leader.into());
    }

    /// Counts a failed try that is followed by another.
    pub fn retried(&self, job: &JobLabels) {
        self.retries.get_or_create(&NamespaceLabels { namespace: job.namespace.clone() }).inc();
    }

    /// Sets a job's gauges.
    pub fn stands(&self, job: &JobLabels, standing: JobState) {
        self.active.get_or_create(job).set(standing.active.into());
        self.waiting.get_or_create(job).set(standing.waiting.into());
        self.failed.get_or_create(job).set(standing.failed.into());
        self.stalled.get_or_create(job).set(standing.stalled.into());
        self.incomplete.get_or_create(job).set(standing.incomplete.into());
        self.regressed.get_or_create(job).set(standing.regressed.into());
        self.suspended.get_or_create(job).set(standing.suspended.into());
        self.held.get_or_create(job).set(standing.held.into());
        self.owners_not_kept.get_or_create(job).set(standing.owners_not_kept);
        for (gauge, value) in [
            (&self.damaged_snapshot_objects, standing.damaged_snapshot_objects),
            (&self.destination_free, standing.destination_free_bytes),
        ] {
            match value {
                Some(value) => drop(gauge.get_or_create(job).set(value)),
                None => drop(gauge.remove(job)),
            }
        }
        for (gauge, seconds) in [
            (&self.last_success, standing.last_success_s),
            (&self.success_deadline, standing.success_deadline_s),
            (&self.queued_since, standing.queued_since_s),
            (&self.newest_snapshot, standing.newest_snapshot_s),
        ] {
            match seconds {
                Some(seconds) => drop(gauge.get_or_create(job).set(seconds)),
                None => drop(gauge.remove(job)),
            }
        }
    }

    /// Removes the series of a deleted job.
    pub fn forget(&self, job: &JobLabels) {
        let times = [&self.last_success, &self.success_deadline, &self.queued_since, &self.newest_snapshot];
        for gauge in times.into_iter().chain([&self.last_duration]) {
            gauge.remove(job);
        }
        let doing = [&self.active, &self.waiting, &self.failed, &self.suspended, &self.held];
        let found = [&self.stalled, &self.incomplete, &self.regressed, &self.owners_not_kept];
        let amounts = [&self.damaged_snapshot_objects, &self.destination_free];
        for gauge in doing.into_iter().chain(found).chain(amounts) {
            gauge.remove(job);
        }
    }

    /// Records the duration of one reconciliation and whether it failed.
    pub fn reconciled(&self, took: std::time::Duration, failed: bool) {
        self.reconcile.observe(took.as_secs_f64());
        if failed {
            self.reconcile_errors.inc();
        }
    }

    /// Returns all series in the OpenMetrics text format.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        if text::encode(&mut text, &self.registry).is_err() {
            let _ = text.write_str("# the series cannot be encoded\n# EOF\n");
        }
        text
    }
}

/// Returns the label's value for a reason. Pods may report any word, and each new one would be a series for ever.
fn series_word(reason: &Reason) -> &str {
    if matches!(reason, Reason::Other(_)) { "Other" } else { reason }
}

fn word(result: RunResult) -> &'static str {
    match result {
        RunResult::Succeeded => "succeeded",
        RunResult::PartiallyFailed => "partially-failed",
        RunResult::Failed => "failed",
        RunResult::Canceled => "canceled",
    }
}

#[cfg(test)]
mod tests;
