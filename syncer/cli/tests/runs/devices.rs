//! Block devices and images of them: the copy, the cost of an unchanged or edited one, and the state after a
//! crash.
//!
//! Loop devices need root and a kernel that supports them; elsewhere images are used at both ends.

use std::{fs::File, io::Read as _, os::unix::fs::FileTypeExt as _};

use contract::{Action, EntryKind, PlannedAction, Work};

use crate::common::prelude::*;
use crate::common::{disk, loops::Loop};
use crate::rehearsals::told;

pub(crate) const MIB: u64 = 1 << 20;

/// The length of the parts in which a device is synced; one more byte makes one more part.
const PART: u64 = 256 * MIB;

/// The length of a part and some sectors of the next.
const LEN: u64 = PART + 3 * MIB + 1536;

/// The length of the ranges in which two versions of a device are compared.
const GRANULE: u64 = 16 << 10;

/// The kind of an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Device,
    Image,
}

/// The two ends of a run, and the loop devices among them.
pub(crate) struct Stage {
    pub(crate) pair: Pair,
    pub(crate) loops: [Option<Loop>; 2],
}

impl Stage {
    /// Makes two ends of these lengths, but no file for an image as the destination. Returns `None` where there are no
    /// loop devices.
    pub(crate) fn new(way: Way, ends: [End; 2], lens: [u64; 2]) -> Option<Self> {
        let mut pair = Pair::new(way);
        pair.is_of_devices = true;
        let mut loops = [None, None];
        for (nth, name) in ["from", "to"].into_iter().enumerate() {
            let path = match ends[nth] {
                End::Image => pair.dir().join(name),
                End::Device => {
                    let made = Loop::new(pair.dir(), name, lens[nth])?;
                    loops[nth].insert(made).device.clone()
                }
            };
            *[&mut pair.source, &mut pair.destination][nth] = path;
        }
        if ends[0] == End::Image {
            File::create(&pair.source).unwrap().set_len(lens[0]).unwrap();
        }
        Some(Self { pair, loops })
    }

    /// Runs once with success, and checks that the destination begins with the source's bytes.
    #[track_caller]
    pub(crate) fn sync(&self, flags: &[&str], what: &str) -> Report {
        let run = self.pair.done(flags);
        assert_begins_with(&self.pair.destination, &self.pair.source, what);
        run.report().clone()
    }
}

/// Makes two devices, or two images where there are no loop devices.
pub(crate) fn devices(way: Way, lens: [u64; 2]) -> Stage {
    Stage::new(way, [End::Device; 2], lens).or_else(|| Stage::new(way, [End::Image; 2], lens)).unwrap()
}

/// Compares two ends with `cmp`, which uses none of the engine's code, after a flush of the devices' caches.
#[track_caller]
fn assert_begins_with(there: &Path, here: &Path, what: &str) {
    let len = length(here).to_string();
    for path in [there, here] {
        disk::run(Command::new("blockdev").arg("--flushbufs").arg(path)).ok();
    }
    let same = disk::run(Command::new("cmp").args(["--bytes", &len]).args([there, here]));
    assert_eq!(same, Ok(()), "{what}: {} and {}", there.display(), here.display());
}

fn length(path: &Path) -> u64 {
    use std::io::{Seek as _, SeekFrom};
    File::open(path).unwrap().seek(SeekFrom::End(0)).unwrap()
}

pub(crate) fn write(path: &Path, at: u64, bytes: &[u8]) {
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(bytes, at).unwrap();
    file.sync_all().unwrap();
}

/// Writes data in both parts, on both sides of their boundary, and at both ends, with zeros between.
fn fill(path: &Path, len: u64, rng: &mut Rng) {
    write(path, 0, &rng.bytes(5 * MIB as usize / 2));
    write(path, 100 * MIB + 512, &rng.bytes(700_000));
    write(path, PART - 5000, &rng.bytes(10_000));
    write(path, len - 1000, &rng.bytes(1000));
}

#[track_caller]
fn assert_nothing_done(report: &Report, len: u64, what: &str) {
    let done = Work { bytes_reused: 0, bytes_on_wire: 0, ..report.work };
    assert_eq!(done, Work { files_scanned: 1, bytes_total: len, ..Work::default() }, "{what}");
}

#[test]
fn a_device_or_an_image_becomes_the_source_and_an_unchanged_one_is_not_written_to() {
    use End::{Device, Image};
    for way in Way::EACH {
        for ends in [[Device, Device], [Device, Image], [Image, Device], [Image, Image]] {
            let what = format!("{way:?} {ends:?}");
            let Some(stage) = Stage::new(way, ends, [LEN; 2]) else { continue };
            fill(&stage.pair.source, LEN, &mut Rng::new(11));
            let first = stage.sync(&[], &what);
            let is_new = u64::from(ends[1] == Image);
            assert_eq!((first.work.files_scanned, first.work.bytes_total), (1, LEN), "{what}");
            assert_eq!((first.work.files_created, first.work.files_updated), (is_new, 1 - is_new), "{what}");
            assert!(first.work.bytes_changed < 8 * MIB, "{what}: {:?}", first.work);
            let before = stage.loops[1].as_ref().map(Loop::sectors_written);
            let again = stage.sync(&[], &what);
            assert_nothing_done(&again, LEN, &what);
            assert_eq!(stage.loops[1].as_ref().map(Loop::sectors_written), before, "{what}");
            if ends[1] == Image {
                let made = fs::metadata(&stage.pair.destination).unwrap();
                assert_eq!((made.len(), made.permissions().mode() & 0o777), (LEN, 0o600), "{what}");
                assert!(made.blocks() * 512 < 8 * MIB, "{what}: zeros take no room, and {made:?} does");
            }
        }
    }
}

#[test]
fn an_edit_costs_the_granules_that_it_touches() {
    for way in Way::EACH {
        let stage = devices(way, [LEN; 2]);
        let mut rng = Rng::new(12);
        fill(&stage.pair.source, LEN, &mut rng);
        stage.sync(&[], "first");
        for at in [7 * 1000, 100 * MIB + 1000, PART - 1, LEN - 3] {
            write(&stage.pair.source, at, b"new");
        }
        // The third edit lies in two parts.
        let edited = stage.sync(&[], "edited").work;
        let most = 5 * GRANULE;
        assert!((1..=most).contains(&edited.bytes_changed), "{way:?}: {edited:?}");
        assert_eq!(edited.files_updated, 1, "{way:?}");
        assert!(edited.bytes_on_wire < 400 << 10, "{way:?}: {edited:?}");
    }
}

#[test]
fn what_has_become_zeros_is_zeros_and_takes_no_room_in_an_image() {
    for way in Way::EACH {
        for to in [End::Device, End::Image] {
            let Some(stage) = Stage::new(way, [End::Image, to], [LEN; 2]) else { continue };
            let what = format!("{way:?} {to:?}");
            write(&stage.pair.source, 0, &Rng::new(13).bytes(12 * MIB as usize));
            stage.sync(&[], &what);
            write(&stage.pair.source, MIB + 4096, &vec![0; 9 * MIB as usize]);
            write(&stage.pair.source, 512, &[0; 1024]);
            let zeroed = stage.sync(&[], &what).work;
            assert!((9 * MIB..10 * MIB).contains(&zeroed.bytes_changed), "{what}: {zeroed:?}");
            assert!(zeroed.bytes_on_wire < 400 << 10, "{what}: {zeroed:?}");
            assert_nothing_done(&stage.sync(&[], &what), LEN, &what);
            if to == End::Image {
                assert!(fs::metadata(&stage.pair.destination).unwrap().blocks() * 512 < 4 * MIB, "{what}");
            }
        }
    }
}

#[test]
fn zeros_are_bytes_as_any_others_where_that_is_asked_for() {
    for way in Way::EACH {
        let mut stage = Stage::new(way, [End::Image; 2], [8 * MIB; 2]).unwrap();
        write(&stage.pair.source, MIB, b"data");
        stage.sync(&["--no-sparse"], "first");
        stage.pair.destination = stage.pair.dir().join("old");
        write_new(&stage.pair.destination, &vec![1; 8 * MIB as usize]);
        stage.sync(&["--no-sparse"], "over data");
        let room = fs::metadata(&stage.pair.destination).unwrap().blocks() * 512;
        assert!(room >= 8 * MIB, "{way:?}: {room}");
    }
}

pub(crate) fn write_new(path: &Path, bytes: &[u8]) {
    File::create(path).unwrap().write_all_at(bytes, 0).unwrap();
}

#[test]
fn a_smaller_device_is_refused_untouched_and_a_larger_one_keeps_its_tail() {
    for way in Way::EACH {
        let Some(small) = Stage::new(way, [End::Device; 2], [4 * MIB, 4 * MIB - 512]) else { return };
        write(&small.pair.source, 0, &[1; 4096]);
        let before = small.loops[1].as_ref().unwrap().sectors_written();
        for flags in [&[][..], &["--dry-run"]] {
            let run = small.pair.run_to(ExitCode::Failed, flags);
            for end in run.ends() {
                assert_eq!(end.reason(), "DestinationTooSmall", "{way:?}");
                let message = &end.report().message;
                for part in [text(&small.pair.destination), "the source 4.2 MB", "which is 512 B more"] {
                    assert!(message.contains(part), "{way:?}: {message}");
                }
            }
        }
        assert_eq!(small.loops[1].as_ref().unwrap().sectors_written(), before, "{way:?}");
        let Some(large) = Stage::new(way, [End::Device; 2], [4 * MIB, 5 * MIB]) else { return };
        write(&large.pair.source, 0, &Rng::new(14).bytes(4 * MIB as usize));
        write(&large.pair.destination, 4 * MIB, &[9; MIB as usize]);
        large.sync(&["--verify"], "larger");
        let mut tail = vec![0; MIB as usize];
        File::open(&large.pair.destination).unwrap().read_exact_at(&mut tail, 4 * MIB).unwrap();
        assert!(tail == vec![9; MIB as usize], "{way:?}");
        assert_nothing_done(&large.sync(&[], "again"), 4 * MIB, "again");
    }
}

#[test]
fn an_image_gets_the_length_of_the_device() {
    for way in Way::EACH {
        let stage = Stage::new(way, [End::Image; 2], [3 * MIB + 100; 2]).unwrap();
        write(&stage.pair.source, 0, &Rng::new(15).bytes(3 * MIB as usize + 100));
        for len in [0, 70_001, 9 * MIB] {
            write_new(&stage.pair.destination, &vec![7; len as usize]);
            let report = stage.sync(&[], "another length");
            assert_eq!(length(&stage.pair.destination), 3 * MIB + 100, "{way:?}");
            assert_eq!(report.work.files_updated, 1, "{way:?}");
        }
        // The two differ only in their tail.
        fs::OpenOptions::new().append(true).open(&stage.pair.destination).unwrap().write_all_at(b"x", 0).ok();
        File::options().write(true).open(&stage.pair.destination).unwrap().set_len(4 * MIB).unwrap();
        assert_eq!(stage.sync(&[], "a tail").work.files_updated, 1, "{way:?}");
        assert_eq!(length(&stage.pair.destination), 3 * MIB + 100, "{way:?}");
    }
}

#[test]
fn a_source_that_is_mounted_is_read() {
    let (Some(disk), Some(stage)) =
        (Disk::new("ext4", 64 * MIB, ""), Stage::new(Way::Local, [End::Image; 2], [MIB; 2]))
    else {
        return;
    };
    tree::file(&disk.path().join("file"), b"content");
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let line = mounts.lines().find(|line| line.contains(text(&disk.path()))).unwrap();
    let device = line.split(' ').next().unwrap();
    disk::run(Command::new("sync").arg("-f").arg(disk.path())).unwrap();
    let ended = stage
        .pair
        .start(&["sync", device, text(&stage.pair.destination), "--image", "--progress=json"])
        .wait();
    ended.assert_exit(ExitCode::Done);
    assert_eq!(length(&stage.pair.destination), 64 * MIB);
    assert!(fs::metadata(device).unwrap().file_type().is_block_device());
}

#[test]
fn what_was_killed_in_the_middle_converges_in_the_next_run() {
    for way in Way::EACH {
        let stage = devices(way, [16 * MIB; 2]);
        let mut rng = Rng::new(16);
        for turn in 0..4 {
            write(&stage.pair.source, 0, &rng.bytes(16 * MIB as usize));
            kill_midway(&stage.pair, turn % 2 == 0);
            if turn % 2 == 1 {
                stage.sync(&["--verify"], &format!("{way:?}, turn {turn}"));
            }
        }
    }
}

#[test]
fn what_an_image_lost_while_it_was_read_stays_in_its_copy() {
    let stage = Stage::new(Way::Local, [End::Image; 2], [16 * MIB; 2]).unwrap();
    let content = Rng::new(18).bytes(16 * MIB as usize);
    write(&stage.pair.source, 0, &content);
    write_new(&stage.pair.destination, &content);
    write(&stage.pair.destination, 0, b"an older copy");
    let mut run = stage.pair.start_sync(&["--bandwidth-limit=4Mi"]);
    run.moved();
    File::options().write(true).open(&stage.pair.source).unwrap().set_len(MIB).unwrap();
    let run = run.wait();
    run.assert_exit(ExitCode::Partial);
    assert_eq!(run.report().work.files_failed, 1);
    let kept = fs::read(&stage.pair.destination).unwrap();
    assert!(
        kept[MIB as usize..] == content[MIB as usize..],
        "what is not at the source any more was removed"
    );
}

/// Kills one end, or the only one, once some of the content has arrived.
fn kill_midway(pair: &Pair, source_first: bool) {
    let slow = "--bandwidth-limit=4Mi";
    let wait = |mut end: Running| {
        end.moved();
        end.kill();
        let _ = end.wait();
    };
    match pair.way {
        Way::Local => wait(pair.start_sync(&[])),
        Way::SinkListens | Way::SourceListens => {
            let (source, sink) = pair.start_both(&[slow], &[]);
            let (first, second) = if source_first { (source, sink) } else { (sink, source) };
            wait(first);
            second.signal(Signal::TERM);
            let _ = second.wait();
        }
    }
}

#[test]
fn an_image_may_be_below_a_volume_where_no_link_leads_out() {
    for way in Way::EACH {
        let mut pair = Pair::new(way);
        pair.is_of_devices = true;
        let content = Rng::new(17).bytes(2 * MIB as usize);
        let from = pair.dir().join("disk");
        write_new(&from, &content);
        let (source, destination) = (pair.source.clone(), pair.destination.clone());
        pair.source = from;
        pair.run_with(&[], &["--destination-path=/made/disk.img"]).assert_exit(ExitCode::Done);
        assert!(fs::read(destination.join("made/disk.img")).unwrap() == content, "{way:?}");
        let secret = pair.dir().join("secret");
        write_new(&secret, b"a secret");
        symlink(&secret, destination.join("link")).unwrap();
        let refused = pair.run_with(&[], &["--destination-path=link"]);
        refused.assert_exit(ExitCode::Usage);
        assert_eq!(fs::read(&secret).unwrap(), b"a secret", "{way:?}");
        fs::create_dir(source.join("backups")).unwrap();
        fs::rename(destination.join("made/disk.img"), source.join("backups/disk.img")).unwrap();
        (pair.source, pair.destination) = (source, pair.dir().join("restored"));
        pair.run_with(&["--source-path=backups/disk.img"], &[]).assert_exit(ExitCode::Done);
        assert!(fs::read(&pair.destination).unwrap() == content, "{way:?}");
    }
}

#[test]
fn a_dry_run_says_whether_a_device_would_change_and_verifies_it() {
    for way in Way::EACH {
        let stage = devices(way, [LEN; 2]);
        fill(&stage.pair.source, LEN, &mut Rng::new(18));
        let run = stage.pair.done(&["--dry-run"]);
        let is_new = stage.loops[1].is_none();
        let (action, kind) =
            if is_new { (Action::Create, EntryKind::File) } else { (Action::Update, EntryKind::Device) };
        let path = text(&stage.pair.destination).into();
        assert_eq!(
            told(&run),
            [PlannedAction { action, kind, path, from: None, target: None, bytes: LEN, differs: Vec::new() }],
            "{way:?}"
        );
        assert_eq!(run.report().work.bytes_changed, LEN, "{way:?}");
        let verified = stage.sync(&["--verify"], "verified");
        assert!(verified.notes.iter().any(|note| note.contains("0 parts of them differ")), "{verified:?}");
        let nothing = stage.pair.done(&["--dry-run", "--verify"]);
        assert_eq!(told(&nothing), [], "{way:?}");
        write(&stage.pair.destination, PART + 5, b"rot");
        let found = stage.pair.run_to(ExitCode::Partial, &["--dry-run", "--verify"]);
        let Work { files_failed, bytes_changed, .. } = found.report().work;
        assert_eq!((files_failed, bytes_changed), (1, LEN - PART), "{way:?}");
        let failure = &found.report().failures[0];
        assert_eq!(
            (failure.path.as_str(), failure.operation.as_str()),
            ("bytes from 000000268435456", "verify")
        );
    }
}

#[test]
fn a_disk_that_is_full_fails_the_image_and_says_so() {
    for way in Way::EACH {
        let Some(disk) = Disk::new("ext4", 16 * MIB, "") else { return };
        let mut stage = Stage::new(way, [End::Image; 2], [24 * MIB; 2]).unwrap();
        write(&stage.pair.source, 0, &Rng::new(19).bytes(24 * MIB as usize));
        stage.pair.destination = disk.path().join("image");
        let run = stage.pair.run_to(ExitCode::Partial, &[]);
        let Report { failures, work, .. } = run.report();
        assert_eq!(work.files_failed, 1, "{way:?}");
        assert!(failures[0].error.contains("No space left on device"), "{way:?}: {failures:?}");
        let mut start = vec![0; 1];
        File::open(&stage.pair.destination).unwrap().read_exact(&mut start).unwrap();
    }
}
