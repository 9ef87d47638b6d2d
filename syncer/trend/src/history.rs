//! The history of a sequence of reports.

use contract::{
    Bottleneck, Report, RunKind, RunResult, Timings,
    regression::{self, Rule, Verdict},
};
use schemars::JsonSchema;
use serde::Serialize;

/// Runs in their order, each with the verdict from its predecessors.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct History {
    /// The runs, the oldest first.
    pub(super) runs: Vec<RunRow>,
}

/// One run.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct RunRow {
    /// The run's name; empty if it was not given one.
    pub(super) run: String,
    /// When it began, RFC 3339.
    pub(super) start_time: String,
    /// The result.
    pub(super) result: RunResult,
    /// The kind of work that it mostly had to do.
    pub(super) kind: RunKind,
    /// Entries found at the source.
    pub(super) entries: u64,
    /// Entries created, updated or deleted.
    pub(super) changed: u64,
    /// Sum of the sizes of the files that changed.
    pub(super) bytes_changed: u64,
    /// Bytes that crossed the network.
    pub(super) bytes_on_wire: u64,
    /// Changed bytes per second of the whole run.
    pub(super) bytes_per_second: f64,
    /// Wall time of each phase, in milliseconds.
    pub(super) timings: Timings,
    /// The bottleneck of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bottleneck: Option<Bottleneck>,
    /// The times that comparable runs usually took until then, and whether this one and the two before it were slow.
    #[serde(flatten)]
    pub(super) verdict: Verdict,
}

impl RunRow {
    /// Returns what the run waited for most, in words; empty if that is not known.
    pub(super) fn waited_for(&self) -> &'static str {
        self.bottleneck.as_ref().map_or("", |it| it.cause.words())
    }
}

impl History {
    /// Judges each report by those before it. `reports` are in the order of their runs.
    pub(super) fn of(reports: &[Report], rule: Rule) -> Self {
        let rows = reports.iter().enumerate().map(|(at, report)| RunRow {
            run: report.run.clone(),
            start_time: report.start_time.clone(),
            result: report.result,
            kind: RunKind::of(&report.work),
            entries: report.work.files_scanned,
            changed: report.work.changed(),
            bytes_changed: report.work.bytes_changed,
            bytes_on_wire: report.work.bytes_on_wire,
            bytes_per_second: report.rates.bytes_per_second,
            timings: report.timings,
            bottleneck: report.bottleneck.clone(),
            verdict: regression::judge(&reports[..=at], rule),
        });
        Self { runs: rows.collect() }
    }

    /// Returns a table with a line for each run, below a line of headings that carry units.
    pub(super) fn to_csv(&self) -> Result<Vec<u8>, csv::Error> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let phases = regression::PHASES.map(|(name, _)| format!("{name}Ms"));
        let first =
            ["run", "startTime", "result", "kind", "entries", "changed", "bytesChanged", "bytesOnWire"];
        let last = ["totalMs", "usualMs", "limitMs", "slower", "bottleneck", "bottleneckPercent"];
        let headings = first.into_iter().map(String::from).chain(phases).chain(last.map(String::from));
        writer.write_record(headings)?;
        for row in &self.runs {
            let phases = regression::PHASES.map(|(_, of)| of(&row.timings).to_string());
            let usual = row.verdict.usual;
            let optional = |value: Option<u64>| value.map_or_else(String::new, |value| value.to_string());
            let first = [
                row.run.clone(),
                row.start_time.clone(),
                format!("{:?}", row.result),
                format!("{:?}", row.kind),
                row.entries.to_string(),
                row.changed.to_string(),
                row.bytes_changed.to_string(),
                row.bytes_on_wire.to_string(),
            ];
            let last = [
                row.timings.total.to_string(),
                optional(usual.map(|usual| usual.median_ms)),
                optional(usual.map(|usual| usual.limit_ms)),
                row.verdict.slower.is_some().to_string(),
                row.bottleneck.as_ref().map_or_else(String::new, |it| it.cause.to_string()),
                row.bottleneck.as_ref().map_or_else(String::new, |it| it.share.to_string()),
            ];
            writer.write_record(first.into_iter().chain(phases).chain(last))?;
        }
        writer.into_inner().map_err(|error| error.into_error().into())
    }

    /// Returns the last run's verdict.
    pub(super) fn verdict(&self) -> Verdict {
        self.runs.last().map(|row| row.verdict).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use contract::{Cause, Work};

    use super::*;

    /// Makes twenty runs of one second, and three of two seconds.
    fn history() -> History {
        let report = |at: u64| {
            let total = if at < 20 { 1_000 } else { 2_000 };
            Report {
                run: format!("r,{at}"),
                start_time: format!("2026-11-{:02}T00:00:00Z", at + 1),
                timings: Timings { total, scan: 200, transfer: total - 200, ..Timings::default() },
                work: Work { files_scanned: 10, files_updated: 1, bytes_changed: 5, ..Work::default() },
                bottleneck: Some(Bottleneck { cause: Cause::SinkDisk, share: 71, message: "why".into() }),
                ..Report::default()
            }
        };
        History::of(&(0..23).map(report).collect::<Vec<_>>(), Rule::default())
    }

    #[test]
    fn a_table_for_programs_has_a_line_for_each_run_and_quotes_names() {
        let text = String::from_utf8(history().to_csv().unwrap()).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 24);
        assert!(
            lines[0].starts_with("run,startTime,result,kind,")
                && lines[0].ends_with(",slower,bottleneck,bottleneckPercent")
        );
        assert_eq!(
            lines[23],
            "\"r,22\",2026-11-23T00:00:00Z,Succeeded,Changed,10,1,5,0,0,200,0,0,1800,0,0,0,2000,1000,1225,true,sinkDisk,71"
        );
    }

    #[test]
    fn the_last_run_says_by_how_much_and_in_which_phase_runs_have_become_slower() {
        let slower = history().verdict().slower.unwrap();
        assert_eq!((slower.phase, slower.phase_before_ms, slower.phase_now_ms), ("transfer", 800, 1_800));
        let text = super::super::columns::table(&history());
        assert!(text.ends_with(
            "\nSlower: the last three comparable runs took 2.00 times the usual 1.0 s. The phase `transfer` grew most, \
             from 800 ms to 1.8 s.\n"
        ));
        assert_eq!(
            text.lines().filter(|line| line.ends_with("  destination's disk        slow once")).count(),
            2
        );
    }
}
