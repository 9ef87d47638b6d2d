//! An entry of the journal: a decoded one names a file of the destination, stays within its length and survives its
//! encoding.
#![no_main]

use libfuzzer_sys::fuzz_target;
use syncer::internals::JournalEntry;

/// The table's length and hash, and the magic bytes.
const TRAILER_BYTES: usize = 44;

fuzz_target!(|data: &[u8]| {
    let Some((len, table)) = data.split_first_chunk() else { return };
    let len = u64::from_le_bytes(*len);
    let Ok(redo) = JournalEntry::decode(table, len) else { return };
    assert!(redo.path.names().all(|name| name != b".." && name != b"."));
    assert!(redo.path.names().next().is_some_and(|first| first != b".volferry"));
    let mut out = redo.encode().unwrap();
    out.truncate(out.len() - TRAILER_BYTES);
    assert_eq!(JournalEntry::decode(&out, len).unwrap(), redo);
});
