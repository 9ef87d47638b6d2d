//! Runs that compare files by their content.

use std::time::SystemTime;

use contract::{Action, Work};

use crate::common::prelude::*;

fn mtime(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

fn set_mtime(path: &Path, time: SystemTime) {
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

/// Changes one byte of a file, and keeps everything that a listing shows.
fn corrupt(path: &Path, at: usize) {
    let time = mtime(path);
    let mut content = fs::read(path).unwrap();
    content[at] ^= 1;
    fs::write(path, content).unwrap();
    set_mtime(path, time);
}

/// Makes two trees in step but for the content of two files.
fn drifted(way: Way) -> Pair {
    let pair = Pair::new(way);
    tree::gallery(&pair.source, Shape::Everything);
    tree::file(&pair.source.join("small"), b"content");
    tree::file(&pair.source.join("large"), &vec![7; (3 << 20) + 5]);
    fs::create_dir_all(pair.source.join("a/b")).unwrap();
    tree::file(&pair.source.join("a/b/same"), b"the same");
    pair.sync("before");
    corrupt(&pair.destination.join("small"), 3);
    corrupt(&pair.destination.join("large"), 2 << 20);
    pair
}

#[test]
fn content_that_drifted_unseen_is_put_right() {
    for way in Way::EACH {
        let pair = drifted(way);
        pair.sync_unchanged("size and time say nothing of it");
        let run = pair.done(&["--compare=content", "--delete"]);
        pair.assert_copy("after contents were compared");
        let Work { files_created, files_updated, files_deleted, bytes_changed, .. } = run.report().work;
        assert_eq!((files_created, files_updated, files_deleted), (0, 2, 0), "{way:?}");
        assert_eq!(bytes_changed, 7 + (3 << 20) + 5, "{way:?}");
        let before = Snapshot::of(&pair.destination);
        pair.done(&["--compare=content", "--delete"]);
        Snapshot::of(&pair.destination).assert_like(&before, UNTOUCHED, "nothing differs any more");
    }
}

#[test]
fn a_file_of_another_time_and_the_same_content_is_not_sent() {
    for way in Way::EACH {
        let pair = Pair::new(way);
        for file in ["touched", "in/touched too"] {
            fs::create_dir_all(pair.source.join(file).parent().unwrap()).unwrap();
            tree::file(&pair.source.join(file), &vec![5; 2 << 20]);
        }
        pair.sync("before");
        set_mtime(&pair.source.join("touched"), SystemTime::UNIX_EPOCH);
        set_mtime(&pair.destination.join("in/touched too"), SystemTime::UNIX_EPOCH);
        let run = pair.done(&["--compare=content"]);
        pair.assert_copy("only times were set");
        let work = run.report().work;
        assert_eq!((work.files_updated, work.bytes_changed), (2, 0), "{way:?}");
    }
}

#[test]
fn a_dry_run_finds_what_drifted() {
    for way in Way::EACH {
        let pair = drifted(way);
        let run = pair.done(&["--compare=content", "--delete", "--dry-run"]);
        let (Run::Local(end) | Run::Network { source: end, .. }) = &run;
        let told = end.events.iter().filter_map(|event| match event {
            Event::Planned(action) => Some((action.action, action.path.as_str())),
            _ => None,
        });
        let update = |path| (Action::Update, path);
        assert_eq!(told.collect::<Vec<_>>(), [update("large"), update("small")], "{way:?}");
    }
}

#[test]
fn more_files_than_a_message_may_ask_for_are_compared() {
    for way in Way::EACH {
        let pair = Pair::new(way);
        for dir in 0..3 {
            let dir = pair.source.join(format!("dir {dir}"));
            fs::create_dir(&dir).unwrap();
            for n in 0..1400 {
                fs::write(dir.join(n.to_string()), n.to_string()).unwrap();
            }
        }
        pair.sync("before");
        corrupt(&pair.destination.join("dir 0/7"), 0);
        corrupt(&pair.destination.join("dir 2/1399"), 3);
        let run = pair.done(&["--compare=content"]);
        pair.assert_copy("in three folders of 1,400 files");
        assert_eq!(run.report().work.files_updated, 2, "{way:?}");
    }
}

#[test]
fn names_of_a_file_stay_names_of_it_when_its_content_is_put_right() {
    for way in Way::EACH {
        let pair = Pair::new(way);
        fs::create_dir(pair.source.join("folder")).unwrap();
        tree::file(&pair.source.join("a"), b"content");
        fs::hard_link(pair.source.join("a"), pair.source.join("folder/b")).unwrap();
        pair.sync("before");
        let to = |name: &str| pair.destination.join(name);
        corrupt(&to("a"), 3);
        pair.done(&["--compare=content"]);
        assert_eq!(fs::read(to("a")).unwrap(), b"content", "{way:?}");
        let inode = |name: &str| fs::metadata(to(name)).unwrap().ino();
        assert_eq!(inode("a"), inode("folder/b"), "{way:?}");
    }
}

fn verified(report: &Report) -> Vec<(&str, &str)> {
    let differences = report.failures.iter().filter(|failure| failure.operation == "verify");
    differences.map(|failure| (failure.path.as_str(), failure.error.as_str())).collect()
}

#[test]
fn reading_back_a_destination_in_step_finds_nothing() {
    for pair in Pair::each(Way::EACH) {
        tree::gallery(&pair.source, Shape::Everything);
        for turn in ["first", "second"] {
            let run = pair.done(&["--verify", "--delete"]);
            pair.assert_copy(turn);
            let notes = &run.report().notes;
            assert!(notes.iter().any(|note| note.ends_with("all contents read back, 0 differ")), "{notes:?}");
            pair.assert_staging_empty();
        }
        tree::file(&pair.destination.join("theirs"), b"not to be deleted, so no difference");
        pair.done(&["--verify"]);
    }
}

#[test]
fn reading_back_names_what_the_run_did_not_see() {
    for way in Way::EACH {
        let pair = drifted(way);
        let before = Snapshot::of(&pair.destination);
        let run = pair.run_to(ExitCode::Partial, &["--verify", "--delete"]);
        Snapshot::of(&pair.destination).assert_like(&before, UNTOUCHED, "nothing was to be done");
        let differs = "its content differs";
        assert_eq!(verified(run.report()), [("large", differs), ("small", differs)], "{way:?}");
        assert_eq!(run.report().work.files_failed, 2, "{way:?}");
    }
}

#[test]
fn a_destination_is_verified_without_a_run() {
    for way in Way::EACH {
        let pair = drifted(way);
        tree::file(&pair.source.join("missing"), b"");
        tree::file(&pair.destination.join("surplus"), b"");
        tree::set_mode(&pair.destination.join("a/b"), 0o700);
        let before = Snapshot::of(&pair.destination);
        let run = pair.run_to(ExitCode::Partial, &["--verify", "--dry-run", "--delete"]);
        Snapshot::of(&pair.destination).assert_like(&before, UNTOUCHED, "a dry run");
        let mut found = verified(run.report());
        found.sort_unstable();
        let expected = [
            ("a/b", "its mode, owner, time or attributes differ"),
            ("large", "its content differs"),
            ("missing", "the destination does not have it"),
            ("small", "its content differs"),
            ("surplus", "the source does not have it"),
        ];
        assert_eq!(found, expected, "{way:?}");
    }
}

#[test]
fn reading_back_finds_nothing_after_folders_moved_and_files_have_several_names() {
    for pair in Pair::each(Way::EACH) {
        fs::create_dir_all(pair.source.join("old/deep")).unwrap();
        fs::write(pair.source.join("old/deep/file"), b"content").unwrap();
        fs::hard_link(pair.source.join("old/deep/file"), pair.source.join("second")).unwrap();
        fs::create_dir(pair.source.join("plain")).unwrap();
        fs::write(pair.source.join("plain/file"), b"content").unwrap();
        pair.sync("before");
        fs::rename(pair.source.join("old"), pair.source.join("new")).unwrap();
        fs::rename(pair.source.join("plain"), pair.source.join("moved")).unwrap();
        pair.done(&["--verify", "--delete", "--delete-limit=100"]);
        pair.assert_copy("after folders moved");
        pair.done(&["--verify", "--dry-run", "--delete"]);
    }
}
