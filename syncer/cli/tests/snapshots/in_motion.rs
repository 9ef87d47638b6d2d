//! Files that are written to while a snapshot is taken: none is left out, and one that may be a mix is marked.

use std::{
    fs::File,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
};

use memmap2::MmapMut;

use crate::common::prelude::*;
use crate::{
    common::{mount::Mounted, wait},
    volume::Volume,
};

/// A file that is packed, and one that is cloned or copied into a file of its own.
const SIZES: [usize; 2] = [1_000, 1_500_000];

/// A file that is longer than what can be read between two writes to it.
const LONG_BYTES: u64 = 48 << 20;

/// The number of snapshots of which one has to be too slow for the writer.
const TRIES: u64 = 20;

/// Makes a volume on each file system that can be mounted here.
fn each() -> impl Iterator<Item = (FileSystem, Mounted, Volume)> {
    FileSystem::ALL.into_iter().filter_map(|kind| {
        let mounted = kind.mount()?;
        let volume = Volume::in_dir(mounted.folder());
        Some((kind, mounted, volume))
    })
}

#[allow(unsafe_code)] // nothing else makes a mapping
fn map(path: &Path) -> MmapMut {
    let file = File::options().read(true).write(true).open(path).unwrap();
    // SAFETY: the file is as long as the mapping until that is dropped.
    unsafe { MmapMut::map_mut(&file) }.unwrap()
}

/// Waits until the clock of the file system is so far past a file's change that the file may get a stamp.
fn wait_for_stamp(volume: &Volume, path: &Path) {
    let time = |path: &Path| {
        let metadata = path.metadata().unwrap();
        i128::from(metadata.ctime()) * 1_000_000_000 + i128::from(metadata.ctime_nsec())
    };
    let clock = volume.path().join(".clock");
    let has_passed = || {
        fs::write(&clock, "").unwrap();
        time(&clock) >= time(path) + 300_000_000
    };
    wait::poll(has_passed, || "the clock stands still".into());
}

fn cat(volume: &Volume, id: &str, name: &str) -> Vec<u8> {
    let said = volume.command("cat", &[id, name]).output().unwrap();
    assert!(said.status.success(), "{said:?}");
    said.stdout
}

#[test]
fn what_is_stored_to_a_mapping_is_in_the_next_snapshot_although_no_time_shows_it() {
    for (kind, _mounted, volume) in each() {
        let paths = SIZES.map(|size| volume.path().join(size.to_string()));
        let mut maps: Vec<_> = paths
            .iter()
            .zip(SIZES)
            .map(|(path, size)| {
                fs::write(path, vec![1; size]).unwrap();
                map(path)
            })
            .collect();
        maps.iter_mut().for_each(|map| map[0] = 2);
        wait_for_stamp(&volume, &paths[1]);
        let first = volume.create(&[]);
        maps.iter_mut().for_each(|map| map[0] = 3);
        drop(maps);
        let second = volume.create(&[]);
        for (path, size) in paths.iter().zip(SIZES) {
            let live = fs::read(path).unwrap();
            assert!(cat(&volume, &second, &size.to_string()) == live && live[0] == 3, "{kind:?}: {size}");
        }
        let lists =
            |id: &str, what: &str| volume.ok("ls", &[id]).lines().filter(|line| line.contains(what)).count();
        assert!(lists(&first, "1000 (in motion)") == 1, "{kind:?}: what is packed is a copy");
        assert_eq!(lists(&second, "(in motion)"), 0, "{kind:?}");
        let shown = volume.ok("show", &[&first]);
        assert!(shown.lines().any(|line| line.starts_with("motion ") && line.contains("1000")), "{shown}");
        assert!(volume.run("show", &[&first, "--json"]).json()["inMotion"][0].is_string());
    }
}

/// Takes a snapshot while another thread writes a number at the start and then at the end of a file.
fn create_while_changing(volume: &Volume, path: &Path) -> crate::volume::Said {
    let file = File::create(path).unwrap();
    file.set_len(LONG_BYTES).unwrap();
    file.write_all_at(&vec![1; LONG_BYTES as usize - 16], 8).unwrap();
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for number in 1_u64.. {
                if over.load(SeqCst) {
                    return;
                }
                file.write_all_at(&number.to_le_bytes(), 0).unwrap();
                file.write_all_at(&number.to_le_bytes(), LONG_BYTES - 8).unwrap();
            }
        });
        let said = volume.run("create", &["--json"]);
        over.store(true, SeqCst);
        said
    })
}

#[test]
fn a_file_that_changes_without_a_pause_is_in_the_snapshot_cloned_or_marked() {
    for (kind, _mounted, volume) in each() {
        let clones = matches!(kind, FileSystem::Xfs | FileSystem::Btrfs);
        // Where the machine does not let the writer run all the time, an attempt may be quiet.
        let mut tries = (0..TRIES).map(|_| create_while_changing(&volume, &volume.path().join("busy")));
        let said = tries.find(|said| clones || said.code != Some(0)).unwrap();
        let id = said.json()["id"].as_str().unwrap().to_owned();
        assert_eq!(said.code, Some(if clones { 0 } else { 3 }), "{kind:?}: {said:?}");
        assert_eq!(said.stderr.contains("error: busy: it kept changing"), !clones, "{kind:?}: {said:?}");
        let content = cat(&volume, &id, "busy");
        assert_eq!(content.len() as u64, LONG_BYTES);
        assert_eq!(volume.ok("ls", &[&id]).contains("busy (in motion)"), !clones, "{kind:?}");
        let number = |at: usize| u64::from_le_bytes(content[at..at + 8].try_into().unwrap());
        let (first, last) = (number(0), number(LONG_BYTES as usize - 8));
        assert!(!clones || first == last || first == last + 1, "{kind:?}: a clone is of one moment");
        volume.ok("verify", &[]);
        let next = volume.create(&[]);
        assert!(cat(&volume, &next, "busy") == fs::read(volume.path().join("busy")).unwrap(), "{kind:?}");
        assert!(!volume.ok("ls", &[&next]).contains("(in motion)"), "{kind:?}");
        volume.ok("verify", &[]);
    }
}
