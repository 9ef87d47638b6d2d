//! Finds out whether runs have become slower, from the reports of earlier ones. Pure.
//!
//! The statistic is a run rule on log ratios, as in a Shewhart chart (Western Electric, *Statistical Quality Control
//! Handbook*, 1956): three comparable runs in a row beyond the limit. Centre and spread are the median and the median
//! absolute deviation times 1.4826 (Iglewicz and Hoaglin, *How to Detect and Handle Outliers*, 1993), so that single
//! slow runs move neither. The limit is the geometric mean of 1 and the threshold, the boundary at which "unchanged"
//! and "slower by the threshold" are equally likely, and at least 2.5 spreads.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    phase::Phase,
    report::{Report, RunResult},
    run_kind::RunKind,
    timings::Timings,
};

/// The number of runs in a row that must be slow, so that one that was disturbed raises no alarm.
const IN_A_ROW: usize = 3;
/// The number of spreads from the median within which a run is ordinary.
const SPREADS: f64 = 2.5;
/// The factor that turns a median absolute deviation into an estimate of a normal distribution's standard deviation.
const MAD_TO_SIGMA: f64 = 1.4826;
/// The share by which the sizes of two runs may differ and still be compared.
const SIZE_TOLERANCE: f64 = 0.2;
/// Sizes below these count as the same: such runs' times do not depend on them.
const SMALL_ENTRIES: u64 = 1_000;
const SMALL_BYTES: u64 = 1 << 20;
/// The shortest time, in milliseconds, that is used in a ratio. Below it, clock ticks and the scheduler dominate.
const MIN_MS: u64 = 20;

/// The figures of a run that succeeded by which runs are compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// The kind of work that the run mostly had to do.
    pub kind: RunKind,
    /// Entries found at the source.
    pub files_scanned: u64,
    /// Sum of the sizes of the files that changed, in bytes.
    pub bytes_changed: u64,
    /// Wall time of each phase, in milliseconds.
    pub timings: Timings,
}

impl Sample {
    /// Returns the sample of a run; `None` if it did not succeed.
    pub fn of(report: &Report) -> Option<Self> {
        let work = &report.work;
        (report.result == RunResult::Succeeded).then(|| Self {
            kind: RunKind::of(work),
            files_scanned: work.files_scanned,
            bytes_changed: work.bytes_changed,
            timings: report.timings,
        })
    }

    /// Returns whether two runs are of one kind and of about the same size.
    fn is_comparable(&self, other: &Self) -> bool {
        let similar = |a: u64, b: u64, small: u64| {
            let (low, high) = (a.min(b).max(small) as f64, a.max(b).max(small) as f64);
            high <= low * (1.0 + SIZE_TOLERANCE)
        };
        self.kind == other.kind
            && similar(self.files_scanned, other.files_scanned, SMALL_ENTRIES)
            && similar(self.bytes_changed, other.bytes_changed, SMALL_BYTES)
    }
}

/// The medians of comparable runs, with which later runs are compared.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Baseline {
    /// Their kind.
    pub kind: RunKind,
    /// Entries found at the source.
    pub files_scanned: u64,
    /// Sum of the sizes of the files that changed, in bytes.
    pub bytes_changed: u64,
    /// The number of runs in the medians.
    pub runs: u32,
    /// Wall time while both ends ran, in milliseconds.
    pub median_ms: u64,
    /// The spread of the runs: the factor within which a run's time usually is, at least 1.
    pub spread: f64,
    /// Wall time of each phase, in milliseconds.
    pub timings: Timings,
}

impl Baseline {
    /// Combines the runs that succeeded, which are of one kind; `None` if there is none.
    pub fn of_reports(reports: &[Report]) -> Option<Self> {
        Self::of(&reports.iter().filter_map(Sample::of).collect::<Vec<_>>())
    }

    fn of(runs: &[Sample]) -> Option<Self> {
        let kind = runs.first()?.kind;
        let median = |of: fn(&Sample) -> u64| middle(runs.iter().map(|run| of(run) as f64).collect()) as u64;
        let median_ms = median_ms(runs);
        let deviations = runs.iter().map(|run| log_ratio(running_ms(run), median_ms).abs()).collect();
        Some(Self {
            kind,
            files_scanned: median(|run| run.files_scanned),
            bytes_changed: median(|run| run.bytes_changed),
            runs: u32::try_from(runs.len()).unwrap_or(u32::MAX),
            median_ms,
            spread: (MAD_TO_SIGMA * middle(deviations)).exp(),
            timings: medians(runs),
        })
    }

    fn fits(&self, run: &Sample) -> bool {
        let Self { kind, files_scanned, bytes_changed, timings, .. } = *self;
        run.is_comparable(&Sample { kind, files_scanned, bytes_changed, timings })
    }

    fn usual(&self, threshold: f64) -> Usual {
        let limit = (threshold.ln() / 2.0).max(SPREADS * self.spread.ln());
        Usual {
            kind: self.kind,
            median_ms: self.median_ms,
            spread: self.spread,
            limit_ms: (self.median_ms as f64 * limit.exp()).round() as u64,
            runs: self.runs as usize,
        }
    }
}

/// The rule by which runs count as slower.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rule {
    /// The number of runs in the baseline; at least 3.
    pub window: usize,
    /// The slowdown to find, as a factor above 1.
    pub threshold: f64,
}

impl Default for Rule {
    fn default() -> Self {
        Self { window: 10, threshold: 1.5 }
    }
}

/// The times that comparable runs usually take.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Usual {
    /// Their kind.
    pub kind: RunKind,
    /// The median of their wall times while both ends ran, in milliseconds.
    pub median_ms: u64,
    /// Their spread: the factor within which a run's time usually is, at least 1.
    pub spread: f64,
    /// The time, in milliseconds, above which a run counts as slow.
    pub limit_ms: u64,
    /// The number of runs in these figures.
    pub runs: usize,
}

/// The slowdown of the last runs, and the phase that it is in.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Slower {
    /// The median of the last three runs' times, divided by that of the baseline's.
    pub ratio: f64,
    /// The phase that has grown most, by its name in [`Timings`].
    pub phase: &'static str,
    /// The median of that phase in the baseline, in milliseconds.
    pub phase_before_ms: u64,
    /// The median of that phase in the last three runs, in milliseconds.
    pub phase_now_ms: u64,
}

/// The judgement on the last run, from the runs before it.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// The times that comparable runs usually take; `None` while there are too few.
    pub usual: Option<Usual>,
    /// Set when the last three of them were all slow.
    pub slower: Option<Slower>,
}

/// Judges the last of `reports`, which are in the order of their runs. Only runs that succeeded, are of its kind and
/// differ by at most a fifth in size count.
pub fn judge(reports: &[Report], rule: Rule) -> Verdict {
    if reports.last().is_none_or(|last| last.result != RunResult::Succeeded) {
        return Verdict::default();
    }
    let samples: Vec<Sample> = reports.iter().filter_map(Sample::of).collect();
    judge_by(&samples, None, rule).verdict
}

/// The judgement on a run, and what the next one is judged by.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Judged {
    /// The baseline for the next run; `None` while there are too few runs.
    pub baseline: Option<Baseline>,
    /// The judgement.
    pub verdict: Verdict,
}

/// Judges the last of `runs`, which are in their order, by an earlier baseline if that is comparable.
pub fn judge_by(runs: &[Sample], known: Option<&Baseline>, rule: Rule) -> Judged {
    let Some(last) = runs.last() else { return Judged::default() };
    let comparable: Vec<Sample> = runs.iter().filter(|run| run.is_comparable(last)).copied().collect();
    let known = known.filter(|known| known.fits(last));
    let Some(baseline) = baseline(&comparable, known, rule) else { return Judged::default() };
    let usual = baseline.usual(rule.threshold);
    let slower = slower(&comparable, &baseline, &usual);
    Judged { baseline: Some(baseline), verdict: Verdict { usual: Some(usual), slower } }
}

/// Returns the baseline: the known one, else that of the first `window` runs, or that of the last `window` runs in a
/// row that were faster by the limit. It never moves to slower runs, so that a slow drift is found, too.
fn baseline(runs: &[Sample], known: Option<&Baseline>, rule: Rule) -> Option<Baseline> {
    let window = rule.window.max(IN_A_ROW);
    let (mut baseline, later) = match known {
        Some(known) => (*known, runs),
        None => (Baseline::of(runs.get(..window)?)?, &runs[window..]),
    };
    for later in later.windows(window) {
        if median_ms(later) as f64 * rule.threshold.sqrt() < baseline.median_ms as f64 {
            baseline = Baseline::of(later)?;
        }
    }
    Some(baseline)
}

fn slower(runs: &[Sample], baseline: &Baseline, usual: &Usual) -> Option<Slower> {
    let last = &runs[runs.len().checked_sub(IN_A_ROW)?..];
    if !last.iter().all(|run| running_ms(run) > usual.limit_ms) {
        return None;
    }
    let now = medians(last);
    let phases = PHASES.map(|(name, of)| (name, (of(&baseline.timings), of(&now))));
    let (phase, (before, now)) =
        phases.into_iter().max_by_key(|(_, (before, now))| i128::from(*now) - i128::from(*before))?;
    let ratio = log_ratio(median_ms(last), usual.median_ms).exp();
    Some(Slower { ratio, phase, phase_before_ms: before, phase_now_ms: now })
}

/// A phase's name, and the function that reads its time in milliseconds.
pub type PhaseTime = (&'static str, fn(&Timings) -> u64);

/// The phases during which both ends run, in their order.
pub const PHASES: [PhaseTime; Phase::COUNT] = [
    ("connect", |it| it.connect),
    ("scan", |it| it.scan),
    ("plan", |it| it.plan),
    ("delta", |it| it.delta),
    ("transfer", |it| it.transfer),
    ("apply", |it| it.apply),
    ("commit", |it| it.commit),
    ("snapshot", |it| it.snapshot),
];

fn running_ms(run: &Sample) -> u64 {
    run.timings.running().max(MIN_MS)
}

/// Returns the median of each phase separately.
fn medians(runs: &[Sample]) -> Timings {
    let of =
        |of: fn(&Timings) -> u64| middle(runs.iter().map(|run| of(&run.timings) as f64).collect()) as u64;
    Timings {
        queue: of(|it| it.queue),
        pod_start: of(|it| it.pod_start),
        connect: of(|it| it.connect),
        scan: of(|it| it.scan),
        plan: of(|it| it.plan),
        delta: of(|it| it.delta),
        transfer: of(|it| it.transfer),
        apply: of(|it| it.apply),
        commit: of(|it| it.commit),
        snapshot: of(|it| it.snapshot),
        total: of(|it| it.total),
    }
}

fn median_ms(runs: &[Sample]) -> u64 {
    middle(runs.iter().map(|run| running_ms(run) as f64).collect()).round() as u64
}

fn log_ratio(now: u64, before: u64) -> f64 {
    (now.max(1) as f64 / before.max(1) as f64).ln()
}

/// Returns the median; 0 for no values.
fn middle(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => 0.0,
        odd if odd % 2 == 1 => values[half],
        _ => f64::midpoint(values[half - 1], values[half]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Work;

    /// Random numbers that are the same in every run of the tests (Steele et al., SplitMix64).
    struct Random(u64);

    impl Random {
        fn uniform(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
        }

        /// Returns the sum of twelve uniform numbers, which is close to normally distributed.
        fn normal(&mut self) -> f64 {
            (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
        }

        /// Makes a run whose transfer takes `factor` times ten seconds, spread log-normally by `noise`.
        fn run(&mut self, factor: f64, noise: f64) -> Report {
            let total = (10_000.0 * factor * (noise * self.normal()).exp()) as u64;
            let timings =
                Timings { total, scan: 1_000, transfer: total.saturating_sub(1_000), ..Timings::default() };
            let work =
                Work { files_scanned: 5_000, files_updated: 10, bytes_changed: 1 << 30, ..Work::default() };
            Report { timings, work, ..Report::default() }
        }
    }

    fn alarms(reports: &[Report]) -> Option<usize> {
        (1..=reports.len()).find(|end| judge(&reports[..*end], Rule::default()).slower.is_some())
    }

    #[test]
    fn a_thousand_noisy_series_with_single_slow_runs_raise_no_alarm() {
        let mut random = Random(1);
        for series in 0..1_000 {
            let noise = 0.08 * random.uniform();
            let mut run = || {
                let disturbed = random.uniform() < 0.02;
                random.run(if disturbed { 3.0 } else { 1.0 }, noise)
            };
            let reports: Vec<Report> = (0..60).map(|_| run()).collect();
            assert_eq!(alarms(&reports), None, "series {series}");
        }
    }

    #[test]
    fn a_step_to_one_and_a_half_times_is_found_by_its_third_run_and_names_the_phase() {
        let mut random = Random(2);
        for series in 0..1_000 {
            let mut reports: Vec<Report> = (0..20).map(|_| random.run(1.0, 0.05)).collect();
            reports.extend((0..3).map(|_| random.run(1.5, 0.05)));
            assert_eq!(alarms(&reports), Some(23), "series {series}");
            let slower = judge(&reports, Rule::default()).slower.unwrap();
            assert_eq!(slower.phase, "transfer");
            assert!((1.3..1.8).contains(&slower.ratio), "{slower:?}");
        }
    }

    #[test]
    fn a_slow_drift_to_twice_the_time_is_found() {
        let mut random = Random(3);
        for _ in 0..200 {
            let reports: Vec<Report> =
                (0..100).map(|at| random.run(1.0 + f64::from(at) / 100.0, 0.05)).collect();
            assert!(alarms(&reports).is_some());
        }
    }

    #[test]
    fn the_alarm_ends_with_the_first_run_that_is_as_fast_as_before() {
        let mut random = Random(4);
        let mut reports: Vec<Report> = (0..12).map(|_| random.run(1.0, 0.02)).collect();
        reports.extend((0..8).map(|_| random.run(2.0, 0.02)));
        assert!(judge(&reports, Rule::default()).slower.is_some());
        reports.push(random.run(1.0, 0.02));
        assert_eq!(judge(&reports, Rule::default()).slower, None);
    }

    #[test]
    fn faster_runs_become_the_baseline_and_slower_ones_never() {
        let mut random = Random(5);
        let mut reports: Vec<Report> = (0..10).map(|_| random.run(2.0, 0.02)).collect();
        reports.extend((0..10).map(|_| random.run(1.0, 0.02)));
        let usual = judge(&reports, Rule::default()).usual.unwrap();
        assert!((9_500..10_500).contains(&usual.median_ms), "{usual:?}");
        reports.extend((0..10).map(|_| random.run(2.0, 0.02)));
        let verdict = judge(&reports, Rule::default());
        assert!((9_500..10_500).contains(&verdict.usual.unwrap().median_ms), "{verdict:?}");
        assert!(verdict.slower.is_some());
    }

    #[test]
    fn a_known_baseline_judges_when_the_runs_it_is_of_are_forgotten() {
        let mut random = Random(8);
        let mut samples = |factor: f64, count: usize| -> Vec<Sample> {
            (0..count).filter_map(|_| Sample::of(&random.run(factor, 0.02))).collect()
        };
        let rule = Rule::default();
        let Judged { baseline: known, verdict } = judge_by(&samples(1.0, 10), None, rule);
        assert_eq!((known.unwrap().runs, verdict.slower), (10, None));
        let slow = samples(2.0, 10);
        let Judged { baseline, verdict } = judge_by(&slow, known.as_ref(), rule);
        assert_eq!(baseline, known, "slower runs do not move it");
        assert!((1.9..2.1).contains(&verdict.slower.unwrap().ratio));
        assert_eq!(judge_by(&slow[..2], known.as_ref(), rule).verdict.slower, None);
        let moved = judge_by(&samples(0.5, 10), known.as_ref(), rule).baseline;
        assert!(moved.unwrap().median_ms < 5_500, "faster ones do");
        let larger = Sample { files_scanned: 50_000, ..slow[0] };
        assert_eq!(judge_by(&[larger; 3], known.as_ref(), rule), Judged::default());
    }

    #[test]
    fn runs_of_another_kind_or_size_or_that_failed_are_not_compared() {
        let mut random = Random(6);
        let mut reports: Vec<Report> = (0..12).map(|_| random.run(1.0, 0.02)).collect();
        let mut odd = |change: fn(&mut Report)| {
            for _ in 0..3 {
                let mut report = random.run(3.0, 0.02);
                change(&mut report);
                reports.push(report);
            }
            judge(&reports, Rule::default())
        };
        assert_eq!(odd(|report| report.work.bytes_changed *= 3), Verdict::default());
        assert_eq!(odd(|report| report.work.files_scanned *= 2), Verdict::default());
        assert_eq!(odd(|report| report.work.files_updated = 0), Verdict::default());
        assert_eq!(odd(|report| report.result = RunResult::Failed), Verdict::default());
        assert!(odd(|_| ()).slower.is_some());
    }

    #[test]
    fn too_few_runs_say_nothing() {
        let mut random = Random(7);
        let reports: Vec<Report> = (0..9).map(|_| random.run(1.0, 0.02)).collect();
        assert_eq!(judge(&reports, Rule::default()), Verdict::default());
        assert_eq!(judge(&[], Rule::default()), Verdict::default());
    }
}
