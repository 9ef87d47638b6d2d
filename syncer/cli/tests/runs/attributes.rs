//! The user's flags say which attributes are kept; a run does not compare attributes that it does not keep.

use std::os::unix::fs::chown;

use crate::common::prelude::*;

/// Runs twice with `flag`: the copy is like its original in `aspects`, and the second run does nothing.
#[track_caller]
fn assert_kept(flag: &str, aspects: Aspects) {
    for way in Way::ALL {
        let pair = Pair::new(way);
        tree::random(&pair.source, &mut Rng::new(9), 80, Shape::Everything);
        for turn in ["first", "second"] {
            let run = pair.done(&["--delete", flag]);
            let (copy, original) = (Snapshot::of(&pair.destination), Snapshot::of(&pair.source));
            copy.assert_like(&original, aspects, &format!("{way:?}, {flag}, {turn} run"));
            let work = run.report().work;
            let changed = work.files_created + work.files_updated + work.files_deleted;
            assert!((turn == "first") == (changed > 0), "{way:?}, {flag}, {turn} run: {work:?}");
        }
    }
}

#[test]
fn new_files_whose_permissions_are_not_kept_get_no_more_than_the_umask_lets() {
    let pair = Pair::new(Way::Local);
    tree::file(&pair.source.join("file"), b"content");
    let mut run = Command::new("sh");
    run.args(["-c", "umask 077 && exec \"$@\"", "sh"]).arg(program());
    run.args(["sync", "--no-permissions"]).args([&pair.source, &pair.destination]);
    assert!(run.status().unwrap().success());
    assert_eq!(fs::metadata(pair.destination.join("file")).unwrap().mode() & 0o777, 0o600);
}

#[test]
fn owners_are_left_alone_where_they_are_not_wanted() {
    assert_kept("--ownership=never", Aspects { owners: false, ..COPY });
}

#[test]
fn attributes_that_change_after_the_scan_come_with_the_content_that_they_belong_to() {
    let pair = Pair::new(Way::SinkListens);
    // More bytes than the transport takes while the relay holds everything; entries after this file are read later.
    tree::file(&pair.source.join("first"), &Rng::new(3).bytes(24 << 20));
    let later = ["later", "later and large", "later without"].map(|name| pair.source.join(name));
    tree::file(&later[0], b"content");
    tree::file(&later[1], &Rng::new(4).bytes(1 << 20));
    tree::file(&later[2], b"content");
    later[..2].iter().for_each(|file| tree::set_attr(file, "user.state", b"when it was scanned"));
    let (source, sink, relay) = pair.start_over(1_000_000, &[]);
    later.iter().for_each(|file| tree::set_attr(file, "user.state", b"when it was read"));
    relay.release();
    [sink.wait(), source.wait()].iter().for_each(|end| end.assert_exit(ExitCode::Done));
    pair.assert_copy("attributes that changed before their files were read");
    pair.sync_unchanged("again");
}

#[test]
fn modes_are_left_alone_where_they_are_not_wanted() {
    assert_kept("--no-permissions", Aspects { modes: false, ..COPY });
}

#[test]
fn without_times_what_has_content_is_taken_anew_and_nothing_else() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        tree::random(&pair.source, &mut Rng::new(10), 80, Shape::Everything);
        let original = Snapshot::of(&pair.source);
        let files = original.files().count() as u64;
        for turn in ["first", "second"] {
            let run = pair.done(&["--delete", "--no-times"]);
            let aspects = Aspects { times: false, ..COPY };
            Snapshot::of(&pair.destination).assert_like(&original, aspects, &format!("{way:?}, {turn} run"));
            let work = run.report().work;
            let counts = (work.files_created, work.files_updated, work.files_deleted);
            assert_eq!(
                counts,
                if turn == "first" { (80, 0, 0) } else { (0, files, 0) },
                "{way:?}, {turn} run"
            );
        }
        tree::file(&pair.source.join("new"), b"content");
        let before = Snapshot::of(&pair.destination);
        pair.done(&["--delete", "--no-times"]);
        let new = Snapshot::of(&pair.destination).at(b"new").unwrap().mtime;
        assert!(new > before.at(b"").unwrap().mtime, "{way:?}: it has the time at which it was written");
    }
}

#[test]
fn modes_that_are_not_wanted_leave_those_that_the_destination_has() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        for dir in ["changes", "locked"] {
            fs::create_dir(pair.source.join(dir)).unwrap();
        }
        for file in ["same", "changes/new content", "locked/gone"] {
            tree::file(&pair.source.join(file), b"content");
        }
        pair.sync("before");
        let modes = [("same", 0o600), ("changes/new content", 0o640), ("changes", 0o2700), ("locked", 0o555)];
        modes.iter().for_each(|(path, mode)| tree::set_mode(&pair.destination.join(path), *mode));
        tree::file(&pair.source.join("changes/new content"), b"other content");
        fs::remove_file(pair.source.join("locked/gone")).unwrap();
        pair.done(&["--delete", "--no-permissions"]);
        let there = Snapshot::of(&pair.destination);
        for (path, mode) in modes {
            let now = there.at(path.as_bytes()).unwrap().mode;
            assert_eq!(now, mode, "{way:?}: {path} has {now:o}, not {mode:o}");
        }
        assert_eq!(fs::read(pair.destination.join("changes/new content")).unwrap(), b"other content");
        assert!(there.at(b"locked/gone").is_none());
    }
}

#[test]
fn owners_that_are_not_wanted_are_not_set_on_what_did_not_change() {
    let Some(()) = scratch::needs_root() else { return };
    for pair in Pair::each(Way::ALL) {
        tree::file(&pair.source.join("file"), b"content");
        pair.sync("before");
        chown(pair.destination.join("file"), Some(7), Some(7)).unwrap();
        let before = Snapshot::of(&pair.destination);
        pair.done(&["--delete", "--ownership=never"]);
        Snapshot::of(&pair.destination).assert_like(&before, UNTOUCHED, "another's file");
    }
}

#[test]
fn pipes_and_devices_are_left_out_where_they_are_not_wanted() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        tree::pipe(&pair.source.join("new"));
        tree::file(&pair.source.join("file"), b"content");
        tree::pipe(&pair.destination.join("theirs"));
        pair.done(&["--delete", "--no-specials"]);
        assert!(!pair.destination.join("new").exists(), "{way:?}");
        assert!(pair.destination.join("theirs").exists(), "{way:?}: what is left out is not deleted either");
        assert!(pair.destination.join("file").exists());
    }
}

#[test]
fn a_folder_is_not_moved_along_with_a_pipe_that_is_left_out() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        fs::create_dir(pair.source.join("old")).unwrap();
        tree::file(&pair.source.join("old/file"), b"content");
        pair.sync("before");
        fs::rename(pair.source.join("old"), pair.source.join("new")).unwrap();
        tree::pipe(&pair.destination.join("old/theirs"));
        pair.done(&["--delete", "--delete-limit=100", "--no-specials"]);
        assert!(pair.destination.join("old/theirs").exists(), "{way:?}");
        assert_eq!(fs::read(pair.destination.join("new/file")).unwrap(), b"content", "{way:?}");
    }
}

/// A change of owner removes a file's capabilities, so a run has to set them after it.
#[test]
fn a_programs_capabilities_survive_a_change_of_owner() {
    let Some(()) = scratch::needs_root() else { return };
    for pair in Pair::each(Way::ALL) {
        let file = pair.source.join("program");
        for owner in [1234, 4321] {
            if owner == 1234 {
                tree::file(&file, b"content");
            }
            chown(&file, Some(owner), Some(owner)).unwrap();
            tree::set_attr(&file, "security.capability", &tree::capability());
            pair.sync(&format!("owned by {owner}"));
        }
        pair.sync_unchanged("again");
    }
}

#[test]
fn a_mode_with_set_user_id_survives_a_change_of_owner() {
    let Some(()) = scratch::needs_root() else { return };
    for way in Way::ALL {
        let pair = Pair::new(way);
        let file = pair.source.join("program");
        tree::file(&file, b"content");
        tree::set_mode(&file, 0o6755);
        pair.sync("before");
        // The change of owner takes the bits away at the source, too.
        chown(&file, Some(1234), Some(1234)).unwrap();
        tree::set_mode(&file, 0o6755);
        let report = pair.sync("after a change of owner");
        assert_eq!(report.work.bytes_changed, 0, "{way:?}");
    }
}

#[test]
fn attributes_that_are_not_wanted_are_left_alone() {
    assert_kept("--no-xattrs", Aspects { attrs: false, ..COPY });
    for way in Way::ALL {
        let pair = Pair::new(way);
        tree::file(&pair.source.join("file"), b"content");
        tree::set_attr(&pair.source.join("file"), "user.ours", b"value");
        tree::set_attr(&pair.source.join("file"), tree::ACCESS_ACL, &tree::acl([6, 4, 4, 4, 0]));
        pair.sync("before");
        tree::set_attr(&pair.source.join("file"), "user.ours", b"other value");
        tree::set_attr(&pair.destination.join("file"), "user.theirs", b"value");
        let before = Snapshot::of(&pair.destination);
        pair.done(&["--delete", "--no-xattrs"]);
        Snapshot::of(&pair.destination).assert_like(&before, UNTOUCHED, "another's attributes");
        let report = pair.sync("with attributes");
        assert_eq!(report.work.bytes_changed, 0, "{way:?}: content does not move for an attribute");
    }
}

#[test]
fn lists_that_entries_would_inherit_at_the_destination_are_not_kept() {
    for pair in Pair::each(Way::ALL) {
        tree::file(&pair.source.join("old"), b"content");
        pair.sync("before");
        let list = tree::acl([7, 7, 7, 7, 7]);
        for dir in ["", ".volferry"] {
            tree::set_attr(&pair.destination.join(dir), tree::DEFAULT_ACL, &list);
        }
        fs::create_dir(pair.source.join("folder")).unwrap();
        for file in ["old", "new", "folder/new"] {
            tree::file(&pair.source.join(file), b"new content");
        }
        tree::file(&pair.source.join("large"), &vec![1; 2 << 20]);
        tree::pipe(&pair.source.join("pipe"));
        pair.sync("below a folder with a default list");
        tree::set_attr(&pair.destination.join(".volferry"), tree::DEFAULT_ACL, &list);
        tree::file(&pair.source.join("old"), b"newer content");
        pair.sync("Volferry's own folder has one");
        pair.sync_unchanged("again");
    }
}

#[test]
fn what_may_not_be_set_is_counted_and_does_not_make_a_file_look_changed() {
    for pair in Pair::each_unprivileged() {
        let way = pair.way;
        fs::create_dir(pair.source.join("folder")).unwrap();
        for name in ["program", "folder/program", "file"] {
            tree::file(&pair.source.join(name), b"content");
        }
        scratch::give_to_nobody(&pair.source);
        for name in ["program", "folder/program"] {
            tree::set_attr(&pair.source.join(name), "security.capability", &tree::capability());
            tree::set_attr(&pair.source.join(name), "user.of a program", b"value");
        }
        let run = pair.done(&["--delete"]);
        let [note] = run.report().notes.as_slice() else { panic!("{:?}", run.report().notes) };
        assert!(note.starts_with("2 entries did not keep their file capabilities"), "{note}");
        let copy = Snapshot::of(&pair.destination);
        let kept = &copy.at(b"folder/program").unwrap().attrs;
        assert_eq!(kept.keys().collect::<Vec<_>>(), [b"user.of a program"]);
        pair.sync_unchanged("again");
        assert_eq!(pair.run(&["--delete"]).report().notes, [""; 0], "{way:?}: nothing was made or changed");
    }
}

#[test]
fn attributes_that_may_not_be_read_stay_where_they_are() {
    for pair in Pair::each_unprivileged() {
        tree::file(&pair.source.join("file"), b"content");
        scratch::give_to_nobody(&pair.source);
        pair.sync("before");
        tree::set_attr(&pair.destination.join("file"), "trusted.volferry-test", b"value");
        pair.sync_unchanged("what only root sees");
    }
}

#[test]
fn attributes_of_a_file_that_its_owner_may_not_read_do_not_make_it_look_changed() {
    let Some(()) = scratch::needs_root() else { return };
    for way in Way::NETWORK {
        let mut pair = Pair::unprivileged(way);
        pair.source_user = User::Same;
        fs::create_dir(pair.source.join("folder")).unwrap();
        for name in ["shut", "folder/shut", "open"] {
            let file = pair.source.join(name);
            tree::file(&file, b"content");
            tree::set_attr(&file, "user.a", b"value");
            if name != "open" {
                tree::set_mode(&file, 0o200);
            }
        }
        scratch::give_to_nobody(&pair.source);
        pair.sync("before");
        pair.sync_unchanged("again");
        tree::set_attr(&pair.source.join("shut"), "user.b", b"one more");
        assert_eq!(pair.sync("an attribute came").work.files_updated, 1, "{way:?}");
    }
}

#[test]
fn holes_stay_holes_in_a_local_copy() {
    let pair = Pair::new(Way::Local);
    tree::sparse(&pair.source.join("file"), &mut Rng::new(1));
    fs::File::create(pair.source.join("nothing else")).unwrap().set_len(100_000).unwrap();
    pair.sync("holes");
    let (copy, original) = (Snapshot::of(&pair.destination), Snapshot::of(&pair.source));
    for path in [&b"file"[..], b"nothing else"] {
        let allocated = [&copy, &original].map(|tree| tree.at(path).unwrap().allocated);
        assert_eq!(allocated[0], allocated[1]);
        assert!(allocated[0] < 100_000, "{allocated:?}");
    }
    let (copy, whole) = (pair.destination.join("file"), 4 << 20);
    fs::remove_file(&copy).unwrap();
    pair.done(&["--no-sparse"]);
    assert!(Snapshot::of(&pair.destination).at(b"file").unwrap().allocated >= whole);
}

#[test]
fn without_ownership_set_ids_that_are_there_are_no_difference() {
    let Some(()) = scratch::needs_root() else { return };
    for way in Way::ALL {
        let pair = Pair::new(way);
        for (name, mode) in [("user", 0o4755), ("group", 0o2755)] {
            tree::file(&pair.source.join(name), b"content");
            chown(pair.source.join(name), Some(1000), Some(1000)).unwrap();
            tree::set_mode(&pair.source.join(name), mode);
        }
        pair.sync("with owners");
        let run = pair.done(&["--verify", "--ownership=never"]);
        assert_eq!(run.report().work.changed(), 0, "{way:?}");
        tree::set_mode(&pair.source.join("user"), 0o4700);
        pair.done(&["--verify", "--ownership=never"]);
        let mode = fs::metadata(pair.destination.join("user")).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode, 0o700, "a mode that is set has no set-id bits of another user, {way:?}");
    }
}

#[test]
fn a_hole_is_equal_to_zeros_when_contents_are_compared() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        tree::sparse(&pair.source.join("file"), &mut Rng::new(1));
        fs::File::create(pair.source.join("nothing else")).unwrap().set_len(3 << 20).unwrap();
        pair.done(&["--no-sparse", "--verify"]);
        let source = fs::OpenOptions::new().write(true).open(pair.source.join("nothing else")).unwrap();
        let time = source.metadata().unwrap().modified().unwrap();
        source.write_all_at(&[0; 2 << 20], 0).unwrap();
        source.set_modified(time).unwrap();
        let run = pair.done(&["-c"]);
        assert_eq!(run.report().work.changed(), 0, "{way:?}: {:?}", run.report().work);
        source.write_all_at(b"x", 1 << 20).unwrap();
        source.set_modified(time).unwrap();
        assert_eq!(pair.run(&["-c"]).report().work.files_updated, 1, "{way:?}");
    }
}

#[test]
fn without_permissions_a_closed_folder_is_closed_again_after_deletes_in_it() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        tree::files(&pair.source, &["d/file"], "content");
        pair.sync("before");
        tree::files(&pair.destination, &["d/extra"], "extra");
        tree::set_mode(&pair.destination.join("d"), 0);
        pair.done(&["--delete", "--no-permissions"]);
        let mode = fs::metadata(pair.destination.join("d")).unwrap().permissions().mode() & 0o7777;
        tree::set_mode(&pair.destination.join("d"), 0o755);
        assert_eq!((mode, pair.destination.join("d/extra").exists()), (0, false), "{way:?}");
    }
}

const LABEL: &str = "security.selinux";

/// Makes files, a folder and a link that have labels of SELinux. Returns whether this process may.
fn label_all(dir: &Path, label: &str) -> bool {
    fs::create_dir_all(dir.join("folder")).unwrap();
    for name in ["file", "folder/inner"] {
        tree::file(&dir.join(name), b"content");
    }
    let _ = symlink("file", dir.join("link"));
    let set = |name: &str| {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::lsetxattr(dir.join(name), LABEL, label.as_bytes(), flags)
    };
    let all = ["file", "folder/inner", "folder", "link"].iter().try_for_each(|name| set(name));
    all.map_err(|error| eprintln!("skipped: no labels can be set: {error}")).is_ok()
}

/// Returns whether a policy of this machine labels new files.
fn has_policy(dir: &Path) -> bool {
    tree::file(&dir.join("probe"), b"");
    let label = rustix::fs::lgetxattr(dir.join("probe"), LABEL, &mut [0; 256][..]);
    fs::remove_file(dir.join("probe")).unwrap();
    label.is_ok()
}

fn labels(dir: &Path) -> Vec<Option<Vec<u8>>> {
    let label = |name: &str| {
        let mut value = [0; 256];
        let len = rustix::fs::lgetxattr(dir.join(name), LABEL, &mut value[..]).ok()?;
        Some(value[..len].to_vec())
    };
    ["file", "folder/inner", "folder", "link"].map(label).to_vec()
}

#[test]
fn labels_of_selinux_are_kept_where_this_process_may_set_them() {
    let label = "system_u:object_r:etc_t:s0";
    for way in Way::ALL {
        let pair = Pair::new(way);
        if !label_all(&pair.source, label) || has_policy(pair.dir()) {
            return;
        }
        pair.sync("labels");
        assert_eq!(labels(&pair.destination), vec![Some(label.as_bytes().to_vec()); 4], "{way:?}");
        pair.sync_unchanged("with labels");
        assert!(label_all(&pair.source, "system_u:object_r:shadow_t:s0"));
        let flags = ["--delete", "--delete-limit=100"];
        pair.done(&flags);
        assert_eq!(labels(&pair.destination), labels(&pair.source), "{way:?}");
        rustix::fs::lremovexattr(pair.source.join("file"), LABEL).unwrap();
        pair.done(&flags);
        assert_eq!(labels(&pair.destination)[0], None, "{way:?}");
        pair.sync_unchanged("without a label");
    }
}

#[test]
fn labels_of_selinux_are_left_to_the_policy_where_this_process_may_not_set_them() {
    for pair in Pair::each_unprivileged() {
        if !label_all(&pair.source, "system_u:object_r:etc_t:s0") || has_policy(pair.dir()) {
            return;
        }
        scratch::give_to_nobody(&pair.source);
        let run = pair.done(&["--delete"]);
        assert_eq!(
            (labels(&pair.destination), run.report().notes.clone()),
            (vec![None; 4], vec![]),
            "{:?}",
            pair.way
        );
        pair.sync_unchanged("left to the policy");
    }
}

#[test]
fn a_destination_that_takes_no_labels_is_said_once_and_is_not_changed_again() {
    let mut pair = Pair::new(Way::Local);
    if !label_all(&pair.source, "system_u:object_r:etc_t:s0") {
        return;
    }
    pair.destination = scratch::dir(pair.dir(), "without attributes");
    let _ramfs = Mount::ramfs(&pair.destination);
    let first = pair.done(&["--delete"]);
    let notes = &first.report().notes;
    assert!(
        notes.iter().any(|it| it.starts_with("4 entries did not keep their SELinux labels")),
        "{notes:?}"
    );
    let again = pair.done(&["--delete"]);
    let work = again.report().work;
    assert_eq!((work.files_created, work.files_updated, &again.report().notes[..]), (0, 0, &[][..]));
}

/// Its length shares 64 bits with other fields where it crosses. Few file systems besides tmpfs have files of this
/// size.
#[test]
fn a_hole_of_more_than_four_exbibytes_arrives() {
    for way in Way::ALL {
        let pair = Pair::in_dir(tempfile::tempdir_in("/dev/shm").unwrap(), way);
        let file = fs::File::create(pair.source.join("file")).unwrap();
        file.set_len(7 << 60).unwrap();
        file.write_all_at(b"end", (7 << 60) - 3).unwrap();
        pair.done(&[]);
        let copy = fs::File::open(pair.destination.join("file")).unwrap();
        assert_eq!(copy.metadata().unwrap().len(), 7 << 60, "{way:?}");
        let mut end = [0; 3];
        copy.read_exact_at(&mut end, (7 << 60) - 3).unwrap();
        assert_eq!(&end, b"end");
    }
}
