//! A source that is written to while it is read, by a write that changes no time: the next run repairs the copy.

use std::{fs::File, os::unix::fs::chown};

use memmap2::MmapMut;

use crate::common::prelude::*;
use crate::common::watch::LastClose;

/// A file that travels in a pack, one of several blocks, and one that is read in chunks.
const SIZES: [usize; 3] = [20_000, 1_500_000, 9_000_000];

/// A write of a whole file by another process, half done. The kernel has set the file's time when it began.
struct LongWrite {
    path: PathBuf,
    file: File,
    content: Vec<u8>,
}

impl LongWrite {
    fn begin(path: &Path, seed: u64) -> Self {
        let len = path.metadata().unwrap().len() as usize;
        let content = Rng::new(seed).bytes(len);
        let file = File::options().write(true).open(path).unwrap();
        file.write_all_at(&content[..len / 2], 0).unwrap();
        Self { path: path.into(), file, content }
    }

    /// Writes the rest, which gives the file no new time.
    fn end(self) {
        let time = self.path.metadata().unwrap().modified().unwrap();
        let half = self.content.len() / 2;
        self.file.write_all_at(&self.content[half..], half as u64).unwrap();
        self.file.set_modified(time).unwrap();
        tree::close(self.file);
    }
}

fn filled(way: Way) -> Pair {
    let pair = Pair::new(way);
    fill(&pair);
    pair
}

fn fill(pair: &Pair) {
    fs::create_dir(pair.source.join("folder")).unwrap();
    for (size, seed) in SIZES.into_iter().zip(0..) {
        tree::closed_file(&pair.source.join("folder").join(size.to_string()), &Rng::new(seed).bytes(size));
    }
    tree::closed_file(&pair.source.join("at rest"), b"nobody writes to it");
}

fn begin_each(pair: &Pair, seed: u64) -> Vec<LongWrite> {
    let path = |size: usize| pair.source.join("folder").join(size.to_string());
    SIZES.into_iter().zip(seed..).map(|(size, seed)| LongWrite::begin(&path(size), seed)).collect()
}

/// Runs once, and checks that the report names these files as in motion.
#[track_caller]
fn run_in_motion(pair: &Pair, flags: &[&str], named: &[&str]) {
    let run = pair.done(flags);
    let told: Vec<_> =
        run.report().notes.iter().filter(|note| note.contains("may have been writing")).collect();
    let [told] = told[..] else { panic!("{:?}: {:?}", pair.way, run.report().notes) };
    named.iter().for_each(|name| assert!(told.contains(name), "{:?}: {told}", pair.way));
}

#[test]
fn a_copy_that_a_long_write_has_torn_is_repaired_by_the_next_run() {
    for way in Way::ALL {
        let pair = filled(way);
        for first in [true, false] {
            let writes = begin_each(&pair, if first { 10 } else { 20 });
            run_in_motion(&pair, &[], &["folder/20000", "folder/1500000", "folder/9000000"]);
            assert!(!pair.notes().is_empty());
            writes.into_iter().for_each(LongWrite::end);
            let report = pair.sync("when the writes are over");
            assert_eq!(report.work.files_updated, SIZES.len() as u64, "{way:?}");
            assert_eq!((report.notes, pair.notes()), (vec![], vec![]), "{way:?}");
            pair.sync_unchanged("after that");
        }
    }
}

#[test]
fn stores_to_a_mapping_that_change_no_time_are_found_by_the_next_run() {
    for way in Way::ALL {
        let pair = filled(way);
        let path = pair.source.join("folder/1500000");
        let file = File::options().read(true).write(true).open(&path).unwrap();
        let mut map = map(&file);
        let closed = LastClose::of(&file);
        drop(file);
        map[0] ^= 1;
        run_in_motion(&pair, &[], &["folder/1500000"]);
        let time = path.metadata().unwrap().modified().unwrap();
        map[0] ^= 2;
        map[1_400_000] ^= 1;
        drop(map);
        closed.wait();
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(time).unwrap();
        tree::close(file);
        assert_eq!(pair.sync("once it is not mapped any more").work.files_updated, 1, "{way:?}");
        assert_eq!(pair.notes(), [] as [PathBuf; 0]);
    }
}

#[allow(unsafe_code)] // nothing else makes a mapping
fn map(file: &File) -> MmapMut {
    // SAFETY: the file is as long as the mapping until that is dropped.
    unsafe { MmapMut::map_mut(file) }.unwrap()
}

#[test]
fn a_file_that_stays_open_is_named_by_each_run_and_is_compared_until_it_is_closed() {
    for way in Way::ALL {
        let pair = filled(way);
        let write = LongWrite::begin(&pair.source.join("folder/20000"), 7);
        for _ in 0..3 {
            run_in_motion(&pair, &[], &["1 file", "folder/20000"]);
        }
        write.end();
        assert_eq!(pair.sync("when it is closed").work.files_updated, 1, "{way:?}");
        pair.sync_unchanged("after that");
        assert_eq!(pair.notes(), [] as [PathBuf; 0]);
    }
}

#[test]
fn files_at_rest_are_not_noted() {
    for way in Way::ALL {
        let pair = filled(way);
        let report = pair.sync("the first run");
        assert_eq!((report.notes, pair.notes()), (vec![], vec![]), "{way:?}");
    }
}

#[test]
fn a_dry_run_tells_the_file_that_the_next_run_will_repair() {
    let pair = filled(Way::Local);
    let writes = begin_each(&pair, 10);
    run_in_motion(&pair, &[], &[]);
    writes.into_iter().for_each(LongWrite::end);
    let run = pair.run(&["--dry-run"]);
    assert_eq!(run.report().work.files_updated, 3);
    let told = |path: &str| {
        run.ends().any(|end| {
            end.events.iter().any(|event| matches!(event, Event::Planned(action) if action.path == path))
        })
    };
    assert!(SIZES.iter().all(|size| told(&format!("folder/{size}"))) && !told("at rest"));
    assert_eq!(pair.sync("after the dry run").work.files_updated, 3);
}

#[test]
fn a_run_that_leaves_a_file_out_or_fails_at_another_keeps_what_it_has_not_settled() {
    for way in Way::ALL {
        let pair = filled(way);
        let writes = begin_each(&pair, 10);
        run_in_motion(&pair, &[], &[]);
        writes.into_iter().for_each(LongWrite::end);
        pair.done(&["--exclude", "folder"]);
        let left_out = pair.notes();
        assert_eq!(left_out.len(), 1, "{way:?}");
        // A folder that has to become a file fails, because nothing in it may be deleted.
        fs::create_dir(pair.destination.join("blocked")).unwrap();
        fs::write(pair.destination.join("blocked/inside"), "").unwrap();
        fs::write(pair.source.join("blocked"), "a file").unwrap();
        let run = pair.run_to(ExitCode::Partial, &[]);
        assert_eq!(run.report().result, RunResult::PartiallyFailed);
        assert_eq!(pair.notes(), [] as [PathBuf; 0], "{way:?}: all of them were repaired");
        pair.sync("once everything may be deleted");
    }
}

#[test]
fn a_folder_that_cannot_be_written_keeps_the_notes_of_its_files() {
    for pair in Pair::each_unprivileged() {
        fill(&pair);
        scratch::give_to_nobody(&pair.source);
        let writes = begin_each(&pair, 10);
        run_in_motion(&pair, &[], &[]);
        writes.into_iter().for_each(LongWrite::end);
        let locked = pair.destination.join("folder");
        chown(&locked, Some(0), Some(0)).unwrap();
        tree::set_mode(&locked, 0o555);
        pair.run_to(ExitCode::Partial, &[]);
        scratch::give_to_nobody(&locked);
        tree::set_mode(&locked, 0o755);
        assert!(!pair.notes().is_empty(), "{:?}", pair.way);
        pair.sync("once the folder can be written");
    }
}

#[test]
fn a_torn_copy_is_repaired_under_another_name_too() {
    for way in Way::ALL {
        let pair = filled(way);
        let folder = pair.source.join("folder");
        fs::hard_link(folder.join("20000"), folder.join("second name")).unwrap();
        pair.sync("the first run");
        let writes = begin_each(&pair, 10);
        run_in_motion(&pair, &[], &[]);
        writes.into_iter().for_each(LongWrite::end);
        fs::remove_file(folder.join("20000")).unwrap();
        fs::rename(&folder, pair.source.join("moved")).unwrap();
        pair.sync("after it was moved");
        assert_eq!(pair.notes(), [] as [PathBuf; 0], "{way:?}");
        pair.sync_unchanged("after that");
    }
}

#[test]
fn content_that_is_equal_while_the_file_is_written_to_is_compared_again() {
    for way in Way::ALL {
        let pair = filled(way);
        pair.sync("the first run");
        let path = pair.source.join("folder/20000");
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(std::time::SystemTime::now()).unwrap();
        let time = path.metadata().unwrap().modified().unwrap();
        run_in_motion(&pair, &["--compare", "content"], &["folder/20000"]);
        file.write_all_at(b"new", 5).unwrap();
        file.set_modified(time).unwrap();
        tree::close(file);
        assert_eq!(pair.sync("when it is closed").work.files_updated, 1, "{way:?}");
    }
}

#[test]
fn where_no_lease_is_granted_a_young_file_is_compared_once_more() {
    let Some(()) = scratch::needs_root() else { return };
    for way in Way::ALL {
        let mut pair = Pair::unprivileged(way);
        fill(&pair);
        (pair.user, pair.source_user) = (User::Nobody, User::Nobody);
        let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        open(&pair.source.join("folder"), 0o755);
        run_in_motion(&pair, &["--ownership=never"], &["4 files"]);
        assert_eq!(pair.notes().len(), 1);
        let path = pair.source.join("folder/9000000");
        let time = path.metadata().unwrap().modified().unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        file.write_all_at(b"new", 5).unwrap();
        file.set_modified(time).unwrap();
        let run = pair.done(&["--ownership=never"]);
        assert_eq!(run.report().work.files_updated, 1, "{way:?}");
    }
}

/// Runs all shards of a run with success.
fn run_shards(pair: &Pair, run: &str) {
    const COUNT: usize = 3;
    thread::scope(|scope| {
        for shard in 0..COUNT {
            let flags = [format!("--run={run}"), format!("--shard={shard}/{COUNT}")];
            scope.spawn(move || pair.run(&flags.each_ref().map(String::as_str)).assert_exit(ExitCode::Done));
        }
    });
}

#[test]
fn shards_of_a_run_note_what_each_of_them_has_read_and_the_next_run_repairs_all() {
    for way in Way::EACH {
        let pair = Pair::new(way);
        let paths: Vec<_> = (0..9).map(|nth| pair.source.join(format!("folder {nth}/file"))).collect();
        for path in &paths {
            fs::create_dir(path.parent().unwrap()).unwrap();
            tree::file(path, &[7; 300_000]);
        }
        let writes: Vec<_> = paths.iter().zip(0..).map(|(path, seed)| LongWrite::begin(path, seed)).collect();
        run_shards(&pair, "first");
        assert!(pair.notes().len() > 1, "{way:?}: {:?}", pair.notes());
        writes.into_iter().for_each(LongWrite::end);
        run_shards(&pair, "second");
        pair.assert_copy("after the second run");
        assert_eq!(pair.notes(), [] as [PathBuf; 0], "{way:?}");
    }
}

#[test]
fn a_run_of_one_file_repairs_that_file_and_keeps_the_notes_of_others() {
    for way in Way::ALL {
        let mut pair = filled(way);
        let writes = begin_each(&pair, 10);
        run_in_motion(&pair, &[], &[]);
        writes.into_iter().for_each(LongWrite::end);
        let (source, destination) = (pair.source.clone(), pair.destination.clone());
        (pair.source, pair.destination) = (source.join("at rest"), destination.clone());
        pair.done(&[]);
        assert_eq!(pair.notes().len(), 1, "{way:?}");
        let own = source.join("alone");
        tree::file(&own, &[7; 300_000]);
        pair.source = own.clone();
        let write = LongWrite::begin(&own, 5);
        run_in_motion(&pair, &[], &["alone"]);
        write.end();
        pair.done(&[]);
        assert!(fs::read(destination.join("alone")).unwrap() == fs::read(&own).unwrap(), "{way:?}");
        pair.source = source;
        assert_eq!(pair.sync("of the whole folder").work.files_updated, SIZES.len() as u64, "{way:?}");
        assert_eq!(pair.notes(), [] as [PathBuf; 0], "{way:?}");
    }
}
