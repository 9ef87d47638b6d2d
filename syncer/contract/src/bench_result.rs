//! The runs of a bench, and the figures that follow from them. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    bench::{BenchFigures, BenchStep, BenchStepName},
    regression::Baseline,
    report::Report,
};

/// The figures of a bench, and the runs that they come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BenchResult {
    /// The figures.
    #[serde(flatten)]
    pub figures: BenchFigures,
    /// All runs in their order: of each round, the first copy, the run after no change, and the run after some changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<Report>,
}

impl BenchStep {
    /// Combines the runs of one step into its figures; `None` if none succeeded.
    pub fn of(step: BenchStepName, runs: &[Report]) -> Option<Self> {
        let usual = Baseline::of_reports(runs)?;
        let mut by_time: Vec<&Report> = runs.iter().collect();
        by_time.sort_by_key(|run| run.timings.total);
        let (least, most) = (by_time.first()?.timings.total, by_time.last()?.timings.total);
        let middle = by_time[(by_time.len() - 1) / 2];
        let seconds = (usual.timings.total.max(1)) as f64 / 1000.0;
        Some(Self {
            step,
            rounds: usual.runs,
            median_ms: usual.timings.total,
            least_ms: least,
            most_ms: most,
            spread: usual.spread,
            files_per_second: usual.files_scanned as f64 / seconds,
            bytes_per_second: usual.bytes_changed as f64 / seconds,
            timings: usual.timings,
            bottleneck: middle.bottleneck.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Bottleneck, Timings, Work};

    #[test]
    fn a_step_has_the_median_of_its_rounds_and_what_that_one_waited_for() {
        let run = |total: u64| Report {
            timings: Timings { total, transfer: total, ..Timings::default() },
            work: Work { files_scanned: 500, bytes_changed: 1_000_000, ..Work::default() },
            bottleneck: Some(Bottleneck { cause: crate::Cause::Cpu, share: 9, message: total.to_string() }),
            ..Report::default()
        };
        let step = BenchStep::of(BenchStepName::First, &[900, 500, 100_000].map(run)).unwrap();
        assert_eq!((step.rounds, step.median_ms, step.least_ms, step.most_ms), (3, 900, 500, 100_000));
        assert_eq!(step.bottleneck.unwrap().message, "900");
        assert!((step.bytes_per_second - 1_000_000.0 / 0.9).abs() < 1.0);
        assert_eq!(BenchStep::of(BenchStepName::First, &[]), None);
    }
}
