//! `--write in-place`: large files are updated where they are, and are still wholly old or wholly new after a crash.

use crate::common::prelude::*;

const MIB: usize = 1 << 20;
const FLAGS: [&str; 2] = ["--write=in-place", "--delete"];

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

fn overwrite(path: &Path, at: usize, bytes: &[u8]) {
    fs::OpenOptions::new().write(true).open(path).unwrap().write_all_at(bytes, at as u64).unwrap();
}

#[track_caller]
fn sync(pair: &Pair, what: &str) -> Report {
    let run = pair.done(&FLAGS);
    pair.assert_copy(what);
    pair.assert_staging_empty();
    assert_journal_empty(&pair.destination, what);
    run.report().clone()
}

#[track_caller]
fn assert_journal_empty(destination: &Path, what: &str) {
    let left: Vec<_> = fs::read_dir(destination.join(".volferry/journal")).unwrap().collect();
    assert!(left.is_empty(), "{what}: left in the journal: {left:?}");
}

#[test]
fn large_files_are_updated_where_they_are() {
    for way in Way::EACH {
        let pair = Pair::new(way);
        let mut rng = Rng::new(5);
        let names = ["edited", "grown", "cut", "replaced", "sparse", "small", "moved within"];
        for name in names {
            tree::file(&pair.source.join(name), &rng.bytes(if name == "small" { 200_000 } else { 5 * MIB }));
        }
        pair.sync("before");
        let before = names.map(|name| inode(&pair.destination.join(name)));
        let source = |name: &str| pair.source.join(name);
        overwrite(&source("edited"), 1_000_000, &rng.bytes(20_000));
        overwrite(&source("edited"), 5 * MIB - 5, &rng.bytes(5));
        overwrite(&source("grown"), 5 * MIB - 10, &rng.bytes(700_000));
        fs::OpenOptions::new().write(true).open(source("cut")).unwrap().set_len(3 * MIB as u64 + 77).unwrap();
        fs::write(source("replaced"), rng.bytes(4 * MIB)).unwrap();
        fs::write(source("small"), rng.bytes(200_000)).unwrap();
        let moved = [&rng.bytes(100)[..], &fs::read(source("moved within")).unwrap()].concat();
        fs::write(source("moved within"), moved).unwrap();
        let sparse = fs::OpenOptions::new().write(true).open(source("sparse")).unwrap();
        sparse.set_len(0).unwrap();
        sparse.set_len(9 * MIB as u64).unwrap();
        sparse.write_all_at(&rng.bytes(100_000), 4 * MIB as u64).unwrap();
        tree::set_mode(&source("edited"), 0o4510);
        let report = sync(&pair, &format!("{way:?}"));
        let what = format!("{way:?}: {:?}", report.work);
        assert!(report.work.bytes_reused as usize > 10 * MIB, "{what}");
        assert!(fs::metadata(pair.destination.join("sparse")).unwrap().blocks() * 512 < MIB as u64, "{what}");
        for (name, before) in names.iter().zip(before) {
            let is_same = inode(&pair.destination.join(name)) == before;
            assert_eq!(is_same, *name != "small", "{what}: {name}");
        }
        assert_eq!(sync(&pair, "again").work.files_updated, 0, "{way:?}");
    }
}

#[test]
fn files_that_drifted_are_found_told_of_and_put_right_where_they_are() {
    for way in Way::EACH {
        let pair = Pair::new(way);
        let mut rng = Rng::new(8);
        for name in ["drifted", "well"] {
            tree::file(&pair.source.join(name), &rng.bytes(5 * MIB));
        }
        pair.sync("before");
        let (drifted, before) = (pair.destination.join("drifted"), inode(&pair.destination.join("drifted")));
        let time = fs::metadata(&drifted).unwrap().modified().unwrap();
        overwrite(&drifted, 2 * MIB, b"not what was synced");
        fs::OpenOptions::new().write(true).open(&drifted).unwrap().set_modified(time).unwrap();
        let run = |more: &[&str]| pair.run(&[&FLAGS[..], &["--compare=content"], more].concat());
        let there = Snapshot::of(&pair.destination);
        let told = run(&["--dry-run"]);
        told.assert_exit(ExitCode::Done);
        assert_eq!(told.report().work.files_updated, 1, "{way:?}");
        Snapshot::of(&pair.destination).assert_like(&there, UNTOUCHED, "a dry run");
        assert_journal_empty(&pair.destination, "a dry run");
        let put_right = run(&["--verify"]);
        put_right.assert_exit(ExitCode::Done);
        assert_eq!(put_right.report().work.files_updated, 1, "{way:?}");
        assert_eq!(inode(&drifted), before, "{way:?}");
        pair.assert_copy("put right");
        assert_journal_empty(&pair.destination, "put right");
    }
}

#[test]
fn a_file_with_other_names_is_replaced_and_those_keep_what_they_have() {
    for way in Way::EACH {
        let pair = Pair::new(way);
        let mut rng = Rng::new(6);
        tree::file(&pair.source.join("file"), &rng.bytes(2 * MIB));
        pair.sync("before");
        let old = fs::read(pair.destination.join("file")).unwrap();
        let elsewhere = pair.dir().join("backup of the destination");
        fs::hard_link(pair.destination.join("file"), &elsewhere).unwrap();
        overwrite(&pair.source.join("file"), 5000, b"changed");
        sync(&pair, &format!("{way:?}"));
        assert!(fs::read(&elsewhere).unwrap() == old, "{way:?}: the other name changed");
    }
}

#[test]
fn it_takes_the_room_of_what_changes_and_without_that_the_file_stays_old() {
    for (way, kind) in Way::EACH.into_iter().flat_map(|way| [(way, "ext4"), (way, "xfs")]) {
        let size = if kind == "xfs" { 300 } else { 40 } * MIB as u64;
        let Some(disk) = Disk::new(kind, size, "") else { return };
        let mut pair = Pair::new(way);
        let what = format!("{way:?} on {kind}");
        pair.destination = scratch::dir(&disk.path(), "copy");
        let mut rng = Rng::new(7);
        let file = pair.source.join("file");
        tree::file(&file, &rng.bytes(16 * MIB));
        pair.sync("before");
        let old = fs::read(pair.destination.join("file")).unwrap();
        let filler = disk.path().join("filler");
        leave_room(&filler, 5 * MIB);
        overwrite(&file, 2 * MIB, &rng.bytes(8 * MIB));
        let run = pair.run_to(ExitCode::Partial, &FLAGS);
        let failure = &run.report().failures[0];
        assert!(
            failure.path == "file" && failure.error.contains("No space left on device"),
            "{what}: {failure:?}"
        );
        assert!(fs::read(pair.destination.join("file")).unwrap() == old, "{what}");
        pair.assert_staging_empty();
        assert_journal_empty(&pair.destination, &what);
        overwrite(&file, 0, &old);
        overwrite(&file, 2 * MIB, &rng.bytes(2 * MIB));
        sync(&pair, &what);
        fs::remove_file(&filler).unwrap();
    }
}

/// Fills a disk until about `room` bytes are free.
fn leave_room(filler: &Path, room: usize) {
    let file = fs::File::create(filler).unwrap();
    let mut at = 0;
    let chunk = vec![1; 64 << 10];
    while file.write_all_at(&chunk, at).is_ok() {
        at += chunk.len() as u64;
    }
    file.set_len(at.saturating_sub(room as u64)).unwrap();
    file.sync_all().unwrap();
}

#[test]
fn a_damaged_journal_stops_the_run_and_says_what_to_do() {
    for way in Way::EACH {
        let pair = Pair::new(way);
        tree::file(&pair.source.join("file"), &Rng::new(8).bytes(2 * MIB));
        pair.sync("before");
        let entry = pair.destination.join(".volferry/journal/0123456789abcdef0123456789abcdef");
        fs::write(&entry, "not what was written").unwrap();
        let run = pair.run_to(ExitCode::Failed, &FLAGS);
        let sink = run.ends().last().unwrap();
        assert_eq!(sink.reason(), "JournalUnusable", "{way:?}");
        let message = &sink.report().message;
        assert!(
            message.contains(&*show(entry.as_os_str().as_encoded_bytes())) && message.contains("run again"),
            "{message}"
        );
        fs::remove_file(&entry).unwrap();
        sync(&pair, "without it");
    }
}
