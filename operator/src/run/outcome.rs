//! Judges how a try of a run ended, from how its two ends ended. Pure.

use std::time::Duration;

use contract::{ExitCode, Reason, Report, RunResult, Side, Work};
use jiff::Timestamp;

use super::benchmark;
use crate::{
    api::RunFolder,
    ends::{destination_identity::REMEDY, remote_end::RemoteEnd, source_identity::ACCEPT},
    fault::Fault,
    human::{self, sentence},
    pods::security,
};

/// The flag by which the engine advises to delete before it writes.
const DELETES_FIRST: &str = "--delete=before";

/// The note for a try whose sink was killed before it could report.
const SINK_IS_SILENT: &str = "The sink of a try left no figures: what it created, updated and deleted is not counted. What was scanned and what crossed \
     the network is counted by the source.";

/// How one end of a try ended.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Ending {
    /// The process's exit status, if known.
    pub exit: Option<i32>,
    /// The time at which it ended.
    pub at: Option<Timestamp>,
    /// What Kubernetes reports about the pod, if the process did not end by itself.
    pub fault: Option<Fault>,
    /// What the end reported.
    pub report: Option<Report>,
    /// The container's last output, if it is not a report.
    pub last_words: Option<String>,
}

impl Ending {
    /// Returns the ending of an end that never ran.
    pub fn of(fault: Fault) -> Self {
        Self { fault: Some(fault), ..Self::default() }
    }

    fn code(&self) -> Option<ExitCode> {
        self.exit.and_then(ExitCode::from_status)
    }

    /// Returns whether the process itself reported: a report that the agent writes for a killed process has no start
    /// time.
    fn has_told(&self) -> bool {
        self.report.as_ref().is_some_and(|report| !report.start_time.is_empty())
    }

    /// Returns whether the end succeeded: by its exit status if that is known, else by its report.
    pub(crate) fn succeeded(&self) -> bool {
        let says_so = |report: &Report| report.result == RunResult::Succeeded;
        match self.code() {
            Some(code) => code == ExitCode::Done,
            None => self.exit.is_none() && self.report.as_ref().is_some_and(says_so),
        }
    }

    /// Returns whether the exit status proves that the end was connected to its peer.
    pub fn met_peer(&self) -> bool {
        matches!(self.code(), Some(ExitCode::Done | ExitCode::Partial | ExitCode::PeerLost))
    }

    /// Returns whether nothing is known about the end, because it has not ended or not even started.
    fn is_silent(&self) -> bool {
        self.exit.is_none() && self.fault.is_none() && self.report.is_none()
    }

    /// Returns how much this ending explains. A lost peer is a consequence; whatever happened to that peer is the
    /// cause.
    fn weight(&self) -> u8 {
        match (self.code(), &self.fault) {
            _ if self.is_silent() => 0,
            (Some(ExitCode::Identity | ExitCode::Guard | ExitCode::Usage), _) => 5,
            (Some(ExitCode::Partial), _) => 4,
            (_, Some(_)) => 3,
            (Some(ExitCode::Done), _) => 0,
            (Some(ExitCode::PeerLost), _) => 1,
            (Some(ExitCode::Failed) | None, _) => 2,
        }
    }
}

/// The result of a try.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The report for the run's status; this module sets its `result`, `reason` and `message`.
    pub report: Report,
    /// Whether another try could succeed without a person's action.
    pub may_retry: bool,
    /// The exit status that represents the whole try.
    pub exit: ExitCode,
}

impl Outcome {
    /// Returns the outcome of a try that the operator ended.
    pub fn stopped(fault: Fault) -> Self {
        let report = Report {
            result: RunResult::Failed,
            reason: Some(fault.reason),
            message: fault.message,
            ..Report::default()
        };
        Self { report, may_retry: false, exit: ExitCode::Failed }
    }

    /// Returns the outcome of a run that a person canceled.
    pub fn canceled(fault: Fault) -> Self {
        let mut outcome = Self::stopped(fault);
        outcome.report.result = RunResult::Canceled;
        outcome
    }

    /// Adds the remedy to the message, if files could not be read or changed because the syncers of these namespaces
    /// are not root.
    #[must_use]
    pub fn without_root(mut self, namespaces: &[&str]) -> Self {
        if security::is_for_lack_of_root(&self.report) {
            self.report.message =
                format!("{} {}", sentence(&self.report.message), security::remedy(namespaces));
        }
        self
    }

    /// Returns the outcome of a try whose other end is an `endpoint`, and that was stopped though nobody here asked for
    /// it: a failure. Most likely the endpoint did; a pod that this cluster stops has a fault that says so, but for one
    /// whose node goes down at once.
    #[must_use]
    pub fn with_endpoint(mut self, endpoint: &RunFolder) -> Self {
        if self.report.result == RunResult::Canceled {
            self.report.result = RunResult::Failed;
            self.report.reason = Some(Reason::PeerLost);
            self.report.message = format!(
                "The {endpoint} stopped the run: its pod was restarted or moved, for example for another key, or its owner changed \
                 its demands or took this SyncJob's key out."
            );
        }
        self
    }

    /// Adds the key that `endpoint` has to show to the message, if it showed another one.
    #[must_use]
    pub fn with_key(mut self, endpoint: &RemoteEnd) -> Self {
        if self.report.reason == Some(Reason::IdentityRefused) {
            self.report.message = format!(
                "{} The spec expects the key {} of {endpoint}. If its owner says that it has another one now (status.publicKey of \
                 the SyncEndpoint), write that to endpoint.publicKey; the job then goes on.",
                sentence(&self.report.message),
                endpoint.public_key
            );
        }
        self
    }

    /// Returns whether the try ended because another syncer uses a volume, or too many wait at an endpoint.
    pub fn found_in_use(&self) -> bool {
        let is_full = self.report.reason == Some(Reason::QueueFull);
        self.may_retry && (is_full || self.volume_in_use().is_some())
    }

    /// Returns whether the try ended because the endpoint does not list the job's key yet.
    pub fn is_stranger(&self) -> bool {
        self.report.reason == Some(Reason::KeyNotAccepted)
    }

    /// Returns the end whose volume another syncer uses, if the try ended because of that.
    pub fn volume_in_use(&self) -> Option<Side> {
        match self.report.reason.as_ref()? {
            Reason::SourceBusy => Some(Side::Source),
            Reason::DestinationBusy => Some(Side::Sink),
            _ => None,
        }
    }

    /// Returns whether another run would end the same until a person acts: a check or the API server refused this one,
    /// or snapshots are damaged or missing. After the other reasons of [`Reason::is_final`] only this run is not tried
    /// again: the next one goes on with the snapshots of a source, and reads the Secret of an object store anew.
    pub fn needs_person(&self) -> bool {
        let refused = [Reason::ChildRefused, Reason::SnapshotsDamaged, Reason::SnapshotNotFound];
        matches!(self.exit, ExitCode::Guard | ExitCode::Identity | ExitCode::Usage)
            || self.report.reason.as_ref().is_some_and(|reason| refused.contains(reason))
    }

    /// Returns whether the other shards of the run cannot succeed after this outcome.
    pub fn breaks_others(&self) -> bool {
        !matches!(self.exit, ExitCode::Done | ExitCode::Partial)
    }

    /// Returns how much this shard's outcome explains the run's. Failures that only follow from another shard's explain
    /// least.
    fn weight(&self) -> u8 {
        match (self.exit, self.report.reason.as_ref()) {
            (ExitCode::Done, _) => 0,
            (ExitCode::Partial, _) => 1,
            (ExitCode::Identity | ExitCode::Guard | ExitCode::Usage, _) => 6,
            _ if self.report.result == RunResult::Canceled => 2,
            (_, Some(Reason::ShardLost)) => 3,
            (_, Some(Reason::PeerLost | Reason::SyncerFailed)) => 4,
            _ => 5,
        }
    }
}

/// Combines the outcomes of those of a run's `count` shards that have ended, each with its shard number.
pub fn of_shards(mut shards: Vec<(u32, Outcome)>, count: usize) -> Outcome {
    if count == 1 {
        return shards.pop().map_or_else(|| judge(&Ending::default(), &Ending::default()), |(_, it)| it);
    }
    // Among equally bad outcomes, the first shard's comes first.
    shards.sort_by_key(|(shard, outcome)| (std::cmp::Reverse(outcome.weight()), *shard));
    let reports: Vec<Report> = shards.iter().map(|(_, outcome)| outcome.report.clone()).collect();
    let mut report = Report::of_shards(&reports);
    let Some((shard, worst)) = shards.first() else { return judge(&Ending::default(), &Ending::default()) };
    let is_shared = match worst.exit {
        // The failed files in the report are those of all shards together.
        ExitCode::Partial => shards.iter().filter(|(_, it)| it.exit == ExitCode::Partial).count() > 1,
        _ => reports.len() == count && reports.iter().all(|other| other.reason == worst.report.reason),
    };
    if worst.exit != ExitCode::Done && !is_shared {
        report.message = format!("Shard {shard} of {count}: {}", report.message);
    }
    Outcome { report, may_retry: worst.may_retry, exit: worst.exit }
}

/// Judges a try by its two ends. The sink decides on success, because it alone knows what is durable; for a failed try,
/// the end that explains more decides.
pub fn judge(source: &Ending, sink: &Ending) -> Outcome {
    let refused = |end: &Ending| end.weight() == 5;
    if sink.succeeded() && !refused(source) {
        return succeeded(source, sink);
    }
    let mut outcome = if source.weight() > sink.weight() {
        failed(Side::Source, source, sink.report.as_ref())
    } else {
        failed(Side::Sink, sink, source.report.as_ref())
    };
    add_notes(&mut outcome.report, source);
    let did =
        |end: &Ending| end.report.as_ref().map(|report| report.work).filter(|work| *work != Work::default());
    if let Some(work) = did(sink) {
        outcome.report.work = work;
    } else if let Some(work) = did(source) {
        outcome.report.work = work;
        if !sink.has_told() {
            outcome.report.notes.push(SINK_IS_SILENT.into());
        }
    }
    outcome
}

/// Adds the notes of an end to the report of a try, each once.
fn add_notes(report: &mut Report, end: &Ending) {
    for note in end.report.iter().flat_map(|report| &report.notes) {
        if !report.notes.contains(note) {
            report.notes.push(note.clone());
        }
    }
}

fn succeeded(source: &Ending, sink: &Ending) -> Outcome {
    let mut report = sink.report.clone().or_else(|| source.report.clone()).unwrap_or_else(|| Report {
        message: "The run succeeded; its report was lost, so its counts and timings are not known.".into(),
        ..Report::default()
    });
    benchmark::join(&mut report, source.report.as_ref());
    add_notes(&mut report, source);
    report.result = RunResult::Succeeded;
    report.reason = None;
    Outcome { report, may_retry: false, exit: ExitCode::Done }
}

fn failed(side: Side, end: &Ending, other: Option<&Report>) -> Outcome {
    // The end failed, so that an exit status of 0 is not passed on.
    let code = end.code().filter(|code| *code != ExitCode::Done);
    let own = end.report.clone();
    let has_own = own.is_some();
    let mut report = own.or_else(|| other.cloned()).unwrap_or_default();
    report.result = match code {
        Some(ExitCode::Partial) => RunResult::PartiallyFailed,
        // A process that was told to stop does not know who did that.
        _ if report.result == RunResult::Canceled && end.fault.is_none() => RunResult::Canceled,
        _ => RunResult::Failed,
    };
    if let Some(fault) = &end.fault {
        report.reason = Some(fault.reason.clone());
        report.message = fault.message.clone();
    } else if !has_own {
        report.reason = None;
        report.message = no_report(side, end);
    }
    if report.reason == Some(Reason::OtherDestination) {
        report.message = format!("{} {REMEDY}", sentence(&report.message));
    }
    if report.reason == Some(Reason::OtherSource) {
        report.message = format!("{} {ACCEPT}", sentence(&report.message));
    }
    let repeats = report.reason.get_or_insert_with(|| default_reason(code)).is_final();
    report.message = report.message.replace(DELETES_FIRST, "spec.files.deleteTiming: Before");
    // Another try would add another snapshot.
    let has_snapshot = report.snapshot.as_ref().is_some_and(|snapshot| snapshot.made.is_some());
    Outcome {
        report,
        may_retry: code.is_none_or(ExitCode::may_retry) && !repeats && !has_snapshot,
        exit: code.unwrap_or(ExitCode::Failed),
    }
}

/// Returns the fault of a run that took too long; `obstacle` is a sentence about the cause, or empty.
pub fn timed_out(timeout: Duration, obstacle: &str) -> Fault {
    let limit = human::duration(timeout);
    Fault::new(
        Reason::TimedOut,
        format!(
            "The run did not end within {limit} (spec.limits.timeout).{obstacle} The next run goes on from the files that are \
             at the destination, and from the parts of large files that had arrived."
        ),
    )
}

fn no_report(side: Side, end: &Ending) -> String {
    let status = end.exit.map_or("an unknown status".to_string(), |exit| format!("status {exit}"));
    let words = end.last_words.as_deref().map(str::trim).filter(|words| !words.is_empty());
    match words {
        Some(words) => format!("The {side} ended with {status}: {words}"),
        None => format!("The {side} ended with {status} and left no report; see its pod's log."),
    }
}

/// Returns the reason for a report without one.
fn default_reason(code: Option<ExitCode>) -> Reason {
    match code {
        Some(ExitCode::Partial) => Reason::PartiallyFailed,
        Some(ExitCode::Guard) => Reason::GuardRefused,
        Some(ExitCode::PeerLost) => Reason::PeerLost,
        Some(ExitCode::Identity) => Reason::IdentityRefused,
        Some(ExitCode::Usage) => Reason::SyncerUsage,
        Some(ExitCode::Done | ExitCode::Failed) | None => Reason::SyncerFailed,
    }
}

#[cfg(test)]
mod tests;
