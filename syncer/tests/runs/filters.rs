//! What is excluded is neither sent, nor changed, nor deleted.

use std::{fs, path::Path};

use contract::ExitCode;

use crate::common::{
    oracle::Snapshot,
    pair::{Pair, Way},
    tree,
};

/// Makes files with these paths, each holding `content`.
fn files(root: &Path, paths: &[&str], content: &str) {
    for path in paths {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        tree::file(&path, content.as_bytes());
    }
}

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
        let run = pair.run(&flags);
        run.assert_exit(ExitCode::Done);
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
            let run = pair.run(&["--delete", "--delete-limit=100", "--exclude=*.tmp"]);
            run.assert_exit(ExitCode::Done);
            let there = Snapshot::of(&pair.destination);
            let paths: Vec<_> = there.entries().map(|(path, _)| path.escape_ascii().to_string()).collect();
            assert_eq!(paths, ["gone", "gone/b", "gone/b/kept.tmp", "keep"], "{way:?}, {turn} run");
            assert_eq!(there.at(b"gone/b").unwrap().mode, 0o555, "{way:?}, {turn} run");
            let deleted = run.report().work.files_deleted;
            assert_eq!(deleted, if turn == "first" { 2 } else { 0 }, "{way:?}, {turn} run");
        }
    }
}

#[test]
fn a_directory_that_holds_what_is_excluded_does_not_give_way_to_a_file() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        files(&pair.source, &["x", "y"], "source");
        files(&pair.destination, &["x/kept.tmp"], "destination");
        let run = pair.run(&["--delete", "--delete-limit=100", "--exclude=*.tmp"]);
        run.assert_exit(ExitCode::Partial);
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
        let run = pair.run(&flags);
        run.assert_exit(ExitCode::Done);
        for path in ["docs/a.md", "docs/deep/b.md", "README.md"] {
            assert_eq!(read(&pair.destination, path), "source", "{way:?}: {path}");
        }
        for path in ["src/main.rs", "other/file"] {
            assert_eq!(read(&pair.destination, path), "destination", "{way:?}: {path}");
        }
        for path in ["docs/old.md", "docs/c.bak"] {
            assert!(!pair.destination.join(path).exists(), "{way:?}: {path}");
        }
        let again = pair.run(&flags);
        again.assert_exit(ExitCode::Done);
        let work = again.report().work;
        assert_eq!((work.files_created, work.files_updated, work.files_deleted), (0, 0, 0), "{way:?}");
    }
}

#[test]
fn a_later_pattern_takes_an_earlier_one_back() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        files(&pair.source, &["a.log", "keep.log", "-x"], "source");
        let run = pair.run(&["--exclude=*.log", "--exclude=!keep.log", "--exclude=-x"]);
        run.assert_exit(ExitCode::Done);
        let there = Snapshot::of(&pair.destination);
        assert_eq!(there.entries().map(|(path, _)| path).collect::<Vec<_>>(), [b"keep.log"]);
    }
}

#[test]
fn a_pattern_that_is_none_is_refused_as_a_wrong_command_line() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        files(&pair.source, &["a"], "source");
        pair.sync("before");
        files(&pair.source, &["b"], "source");
        for flag in ["--exclude=[z-a]", "--include=[z-a]"] {
            let run = pair.refuse(&[flag], ExitCode::Usage, "InvalidPattern");
            run.ends()
                .for_each(|end| assert!(end.report().message.contains("[z-a]"), "{}", end.report().message));
        }
    }
}
