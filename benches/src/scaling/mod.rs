//! Describes how runs scale, by a model that is fitted to measurements, checked by others, and extrapolated beyond
//! both.

mod model;

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

pub use self::model::{Costs, Load, Measured, Model};
use crate::{machine::Machine, table::write_aligned};

/// The accepted relative error of the model for a run that it was not fitted to.
pub const TOLERANCE: f64 = 0.15;

const GIB: f64 = (1u64 << 30) as f64;
const MIB: f64 = (1u64 << 20) as f64;

/// All results of `bin/scaling`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Scaling {
    /// The day, as in 2026-11-22.
    pub date: String,
    /// The machine that it ran on.
    pub machine: Machine,
    /// The number of rounds of which each median is taken.
    pub rounds: u64,
    /// The runs that the model is fitted to.
    pub fitted: Vec<Run>,
    /// The runs that the model is checked by.
    pub held_back: Vec<Run>,
    /// The model.
    pub model: Model,
}

/// One measured run.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Run {
    /// The tree, the change and the link, for a reader.
    pub name: String,
    /// Its figures.
    #[serde(flatten)]
    pub measured: Measured,
}

impl Scaling {
    /// Returns whether the model is accurate for all runs that it was not fitted to.
    pub fn is_within(&self) -> bool {
        self.held_back.iter().all(|run| self.miss(run).abs() <= TOLERANCE)
    }

    /// Returns the relative error of the model's time for a run: positive if it is above the measured one.
    fn miss(&self, run: &Run) -> f64 {
        self.model.seconds(&run.measured.load) / run.measured.seconds - 1.0
    }

    /// Formats the tables of a document: the model's constants, the runs that check it, and its predictions for trees
    /// that are too large to measure.
    pub fn to_markdown(&self) -> String {
        let mut text = String::from("\n");
        for rows in [self.constants(), self.checks(), self.limits(), self.extension()] {
            write_aligned(&mut text, &rows, 1);
            text.push('\n');
        }
        let _ = writeln!(
            text,
            "{}: the model is fitted to {} runs, medians of {} rounds.\n{}.\n",
            self.date,
            self.fitted.len(),
            self.rounds,
            self.machine
        );
        text
    }

    fn constants(&self) -> Vec<Vec<String>> {
        const NAMES: [&str; 7] =
            ["", "run", "file", "created file", "updated file", "folder of updated files", "byte"];
        let Model { work, wire, parallel, source_memory, sink_memory, .. } = self.model;
        let row = |name: &str, costs: Costs, unit: f64| {
            let Costs { run, file, created, updated, folder, byte } = costs;
            let cells = [run, file, created, updated, folder, byte].map(|cost| significant(cost * unit));
            [vec![name.to_string()], cells.to_vec()].concat()
        };
        let one = |name: &str, cell: String| {
            let mut row = vec![String::new(); NAMES.len()];
            (row[0], row[1]) = (name.into(), cell);
            row
        };
        let trips =
            [self.model.round_trips, self.model.round_trips_per_doubling, self.model.round_trips_of_updates];
        let [trips, doubling, updates] = trips.map(significant);
        vec![
            NAMES.map(String::from).to_vec(),
            row("time on two cores, µs", work, 1e6),
            row("bytes on the wire", wire, 1.0),
            row("memory of the source, bytes", source_memory, 1.0),
            row("memory of the sink, bytes", sink_memory, 1.0),
            one("round trips", format!("{trips} + {doubling} a doubling + {updates} with updates")),
            one("work that further cores share", format!("{} %", significant(parallel * 100.0))),
        ]
    }

    fn checks(&self) -> Vec<Vec<String>> {
        let mut rows = vec![["held back", "measured ms", "model ms", "miss"].map(String::from).to_vec()];
        rows.extend(self.held_back.iter().map(|run| {
            let model = self.model.seconds(&run.measured.load);
            let miss = format!("{:+.0} %", self.miss(run) * 100.0);
            vec![run.name.clone(), significant(run.measured.seconds * 1e3), significant(model * 1e3), miss]
        }));
        rows
    }

    /// Returns a table of the number of files that fit into the memory of an end.
    fn limits(&self) -> Vec<Vec<String>> {
        let mut rows = vec![["memory of an end", "files in the tree, million"].map(String::from).to_vec()];
        for gib in [1.0, 4.0, 16.0, 64.0] {
            let fits = |costs: Costs| (gib * GIB - costs.run) / costs.file;
            let files = fits(self.model.source_memory).min(fits(self.model.sink_memory));
            rows.push(vec![format!("{gib} GiB"), significant(files / 1e6)]);
        }
        rows
    }

    /// Returns a table of times and memory for large trees. Each shard has two cores for its two ends; all shards scan
    /// the whole tree, and each sends its share.
    fn extension(&self) -> Vec<Vec<String>> {
        const FILES_PER_FOLDER: f64 = 100.0;
        let head = ["files, bytes, shards", "first", "no change", "1 % updated", "memory of an end"];
        let mut rows = vec![head.map(String::from).to_vec()];
        for (files, shards) in
            [(1e6, 1.0), (1e7, 1.0), (1e8, 1.0), (1e9, 1.0), (1e9, 16.0), (1e9, 64.0), (1e9, 256.0)]
        {
            let load = |created: f64, updated: f64| Load {
                files,
                created: files * created / shards,
                updated: files * updated / shards,
                folders: (files * updated).min(files / FILES_PER_FOLDER) / shards,
                bytes: files * (created + updated) / shards * MIB,
                ..Load::EMPTY
            };
            let loads = [load(1.0, 0.0), load(0.0, 0.0), load(0.0, 0.01)];
            let times = loads.map(|load| duration(self.model.seconds(&load)));
            let [source, sink] = self.model.memory(&loads[1]);
            let name = format!("{} M, {}, {shards}", files / 1e6, tebibytes(files * MIB));
            let memory = format!("{} GiB", significant(source.max(sink) / GIB));
            rows.push([vec![name], times.to_vec(), vec![memory]].concat());
        }
        rows
    }
}

/// Formats a number with three significant digits.
fn significant(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let digits = (2 - value.abs().log10().floor() as i32).max(0) as usize;
    format!("{value:.digits$}")
}

/// Formats a size in TiB, or from 0.5 PiB on in PiB.
fn tebibytes(bytes: f64) -> String {
    match bytes / GIB / 1024.0 {
        tebibytes if tebibytes < 512.0 => format!("{} TiB", significant(tebibytes)),
        tebibytes => format!("{} PiB", significant(tebibytes / 1024.0)),
    }
}

/// Formats a time in the unit that a person would use.
fn duration(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s < 120.0 => (s, "s"),
        s if s < 7200.0 => (s / 60.0, "min"),
        s if s < 172_800.0 => (s / 3600.0, "h"),
        s => (s / 86_400.0, "d"),
    };
    format!("{} {unit}", significant(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_times_the_unit_of_a_person() {
        let numbers = [0.0, 0.001_234, 1.0, 12.345, 123_456.7];
        assert_eq!(numbers.map(significant), ["0", "0.00123", "1.00", "12.3", "123457"]);
        assert_eq!(
            [1.0, 600.0, 36_000.0, 864_000.0].map(duration),
            ["1.00 s", "10.0 min", "10.0 h", "10.0 d"]
        );
        assert_eq!([1e6 * MIB, 1e9 * MIB].map(tebibytes), ["0.954 TiB", "0.931 PiB"]);
    }

    #[test]
    fn a_run_that_the_model_misses_by_more_than_the_tolerance_fails_the_bench() {
        let load = Load { files: 1e3, ..Load::EMPTY };
        let run = |seconds: f64| {
            let measured = Measured { load, seconds, wire_bytes: 1e4, source_memory: 1e7, sink_memory: 1e7 };
            Run { name: "1,000 files, no change".into(), measured }
        };
        let scaling = |seconds: f64| Scaling {
            date: "2026-11-22".into(),
            machine: Machine::look(std::path::Path::new("/proc")),
            rounds: 3,
            model: Model::fit(&[run(0.1).measured]),
            fitted: vec![run(0.1)],
            held_back: vec![run(seconds)],
        };
        assert!(scaling(0.11).is_within() && !scaling(0.2).is_within());
        let text = scaling(0.2).to_markdown();
        assert!(text.contains("-50 %"), "{text}");
    }
}
