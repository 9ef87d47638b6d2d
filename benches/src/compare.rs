//! Formats the comparison of two programs that ran in turn on the named benches: as Markdown for a pull request, and
//! as JSON.

use std::fmt::Write as _;

use clap::ValueEnum as _;
use serde::Serialize;

use crate::{
    comparison_table::{half_spread, number, or_dash, write_aligned},
    machine::Machine,
    stats::{Change, Ratio, median, spread},
    suites::Mode,
};

/// The unit of a comparison's figures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Milliseconds from the start to the end of the process at the source.
    Milliseconds,
    /// User-space instructions of both ends, on one core.
    Instructions,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Milliseconds => "ms",
            Self::Instructions => "M instructions",
        }
    }

    /// Formats a figure for tables.
    fn show(self, value: f64) -> String {
        match self {
            Self::Milliseconds => number(value),
            Self::Instructions => format!("{:.2}", value / 1e6),
        }
    }
}

/// The figures of one bench with both programs.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// `mode/suite/parameter`.
    pub bench: String,
    /// The figures of the first program, one for each round.
    pub before: Vec<f64>,
    /// The figures of the second program, which ran in turn with the first.
    pub after: Vec<f64>,
    /// The ratio of the second to the first.
    pub ratio: Ratio,
    /// The verdict.
    pub verdict: Change,
}

impl Row {
    /// Judges the rounds of one bench; `None` if no rounds are given. `threshold` is the smallest change that counts,
    /// 0.03 for 3 %.
    pub fn new(bench: String, unit: Unit, before: Vec<f64>, after: Vec<f64>, threshold: f64) -> Option<Self> {
        let ratio = Ratio::of(&before, &after)?;
        let verdict = match unit {
            Unit::Milliseconds => ratio.judge(threshold),
            // Counts have no noise, so that the ratio alone decides.
            Unit::Instructions => {
                Ratio { interval: Some((ratio.median, ratio.median)), ..ratio }.judge(threshold)
            }
        };
        Some(Self { bench, before, after, ratio, verdict })
    }

    fn cells(&self, unit: Unit) -> Vec<String> {
        let figure = |values: &[f64]| {
            or_dash(median(values).map(|median| unit.show(median) + &half_spread(spread(values))))
        };
        let interval = or_dash(self.ratio.interval.map(|(low, high)| format!("{low:.3} … {high:.3}")));
        let (ratio, verdict) = (format!("{:.3}", self.ratio.median), self.verdict.to_string());
        vec![self.bench.clone(), figure(&self.before), figure(&self.after), ratio, interval, verdict]
    }
}

/// The comparison of two programs on all chosen benches.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    /// The machine that it ran on.
    pub machine: Machine,
    /// The first program, by the name of its commit.
    pub before: String,
    /// The second program, by the name of its commit.
    pub after: String,
    /// The unit of the figures.
    pub unit: Unit,
    /// The smallest change that counts, 0.03 for 3 %.
    pub threshold: f64,
    /// The benches.
    pub rows: Vec<Row>,
    /// The rounds of all benches of a mode taken together, if these are to be judged in place of single benches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub together: Vec<Row>,
}

impl Comparison {
    /// Takes the rounds of all benches of each mode together, and judges these in place of single benches. A small
    /// change that all benches share is seen in hundreds of rounds where the dozen of one bench leaves it unclear.
    #[must_use]
    pub fn judged_together(mut self) -> Self {
        for mode in Mode::value_variants().iter().map(|mode| mode.name()) {
            let of_mode = || self.rows.iter().filter(|row| row.bench.split('/').next() == Some(mode));
            let before = of_mode().flat_map(|row| row.before.iter().copied()).collect();
            let after = of_mode().flat_map(|row| row.after.iter().copied()).collect();
            let name = format!("{mode}, {} benches together", of_mode().count());
            self.together.extend(Row::new(name, self.unit, before, after, self.threshold));
        }
        self
    }

    /// Returns whether any bench got slower, or all together if they are judged so.
    pub fn is_slower(&self) -> bool {
        self.judged().iter().any(|row| row.verdict == Change::Slower)
    }

    /// Returns the rows whose verdicts count.
    fn judged(&self) -> &[Row] {
        if self.together.is_empty() { &self.rows } else { &self.together }
    }

    /// Returns a sentence that sums up the verdicts.
    fn sentence(&self) -> String {
        let count = |change| self.judged().iter().filter(|row| row.verdict == change).count();
        let [slower, faster] = [Change::Slower, Change::Faster].map(count);
        let [same, unclear] = [Change::Same, Change::Unclear].map(count);
        format!("{slower} slower, {faster} faster, {same} the same, {unclear} unclear")
    }

    /// Describes how the verdicts were found.
    fn method(&self) -> String {
        let percent = self.threshold * 100.0;
        match self.unit {
            Unit::Milliseconds => format!(
                "Medians and half the interquartile range of rounds in turn; ratio: the median of the rounds' ratios with its \
                 distribution-free 99 % interval. Slower: the interval above 1 and the ratio above {percent} %. Same: the interval \
                 within {percent} %."
            ),
            Unit::Instructions => format!(
                "Instructions outside of the kernel by callgrind, both ends, one core. Slower: more than {percent} % more."
            ),
        }
    }

    /// Formats a Markdown table with aligned columns, for a pull request.
    pub fn to_markdown(&self) -> String {
        let mut text = format!("## {} → {}: {}\n\n", self.before, self.after, self.sentence());
        let mut cells = vec![self.head()];
        cells.extend(self.rows.iter().chain(&self.together).map(|row| row.cells(self.unit)));
        write_aligned(&mut text, &cells, 1);
        let _ = writeln!(text, "\n{}\n\n{}.", self.method(), self.machine);
        text
    }

    fn head(&self) -> Vec<String> {
        let figure = |name: &str| format!("{name} {}", self.unit.name());
        let fixed = ["ratio", "99 % interval", "verdict"].map(String::from);
        [vec!["bench".into(), figure(&self.before), figure(&self.after)], fixed.to_vec()].concat()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn comparison(unit: Unit, after: f64) -> Comparison {
        let row = Row::new("local/sync_small_files/10".into(), unit, vec![10.0; 12], vec![after; 12], 0.03);
        let machine = Machine::describe(Path::new("/proc"));
        let [before, after] = ["a1b2c3d", "<b>"].map(String::from);
        let rows = row.into_iter().collect();
        Comparison { machine, before, after, unit, threshold: 0.03, rows, together: Vec::new() }
    }

    #[test]
    fn a_slower_bench_makes_the_comparison_slower() {
        assert!(comparison(Unit::Milliseconds, 10.5).is_slower());
        assert!(!comparison(Unit::Milliseconds, 10.2).is_slower());
        assert!(comparison(Unit::Instructions, 10.4).is_slower());
        assert!(!comparison(Unit::Instructions, 9.0).is_slower());
    }

    #[test]
    fn benches_that_are_judged_together_decide_alone() {
        let mut single = comparison(Unit::Milliseconds, 10.5);
        for nth in 0..4 {
            let (name, unit) = (format!("local/same/{nth}"), Unit::Milliseconds);
            single.rows.extend(Row::new(name, unit, vec![10.0; 12], vec![10.1; 12], 0.03));
        }
        assert!(single.is_slower());
        let together = single.judged_together();
        assert!(!together.is_slower());
        let [row] = &together.together[..] else { panic!("one mode was run") };
        assert_eq!((&*row.bench, row.verdict), ("local, 5 benches together", Change::Same));
        assert!(comparison(Unit::Milliseconds, 10.5).judged_together().is_slower());
    }

    #[test]
    fn the_table_has_medians_spreads_ratio_interval_and_verdict() {
        let text = comparison(Unit::Milliseconds, 12.0).to_markdown();
        let row = text.lines().find(|line| line.contains("sync_small_files")).unwrap();
        let cells: Vec<&str> = row.split('|').map(str::trim).filter(|cell| !cell.is_empty()).collect();
        let wanted = ["local/sync_small_files/10", "10 ±0 %", "12 ±0 %", "1.200", "1.200 … 1.200", "slower"];
        assert_eq!(cells, wanted);
    }
}
