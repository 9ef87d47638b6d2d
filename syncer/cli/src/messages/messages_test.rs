//! Holds all messages against their rules: plain words, sizes with units, and the next step where one is promised.

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Parser as _;
use contract::{
    Action, Bottleneck, BusyAnswer, Cause, EntryKind, Failure, LinkKind, Phase, PlannedAction, Progress,
    Reason, Report, RunLink, RunResult, Timings, Work,
};
use trend::Reports;

use super::*;
use crate::{
    bar::{self, Moment},
    flags::{Command, Flags},
    summary,
};

/// Words that only look like names of fields.
const NAMES: [&str; 1] = ["kB"];

/// The reasons of the engine and the command line whose messages do not name the next step themselves.
const OF_COMMAND_LINE: [Reason; 35] = [
    Reason::AddressUnusable,
    Reason::BackupDirUnusable,
    Reason::Canceled,
    Reason::DeleteLimitExceeded,
    Reason::DestinationBusy,
    Reason::DestinationMissing,
    Reason::DestinationUnusable,
    Reason::DeviceUnreadable,
    Reason::HostKeyRefused,
    Reason::IdentityRefused,
    Reason::IdentityUnusable,
    Reason::InvalidPath,
    Reason::InvalidPattern,
    Reason::KeyNotAccepted,
    Reason::NoRemoteProgram,
    Reason::NotAdopted,
    Reason::NotAllowed,
    Reason::NotEnoughSpace,
    Reason::NothingIncluded,
    Reason::OtherDestination,
    Reason::OtherFile,
    Reason::OtherJobsDestination,
    Reason::OtherProtocol,
    Reason::PeerLost,
    Reason::ProtocolViolation,
    Reason::RemoteCopyFailed,
    Reason::RemoteCopyUnusable,
    Reason::RemoteEnded,
    Reason::RemoteShellFailed,
    Reason::RemoteShellMissing,
    Reason::RsyncPattern,
    Reason::SnapshotNotFound,
    Reason::SnapshotUnusable,
    Reason::SshFailed,
    Reason::TreeUnreadable,
];

/// How a message begins its next step, if it has no line for it.
const STEPS: [&str; 34] = [
    "add ",
    "allow",
    "ask ",
    "change ",
    "choose ",
    "copy ",
    "cut ",
    "describe ",
    "does ",
    "end ",
    "exclude ",
    "give ",
    "install ",
    "keep ",
    "leave ",
    "make ",
    "mount ",
    "name ",
    "put ",
    "raise ",
    "remove ",
    "rename ",
    "replace ",
    "run ",
    "see ",
    "set ",
    "start ",
    "sync ",
    "take ",
    "try ",
    "use ",
    "wait ",
    "write ",
    "-",
];

/// The enums whose messages say what to do, by their files below `syncer`.
const PROMISED: [&str; 7] = [
    "cli/src/config/config_error.rs",
    "cli/src/config/several_sources.rs",
    "cli/src/remote/place.rs",
    "cli/src/link_to_service.rs",
    "cli/src/keygen.rs",
    "cli/src/enroll.rs",
    "cli/src/users_service_keys.rs",
];

/// Returns what is wrong with a line for people.
fn fault(text: &str) -> Option<String> {
    let outside = outside_of_quotes(text);
    let is_internal = |word: &&str| {
        let rest = word.trim_start_matches(|c: char| c.is_ascii_lowercase());
        rest.len() < word.len() && rest.starts_with(|c: char| c.is_ascii_uppercase()) && !NAMES.contains(word)
    };
    let words = outside.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let digits = |word: &&str| word.len() > 4 && word.bytes().all(|byte| byte.is_ascii_digit());
    match () {
        () if text.contains("\\n") => Some("an escaped line break".into()),
        () if text.contains(":?}") => Some("the debug form of a value".into()),
        () if text.lines().any(|line| line.starts_with("hint: ") && line.ends_with('.')) => {
            Some("a hint that ends with a full stop".into())
        }
        () => words.clone().find(is_internal).or_else(|| words.clone().find(digits)).map(str::to_owned),
    }
}

/// Leaves out what is in backquotes or braces: names of fields and values.
fn outside_of_quotes(text: &str) -> String {
    let mut depth = 0_i32;
    let unquoted: String = text.split('`').step_by(2).collect();
    let kept = unquoted.chars().filter(|c| {
        depth += i32::from(*c == '{') - i32::from(*c == '}');
        depth == 0 && *c != '}'
    });
    kept.collect()
}

/// A message of an error, as its type has it.
struct ErrorMessage {
    file: PathBuf,
    text: String,
    /// Whether the message goes on with that of another error.
    goes_on: bool,
}

/// Returns the messages of all errors below `syncer`.
fn error_messages() -> Vec<ErrorMessage> {
    let package = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    let root = Path::new(&package).parent().unwrap();
    let mut all = Vec::new();
    for folder in ["contract/src", "core/src", "trend/src", "src", "cli/src"] {
        add_messages(root, &root.join(folder), &mut all);
    }
    all
}

fn add_messages(root: &Path, folder: &Path, all: &mut Vec<ErrorMessage>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            add_messages(root, &path, all);
            continue;
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let file = path.strip_prefix(root).unwrap().to_path_buf();
        let mut parts = code.split("#[error(");
        let _ = parts.next();
        all.extend(parts.filter_map(|part| message_of(&file, part)));
    }
}

/// Reads a message up to the next one; `None` if it is that of another error.
fn message_of(file: &Path, part: &str) -> Option<ErrorMessage> {
    let (before, rest) = part.split_once('"')?;
    if before.contains("transparent") || before.contains(']') {
        return None;
    }
    let mut text = String::new();
    let mut chars = rest.char_indices();
    let end = loop {
        match chars.next()? {
            (at, '"') => break at,
            (_, '\\') => match chars.next()?.1 {
                'n' => text.push('\n'),
                '\n' => {
                    while chars.clone().next().is_some_and(|(_, c)| c == ' ') {
                        chars.next();
                    }
                }
                c => text.push(c),
            },
            (_, c) => text.push(c),
        }
    };
    let variant = &rest[end..];
    let goes_on =
        text.ends_with('}') || ["source: ", "#[source]", "#[from]"].iter().any(|of| variant.contains(of));
    Some(ErrorMessage { file: file.into(), text, goes_on })
}

#[test]
fn errors_have_plain_words_sizes_with_units_and_the_next_step_where_it_is_promised() {
    let all = error_messages();
    assert!(all.len() > 200, "{} messages were found", all.len());
    let mut faults = Vec::new();
    for ErrorMessage { file, text, goes_on } in &all {
        let mut say = |what: &str| faults.push(format!("{}: {what}: {text}", file.display()));
        if let Some(fault) = fault(text) {
            say(&fault);
        }
        // Of frames and formats, the exact numbers help.
        if text.contains("} bytes") && !file.starts_with("core") {
            say("bytes without a unit");
        }
        let names_step = has_hint(text)
            || STEPS.iter().any(|step| {
                text.contains(&format!(": {step}"))
                    || text.contains(&format!(", {step}"))
                    || text.contains(&format!("so {step}"))
            });
        if PROMISED.iter().any(|promised| file == Path::new(promised)) && !goes_on && !names_step {
            say("no next step");
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Returns a report of each way in which a run can end, for each reason.
fn reports() -> Vec<Report> {
    let work = Work {
        files_scanned: 1_234_567,
        files_created: 12_345,
        files_updated: 23_456,
        files_deleted: 34_567,
        bytes_total: 20_900_000_000,
        bytes_changed: 41_900_000,
        bytes_on_wire: 21_300_000,
        bytes_reused: 123_456_789,
        files_skipped: 12_345,
        ..Work::default()
    };
    let timings = Timings { scan: 12_345, transfer: 678_901, total: 691_246, ..Timings::default() };
    let all = Reason::ALL.iter().flat_map(|reason| {
        let results =
            [RunResult::Failed, RunResult::PartiallyFailed, RunResult::Canceled, RunResult::Succeeded];
        results.into_iter().flat_map(move |result| {
            ["", "what happened\nhint: what to do"].map(|message| Report {
                result,
                reason: Some(reason.clone()),
                message: message.into(),
                work,
                timings,
                ..Report::default()
            })
        })
    });
    let mut all: Vec<_> = all.collect();
    for cause in [Cause::SourceDisk, Cause::SourceCpu, Cause::SinkCpu, Cause::SinkDisk, Cause::BandwidthLimit]
    {
        let message = format!("71 % of 691 s waited for the {}", cause.words());
        let bottleneck = Some(Bottleneck { cause, share: 71, message });
        let link = Some(RunLink { kind: LinkKind::Udp, rtt_us: 12_345 });
        let failures = vec![Failure { path: "a\nb".into(), operation: "read".into(), error: "no".into() }];
        all.push(Report { bottleneck, link, failures, work, timings, ..Report::default() });
    }
    all.iter_mut().for_each(Report::fill_rates);
    all
}

/// Returns the table of `volferry report`.
fn table(runs: Vec<Report>) -> String {
    let flags = Flags::try_parse_from(["volferry", "report", "file"]).unwrap();
    let Command::Report(report) = flags.command else { panic!("another command") };
    let mut table = Vec::new();
    Reports { runs, ..Reports::default() }.print(&report.into_inner().form, &mut table).unwrap();
    String::from_utf8(table).unwrap()
}

/// Returns all lines that are rendered for people.
fn rendered() -> Vec<String> {
    let reports = reports();
    let mut all: Vec<String> = reports.iter().map(summary::summary).collect();
    all.push(table(reports));
    for phase in Phase::ALL {
        let progress = Progress {
            phase,
            files: 12_345,
            files_total: 1_234_567,
            bytes: 41_900_000,
            bytes_total: 20_900_000_000,
            rate: 12_345_678,
        };
        let elapsed = std::time::Duration::from_secs(12_345);
        all.push(bar::line(
            &Moment { progress, listens: false, elapsed, steady_rate: 12_345_678 },
            200,
            false,
        ));
    }
    let actions =
        [Action::Create, Action::Update, Action::Replace, Action::SetMetadata, Action::Delete, Action::Move];
    let kinds = [EntryKind::File, EntryKind::Folder, EntryKind::Link, EntryKind::Fifo, EntryKind::HardLink];
    for (action, kind) in actions.into_iter().flat_map(|action| kinds.map(|kind| (action, kind))) {
        let (path, from) = ("a".to_owned(), (action == Action::Move).then(|| "b".into()));
        let planned =
            PlannedAction { action, kind, path, from, target: None, bytes: 41_900_000, differs: Vec::new() };
        all.push(planned.to_string());
    }
    let (peer, since) = ("me@laptop".into(), "2026-11-25T03:00:00Z".into());
    all.push(BusyAnswer { peer, since, number: 2 }.to_string());
    all
}

#[test]
fn what_is_rendered_has_plain_words_and_sizes_with_units() {
    let faults: Vec<_> = rendered().into_iter().filter_map(|text| Some((fault(&text)?, text))).collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn each_failure_of_the_command_line_has_one_next_step_on_a_line_of_its_own() {
    for report in reports().iter().filter(|report| report.result == RunResult::Failed) {
        let said = summary::trouble(report);
        let hints = said.lines().filter(|line| line.starts_with("hint: ")).count();
        let expected =
            usize::from(!report.message.is_empty() || report.reason.as_ref().unwrap().hint().is_some());
        assert_eq!(hints, expected, "{said}");
    }
    for reason in OF_COMMAND_LINE {
        assert!(reason.hint().is_some(), "{reason}");
    }
}
