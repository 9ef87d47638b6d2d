//! The list of a file's chunks, with long and with short names.
#![no_main]

use libfuzzer_sys::fuzz_target;
use syncer::internals::delta::{
    list::{Chunk, ChunkList},
    name::{ChunkName, Name, ShortName},
};

fn check<N: Name>(data: &[u8]) {
    let Ok(list) = ChunkList::<N>::decode(data) else { return };
    let len = |chunks: &[Chunk<N>]| chunks.iter().map(|chunk| u64::from(chunk.len)).sum::<u64>();
    assert_eq!(len(list.chunks()), list.file_len());
    let mut out = Vec::new();
    list.encode(&mut out);
    assert_eq!(out, data, "an encoding is the only one of its list");
}

fuzz_target!(|data: &[u8]| {
    check::<ChunkName>(data);
    check::<ShortName>(data);
});
