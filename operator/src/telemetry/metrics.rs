//! The metrics of the operator for Prometheus.

use std::{fmt::Write as _, sync::atomic::AtomicU64};

use contract::{Reason, RunResult, Timings, regression::PHASES};
use prometheus_client::{
    encoding::{EncodeLabelSet, text},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::{Metric, Registry, Unit},
};

use self::JobValue::{Count, Time};
use super::job_gauges::JobState;
use crate::api::Run;

/// The bucket bounds of the run-duration histogram, in seconds: from a run without changes to one that takes a day.
const DURATION_BOUNDS_S: [f64; 13] =
    [0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 10_800.0, 21_600.0, 43_200.0, 86_400.0];

/// The values of `reason` for a run without one, and for a word that is none of [`Reason::ALL`].
const OTHER_REASONS: [&str; 2] = ["Unknown", "Other"];
/// The values of `kind` of bytes.
const BYTE_KINDS: [&str; 3] = ["changed", "wire", "reused"];
/// The values of `kind` of files.
const FILE_KINDS: [&str; 5] = ["created", "updated", "deleted", "delete_kept_back", "failed"];

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

/// A number of a SyncJob, which has a series while there is one: its name, its help, its unit, and how it is found.
type JobGauge = (&'static str, &'static str, Option<Unit>, JobValue);

/// How a number of a SyncJob is found; none if it has none now.
#[derive(Clone, Copy)]
enum JobValue {
    /// In seconds.
    Time(fn(&JobState) -> Option<f64>),
    Count(fn(&JobState) -> Option<i64>),
}

/// A gauge with a fraction.
type FloatGauge = Gauge<f64, AtomicU64>;

#[rustfmt::skip]
const JOB_GAUGES: [JobGauge; 16] = [
    ("last_success_timestamp", "When the last successful run ended, since 1970", Some(Unit::Seconds), Time(|it| it.last_success_s)),
    ("success_deadline_timestamp",
     "When the second scheduled run after the last success, or after the job was created, is due, since 1970",
     Some(Unit::Seconds), Time(|it| it.success_deadline_s)),
    ("last_run_duration", "Time that both ends of the last run ran, all tries together", Some(Unit::Seconds), Time(|it| it.last_run_s)),
    ("active", "1 while a run is under way", None, Count(|it| Some(it.active.into()))),
    ("waiting", "1 while a run is due and has not begun", None, Count(|it| Some(it.waiting.into()))),
    ("failed", "1 while the last run is one that failed, or left files or its snapshot out", None, Count(|it| Some(it.failed.into()))),
    ("stalled", "1 while the job will not go on without a person", None, Count(|it| Some(it.stalled.into()))),
    ("incomplete", "1 while the copy lacks files that the last run that got to its end left out", None, Count(|it| Some(it.incomplete.into()))),
    ("performance_regressed", "1 while runs take longer than usual by more than spec.regression allows", None,
     Count(|it| Some(it.regressed.into()))),
    ("suspended", "1 while spec.suspend holds back all runs", None, Count(|it| Some(it.suspended.into()))),
    ("held", "1 while a restore in place holds back the runs that no person asks for", None, Count(|it| Some(it.held.into()))),
    ("owners_not_kept", "Entries of the copy that have another owner than at the source, at least", None,
     Count(|it| Some(it.owners_not_kept))),
    ("queued_timestamp", "When the run that waits took its place in the queue, since 1970", Some(Unit::Seconds),
     Time(|it| it.queued_since_s)),
    ("newest_snapshot_timestamp", "When the newest snapshot of the job was taken, since 1970", Some(Unit::Seconds),
     Time(|it| it.newest_snapshot_s)),
    ("destination_free", "Bytes that were free on the destination when the last run ended there", Some(Unit::Bytes),
     Count(|it| it.destination_free_bytes)),
    ("snapshot_damaged_objects", "Objects of the destination's snapshots that are damaged and have no good copy", None,
     Count(|it| it.damaged_snapshot_objects)),
];

/// The series of one number of all SyncJobs.
enum JobSeries {
    Time(Family<JobLabels, FloatGauge>, fn(&JobState) -> Option<f64>),
    Count(Family<JobLabels, Gauge>, fn(&JobState) -> Option<i64>),
}

impl JobSeries {
    fn new(series: &mut Series, (name, help, unit, value): JobGauge) -> Self {
        match value {
            Time(of) => Self::Time(series.of(name, help, unit, Family::default()), of),
            Count(of) => Self::Count(series.of(name, help, unit, Family::default()), of),
        }
    }

    fn show(&self, job: &JobLabels, standing: &JobState) {
        match self {
            Self::Time(family, of) if let Some(value) = of(standing) => {
                family.get_or_create(job).set(value);
            }
            Self::Count(family, of) if let Some(value) = of(standing) => {
                family.get_or_create(job).set(value);
            }
            _ => self.forget(job),
        }
    }

    fn forget(&self, job: &JobLabels) {
        match self {
            Self::Time(family, _) => family.remove(job),
            Self::Count(family, _) => family.remove(job),
        };
    }
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
    /// Those of [`JOB_GAUGES`], in their order.
    of_jobs: [JobSeries; JOB_GAUGES.len()],
    hooks: Family<HookLabels, Histogram>,
    reconcile: Histogram,
    reconcile_errors: Counter,
    leader: Gauge,
    watch_failing: Family<WatchLabels, Gauge>,
    watch_heard: Family<WatchLabels, FloatGauge>,
    held_by_other: Family<HolderLabels, Gauge>,
    claims_filled: Family<NamespaceLabels, Counter>,
    claims_waiting: Family<JobLabels, Gauge>,
}

/// Makes series and shows them under a name.
struct Series(Registry);

impl Series {
    fn plain<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        self.of(name, help, None, M::default())
    }

    fn of<M: Metric + Clone>(&mut self, name: &str, help: &str, unit: Option<Unit>, metric: M) -> M {
        match unit {
            Some(unit) => self.0.register_with_unit(name, help, unit, metric.clone()),
            None => self.0.register(name, help, metric.clone()),
        }
        metric
    }

    /// Makes a histogram of durations of runs for each set of labels.
    fn durations<L>(&mut self, name: &str, help: &str) -> Family<L, Histogram>
    where
        L: EncodeLabelSet + std::fmt::Debug + Clone + Eq + std::hash::Hash + Send + Sync + 'static,
    {
        let family =
            Family::new_with_constructor((|| Histogram::new(DURATION_BOUNDS_S)) as fn() -> Histogram);
        self.of(name, help, Some(Unit::Seconds), family)
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut series = Series(Registry::with_prefix("volferry"));
        let s = &mut series;
        let build: Family<BuildLabels, Gauge> = s.plain("build_info", "1, with the version of the operator");
        build.get_or_create(&BuildLabels { version: env!("CARGO_PKG_VERSION") }).set(1);
        Self {
            runs: s.plain("runs", "Runs that ended, by result"),
            failures: s.plain("run_failures", "Runs that did not succeed, by reason"),
            retries: s.plain("run_retries", "Tries of runs that failed and were followed by another"),
            duration: s.durations("run_duration", "Time that both ends of runs ran, all tries together"),
            phases: s.durations(
                "run_phase",
                "Time that each phase of runs took, and the wait for their turn and their pods",
            ),
            bytes: s.plain("bytes", "Bytes of runs that ended: changed, on the wire, reused"),
            files: s.plain("files", "Entries of runs that ended: created, updated, deleted, failed"),
            of_jobs: JOB_GAUGES.map(|gauge| JobSeries::new(s, gauge)),
            reconcile: s.of(
                "reconcile_duration",
                "Time that reconciling one job once took",
                Some(Unit::Seconds),
                Histogram::new([0.005, 0.02, 0.1, 0.5, 2.0, 10.0]),
            ),
            reconcile_errors: s.plain("reconcile_errors", "Reconciliations that failed and are tried again"),
            hooks: s.durations("hook_duration", "Time that hooks of runs took"),
            leader: s.plain("leader", "1 while this replica reconciles SyncJobs"),
            watch_failing: s.plain(
                "watch_failing",
                "1 while the API server refuses to list or watch a kind, in a namespace or (empty) in all",
            ),
            watch_heard: s.of(
                "watch_heard_timestamp",
                "When the API server last sent something on the watch of a kind, since 1970",
                Some(Unit::Seconds),
                Family::default(),
            ),
            held_by_other: s.plain(
                "namespace_held_by_other",
                "1 while another release of the operator holds a namespace that this one watches",
            ),
            claims_filled: s.plain("claims_filled", "Claims that the populator has given a filled volume"),
            claims_waiting: s.plain(
                "claim_waiting",
                "1 while something keeps the populator from filling a claim, whose events say what",
            ),
            registry: series.0,
        }
    }
}

impl Metrics {
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
        self.phases_ended(&run.timings);
        self.hooks_ended(run);
        if run.result != RunResult::Succeeded {
            let reason = run.reason.as_ref().map_or(OTHER_REASONS[0], series_word).into();
            self.failures.get_or_create(&ReasonLabels { namespace: namespace.clone(), reason }).inc();
        }
        let kind = |kind| KindLabels { namespace: namespace.clone(), kind };
        let work = &run.work;
        let bytes = [work.bytes_changed, work.bytes_on_wire, work.bytes_reused];
        for (name, bytes) in BYTE_KINDS.into_iter().zip(bytes) {
            self.bytes.get_or_create(&kind(name)).inc_by(bytes);
        }
        let files = [
            work.files_created,
            work.files_updated,
            work.files_deleted,
            work.deletes_kept_back,
            work.files_failed,
        ];
        for (name, files) in FILE_KINDS.into_iter().zip(files) {
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
        self.of_jobs.iter().for_each(|series| series.show(job, &standing));
    }

    /// Removes the series of a deleted job.
    pub fn forget(&self, job: &JobLabels) {
        self.of_jobs.iter().for_each(|series| series.forget(job));
    }

    /// Removes the series of a namespace that has had no SyncJob for long. They are counters, so one that has another
    /// SyncJob later counts from zero, as after a restart.
    pub fn forget_namespace(&self, namespace: &str) {
        use RunResult::{Canceled, Failed, PartiallyFailed, Succeeded};
        for result in [Succeeded, PartiallyFailed, Failed, Canceled].map(word) {
            let labels = ResultLabels { namespace: namespace.into(), result };
            self.runs.remove(&labels);
            self.duration.remove(&labels);
        }
        for reason in Reason::ALL.iter().map(Reason::as_str).chain(OTHER_REASONS) {
            self.failures.remove(&ReasonLabels { namespace: namespace.into(), reason: reason.into() });
        }
        for kind in BYTE_KINDS {
            self.bytes.remove(&KindLabels { namespace: namespace.into(), kind });
        }
        for kind in FILE_KINDS {
            self.files.remove(&KindLabels { namespace: namespace.into(), kind });
        }
        let labels = NamespaceLabels { namespace: namespace.into() };
        self.retries.remove(&labels);
        self.claims_filled.remove(&labels);
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
    if matches!(reason, Reason::Other(_)) { OTHER_REASONS[1] } else { reason }
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
