//! A frame from a source on a data stream, plain or compressed: its kind and its body.
#![no_main]

use libfuzzer_sys::fuzz_target;
use syncer::internals::wire::{
    HEADER_BYTES, MAX_FRAME_BYTES, MAX_PACKED_BYTES,
    check::{CHECKED_BLOCK, CHECKED_PATCH, SplitFrame, split_check},
    compress::{self, COMPRESSED},
    data::{BLOCK, Block, END, EndFrame, PACK, Pack},
    patch::{CHUNKS, Chunks, PATCH, Patch},
};

fuzz_target!(|data: &[u8]| {
    let Some((&kind, body)) = data.split_first() else { return };
    let Ok(body) = compress::open(kind, body.to_vec()) else { return };
    assert!(body.len() <= MAX_FRAME_BYTES.max(data.len()));
    let Ok(SplitFrame { kind, body, .. }) = split_check(kind & !COMPRESSED, &body) else { return };
    assert!(![CHECKED_BLOCK, CHECKED_PATCH].contains(&kind));
    match kind {
        PACK => {
            if let Ok(files) = Pack::open(body) {
                let contents = files.flatten().filter_map(|packed| packed.content.ok());
                contents.for_each(|content| assert!(content.bytes.len() as u64 <= MAX_PACKED_BYTES));
            }
        }
        BLOCK => {
            if let Ok(block) = Block::decode(body) {
                assert!(block.offset + block.bytes.len() as u64 <= block.file_len);
            }
        }
        PATCH => {
            if let Ok(patch) = Patch::decode(body) {
                assert!(patch.place.offset + patch.len() <= patch.place.file_len);
                assert_eq!(Patch::decode(&patch.encode()[HEADER_BYTES..]), Ok(patch));
            }
        }
        CHUNKS => {
            if let Ok(chunks) = Chunks::decode(body) {
                assert!(chunks.place.offset + chunks.len() <= chunks.place.file_len);
            }
        }
        END => {
            if let Ok(end) = EndFrame::decode(body) {
                assert_eq!(EndFrame::decode(&end.encode()[HEADER_BYTES..]), Ok(end));
            }
        }
        _ => {}
    }
});
