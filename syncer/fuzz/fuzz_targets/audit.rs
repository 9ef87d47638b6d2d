//! The log of a store: a damaged one is read up to the damage, and no line counts twice.
#![no_main]

use libfuzzer_sys::fuzz_target;
use syncer::snapshot::store::Log;

fuzz_target!(|data: &[u8]| {
    let log = Log::decode(data);
    let lines = data.iter().filter(|byte| **byte == b'\n').count();
    assert!(log.events.len() + usize::from(log.broken.is_some()) <= lines);
    assert!(log.broken.is_none_or(|line| line == log.events.len() as u64 + 1));
});
