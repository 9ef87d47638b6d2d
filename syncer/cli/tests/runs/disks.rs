//! Disks that are full, that are read-only, and that cannot be read: the report names the file, its old version stays,
//! and once the disk is repaired a run makes the destination equal the source.

use std::fs::OpenOptions;

use crate::common::prelude::*;

const MIB: u64 = 1 << 20;

/// Makes a pair in step whose destination is on `disk`, then changes everything at the source, so that one file no
/// longer fits.
fn outgrown(mut pair: Pair, disk: &Disk) -> Pair {
    pair.destination = scratch::dir(&disk.path(), "copy");
    fill(&pair.source, 1, 2 * MIB);
    pair.sync("before");
    fill(&pair.source, 2, 14 * MIB);
    pair
}

fn fill(source: &Path, seed: u64, large: u64) {
    let mut rng = Rng::new(seed);
    for number in 0..20 {
        tree::file(&source.join(format!("small {number}")), &rng.bytes(3000 + seed as usize));
    }
    tree::file(&source.join("large"), &rng.bytes(large as usize));
}

/// Checks that each file at the destination is as at the source, or unchanged and named with `error`.
#[track_caller]
fn assert_named(pair: &Pair, old: &Path, report: &Report, error: &str) {
    for entry in fs::read_dir(&pair.source).unwrap() {
        let name = entry.unwrap().file_name();
        let read = |dir: &Path| fs::read(dir.join(&name)).unwrap();
        let failed = report.failures.iter().find(|failure| *failure.path == *name);
        let unnamed = report.work.files_failed > report.failures.len() as u64;
        match read(&pair.destination) {
            there if there == read(&pair.source) => assert!(failed.is_none(), "{:?}: {failed:?}", pair.way),
            there => {
                assert!(there == read(old), "{:?}: {name:?} is neither old nor new", pair.way);
                assert!(
                    failed.is_some_and(|failed| failed.error.contains(error)) || unnamed,
                    "{name:?}: {report:?}"
                );
            }
        }
    }
}

/// Runs once and checks that at least the large file fails for lack of space, then once to completion with space.
fn run_out_of_room(pair: &Pair, error: &str, make_room: impl FnOnce()) {
    let old = pair.dir().join("old");
    run(Command::new("cp").arg("-a").args([&pair.destination, &old])).unwrap();
    let out = pair.run_to(ExitCode::Partial, &["--delete", "--force"]);
    let report = out.report();
    assert!(
        report.failures.iter().all(|failure| failure.error.contains(error)),
        "{:?}: {report:?}",
        pair.way
    );
    assert!(fs::read(pair.destination.join("large")).unwrap() == fs::read(old.join("large")).unwrap());
    assert_named(pair, &old, report, error);
    pair.assert_staging_empty();
    make_room();
    pair.sync("once there is room");
}

#[test]
fn on_a_full_disk_each_file_is_old_or_new_and_those_that_found_no_room_are_named() {
    for way in Way::ALL {
        let Some(disk) = Disk::new("ext4", 24 * MIB, "") else { return };
        let pair = outgrown(Pair::new(way), &disk);
        let filler = disk.path().join("filler");
        fs::write(&filler, vec![1; 8 * MIB as usize]).unwrap();
        run_out_of_room(&pair, "No space left on device", || fs::remove_file(&filler).unwrap());
    }
}

#[test]
fn a_quota_is_met_like_a_full_disk() {
    for way in Way::ALL {
        let Some(disk) = Disk::new("btrfs", 256 * MIB, "") else { return };
        let btrfs = |args: &[&str]| run(Command::new("btrfs").args(args).arg(disk.path())).unwrap();
        let pair = outgrown(Pair::new(way), &disk);
        btrfs(&["quota", "enable"]);
        btrfs(&["quota", "rescan", "-w"]);
        btrfs(&["qgroup", "limit", "8M"]);
        run_out_of_room(&pair, "quota", || btrfs(&["qgroup", "limit", "none"]));
    }
}

/// The content that [`rot`] damages.
const MARK: &[u8; 32] = b"here the disk is broken, bit rot";

/// Flips bytes at each place where the image of a file system holds [`MARK`].
fn rot(image: &Path) {
    let bytes = fs::read(image).unwrap();
    let marks = bytes.windows(MARK.len()).enumerate().filter(|(_, window)| window == MARK);
    let image = OpenOptions::new().write(true).open(image).unwrap();
    let rotten = marks.map(|(at, _)| image.write_all_at(b"!!!!", at as u64).unwrap()).count();
    assert!(rotten > 0, "the mark is not on the disk");
}

#[test]
fn a_file_that_the_disk_has_lost_is_named_and_the_destination_keeps_its_own() {
    // btrfs checks the data that it wrote, and fails rather than return other data.
    let Some(disk) = Disk::new("btrfs", 128 * MIB, "") else { return };
    let source = scratch::dir(&disk.path(), "source");
    let mut rng = Rng::new(7);
    for (name, len) in [("small", 5000), ("large", 3_000_000)] {
        tree::file(&source.join(name), &rng.bytes(len));
        let broken = [&rng.bytes(len)[..], MARK, &rng.bytes(len)].concat();
        tree::file(&source.join(format!("broken {name}")), &broken);
    }
    let pairs = Way::ALL.map(|way| {
        let mut pair = Pair::new(way);
        pair.source.clone_from(&source);
        pair.sync("before");
        // The times of these files differ, so a run takes them for changed.
        for name in ["small", "large", "broken small", "broken large"] {
            tree::set_mtime(&pair.destination.join(name), 1, 0);
        }
        pair
    });
    disk.remount("", rot);
    for pair in &pairs {
        let before =
            ["broken small", "broken large"].map(|name| fs::read(pair.destination.join(name)).unwrap());
        let out = pair.run_to(ExitCode::Partial, &["--delete"]);
        let report = out.report();
        let mut named: Vec<_> = report.failures.iter().map(|failure| failure.path.as_str()).collect();
        named.sort_unstable();
        assert_eq!(named, ["broken large", "broken small"], "{:?}", pair.way);
        assert!(
            report.failures.iter().all(|failure| failure.error.contains("Input/output error")),
            "{report:?}"
        );
        for (name, before) in ["broken small", "broken large"].iter().zip(before) {
            assert!(fs::read(pair.destination.join(name)).unwrap() == before, "{:?}: {name}", pair.way);
        }
        assert_eq!(report.work.files_updated, 2, "the others arrive");
        pair.assert_staging_empty();
    }
    for name in ["broken small", "broken large"] {
        fs::remove_file(source.join(name)).unwrap();
        tree::file(&source.join(name), b"from a backup");
    }
    pairs.iter().for_each(|pair| drop(pair.sync("once the files were written anew")));
}

#[test]
fn a_destination_that_is_mounted_read_only_is_refused_by_name() {
    for way in Way::ALL {
        let Some(disk) = Disk::new("ext4", 24 * MIB, "") else { return };
        let mut pair = Pair::new(way);
        pair.destination = scratch::dir(&disk.path(), "copy");
        tree::file(&pair.source.join("file"), b"content");
        pair.sync("before");
        tree::file(&pair.source.join("file"), b"new content");
        disk.remount("ro", |_| ());
        let out = pair.refuse(&["--delete"], ExitCode::Failed, "DestinationUnusable");
        for end in out.ends() {
            let message = &end.report().message;
            assert!(
                message.contains("Read-only file system") && message.contains(text(&pair.destination)),
                "{message}"
            );
        }
        disk.remount("", |_| ());
        pair.sync("once it may be written to");
    }
}
