//! Times that the destination's file system cannot keep: a run says so, and later runs compare with what it keeps.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::prelude::*;

/// Seconds since 1970 of times in 1890, 2026, 2040 and 2500, of which ext4 with inodes of 128 bytes keeps one.
const SECONDS: [(&str, i64); 4] =
    [("old", -2_500_000_000), ("now", 1_800_000_000), ("new", 2_220_000_000), ("far", 16_730_000_000)];

const NANOS: u32 = 123_456_789;

/// Sets the modification time of a file, a folder or a link.
fn touch(path: &Path, seconds: i64, nanos: u32) {
    let time = |tv_sec, tv_nsec| rustix::fs::Timespec { tv_sec, tv_nsec };
    let times =
        rustix::fs::Timestamps { last_access: time(0, 0), last_modification: time(seconds, nanos.into()) };
    rustix::fs::utimensat(rustix::fs::CWD, path, &times, rustix::fs::AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// Makes a pair whose destination keeps whole seconds from 1901 to 2038, and fills the source.
fn pair(way: Way, disk: &Disk) -> Pair {
    let mut pair = Pair::new(way);
    pair.destination = scratch::dir(&disk.path(), &format!("{way:?}"));
    for (name, seconds) in SECONDS {
        let dir = scratch::dir(&pair.source, name);
        tree::file(&dir.join("file"), b"content");
        std::os::unix::fs::symlink("file", dir.join("link")).unwrap();
        ["file", "link", ""].iter().for_each(|name| touch(&dir.join(name), seconds, NANOS));
    }
    touch(&pair.source, SECONDS[0].1, NANOS);
    pair
}

fn small_inodes() -> Option<Disk> {
    Disk::made_with("ext4", &["-I", "128"], 16 << 20, "")
}

fn of_times(report: &Report) -> Vec<String> {
    report.notes.iter().filter(|note| note.contains("modification times")).cloned().collect()
}

fn modified(path: &Path) -> SystemTime {
    fs::symlink_metadata(path).unwrap().modified().unwrap()
}

#[test]
fn times_that_the_destination_cannot_keep_are_named_once_and_change_nothing_again() {
    let Some(disk) = small_inodes() else { return };
    for way in Way::ALL {
        let pair = pair(way, &disk);
        let first = pair.done(&["--delete"]);
        let expected = "12 entries did not keep their modification times: the destination keeps times from 1901-12-13 to \
                        2038-01-19 in steps of 1 s, and later runs compare with these; set other times";
        let notes = of_times(first.report());
        assert!(notes.len() == 1 && notes[0].starts_with(expected), "{way:?}: {notes:?}");
        for flags in [&["--delete"][..], &["--delete", "--verify"], &["--dry-run"], &["--update"], &["-c"]] {
            disk.remount("", |_| ());
            let again = pair.done(flags);
            let work = again.report().work;
            let changed = work.files_created + work.files_updated + work.files_deleted + work.bytes_changed;
            assert_eq!((changed, of_times(again.report())), (0, vec![]), "{way:?}, {flags:?}: {work:?}");
        }
        for (path, seconds) in [("now/file", 1_800_000_001), ("old/file", 1_000), ("far", 1_000)] {
            touch(&pair.source.join(path), seconds, 0);
            let changed = pair.done(&["--delete"]);
            assert_eq!(changed.report().work.files_updated, 1, "{way:?}: {path}");
            let kept = UNIX_EPOCH + Duration::from_secs(seconds as u64);
            assert_eq!(modified(&pair.destination.join(path)), kept, "{way:?}: {path}");
        }
    }
}

#[test]
fn a_file_system_that_keeps_all_times_is_compared_in_full() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        tree::file(&pair.source.join("file"), b"content");
        touch(&pair.source.join("file"), SECONDS[0].1, NANOS);
        assert_eq!(of_times(&pair.sync("first")), Vec::<String>::new());
        pair.sync_unchanged("again");
        touch(&pair.source.join("file"), SECONDS[0].1, NANOS + 1);
        assert_eq!(pair.sync("a nanosecond later").work.files_updated, 1, "{way:?}");
    }
}

#[test]
fn a_time_that_changes_within_what_the_destination_keeps_is_no_change() {
    let Some(disk) = small_inodes() else { return };
    let pair = pair(Way::Local, &disk);
    pair.done(&[]);
    touch(&pair.source.join("far/file"), SECONDS[3].1 + 5, 0);
    touch(&pair.source.join("now/file"), SECONDS[1].1, NANOS + 1);
    assert_eq!(pair.run(&[]).report().work.files_updated, 0);
    run(Command::new("touch").arg("-d").arg("2037-01-01").arg(pair.source.join("far/file"))).unwrap();
    assert_eq!(pair.run(&[]).report().work.files_updated, 1);
}
