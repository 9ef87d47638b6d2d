//! Names of one file stay names of one file after any change; names of two files stay apart.

use std::os::unix::{fs::chown, net::UnixListener};

use crate::common::prelude::*;

static CONTENT: [u8; 300_000] = [7; 300_000];

/// Makes files with names in several folders, and a folder that no edit of the tests touches.
fn linked(pair: &Pair) {
    let root = &pair.source;
    for dir in ["a", "b", "c/deep", "other"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    tree::file(&root.join("a/file"), &CONTENT);
    tree::file(&root.join("other/file"), b"other");
    for name in ["b/file", "c/deep/file", "a/second"] {
        fs::hard_link(root.join("a/file"), root.join(name)).unwrap();
    }
    tree::age(root, &mut Rng::new(1));
    pair.sync("before");
}

fn is_one_file(root: &Path, names: &[&str]) -> bool {
    let inode = |name: &&str| fs::metadata(root.join(name)).unwrap().ino();
    names.iter().all(|name| inode(name) == inode(&names[0]))
}

#[test]
fn no_name_leads_to_old_content_whose_folder_could_not_be_written() {
    for pair in Pair::each_unprivileged() {
        for folder in ["first", "second"] {
            [&pair.source, &pair.destination]
                .iter()
                .for_each(|root| fs::create_dir(root.join(folder)).unwrap());
        }
        tree::file(&pair.source.join("first/file"), b"new content");
        fs::hard_link(pair.source.join("first/file"), pair.source.join("second/name")).unwrap();
        tree::file(&pair.destination.join("first/file"), b"old");
        tree::file(&pair.destination.join("second/name"), b"another file");
        [&pair.source, &pair.destination].iter().for_each(|root| scratch::give_to_nobody(root));
        let locked = pair.destination.join("first");
        chown(&locked, Some(0), Some(0)).unwrap();
        tree::set_mode(&locked, 0o555);
        let run = pair.run_to(ExitCode::Partial, &[]);
        let read = |path: &str| fs::read(pair.destination.join(path)).unwrap();
        assert_eq!((read("first/file"), read("second/name")), (b"old".into(), b"another file".into()));
        assert!(run.report().failures.iter().any(|it| it.path == "second/name"), "{:?}", pair.way);
        scratch::give_to_nobody(&locked);
        tree::set_mode(&locked, 0o755);
        pair.sync("once the folder can be written");
    }
}

#[test]
fn a_file_that_is_replaced_keeps_its_names() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        linked(&pair);
        tree::set_mode(&pair.source.join("c/deep"), 0o555);
        pair.sync("a folder without write permission");
        fs::write(pair.source.join("b/file"), "new content").unwrap();
        pair.sync("new content under one of its names");
        assert!(is_one_file(&pair.destination, &["a/file", "b/file", "c/deep/file", "a/second"]), "{way:?}");
        pair.sync_unchanged("again");
    }
}

#[test]
fn a_file_whose_first_name_is_gone_does_not_move() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        linked(&pair);
        fs::remove_file(pair.source.join("a/file")).unwrap();
        assert_eq!(pair.sync("the first name is gone").work.bytes_changed, 0, "{way:?}");
        fs::remove_dir_all(pair.source.join("a")).unwrap();
        assert_eq!(pair.sync("the folder of the first name is gone").work.bytes_changed, 0, "{way:?}");
        fs::hard_link(pair.source.join("c/deep/file"), pair.source.join("0")).unwrap();
        // The content is published under the first name, so this writes it again.
        pair.sync("a name before all others");
        pair.sync_unchanged("again");
    }
}

#[test]
fn names_that_part_at_the_source_part_at_the_destination() {
    for pair in Pair::each(Way::ALL) {
        linked(&pair);
        // Each becomes a file of its own with the same content and time.
        for name in ["b/file", "a/file"] {
            let path = pair.source.join(name);
            let mtime = fs::metadata(&path).unwrap();
            fs::remove_file(&path).unwrap();
            tree::file(&path, &CONTENT);
            tree::set_mtime(&path, mtime.mtime(), mtime.mtime_nsec());
            pair.sync(&format!("{name} is alone"));
        }
        pair.sync_unchanged("again");
    }
}

#[test]
fn folders_that_move_take_their_names_along() {
    for pair in Pair::each(Way::ALL) {
        linked(&pair);
        let root = &pair.source;
        fs::rename(root.join("c"), root.join("moved")).unwrap();
        pair.sync("a folder with a later name");
        fs::rename(root.join("moved"), root.join("c")).unwrap();
        tree::file(&root.join("a/file"), b"new content");
        pair.sync("the same, and new content");
        // The first names are in a folder that moves, and another name becomes a file of its own with the same content
        // and time.
        fs::rename(root.join("a"), root.join("0")).unwrap();
        let (path, mtime) = (root.join("b/file"), fs::metadata(root.join("b/file")).unwrap());
        fs::remove_file(&path).unwrap();
        tree::file(&path, b"new content");
        tree::set_mtime(&path, mtime.mtime(), mtime.mtime_nsec());
        pair.sync("the folder of the first names");
        pair.sync_unchanged("again");
    }
}

#[test]
fn two_files_that_the_destination_has_as_one_become_two() {
    for pair in Pair::each(Way::ALL) {
        for name in ["1", "2", "3", "4"] {
            tree::file(&pair.source.join(name), &CONTENT);
            tree::set_mtime(&pair.source.join(name), 5, 5);
        }
        pair.sync("before");
        for name in ["2", "3", "4"] {
            fs::remove_file(pair.destination.join(name)).unwrap();
            fs::hard_link(pair.destination.join("1"), pair.destination.join(name)).unwrap();
        }
        fs::remove_file(pair.source.join("4")).unwrap();
        fs::hard_link(pair.source.join("3"), pair.source.join("4")).unwrap();
        pair.sync("linked by somebody else");
        pair.sync_unchanged("again");
    }
}

#[test]
fn names_that_were_copied_at_the_destination_are_linked_again() {
    for pair in Pair::each(Way::ALL) {
        linked(&pair);
        for name in ["a/file", "c/deep/file"] {
            let path = pair.destination.join(name);
            fs::remove_file(&path).unwrap();
            tree::file(&path, b"by somebody else");
        }
        pair.sync("copied by somebody else");
        fs::remove_file(pair.destination.join("b/file")).unwrap();
        fs::create_dir(pair.destination.join("b/file")).unwrap();
        fs::remove_file(pair.destination.join("a/second")).unwrap();
        let _socket = UnixListener::bind(pair.destination.join("a/second")).unwrap();
        pair.sync("other kinds in their places");
        pair.sync_unchanged("again");
    }
}

#[test]
fn a_name_that_is_left_out_is_no_name() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        tree::file(&pair.source.join("a.tmp"), &CONTENT);
        fs::hard_link(pair.source.join("a.tmp"), pair.source.join("file")).unwrap();
        fs::hard_link(pair.source.join("a.tmp"), pair.dir().join("outside")).unwrap();
        let run = pair.done(&["--exclude=*.tmp"]);
        assert_eq!(fs::read(pair.destination.join("file")).unwrap(), CONTENT, "{way:?}");
        assert_eq!(run.report().work.bytes_total, CONTENT.len() as u64);
        assert_eq!(pair.run(&["--exclude=*.tmp"]).report().work.files_updated, 0, "{way:?}");
    }
}

#[test]
fn links_that_are_not_wanted_become_files() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        tree::file(&pair.source.join("file"), &CONTENT);
        fs::hard_link(pair.source.join("file"), pair.source.join("name")).unwrap();
        pair.done(&["--no-hard-links"]);
        assert!(!is_one_file(&pair.destination, &["file", "name"]), "{way:?}");
        let before = Snapshot::of(&pair.destination);
        before.assert_like(&Snapshot::of(&pair.source), Aspects { links: false, ..COPY }, "files");
        pair.done(&["--no-hard-links"]);
        Snapshot::of(&pair.destination).assert_like(&before, UNTOUCHED, "again");
    }
}

#[test]
fn without_delete_what_only_the_destination_has_keeps_its_file() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        linked(&pair);
        fs::hard_link(pair.destination.join("a/file"), pair.destination.join("theirs")).unwrap();
        fs::remove_file(pair.source.join("b/file")).unwrap();
        fs::write(pair.source.join("a/file"), "new content").unwrap();
        pair.done(&[]);
        for name in ["a/file", "a/second", "c/deep/file"] {
            assert_eq!(fs::read(pair.destination.join(name)).unwrap(), b"new content", "{way:?}: {name}");
        }
        assert!(is_one_file(&pair.destination, &["a/file", "a/second", "c/deep/file"]), "{way:?}");
        for name in ["theirs", "b/file"] {
            assert_eq!(fs::read(pair.destination.join(name)).unwrap(), CONTENT, "{way:?}: {name}");
        }
    }
}

#[test]
fn a_user_without_privileges_keeps_links() {
    for way in Way::ALL {
        let pair = Pair::unprivileged(way);
        tree::file(&pair.source.join("file"), b"content");
        fs::hard_link(pair.source.join("file"), pair.source.join("name")).unwrap();
        fs::create_dir(pair.source.join("locked")).unwrap();
        fs::hard_link(pair.source.join("file"), pair.source.join("locked/name")).unwrap();
        scratch::give_to_nobody(&pair.source);
        tree::set_mode(&pair.source.join("locked"), 0o555);
        pair.sync("before");
        fs::write(pair.source.join("file"), "new content").unwrap();
        pair.sync("new content");
        pair.sync_unchanged("again");
    }
}

#[test]
fn without_hard_links_names_of_one_file_at_the_destination_are_separated() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        for (name, mode) in [("a", 0o644), ("b", 0o600), ("c", 0o640)] {
            tree::file(&pair.source.join(name), &CONTENT);
            tree::set_mode(&pair.source.join(name), mode);
            tree::set_mtime(&pair.source.join(name), 1_000_000, 7);
        }
        tree::file(&pair.destination.join("a"), &CONTENT);
        tree::set_mtime(&pair.destination.join("a"), 1_000_000, 7);
        ["b", "c"].iter().for_each(|name| {
            fs::hard_link(pair.destination.join("a"), pair.destination.join(name)).unwrap();
        });
        pair.done(&["--no-hard-links"]);
        pair.assert_copy("names apart");
        let again = pair.done(&["--no-hard-links"]);
        assert_eq!(again.report().work.files_updated, 0, "{way:?}");
    }
}

/// A name of a file leaves it in the same run, which moves the file's change time.
#[test]
fn a_file_that_gets_rights_and_loses_a_name_is_not_taken_for_another_process_work() {
    let Some(()) = scratch::needs_root() else { return };
    for (way, other_name) in Way::ALL.iter().flat_map(|way| [(*way, false), (*way, true)]) {
        let pair = Pair::new(way);
        let given = pair.source.join("given");
        tree::file(&given, b"content");
        chown(&given, Some(1000), Some(1000)).unwrap();
        tree::set_mode(&given, 0o4755);
        fs::hard_link(&given, pair.source.join("kept")).unwrap();
        let there = pair.destination.join("given");
        tree::file(&there, b"content");
        let time = fs::metadata(&given).unwrap().modified().unwrap();
        fs::File::open(&there).unwrap().set_modified(time).unwrap();
        ["kept", "lost"].iter().for_each(|name| {
            fs::hard_link(&there, pair.destination.join(name)).unwrap();
        });
        if other_name {
            tree::file(&pair.source.join("lost"), b"another file");
        }
        let backup = format!("--backup-dir={}", text(&pair.dir().join("old")));
        let flags = ["--delete=before", &backup];
        let flags = if way == Way::Local { &flags[..] } else { &flags[..1] };
        pair.done(flags);
        let stat = fs::metadata(&there).unwrap();
        assert_eq!((stat.uid(), stat.mode() & 0o7777, stat.nlink()), (1000, 0o4755, 2), "{way:?}");
        assert!(is_one_file(&pair.destination, &["given", "kept"]), "{way:?}");
        assert_eq!(fs::read(&there).unwrap(), b"content");
        pair.sync_unchanged("again");
    }
}

#[test]
fn a_newer_file_of_several_names_is_left_alone_where_that_is_asked_for() {
    let newer = |path: &Path| {
        tree::file(path, b"newer");
        tree::set_mtime(path, 2_000_000, 0);
    };
    for way in Way::EACH {
        let linked_source = || {
            let pair = Pair::new(way);
            tree::file(&pair.source.join("a"), &CONTENT);
            tree::set_mtime(&pair.source.join("a"), 1_000_000, 0);
            fs::hard_link(pair.source.join("a"), pair.source.join("b")).unwrap();
            pair
        };
        for (own, other) in [("b", "a"), ("a", "b")] {
            let pair = linked_source();
            newer(&pair.destination.join(own));
            pair.done(&["--update"]);
            assert_eq!(fs::read(pair.destination.join(own)).unwrap(), b"newer", "{way:?} {own}");
            assert_eq!(fs::read(pair.destination.join(other)).unwrap(), CONTENT, "{way:?} {other}");
        }
        let pair = Pair::new(way);
        for name in ["a", "b"] {
            tree::file(&pair.source.join(name), &CONTENT);
            tree::set_mtime(&pair.source.join(name), 1_000_000, 0);
        }
        newer(&pair.destination.join("a"));
        fs::hard_link(pair.destination.join("a"), pair.destination.join("b")).unwrap();
        pair.done(&["--update"]);
        assert_eq!(fs::read(pair.destination.join("b")).unwrap(), b"newer", "{way:?}: both names are newer");
    }
}

/// Makes a pair whose source has one name of a file, and whose destination has two.
fn with_more_names_at_the_destination(way: Way) -> Pair {
    let pair = Pair::new(way);
    tree::file(&pair.source.join("a"), &CONTENT);
    fs::hard_link(pair.source.join("a"), pair.source.join("b")).unwrap();
    pair.sync("both names");
    fs::remove_file(pair.source.join("a")).unwrap();
    pair
}

#[test]
fn a_file_that_has_more_names_at_the_destination_is_equal_and_moves() {
    for way in Way::EACH {
        let pair = with_more_names_at_the_destination(way);
        pair.done(&["--verify"]);
        pair.done(&["--remove-source-files"]);
        assert!(!pair.source.join("b").exists() && pair.destination.join("b").exists(), "{way:?}");
        pair.assert_staging_empty();
    }
}

#[test]
fn damage_of_a_file_that_has_more_names_at_the_destination_is_found() {
    for way in Way::EACH {
        let pair = with_more_names_at_the_destination(way);
        let damaged = fs::File::options().write(true).open(pair.destination.join("b")).unwrap();
        let time = damaged.metadata().unwrap().modified().unwrap();
        damaged.write_all_at(b"damage", 100).unwrap();
        damaged.set_modified(time).unwrap();
        for flags in [&["--verify"][..], &["--verify", "--dry-run"]] {
            let run = pair.run_to(ExitCode::Partial, flags);
            assert_eq!(run.report().work.files_failed, 1, "{way:?} {flags:?}");
        }
    }
}

#[test]
fn a_name_of_a_file_that_did_not_arrive_leads_to_no_other_file() {
    for pair in Pair::each_unprivileged() {
        tree::files(&pair.source, &["a", "folder/stays"], "content");
        fs::hard_link(pair.source.join("a"), pair.source.join("folder/b")).unwrap();
        tree::files(&pair.destination, &["a"], "older");
        tree::file(&pair.destination.join("b"), b"precious");
        fs::create_dir(pair.destination.join("folder")).unwrap();
        fs::rename(pair.destination.join("b"), pair.destination.join("folder/b")).unwrap();
        [&pair.source, &pair.destination].into_iter().for_each(|root| scratch::give_to_nobody(root));
        chown(pair.source.join("a"), Some(0), Some(0)).unwrap();
        tree::set_mode(&pair.source.join("a"), 0o600);
        let run = pair.run_to(ExitCode::Partial, &[]);
        let failures = &run.report().failures;
        assert_eq!(failures.len(), 2, "{failures:?}");
        let of_link = &failures[1];
        assert_eq!((&*of_link.path, &*of_link.operation), ("folder/b", "link"), "{failures:?}");
        assert!(of_link.error.contains("a further name of a, which has not arrived"), "{failures:?}");
        let content = |name: &str| fs::read(pair.destination.join(name)).unwrap();
        assert_eq!((content("a"), content("folder/b")), (b"older".to_vec(), b"precious".to_vec()));
        scratch::give_to_nobody(&pair.source);
        pair.sync("once it can be read");
    }
}

#[test]
fn a_further_name_is_never_one_of_what_has_the_place_of_the_first() {
    for way in Way::ALL {
        for there in ["nothing", "another file", "names of another file"] {
            let pair = Pair::new(way);
            tree::file(&pair.source.join("a"), b"content");
            ["y", "z"]
                .iter()
                .for_each(|name| fs::hard_link(pair.source.join("a"), pair.source.join(name)).unwrap());
            tree::pipe(&pair.destination.join("a"));
            match there {
                "another file" => tree::file(&pair.destination.join("z"), b"other"),
                "names of another file" => {
                    tree::file(&pair.destination.join("y"), b"other");
                    fs::hard_link(pair.destination.join("y"), pair.destination.join("z")).unwrap();
                }
                _ => {}
            }
            let before = Snapshot::of(&pair.destination);
            let flags = ["--no-specials", "--delete", "--delete-limit=100"];
            for flags in [&[&flags[..], &["--dry-run"]].concat()[..], &flags] {
                let run = pair.run_to(ExitCode::Partial, flags);
                let failures = &run.report().failures;
                let of: Vec<_> = failures.iter().map(|it| (&*it.path, &*it.operation)).collect();
                assert_eq!(of, [("a", "make"), ("y", "link"), ("z", "link")], "{way:?}, {there}");
                let work = run.report().work;
                assert_eq!((work.files_created, work.files_updated), (0, 0), "{way:?}, {there}");
            }
            let after = Snapshot::of(&pair.destination);
            assert_eq!(after.paths(), before.paths(), "{way:?}, {there}");
            assert!(
                before.paths().iter().all(|path| before.at(path.as_bytes()) == after.at(path.as_bytes()))
            );
        }
    }
}
