//! Calculates medians, ratios and verdicts of runs, and formats them as a table and as JSON.

use std::{collections::BTreeMap, fmt::Write as _};

use contract::human;
use serde::{Deserialize, Serialize};

use crate::{
    machine::Machine,
    peers::{DIRECT, Missing, Named},
    runner::{Cell, Row},
    stats::{median, spread},
};

/// The tool whose figures are judged.
pub(crate) const OURS: &str = "volferry";
/// The tool to whose bytes on the wire Volferry's are compared.
const RSYNC: &str = "rsync daemon";

/// All results of a bench.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Results {
    /// The day, as in 2026-11-22.
    pub date: String,
    /// The machine that it ran on.
    pub machine: Machine,
    /// The number of rounds of which each median is taken.
    pub rounds: u64,
    /// Whether each run ended only when its copy was durable.
    pub durable: bool,
    /// The tables, one for each set of scenarios.
    pub tables: Vec<Table>,
    /// The tools that are not installed on this machine.
    pub missing: Vec<Missing>,
    /// A note for the reader.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
}

/// The figures of one set.
#[derive(Debug, Serialize, Deserialize)]
pub struct Table {
    /// The measurement.
    pub title: String,
    /// The tools, in the order of the columns.
    pub tools: Vec<Named>,
    /// The steps.
    pub rows: Vec<Line>,
}

/// The figures of one step.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Line {
    /// The tree.
    pub tree: String,
    /// The step.
    pub phase: String,
    /// The target time, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reach_ms: Option<f64>,
    /// Each tool's figures, by its name.
    pub tools: BTreeMap<String, Figures>,
    /// The ratio of Volferry's median to the best peer's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Whether Volferry is ahead of every peer.
    pub verdict: Verdict,
    /// The number of round trips of the step over the link: the difference to the median without delay, divided by the
    /// round-trip time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub round_trips: Option<f64>,
}

/// The figures of one tool in one step.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Figures {
    /// The median of the samples, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub median_ms: Option<f64>,
    /// The interquartile range of the samples as a share of their median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
    /// The ratio of Volferry's median to this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Whether Volferry is ahead of this tool.
    pub verdict: Verdict,
    /// The time of each round, in milliseconds.
    pub samples_ms: Vec<f64>,
    /// The median of the bytes on the wire, if the tool counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wire_bytes: Option<u64>,
    /// The reason why no figure exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// Volferry's result in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Faster than every peer.
    Ahead,
    /// Slower than the best peer, by no more than the step allows.
    Allowed,
    /// Slower than the best peer.
    Behind,
    /// It failed, or left a wrong result.
    Fails,
    /// Nothing can be compared.
    #[default]
    None,
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ahead => "ahead",
            Self::Allowed => "allowed",
            Self::Behind => "behind",
            Self::Fails => "fails",
            Self::None => "–",
        })
    }
}

impl Table {
    /// Calculates the figures of `rows`, whose cells are in the order of `tools`. Steps that only prepare another one
    /// are left out. `rtt_ms` is the link's round-trip time, if a link is used.
    pub fn new(title: String, tools: Vec<Named>, rows: &[Row], rtt_ms: Option<f64>) -> Self {
        let rows = rows.iter().filter_map(|row| Line::new(row, &tools, rtt_ms)).collect();
        Self { title, tools, rows }
    }

    /// Formats the table in Markdown with aligned columns.
    pub fn to_markdown(&self) -> String {
        let mut cells = vec![self.head()];
        cells.extend(self.rows.iter().map(|line| self.cells(line)));
        let mut text = format!("## {}\n\n", self.title);
        write_aligned(&mut text, &cells, 2);
        for tool in &self.tools {
            let _ = write!(text, "\n- {}: {}", tool.name, tool.version);
            if !tool.leaves_out.is_empty() {
                let _ = write!(text, "; leaves out {}", tool.leaves_out);
            }
        }
        text.push('\n');
        text
    }

    fn head(&self) -> Vec<String> {
        let mut head = vec!["tree".to_string(), "phase".to_string()];
        head.extend(self.peers().map(|name| format!("{name} ms")));
        head.push("volferry ms".into());
        head.push(if self.has_link() { "round trips" } else { "reach" }.into());
        head.extend(["ratio", "verdict"].map(String::from));
        if self.peers().any(|name| name == RSYNC) {
            head.push("wire: volferry / rsync".into());
        } else if self.has_wire() {
            head.push("wire: volferry".into());
        }
        head
    }

    fn cells(&self, line: &Line) -> Vec<String> {
        let time = |name: &str| or_dash(line.tools.get(name).map(Figures::cell));
        let mut cells = vec![line.tree.clone(), line.phase.clone()];
        cells.extend(self.peers().map(time));
        cells.push(time(OURS));
        cells.push(if self.has_link() {
            or_dash(line.round_trips.map(|count| format!("{count:.1}")))
        } else {
            or_dash(line.reach_ms.map(number))
        });
        cells.push(or_dash(line.ratio.map(|ratio| format!("{ratio:.2}"))));
        cells.push(line.verdict.to_string());
        let count = |name| line.tools.get(name).and_then(|figures| figures.wire_bytes);
        let wire = |name| or_dash(count(name).map(human::bytes));
        if self.peers().any(|name| name == RSYNC) {
            cells.push(format!("{} / {}", wire(OURS), wire(RSYNC)));
        } else if self.has_wire() {
            cells.push(wire(OURS));
        }
        cells
    }

    /// Returns the names of all columns except Volferry's own, which follows them.
    fn peers(&self) -> impl Iterator<Item = &str> {
        self.tools.iter().map(|tool| tool.name.as_str()).filter(|name| *name != OURS)
    }

    fn has_wire(&self) -> bool {
        self.rows.iter().flat_map(|line| line.tools.values()).any(|figures| figures.wire_bytes.is_some())
    }

    fn has_link(&self) -> bool {
        self.rows.iter().any(|line| line.round_trips.is_some())
    }
}

impl Line {
    /// Builds a line from each tool's samples, in milliseconds.
    pub fn of_samples(
        tree: String,
        phase: String,
        reach_ms: Option<f64>,
        samples: &[(&str, &[f64])],
    ) -> Self {
        let ours = samples.iter().find(|(tool, _)| *tool == OURS).and_then(|(_, samples)| median(samples));
        let figures = |(tool, samples): &(&str, &[f64])| {
            // A median of 0 has no spread.
            let spread = spread(samples).filter(|it| it.is_finite()).map(|it| round(it, 1000.0));
            let mut figures = Figures { median_ms: median(samples), spread, ..Figures::default() };
            figures.samples_ms = samples.to_vec();
            if *tool != OURS {
                figures.compare(ours, 1.0);
            }
            ((*tool).to_string(), figures)
        };
        let tools: BTreeMap<String, Figures> = samples.iter().map(figures).collect();
        let ratio = tools.values().filter_map(|figures| figures.ratio).max_by(f64::total_cmp);
        Self { tree, phase, reach_ms, ratio, verdict: verdict(ratio, 1.0), round_trips: None, tools }
    }

    fn new(row: &Row, tools: &[Named], rtt_ms: Option<f64>) -> Option<Self> {
        let figures = tools.iter().zip(&row.cells).filter(|(_, cell)| cell.takes_part);
        let mut tools: BTreeMap<_, _> =
            figures.map(|(tool, cell)| (tool.name.clone(), Figures::new(cell))).collect();
        let ours = tools.get(OURS).and_then(|figures| figures.median_ms);
        let peers = tools.iter_mut().filter(|(name, _)| !name.starts_with(OURS));
        peers.for_each(|(_, figures)| figures.compare(ours, row.phase.allowance));
        // The best peer is the one with the highest ratio.
        let ratio = tools.values().filter_map(|figures| figures.ratio).max_by(f64::total_cmp);
        let median = |name: &str| tools.get(name).and_then(|figures| figures.median_ms);
        let round_trips = rtt_ms
            .zip(median(OURS).zip(median(DIRECT)))
            .map(|(rtt, (linked, direct))| round((linked - direct) / rtt, 100.0));
        let failed = tools.get(OURS).is_some_and(|figures| figures.failure.is_some());
        Some(Self {
            tree: row.tree.clone(),
            phase: row.phase.name.into(),
            reach_ms: Some(row.phase.reach_ms?),
            ratio,
            verdict: if failed { Verdict::Fails } else { verdict(ratio, row.phase.allowance) },
            round_trips,
            tools,
        })
    }
}

impl Figures {
    /// Calculates the figures of a cell. A tool that failed in any round has no median, because its figure would depend
    /// on luck.
    fn new(cell: &Cell) -> Self {
        let samples_ms: Vec<f64> =
            cell.samples.iter().map(|sample| round(sample.elapsed.as_secs_f64() * 1000.0, 100.0)).collect();
        let wire: Vec<f64> =
            cell.samples.iter().filter_map(|sample| sample.wire_bytes).map(|bytes| bytes as f64).collect();
        let failure = cell.failure.clone();
        let median_ms = if failure.is_none() { median(&samples_ms) } else { None };
        let spread = median_ms.and_then(|_| spread(&samples_ms)).map(|spread| round(spread, 1000.0));
        let wire_bytes = median(&wire).map(|bytes| bytes as u64);
        Self { median_ms, spread, wire_bytes, samples_ms, failure, ..Self::default() }
    }

    /// Compares Volferry's median with this one.
    fn compare(&mut self, ours: Option<f64>, allowance: f64) {
        self.ratio = ours.zip(self.median_ms).map(|(ours, theirs)| round(ours / theirs, 1000.0));
        self.verdict = verdict(self.ratio, allowance);
    }

    /// Formats the median, half the spread, and Volferry's result compared with it.
    fn cell(&self) -> String {
        let Some(median) = self.median_ms else {
            return if self.failure.is_some() { "fails" } else { "–" }.into();
        };
        let ratio = self.ratio.map_or_else(String::new, |ratio| format!(", {ratio:.2} {}", self.verdict));
        number(median) + &half_spread(self.spread) + &ratio
    }
}

fn verdict(ratio: Option<f64>, allowance: f64) -> Verdict {
    match ratio {
        None => Verdict::None,
        Some(ratio) if ratio < 1.0 => Verdict::Ahead,
        Some(ratio) if ratio <= allowance && allowance > 1.0 => Verdict::Allowed,
        Some(_) => Verdict::Behind,
    }
}

fn round(value: f64, steps: f64) -> f64 {
    (value * steps).round() / steps
}

/// Formats the deviation to either side.
pub(crate) fn half_spread(spread: Option<f64>) -> String {
    spread.map_or_else(String::new, |spread| format!(" ±{:.0} %", spread * 50.0))
}

/// Returns the text of a cell, which has a dash if there is none.
pub(crate) fn or_dash(text: Option<String>) -> String {
    text.unwrap_or_else(|| "–".into())
}

/// Formats a number, with one decimal below 10 and without decimals otherwise.
pub(crate) fn number(value: f64) -> String {
    if value < 10.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

/// Appends a Markdown table with aligned columns; the first row is its head, and the first `left` columns are text.
pub(crate) fn write_aligned(text: &mut String, rows: &[Vec<String>], left: usize) {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    for (index, row) in rows.iter().enumerate() {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let _ = if column < left {
                write!(text, "| {cell:<width$} ")
            } else {
                write!(text, "| {cell:>width$} ")
            };
        }
        text.push_str("|\n");
        if index == 0 {
            for (column, width) in widths.iter().enumerate() {
                let _ = write!(text, "|{}{}", "-".repeat(width + 1), if column < left { "-" } else { ":" });
            }
            text.push_str("|\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use testkit::edits::Edit;

    use crate::{peers::Sample, scenario::Phase};

    fn cell(times_ms: &[u64]) -> Cell {
        let sample = |ms: &u64| Sample { elapsed: Duration::from_millis(*ms), wire_bytes: Some(*ms) };
        Cell { samples: times_ms.iter().map(sample).collect(), failure: None, takes_part: true }
    }

    fn table(cells: Vec<Cell>, names: &[&'static str], rtt_ms: Option<f64>) -> Table {
        let phase = Phase { name: "first", edit: Edit::None, reach_ms: Some(5.0), allowance: 1.3 };
        let row = Row { tree: "net1k".into(), phase, cells };
        let named = |name: &&'static str| Named {
            name: name.to_string(),
            version: "1".into(),
            leaves_out: "checks".into(),
        };
        Table::new("test".into(), names.iter().map(named).collect(), &[row], rtt_ms)
    }

    #[test]
    fn the_best_peer_is_the_one_to_be_ahead_of() {
        let names = ["volferry", "rsync daemon", "sparsync"];
        let table = table(vec![cell(&[30, 10, 20]), cell(&[50]), cell(&[40])], &names, None);
        assert_eq!((table.rows[0].ratio, table.rows[0].verdict), (Some(0.5), Verdict::Ahead));
    }

    #[test]
    fn each_cell_has_median_spread_ratio_and_verdict_and_each_tool_what_it_leaves_out() {
        let names = ["volferry", "rsync daemon", "sparsync"];
        let text = table(vec![cell(&[30, 10, 20]), cell(&[50, 50]), cell(&[10])], &names, None).to_markdown();
        assert!(text.contains("| 50 ±0 %, 0.40 ahead |"), "{text}");
        assert!(text.contains("| 10 ±0 %, 2.00 behind |"), "{text}");
        assert!(text.contains(" 20 ±25 % |"), "{text}");
        assert!(text.contains("- sparsync: 1; leaves out checks"), "{text}");
    }

    #[test]
    fn a_tie_is_not_ahead_and_an_allowance_is_kept_apart() {
        assert_eq!(verdict(Some(1.0), 1.0), Verdict::Behind);
        assert_eq!(verdict(Some(0.999), 1.0), Verdict::Ahead);
        assert_eq!(verdict(Some(1.3), 1.3), Verdict::Allowed);
        assert_eq!(verdict(Some(1.31), 1.3), Verdict::Behind);
        assert_eq!(verdict(None, 1.3), Verdict::None);
    }

    #[test]
    fn one_wrong_result_takes_a_tools_figure_away() {
        let mut wrong = cell(&[1, 1]);
        wrong.failure = Some("content differs".into());
        let as_peer = table(vec![cell(&[20]), wrong.clone(), cell(&[30])], &["volferry", "a", "b"], None);
        assert_eq!(as_peer.rows[0].ratio, Some(0.667));
        assert!(as_peer.to_markdown().contains("fails"));
        let ours = table(vec![wrong, cell(&[30])], &["volferry", "b"], None);
        assert_eq!((ours.rows[0].ratio, ours.rows[0].verdict), (None, Verdict::Fails));
    }

    #[test]
    fn round_trips_are_what_the_delay_adds() {
        let names = ["volferry", DIRECT, "sparsync"];
        let table = table(vec![cell(&[210]), cell(&[60]), cell(&[420])], &names, Some(50.0));
        assert_eq!((table.rows[0].round_trips, table.rows[0].ratio), (Some(3.0), Some(0.5)));
    }

    #[test]
    fn the_table_is_markdown_with_a_column_for_each_tool() {
        let text = table(vec![cell(&[20]), cell(&[137])], &["volferry", "rsync daemon"], None).to_markdown();
        let lines: Vec<&str> = text.lines().skip(2).take(3).collect();
        let columns = |line: &str| line.matches('|').count();
        assert_eq!(lines.iter().map(|line| columns(line)).collect::<Vec<_>>(), [9, 9, 9], "{text}");
        assert!(lines[2].contains("20 B / 137 B"), "{text}");
    }
}
