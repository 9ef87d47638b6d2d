//! The figures of a service, in Prometheus' text form.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    time::{SystemTime, UNIX_EPOCH},
};

use contract::{FolderAccess, RunResult};
use parking_lot::Mutex;
use syncer::session::Outcome;

use super::folder_queue::QueueLengths;

/// The sums of the runs of a folder in one direction.
#[derive(Debug, Default, Clone)]
struct Sums {
    /// By their results.
    runs: BTreeMap<&'static str, u64>,
    milliseconds: u64,
    bytes_on_wire: u64,
    files: u64,
    last_success: Option<u64>,
}

/// What a service has done since its start.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    folders: Mutex<BTreeMap<(String, &'static str), Sums>>,
}

impl Counts {
    /// Adds a run.
    pub(crate) fn add(&self, folder: &str, access: FolderAccess, outcome: &Outcome) {
        let report = &outcome.report;
        let result = match report.result {
            RunResult::Succeeded => "succeeded",
            RunResult::PartiallyFailed => "partially_failed",
            RunResult::Failed => "failed",
            RunResult::Canceled => "canceled",
        };
        let direction = if access == FolderAccess::Read { "read" } else { "write" };
        let mut folders = self.folders.lock();
        let sums = folders.entry((folder.into(), direction)).or_default();
        *sums.runs.entry(result).or_default() += 1;
        sums.milliseconds += report.timings.total;
        sums.bytes_on_wire += report.work.bytes_on_wire;
        sums.files += report.work.files_created + report.work.files_updated;
        if report.result == RunResult::Succeeded {
            sums.last_success = SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|now| now.as_secs());
        }
    }

    /// Writes all figures, with the queues as they are.
    pub(crate) fn text(&self, queues: &BTreeMap<String, QueueLengths>, peers: usize) -> String {
        let folders = self.folders.lock().clone();
        let mut page = Page(String::new());
        page.metric("runs_total", "counter", "Runs, by folder, direction and result.");
        for ((folder, direction), sums) in &folders {
            for (result, runs) in &sums.runs {
                page.value(
                    "runs_total",
                    &[("folder", folder), ("direction", direction), ("result", result)],
                    runs,
                );
            }
        }
        let mut each = |name, kind, help, value: &dyn Fn(&Sums) -> Option<String>| {
            page.metric(name, kind, help);
            for ((folder, direction), sums) in &folders {
                if let Some(value) = value(sums) {
                    page.value(name, &[("folder", folder), ("direction", direction)], &value);
                }
            }
        };
        let seconds = |sums: &Sums| Some((sums.milliseconds as f64 / 1000.0).to_string());
        each("run_seconds_total", "counter", "The time of all runs.", &seconds);
        let bytes = |sums: &Sums| Some(sums.bytes_on_wire.to_string());
        each("wire_bytes_total", "counter", "Bytes that crossed the network, both ways.", &bytes);
        let files = |sums: &Sums| Some(sums.files.to_string());
        each("files_changed_total", "counter", "Files that runs have made or changed.", &files);
        let success = |sums: &Sums| sums.last_success.map(|at| at.to_string());
        each("last_success_timestamp_seconds", "gauge", "When the last good run ended.", &success);
        page.metric("sessions", "gauge", "Peers that have their turn.");
        queues
            .iter()
            .for_each(|(folder, queue)| page.value("sessions", &[("folder", folder)], &queue.running));
        page.metric("waiting_peers", "gauge", "Peers that wait for their turn.");
        queues
            .iter()
            .for_each(|(folder, queue)| page.value("waiting_peers", &[("folder", folder)], &queue.waiting));
        page.metric("authorized_keys", "gauge", "Keys that the service accepts.");
        page.value("authorized_keys", &[], &peers);
        page.0
    }
}

/// A page of figures.
struct Page(String);

impl Page {
    fn metric(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP volferry_serve_{name} {help}\n# TYPE volferry_serve_{name} {kind}");
    }

    /// Writes one value. Labels are names of folders and words of this program, which need no escapes.
    fn value(&mut self, name: &str, labels: &[(&str, &str)], value: &dyn fmt::Display) {
        let labels: Vec<_> = labels.iter().map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let _ = writeln!(self.0, "volferry_serve_{name}{labels} {value}");
    }
}
