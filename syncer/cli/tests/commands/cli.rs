//! The program `volferry` as a script sees it, before an engine begins to work: its output and its exit codes.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Output},
};

use contract::{ExitCode, Identity, Report, RunResult, Side};
use tempfile::TempDir;

#[test]
fn keygen_writes_a_pair_that_only_its_owner_reads() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("new/keys");
    let run = volferry(["keygen", "--out", text(&out)]);
    assert_eq!(exit(&run), ExitCode::Done, "{}", stderr(&run));
    for (name, side) in [("source", Side::Source), ("sink", Side::Sink)] {
        let path = out.join(name);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
        assert_eq!(Identity::read(&path).unwrap().side(), side);
        assert!(stdout(&run).contains(text(&path)), "{}", stdout(&run));
    }
}

#[test]
fn every_flag_in_the_help_of_rsync_is_taken_or_refused_with_a_hint() {
    let help =
        Command::new("rsync").arg("--help").output().expect("rsync is not installed: `.ci/tools test`");
    let (help, known) = (stdout(&help), stdout(&volferry(["generate", "--rsync-flags"])));
    let flags = |line: &str| {
        let names = line.split_whitespace().take_while(|word| word.starts_with('-'));
        names.map(|name| name.trim_end_matches(',').split('=').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let all: Vec<String> = help.lines().flat_map(flags).collect();
    assert!(all.len() > 150, "{all:?}");
    let ours = ["--help", "--no-OPTION"];
    let missing: Vec<_> = all
        .iter()
        .filter(|name| !ours.contains(&name.as_str()) && !known.contains(&format!("`{name}`")))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn keygen_prints_no_key() {
    let dir = tempfile::tempdir().unwrap();
    let run = volferry(["keygen", "--out", text(dir.path())]);
    let file: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(dir.path().join("source")).unwrap()).unwrap();
    let key = file["privateKey"].as_str().unwrap();
    assert!(!stdout(&run).contains(key) && !stderr(&run).contains(key));
}

#[test]
fn keygen_never_overwrites_either_file() {
    for (taken, other) in [("source", "sink"), ("sink", "source")] {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join(taken), "precious").unwrap();
        let run = volferry(["keygen", "--out", text(dir.path())]);
        assert_eq!(exit(&run), ExitCode::Failed);
        assert!(stderr(&run).contains(text(&dir.path().join(taken))), "{}", stderr(&run));
        assert!(stderr(&run).contains("never overwritten"), "{}", stderr(&run));
        assert_eq!(fs::read_to_string(dir.path().join(taken)).unwrap(), "precious");
        assert!(!dir.path().join(other).exists(), "half a pair was written beside {taken}");
    }
}

#[test]
fn keygen_says_why_a_folder_cannot_be_used() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let run = volferry(["keygen", "--out", text(&file.join("keys"))]);
    assert_eq!(exit(&run), ExitCode::Failed);
    assert!(stderr(&run).contains("Not a directory"), "{}", stderr(&run));
}

/// Wrong command lines, and words of what is said about each.
const WRONG: &[(&[&str], &str)] = &[
    (&[], "Usage: volferry"),
    (&["ferry"], "unrecognized subcommand 'ferry'"),
    (&["keygen"], "--out <DIR>"),
    (&["sync", "a"], "hint: name both ends, first SRC"),
    (&["doctor", "a"], "<DST>"),
    (&["doctor", "nas:copy"], "it is on another machine, nas\nhint: run this command there"),
    (&["snapshot", "list", "nas:x"], "it is on another machine, nas\nhint: run this command there"),
    (&["snapshot", "cat", "nas::x", "latest", "f"], "it is on another machine, nas"),
    (&["serve", "no/such.toml"], "hint: name the file of the service's configuration"),
    (&["peers", "list", "--config", "no/such.toml"], "hint: name the file of the service's configuration"),
    (&["sync", "a", "b", "--dleete"], "a similar argument exists: '--delete'"),
    (&["sync", "a", "b", "--once"], "unexpected argument '--once'"),
    (&["sync", "a", "b", "--compare", "sizes"], "is not `metadata`, `content` or `size`"),
    (&["sync", "a", "b", "--delete-limit", "101"], "a percentage from 0 to 100"),
    (&["send", "a", "--identity", "i", "--bandwidth-limit", "1.5Mi"], "such as 1048576, 100Mi or 2G"),
    (
        &["send", "a", "--identity", "i", "--connect", "h:1", "--bandwidth-limit", "0"],
        "leave it out for no limit",
    ),
    (&["sync", "a", "b", "--compression", "none"], "without a place on another machine"),
    (&["sync", "a", "b", "--bandwidth-limit", "0"], "leave it out for no limit"),
    (&["sync", "a", "b", "--no-delete"], "`volferry receive` takes it"),
    (&["sync", "a", "b", "--delete-limit", "10"], "--delete-limit without --delete"),
    (
        &["receive", "a", "--identity", "i", "--connect", "h:1", "--delete"],
        "`volferry sync` and `volferry send` take it",
    ),
    (&["receive", "a", "--identity", "i", "--connect", "h:1", "--force"], "has no effect here"),
    (
        &["send", "a", "--identity", "i", "--listen", "[::1]:0", "--connect-timeout", "5"],
        "--connect-timeout with --listen",
    ),
    (&["sync", "a", "b", "--shard", "2/2"], "i from 0 to n - 1"),
    (&["sync", "a", "b", "--progress", "yes"], "[possible values: auto, bar, json, none]"),
    (&["send", "a", "--connect", "h:1"], "--identity <FILE>"),
    (
        &["send", "a", "--identity", "i", "--identity", "j", "--connect", "h:1"],
        "--identity more than once with --connect: an end that dials has one peer",
    ),
    (&["send", "a", "--identity", "i", "--connect", "h:1", "--once"], "--listen"),
    (&["send", "a", "--identity", "i"], "neither --listen nor --connect"),
    (&["send", "a", "--exchange", ""], "a job's name has 1 to 512 bytes"),
    (&["send", "a", "--exchange", "j", "--identity", "i"], "cannot be used with"),
    (&["receive", "a", "--exchange", "j", "--connect", "h:1"], "cannot be used with"),
    (&["receive", "a", "--identity", "i"], "neither --listen nor --connect"),
    (
        &["receive", "a", "--listen", "[::1]:0", "--identity", "i", "--connect", "h:1"],
        "both --listen and --connect",
    ),
    (&["receive", "a", "--identity", "i", "--listen", "localhost:0"], "such as 0.0.0.0:7400"),
    (&["send", "a", "--identity", "i", "--connect", "h"], "such as copy.example.org:7400"),
    (&["send", "a", "--identity", "i", "--connect", "h:1", "--connect-timeout", "0"], "1 or more"),
    (
        &["send", "a", "--identity", "i", "--connect", "h:1", "--connect-timeout", "18446744073709551615"],
        "at most 3153600000",
    ),
    (&["sync", "localhost::music/../x", "d"], "localhost:7400::music/../x names nothing in the folder: "),
    (&["sync", "a", "b", "--report", "no/such/r.json"], "the folder no/such is not there"),
    (&["sync", "a", "b", "--report", "/"], "name a file"),
    (&["sync", "a", "b", "--report=-", "--progress=json"], "leave --report out"),
    (&["sync", "a", "b", "--exclude-from", "no/such"], "the patterns in no/such: No such file"),
    (&["sync", "a", "b", "--exclude-from=-", "--include-from=-"], "give one of them a file"),
    (&["sync", "a", "b", "-c", "--compare=metadata"], "cannot be used with"),
    (&["send", "web:/srv", "--identity", "i", "--connect", "h:1"], "names another machine"),
    (&["receive", "user@web:copy", "--identity", "i", "--connect", "h:1"], "names another machine"),
];

#[test]
fn a_wrong_command_line_is_named_on_standard_error_with_exit_code_2() {
    for (args, message) in WRONG {
        let run = volferry(*args);
        assert_eq!(exit(&run), ExitCode::Usage, "{args:?}: {}", stderr(&run));
        assert!(stderr(&run).contains(message), "{args:?}: {}", stderr(&run));
        assert_eq!(stdout(&run), "", "{args:?}");
    }
}

#[test]
fn a_refusal_shows_the_usage_of_the_command_that_was_typed() {
    let run = volferry(["send", "a", "--identity", "i"]);
    assert!(stderr(&run).contains("Usage: volferry send [OPTIONS]"), "{}", stderr(&run));
}

#[test]
fn help_and_version_go_to_standard_output() {
    let commands = ["keygen", "receive", "send", "sync"];
    let whole = volferry(["--help"]);
    assert_eq!(exit(&whole), ExitCode::Done);
    assert_eq!(stderr(&whole), "");
    for command in commands {
        assert!(stdout(&whole).contains(&format!("volferry {command} ")), "no example of {command}");
        let help = volferry([command, "--help"]);
        assert_eq!(exit(&help), ExitCode::Done);
        assert!(stdout(&help).contains(&format!("Usage: volferry {command}")), "{}", stdout(&help));
    }
    for code in 0..=6 {
        assert!(stdout(&whole).contains(&format!("\n  {code}  ")), "exit code {code} is not in the help");
    }
    let version = volferry(["--version"]);
    assert_eq!(stdout(&version), concat!("volferry ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn an_identity_of_the_other_side_is_refused_and_the_right_file_is_named() {
    let keys = keys();
    for (command, wrong, right) in [("send", "sink", "source"), ("receive", "source", "sink")] {
        let wrong = keys.path().join(wrong);
        let run = volferry([command, "a", "--connect", "127.0.0.1:1", "--identity", text(&wrong)]);
        assert_eq!(exit(&run), ExitCode::Identity, "{}", stderr(&run));
        let advice = format!("use {}", text(&keys.path().join(right)));
        assert!(stderr(&run).contains(&advice), "{}", stderr(&run));
    }
}

#[test]
fn an_identity_that_cannot_be_used_is_refused_with_the_cause() {
    let keys = keys();
    let exposed = keys.path().join("source");
    fs::set_permissions(&exposed, fs::Permissions::from_mode(0o644)).unwrap();
    let garbled = keys.path().join("garbled");
    fs::write(&garbled, "not a key").unwrap();
    fs::set_permissions(&garbled, fs::Permissions::from_mode(0o600)).unwrap();
    let missing = keys.path().join("missing");
    for (path, cause, code) in [
        (&exposed, "chmod 600", ExitCode::Identity),
        (&garbled, "garbled is not an identity file", ExitCode::Identity),
        (&missing, "No such file or directory", ExitCode::Usage),
    ] {
        let run = volferry(["send", "a", "--connect", "127.0.0.1:1", "--identity", text(path)]);
        assert_eq!(exit(&run), code, "{}", stderr(&run));
        assert!(stderr(&run).contains(cause), "{}", stderr(&run));
        assert!(stderr(&run).contains("\nhint: `volferry keygen --out DIR`"), "{}", stderr(&run));
        assert_eq!(stdout(&run), "");
    }
}

#[test]
fn keys_are_not_made_in_the_place_of_a_file() {
    let keys = keys();
    let run = volferry(["keygen", "--out", text(&keys.path().join("source"))]);
    assert_eq!(exit(&run), ExitCode::Failed, "{}", stderr(&run));
    assert!(stderr(&run).contains("source is no folder, and two files go into one"), "{}", stderr(&run));
}

#[test]
fn a_host_that_no_name_service_knows_is_a_lost_peer() {
    let keys = keys();
    let identity = keys.path().join("source");
    let run = volferry([
        "send",
        text(keys.path()),
        "--connect=no-such-host.invalid:1",
        "--identity",
        text(&identity),
    ]);
    assert_eq!(exit(&run), ExitCode::PeerLost, "{}", stderr(&run));
    let told = stderr(&run);
    assert!(told.contains("the name in no-such-host.invalid:1 is not known here: "), "{told}");
    assert_eq!(told.matches("hint: ").count(), 1, "{told}");
}

#[test]
fn a_refused_identity_is_reported_in_every_form_that_was_asked_for() {
    let keys = keys();
    let (identity, file) = (keys.path().join("sink"), keys.path().join("report.json"));
    let run = volferry([
        "send",
        "a",
        "--run=nightly-7",
        "--connect=127.0.0.1:1",
        "--identity",
        text(&identity),
        "--report",
        text(&file),
        "--progress=json",
        "--log-format=json",
    ]);
    let report: Report = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!((report.run.as_str(), report.result), ("nightly-7", RunResult::Failed));
    assert_eq!(report.reason.as_deref(), Some("IdentityOfOtherSide"));

    let [event] = lines(&stdout(&run)).try_into().unwrap();
    assert_eq!(event["event"], "finished");
    assert_eq!(event["message"], report.message.as_str());
    let [log] = lines(&stderr(&run)).try_into().unwrap();
    assert_eq!(log["level"], "ERROR");
    assert_eq!(log["fields"]["reason"], "IdentityOfOtherSide");
}

pub(crate) fn volferry<'a>(args: impl AsRef<[&'a str]>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_volferry")).args(args.as_ref()).output().unwrap()
}

fn keys() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(exit(&volferry(["keygen", "--out", text(dir.path())])), ExitCode::Done);
    dir
}

fn exit(run: &Output) -> ExitCode {
    let status = run.status.code().expect("ended by a signal");
    ExitCode::from_status(status).unwrap_or_else(|| panic!("undocumented status {status}: {}", stderr(run)))
}

fn stdout(run: &Output) -> String {
    String::from_utf8(run.stdout.clone()).unwrap()
}

fn stderr(run: &Output) -> String {
    String::from_utf8(run.stderr.clone()).unwrap()
}

fn lines(text: &str) -> Vec<serde_json::Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_run_is_summed_up_without_a_terminal_unless_it_is_to_be_quiet() {
    let dir = tree();
    for (flags, summary) in [(&["--quiet"][..], ""), (&[], "Nothing to change in 1 entry, 4 B\nTook ")] {
        let run = sync(&dir, flags);
        assert_eq!(exit(&run), ExitCode::Done);
        assert!(stderr(&run).starts_with(summary), "{}", stderr(&run));
        assert_eq!(stderr(&run).is_empty(), summary.is_empty(), "{}", stderr(&run));
        assert_eq!(stdout(&run), "");
    }
}

#[test]
fn the_log_has_one_json_object_for_a_run_with_its_figures_and_each_key_once() {
    let dir = tree();
    let run = sync(&dir, &["--log-format=json", "--run=nightly-7"]);
    let [line] = lines(&stderr(&run)).try_into().unwrap();
    let fields = &line["fields"];
    assert_eq!((&line["level"], &fields["run"]), (&"INFO".into(), &"nightly-7".into()), "{line}");
    assert_eq!((&fields["created"], &fields["bytes_changed"]), (&1.into(), &4.into()), "{line}");
    let failed = sync(&dir, &["--log-format=json", "--expect-volume=01010101010101010101010101010101"]);
    for text in [stderr(&run), stderr(&failed)] {
        // Parsing loses a key that occurs twice, so the text is checked too.
        assert!(text.contains("\"level\":"), "{text}");
        for line in text.lines() {
            let parsed: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(parsed.to_string().len(), line.len(), "{line}");
        }
    }
    assert_eq!(stderr(&sync(&dir, &["--log-format=json", "-q"])), "");
    fs::write(dir.path().join("source/new"), "new").unwrap();
    let changed = sync(&dir, &["--log-format=json", "-i"]);
    let logged = lines(&stderr(&changed));
    assert!(logged.iter().any(|it| it["fields"]["path"] == "new" && it["fields"]["action"] == "Create"));
    assert_eq!(stdout(&changed), "");
}

#[test]
fn a_report_goes_to_standard_output_where_that_is_asked_for() {
    let run = sync(&tree(), &["--report=-", "--run=nightly-7"]);
    let report: Report = serde_json::from_str(&stdout(&run)).unwrap();
    assert_eq!((report.run.as_str(), report.work.files_created), ("nightly-7", 1));
}

#[test]
fn patterns_of_a_file_count_before_those_that_are_typed() {
    let dir = tree();
    let source = dir.path().join("source");
    ["a.log", "keep.log", "b.md"].iter().for_each(|name| fs::write(source.join(name), "x").unwrap());
    let patterns = dir.path().join("patterns");
    fs::write(&patterns, "# a comment\n*.log\n\nfile\n").unwrap();
    let exclude = format!("--exclude-from={}", text(&patterns));
    assert_eq!(exit(&sync(&dir, &[&exclude, "--exclude=!keep.log"])), ExitCode::Done);
    let names = || {
        let entries = fs::read_dir(dir.path().join("copy")).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    };
    assert_eq!(names(), [".volferry", "b.md", "keep.log"]);
    let include = format!("--include-from={}", text(&patterns));
    assert_eq!(exit(&sync(&dir, &[&include])), ExitCode::Done);
    assert_eq!(names(), [".volferry", "a.log", "b.md", "file", "keep.log"]);
}

#[test]
fn checksum_finds_what_size_and_time_hide() {
    let dir = tree();
    sync(&dir, &[]);
    let [source, copy] = ["source/file", "copy/file"].map(|name| dir.path().join(name));
    let time = fs::metadata(&source).unwrap().modified().unwrap();
    fs::write(&source, "FOUR").unwrap();
    fs::File::options().write(true).open(&source).unwrap().set_modified(time).unwrap();
    for (flags, content) in [(&[][..], "four"), (&["-c"], "FOUR")] {
        assert_eq!(exit(&sync(&dir, flags)), ExitCode::Done);
        assert_eq!(fs::read_to_string(&copy).unwrap(), content, "{flags:?}");
    }
}

/// Makes a folder with a source of one file, and no destination yet.
fn tree() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("source")).unwrap();
    fs::write(dir.path().join("source/file"), "four").unwrap();
    dir
}

fn sync(dir: &TempDir, flags: &[&str]) -> Output {
    let ends = ["source", "copy"].map(|name| dir.path().join(name));
    volferry([&["sync", text(&ends[0]), text(&ends[1])], flags].concat())
}

#[test]
fn a_folder_of_another_machine_is_told_from_one_of_this() {
    let refused = |args: [&str; 3]| {
        let run = volferry(args);
        assert_eq!(exit(&run), ExitCode::Usage, "{}", stderr(&run));
        stderr(&run)
    };
    for (source, destination, hint) in [
        ("rsync://web/module", "copy", "a folder of `volferry serve` is written web::module"),
        ("a", "ssh://web/srv", "write HOST:PATH"),
    ] {
        let said = refused(["sync", source, destination]);
        assert!(said.contains(&format!("\nhint: {hint}")), "{said}");
    }
    assert!(refused(["sync", "web:a", "user@web:b"]).contains("run this on one of them"));
    for [source, destination] in
        [["web:/srv", "copy"], ["a", "user@web:copy"], ["a", "web:"], ["web:data", "b"]]
    {
        let run = volferry(["sync", source, destination, "--rsh=false"]);
        assert_eq!(exit(&run), ExitCode::PeerLost, "{}", stderr(&run));
        assert!(stderr(&run).contains("web ended before it answered"), "{}", stderr(&run));
    }
    for flag in ["--rsh=x", "--remote-program=x", "--bootstrap", "--link=ssh", "--connect-timeout=1"] {
        let run = volferry(["sync", "a", "b", flag]);
        assert_eq!(exit(&run), ExitCode::Usage, "{flag}");
        assert!(stderr(&run).contains("without a place on another machine"), "{}", stderr(&run));
    }
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("a:b")).unwrap();
    for destination in ["./c:d", "a:b/c"] {
        let mut sync = std::process::Command::new(env!("CARGO_BIN_EXE_volferry"));
        let run = sync.args(["sync", "a:b", destination]).current_dir(dir.path()).output().unwrap();
        assert!(!stderr(&run).contains("another machine"), "{}", stderr(&run));
    }
    assert!(dir.path().join("c:d").is_dir());
}
