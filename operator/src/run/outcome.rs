//! Judges how a try of a run ended, from how its two ends ended. Pure.

use std::time::Duration;

use contract::{ExitCode, Reason, Report, RunResult, Side, Work};
use jiff::Timestamp;

use super::benchmark;
use crate::{
    ends::{destination_identity::REMEDY, source_identity::ACCEPT},
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
    /// or snapshots are damaged or missing.
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
    let mut outcome = match source.weight() > sink.weight() {
        true => failed(Side::Source, source, sink.report.as_ref()),
        false => failed(Side::Sink, sink, source.report.as_ref()),
    };
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

fn succeeded(source: &Ending, sink: &Ending) -> Outcome {
    let mut report = sink.report.clone().or_else(|| source.report.clone()).unwrap_or_else(|| Report {
        message: "The run succeeded; its report was lost, so its counts and timings are not known.".into(),
        ..Report::default()
    });
    benchmark::join(&mut report, source.report.as_ref());
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
mod tests {
    use contract::{SnapshotEntry, SnapshotReport};

    use super::*;

    fn report(result: RunResult, reason: Option<&str>) -> Option<Report> {
        Some(Report { result, reason: reason.map(Into::into), message: "m".into(), ..Report::default() })
    }

    fn end(exit: i32, report: Option<Report>) -> Ending {
        Ending { exit: Some(exit), report, ..Ending::default() }
    }

    fn reason_of(outcome: &Outcome) -> &str {
        outcome.report.reason.as_deref().unwrap_or("none")
    }

    #[test]
    fn a_sink_that_committed_makes_the_run_a_success_whatever_became_of_the_source() {
        let sink = end(0, report(RunResult::Succeeded, None));
        for source in [end(0, None), end(5, None), Ending::of(Fault::new("Evicted", "e")), Ending::default()]
        {
            let outcome = judge(&source, &sink);
            assert_eq!((outcome.report.result, outcome.may_retry), (RunResult::Succeeded, false));
            assert_eq!(outcome.exit, ExitCode::Done);
        }
    }

    #[test]
    fn a_run_that_was_stopped_on_request_says_so() {
        let stopped = end(1, report(RunResult::Canceled, Some("Stopped")));
        assert_eq!(judge(&stopped, &stopped).report.result, RunResult::Canceled);
    }

    #[test]
    fn a_success_without_a_report_says_so() {
        let outcome = judge(&end(0, None), &end(0, None));
        assert_eq!(outcome.report.result, RunResult::Succeeded);
        assert!(outcome.report.message.contains("report was lost"));
    }

    #[test]
    fn a_source_alone_cannot_declare_success() {
        let source = end(0, report(RunResult::Succeeded, None));
        let outcome = judge(&source, &end(1, report(RunResult::Failed, Some("NoSpace"))));
        assert_eq!((outcome.report.result, reason_of(&outcome)), (RunResult::Failed, "NoSpace"));
    }

    #[test]
    fn an_end_that_failed_is_believed_before_one_that_has_not_begun() {
        for (exit, reason) in [(1, "NotReadable"), (5, "PeerLost")] {
            let failed = end(exit, report(RunResult::Failed, Some(reason)));
            for outcome in [judge(&failed, &Ending::default()), judge(&Ending::default(), &failed)] {
                assert_eq!((reason_of(&outcome), &*outcome.report.message), (reason, "m"));
            }
        }
    }

    #[test]
    fn refusals_are_never_retried() {
        for (exit, reason) in [(4, "GuardRefused"), (6, "IdentityRefused"), (2, "SyncerUsage")] {
            for (source, sink) in [(exit, 5), (5, exit), (exit, exit)] {
                let outcome = judge(&end(source, None), &end(sink, None));
                assert_eq!((reason_of(&outcome), outcome.may_retry), (reason, false), "{source} {sink}");
            }
        }
    }

    #[test]
    fn a_pod_that_a_person_deletes_cancels_nothing() {
        let stopped = report(RunResult::Canceled, Some("Stopped"));
        let deleted =
            Ending { exit: Some(1), report: stopped, ..Ending::of(Fault::new(Reason::PodDeleted, "d")) };
        let outcome = judge(&end(5, report(RunResult::Failed, Some("PeerLost"))), &deleted);
        assert_eq!((outcome.report.result, reason_of(&outcome)), (RunResult::Failed, "PodDeleted"));
        assert!(outcome.may_retry);
        // One that is deleted by force is gone at once, and its Job says no more than that; its peer was stopped by it.
        let stopped = || report(RunResult::Canceled, Some("Stopped"));
        let lost = Ending { report: stopped(), ..Ending::of(Fault::new(Reason::PodLost, "l")) };
        for peer in
            [end(1, stopped()), end(5, report(RunResult::Failed, Some("PeerLost"))), Ending::default()]
        {
            let outcome = judge(&peer, &lost);
            assert_eq!((outcome.report.result, reason_of(&outcome)), (RunResult::Failed, "PodLost"));
            assert!(outcome.may_retry);
        }
    }

    #[test]
    fn advice_names_fields_and_no_flags() {
        let mut full = end(4, report(RunResult::Failed, Some("NotEnoughSpace")));
        full.report.as_mut().unwrap().message =
            "make room, or have deletes make it with --delete=before".into();
        let said = judge(&full, &full).report.message;
        assert_eq!(said, "make room, or have deletes make it with spec.files.deleteTiming: Before");
    }

    #[test]
    fn a_run_that_took_its_snapshot_does_not_take_another_one() {
        let after = |reason: &str, made: Option<SnapshotEntry>| {
            let mut kept = end(3, report(RunResult::PartiallyFailed, Some(reason)));
            let snapshot = SnapshotReport { made, ..SnapshotReport::default() };
            kept.report.as_mut().unwrap().snapshot = Some(snapshot);
            judge(&kept, &kept).may_retry
        };
        for reason in ["RetentionFailed", "SnapshotInMotion", "SnapshotNotWhole"] {
            assert!(!after(reason, Some(SnapshotEntry::default())), "{reason}");
        }
        assert!(after("SnapshotFailed", None));
    }

    #[test]
    fn a_snapshot_that_is_not_there_is_not_looked_for_again() {
        let missing = end(1, report(RunResult::Failed, Some("SnapshotNotFound")));
        let outcome = judge(&missing, &missing);
        assert_eq!((outcome.may_retry, outcome.needs_person()), (false, true));
        for reason in ["HistoryFailed", "HistoryNotWhole"] {
            let partial = end(3, report(RunResult::PartiallyFailed, Some(reason)));
            let outcome = judge(&partial, &partial);
            assert_eq!((outcome.may_retry, outcome.needs_person()), (false, false), "{reason}");
        }
    }

    #[test]
    fn a_refusal_of_another_destination_says_how_to_accept_it() {
        let refused = end(4, report(RunResult::Failed, Some("OtherDestination")));
        let outcome = judge(&refused, &refused);
        assert_eq!((reason_of(&outcome), outcome.may_retry), ("OtherDestination", false));
        assert!(outcome.report.message.starts_with("m. The expected id"), "{}", outcome.report.message);
        assert!(outcome.report.message.contains("volferry.dev/accept-volume"), "{}", outcome.report.message);
    }

    #[test]
    fn a_lost_peer_is_explained_by_what_became_of_the_peer() {
        let lost = end(5, report(RunResult::Failed, Some("PeerLost")));
        let killed = Ending { exit: Some(137), ..Ending::of(Fault::new("OOMKilled", "raise the limit")) };
        for outcome in [judge(&lost, &killed), judge(&killed, &lost)] {
            assert_eq!((reason_of(&outcome), outcome.may_retry), ("OOMKilled", true));
            assert_eq!(outcome.report.message, "raise the limit");
        }
        let full = end(1, report(RunResult::Failed, Some("NoSpace")));
        assert_eq!(reason_of(&judge(&lost, &full)), "NoSpace");
        assert_eq!(reason_of(&judge(&full, &lost)), "NoSpace");
    }

    #[test]
    fn what_a_killed_end_no_longer_tells_of_its_work_the_other_does() {
        let work = Work { files_created: 7, ..Work::default() };
        let lost = report(RunResult::Failed, Some("PeerLost")).map(|report| Report { work, ..report });
        let killed = report(RunResult::Failed, Some("SyncerKilled"));
        let killed =
            Ending { report: killed, ..Ending::of(Fault::new(Reason::OutOfMemory, "raise the limit")) };
        let outcome = judge(&killed, &end(5, lost));
        assert_eq!((reason_of(&outcome), outcome.report.work), ("OutOfMemory", work));
        assert!(outcome.report.notes.is_empty(), "the sink told all");
    }

    #[test]
    fn of_a_sink_that_was_killed_the_source_tells_what_it_knows_and_the_rest_is_said_to_be_unknown() {
        let work = Work { files_scanned: 7, bytes_on_wire: 9, ..Work::default() };
        let lost = report(RunResult::Failed, Some("PeerLost")).map(|report| Report { work, ..report });
        let killed = Ending::of(Fault::new(Reason::OutOfMemory, "raise the limit"));
        let outcome = judge(&end(5, lost.clone()), &killed);
        assert_eq!((reason_of(&outcome), outcome.report.work), ("OutOfMemory", work));
        assert_eq!(outcome.report.notes, [SINK_IS_SILENT]);
        let did = Work { files_created: 3, ..Work::default() };
        let sink = report(RunResult::Failed, Some("PeerLost")).map(|report| Report { work: did, ..report });
        let outcome = judge(&end(1, lost), &end(5, sink));
        assert_eq!((outcome.report.work, outcome.report.notes.len()), (did, 0), "the sink knows best");
    }

    #[test]
    fn a_sink_that_failed_before_it_did_anything_has_left_its_figures() {
        let work = Work { files_scanned: 7, ..Work::default() };
        let source = report(RunResult::Failed, Some("Refused")).map(|report| Report { work, ..report });
        let busy = report(RunResult::Failed, Some("DestinationBusy"));
        let busy = busy.map(|report| Report { start_time: "2026-01-01T00:00:00Z".into(), ..report });
        let outcome = judge(&end(5, source), &end(1, busy));
        assert_eq!((reason_of(&outcome), outcome.report.work), ("DestinationBusy", work));
        assert!(outcome.report.notes.is_empty(), "{:?}", outcome.report.notes);
    }

    #[test]
    fn some_failed_files_make_the_run_partial_and_worth_another_try() {
        let outcome = judge(&end(3, None), &end(3, report(RunResult::PartiallyFailed, Some("ReadFailed"))));
        assert_eq!((outcome.report.result, outcome.may_retry), (RunResult::PartiallyFailed, true));
        assert_eq!(reason_of(&outcome), "ReadFailed");
    }

    fn shard(result: RunResult, reason: Option<&str>, exit: ExitCode) -> Outcome {
        let report = report(result, reason).unwrap();
        Outcome { report, may_retry: exit.may_retry() && exit != ExitCode::Done, exit }
    }

    fn failed_shard(reason: &str, exit: ExitCode) -> Outcome {
        shard(RunResult::Failed, Some(reason), exit)
    }

    #[test]
    fn of_shards_that_failed_the_one_that_explains_most_is_believed() {
        let lost = failed_shard("ShardLost", ExitCode::PeerLost);
        let peer = failed_shard("PeerLost", ExitCode::PeerLost);
        let full = failed_shard("NoSpace", ExitCode::Failed);
        let guard = failed_shard("SourceEmpty", ExitCode::Guard);
        let cases = [
            (vec![&lost, &peer, &full], "NoSpace", true),
            (vec![&lost, &lost, &peer], "PeerLost", true),
            (vec![&full, &guard, &lost], "SourceEmpty", false),
            (vec![&lost, &lost], "ShardLost", true),
        ];
        for (shards, reason, may_retry) in cases {
            let count = shards.len();
            let outcome = of_shards((0..).zip(shards.into_iter().cloned()).collect(), count);
            assert_eq!((reason_of(&outcome), outcome.may_retry), (reason, may_retry));
        }
    }

    #[test]
    fn one_partial_shard_makes_the_run_partial() {
        let done = shard(RunResult::Succeeded, None, ExitCode::Done);
        let partial = shard(RunResult::PartiallyFailed, Some("FilesFailed"), ExitCode::Partial);
        let outcome = of_shards(vec![(0, done), (1, partial)], 2);
        assert_eq!((outcome.report.result, outcome.exit), (RunResult::PartiallyFailed, ExitCode::Partial));
        assert!(outcome.may_retry && outcome.report.message.starts_with("Shard 1 of 2: "));
    }

    #[test]
    fn failed_files_of_several_shards_are_counted_together_and_not_put_on_one_shard() {
        let done = shard(RunResult::Succeeded, None, ExitCode::Done);
        let mut partial = shard(RunResult::PartiallyFailed, Some("FilesFailed"), ExitCode::Partial);
        partial.report.work.files_failed = 1;
        let said = |shards| of_shards(shards, 3).report.message;
        let one = said(vec![(0, done.clone()), (1, done.clone()), (2, partial.clone())]);
        assert_eq!(one, "Shard 2 of 3: 1 file failed");
        assert_eq!(said(vec![(0, done), (1, partial.clone()), (2, partial)]), "2 files failed");
    }

    #[test]
    fn what_all_shards_say_is_said_once() {
        let guard = failed_shard("SourceEmpty", ExitCode::Guard);
        let outcome = of_shards(vec![(0, guard.clone()), (1, guard)], 2);
        assert_eq!(outcome.report.message, "m");
    }

    #[test]
    fn last_words_stand_in_for_a_report() {
        let sink = Ending { last_words: Some("panicked at x\n".into()), ..end(134, None) };
        let outcome = judge(&end(5, None), &sink);
        assert_eq!(outcome.report.message, "The sink ended with status 134: panicked at x");
        assert!(outcome.may_retry);
    }
}
