//! Folders whose names take more memory than an end of a run uses for them.

use std::fs::File;

use crate::common::prelude::*;

/// A number of files whose names of [`NAME_BYTES`] exceed the 8 MiB that an end of a run holds in memory of one folder.
const FILES: usize = 40_000;
const NAME_BYTES: usize = 240;

fn name(number: usize) -> String {
    format!("{number:0NAME_BYTES$}")
}

/// Makes a pair whose source has one large folder.
fn large(way: Way) -> Pair {
    let pair = Pair::new(way);
    let folder = scratch::dir(&pair.source, "folder");
    (0..FILES).for_each(|number| drop(File::create(folder.join(name(number))).unwrap()));
    pair
}

#[track_caller]
fn assert_same_names(pair: &Pair) {
    assert!(
        scratch::names(&pair.source.join("folder")) == scratch::names(&pair.destination.join("folder")),
        "other names"
    );
}

fn outputs(run: &Run) -> impl Iterator<Item = &str> {
    run.ends().map(|end| end.stderr.as_str())
}

#[test]
fn a_folder_of_more_names_than_memory_holds_is_synced_and_kept_in_sync() {
    for way in Way::EACH {
        let pair = large(way);
        let folder = pair.source.join("folder");
        let first = pair.done(&["--delete"]);
        assert_eq!(first.report().work.files_created, FILES as u64 + 1);
        assert_same_names(&pair);

        (0..FILES).step_by(500).for_each(|number| fs::remove_file(folder.join(name(number))).unwrap());
        (0..10).for_each(|number| fs::write(folder.join(name(number * 3701 + 3)), "changed").unwrap());
        File::create(folder.join("new")).unwrap();
        let second = pair.done(&["--delete"]);
        let work = &second.report().work;
        // The folder itself is updated, too: its time differs.
        assert_eq!((work.files_created, work.files_updated, work.files_deleted), (1, 11, 80), "{way:?}");
        assert_same_names(&pair);
        assert_eq!(fs::read(pair.destination.join("folder").join(name(3))).unwrap(), b"changed");
        assert!(outputs(&second).all(|output| !output.contains("TMPDIR")));
    }
}

#[test]
fn a_folder_stays_in_memory_where_nothing_temporary_can_be_written() {
    let mut pair = large(Way::SinkListens);
    pair.tmpdir = Some(pair.dir().join("missing"));
    let run = pair.done(&[]);
    assert_same_names(&pair);
    assert!(outputs(&run).all(|output| output.contains("TMPDIR can name a folder for it")), "{run:?}");
}

#[test]
fn a_full_place_for_temporary_files_is_named_and_nothing_is_deleted() {
    let Some(small) = Disk::new("ext4", 8 << 20, "") else { return };
    let mut pair = large(Way::Local);
    let kept = scratch::dir(&pair.destination, "folder").join("kept");
    File::create(&kept).unwrap();
    pair.tmpdir = Some(small.path());
    let run = pair.run_to(ExitCode::Partial, &["--delete"]);
    let failure = &run.report().failures[0];
    let says = |what: &str| failure.error.contains(what);
    assert!(
        failure.path == "folder" && says("TMPDIR") && says(small.path().to_str().unwrap()),
        "{failure:?}"
    );
    assert!(kept.exists());
}
