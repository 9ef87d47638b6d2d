//! Runs whose source is a snapshot of a volume.

use crate::common::prelude::*;

/// Makes a pair whose destination has two snapshots of different trees. Returns the tree of the first.
fn two_versions() -> (Pair, Snapshot) {
    let pair = Pair::new(Way::Local);
    tree::gallery(&pair.source, tree::Shape::Everything);
    let take = |tag: &str| pair.start_sync(&["--delete", "--snapshot", "--snapshot-tag", tag]).wait();
    take("v1").assert_exit(ExitCode::Done);
    let first = Snapshot::of(&pair.source);
    fs::write(pair.source.join("new"), "of the second").unwrap();
    fs::write(pair.source.join("large"), vec![7; 300_000]).unwrap();
    take("v2").assert_exit(ExitCode::Done);
    (pair, first)
}

#[test]
fn an_older_snapshot_becomes_another_tree_while_the_volume_is_read_only() {
    let (pair, first) = two_versions();
    let restored = scratch::dir(pair.dir(), "restored");
    fs::write(restored.join("astray"), "goes").unwrap();
    let _volume = scratch::is_root().then(|| read_only(&pair.destination, &pair.destination));
    let sync = |id: &str| {
        let ends =
            ["sync", text(&pair.destination), text(&restored), "--progress=json", "--delete", "--force"];
        pair.start(&[&ends[..], &["--source-snapshot", id]].concat()).wait()
    };
    let run = sync("v1");
    run.assert_exit(ExitCode::Done);
    assert!(run.report().notes[0].starts_with("the source is snapshot "), "{:?}", run.report().notes);
    Snapshot::of(&restored).assert_like(&first, oracle::COPY, "the first");
    sync("latest").assert_exit(ExitCode::Done);
    Snapshot::of(&restored).assert_like(&Snapshot::of(&pair.source), oracle::COPY, "the second");
    sync("as-of:2000-01-01").assert_exit(ExitCode::Failed);
    sync("as-of:2100-01-01T00:00:00Z").assert_exit(ExitCode::Done);
    let again = sync("latest");
    assert_eq!(again.report().work.changed(), 0, "{:?}", again.report().work);
}

/// The volume is mounted twice, as in a pod. The second try of the run finds the snapshot of the state before.
#[test]
fn a_volume_goes_back_to_its_own_snapshot_and_keeps_the_state_before_once() {
    let (pair, first) = two_versions();
    let second = Snapshot::of(&pair.destination);
    let seen = scratch::dir(pair.dir(), "seen");
    let _volume = scratch::is_root().then(|| read_only(&pair.destination, &seen));
    let source = if scratch::is_root() { &seen } else { &pair.destination };
    let restore = |id: &str| {
        let ends = ["sync", text(source), text(&pair.destination), "--progress=json", "--run=back-1"];
        let flags =
            ["--delete", "--delete-limit=100", "--snapshot-before=before-back", "--source-snapshot", id];
        pair.start(&[ends, flags].concat()).wait()
    };
    let run = restore("v1");
    run.assert_exit(ExitCode::Done);
    assert!(keeps_state(&run), "{:?}", run.report());
    Snapshot::of(&pair.destination).assert_like(&first, oracle::COPY, "the first");
    let again = restore("v1");
    again.assert_exit(ExitCode::Done);
    assert!(!keeps_state(&again), "{:?}", again.report());
    assert_eq!(again.report().work.changed(), 0, "{:?}", again.report().work);
    let log = snapshots(&pair, "log", &[]);
    assert_eq!(log.matches("restore").count(), 1, "the second changed nothing: {log}");
    assert!(log.contains("back-1"), "{log}");
    let kept = snapshots(&pair, "show", &["before-back", "--json"]);
    assert!(kept.contains("\"purpose\": \"safety\""), "{kept}");
    restore("before-back").assert_exit(ExitCode::Done);
    Snapshot::of(&pair.destination).assert_like(&second, oracle::COPY, "the second");
}

#[test]
fn single_paths_go_back_to_a_snapshot_and_all_else_stays() {
    let (pair, _) = two_versions();
    let at = |name: &str| pair.destination.join(name);
    for (name, content) in [("keep/a", "old"), ("keep/b", "old"), ("other", "old"), ("gone", "old")] {
        fs::create_dir_all(at(name).parent().unwrap()).unwrap();
        fs::write(at(name), content).unwrap();
    }
    snapshots(&pair, "create", &["--tag=whole"]);
    ["keep/a", "keep/b", "other"].iter().for_each(|name| fs::write(at(name), "newer").unwrap());
    fs::remove_file(at("gone")).unwrap();
    fs::write(at("keep/new"), "new").unwrap();
    let restore = |paths: &[&str]| {
        let ends = ["sync", text(&pair.destination), text(&pair.destination), "--progress=json"];
        let flags = ["--delete", "--delete-limit=100", "--source-snapshot=whole"];
        pair.start(&[&ends[..], &flags, paths].concat()).wait()
    };
    restore(&["--restore-path=/keep/a", "--restore-path=gone"]).assert_exit(ExitCode::Done);
    let read = |name: &str| fs::read_to_string(at(name)).unwrap();
    assert_eq!(["keep/a", "keep/b", "other", "gone"].map(read), ["old", "newer", "newer", "old"]);
    assert_eq!(read("keep/new"), "new");
    restore(&["--restore-path=/keep"]).assert_exit(ExitCode::Done);
    assert_eq!(["keep/a", "keep/b", "other"].map(read), ["old", "old", "newer"]);
    assert!(!at("keep/new").exists(), "a folder loses what the snapshot does not have in it");
    for (path, word) in [("--restore-path=/missing", "missing"), ("--restore-path=../x", "--restore-path")] {
        let refused = restore(&[path]);
        assert!(refused.report().message.contains(word), "{}", refused.report().message);
        assert_eq!(read("other"), "newer");
    }
}

fn keeps_state(run: &Ended) -> bool {
    run.report().notes.iter().any(|note| note.starts_with("the state before is kept in snapshot "))
}

/// Returns the output of `volferry snapshot COMMAND` for the destination.
fn snapshots(pair: &Pair, command: &str, args: &[&str]) -> String {
    let mut process = Command::new(program());
    let said = process.args(["snapshot", command]).arg(&pair.destination).args(args).output().unwrap();
    assert!(said.status.success(), "{said:?}");
    String::from_utf8(said.stdout).unwrap()
}

/// Mounts a folder read-only.
fn read_only(folder: &Path, at: &Path) -> Mount {
    let volume = Mount::bind(folder, at);
    let remounted = Command::new("mount").args(["-o", "remount,bind,ro"]).arg(at).status();
    assert!(remounted.unwrap().success());
    volume
}

#[test]
fn a_snapshot_that_is_not_there_is_named_and_nothing_is_changed() {
    let (pair, _) = two_versions();
    let restored = scratch::dir(pair.dir(), "restored");
    let missing = pair.start(&[
        "sync",
        text(&pair.destination),
        text(&restored),
        "--progress=json",
        "--source-snapshot=v9",
    ]);
    let missing = missing.wait();
    missing.assert_exit(ExitCode::Failed);
    assert_eq!(missing.reason(), "SnapshotNotFound");
    assert!(missing.report().message.contains("there is no snapshot v9"), "{:?}", missing.report());
    let wrong = ["--progress=json", "--source-snapshot=as-of:yesterday"];
    let wrong =
        pair.start(&[&["sync", text(&pair.destination), text(&restored)], &wrong[..]].concat()).wait();
    assert_eq!(wrong.reason(), "SnapshotNotFound");
    assert!(wrong.report().message.contains("write it as 2026-11-22"), "{:?}", wrong.report());
    let none =
        pair.start(&["sync", text(&pair.source), text(&restored), "--progress=json", "--source-snapshot=v1"]);
    let none = none.wait();
    assert!(none.report().message.contains("has no snapshots"), "{:?}", none.report());
    let inside = pair.destination.join("inside");
    let inside = ["sync", text(&pair.destination), text(&inside), "--progress=json", "--source-snapshot=v1"];
    let inside = pair.start(&inside).wait();
    assert_eq!(inside.reason(), "SameTree");
    assert_eq!(fs::read_dir(&restored).unwrap().count(), 0);
}

/// A live source has these left out by its scan.
#[test]
fn what_a_run_is_told_not_to_keep_is_not_kept_of_a_snapshot_either() {
    let pair = Pair::new(Way::Local);
    tree::gallery(&pair.source, tree::Shape::Everything);
    fs::write(pair.source.join("one"), "content").unwrap();
    fs::hard_link(pair.source.join("one"), pair.source.join("other")).unwrap();
    pair.start_sync(&["--snapshot", "--snapshot-tag=v1"]).wait().assert_exit(ExitCode::Done);
    let restored = scratch::dir(pair.dir(), "restored");
    let sync = |flags: &[&str]| {
        let ends = ["sync", text(&pair.destination), text(&restored), "--progress=json", "--trust-store"];
        let run = pair.start(&[&ends[..], &["--source-snapshot=v1"], flags].concat()).wait();
        run.assert_exit(ExitCode::Done);
        run.report().work.changed()
    };
    let flags = ["--no-hard-links", "--no-permissions", "--no-specials"];
    sync(&flags);
    assert_eq!(sync(&flags), 0, "nothing is left to do");
    let inode = |name: &str| fs::symlink_metadata(restored.join(name)).unwrap().ino();
    assert_ne!(inode("one"), inode("other"), "they are files of their own");
    let special = ["-type", "p", "-o", "-type", "b", "-o", "-type", "c"];
    let found = Command::new("find").arg(&restored).args(special).output().unwrap();
    assert!(found.status.success() && found.stdout.is_empty(), "{found:?}");

    // A newer file stays, whatever the snapshot has as a name of one file.
    fs::write(restored.join("other"), "newer").unwrap();
    sync(&["--update"]);
    assert_eq!(fs::read_to_string(restored.join("other")).unwrap(), "newer");
}
