//! Formats a report as a few lines for people.

use std::time::Duration;

use contract::{
    Failure, HistoryReport, Reason, Report, RunResult, SnapshotReport, Timings, Work,
    human::{bytes, count, counted, measured},
};

use crate::messages;

/// Returns the changes of a run, its times and its bottleneck, then the work that was left undone and the failures. A
/// run that failed has only the latter.
pub(super) fn summary(report: &Report) -> String {
    match report.result {
        RunResult::Succeeded | RunResult::PartiallyFailed => outcome(report) + &trouble(report),
        RunResult::Failed | RunResult::Canceled => trouble(report),
    }
}

/// Returns only the failures and the next step; empty for a run that succeeded.
pub(super) fn trouble(report: &Report) -> String {
    let mut text = String::new();
    match report.result {
        RunResult::Succeeded => return text,
        // Its message counts the failed files, and the deletes that they kept back.
        RunResult::PartiallyFailed if !report.message.is_empty() => add(&mut text, "error", &report.message),
        RunResult::PartiallyFailed if report.work.files_failed == 0 => {}
        RunResult::PartiallyFailed => {
            add(&mut text, "error", &format!("{} failed", counted(report.work.files_failed, "file")));
        }
        RunResult::Failed => add(&mut text, "error", what_happened(report)),
        RunResult::Canceled => add(&mut text, "canceled", what_happened(report)),
    }
    for failure in report.failures.iter().filter(|failure| !names(&report.message, failure)) {
        add(&mut text, &format!("  {} {}", failure.operation, failure.path), &failure.error);
    }
    let unnamed = report.work.files_failed.saturating_sub(report.failures.len() as u64);
    if unnamed > 0 && !report.failures.is_empty() {
        text.push_str(&format!("  and {} more\n", count(unnamed)));
    }
    let hint = report.reason.as_ref().and_then(Reason::hint).or_else(|| hint_of_failures(report));
    if let Some(hint) = hint.filter(|_| !messages::has_hint(&report.message)) {
        add(&mut text, "hint", hint);
    }
    text
}

/// Returns whether a message has all of a failure.
fn names(message: &str, Failure { path, operation, error }: &Failure) -> bool {
    message.contains(&format!("{path}: {operation}: {error}"))
}

/// Returns the option that helps if a folder is in the place of another entry.
fn hint_of_failures(report: &Report) -> Option<&'static str> {
    let is_in_the_way = |failure: &Failure| failure.operation == "make way";
    report
        .failures
        .iter()
        .any(is_in_the_way)
        .then_some("a folder gives way only with --delete, and only if --exclude keeps nothing in it")
}

fn outcome(report: &Report) -> String {
    let dry = if report.dry_run { "Dry run, nothing was changed: " } else { "" };
    let mut text = format!("{dry}{}\n{}\n", changes(&report.work), time(report));
    report.link.iter().for_each(|link| add(&mut text, "link", &link.to_string()));
    report.bottleneck.iter().for_each(|it| add(&mut text, "bottleneck", &it.message));
    report.snapshot.iter().filter_map(snapshot).for_each(|line| add(&mut text, "snapshot", &line));
    report.history.iter().for_each(|copied| add(&mut text, "history", &history(copied)));
    report.notes.iter().for_each(|note| add(&mut text, "note", note));
    text
}

/// Says which snapshot was taken, and how many have gone for it.
fn snapshot(of: &SnapshotReport) -> Option<String> {
    let taken = format!("{} taken, {} of this job", of.made.as_ref()?.id, counted(of.count, "snapshot"));
    let dropped = format!("; {} dropped, {} freed", count(of.dropped_count), bytes(of.freed_bytes));
    Some(if of.dropped_count > 0 { taken + &dropped } else { taken })
}

/// Says which snapshots of the source have travelled along.
fn history(copied: &HistoryReport) -> String {
    let also = [
        (copied.present, "there already"),
        (copied.healed, "with damaged objects that were replaced"),
        (copied.forgotten, "forgotten there, not brought back"),
        (copied.dropped, "dropped by the rules"),
    ];
    let also = also.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("; {} {what}", count(*n)));
    let new = counted(copied.copied, "snapshot");
    format!("{new} copied, {}{}", bytes(copied.bytes), also.collect::<String>())
}

fn add(text: &mut String, what: &str, message: &str) {
    text.push_str(&messages::lines(what, message));
}

/// Returns the message, or what the reason means if there is none.
fn what_happened(report: &Report) -> &str {
    let meaning = report.reason.as_ref().map_or("", Reason::meaning);
    let known = [&*report.message, meaning].into_iter().find(|words| !words.is_empty());
    known.unwrap_or("the run did not get to its end")
}

fn changes(work: &Work) -> String {
    let scanned = if work.files_scanned == 1 {
        "1 entry".into()
    } else {
        format!("{} entries", count(work.files_scanned))
    };
    let parts: Vec<String> =
        [(work.files_created, "created"), (work.files_updated, "updated"), (work.files_deleted, "deleted")]
            .into_iter()
            .filter(|(n, _)| *n > 0)
            .map(|(n, done)| format!("{} {done}", count(n)))
            .collect();
    let skipped = match work.files_skipped {
        0 => String::new(),
        sockets => format!("; {} skipped", counted(sockets, "socket")),
    };
    if parts.is_empty() {
        let nothing = if work.files_failed + work.deletes_kept_back == 0 {
            "Nothing to change"
        } else {
            "Nothing changed"
        };
        return format!("{nothing} in {scanned}, {}{skipped}", bytes(work.bytes_total));
    }
    format!("{} ({scanned} at the source{skipped}); {}", parts.join(", "), moved(work))
}

fn moved(work: &Work) -> String {
    let mut moved = format!("{} changed", bytes(work.bytes_changed));
    for (n, how) in [(work.bytes_on_wire, "on the wire"), (work.bytes_reused, "reused")] {
        if n > 0 {
            moved += &format!(", {} {how}", bytes(n));
        }
    }
    moved
}

fn time(report: &Report) -> String {
    let ms = Duration::from_millis;
    let mut time = format!("Took {}", measured(ms(report.timings.total)));
    if report.work.bytes_changed > 0 && !report.dry_run {
        time += &format!(", {}/s", bytes(report.rates.bytes_per_second as u64));
    }
    let phases: Vec<String> = phases(&report.timings)
        .into_iter()
        .filter(|(_, took)| *took > 0)
        .map(|(phase, took)| format!("{phase} {}", measured(ms(took))))
        .collect();
    match phases.as_slice() {
        [] => time,
        phases => format!("{time}: {}", phases.join(", ")),
    }
}

fn phases(timings: &Timings) -> [(&'static str, u64); 10] {
    [
        ("queue", timings.queue),
        ("pod start", timings.pod_start),
        ("connect", timings.connect),
        ("scan", timings.scan),
        ("plan", timings.plan),
        ("delta", timings.delta),
        ("transfer", timings.transfer),
        ("apply", timings.apply),
        ("commit", timings.commit),
        ("snapshot", timings.snapshot),
    ]
}

#[cfg(test)]
mod tests {
    use contract::{Bottleneck, Cause, Failure, LinkKind, RunLink, SnapshotEntry};

    use super::*;

    fn report() -> Report {
        let mut report = Report {
            timings: Timings { connect: 3, scan: 17, transfer: 120, total: 140, ..Timings::default() },
            work: Work {
                files_scanned: 1008,
                files_created: 1000,
                files_deleted: 12,
                bytes_total: 20_900_000,
                bytes_changed: 20_900_000,
                bytes_on_wire: 21_300_000,
                ..Work::default()
            },
            ..Report::default()
        };
        report.fill_rates();
        report
    }

    #[test]
    fn a_good_run_is_two_lines() {
        assert_eq!(
            summary(&report()),
            "1,000 created, 12 deleted (1,008 entries at the source); 20.9 MB changed, 21.3 MB on the wire\n\
             Took 140 ms, 149 MB/s: connect 3 ms, scan 17 ms, transfer 120 ms\n"
        );
        assert_eq!(trouble(&report()), "");
    }

    #[test]
    fn snapshots_that_travelled_along_are_a_line() {
        let history = HistoryReport { copied: 1, present: 1200, dropped: 2, ..HistoryReport::default() };
        let told = summary(&Report { history: Some(history), ..report() });
        let line = "history: 1 snapshot copied, 0 B; 1,200 there already; 2 dropped by the rules\n";
        assert!(told.ends_with(line), "{told}");
    }

    #[test]
    fn a_snapshot_and_what_has_gone_for_it_are_a_line() {
        let made = SnapshotEntry { id: "6851d1f036b62b32".into(), ..SnapshotEntry::default() };
        let mut taken = SnapshotReport { made: Some(made), count: 3, ..SnapshotReport::default() };
        let line = |of: &SnapshotReport| {
            let told = summary(&Report { snapshot: Some(of.clone()), ..report() });
            told.lines().last().unwrap().to_owned()
        };
        assert_eq!(line(&taken), "snapshot: 6851d1f036b62b32 taken, 3 snapshots of this job");
        taken.dropped_count = 2;
        assert!(line(&taken).ends_with("; 2 dropped, 0 B freed"));
    }

    #[test]
    fn a_run_that_took_long_enough_says_what_it_waited_for() {
        let message = String::from("71 % of 140 ms waited for the destination's disk");
        let bottleneck = Some(Bottleneck { cause: Cause::SinkDisk, share: 71, message });
        let mut report = Report { bottleneck, ..report() };
        let last = |report: &Report| summary(report).lines().last().unwrap().to_owned();
        assert_eq!(last(&report), "bottleneck: 71 % of 140 ms waited for the destination's disk");
        report.bottleneck = None;
        assert!(last(&report).starts_with("Took 140 ms"));
    }

    #[test]
    fn a_run_over_a_link_names_it_with_its_round_trip() {
        let link = Some(RunLink { kind: LinkKind::Udp, rtt_us: 12_000 });
        let summary = summary(&Report { link, ..report() });
        assert_eq!(summary.lines().last(), Some("link: quic/udp 12 ms"));
    }

    #[test]
    fn a_dry_run_says_that_nothing_was_changed() {
        let summary = summary(&Report { dry_run: true, ..report() });
        assert!(summary.starts_with("Dry run, nothing was changed: 1,000 created"), "{summary}");
        assert!(!summary.contains("/s"), "nothing was moved: {summary}");
    }

    #[test]
    fn an_unchanged_tree_says_so() {
        let work = Work { files_scanned: 1, bytes_total: 5, ..Work::default() };
        let report =
            Report { work, timings: Timings { total: 8, ..Timings::default() }, ..Report::default() };
        assert_eq!(summary(&report), "Nothing to change in 1 entry, 5 B\nTook 8 ms\n");
    }

    #[test]
    fn sockets_that_were_skipped_are_counted() {
        let with = |work| summary(&Report { work, ..report() });
        let changed = with(Work { files_skipped: 2, ..report().work });
        assert!(changed.contains("(1,008 entries at the source; 2 sockets skipped)"), "{changed}");
        let unchanged = with(Work { files_scanned: 3, files_skipped: 1, ..Work::default() });
        assert!(
            unchanged.starts_with("Nothing to change in 3 entries, 0 B; 1 socket skipped\n"),
            "{unchanged}"
        );
    }

    #[test]
    fn a_run_whose_only_changes_failed_does_not_say_that_there_was_nothing_to_do() {
        let work = Work { files_scanned: 3, files_failed: 2, ..Work::default() };
        let report = Report { result: RunResult::PartiallyFailed, work, ..Report::default() };
        assert_eq!(summary(&report), "Nothing changed in 3 entries, 0 B\nTook 0 ms\nerror: 2 files failed\n");
    }

    #[test]
    fn notes_follow_and_failures_are_named_with_what_was_done_and_why() {
        let mut report = report();
        report.result = RunResult::PartiallyFailed;
        report.notes = vec!["the owner of 3 files was not kept".into()];
        report.work.files_failed = 12;
        report.failures = vec![Failure {
            path: "a/b\x1b[2J".into(),
            operation: "read".into(),
            error: "Permission denied (os error 13)".into(),
        }];
        let summary = summary(&report);
        let tail: Vec<&str> = summary.lines().skip(2).collect();
        assert_eq!(
            tail,
            [
                "note: the owner of 3 files was not kept",
                "error: 12 files failed",
                "  read a/b\\u{1b}[2J: Permission denied (os error 13)",
                "  and 11 more",
            ]
        );
        assert!(summary.ends_with(&trouble(&report)));
    }

    #[test]
    fn a_folder_in_the_way_gets_a_hint_to_the_flag_that_removes_it() {
        let mut report = Report { result: RunResult::PartiallyFailed, ..report() };
        let error = "a folder is there".into();
        report.failures = vec![Failure { path: "x".into(), operation: "make way".into(), error }];
        assert!(trouble(&report).ends_with("with --delete, and only if --exclude keeps nothing in it\n"));
    }

    #[test]
    fn that_files_failed_is_said_once() {
        let message = "1 delete kept back because 1 file failed, first a: read: Permission denied";
        let mut report = Report { result: RunResult::PartiallyFailed, message: message.into(), ..report() };
        report.work.files_failed = 1;
        let failure = |path: &str| {
            let (operation, error) = ("read".into(), "Permission denied".into());
            Failure { path: path.into(), operation, error }
        };
        report.failures = vec![failure("a")];
        assert_eq!(trouble(&report), format!("error: {message}\n"));
        report.failures.push(failure("b"));
        assert_eq!(trouble(&report), format!("error: {message}\n  read b: Permission denied\n"));
    }

    #[test]
    fn a_run_that_failed_has_its_message_or_else_its_reason() {
        let mut report = Report {
            result: RunResult::Failed,
            reason: Some("ShardLost".into()),
            message: "no answer from h:1 for 10 s".into(),
            ..report()
        };
        assert_eq!(summary(&report), "error: no answer from h:1 for 10 s\n");
        report.message.clear();
        assert_eq!(summary(&report), "error: Another shard of the run ended early, so this one stopped.\n");
        report.result = RunResult::Canceled;
        report.reason = None;
        assert_eq!(summary(&report), "canceled: the run did not get to its end\n");
    }
}
