//! Content that the destination has is not sent again: a run keeps, clones, moves or recombines it, and the result is
//! byte for byte the source's.

use std::{
    fs::File,
    io::Write as _,
    os::fd::AsFd as _,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use syncer::internals::ClonedAt;

use crate::common::prelude::*;
use crate::common::tree::file;

const MIB: usize = 1 << 20;

/// The bytes beside content: handshake, listings, frame headers, acknowledgements.
const OVERHEAD: u64 = 200 << 10;

fn random(pair: &Pair, name: &str, len: usize) {
    write(&pair.source.join(name), &Rng::new(len as u64).bytes(len));
}

fn write(path: &Path, content: &[u8]) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    file(path, content);
}

#[track_caller]
fn assert_sent(report: &Report, at_most: u64, what: &str) {
    let sent = report.work.bytes_on_wire;
    assert!(sent <= at_most + OVERHEAD, "{what}: {sent} bytes on the wire for {at_most} that are new");
}

fn overwrite(path: &Path, offset: u64, bytes: &[u8]) {
    fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, offset).unwrap();
}

fn append(path: &Path, bytes: &[u8]) {
    fs::OpenOptions::new().append(true).open(path).unwrap().write_all(bytes).unwrap();
}

#[test]
fn an_edit_in_place_sends_what_it_touched() {
    for pair in Pair::each(Way::NETWORK) {
        for (name, len) in [("large", 70 * MIB + 777), ("block", MIB), ("half", 600_000)] {
            random(&pair, name, len);
        }
        pair.sync("the first run");
        overwrite(&pair.source.join("large"), 9_999_999, &[1; 50_000]);
        overwrite(&pair.source.join("large"), 70 * MIB as u64 + 770, &[2; 7]);
        overwrite(&pair.source.join("block"), 0, &[3; 1]);
        overwrite(&pair.source.join("half"), 599_999, &[4; 1]);
        let report = pair.sync("after the edits");
        assert_sent(&report, 50_000 + 6 * (16 << 10), "edits in place");
        assert!(report.work.bytes_reused > 71 * MIB as u64, "{:?}", report.work);
    }
}

#[test]
fn what_was_appended_is_all_that_is_sent() {
    for pair in Pair::each(Way::NETWORK) {
        for (name, len) in [("small", 100_000), ("half", 600_000), ("large", 9 * MIB), ("tiny", 3)] {
            random(&pair, name, len);
        }
        pair.sync("the first run");
        for name in ["small", "half", "large", "tiny"] {
            append(&pair.source.join(name), b"one line more\n");
        }
        assert_sent(&pair.sync("after the lines"), 0, "a line for each of four files");
    }
}

#[test]
fn an_insertion_sends_itself_and_about_a_chunk() {
    for pair in Pair::each(Way::NETWORK) {
        random(&pair, "file", 24 * MIB);
        pair.sync("the first run");
        let path = pair.source.join("file");
        let old = fs::read(&path).unwrap();
        let inserted = Rng::new(1).bytes(300_000);
        fs::write(&path, [&old[..5_000_000], &inserted, &old[5_000_000..]].concat()).unwrap();
        assert_sent(&pair.sync("after the insertion"), 300_000 + (192 << 10), "an insertion");
        fs::write(&path, &old[3_000_000..]).unwrap();
        // What was inserted is gone, too, so two chunks change.
        assert_sent(&pair.sync("after the removal"), 2 * (192 << 10), "a removal");
    }
}

/// Returns the free space of the file system in bytes.
fn room(path: &Path) -> u64 {
    let stat = rustix::fs::statvfs(path).unwrap();
    stat.f_bavail * stat.f_frsize
}

#[test]
fn where_blocks_can_be_shared_what_stayed_or_moved_by_blocks_is_not_written_again() {
    for kind in [FileSystem::Xfs, FileSystem::Btrfs] {
        let Some(mounted) = kind.mount() else { continue };
        for way in Way::NETWORK {
            let pair = Pair::in_dir(mounted.folder(), way);
            random(&pair, "file", 48 * MIB);
            pair.sync("the first run");
            let (source, copy) = (pair.source.join("file"), pair.destination.join("file"));
            let old = fs::read(&source).unwrap();
            let inserted = Rng::new(1).bytes(MIB);
            let versions = [
                ("appended", [&old[..], b"one line more"].concat(), true),
                ("inserted by blocks", [&old[..MIB + 77], &inserted, &old[MIB + 77..]].concat(), true),
                ("removed by blocks", old[3 * MIB..].to_vec(), true),
                ("cut short", old[..40 * MIB + 5].to_vec(), true),
                ("inserted", [&old[..MIB], &inserted[..1000], &old[MIB..]].concat(), false),
                ("as it was", old.clone(), false),
            ];
            for (what, version, shares) in versions {
                fs::write(&source, &version).unwrap();
                let held = File::create(pair.dir().join("held")).unwrap();
                rustix::fs::ioctl_ficlone(&held, File::open(&copy).unwrap()).unwrap();
                rustix::fs::syncfs(&held).unwrap();
                let before = room(&copy);
                pair.sync(what);
                let taken = before.saturating_sub(room(&copy));
                assert!(!shares || taken < 12 * MIB as u64, "{kind:?}, {what}: {taken} bytes were taken");
                assert!(fs::read(&copy).unwrap() == version, "{kind:?}, {what}");
            }
        }
    }
}

#[test]
fn a_write_to_a_file_after_it_was_cloned_is_noticed() {
    for kind in [FileSystem::Xfs, FileSystem::Btrfs] {
        let Some(mounted) = kind.mount() else { continue };
        let folder = mounted.folder();
        let file = File::create_new(folder.path().join("file")).unwrap();
        let clone = File::create_new(folder.path().join("clone")).unwrap();
        file.write_all_at(&[1; 8192], 0).unwrap();
        // A file system's clock advances by some milliseconds at a time.
        let cloned = loop {
            rustix::fs::ioctl_ficlone(&clone, &file).unwrap();
            let cloned = ClonedAt::of(clone.as_fd());
            if cloned.is_still(file.as_fd()) {
                break cloned;
            }
        };
        file.write_all_at(&[2], 4096).unwrap();
        assert!(!cloned.is_still(file.as_fd()), "{kind:?}");
    }
}

#[test]
fn what_is_written_to_an_old_version_while_it_is_replaced_is_not_in_the_new_one() {
    for kind in [FileSystem::Xfs, FileSystem::Btrfs] {
        let Some(mounted) = kind.mount() else { continue };
        let pair = Pair::in_dir(mounted.folder(), Way::NETWORK[0]);
        random(&pair, "file", 24 * MIB);
        pair.sync("the first run");
        let (source, copy) = (pair.source.join("file"), pair.destination.join("file"));
        for added in [0, 1000, MIB] {
            let there = fs::read(&copy).unwrap();
            let mut version = there.clone();
            let places: Vec<_> = (100..version.len()).step_by(64 << 10).collect();
            places.iter().for_each(|&at| version[at] ^= 1);
            let old = File::options().write(true).open(&copy).unwrap();
            let is_replaced = AtomicBool::new(false);
            let write = |byte: u8, at: usize| old.write_all_at(&[byte], at as u64).unwrap();
            let turns = [version.clone(), there];
            version.splice(MIB..MIB, Rng::new(added as u64).bytes(added));
            fs::write(&source, &version).unwrap();
            thread::scope(|scope| {
                scope.spawn(|| {
                    let turns = turns.iter().cycle().take_while(|_| !is_replaced.load(Relaxed));
                    turns.for_each(|turn| places.iter().for_each(|&at| write(turn[at], at)));
                });
                // A write after the run has read the old version makes that version useless: then the run fails, and is
                // repeated.
                let done = (0..5).any(|_| pair.run(&[]).report().result == RunResult::Succeeded);
                is_replaced.store(true, Relaxed);
                assert!(done, "{kind:?}, {added} bytes added");
            });
            assert!(fs::read(&copy).unwrap() == version, "{kind:?}, {added} bytes added");
        }
    }
}

#[test]
fn a_file_that_is_new_twice_crosses_once_whatever_else_it_was_compared_with() {
    const LEN: usize = 24 * MIB;
    for pair in Pair::each(Way::NETWORK) {
        for seed in 0..3 {
            write(&pair.source.join(format!("of the same length {seed}")), &Rng::new(seed).bytes(LEN));
        }
        pair.sync("the first run");
        for name in ["new", "folder/other"] {
            write(&pair.source.join(name), &Rng::new(7).bytes(LEN));
        }
        assert_sent(&pair.sync("after the new ones"), LEN as u64, "one of the new ones");
    }
}

#[test]
fn a_file_that_shrank_is_what_it_is_now() {
    for pair in Pair::each(Way::NETWORK) {
        random(&pair, "large", 8 * MIB);
        random(&pair, "half", 600_000);
        pair.sync("the first run");
        for (name, len) in [("large", 3 * MIB as u64 + 5), ("half", 300_001)] {
            let file = fs::OpenOptions::new().write(true).open(pair.source.join(name)).unwrap();
            file.set_len(len).unwrap();
        }
        pair.sync("cut short");
        for name in ["large", "half"] {
            fs::write(pair.source.join(name), b"").unwrap();
        }
        pair.sync("emptied");
    }
}

#[test]
fn a_renamed_folder_is_renamed() {
    for pair in Pair::each(Way::NETWORK) {
        for number in 0..20 {
            random(&pair, &format!("old/sub/{number}"), 400_000 + number);
        }
        random(&pair, "old/small", 10);
        pair.sync("the first run");
        fs::create_dir(pair.source.join("new parent")).unwrap();
        fs::rename(pair.source.join("old"), pair.source.join("new parent/new")).unwrap();
        let inode = |path: &str| {
            std::os::unix::fs::MetadataExt::ino(&fs::metadata(pair.destination.join(path)).unwrap())
        };
        let before = inode("old/sub/7");
        assert_sent(&pair.sync("after the rename"), 0, "a rename");
        assert_eq!(inode("new parent/new/sub/7"), before);
    }
}

/// Copies and archives give the same time to many files, so times do not identify files.
#[test]
fn a_folder_that_only_looks_like_another_is_sent() {
    for pair in Pair::each(Way::NETWORK) {
        let make = |dir: &str, byte: u8| {
            for name in ["a", "b"] {
                let path = pair.source.join(dir).join(name);
                write(&path, &[byte; 200_000]);
                crate::common::tree::set_mtime(&path, 1_000_000, 0);
            }
        };
        make("version 1", 1);
        pair.sync("the first run");
        fs::remove_dir_all(pair.source.join("version 1")).unwrap();
        make("version 2", 2);
        pair.sync("another version in another folder");
    }
}

#[test]
fn a_copy_of_a_file_is_made_from_what_is_there() {
    for pair in Pair::each(Way::NETWORK) {
        random(&pair, "folder/original", 12 * MIB);
        pair.sync("the first run");
        fs::copy(pair.source.join("folder/original"), pair.source.join("copy")).unwrap();
        assert_sent(&pair.sync("after the copy"), 16 << 10, "a copy");
        fs::rename(pair.source.join("folder/original"), pair.source.join("renamed")).unwrap();
        assert_sent(&pair.sync("after the rename"), 16 << 10, "a renamed file");
    }
}

#[test]
fn what_was_copied_and_then_changed_is_made_from_what_its_name_is_like() {
    for pair in Pair::each(Way::NETWORK) {
        random(&pair, "backups/db-2026-11-20.tar", 9 * MIB);
        random(&pair, "backups/db-2026-11-19.tar", 5 * MIB);
        random(&pair, "logs/access", 4 * MIB + 3);
        random(&pair, "old/place/image", 6 * MIB);
        pair.sync("the first run");
        let copy = |from: &str, to: &str| {
            let to = pair.source.join(to);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(pair.source.join(from), &to).unwrap();
            to
        };
        append(&copy("backups/db-2026-11-20.tar", "backups/db-2026-11-21.tar"), &[1; 50_000]);
        append(&copy("logs/access", "logs/access.1"), b"one more line\n");
        let moved = fs::read(copy("old/place/image", "new/image")).unwrap();
        fs::remove_dir_all(pair.source.join("old")).unwrap();
        write(&pair.source.join("new/image"), &[&moved[..3 * MIB], b"inserted", &moved[3 * MIB..]].concat());
        let report = pair.sync("after three were copied and changed");
        assert_sent(&report, 50_000 + 4 * (128 << 10), "like what is there");
        assert!(report.work.bytes_reused > 18 * MIB as u64, "{:?}", report.work);
    }
}

#[test]
fn a_file_is_put_together_from_parts_of_others_of_any_name_and_length() {
    for pair in Pair::each(Way::NETWORK) {
        random(&pair, "images/base", 20 * MIB);
        random(&pair, "dumps/users.sql", 7 * MIB + 1);
        (0..5).for_each(|n| random(&pair, &format!("other/{n}"), 3 * MIB + 10 + n));
        pair.sync("the first run");
        let [base, users] =
            ["images/base", "dumps/users.sql"].map(|name| fs::read(pair.source.join(name)).unwrap());
        let fresh = Rng::new(99).bytes(MIB);
        let parts = [&base[3 * MIB + 7..15 * MIB], &fresh, &users[MIB / 2..], &base[..2 * MIB]];
        write(&pair.source.join("bundle"), &parts.concat());
        // The folder is removed, though its content is needed, and the file is replaced.
        fs::remove_dir_all(pair.source.join("dumps")).unwrap();
        write(&pair.source.join("images/base"), b"short now");
        let report = pair.sync("a bundle");
        assert_sent(&report, MIB as u64 + 6 * (128 << 10), "a bundle of two others");
        assert!(report.work.bytes_reused > 18 * MIB as u64, "{:?}", report.work);
    }
}

#[test]
fn what_new_files_have_in_common_is_sent_once() {
    for pair in Pair::each(Way::NETWORK) {
        random(&pair, "a", 20 * MIB);
        let a = fs::read(pair.source.join("a")).unwrap();
        write(&pair.source.join("later/copy"), &a);
        let fresh = Rng::new(99).bytes(3 * MIB);
        write(&pair.source.join("bundle"), &[&fresh[..], &a[MIB + 7..13 * MIB]].concat());
        let report = pair.sync("the first run");
        assert_sent(&report, 23 * MIB as u64 + 6 * (128 << 10), "what is new");
        assert!(report.work.bytes_reused > 31 * MIB as u64, "{:?}", report.work);
        // Content from existing files, from removed files and from new ones.
        fs::remove_dir_all(pair.source.join("later")).unwrap();
        let fresh = Rng::new(98).bytes(18 * MIB);
        write(&pair.source.join("more/first"), &fresh);
        write(&pair.source.join("more/then"), &[&a[2 * MIB..7 * MIB], &fresh[6 * MIB..]].concat());
        write(&pair.source.join("once more"), &[&Rng::new(97).bytes(MIB), &fresh[..12 * MIB]].concat());
        let report = pair.sync("what is like old and new files");
        assert_sent(&report, 19 * MIB as u64 + 8 * (128 << 10), "what is new");
    }
}

#[test]
fn what_is_in_no_other_file_is_sent_once() {
    for pair in Pair::each(Way::NETWORK) {
        random(&pair, "there", 9 * MIB);
        pair.sync("the first run");
        random(&pair, "stranger", 5 * MIB);
        write(&pair.source.join("much the same"), &[7; 6 * MIB]);
        write(&pair.source.join("again"), &Rng::new(3).bytes(1000).repeat(4000));
        let report = pair.sync("three strangers");
        assert_sent(&report, 15 * MIB as u64, "strangers");
        assert_eq!(report.work.bytes_reused, 0);
    }
}

#[test]
fn names_that_are_alike_cost_little_where_contents_are_not() {
    for pair in Pair::each(Way::NETWORK) {
        (0..3).for_each(|n| random(&pair, &format!("part{n}"), 2 * MIB + n));
        pair.sync("the first run");
        (0..12).for_each(|n| random(&pair, &format!("part{}", n + 10), 2 * MIB + 100 + n));
        let report = pair.sync("twelve more");
        assert_sent(&report, 12 * (2 * MIB as u64 + 112), "nothing is like them");
        assert_eq!(report.work.bytes_reused, 0);
    }
}

#[test]
fn files_of_one_length_that_have_nothing_in_common_are_sent() {
    for pair in Pair::each(Way::NETWORK) {
        for number in 0..10_u64 {
            file(&pair.source.join(number.to_string()), &Rng::new(number).bytes(300_000));
        }
        pair.sync("the first run");
        for number in 10..30_u64 {
            file(&pair.source.join(number.to_string()), &Rng::new(number).bytes(300_000));
        }
        pair.sync("others of the same length");
    }
}

#[test]
fn holes_stay_holes() {
    for pair in Pair::each(Way::NETWORK) {
        sparse_edits(&pair);
    }
    for way in Way::NETWORK {
        sparse_edits(&Pair::in_dir(scratch::on_disk(), way));
    }
}

fn sparse_edits(pair: &Pair) {
    let allocated = |path: &Path| std::os::unix::fs::MetadataExt::blocks(&fs::metadata(path).unwrap()) * 512;
    for (name, len) in [("large", 80 * MIB as u64 + 1), ("small", 90_000), ("hole", 5 * MIB as u64)] {
        let path = pair.source.join(name);
        fs::File::create(&path).unwrap().set_len(len).unwrap();
    }
    let large = pair.source.join("large");
    overwrite(&large, 33 * MIB as u64 + 4096, &[1; 10_000]);
    overwrite(&pair.source.join("small"), 40_960, &[2; 100]);
    assert_sent(&pair.sync("the first run"), 20_000, "files with holes");
    overwrite(&large, 60 * MIB as u64, &[3; 5_000]);
    pair.sync("data in a hole");
    fs::File::create(&large).unwrap().set_len(80 * MIB as u64 + 1).unwrap();
    overwrite(&large, 10 * MIB as u64, &[4; 5_000]);
    pair.sync("a hole where there was data");
    for name in ["large", "small", "hole"] {
        let (source, sink) = (allocated(&pair.source.join(name)), allocated(&pair.destination.join(name)));
        assert!(sink <= source + (64 << 10), "{name} takes {sink} bytes, {source} at the source");
    }
}
