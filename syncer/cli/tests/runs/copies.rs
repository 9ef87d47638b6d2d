//! A copy equals its source; an unchanged entry does not move, and a changed one moves exactly.

use std::os::unix::net::UnixListener;

use crate::common::oracle::assert_copy;
use crate::common::prelude::*;

#[test]
fn one_of_everything_arrives_and_then_nothing_moves() {
    for pair in Pair::each(Way::ALL) {
        tree::gallery(&pair.source, Shape::Everything);
        let report = pair.sync("one of everything");
        assert_eq!(report.result, RunResult::Succeeded);
        assert_eq!(report.notes, [""; 0]);
        pair.sync_unchanged("one of everything again");
    }
}

#[test]
fn one_of_everything_arrives_on_a_disk() {
    let pair = Pair::in_dir(scratch::on_disk(), Way::Local);
    tree::gallery(&pair.source, Shape::Everything);
    pair.sync("one of everything");
    pair.sync_unchanged("one of everything again");
}

#[test]
fn an_empty_tree_is_a_tree() {
    for pair in Pair::each(Way::ALL) {
        tree::set_mtime(&pair.source, 77, 7);
        tree::set_mode(&pair.source, 0o2751);
        pair.sync("nothing at all");
        pair.sync_unchanged("nothing at all again");
    }
}

#[test]
fn every_kind_of_edit_moves_what_it_changed_and_no_more() {
    for (way, seed) in Way::ALL.into_iter().zip(100..) {
        let pair = Pair::new(way);
        let mut rng = Rng::new(seed);
        tree::random(&pair.source, &mut rng, 150, Shape::Everything);
        pair.sync("the first run");
        for edit in Edit::ALL {
            if (0..20).any(|_| edit.apply(&pair.source, &mut rng).is_some()) {
                pair.sync(&format!("{edit:?}, seed {seed}"));
            }
        }
        pair.sync_unchanged("after all edits");
    }
}

#[test]
fn drift_at_the_destination_is_put_right() {
    for (way, seed) in Way::ALL.into_iter().zip(200..) {
        let pair = Pair::new(way);
        let mut rng = Rng::new(seed);
        tree::random(&pair.source, &mut rng, 150, Shape::Everything);
        pair.sync("the first run");
        for edits in Edit::ALL.chunks(3) {
            for edit in edits {
                (0..20).find_map(|_| edit.apply(&pair.destination, &mut rng));
            }
            pair.sync(&format!("{edits:?} at the destination, seed {seed}"));
        }
    }
}

#[test]
fn rsync_makes_the_same_tree_of_the_same_edits() {
    for (way, seed) in Way::ALL.into_iter().cycle().zip(0..6) {
        let pair = Pair::new(way);
        let peer = pair.dir().join("rsync");
        let mut rng = Rng::new(seed);
        tree::random(&pair.source, &mut rng, 120, Shape::Everything);
        for round in 0..4 {
            for _ in 0..round * 6 {
                let edit = *rng.pick(&Edit::ALL).unwrap();
                edit.apply(&pair.source, &mut rng);
            }
            let what = format!("seed {seed}, round {round}");
            pair.sync(&what);
            rsync(&pair.source, &peer);
            assert_copy(&pair.destination, &peer, &format!("beside rsync's: {what}"));
        }
    }
}

#[test]
fn rsync_makes_the_same_tree_of_one_of_everything() {
    let pair = Pair::new(Way::Local);
    tree::gallery(&pair.source, Shape::Everything);
    let peer = pair.dir().join("rsync");
    pair.sync("one of everything");
    rsync(&pair.source, &peer);
    assert_copy(&pair.destination, &peer, "beside rsync's");
}

/// Copies with rsync; `--modify-window=-1` makes it compare nanoseconds, too.
pub(super) fn rsync(source: &Path, destination: &Path) {
    let from = format!("{}/", text(source));
    let args = ["-aHAXS", "--delete", "--modify-window=-1", &from, text(destination)];
    let run = Command::new("rsync").args(args).output();
    let run = run.expect("rsync is the oracle of these tests: install the package rsync");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

#[test]
fn both_folders_may_be_given_through_links() {
    for mut pair in Pair::each(Way::ALL) {
        tree::random(&pair.source, &mut Rng::new(3), 20, Shape::Everything);
        for path in [&mut pair.source, &mut pair.destination] {
            let link = path.with_extension("link");
            std::os::unix::fs::symlink(&path, &link).unwrap();
            *path = link;
        }
        pair.sync("through links");
    }
}

#[test]
fn without_delete_what_only_the_destination_has_stays() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        tree::file(&pair.source.join("ours"), b"ours");
        fs::create_dir(pair.destination.join("theirs")).unwrap();
        tree::file(&pair.destination.join("theirs/file"), b"theirs");
        let before = Snapshot::of(&pair.destination);
        let run = pair.done(&[]);
        assert_eq!(run.report().work.files_deleted, 0);
        let after = Snapshot::of(&pair.destination);
        assert_eq!(fs::read(pair.destination.join("ours")).unwrap(), b"ours");
        for path in [&b"theirs"[..], b"theirs/file"] {
            assert!(before.at(path) == after.at(path), "{way:?}: {} was touched", oracle::show(path));
        }
    }
}

#[test]
fn a_folder_of_volferrys_own_at_the_source_is_not_sent() {
    for pair in Pair::each(Way::ALL) {
        fs::create_dir_all(pair.source.join(".volferry/staging")).unwrap();
        tree::file(&pair.source.join(".volferry/index"), b"of another run");
        tree::file(&pair.source.join("file"), b"content");
        pair.sync("a source that was a destination once");
        assert!(!pair.destination.join(".volferry/index").exists());
    }
}

#[test]
fn a_socket_is_left_out_and_counted() {
    for pair in Pair::each(Way::ALL) {
        tree::file(&pair.source.join("file"), b"content");
        let _socket = UnixListener::bind(pair.source.join("socket")).unwrap();
        let run = pair.done(&["--delete"]);
        let work = run.report().work;
        assert_eq!((work.files_skipped, work.files_scanned, work.files_created), (1, 1, 1));
        assert!(!pair.destination.join("socket").exists());
        assert_eq!(pair.sync_unchanged("again").work.files_skipped, 1);
    }
}

#[test]
fn what_stands_where_the_destination_has_a_socket_takes_its_place() {
    for pair in Pair::each(Way::ALL) {
        fs::create_dir(pair.source.join("directory")).unwrap();
        tree::file(&pair.source.join("directory/file"), b"content");
        tree::file(&pair.source.join("file"), b"content");
        let _sockets =
            ["directory", "file", "gone"].map(|name| UnixListener::bind(pair.destination.join(name)));
        pair.sync("over sockets");
    }
}

#[test]
fn a_wide_tree_and_a_crowded_directory_arrive() {
    let pair = Pair::new(Way::SinkListens);
    for number in 0..2500 {
        let dir = pair.source.join(format!("wide/{number}"));
        fs::create_dir_all(&dir).unwrap();
        tree::file(&dir.join("file"), number.to_string().as_bytes());
    }
    // More files than can be on their way at once.
    let crowd = pair.source.join("crowd");
    fs::create_dir(&crowd).unwrap();
    (0..34_000).for_each(|number| tree::file(&crowd.join(number.to_string()), b""));
    pair.sync("a wide tree");
    for number in (0..2500).step_by(7) {
        tree::file(&pair.source.join(format!("wide/{number}/file")), b"changed");
    }
    pair.sync("a wide tree that changed");
}

#[test]
fn a_path_longer_than_the_kernel_takes_at_once_is_synced_or_named() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        let beyond = beyond_the_limit(&pair.source);
        let run = pair.run_to(ExitCode::Partial, &["--delete"]);
        let expected = Snapshot::of(&pair.source);
        let differences = expected.differences(&Snapshot::of(&pair.destination), oracle::COPY);
        let [missing] = differences.try_into().unwrap();
        assert!(missing.ends_with(&format!("/{beyond}: missing (directory)")), "{way:?}: {missing}");
        let [failure] = run.report().failures.as_slice() else { panic!("{:?}", run.report()) };
        assert!(failure.error.contains("too long"), "{failure:?}");
    }
}

/// Makes, at the very end of the longest path, one of each kind whose own path is too long; a run cannot reach a
/// directory there by any path. Returns the directory's name.
fn beyond_the_limit(source: &Path) -> String {
    use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat, symlinkat};
    // Entries below `at` are named relative to it: its own path is as long as a path can be.
    let near = tree::deep(source, 3800);
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = openat(CWD, &near, flags, Mode::empty()).unwrap();
    let mut len = near.as_os_str().len() - source.as_os_str().len() - 1;
    while len + 101 < 4090 {
        mkdirat(&at, &*"e".repeat(100), Mode::RWXU).unwrap();
        at = openat(&at, &*"e".repeat(100), flags, Mode::empty()).unwrap();
        len += 101;
    }
    let beyond = "beyond".repeat(30);
    symlinkat("target", &at, &*format!("link {}", "l".repeat(200))).unwrap();
    openat(&at, &*format!("file {}", "f".repeat(200)), OFlags::CREATE | OFlags::CLOEXEC, Mode::RUSR).unwrap();
    mkdirat(&at, &*beyond, Mode::RWXU).unwrap();
    beyond
}

/// A clock decides when a limited run may copy, so it takes at least the time of its bytes at the limit.
#[test]
fn a_local_run_keeps_to_the_bandwidth_limit() {
    const LIMIT: u64 = 1_000_000;
    let pair = Pair::new(Way::Local);
    let mut rng = Rng::new(5);
    tree::file(&pair.source.join("large"), &rng.bytes(900_000));
    (0..20).for_each(|n| tree::file(&pair.source.join(format!("small{n}")), &rng.bytes(5_000)));
    for limit in ["--bandwidth-limit=1M", "--bandwidth-limit=1000KB"] {
        let run = pair.done(&[limit]);
        let report = run.report();
        let least = report.work.bytes_changed * 1000 / LIMIT - 100;
        assert!(report.timings.transfer >= least, "{} ms, not {least}", report.timings.transfer);
        pair.assert_copy("at a limit");
        fs::remove_dir_all(&pair.destination).unwrap();
        fs::create_dir(&pair.destination).unwrap();
    }
}
