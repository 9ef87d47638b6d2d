//! Files that are compared by their content.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path, time::SystemTime};

use contract::{Action, Event, ExitCode, Work};

use crate::common::{
    oracle::{Snapshot, UNTOUCHED},
    pair::{Pair, Run, Way},
    tree::{self, Shape},
};

fn mtime(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

fn set_mtime(path: &Path, time: SystemTime) {
    fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
}

/// Changes one byte of a file, and nothing that a listing shows.
fn corrupt(path: &Path, at: usize) {
    let time = mtime(path);
    let mut content = fs::read(path).unwrap();
    content[at] ^= 1;
    fs::write(path, content).unwrap();
    set_mtime(path, time);
}

/// Two trees in step but for the content of two files.
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
    for way in Way::ALL {
        let pair = drifted(way);
        pair.sync_unchanged("size and time say nothing of it");
        let run = pair.run(&["--compare=content", "--delete"]);
        run.assert_exit(ExitCode::Done);
        pair.assert_copy("after contents were compared");
        let Work { files_created, files_updated, files_deleted, bytes_changed, .. } = run.report().work;
        assert_eq!((files_created, files_updated, files_deleted), (0, 2, 0), "{way:?}");
        assert_eq!(bytes_changed, 7 + (3 << 20) + 5, "{way:?}");
        let before = Snapshot::of(&pair.destination);
        pair.run(&["--compare=content", "--delete"]).assert_exit(ExitCode::Done);
        Snapshot::of(&pair.destination).assert_like(&before, UNTOUCHED, "nothing differs any more");
    }
}

#[test]
fn a_file_of_another_time_and_the_same_content_is_not_sent() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        for file in ["touched", "in/touched too"] {
            fs::create_dir_all(pair.source.join(file).parent().unwrap()).unwrap();
            tree::file(&pair.source.join(file), &vec![5; 2 << 20]);
        }
        pair.sync("before");
        set_mtime(&pair.source.join("touched"), SystemTime::UNIX_EPOCH);
        set_mtime(&pair.destination.join("in/touched too"), SystemTime::UNIX_EPOCH);
        let run = pair.run(&["--compare=content"]);
        run.assert_exit(ExitCode::Done);
        pair.assert_copy("only times were set");
        let work = run.report().work;
        assert_eq!((work.files_updated, work.bytes_changed), (2, 0), "{way:?}");
    }
}

#[test]
fn a_dry_run_finds_what_drifted() {
    for way in Way::ALL {
        let pair = drifted(way);
        let run = pair.run(&["--compare=content", "--delete", "--dry-run"]);
        run.assert_exit(ExitCode::Done);
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
    for way in [Way::Local, Way::SinkListens] {
        let pair = Pair::new(way);
        for dir in 0..3 {
            let dir = pair.source.join(format!("dir {dir}"));
            fs::create_dir(&dir).unwrap();
            for n in 0..2000 {
                fs::write(dir.join(n.to_string()), n.to_string()).unwrap();
            }
        }
        pair.sync("before");
        corrupt(&pair.destination.join("dir 0/7"), 0);
        corrupt(&pair.destination.join("dir 2/1999"), 3);
        let run = pair.run(&["--compare=content"]);
        run.assert_exit(ExitCode::Done);
        pair.assert_copy("in three folders of 2,000 files");
        assert_eq!(run.report().work.files_updated, 2, "{way:?}");
    }
}

#[test]
fn names_of_a_file_stay_names_of_it_when_its_content_is_put_right() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        fs::create_dir(pair.source.join("folder")).unwrap();
        tree::file(&pair.source.join("a"), b"content");
        fs::hard_link(pair.source.join("a"), pair.source.join("folder/b")).unwrap();
        pair.sync("before");
        let to = |name: &str| pair.destination.join(name);
        corrupt(&to("a"), 3);
        let run = pair.run(&["--compare=content"]);
        run.assert_exit(ExitCode::Done);
        assert_eq!(fs::read(to("a")).unwrap(), b"content", "{way:?}");
        let inode = |name: &str| fs::metadata(to(name)).unwrap().ino();
        assert_eq!(inode("a"), inode("folder/b"), "{way:?}");
    }
}
