//! Runs whose source is a snapshot of a volume.

use std::{fs, process::Command};

use contract::ExitCode;

use crate::common::{
    disk::Mount,
    oracle::{self, Snapshot},
    pair::{Pair, Way, text},
    scratch, tree,
};

/// A pair whose destination has two snapshots, of which the second is of another tree. Returns what the first is of.
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
    let _volume = scratch::is_root().then(|| read_only(&pair));
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

fn read_only(pair: &Pair) -> Mount {
    let volume = Mount::bind(&pair.destination, &pair.destination);
    let remounted = Command::new("mount").args(["-o", "remount,bind,ro"]).arg(&pair.destination).status();
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
    assert_eq!(missing.reason(), "SnapshotUnusable");
    assert!(missing.report().message.contains("there is no snapshot v9"), "{:?}", missing.report());
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
