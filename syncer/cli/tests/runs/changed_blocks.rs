//! Devices of which only the changed blocks are read: what the run believes of the list, what it proves of the
//! destination, and what it does where that has other content.

use std::process::Stdio;

use contract::{ContentHash, DeviceContent};

use super::devices::{End, MIB, Stage, devices, write, write_new};
use crate::common::prelude::*;

const PART: u64 = 256 * MIB;

/// The length of a part of a device and some of the next.
const LEN: u64 = PART + 3 * MIB + 1536;

/// Hashes what a process of its own reads: a child that another test forks would have the image open for a moment
/// longer than this process, and the next run would find it in use.
fn hash_of(path: &Path) -> ContentHash {
    let mut reader = Command::new("cat").arg(path).stdout(Stdio::piped()).spawn().unwrap();
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(reader.stdout.take().unwrap()).unwrap();
    assert!(reader.wait().unwrap().success(), "{}", path.display());
    ContentHash(*hasher.finalize().as_bytes())
}

fn byte_at(path: &Path, at: u64) -> u8 {
    let mut byte = [0];
    fs::File::open(path).unwrap().read_exact_at(&mut byte, at).unwrap();
    byte[0]
}

impl Stage {
    /// Writes a list of changed blocks, and returns the flag that names it.
    fn list(&self, base: ContentHash, ranges: &[(u64, u64)]) -> String {
        let lines = ranges.iter().map(|(offset, len)| format!("{offset} {len}\n"));
        let path = self.pair.dir().join("changed");
        fs::write(&path, format!("base {base}\n{}", lines.collect::<String>())).unwrap();
        format!("--changed-blocks={}", path.display())
    }

    /// Runs with flags, and returns the report.
    #[track_caller]
    fn ran(&self, flags: &[&str]) -> Report {
        let run = self.pair.done(flags);
        run.report().clone()
    }
}

fn compared_everything(report: &Report) -> bool {
    report.notes.iter().any(|note| note.contains("so everything was compared"))
}

#[test]
fn only_listed_blocks_are_read_and_the_hash_is_that_of_all_bytes() {
    for way in Way::EACH {
        let stage = devices(way, [LEN; 2]);
        let (source, destination) = (&stage.pair.source, &stage.pair.destination);
        let mut rng = Rng::new(31);
        write(source, 0, &rng.bytes(5 * MIB as usize));
        write(source, PART - 5000, &rng.bytes(10_000));
        let first = stage.sync(&["--content-hash"], "first");
        assert_eq!(
            first.content,
            Some(DeviceContent { hash: hash_of(source), bytes_listed: None }),
            "{way:?}"
        );
        // The second range lies in two parts, and the last one at the end. The first has a hole of zeros.
        let ranges = [(7_000, MIB), (PART - 100, 200), (LEN - 512, 512)];
        for (offset, len) in ranges {
            write(source, offset, &rng.bytes(len as usize));
        }
        write(source, 8192, &vec![0; 200 << 10]);
        let expected = hash_of(source);
        write(source, 3 * MIB, b"not listed");
        let flag = stage.list(first.content.unwrap().hash, &ranges);
        let changed = stage.ran(&[&flag]);
        let bytes_listed = Some(ranges.iter().map(|(_, len)| len).sum());
        assert_eq!(changed.content, Some(DeviceContent { hash: expected, bytes_listed }), "{way:?}");
        assert_eq!(hash_of(destination), expected, "{way:?}: what is not listed was not read");
        assert!(!compared_everything(&changed), "{way:?}: {:?}", changed.notes);
        let work = changed.work;
        assert_eq!((work.files_updated, work.bytes_total), (1, LEN), "{way:?}");
        assert!((MIB / 2..MIB + 4096).contains(&work.bytes_changed), "{way:?}: {work:?}");
        let nothing = stage.ran(&[&stage.list(expected, &[])]);
        assert_eq!(nothing.content, Some(DeviceContent { hash: expected, bytes_listed: Some(0) }), "{way:?}");
        assert_eq!((nothing.work.files_updated, nothing.work.bytes_changed), (0, 0), "{way:?}");
    }
}

#[test]
fn a_list_that_lacks_a_block_is_found_by_the_comparison_afterwards() {
    for way in Way::EACH {
        let stage = Stage::new(way, [End::Image; 2], [2 * MIB; 2]).unwrap();
        write(&stage.pair.source, 0, &Rng::new(32).bytes(MIB as usize));
        let base = stage.sync(&["--content-hash"], "first").content.unwrap().hash;
        write(&stage.pair.source, 5, b"listed");
        write(&stage.pair.source, MIB, b"not listed");
        let run = stage.pair.run_to(ExitCode::Partial, &[&stage.list(base, &[(0, 512)]), "--verify"]);
        assert_eq!(run.report().content, None, "{way:?}: it is the base of nothing");
        assert_eq!(byte_at(&stage.pair.destination, MIB), 0, "{way:?}");
    }
}

#[test]
fn where_the_destination_has_not_the_base_everything_is_compared_and_the_report_says_so() {
    for way in Way::EACH {
        let mut stage = devices(way, [4 * MIB; 2]);
        let (source, destination) = (stage.pair.source.clone(), stage.pair.destination.clone());
        let mut rng = Rng::new(33);
        write(&source, 0, &rng.bytes(4 * MIB as usize));
        let base = stage.sync(&["--content-hash"], "first").content.unwrap().hash;
        let check = |stage: &Stage, base, what: &str| {
            write(&source, 2 * MIB, what.as_bytes());
            let report = stage.sync(&[&stage.list(base, &[(2 * MIB, 512)])], what);
            let content = DeviceContent { hash: hash_of(&source), bytes_listed: None };
            assert_eq!(report.content, Some(content), "{way:?}: {what}");
            assert!(compared_everything(&report), "{way:?}: {what}: {:?}", report.notes);
            content.hash
        };
        write(&destination, MIB + 77, b"rot, or another writer");
        let base = check(&stage, base, "a byte that changed meanwhile");
        assert_ne!(base, ContentHash([9; 32]));
        let base = check(&stage, ContentHash([9; 32]), "another base");
        write(&source, 0, &rng.bytes(4 * MIB as usize));
        let mut half = vec![0; 2 * MIB as usize];
        fs::File::open(&source).unwrap().read_exact_at(&mut half, 0).unwrap();
        write(&destination, 0, &half);
        check(&stage, base, "a run that was cut off in the middle");
        stage.pair.destination = stage.pair.dir().join("new");
        stage.pair.is_of_devices = true;
        check(&stage, base, "a new image");
        let dry = stage.pair.done(&[&stage.list(base, &[]), "--dry-run"]);
        assert!(dry.report().notes.iter().any(|note| note.contains("a dry run compares everything")));
    }
}

#[test]
fn what_is_no_list_of_this_device_is_refused_untouched() {
    for way in Way::EACH {
        let stage = Stage::new(way, [End::Image; 2], [MIB; 2]).unwrap();
        write(&stage.pair.source, 0, b"content");
        write_new(&stage.pair.destination, &[7; 5000]);
        let beyond =
            stage.pair.run_to(ExitCode::Failed, &[&stage.list(ContentHash::default(), &[(MIB - 512, 513)])]);
        let (Run::Local(end) | Run::Network { source: end, .. }) = &beyond;
        let message = &end.report().message;
        assert!(message.contains("the changed blocks end at byte 1048577"), "{message}");
        assert_eq!(fs::read(&stage.pair.destination).unwrap(), [7; 5000], "{way:?}");
    }
    let stage = Stage::new(Way::Local, [End::Image; 2], [MIB; 2]).unwrap();
    let twice = stage.list(ContentHash::default(), &[(512, 512), (0, 512)]);
    let run = stage.pair.run_to(ExitCode::Usage, &[&twice]);
    let (Run::Local(end) | Run::Network { source: end, .. }) = run;
    assert!(end.stderr.contains("begins before the end of the one before"), "{}", end.stderr);
    let tree = Pair::new(Way::Local);
    for flag in [stage.list(ContentHash::default(), &[]).as_str(), "--content-hash"] {
        let run = tree.run(&[flag]);
        run.assert_exit(ExitCode::Usage);
        for end in run.ends() {
            assert_eq!(end.reason(), "KindMismatch");
        }
    }
}
