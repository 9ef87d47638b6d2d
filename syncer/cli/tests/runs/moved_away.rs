//! `--remove-source-files` moves: an entry leaves the source once its copy is durable and was compared with it.

use crate::common::{
    disk::{Disk, Mount},
    prelude::*,
};

const MOVES: &str = "--remove-source-files";

/// Returns the paths below a folder, without Volferry's own.
fn paths(root: &Path) -> Vec<String> {
    Snapshot::of(root).paths()
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
        pair.done(&["--exclude=a"]);
        pair.done(&[MOVES, "--dry-run"]);
        assert_eq!(paths(&pair.source).len(), 6, "{way:?}: a dry run removes nothing");
        let run = pair.done(&[MOVES]);
        assert_eq!(paths(&pair.source), ["sub"], "{way:?}");
        assert_eq!(paths(&pair.destination), ["a", "pipe", "sub", "sub/b", "sub/link", "sub/name"]);
        let notes = &run.report().notes;
        assert!(notes.iter().any(|note| note == "5 entries were removed at the source"), "{notes:?}");
        assert_eq!(pair.run(&[MOVES]).report().work.files_failed, 0);
    }
}

/// Returns what a disk would have of a file after a loss of power now.
fn after_loss_of_power(disk: &Disk, path: &str) -> Option<Vec<u8>> {
    let copy = Disk::new("ext4", 8 << 20, "").unwrap();
    copy.remount("", |image| assert!(fs::copy(disk.image(), image).is_ok()));
    fs::read(copy.path().join(path)).ok()
}

#[test]
fn what_leaves_the_source_is_on_the_disk_also_in_another_mount_and_if_nothing_had_to_be_written() {
    // Nothing is written back by itself meanwhile.
    let options = "commit=300";
    let Some(disk) = Disk::new("ext4", 64 << 20, options) else { return };
    let content = vec![7; 3 << 20];
    let pair = Pair::new(Way::Local);
    let below = scratch::dir(&pair.destination, "below");
    let mount = Mount::bind(&disk.path(), &below);
    fs::create_dir(pair.source.join("below")).unwrap();
    fs::write(pair.source.join("below/file"), &content).unwrap();
    pair.done(&[MOVES, "--cross-mounts"]);
    assert!(!pair.source.join("below/file").exists());
    assert!(
        after_loss_of_power(&disk, "file").as_ref() == Some(&content),
        "in a mount below the destination"
    );
    drop(mount);

    let mut pair = Pair::new(Way::Local);
    pair.destination = scratch::dir(&disk.path(), "copied");
    pair.sync("an empty folder");
    fs::write(pair.source.join("file"), &content).unwrap();
    let copied =
        Command::new("cp").arg("-a").args([pair.source.join("file"), pair.destination.clone()]).status();
    assert!(copied.unwrap().success());
    pair.done(&[MOVES]);
    assert!(!pair.source.join("file").exists());
    assert!(
        after_loss_of_power(&disk, "copied/file").as_ref() == Some(&content),
        "what another program wrote"
    );
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
            pair.done(&[MOVES, flag]);
            assert_eq!(paths(&pair.source), stays, "{way:?} {flag}");
        }
    }
}

#[test]
fn what_the_owner_of_the_destination_excludes_stays_at_the_source() {
    let pair = Pair::new(Way::SinkListens);
    file(&pair.source, "keep", "new");
    file(&pair.source, "moved", "new");
    pair.run_with(&[MOVES], &["--exclude=keep"]).assert_exit(ExitCode::Done);
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
        let run = pair.run_to(ExitCode::Partial, &[MOVES]);
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
        pair.done(&[MOVES]);
        assert_eq!(fs::read_to_string(&pair.destination).unwrap(), "one", "{way:?}");
        assert!(!pair.source.exists(), "{way:?}");
    }
}

#[test]
fn a_further_name_of_a_file_stays_as_long_as_its_copy_differs() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        file(&pair.source, "a", "one");
        file(&pair.source, "c", "two");
        for (of, name) in [("a", "b"), ("c", "sub/d")] {
            fs::create_dir_all(pair.source.join("sub")).unwrap();
            fs::hard_link(pair.source.join(of), pair.source.join(name)).unwrap();
        }
        pair.run(&[]).assert_exit(ExitCode::Done);
        let copy = pair.destination.join("a");
        let times = fs::metadata(&copy).unwrap();
        fs::write(&copy, "XXX").unwrap();
        tree::set_mtime(&copy, times.mtime(), times.mtime_nsec());
        pair.run(&[MOVES]).assert_exit(ExitCode::Partial);
        assert_eq!(paths(&pair.source), ["a", "b", "sub"], "{way:?}");
    }
}

#[test]
fn names_of_one_file_or_link_are_all_moved_whether_they_stay_linked_or_not() {
    for way in Way::ALL {
        for flags in [&[MOVES][..], &[MOVES, "--no-hard-links"]] {
            let pair = Pair::new(way);
            file(&pair.source, "a", "one");
            symlink("a", pair.source.join("link")).unwrap();
            tree::pipe(&pair.source.join("pipe"));
            for name in ["a", "link", "pipe"] {
                fs::hard_link(pair.source.join(name), pair.source.join(format!("{name} again"))).unwrap();
            }
            pair.run(flags).assert_exit(ExitCode::Done);
            assert_eq!(paths(&pair.source), [""; 0], "{way:?} {flags:?}");
            assert_eq!(paths(&pair.destination).len(), 6, "{way:?} {flags:?}");
        }
    }
}

#[test]
fn what_would_lose_attributes_stays_unless_they_are_left_out_on_purpose() {
    for way in Way::ALL.into_iter().filter(|_| scratch::is_root()) {
        let pair = Pair::new(way);
        let _mount = Mount::ramfs(&pair.destination);
        for name in ["acl", "both", "plain", "user"] {
            file(&pair.source, name, "content");
        }
        fs::hard_link(pair.source.join("user"), pair.source.join("user again")).unwrap();
        for name in ["acl", "both"] {
            tree::set_attr(&pair.source.join(name), "system.posix_acl_access", &tree::acl([6, 4, 6, 4, 4]));
        }
        for name in ["both", "user"] {
            tree::set_attr(&pair.source.join(name), "user.tag", b"kept");
        }
        for (flags, stays, failed) in [
            (&[MOVES][..], &["acl", "both", "user", "user again"][..], 3),
            (&[MOVES, "--no-acls"], &["both", "user", "user again"], 2),
            (&[MOVES, "--no-xattrs"], &["both"], 1),
            (&[MOVES, "--no-xattrs", "--no-acls"], &[], 0),
        ] {
            let run = pair.run(flags);
            run.assert_exit(if failed == 0 { ExitCode::Done } else { ExitCode::Partial });
            assert_eq!(paths(&pair.source), stays, "{way:?} {flags:?}");
            let failures = &run.report().failures;
            assert_eq!(failures.len(), failed, "{way:?} {flags:?}: {failures:?}");
            let is_told = |it: &contract::Failure| it.error.contains("does not take its");
            assert!(failures.iter().all(is_told), "{failures:?}");
        }
        assert_eq!(paths(&pair.destination).len(), 5);
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
