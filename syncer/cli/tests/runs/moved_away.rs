//! `--remove-source-files` moves: an entry leaves the source once its copy is durable and was compared with it.

use crate::common::prelude::*;

const MOVES: &str = "--remove-source-files";

/// Returns the paths below a folder, without Volferry's own.
fn paths(root: &Path) -> Vec<String> {
    fn add(at: &Path, found: &mut Vec<PathBuf>) {
        let mut names: Vec<_> = fs::read_dir(at).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        for path in names.into_iter().filter(|path| !path.ends_with(".volferry")) {
            found.push(path.clone());
            if path.is_dir() && !path.is_symlink() {
                add(&path, found);
            }
        }
    }
    let mut found = Vec::new();
    add(root, &mut found);
    found.iter().map(|path| path.strip_prefix(root).unwrap().display().to_string()).collect()
}

fn file(root: &Path, path: &str, text: &str) {
    fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
    tree::closed_file(&root.join(path), text.as_bytes());
}

#[test]
fn what_has_arrived_and_what_was_there_already_leaves_the_source_and_folders_stay() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        file(&pair.source, "a", "one");
        file(&pair.source, "sub/b", "two");
        symlink("a", pair.source.join("sub/link")).unwrap();
        fs::hard_link(pair.source.join("a"), pair.source.join("sub/name")).unwrap();
        tree::pipe(&pair.source.join("pipe"));
        pair.run(&["--exclude=a"]).assert_exit(ExitCode::Done);
        let rehearsal = pair.run(&[MOVES, "--dry-run"]);
        rehearsal.assert_exit(ExitCode::Done);
        assert_eq!(paths(&pair.source).len(), 6, "{way:?}: a dry run removes nothing");
        let run = pair.run(&[MOVES]);
        run.assert_exit(ExitCode::Done);
        assert_eq!(paths(&pair.source), ["sub"], "{way:?}");
        assert_eq!(paths(&pair.destination), ["a", "pipe", "sub", "sub/b", "sub/link", "sub/name"]);
        let notes = &run.report().notes;
        assert!(notes.iter().any(|note| note == "5 entries were removed at the source"), "{notes:?}");
        assert_eq!(pair.run(&[MOVES]).report().work.files_failed, 0);
    }
}

#[test]
fn what_takes_no_part_in_the_run_or_is_left_alone_stays_at_the_source() {
    for way in Way::ALL {
        for (flag, stays) in [
            ("--exclude=keep", vec!["keep"]),
            ("--filter=- keep", vec!["keep"]),
            ("--min-size=4", vec!["keep", "moved"]),
            ("--existing", vec!["moved"]),
            ("--ignore-existing", vec!["keep"]),
            ("--update", vec!["keep"]),
        ] {
            let pair = Pair::new(way);
            file(&pair.source, "keep", "new");
            file(&pair.source, "moved", "new");
            file(&pair.destination, "keep", "old");
            tree::set_mtime(&pair.source.join("keep"), 1_000_000_000, 0);
            tree::set_mtime(&pair.destination.join("keep"), 1_500_000_000, 0);
            pair.run(&[MOVES, flag]).assert_exit(ExitCode::Done);
            assert_eq!(paths(&pair.source), stays, "{way:?} {flag}");
        }
    }
}

#[test]
fn what_the_owner_of_the_destination_excludes_stays_at_the_source() {
    let pair = Pair::new(Way::SinkListens);
    file(&pair.source, "keep", "new");
    file(&pair.source, "moved", "new");
    let mut sink = pair.start_receive(&["--once", "--listen", "127.0.0.1:0", "--exclude=keep"]);
    let source = pair.start_send(&["--connect", &sink.listening().to_string()], &[MOVES]);
    source.wait().assert_exit(ExitCode::Done);
    sink.wait().assert_exit(ExitCode::Done);
    assert_eq!(paths(&pair.source), ["keep"]);
}

#[test]
fn a_file_that_cannot_be_removed_is_named_and_the_others_go() {
    for pair in Pair::each_unprivileged() {
        file(&pair.source, "open/a", "one");
        file(&pair.source, "closed/b", "two");
        for path in ["open", "open/a", "closed", "closed/b"] {
            crate::common::scratch::give_to_nobody(&pair.source.join(path));
        }
        tree::set_mode(&pair.source.join("closed"), 0o555);
        let run = pair.run(&[MOVES]);
        run.assert_exit(ExitCode::Partial);
        assert_eq!(paths(&pair.source), ["closed", "closed/b", "open"], "{:?}", pair.way);
        let [failure] = run.report().failures.as_slice() else { panic!("{:?}", run.report().failures) };
        assert_eq!((failure.path.as_str(), failure.operation.as_str()), ("closed/b", "remove at the source"));
    }
}

#[test]
fn a_file_that_is_open_for_writing_stays_and_the_others_go() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        file(&pair.source, "closed", "one");
        file(&pair.source, "open", "two");
        let writer = fs::File::options().write(true).open(pair.source.join("open")).unwrap();
        let run = pair.run(&[MOVES]);
        assert_eq!(paths(&pair.source), ["open"], "{way:?}");
        let failures = &run.report().failures;
        let named = |it: &contract::Failure| it.path == "open" && it.error.contains("may be writing to it");
        assert!(failures.iter().any(named), "{way:?}: {failures:?}");
        tree::close(writer);
        pair.run(&[MOVES]);
        assert_eq!(paths(&pair.source), [""; 0], "{way:?}");
    }
}

#[test]
fn a_single_file_can_be_moved_to_another_name() {
    for way in Way::ALL {
        let mut pair = Pair::new(way);
        file(&pair.source, "a", "one");
        (pair.source, pair.destination) = (pair.source.join("a"), pair.destination.join("b"));
        pair.run(&[MOVES]).assert_exit(ExitCode::Done);
        assert_eq!(fs::read_to_string(&pair.destination).unwrap(), "one", "{way:?}");
        assert!(!pair.source.exists(), "{way:?}");
    }
}

#[test]
fn a_move_that_deletes_or_shares_the_tree_is_refused() {
    let pair = Pair::new(Way::Local);
    for flags in [&["--delete"][..], &["--shard=0/2", "--run=r"], &["--source-snapshot=latest"]] {
        pair.start_sync(&[&[MOVES], flags].concat()).wait().assert_exit(ExitCode::Usage);
    }
}

/// The length of the file that is copied before all others, and its way for some seconds.
const FIRST_BYTES: usize = 8 << 20;

#[test]
fn a_name_whose_file_has_not_arrived_stays_where_another_file_took_its_first_name() {
    let pair = Pair::new(Way::Local);
    tree::closed_file(&pair.source.join("0"), &vec![1; FIRST_BYTES]);
    for (first, other) in [("replaced", "sub/replaced"), ("same", "sub/same")] {
        file(&pair.source, other, "old");
        fs::hard_link(pair.source.join(other), pair.source.join(first)).unwrap();
    }
    let mut running = pair.start_sync(&[MOVES, "--bandwidth-limit=4M"]);
    running.moved();
    running.signal(Signal::STOP);
    file(&pair.source, "new", "new");
    fs::rename(pair.source.join("new"), pair.source.join("replaced")).unwrap();
    running.signal(Signal::CONT);
    running.wait();
    let left = |name: &str| fs::read_to_string(pair.source.join(name)).unwrap();
    assert_eq!(paths(&pair.source), ["replaced", "sub", "sub/replaced"]);
    assert_eq!(["replaced", "sub/replaced"].map(left), ["new", "old"]);
    pair.run(&[MOVES]);
    let arrived = |name: &str| fs::read_to_string(pair.destination.join(name)).unwrap();
    assert_eq!(["replaced", "sub/replaced", "sub/same"].map(arrived), ["new", "old", "old"]);
    assert_eq!(paths(&pair.source), ["sub"]);
}
