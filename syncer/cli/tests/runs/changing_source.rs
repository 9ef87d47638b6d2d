//! A source that changes while it is read: the sink gets one whole version that existed, or keeps the version it has;
//! never a mix.

use std::{
    fs::OpenOptions,
    io::Write as _,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
};

use crate::common::prelude::*;

/// Files that begin small enough to be packed, and large ones of several blocks.
const SIZES: [u64; 6] = [1_000, 60_000, 125_000, 1_500_000, 3_000_000, 5_000_000];

/// Returns the eight bytes at an offset of a file that grows.
fn word(offset: u64) -> [u8; 8] {
    (offset / 8).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()
}

/// Returns the first bytes of a file that grows; they are its whole content at some moment.
fn pattern(len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    (0..)
        .step_by(8)
        .zip(bytes.chunks_mut(8))
        .for_each(|(at, chunk)| chunk.copy_from_slice(&word(at)[..chunk.len()]));
    bytes
}

fn path(dir: &Path, size: u64) -> PathBuf {
    dir.join(format!("from {size}"))
}

/// Runs `work` while another thread repeats `change`.
fn while_changing(change: impl Fn() + Sync, work: impl FnOnce()) {
    let over = AtomicBool::new(false);
    let rounds = AtomicU64::new(0);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(SeqCst) {
                change();
                rounds.fetch_add(1, SeqCst);
            }
        });
        // Dropping this also ends the thread when `work` panics.
        let _end = End(&over);
        work();
    });
    assert!(rounds.into_inner() > 4, "the source hardly changed");
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// The reasons that a report gives for a file that changed after it was listed.
const WHY: [&str; 2] = ["changing", "No such file"];

/// Runs once; the run has to succeed, or to fail with errors that name files that changed.
fn run(pair: &Pair) {
    let run = pair.run(&["--delete", "--delete-limit=100"]);
    let report = run.report();
    match report.result {
        RunResult::Succeeded => run.assert_exit(ExitCode::Done),
        _ => {
            run.assert_exit(ExitCode::Partial);
            assert_eq!(report.work.files_failed, report.failures.len() as u64);
            for failure in &report.failures {
                assert!(failure.path.starts_with("from "), "{failure:?}");
                assert!(WHY.iter().any(|why| failure.error.contains(why)), "{failure:?}");
            }
        }
    }
    pair.assert_staging_empty();
}

/// Runs four times while `change` repeats and lets `judge` check the destination each time; then runs once with the
/// source at rest.
fn runs_while_changing(pair: &Pair, change: impl Fn() + Sync, judge: impl Fn(&[u8], &[u8])) {
    while_changing(change, || {
        for _ in 0..4 {
            run(pair);
            Snapshot::of(&pair.destination).files().for_each(|(path, content)| judge(path, content));
        }
    });
    pair.sync("once the source is at rest");
}

#[test]
fn a_file_that_grows_all_the_time_arrives_as_it_was_at_one_moment() {
    for way in Way::EACH {
        let pair = Pair::new(way);
        SIZES.iter().for_each(|&size| fs::write(path(&pair.source, size), pattern(size)).unwrap());
        let grow = || {
            for size in SIZES {
                let mut file = OpenOptions::new().append(true).open(path(&pair.source, size)).unwrap();
                let len = file.metadata().unwrap().len();
                file.write_all(&word(len)).unwrap();
            }
        };
        runs_while_changing(&pair, grow, |path, content| {
            let is_prefix = content == pattern(content.len() as u64);
            assert!(is_prefix, "{way:?}: {} was never like this", path.escape_ascii());
        });
    }
}

/// Returns the number of words in a version of a file; two consecutive versions differ in it.
fn words(size: u64, version: u64) -> u64 {
    size / 8 + version % 7
}

/// Returns a version of a file: its number, repeated. A mix of two versions holds two numbers.
fn version(number: u64, words: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(words as usize)
}

#[test]
fn a_file_that_is_replaced_all_the_time_arrives_as_one_of_its_versions() {
    for way in Way::EACH {
        let pair = Pair::new(way);
        let number = AtomicU64::new(0);
        let replace = || {
            let number = number.fetch_add(1, SeqCst);
            for size in SIZES {
                let fresh = pair.dir().join("fresh");
                fs::write(&fresh, version(number, words(size, number))).unwrap();
                fs::rename(fresh, path(&pair.source, size)).unwrap();
            }
        };
        replace();
        runs_while_changing(&pair, replace, |path, content| {
            let number = u64::from_le_bytes(content[..8].try_into().unwrap());
            let is_version = SIZES.iter().any(|&size| content == version(number, words(size, number)));
            assert!(is_version, "{way:?}: {} was never like this", path.escape_ascii());
        });
    }
}

#[test]
fn a_file_whose_end_is_cut_off_and_written_anew_all_the_time_arrives_as_it_was_at_one_moment() {
    for way in Way::EACH {
        let pair = Pair::new(way);
        let kept = |size: u64| size / 16 * 8;
        SIZES.iter().for_each(|&size| fs::write(path(&pair.source, size), pattern(kept(size))).unwrap());
        let number = AtomicU64::new(0);
        let rewrite = || {
            let number = number.fetch_add(1, SeqCst);
            for size in SIZES {
                let mut file = OpenOptions::new().append(true).open(path(&pair.source, size)).unwrap();
                file.set_len(kept(size)).unwrap();
                file.write_all(&version(number, words(kept(size), number))).unwrap();
            }
        };
        runs_while_changing(&pair, rewrite, |path, content| {
            let was_so = SIZES.iter().any(|&size| {
                let (Some(start), Some(end)) =
                    (content.get(..kept(size) as usize), content.get(kept(size) as usize..))
                else {
                    return false;
                };
                let number = end.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
                let longest = version(number, words(kept(size), number));
                longest.starts_with(end) && start == pattern(kept(size))
            });
            assert!(was_so, "{way:?}: {} was never like this", path.escape_ascii());
        });
    }
}

#[test]
fn files_that_come_and_go_all_the_time_arrive_whole_or_are_named() {
    for way in Way::EACH {
        let pair = Pair::new(way);
        let content = pattern(SIZES[5]);
        let content = |size: u64| &content[..size as usize];
        let away = scratch::dir(pair.dir(), "away");
        let come_and_go = || {
            for size in SIZES {
                fs::rename(path(&away, size), path(&pair.source, size)).unwrap();
            }
            for size in SIZES {
                fs::rename(path(&pair.source, size), path(&away, size)).unwrap();
            }
        };
        SIZES.iter().for_each(|&size| fs::write(path(&away, size), content(size)).unwrap());
        fs::write(pair.source.join("stays"), content(SIZES[0])).unwrap();
        runs_while_changing(&pair, come_and_go, |path, there| {
            let is_whole = SIZES.iter().any(|&size| there == content(size));
            assert!(is_whole, "{way:?}: {} was never like this", path.escape_ascii());
        });
    }
}
