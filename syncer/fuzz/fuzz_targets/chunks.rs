//! The list of a file's chunks.
#![no_main]

use libfuzzer_sys::fuzz_target;
use syncer::internals::delta::list::ChunkList;

fuzz_target!(|data: &[u8]| {
    let Ok(list) = ChunkList::decode(data) else { return };
    let len = list.chunks().iter().map(|chunk| u64::from(chunk.len)).sum::<u64>();
    assert_eq!(len, list.file_len());
    let mut out = Vec::new();
    list.encode(&mut out);
    assert_eq!(out, data, "an encoding is the only one of its list");
});
