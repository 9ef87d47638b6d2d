//! A dry run reports the actions that a run would take, and changes nothing.

use std::{collections::BTreeSet, os::unix::fs::chown, time::SystemTime};

use contract::{Action, EntryKind, PlannedAction};

use crate::common::prelude::*;

/// Returns the actions that the end with the flag for a dry run printed.
pub(crate) fn told(run: &Run) -> Vec<PlannedAction> {
    let (Run::Local(end) | Run::Network { source: end, .. }) = run;
    let planned = end.events.iter().filter_map(|event| match event {
        Event::Planned(action) => Some(action.clone()),
        _ => None,
    });
    planned.collect()
}

fn paths(told: &[PlannedAction], action: Action) -> BTreeSet<String> {
    let paths = told.iter().filter(|it| it.action == action && it.path != ".").map(|it| it.path.clone());
    paths.collect()
}

/// Makes a pair with an action of every kind to do.
fn pair(way: Way) -> Pair {
    let pair = Pair::new(way);
    tree::gallery(&pair.source, Shape::Everything);
    pair.sync("before");
    tree::file(&pair.source.join("new"), b"new");
    fs::create_dir_all(pair.source.join("folder/deep")).unwrap();
    tree::file(&pair.source.join("folder/deep/file"), b"content");
    tree::file(&pair.source.join("updated"), b"new and longer");
    tree::file(&pair.destination.join("updated"), b"old");
    tree::file(&pair.source.join("kind"), b"a file here");
    fs::create_dir_all(pair.destination.join("kind/below")).unwrap();
    fs::create_dir_all(pair.destination.join("gone/deep")).unwrap();
    tree::file(&pair.destination.join("gone/deep/file"), b"goes");
    tree::file(&pair.source.join("mode"), b"same");
    fs::copy(pair.source.join("mode"), pair.destination.join("mode")).unwrap();
    tree::set_mode(&pair.source.join("mode"), 0o640);
    tree::set_mode(&pair.destination.join("mode"), 0o600);
    let mtime = fs::metadata(pair.source.join("mode")).unwrap().modified().unwrap();
    fs::File::options().write(true).open(pair.destination.join("mode")).unwrap().set_modified(mtime).unwrap();
    pair
}

#[test]
fn a_dry_run_tells_all_that_a_run_does_and_touches_nothing() {
    for way in Way::EACH {
        let pair = pair(way);
        fs::remove_dir_all(pair.destination.join(".volferry")).unwrap();
        let before = Snapshot::of(&pair.destination);
        let flags = ["--delete", "--delete-limit=100"];
        let run = pair.done(&[&flags[..], &["--dry-run"]].concat());
        Snapshot::of(&pair.destination).assert_like(&before, UNTOUCHED, "a dry run");
        assert!(!pair.destination.join(".volferry").exists());
        let (foretold, told) = (run.report().clone(), told(&run));
        assert!(foretold.dry_run);
        let real = pair.done(&flags);
        let (a, b) = (foretold.work, real.report().work);
        assert_eq!(
            (a.files_created, a.files_updated, a.files_deleted, a.bytes_changed),
            (b.files_created, b.files_updated, b.files_deleted, b.bytes_changed),
            "{way:?}"
        );
        let after = Snapshot::of(&pair.destination);
        let names = |of: &Snapshot| -> BTreeSet<String> {
            of.entries().map(|(path, _)| syncer::path::display(path)).collect()
        };
        let (had, has) = (names(&before), names(&after));
        assert_eq!(paths(&told, Action::Create), has.difference(&had).cloned().collect(), "{way:?}");
        assert_eq!(paths(&told, Action::Delete), had.difference(&has).cloned().collect(), "{way:?}");
        assert_eq!(paths(&told, Action::Replace), BTreeSet::from(["kind".into()]), "{way:?}");
        assert_eq!(paths(&told, Action::Update), BTreeSet::from(["updated".into()]), "{way:?}");
        assert!(paths(&told, Action::SetMetadata).contains("mode"), "{way:?}");
        let nothing = pair.run(&[&flags[..], &["--dry-run"]].concat());
        assert_eq!(self::told(&nothing), [], "{way:?}");
    }
}

#[test]
fn a_destination_that_is_not_there_is_told_and_not_made() {
    for way in Way::EACH {
        let mut pair = Pair::new(way);
        tree::file(&pair.source.join("file"), b"content");
        pair.destination = pair.dir().join("missing");
        let run = pair.done(&["--dry-run"]);
        assert!(!pair.destination.exists(), "{way:?}");
        let folder = PlannedAction {
            action: Action::Create,
            kind: EntryKind::Folder,
            path: ".".into(),
            from: None,
            target: None,
            bytes: 0,
            differs: Vec::new(),
        };
        let file = PlannedAction { kind: EntryKind::File, path: "file".into(), bytes: 7, ..folder.clone() };
        assert_eq!(told(&run), [folder, file], "{way:?}");
    }
}

#[test]
fn a_dry_run_is_told_and_then_refused_where_a_run_would_be() {
    for way in Way::EACH {
        let pair = Pair::new(way);
        tree::file(&pair.destination.join("theirs"), b"content");
        let run = pair.run_to(ExitCode::Guard, &["--delete", "--dry-run"]);
        run.ends().for_each(|end| assert_eq!(end.reason(), "SourceEmpty", "{way:?}"));
        assert_eq!(paths(&told(&run), Action::Delete), BTreeSet::from(["theirs".into()]), "{way:?}");
        assert!(!pair.destination.join(".volferry").exists());
    }
}

#[test]
fn a_dry_run_that_is_larger_than_a_message_is_told_whole() {
    for way in Way::EACH {
        let pair = Pair::new(way);
        for n in 0..1000 {
            tree::file(&pair.source.join(format!("file {n}")), b"");
        }
        let run = pair.done(&["--dry-run"]);
        assert_eq!(paths(&told(&run), Action::Create).len(), 1000, "{way:?}");
    }
}

#[test]
fn people_get_a_line_an_action() {
    let dir = crate::common::scratch::scratch();
    let path = |name: &str| -> PathBuf { dir.path().join(name) };
    fs::create_dir(path("from")).unwrap();
    tree::file(&path("from").join("a\nb"), b"content");
    let run = |from: &Path, to: &Path| {
        Command::new(program()).args(["sync", "--dry-run", text(from), text(to)]).output().unwrap()
    };
    let output = run(&path("from"), &path("to"));
    assert_eq!(output.status.code(), Some(0));
    let shown = String::from_utf8(output.stdout).unwrap();
    assert_eq!(shown, "create folder .\ncreate file a\\x0ab (7 B)\n");
}

#[test]
fn a_folder_that_is_renamed_is_told_as_a_move() {
    for way in Way::EACH {
        let pair = Pair::new(way);
        fs::create_dir_all(pair.source.join("old/deep")).unwrap();
        fs::write(pair.source.join("old/deep/file"), b"content").unwrap();
        fs::write(pair.source.join("other"), b"stays").unwrap();
        fs::hard_link(pair.source.join("other"), pair.source.join("second")).unwrap();
        pair.sync("before");
        fs::rename(pair.source.join("old"), pair.source.join("new")).unwrap();
        fs::hard_link(pair.source.join("other"), pair.source.join("third")).unwrap();
        let flags = ["--delete", "--delete-limit=100"];
        let run = pair.done(&[&flags[..], &["--dry-run"]].concat());
        let moved: Vec<_> = told(&run).into_iter().filter(|it| it.action == Action::Move).collect();
        let expected = PlannedAction {
            action: Action::Move,
            kind: EntryKind::Folder,
            path: "new".into(),
            from: Some("old".into()),
            target: None,
            bytes: 0,
            differs: Vec::new(),
        };
        assert_eq!(moved, [expected], "{way:?}");
        assert_eq!(paths(&told(&run), Action::Delete), BTreeSet::new(), "{way:?}");
        let link = told(&run).into_iter().find(|it| it.path == "third").unwrap();
        assert_eq!((link.action, link.kind), (Action::Create, EntryKind::HardLink), "{way:?}");
        let real = pair.done(&flags);
        let (a, b) = (run.report().work, real.report().work);
        assert_eq!(
            (a.files_created, a.files_updated, a.files_deleted, a.bytes_changed),
            (b.files_created, b.files_updated, b.files_deleted, b.bytes_changed),
            "{way:?}"
        );
    }
}

#[test]
fn a_folder_that_holds_what_is_not_part_of_the_run_is_not_told_to_go() {
    for way in Way::EACH {
        let pair = Pair::new(way);
        tree::file(&pair.source.join("file"), b"content");
        fs::create_dir_all(pair.destination.join("gone/empty")).unwrap();
        tree::file(&pair.destination.join("gone/kept.tmp"), b"content");
        let flags = ["--delete", "--delete-limit=100", "--exclude=*.tmp"];
        let run = pair.done(&[&flags[..], &["--dry-run"]].concat());
        assert_eq!(paths(&told(&run), Action::Delete), BTreeSet::from(["gone/empty".into()]), "{way:?}");
        let real = pair.done(&flags);
        assert_eq!(run.report().work.files_deleted, real.report().work.files_deleted, "{way:?}");
        assert!(pair.destination.join("gone/kept.tmp").exists(), "{way:?}");
    }
}

#[test]
fn a_dry_run_ends_as_a_run_does_where_the_destination_cannot_be_written_to() {
    for mut pair in Pair::each_unprivileged() {
        tree::file(&pair.source.join("file"), b"content");
        scratch::give_to_nobody(&pair.source);
        let alike = |pair: &Pair| {
            let foretold = pair.run(&["--dry-run"]);
            let run = pair.run(&[]);
            for run in [&foretold, &run] {
                run.assert_exit(ExitCode::Failed);
            }
            let message = |run: &Run| run.ends().next().unwrap().report().message.clone();
            assert_eq!(message(&foretold), message(&run), "{:?}", pair.way);
        };
        tree::set_mode(&pair.destination, 0o555);
        alike(&pair);
        tree::set_mode(&pair.destination, 0o755);
        pair.done(&["--dry-run"]);
        pair.destination = pair.dir().join("missing/too");
        alike(&pair);
    }
}

/// Returns the lines of `command`, sorted by their bytes.
fn lines(command: &mut Command) -> BTreeSet<String> {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().map(String::from).collect()
}

/// Makes a destination by rsync, then changes the source in every way that has a letter in the itemized output.
fn changed_pair(way: Way) -> Pair {
    let pair = Pair::new(way);
    for name in
        ["same", "longer", "touched", "mode", "owner", "both", "gone", "gonedir/deep/file", "dir/file"]
    {
        let path = pair.source.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        tree::file(&path, name.as_bytes());
    }
    symlink("same", pair.source.join("link")).unwrap();
    let copied = Command::new("rsync").arg("-aH").args(ends(&pair)).status().unwrap();
    assert!(copied.success());
    tree::file(&pair.source.join("longer"), b"more than before");
    tree::file(&pair.source.join("both"), b"more than before");
    ["mode", "both"].iter().for_each(|name| tree::set_mode(&pair.source.join(name), 0o604));
    if scratch::is_root() {
        ["owner", "both"].iter().for_each(|name| chown(pair.source.join(name), Some(7), Some(8)).unwrap());
    }
    let touched = fs::File::options().write(true).open(pair.source.join("touched")).unwrap();
    touched.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    fs::remove_file(pair.source.join("link")).unwrap();
    symlink("longer", pair.source.join("link")).unwrap();
    symlink("nowhere", pair.source.join("dir/new link")).unwrap();
    tree::file(&pair.source.join("new"), b"new");
    fs::hard_link(pair.source.join("new"), pair.source.join("second")).unwrap();
    fs::create_dir_all(pair.source.join("newdir/deep")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, pair.source.join("newdir/fifo"), 0o644.into()).unwrap();
    fs::remove_file(pair.source.join("gone")).unwrap();
    fs::remove_dir_all(pair.source.join("gonedir")).unwrap();
    // A run's own folder gives the destination a new time, which may be of the same tick of the clock.
    tree::set_mtime(&pair.source, 1_700_000_000, 0);
    pair
}

fn ends(pair: &Pair) -> [String; 2] {
    [&pair.source, &pair.destination].map(|path| format!("{}/", text(path)))
}

#[test]
fn changes_are_itemized_as_rsync_itemizes_them() {
    let pair = changed_pair(Way::Local);
    let rsync = ["-aHni", "--delete", "--modify-window=-1"];
    let mut expected = lines(Command::new("rsync").args(rsync).args(ends(&pair)));
    // rsync copies another one of a new file's names.
    expected.retain(|line| !line.contains("second"));
    expected.extend([">f+++++++++ new", "hf+++++++++ second => new"].map(String::from));
    assert!(expected.contains(".d..t...... ./") && expected.contains("*deleting   gonedir/deep/"));
    let sync = |flags: &[&str]| {
        let mut command = Command::new(program());
        lines(
            command
                .args(["sync", "-i", "--delete", "--adopt", "--delete-limit=100"])
                .args(flags)
                .args(ends(&pair)),
        )
    };
    assert_eq!(sync(&["--dry-run"]), expected);
    assert_eq!(sync(&[]), expected);
    assert_eq!(sync(&[]), BTreeSet::new());
}

#[test]
fn a_run_that_shows_its_changes_shows_those_that_a_dry_run_does() {
    let flags = ["--delete", "--delete-limit=100"];
    for way in Way::EACH {
        let pair = changed_pair(way);
        let dry = told(&pair.run(&[&flags[..], &["--dry-run"]].concat()));
        assert!(!dry.is_empty());
        for shows in ["-v", "--itemize-changes"] {
            let pair = changed_pair(way);
            let run = pair.done(&[&flags[..], &[shows]].concat());
            assert_eq!(told(&run), dry, "{way:?} {shows}");
            assert_eq!(told(&pair.run(&[shows])), [], "{way:?} {shows}");
        }
        let silent = changed_pair(way);
        assert_eq!(told(&silent.run(&flags)), [], "{way:?}");
    }
}

#[test]
fn the_receiving_end_shows_changes_where_it_is_asked_to_and_only_there() {
    let pair = changed_pair(Way::SinkListens);
    let mut sink = pair.start_receive(&["--once", "--listen=127.0.0.1:0", "-i"]);
    let address = sink.listening().to_string();
    let source = pair.start_send(&["--connect", &address], &[]).wait();
    let run = |end| Run::Local(end);
    assert!(told(&run(sink.wait())).iter().any(|it| it.path == "newdir/fifo"));
    assert_eq!(told(&run(source)), []);
}

/// Makes files with several names at `root`, one group in each folder. `later` leaves names out, and changes some of
/// the others. No two files have one length, so that a sum of bytes tells which files it has.
fn groups(root: &Path, later: bool) {
    const NAMES: [&str; 4] = ["a", "b", "c", "d/e"];
    let stays: [(&str, &[usize]); 6] = [
        ("first", &[0]),
        ("last", &[3]),
        ("inner", &[1, 2]),
        ("outer", &[0, 3]),
        ("all", &[0, 1, 2, 3]),
        ("none", &[]),
    ];
    let mut len = 1;
    for (which, stays) in stays {
        for change in ["same", "mode", "set-id", "content", "parted", "new name", "owner"] {
            len *= 2;
            let dir = root.join(format!("{which} {change}"));
            fs::create_dir_all(dir.join("d")).unwrap();
            let names = NAMES.iter().enumerate().filter(|(at, _)| !later || stays.contains(at));
            let mut first: Option<PathBuf> = None;
            for path in names.map(|(_, name)| dir.join(name)) {
                match first.as_ref().filter(|_| !later || change != "parted") {
                    Some(first) => fs::hard_link(first, &path).unwrap(),
                    None => {
                        tree::file(&path, &vec![u8::from(later && change == "content"); 1000 + len % 99_991]);
                    }
                }
                first.get_or_insert(path);
            }
            if let Some(first) = first.filter(|_| later) {
                match change {
                    "mode" => tree::set_mode(&first, 0o640),
                    "set-id" => tree::set_mode(&first, 0o4755),
                    "new name" => fs::hard_link(&first, dir.join("d/new")).unwrap(),
                    "owner" if scratch::is_root() => chown(&first, Some(3), Some(4)).unwrap(),
                    _ => {}
                }
            }
        }
    }
    same_times(root);
}

/// Gives all files below a folder the same time, those of other content another one.
fn same_times(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap().map(|entry| entry.unwrap()) {
        if entry.file_type().unwrap().is_dir() {
            same_times(&entry.path());
        } else {
            let file = fs::File::options().write(true).open(entry.path()).unwrap();
            let content = fs::read(entry.path()).unwrap()[0];
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(content.into())).unwrap();
        }
    }
}

#[test]
fn a_dry_run_counts_as_a_run_does_where_some_names_of_a_file_go() {
    for way in Way::EACH {
        for delete in ["--delete", "--delete=before"] {
            let pair = Pair::new(way);
            groups(&pair.source, true);
            groups(&pair.destination, false);
            let flags = [delete, "--delete-limit=100"];
            let foretold = pair.done(&[&flags[..], &["--dry-run"]].concat());
            let done = pair.done(&flags);
            pair.assert_copy(delete);
            let counts = |run: &Run| {
                let work = run.report().work;
                (work.files_created, work.files_updated, work.files_deleted, work.bytes_changed)
            };
            assert_eq!(counts(&foretold), counts(&done), "{way:?}, {delete}");
        }
    }
}
