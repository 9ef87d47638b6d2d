//! Flags that choose among the differences of two trees, and that change what arrives, as rsync has them.

use crate::common::prelude::*;

/// Makes files with these paths, each holding `content` and with one time.
fn files(root: &Path, paths: &[&str], content: &str, seconds: i64) {
    tree::files(root, paths, content);
    paths.iter().for_each(|path| tree::set_mtime(&root.join(path), seconds, 0));
}

/// Runs rsync with these flags on copies of both folders of a pair, and returns the tree that it makes.
fn by_rsync(pair: &Pair, flags: &[&str]) -> Snapshot {
    let copies = scratch::scratch();
    for (folder, name) in [(&pair.source, "source"), (&pair.destination, "destination")] {
        let status = Command::new("cp").arg("-a").arg(folder).arg(copies.path().join(name)).status().unwrap();
        assert!(status.success());
    }
    let to = copies.path().join("destination");
    let mut rsync = Command::new("rsync");
    let status = rsync.arg("-a").args(flags).arg("source/").arg(&to).current_dir(copies.path()).status();
    assert!(status.unwrap().success(), "{flags:?}");
    snapshot_without_times_of_links(&to)
}

/// Reads a tree after it has given all its links one time, because rsync leaves that of some links.
fn snapshot_without_times_of_links(root: &Path) -> Snapshot {
    for name in ["link", "new-link"] {
        if root.join(name).is_symlink() {
            tree::set_mtime(&root.join(name), 1, 0);
        }
    }
    Snapshot::of(root)
}

/// Makes a pair whose trees differ in every way that these flags judge.
fn differing(way: Way) -> Pair {
    let pair = Pair::new(way);
    files(&pair.source, &["both", "new", "sub/both", "sub/new", "added/deep/file"], "source", 2_000_000_000);
    files(&pair.source, &["same-size"], "SOURCE", 2_000_000_000);
    files(&pair.destination, &["both", "theirs", "sub/both"], "old", 1_000_000_000);
    files(&pair.destination, &["same-size"], "before", 1_000_000_000);
    symlink("there", pair.source.join("link")).unwrap();
    symlink("elsewhere", pair.destination.join("link")).unwrap();
    symlink("there", pair.source.join("new-link")).unwrap();
    tree::set_mode(&pair.source.join("sub"), 0o700);
    for root in [&pair.source, &pair.destination] {
        ["added/deep", "added", "sub", ""].iter().for_each(|dir| {
            if root.join(dir).exists() {
                tree::set_mtime(&root.join(dir), 1_500_000_000, 0);
            }
        });
    }
    pair
}

#[track_caller]
fn assert_as_rsync(pair: &Pair, flags: &[&str]) {
    let expected = by_rsync(pair, flags);
    let rehearsal = pair.done(&[flags, &["--dry-run"]].concat());
    let run = pair.done(flags);
    snapshot_without_times_of_links(&pair.destination).assert_like(
        &expected,
        COPY,
        &format!("{:?} {flags:?}", pair.way),
    );
    let (planned, done) = (rehearsal.report().work, run.report().work);
    let counts = |work: contract::Work| (work.files_created, work.files_updated, work.files_deleted);
    assert_eq!(counts(planned), counts(done), "{flags:?}");
}

#[test]
fn what_is_new_is_left_out_and_the_rest_is_updated_with_existing() {
    Way::ALL.into_iter().for_each(|way| assert_as_rsync(&differing(way), &["--existing"]));
}

#[test]
fn what_the_destination_has_stays_with_ignore_existing() {
    Way::ALL.into_iter().for_each(|way| assert_as_rsync(&differing(way), &["--ignore-existing"]));
}

#[test]
fn names_of_one_file_are_copied_separately_where_the_first_may_be_left_out() {
    for way in Way::ALL {
        for flag in ["--existing", "--ignore-existing"] {
            let pair = Pair::new(way);
            files(&pair.source, &["a"], "source", 2_000_000_000);
            fs::hard_link(pair.source.join("a"), pair.source.join("b")).unwrap();
            let has = if flag == "--existing" { "b" } else { "a" };
            files(&pair.destination, &[has], "old", 1_000_000_000);
            pair.done(&[flag]);
            let read = |name: &str| fs::read_to_string(pair.destination.join(name)).ok();
            let expected =
                if flag == "--existing" { (None, "source") } else { (Some("old".into()), "source") };
            assert_eq!((read("a"), read("b").as_deref()), (expected.0, Some(expected.1)), "{way:?} {flag}");
        }
    }
}

#[test]
fn files_of_one_size_are_the_same_with_size_only_and_get_their_times() {
    for way in Way::ALL {
        let pair = differing(way);
        assert_as_rsync(&pair, &["--size-only"]);
        assert_eq!(fs::read_to_string(pair.destination.join("same-size")).unwrap(), "before", "{way:?}");
        assert_eq!(fs::metadata(pair.destination.join("same-size")).unwrap().mtime(), 2_000_000_000);
    }
}

#[test]
fn permissions_change_on_the_way_and_a_second_run_finds_nothing_to_do() {
    for way in Way::ALL {
        let pair = differing(way);
        tree::set_mode(&pair.source.join("new"), 0o4711);
        let flags = ["--chmod=D2750,Fgo-rwx,Fg+X,u+w"];
        assert_as_rsync(&pair, &flags);
        assert_eq!(fs::metadata(pair.destination.join("new")).unwrap().mode() & 0o7777, 0o4710, "{way:?}");
        // The links have another time since they were compared.
        pair.done(&flags);
        let work = pair.run(&flags).report().work;
        assert_eq!((work.files_created, work.files_updated), (0, 0), "{way:?}");
    }
}

#[test]
fn an_entry_with_an_access_control_list_keeps_its_permissions() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        files(&pair.source, &["a"], "source", 2_000_000_000);
        let acl = [
            &[2, 0, 0, 0][..],
            &ace(1, 6, !0),
            &ace(2, 4, 7),
            &ace(4, 4, !0),
            &ace(16, 4, !0),
            &ace(32, 0, !0),
        ];
        tree::set_attr(&pair.source.join("a"), tree::ACCESS_ACL, &acl.concat());
        for _ in 0..2 {
            pair.done(&["--chmod=F600"]);
            let mode = |root: &Path| fs::metadata(root.join("a")).unwrap().mode();
            assert_eq!(mode(&pair.destination), mode(&pair.source), "{way:?}");
        }
    }
}

/// Returns an entry of an access control list: its kind, permissions and id.
fn ace(tag: u16, permissions: u16, id: u32) -> Vec<u8> {
    [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
}

#[test]
fn all_entries_get_the_owner_that_is_asked_for() {
    for way in Way::ALL.into_iter().filter(|_| scratch::is_root()) {
        let pair = differing(way);
        assert_as_rsync(&pair, &["--chown=1234:4321"]);
        let owner = |name: &str| {
            let metadata = fs::symlink_metadata(pair.destination.join(name)).unwrap();
            (metadata.uid(), metadata.gid())
        };
        assert_eq!((owner("new"), owner("new-link"), owner("")), ((1234, 4321), (1234, 4321), (1234, 4321)));
        assert_eq!(owner("theirs"), (0, 0), "{way:?}");
        pair.done(&["--chown=1234:4321"]);
        let work = pair.run(&["--chown=1234:4321"]).report().work;
        assert_eq!((work.files_created, work.files_updated), (0, 0), "{way:?}");
    }
}

#[test]
fn an_owner_that_the_process_may_not_give_fails_the_run() {
    for pair in Pair::each_unprivileged() {
        files(&pair.source, &["a"], "source", 2_000_000_000);
        scratch::give_to_nobody(&pair.source.join("a"));
        pair.run_to(ExitCode::Failed, &["--chown=1234"]);
        assert!(!pair.destination.join("a").exists(), "{:?}", pair.way);
    }
}

#[test]
fn flags_that_contradict_one_another_are_refused_with_one_line() {
    let pair = Pair::new(Way::Local);
    for flags in [
        ["--existing", "--ignore-existing"],
        ["--chown=1", "--ownership=never"],
        ["--chmod=u+w", "--no-permissions"],
        ["--size-only", "--checksum"],
    ] {
        pair.start_sync(&flags).wait().assert_exit(ExitCode::Usage);
    }
}
