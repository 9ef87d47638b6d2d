//! `--files-from` makes the tree that rsync's makes, and deletes only below listed folders.

use crate::common::prelude::*;

/// Makes files with these paths, and with a time that depends on their content.
fn files(root: &Path, paths: &[&str], content: &str) {
    tree::files(root, paths, content);
    paths.iter().for_each(|path| tree::set_mtime(&root.join(path), 900_000_000 + content.len() as i64, 7));
}

/// Gives folders times that do not depend on the clock.
fn age(root: &Path, folders: &[&str]) {
    folders.iter().for_each(|path| tree::set_mtime(&root.join(path), 1_000_000_000 + path.len() as i64, 5));
}

fn fill_source(source: &Path) {
    files(source, &["a/b/f", "a/b/not", "a/g", "c/x", "c/deep/y", "c.d/z", "top", "other/z"], "source");
    std::os::unix::fs::symlink("a/b", source.join("link")).unwrap();
    fs::hard_link(source.join("a/g"), source.join("c/g")).unwrap();
    tree::set_mode(&source.join("a"), 0o711);
    age(source, &["a/b", "a", "c/deep", "c", "c.d", ""]);
}

fn fill_destination(root: &Path) {
    files(
        root,
        &["a/theirs", "a/b/theirs", "c/theirs", "c/deep/theirs", "other/theirs", "theirs"],
        "destination",
    );
    age(root, &["a/b", "a", "c/deep", "c", "other", ""]);
}

fn list(pair: &Pair, text: &str) -> PathBuf {
    let path = pair.dir().join("list");
    fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_run_of_listed_paths_makes_the_tree_that_rsyncs_makes() {
    let lists = [
        "a/b/f\nc\nlink\n",
        "# all of c\n/c/\n\n./a//g\n",
        "top\nc.d/z\nc/deep/y\na/b\na/b/f\n",
        "",
        "c\n.\n",
    ];
    for (way, listed) in Way::ALL.into_iter().cycle().zip(lists) {
        let pair = Pair::new(way);
        let peer = scratch::dir(pair.dir(), "rsync");
        fill_source(&pair.source);
        [&pair.destination, &peer].into_iter().for_each(|root| fill_destination(root));
        let list = format!("--files-from={}", text(&list(&pair, listed)));
        let from = format!("{}/", text(&pair.source));
        let args = ["-aHAXSr", "--delete", "--modify-window=-1", &list, &from, text(&peer)];
        assert!(Command::new("rsync").args(args).status().unwrap().success());
        let expected = Snapshot::of(&peer);
        for turn in ["first", "second"] {
            let run = pair.done(&[&list, "--delete", "--delete-limit=100"]);
            let what = format!("{way:?}, {listed:?}, {turn} run");
            // The root has rsync's time only if the list names the root itself.
            let here = Snapshot::of(&pair.destination);
            let is_whole = listed.ends_with("\n.\n");
            here.assert_like(&expected, crate::common::oracle::Aspects { root: is_whole, ..COPY }, &what);
            let work = run.report().work;
            let changed = work.files_created + work.files_updated + work.files_deleted;
            assert_eq!(changed > 0, turn == "first" && !listed.is_empty(), "{what}: {work:?}");
        }
    }
}

#[test]
fn listed_paths_that_are_not_there_have_failed_and_keep_deletes_back() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        fill_source(&pair.source);
        fill_destination(&pair.destination);
        let list = list(&pair, "none\nalso/none\nlink/f\ntop/below\nc\nother/theirs\n");
        let run =
            pair.run_to(ExitCode::Partial, &["--files-from", text(&list), "--delete", "--delete-limit=100"]);
        let failures = &run.report().failures;
        let mut failed: Vec<_> =
            failures.iter().map(|failure| (failure.path.as_str(), failure.error.as_str())).collect();
        failed.sort_unstable();
        let (none, not_dir) = ("No such file or directory (os error 2)", "Not a directory (os error 20)");
        let expected = [
            ("also/none", none),
            ("link/f", not_dir),
            ("none", none),
            ("other/theirs", none),
            ("top/below", not_dir),
        ];
        assert_eq!(failed, expected, "{way:?}");
        for path in ["c/x", "c/theirs", "other/theirs"] {
            assert!(pair.destination.join(path).exists(), "{way:?}: {path}");
        }
        for path in ["top", "link", "also"] {
            assert!(fs::symlink_metadata(pair.destination.join(path)).is_err(), "{way:?}: {path}");
        }
    }
}

#[test]
fn names_end_with_a_nul_if_the_list_says_so() {
    for pair in Pair::each(Way::ALL) {
        files(&pair.source, &["#a\nb", "c", "d"], "source");
        let list = list(&pair, "./#a\nb\0c\0");
        pair.done(&["-0", "--files-from", text(&list)]);
        assert_eq!(Snapshot::of(&pair.destination).paths(), ["#a\\nb", "c"]);
    }
}

#[test]
fn patterns_and_ignore_files_count_among_listed_paths() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        files(&pair.source, &["a/keep", "a/x.tmp", "a/x.o"], "source");
        files(&pair.source, &["a/.gitignore"], "*.o\n");
        let list = list(&pair, "a/keep\na/x.tmp\na/x.o\n");
        let flags = ["--files-from", text(&list), "--exclude=*.tmp", "--ignore-files"];
        pair.done(&flags);
        assert_eq!(Snapshot::of(&pair.destination).paths(), ["a", "a/keep"], "{way:?}");
    }
}

#[test]
fn a_list_on_standard_input_is_read_and_a_path_that_leads_out_is_refused() {
    let pair = Pair::new(Way::Local);
    files(&pair.source, &["a", "b"], "source");
    let sync = |input: &str| {
        let list = list(&pair, input);
        let mut command = Command::new(env!("CARGO_BIN_EXE_volferry"));
        command.args(["sync", "--files-from=-", text(&pair.source), text(&pair.destination)]);
        command.stdin(fs::File::open(list).unwrap()).output().unwrap()
    };
    let refused = sync("b\n../b\n");
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(i32::from(ExitCode::Usage as u8)), "{said}");
    assert!(said.contains("path 2 `../b`") && said.contains("\nhint: "), "{said}");
    assert!(sync("b\n").status.success());
    assert!(pair.destination.join("b").exists() && !pair.destination.join("a").exists());
}
