//! Runs of a user who may neither change owners nor read everything, as in a pod under the restricted standard.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};

use crate::common::{
    prelude::*,
    process::{command, program_in},
};

/// Compares all but owners: every entry belongs to the user of the sink.
const BUT_OWNERS: Aspects = Aspects { owners: false, ..COPY };

#[test]
fn one_of_everything_that_a_user_may_have_arrives_and_then_nothing_moves() {
    for way in Way::ALL {
        let pair = Pair::unprivileged(way);
        tree::gallery(&pair.source, Shape::Unprivileged);
        scratch::give_to_nobody(&pair.source);
        set_modes_again(&pair.source.join("modes"));
        pair.sync("one of everything");
        pair.sync_unchanged("one of everything again");
    }
}

/// Gives files the modes that are their names: a change of the owner removes some of the bits.
fn set_modes_again(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let mode = u32::from_str_radix(entry.file_name().to_str().unwrap(), 8).unwrap();
        tree::set_mode(&entry.path(), mode);
    }
}

#[test]
fn every_kind_of_edit_is_followed() {
    for (way, seed) in Way::ALL.into_iter().zip(300..) {
        let pair = Pair::unprivileged(way);
        let mut rng = Rng::new(seed);
        tree::random(&pair.source, &mut rng, 100, Shape::Unprivileged);
        scratch::give_to_nobody(&pair.source);
        pair.sync("the first run");
        for edits in Edit::ALL.chunks(6) {
            for edit in edits.iter().filter(|edit| **edit != Edit::Chown) {
                (0..20).find_map(|_| edit.apply(&pair.source, &mut rng));
            }
            scratch::give_to_nobody(&pair.source);
            pair.sync(&format!("{edits:?}, seed {seed}"));
        }
    }
}

#[test]
fn what_is_in_a_directory_without_write_permission_is_changed_and_deleted_all_the_same() {
    for way in Way::ALL {
        let pair = Pair::unprivileged(way);
        let locked = pair.source.join("locked");
        fs::create_dir_all(locked.join("inner")).unwrap();
        for name in ["changed", "deleted", "inner/deleted"] {
            tree::file(&locked.join(name), b"content");
        }
        scratch::give_to_nobody(&pair.source);
        let lock = |mode| ["inner", ""].iter().for_each(|name| tree::set_mode(&locked.join(name), mode));
        lock(0o555);
        pair.sync("before");
        lock(0o755);
        tree::file(&locked.join("changed"), b"other content");
        tree::file(&pair.source.join("stays"), b"content");
        fs::remove_file(locked.join("deleted")).unwrap();
        fs::remove_dir_all(locked.join("inner")).unwrap();
        fs::create_dir(locked.join("inner")).unwrap();
        scratch::give_to_nobody(&pair.source);
        lock(0o555);
        pair.sync("changes below a directory without write permission");
        lock(0o755);
        fs::remove_dir_all(&locked).unwrap();
        pair.sync("a directory without write permission is gone");
    }
}

#[test]
fn foreign_owners_are_left_alone_and_do_not_make_a_file_look_changed() {
    for pair in Pair::each_unprivileged() {
        tree::random(&pair.source, &mut Rng::new(17), 100, Shape::Everything);
        readable_to_all(&pair.source);
        let run = pair.done(&["--delete"]);
        let (copy, original) = (Snapshot::of(&pair.destination), Snapshot::of(&pair.source));
        copy.assert_like(&original, BUT_OWNERS, "a copy without its owners");
        // This user gets no lease on files of others, so the young ones are noted.
        let [note, motion] = run.report().notes.as_slice() else { panic!("{:?}", run.report().notes) };
        assert!(motion.contains("may have been writing"), "{motion}");
        assert!(note.starts_with(&format!("{} entries ", original.entries().count())), "{note}");
        assert!(copy.entries().all(|(_, node)| node.owner == (scratch::NOBODY, scratch::NOBODY)));
        pair.sync_unchanged("again");
    }
}

#[test]
fn owners_that_are_not_kept_are_counted_in_every_run_also_in_one_without_a_change() {
    for pair in Pair::each_unprivileged() {
        tree::random(&pair.source, &mut Rng::new(18), 100, Shape::Everything);
        readable_to_all(&pair.source);
        let original = Snapshot::of(&pair.source);
        let all = original.entries().count() as u64;
        let nobodys = original.entries().filter(|(_, node)| node.owner == (scratch::NOBODY, scratch::NOBODY));
        assert_eq!(nobodys.count(), 0, "no entry has the owner of the copy by chance");
        let count = |flags: &[&str]| {
            let run = pair.done(flags);
            run.report().work.owners_not_kept
        };
        assert_eq!(count(&["--dry-run"]), all, "{:?}: before the first run", pair.way);
        assert_eq!(count(&[]), all, "{:?}: the first run", pair.way);
        assert_eq!(pair.sync_unchanged("again").work.owners_not_kept, all, "{:?}", pair.way);
        assert_eq!(count(&["--dry-run"]), all, "{:?}: after it", pair.way);
        assert_eq!(count(&["--ownership=never"]), 0, "{:?}: they were not asked for", pair.way);
        for (path, node) in original.entries() {
            let (user, group) = node.owner;
            let path = pair.destination.join(OsStr::from_bytes(path));
            std::os::unix::fs::lchown(path, Some(user), Some(group)).unwrap();
        }
        assert_eq!(count(&["--dry-run"]), 0, "{:?}: somebody else has set them", pair.way);
    }
}

#[test]
fn owners_that_must_be_kept_and_cannot_be_are_refused() {
    for way in Way::ALL {
        let pair = Pair::unprivileged(way);
        tree::file(&pair.source.join("file"), b"content");
        scratch::give_to_nobody(&pair.source);
        pair.sync("before");
        tree::file(&pair.source.join("file"), b"other content");
        pair.refuse(&["--ownership=always"], ExitCode::Failed, "OwnershipNotPermitted");
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named_and_the_rest_arrives() {
    for way in Way::ALL {
        let pair = Pair::unprivileged(way);
        let large = vec![1; 2_000_000];
        for name in ["fine", "secret", "old secret", "fine too"] {
            tree::file(&pair.source.join(name), b"content");
        }
        tree::file(&pair.source.join("large secret"), &large);
        fs::create_dir(pair.source.join("closed")).unwrap();
        tree::file(&pair.source.join("closed/file"), b"content");
        scratch::give_to_nobody(&pair.source);
        pair.sync("before");
        for name in ["fine", "secret", "fine too"] {
            tree::file(&pair.source.join(name), b"new content");
        }
        tree::file(&pair.source.join("large secret"), &vec![2; 2_000_001]);
        for name in ["secret", "large secret", "closed"] {
            tree::set_mode(&pair.source.join(name), 0);
        }
        let run = pair.run_to(ExitCode::Partial, &["--delete", "--delete-limit=100"]);
        let report = run.report();
        assert_eq!(
            (report.result, report.reason.as_deref()),
            (RunResult::PartiallyFailed, Some("SomeFilesFailed"))
        );
        let mut named: Vec<_> = report.failures.iter().map(|failure| failure.path.as_str()).collect();
        named.sort_unstable();
        assert_eq!(named, ["closed", "large secret", "secret"], "{way:?}");
        assert_eq!(report.work.files_failed, 3);
        assert!(report.failures.iter().all(|failure| failure.error.contains("Permission denied")));
        for (name, content) in [
            ("fine", &b"new content"[..]),
            ("fine too", b"new content"),
            ("secret", b"content"),
            ("old secret", b"content"),
            ("large secret", &large),
        ] {
            assert!(fs::read(pair.destination.join(name)).unwrap() == content, "{way:?}: {name}");
        }
        let closed = fs::metadata(pair.destination.join("closed")).unwrap();
        assert!(closed.is_dir(), "what cannot be looked into is not deleted");
        pair.assert_staging_empty();
    }
}

#[test]
fn a_destination_that_cannot_be_written_to_is_refused() {
    for pair in Pair::each_unprivileged() {
        tree::file(&pair.source.join("file"), b"content");
        scratch::give_to_nobody(&pair.source);
        std::os::unix::fs::chown(&pair.destination, Some(0), Some(0)).unwrap();
        pair.refuse(&["--delete"], ExitCode::Failed, "DestinationUnusable");
    }
}

#[test]
fn a_root_that_belongs_to_another_is_no_fault_of_the_run() {
    for pair in Pair::each_unprivileged() {
        let way = pair.way;
        tree::file(&pair.source.join("file"), b"content");
        scratch::give_to_nobody(&pair.source);
        std::os::unix::fs::chown(&pair.destination, Some(0), Some(scratch::NOBODY)).unwrap();
        tree::set_mode(&pair.destination, 0o2775);
        for turn in ["first", "second"] {
            let run = pair.done(&["--delete"]);
            let [note] = run.report().notes.as_slice() else { panic!("{:?}", run.report().notes) };
            assert!(note.contains("root folder"), "{note}");
            let work = run.report().work;
            let counts = (work.files_created, work.files_updated);
            assert_eq!(counts, if turn == "first" { (1, 0) } else { (0, 0) }, "{way:?}, {turn} run");
        }
    }
}

fn readable_to_all(path: &Path) {
    if path.is_symlink() {
        return;
    }
    tree::set_mode(path, if path.is_dir() { 0o755 } else { 0o644 });
    if path.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| readable_to_all(&entry.unwrap().path()));
    }
}

#[test]
fn files_that_a_user_may_not_use_are_named_with_what_to_do() {
    let Some(()) = scratch::needs_root() else { return };
    let pair = Pair::unprivileged(Way::Local);
    tree::file(&pair.source.join("a"), b"content");
    scratch::give_to_nobody(&pair.source);
    let [open, closed] = ["open", "closed"].map(|name| scratch::dir(pair.dir(), name));
    tree::set_mode(&closed, 0o700);
    let key = pair.dir().join("key");
    fs::write(&key, "").unwrap();
    tree::set_mode(&key, 0o600);
    let program = program_in(pair.dir());
    let run = |args: &[&str]| {
        let args: Vec<_> = args.iter().map(ToString::to_string).collect();
        let mut command = command(&program, User::Nobody, &args);
        if args.contains(&"-n".into()) {
            command.env_remove("VOLFERRY_CONFIG").env("XDG_CONFIG_HOME", &closed);
        }
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (source, destination, report) = (text(&pair.source), text(&pair.destination), open.join("report"));
    let report = format!("--report={}", report.display());
    for (args, exit, expected) in [
        (vec!["sync", source, destination, &report], 2, "this user may not write to the folder"),
        (
            vec!["send", source, "--connect=127.0.0.1:1", "--identity", text(&key)],
            6,
            "may not read the identity file",
        ),
        (
            vec!["sync", source, destination, "-n"],
            2,
            "hint: see that this user may read it, or set VOLFERRY_CONFIG=none",
        ),
        (vec!["sync", source, destination, "--chown=0:0"], 1, "leave out --chown"),
    ] {
        let (code, stderr) = run(&args);
        assert_eq!(code, Some(exit), "{args:?}: {stderr}");
        assert!(stderr.contains(expected), "{args:?}: {stderr}");
    }
    assert_eq!(fs::read_dir(&pair.destination).unwrap().count(), 0);
}
