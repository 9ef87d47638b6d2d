//! Whether runs have become slower, from the reports of earlier ones. Pure.
//!
//! The statistic is a run rule on log ratios, as in a Shewhart chart (Western Electric, *Statistical Quality Control
//! Handbook*, 1956): three comparable runs in a row beyond the limit. Centre and spread are the median and the median
//! absolute deviation times 1.4826 (Iglewicz and Hoaglin, *How to Detect and Handle Outliers*, 1993), so that single
//! slow runs move neither. The limit is the geometric mean of 1 and the threshold, the boundary at which "unchanged" and
//! "slower by the threshold" are equally likely, and at least 2.5 spreads.

use schemars::JsonSchema;
use serde::Serialize;

use crate::{Report, RunResult, Timings};

/// How many runs in a row must be slow, so that one that was disturbed raises no alarm.
const IN_A_ROW: usize = 3;
/// Spreads from the median within which a run is ordinary.
const SPREADS: f64 = 2.5;
/// Makes a median absolute deviation an estimate of a normal distribution's standard deviation.
const MAD_TO_SIGMA: f64 = 1.4826;
/// By which share two runs' sizes may differ and still be compared.
const SIZE_TOLERANCE: f64 = 0.2;
/// Sizes below these count as the same: such runs' times do not depend on them.
const SMALL_ENTRIES: u64 = 1_000;
const SMALL_BYTES: u64 = 1 << 20;
/// The shortest time that a ratio is taken of, in milliseconds. Below it, a clock's tick and a scheduler's whim decide.
const MIN_MS: u64 = 20;

/// What a run mostly had to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum RunKind {
    /// At least half of the source's entries were new at the destination.
    First,
    /// Something was changed.
    Changed,
    /// Nothing was changed.
    Unchanged,
}

impl RunKind {
    /// Returns the kind of a run by its counts.
    pub fn of(report: &Report) -> Self {
        let work = &report.work;
        match work.changed() {
            0 => Self::Unchanged,
            _ if work.files_created.saturating_mul(2) >= work.files_scanned => Self::First,
            _ => Self::Changed,
        }
    }
}

/// When runs count as slower.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rule {
    /// How many runs the baseline is made of; at least 3.
    pub window: usize,
    /// The slowdown to find, as a factor above 1.
    pub threshold: f64,
}

impl Default for Rule {
    fn default() -> Self {
        Self { window: 10, threshold: 1.5 }
    }
}

/// What comparable runs usually take.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Usual {
    /// Their kind.
    pub kind: RunKind,
    /// The median of their wall times while both ends ran, in milliseconds.
    pub median_ms: u64,
    /// How far they spread: the factor that a run's time is usually within, at least 1.
    pub spread: f64,
    /// Above this, in milliseconds, a run counts as slow.
    pub limit_ms: u64,
    /// How many runs these figures are of.
    pub runs: usize,
}

/// By how much runs have become slower, and in which phase.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Slower {
    /// The median of the last three runs' times by that of the baseline's.
    pub ratio: f64,
    /// The phase that has grown most, by its name in [`Timings`].
    pub phase: &'static str,
    /// The median of that phase in the baseline, in milliseconds.
    pub phase_before_ms: u64,
    /// The median of that phase in the last three runs, in milliseconds.
    pub phase_now_ms: u64,
}

/// What the runs before say of the last one.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    /// What comparable runs usually take; `None` while there are too few.
    pub usual: Option<Usual>,
    /// Set when the last three of them were all slow.
    pub slower: Option<Slower>,
}

/// Judges the last of `reports`, which are in the order of their runs. Only runs that succeeded, are of its kind and
/// are within a fifth of its size count.
pub fn judge(reports: &[Report], rule: Rule) -> Verdict {
    let Some(last) = reports.last().filter(|last| last.result == RunResult::Succeeded) else {
        return Verdict::default();
    };
    let comparable: Vec<Timings> = reports
        .iter()
        .filter(|report| report.result == RunResult::Succeeded && is_comparable(report, last))
        .map(|report| report.timings)
        .collect();
    let window = rule.window.max(IN_A_ROW);
    let Some(baseline) = baseline(&comparable, window, rule.threshold) else { return Verdict::default() };
    let usual = usual(RunKind::of(last), baseline, rule.threshold);
    Verdict { usual: Some(usual), slower: slower(&comparable, baseline, &usual) }
}

fn is_comparable(report: &Report, last: &Report) -> bool {
    let similar = |a: u64, b: u64, small: u64| {
        let (low, high) = (a.min(b).max(small) as f64, a.max(b).max(small) as f64);
        high <= low * (1.0 + SIZE_TOLERANCE)
    };
    RunKind::of(report) == RunKind::of(last)
        && similar(report.work.files_scanned, last.work.files_scanned, SMALL_ENTRIES)
        && similar(report.work.bytes_changed, last.work.bytes_changed, SMALL_BYTES)
}

/// Returns the runs that later ones are held against: the first `window`, or the last `window` in a row that were faster
/// than the ones before by the limit. It never moves to slower runs, so that a slow drift is found, too.
fn baseline(runs: &[Timings], window: usize, threshold: f64) -> Option<&[Timings]> {
    let mut baseline = runs.get(..window)?;
    for later in runs[window..].windows(window) {
        if median_ms(later) as f64 * threshold.sqrt() < median_ms(baseline) as f64 {
            baseline = later;
        }
    }
    Some(baseline)
}

fn usual(kind: RunKind, baseline: &[Timings], threshold: f64) -> Usual {
    let median = median_ms(baseline);
    let deviations = baseline.iter().map(|run| log_ratio(running_ms(run), median).abs()).collect();
    let sigma = MAD_TO_SIGMA * middle(deviations);
    let limit = (threshold.ln() / 2.0).max(SPREADS * sigma);
    Usual {
        kind,
        median_ms: median,
        spread: sigma.exp(),
        limit_ms: (median as f64 * limit.exp()).round() as u64,
        runs: baseline.len(),
    }
}

fn slower(runs: &[Timings], baseline: &[Timings], usual: &Usual) -> Option<Slower> {
    let last = &runs[runs.len().checked_sub(IN_A_ROW)?..];
    if !last.iter().all(|run| running_ms(run) > usual.limit_ms) {
        return None;
    }
    let grown = |of: fn(&Timings) -> u64| {
        let median = |runs: &[Timings]| middle(runs.iter().map(|run| of(run) as f64).collect()) as u64;
        (median(baseline), median(last))
    };
    let phases = PHASES.map(|(name, of)| (name, grown(of)));
    let (phase, (before, now)) =
        phases.into_iter().max_by_key(|(_, (before, now))| i128::from(*now) - i128::from(*before))?;
    let ratio = log_ratio(median_ms(last), usual.median_ms).exp();
    Some(Slower { ratio, phase, phase_before_ms: before, phase_now_ms: now })
}

/// A phase's name, and how to read its time.
pub type PhaseTime = (&'static str, fn(&Timings) -> u64);

/// The phases during which both ends run, in their order.
pub const PHASES: [PhaseTime; 8] = [
    ("connect", |it| it.connect),
    ("scan", |it| it.scan),
    ("plan", |it| it.plan),
    ("delta", |it| it.delta),
    ("transfer", |it| it.transfer),
    ("apply", |it| it.apply),
    ("commit", |it| it.commit),
    ("snapshot", |it| it.snapshot),
];

fn running_ms(run: &Timings) -> u64 {
    run.running().max(MIN_MS)
}

fn median_ms(runs: &[Timings]) -> u64 {
    middle(runs.iter().map(|run| running_ms(run) as f64).collect()).round() as u64
}

fn log_ratio(now: u64, before: u64) -> f64 {
    (now.max(1) as f64 / before.max(1) as f64).ln()
}

/// Returns the median; 0 of nothing.
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

        /// The sum of twelve uniform numbers is close to normal.
        fn normal(&mut self) -> f64 {
            (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0
        }

        /// A run whose transfer takes `factor` times ten seconds, and which `noise` spreads log-normally.
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
