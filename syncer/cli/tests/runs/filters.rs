//! An excluded entry is neither sent, nor changed, nor deleted.

use std::time::SystemTime;

use contract::Work;

use crate::common::prelude::*;
use crate::common::tree::files;

fn read(root: &Path, path: &str) -> String {
    fs::read_to_string(root.join(path)).unwrap_or_else(|error| error.to_string())
}

#[test]
fn what_is_excluded_is_neither_sent_nor_changed_nor_deleted() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        files(
            &pair.source,
            &["keep", "new.tmp", "both.tmp", "cache/a", "sub/deep.tmp", "sub/keep"],
            "source",
        );
        files(
            &pair.destination,
            &["both.tmp", "theirs.tmp", "cache/b", "sub/gone", "other/x.tmp"],
            "destination",
        );
        let before = Snapshot::of(&pair.destination);
        let flags = ["--delete", "--delete-limit=100", "--exclude=*.tmp", "--exclude=/cache/"];
        let run = pair.done(&flags);
        for path in ["keep", "sub/keep"] {
            assert_eq!(read(&pair.destination, path), "source", "{way:?}: {path}");
        }
        for path in ["new.tmp", "sub/deep.tmp", "cache/a", "sub/gone"] {
            assert!(!pair.destination.join(path).exists(), "{way:?}: {path}");
        }
        let after = Snapshot::of(&pair.destination);
        for path in ["both.tmp", "theirs.tmp", "cache", "cache/b", "other/x.tmp"] {
            let path = path.as_bytes();
            assert!(before.at(path) == after.at(path), "{way:?}: {} was touched", path.escape_ascii());
        }
        let work = run.report().work;
        let counts = (work.files_scanned, work.files_created, work.files_deleted, work.files_failed);
        assert_eq!(counts, (3, 2, 1, 0), "{way:?}: keep, sub and sub/keep; keep and sub/keep; sub/gone");
    }
}

#[test]
fn a_directory_stays_for_what_is_excluded_in_it_and_the_rest_of_it_goes() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        files(&pair.source, &["keep"], "source");
        files(&pair.destination, &["gone/a", "gone/b/c", "gone/b/kept.tmp"], "destination");
        tree::set_mode(&pair.destination.join("gone/b"), 0o555);
        for turn in ["first", "second"] {
            let changed =
                || fs::metadata(pair.destination.join("gone/b")).map(|it| (it.ctime(), it.ctime_nsec()));
            let before = changed().unwrap();
            let run = pair.done(&["--delete", "--delete-limit=100", "--exclude=*.tmp"]);
            assert!(turn == "first" || changed().unwrap() == before, "{way:?}: the second run touched it");
            let there = Snapshot::of(&pair.destination);
            assert_eq!(there.paths(), ["gone", "gone/b", "gone/b/kept.tmp", "keep"], "{way:?}, {turn} run");
            assert_eq!(there.at(b"gone/b").unwrap().mode, 0o555, "{way:?}, {turn} run");
            let deleted = run.report().work.files_deleted;
            assert_eq!(deleted, if turn == "first" { 2 } else { 0 }, "{way:?}, {turn} run");
        }
    }
}

#[test]
fn a_directory_that_holds_what_is_excluded_does_not_give_way_to_a_file() {
    for pair in Pair::each(Way::ALL) {
        files(&pair.source, &["x", "y"], "source");
        files(&pair.destination, &["x/kept.tmp"], "destination");
        let run = pair.run_to(ExitCode::Partial, &["--delete", "--delete-limit=100", "--exclude=*.tmp"]);
        assert_eq!(read(&pair.destination, "x/kept.tmp"), "destination");
        assert_eq!(read(&pair.destination, "y"), "source");
        let [failure] = run.report().failures.as_slice() else { panic!("{:?}", run.report().failures) };
        assert_eq!((failure.path.as_str(), failure.operation.as_str()), ("x", "make way"));
    }
}

#[test]
fn an_include_list_leaves_the_rest_alone() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        files(
            &pair.source,
            &["docs/a.md", "docs/deep/b.md", "src/main.rs", "README.md", "docs/c.bak"],
            "source",
        );
        files(&pair.destination, &["docs/old.md", "src/main.rs", "other/file"], "destination");
        let flags =
            ["--delete", "--delete-limit=100", "--include=/docs", "--include=*.md", "--exclude=*.bak"];
        pair.done(&flags);
        for path in ["docs/a.md", "docs/deep/b.md", "README.md"] {
            assert_eq!(read(&pair.destination, path), "source", "{way:?}: {path}");
        }
        for path in ["src/main.rs", "other/file"] {
            assert_eq!(read(&pair.destination, path), "destination", "{way:?}: {path}");
        }
        for path in ["docs/old.md", "docs/c.bak"] {
            assert!(!pair.destination.join(path).exists(), "{way:?}: {path}");
        }
        let again = pair.done(&flags);
        let work = again.report().work;
        assert_eq!((work.files_created, work.files_updated, work.files_deleted), (0, 0, 0), "{way:?}");
    }
}

#[test]
fn a_later_pattern_takes_an_earlier_one_back() {
    for pair in Pair::each(Way::ALL) {
        files(&pair.source, &["a.log", "keep.log", "-x"], "source");
        pair.done(&["--exclude=*.log", "--exclude=!keep.log", "--exclude=-x"]);
        assert_eq!(Snapshot::of(&pair.destination).paths(), ["keep.log"]);
    }
}

#[test]
fn a_pattern_that_is_none_is_refused_as_a_wrong_command_line() {
    for pair in Pair::each(Way::ALL) {
        files(&pair.source, &["a"], "source");
        pair.sync("before");
        files(&pair.source, &["b"], "source");
        for flag in ["--exclude=", "--include=#x"] {
            let run = pair.refuse(&[flag], ExitCode::Usage, "InvalidPattern");
            run.ends().for_each(|end| {
                let message = &end.report().message;
                assert!(message.contains("matches nothing"), "{message}");
            });
        }
    }
}

#[test]
fn rules_of_rsync_are_refused_before_anything_is_deleted() {
    for pair in Pair::each(Way::ALL) {
        files(&pair.source, &["a"], "source");
        pair.sync("before");
        files(&pair.destination, &["q/x.tmp", "sub/f"], "destination");
        for (flags, reason) in [
            (&["--exclude=- *.tmp"][..], "RsyncPattern"),
            (&["--include=+ *.jpg"], "RsyncPattern"),
            (&["--exclude=./sub"], "InvalidPattern"),
            (&["--exclude=x[ab"], "InvalidPattern"),
            (&["--include=*.jpg", "--exclude=*"], "NothingIncluded"),
        ] {
            let all = [&["--delete", "--force"], flags].concat();
            let run = pair.refuse(&all, ExitCode::Usage, reason);
            run.ends().for_each(|end| assert!(end.stderr.contains("\nhint: "), "{}", end.stderr));
        }
        let list = pair.dir().join("rules");
        fs::write(&list, "*.o\n- *.tmp\n").unwrap();
        let flag = format!("--exclude-from={}", list.display());
        let [from, to] = [&pair.source, &pair.destination].map(|path| path.to_str().unwrap());
        let output = pair.output(&["sync", "--delete", "--force", &flag, from, to]);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("rules, line 2") && stderr.contains("hint: "), "{stderr}");
        assert_eq!(read(&pair.destination, "q/x.tmp"), "destination");
    }
}

#[test]
fn a_pattern_that_matches_nothing_or_less_than_in_rsync_is_noted() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        files(&pair.source, &["a/b/f", "x.tmp"], "source");
        files(&pair.destination, &["q/a/b/f", "y.bak"], "destination");
        let patterns = ["--exclude=a/b", "--exclude=*.tmp", "--exclude=*.bak", "--exclude=*.orig"];
        let run = pair.done(&patterns);
        let [idle, deeper] = run.report().notes.as_slice() else { panic!("{:?}", run.report().notes) };
        assert_eq!(idle, "the pattern `*.orig` matched nothing", "{way:?}");
        assert!(deeper.contains("does not match q/a/b") && deeper.contains("`**/a/b`"), "{way:?}: {deeper}");
        let run = pair.run(&["--exclude=/a/b", "--exclude=**/a/b", "--exclude=*.tmp"]);
        assert_eq!(run.report().notes, [] as [&str; 0], "{way:?}");
    }
}

#[test]
fn a_file_outside_of_the_size_limits_is_neither_sent_nor_changed_nor_deleted() {
    let sizes = |root: &Path, files: &[(&str, usize)]| {
        files.iter().for_each(|(path, size)| {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            tree::file(&root.join(path), &vec![b's'; *size]);
        });
    };
    for way in Way::ALL {
        let pair = Pair::new(way);
        sizes(
            &pair.source,
            &[("small", 9), ("least", 10), ("d/most", 2048), ("d/large", 2049), ("grew", 5000)],
        );
        sizes(
            &pair.destination,
            &[("grew", 100), ("least", 3), ("theirs", 9), ("gone", 10), ("old/a", 5), ("old/b", 50)],
        );
        let before = Snapshot::of(&pair.destination);
        let flags = ["--delete", "--delete-limit=100", "--min-size=10", "--max-size=2Ki"];
        for turn in ["first", "second"] {
            let run = pair.done(&flags);
            let there = Snapshot::of(&pair.destination);
            assert_eq!(
                there.paths(),
                ["d", "d/most", "grew", "least", "old", "old/a", "theirs"],
                "{way:?}, {turn} run"
            );
            for path in ["grew", "theirs", "old/a"] {
                assert!(
                    before.at(path.as_bytes()) == there.at(path.as_bytes()),
                    "{way:?}: {path} was touched"
                );
            }
            assert_eq!(read(&pair.destination, "least").len(), 10);
            let Work { files_created, files_updated, files_deleted, .. } = run.report().work;
            let counts = (files_created, files_updated, files_deleted);
            assert_eq!(counts, if turn == "first" { (2, 1, 2) } else { (0, 0, 0) }, "{way:?}, {turn} run");
        }
    }
}

/// Makes a source with ignore files at several levels.
fn ignoring(pair: &Pair) {
    let source = &pair.source;
    files(
        source,
        &[
            "a.o",
            "a.c",
            "top/x",
            "sub/top/x",
            "sub/keep.o",
            "sub/deep/keep.o",
            "sub/note",
            "build/out",
            "sub/build",
        ],
        "source",
    );
    tree::file(&source.join(".gitignore"), b"*.o\n/top/\nbuild/\n");
    tree::file(&source.join("sub/.gitignore"), b"!keep.o\nnote\n");
    tree::file(&source.join("sub/.volferryignore"), b"# overrides the file beside it\n!note\n");
    tree::file(&source.join("sub/deep/.volferryignore"), b"keep.o\n");
}

#[test]
fn ignore_files_count_for_their_folder_and_all_below_when_asked() {
    let all = [".gitignore", "a.c", "sub", "sub/.gitignore", "sub/.volferryignore", "sub/build", "sub/deep"];
    let rest = ["sub/deep/.volferryignore", "sub/keep.o", "sub/note", "sub/top", "sub/top/x"];
    for way in Way::ALL {
        let pair = Pair::new(way);
        ignoring(&pair);
        for turn in ["first", "second"] {
            let run = pair.done(&["--ignore-files", "--delete"]);
            assert_eq!(
                Snapshot::of(&pair.destination).paths(),
                [&all[..], &rest].concat(),
                "{way:?}, {turn} run"
            );
            let work = run.report().work;
            assert_eq!(work.files_created, if turn == "first" { 12 } else { 0 }, "{way:?}, {turn} run");
            assert_eq!((work.files_scanned, work.files_updated, work.files_deleted), (12, 0, 0));
        }
        pair.done(&["--delete"]);
        pair.assert_copy("without the flag they are files like any other");
    }
}

#[test]
fn what_the_sources_ignore_files_match_stays_at_the_destination() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        ignoring(&pair);
        files(
            &pair.destination,
            &[
                "a.o",
                "theirs.o",
                "build/x/y",
                "sub/theirs.o",
                "sub/deep/keep.o",
                "gone/a.o",
                "gone/b",
                "gone/c/d",
                "sub/deep/gone",
            ],
            "destination",
        );
        // A run does not read ignore files at the destination.
        tree::file(&pair.destination.join("gone/.gitignore"), b"b\n");
        let before = Snapshot::of(&pair.destination);
        for turn in ["first", "second"] {
            let run = pair.done(&["--ignore-files", "--delete", "--delete-limit=100"]);
            let there = Snapshot::of(&pair.destination);
            for path in
                ["a.o", "theirs.o", "build", "build/x/y", "sub/theirs.o", "sub/deep/keep.o", "gone/a.o"]
            {
                let path = path.as_bytes();
                assert!(before.at(path) == there.at(path), "{way:?}: {} was touched", path.escape_ascii());
            }
            for path in ["gone/b", "gone/c", "gone/.gitignore", "sub/deep/gone"] {
                assert!(!pair.destination.join(path).exists(), "{way:?}: {path} is still there");
            }
            let deleted = run.report().work.files_deleted;
            assert_eq!(deleted, if turn == "first" { 5 } else { 0 }, "{way:?}, {turn} run");
        }
    }
}

#[test]
fn a_folder_whose_ignore_file_cannot_be_read_is_left_alone_and_named() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        files(&pair.source, &["secret/key", "keep"], "source");
        tree::file(&pair.source.join("secret/.gitignore"), &vec![b'a'; (256 << 10) + 1]);
        files(&pair.destination, &["secret/old"], "destination");
        let run = pair.run_to(ExitCode::Partial, &["--ignore-files", "--delete", "--delete-limit=100"]);
        let [failure] = run.report().failures.as_slice() else { panic!("{:?}", run.report().failures) };
        assert_eq!(failure.path, "secret/.gitignore");
        assert!(!pair.destination.join("secret/key").exists(), "{way:?}");
        assert_eq!(read(&pair.destination, "secret/old"), "destination", "{way:?}");
        assert_eq!(read(&pair.destination, "keep"), "source", "{way:?}");
    }
}

/// Makes a source, and a destination with files that are older, newer and of another kind. A file's time is a number of
/// days.
fn older_and_newer(pair: &Pair) {
    let day = |n: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(n * 86_400);
    let make = |root: &Path, name: &str, content: &str, time: SystemTime| {
        files(root, &[name], content);
        fs::File::options().write(true).open(root.join(name)).unwrap().set_modified(time).unwrap();
    };
    for (name, theirs) in [("older", 1), ("newer", 3), ("same time", 2), ("dir/newer", 9), ("dir/older", 1)] {
        make(&pair.source, name, "source", day(2));
        make(&pair.destination, name, "of the destination", day(theirs));
    }
    make(&pair.source, "new", "source", day(2));
    make(&pair.source, "was a folder", "source", day(2));
    make(&pair.destination, "was a folder/newer", "destination", day(9));
    make(&pair.destination, "gone and newer", "destination", day(9));
    make(&pair.source, "mode", "same content", day(2));
    make(&pair.destination, "mode", "same content", day(3));
    tree::set_mode(&pair.source.join("mode"), 0o600);
    tree::set_mode(&pair.destination.join("mode"), 0o644);
    for (root, target) in [(&pair.destination, "theirs"), (&pair.source, "ours")] {
        symlink(target, root.join("link")).unwrap();
    }
}

#[test]
fn files_that_are_newer_at_the_destination_stay_as_with_rsync() {
    for way in Way::ALL {
        let [pair, expected] = [Pair::new(way), Pair::new(way)];
        [&pair, &expected].into_iter().for_each(older_and_newer);
        let ends = [&expected.source, &expected.destination].map(|path| format!("{}/", path.display()));
        let rsync = Command::new("rsync").args(["-a", "--update", "--delete"]).args(ends).status().unwrap();
        assert!(rsync.success());
        for compare in ["metadata", "content"] {
            let flags = ["--update", "--delete", "--delete-limit=100", "--compare", compare, "--verify"];
            pair.done(&flags);
            let there = Snapshot::of(&pair.destination);
            for name in
                ["older", "newer", "same time", "dir/newer", "dir/older", "new", "was a folder", "mode"]
            {
                let path = expected.destination.join(name);
                assert_eq!(
                    read(&pair.destination, name),
                    fs::read_to_string(path).unwrap(),
                    "{way:?} {name}"
                );
            }
            assert_eq!(there.at(b"mode").unwrap().mode, 0o644, "rsync leaves its metadata alone, too");
            assert!(there.at(b"gone and newer").is_none());
            assert_eq!(fs::read_link(pair.destination.join("link")).unwrap(), Path::new("ours"));
        }
        let work = pair.run(&["--update", "--delete"]).report().work;
        assert_eq!((work.files_created, work.files_updated, work.files_deleted), (0, 0, 0), "{way:?}");
        assert_eq!(read(&pair.destination, "newer"), "of the destination");
    }
}

#[test]
fn a_folder_that_stays_for_what_is_excluded_in_it_is_no_difference() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        tree::file(&pair.source.join("same"), b"content");
        let flags = ["--delete", "--delete-limit=100", "--exclude=cache", "--verify"];
        let folders = ["gone", "gone/cache", "deep", "deep/in", "deep/in/cache"];
        folders.iter().for_each(|name| fs::create_dir(pair.destination.join(name)).unwrap());
        for name in ["gone/file", "gone/cache/file", "deep/in/cache/file"] {
            tree::file(&pair.destination.join(name), b"content");
        }
        pair.done(&flags);
        assert!(
            !pair.destination.join("gone/file").exists()
                && pair.destination.join("deep/in/cache/file").exists()
        );
        let rehearsal = [&flags[..], &["--dry-run"]].concat();
        pair.done(&rehearsal);
        pair.done(&flags);
        fs::create_dir(pair.destination.join("gone/empty")).unwrap();
        let differs = pair.run_to(ExitCode::Partial, &rehearsal);
        assert_eq!(differs.report().failures[0].path, "gone", "{way:?}");
    }
}

#[test]
fn what_is_excluded_stays_in_the_way_of_an_entry_of_another_kind_which_keeps_deletes_back() {
    let cases: [(&[&str], &[&str], &str); 4] = [
        (&["x/sub/file"], &["--exclude=/x", "--exclude=!/x/"], "x"),
        (&["x/sub/file"], &["--filter=+ */", "--filter=- /x"], "x"),
        (&["x"], &["--exclude=x/"], "x/file"),
        (&["x/large file"], &["--min-size=8"], "x"),
    ];
    for pair in Pair::each(Way::ALL) {
        for (source, flags, destination) in cases {
            for root in [&pair.source, &pair.destination] {
                let _ = fs::remove_dir_all(root.join("x")).or_else(|_| fs::remove_file(root.join("x")));
            }
            tree::files(&pair.source, source, "much content");
            tree::files(&pair.source, &["other file"], "other content");
            tree::files(&pair.destination, &[destination], "theirs");
            tree::files(&pair.destination, &["longer than eight"], "longer than eight");
            for dry in [&["--dry-run"][..], &[]] {
                let args = [&["--delete", "--delete-limit=100"], flags, dry].concat();
                let run = pair.run_to(ExitCode::Partial, &args);
                let report = run.report();
                let [failure] = &report.failures[..] else { panic!("{args:?}: {report:?}") };
                assert_eq!((&*failure.path, &*failure.operation), ("x", "make"), "{args:?}");
                let deletes = (report.work.files_deleted, report.work.deletes_kept_back);
                assert_eq!(deletes, (0, 1), "{args:?}: {report:?}");
            }
            assert_eq!(fs::read(pair.destination.join(destination)).unwrap(), b"theirs", "{flags:?}");
            assert!(pair.destination.join("other file").exists());
        }
    }
}
