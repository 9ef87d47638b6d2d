//! A run that fails in part deletes nothing, and reports that.

use crate::{common::prelude::*, rehearsals::told};

/// Makes a pair in step, whose source then loses four entries (a file takes the name of one folder) and gets a file
/// that cannot be read.
fn with_a_secret(pair: &Pair) {
    for dir in ["gone", "folder"] {
        fs::create_dir(pair.source.join(dir)).unwrap();
        tree::file(&pair.source.join(dir).join("below"), b"content");
    }
    tree::file(&pair.source.join("old"), b"content");
    tree::file(&pair.source.join("updated"), b"content");
    scratch::give_to_nobody(&pair.source);
    pair.sync("before");
    for dir in ["gone", "folder"] {
        fs::remove_dir_all(pair.source.join(dir)).unwrap();
    }
    fs::remove_file(pair.source.join("old")).unwrap();
    tree::file(&pair.source.join("folder"), b"a file now");
    tree::file(&pair.source.join("updated"), b"other content");
    tree::file(&pair.source.join("secret"), b"what replaces old");
    scratch::give_to_nobody(&pair.source);
    tree::set_mode(&pair.source.join("secret"), 0);
}

const DELETE: [&str; 2] = ["--delete", "--delete-limit=100"];

#[test]
fn a_run_that_could_not_read_a_file_deletes_nothing() {
    for pair in Pair::each_unprivileged() {
        with_a_secret(&pair);
        let run = pair.run_to(ExitCode::Partial, &DELETE);
        let report = run.report();
        let counts = (report.work.deletes_kept_back, report.work.files_failed, report.work.files_deleted);
        assert_eq!(counts, (4, 1, 0), "{:?}: {report:?}", pair.way);
        let said = "4 deletes kept back because 1 file failed, first secret: ";
        assert!(report.message.starts_with(said), "{}", report.message);
        assert_eq!(fs::read(pair.destination.join("updated")).unwrap(), b"other content");
        for kept in ["old", "gone/below", "folder/below"] {
            assert_eq!(fs::read(pair.destination.join(kept)).unwrap(), b"content", "{:?}: {kept}", pair.way);
        }
        pair.assert_staging_empty();

        let run = pair.run_to(ExitCode::Partial, &[&DELETE[..], &["--delete-anyway"]].concat());
        let work = run.report().work;
        assert_eq!((work.deletes_kept_back, work.files_deleted), (0, 4), "{:?}", pair.way);
        assert_eq!(fs::read(pair.destination.join("folder")).unwrap(), b"a file now");

        tree::set_mode(&pair.source.join("secret"), 0o644);
        pair.sync("once all can be read");
    }
}

#[test]
fn a_folder_stays_as_long_as_the_file_that_replaces_it_cannot_be_read() {
    for pair in Pair::each_unprivileged() {
        with_a_secret(&pair);
        tree::set_mode(&pair.source.join("folder"), 0);
        tree::set_mode(&pair.source.join("secret"), 0o644);
        for flags in [&DELETE[..], &[&DELETE[..], &["--delete-anyway"]].concat()] {
            pair.run_to(ExitCode::Partial, flags);
            assert_eq!(
                fs::read(pair.destination.join("folder/below")).unwrap(),
                b"content",
                "{:?}",
                pair.way
            );
        }
        assert!(!pair.destination.join("old").exists());
        tree::set_mode(&pair.source.join("folder"), 0o644);
        pair.sync("once it can be read");
    }
}

#[test]
fn what_was_brought_for_a_folder_that_is_dropped_is_not_counted() {
    for pair in Pair::each_unprivileged() {
        fs::create_dir_all(pair.source.join("folder/below")).unwrap();
        for name in ["folder/below/one", "folder/two"] {
            tree::file(&pair.source.join(name), b"content");
        }
        tree::file(&pair.source.join("secret"), b"nobody may read it");
        symlink("elsewhere", pair.destination.join("folder")).unwrap();
        scratch::give_to_nobody(&pair.source);
        scratch::give_to_nobody(&pair.destination);
        tree::set_mode(&pair.source.join("secret"), 0);
        let work = pair.run_to(ExitCode::Partial, &DELETE).report().work;
        assert_eq!((work.files_created, work.files_updated), (0, 0), "{:?}", pair.way);
        assert!(pair.destination.join("folder").is_symlink(), "{:?}", pair.way);
        tree::set_mode(&pair.source.join("secret"), 0o644);
        let work = pair.run_to(ExitCode::Done, &DELETE).report().work;
        assert_eq!((work.files_created, work.files_updated), (4, 1), "{:?}", pair.way);
    }
}

#[test]
fn a_folder_that_cannot_be_listed_keeps_deletes_elsewhere_back_as_a_dry_run_says() {
    for pair in Pair::each_unprivileged() {
        with_a_secret(&pair);
        tree::set_mode(&pair.source.join("secret"), 0o644);
        fs::create_dir(pair.source.join("closed")).unwrap();
        scratch::give_to_nobody(&pair.source);
        tree::set_mode(&pair.source.join("closed"), 0);
        let before = Snapshot::of(&pair.destination);
        let foretold = pair.run(&[&DELETE[..], &["--dry-run"]].concat());
        Snapshot::of(&pair.destination).assert_like(&before, UNTOUCHED, "a dry run");
        let run = pair.run(&DELETE);
        for run in [&foretold, &run] {
            run.assert_exit(ExitCode::Partial);
            let work = run.report().work;
            let counts = (work.deletes_kept_back, work.files_deleted, work.files_failed);
            assert_eq!(counts, (4, 0, 1), "{:?}", pair.way);
        }
        assert!(pair.destination.join("folder/below").exists());
        tree::set_mode(&pair.source.join("closed"), 0o755);
        tree::set_mode(&pair.destination.join("closed"), 0o755);
        pair.sync("once it can be listed");
    }
}

#[test]
fn whatever_replaces_a_folder_arrives() {
    for pair in Pair::each(Way::ALL) {
        for dir in ["file", "large", "link", "pipe", "name", "name of name"] {
            fs::create_dir_all(pair.source.join(dir).join("deep")).unwrap();
            tree::file(&pair.source.join(dir).join("deep/file"), b"content");
        }
        tree::file(&pair.source.join("there"), b"content");
        pair.sync("before");
        for dir in ["file", "large", "link", "pipe", "name", "name of name"] {
            fs::remove_dir_all(pair.source.join(dir)).unwrap();
        }
        tree::file(&pair.source.join("file"), b"a file now");
        tree::file(&pair.source.join("large"), &vec![7; 3 << 20]);
        symlink("there", pair.source.join("link")).unwrap();
        tree::pipe(&pair.source.join("pipe"));
        fs::hard_link(pair.source.join("there"), pair.source.join("name")).unwrap();
        fs::hard_link(pair.source.join("file"), pair.source.join("name of name")).unwrap();
        fs::hard_link(pair.source.join("file"), pair.source.join("third")).unwrap();
        pair.sync("after");
        let inode = |name: &str| fs::metadata(pair.destination.join(name)).unwrap().ino();
        assert_eq!(
            (inode("name"), inode("name of name"), inode("third")),
            (inode("there"), inode("file"), inode("file"))
        );
    }
}

#[test]
fn a_folder_that_may_not_be_emptied_stays_whole_as_a_dry_run_says() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        for dir in ["spared", "folder"] {
            fs::create_dir(pair.destination.join(dir)).unwrap();
            tree::file(&pair.destination.join(dir).join("file"), b"content");
            tree::file(&pair.source.join(dir), b"a file here");
        }
        tree::file(&pair.destination.join("spared/kept.tmp"), b"content");
        for (flags, failed) in
            [(&["--exclude=*.tmp"][..], 2), (&["--exclude=*.tmp", "--delete", "--delete-limit=100"], 1)]
        {
            let foretold = pair.run(&[flags, &["--dry-run"]].concat());
            let run = pair.run(flags);
            for run in [&foretold, &run] {
                run.assert_exit(ExitCode::Partial);
                let report = run.report();
                assert_eq!(report.work.files_failed, failed, "{way:?}, {flags:?}: {report:?}");
                assert!(report.failures.iter().all(|failure| failure.operation == "make way"), "{report:?}");
            }
            assert_eq!(foretold.report().failures, run.report().failures, "{way:?}");
            assert!(pair.destination.join("folder/file").exists(), "{way:?}, {flags:?}");
            assert!(pair.destination.join("spared/file").exists(), "{way:?}, {flags:?}");
        }
    }
}

#[test]
fn a_further_name_of_an_entry_that_a_folder_keeps_out_is_named_as_a_dry_run_does() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        for dir in ["a", "z"] {
            fs::create_dir(pair.destination.join(dir)).unwrap();
            tree::file(&pair.destination.join(dir).join("file"), b"content");
        }
        tree::file(&pair.destination.join("a/kept.tmp"), b"content");
        tree::file(&pair.destination.join("extra"), b"content");
        tree::file(&pair.source.join("a"), b"a file here");
        ["y", "z"]
            .iter()
            .for_each(|name| fs::hard_link(pair.source.join("a"), pair.source.join(name)).unwrap());
        let before = Snapshot::of(&pair.destination);
        for more in [&[][..], &["--delete-anyway", "--exclude=/extra"]] {
            let flags = [&DELETE[..], &["--exclude=*.tmp", "-v"], more].concat();
            for flags in [&[&flags[..], &["--dry-run"]].concat(), &flags] {
                let run = pair.run_to(ExitCode::Partial, flags);
                let failures = &run.report().failures;
                let of: Vec<_> = failures.iter().map(|it| (&*it.path, &*it.operation)).collect();
                assert_eq!(of, [("a", "make way"), ("y", "link"), ("z", "link")], "{way:?}, {flags:?}");
                assert_eq!(
                    told(&run).iter().filter(|it| it.path != ".").count(),
                    0,
                    "{flags:?}: {:?}",
                    told(&run)
                );
            }
            assert_eq!(Snapshot::of(&pair.destination).paths(), before.paths(), "{way:?}, {more:?}");
        }
    }
}

/// Makes a tree for every kind of work below `dir`: small and large files, names of one file, a folder that the run
/// could move.
fn fill_folder(dir: &Path) {
    fs::create_dir_all(dir.join("deep/deeper")).unwrap();
    (0..6).for_each(|n| tree::file(&dir.join("deep/deeper").join(n.to_string()), b"small content"));
    tree::file(&dir.join("large"), &vec![7; 3 << 20]);
    fs::hard_link(dir.join("large"), dir.join("deep/link")).unwrap();
    symlink("large", dir.join("symlink")).unwrap();
}

#[test]
fn a_folder_replaces_a_file_with_all_that_is_in_it() {
    for pair in Pair::each(Way::ALL) {
        tree::file(&pair.source.join("file"), b"content");
        tree::file(&pair.source.join("flat"), b"content");
        symlink("file", pair.source.join("link")).unwrap();
        fs::create_dir(pair.source.join("moved")).unwrap();
        (0..6).for_each(|n| tree::file(&pair.source.join("moved").join(n.to_string()), b"moves along"));
        pair.sync("before");
        for name in ["file", "flat", "link"] {
            fs::remove_file(pair.source.join(name)).unwrap();
        }
        fill_folder(&pair.source.join("file"));
        fs::rename(pair.source.join("moved"), pair.source.join("file/moved")).unwrap();
        fs::create_dir(pair.source.join("flat")).unwrap();
        (0..6).for_each(|n| tree::file(&pair.source.join("flat").join(n.to_string()), b"small content"));
        fs::create_dir(pair.source.join("link")).unwrap();
        fs::hard_link(pair.source.join("file/large"), pair.source.join("outside")).unwrap();
        pair.sync("after");
        pair.sync_unchanged("after");
    }
}

#[test]
fn a_file_stays_as_long_as_the_folder_that_replaces_it_has_not_arrived() {
    for pair in Pair::each_unprivileged() {
        tree::file(&pair.source.join("file"), b"content");
        fs::create_dir(pair.source.join("moved")).unwrap();
        (0..6).for_each(|n| tree::file(&pair.source.join("moved").join(n.to_string()), b"moves along"));
        scratch::give_to_nobody(&pair.source);
        pair.sync("before");
        fs::remove_file(pair.source.join("file")).unwrap();
        fill_folder(&pair.source.join("file"));
        fs::rename(pair.source.join("moved"), pair.source.join("file/moved")).unwrap();
        tree::file(&pair.source.join("file/secret"), b"what the file held");
        scratch::give_to_nobody(&pair.source);
        tree::set_mode(&pair.source.join("file/secret"), 0);

        let run = pair.run_to(ExitCode::Partial, &DELETE);
        assert_eq!(fs::read(pair.destination.join("file")).unwrap(), b"content", "{:?}", pair.way);
        assert_eq!(fs::read(pair.destination.join("moved/0")).unwrap(), b"moves along", "{:?}", pair.way);
        let notes = &run.report().notes;
        assert!(
            notes.iter().any(|note| note.starts_with("1 entry stays that a folder is to replace")),
            "{notes:?}"
        );
        pair.assert_staging_empty();

        pair.run_to(ExitCode::Partial, &[&DELETE[..], &["--delete-anyway"]].concat());
        assert_eq!(fs::read(pair.destination.join("file/moved/0")).unwrap(), b"moves along");
        tree::set_mode(&pair.source.join("file/secret"), 0o644);
        pair.sync("once it can be read");
    }
}
