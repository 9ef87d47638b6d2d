//! What is sealed in object storage, as it is after it was opened: a list, an index or a list of pieces survives its
//! encoding, and a blob has the length that was told. The input's first byte chooses which of them.
#![no_main]

use bucket::internals::{index, list, pack, pieces, unpack};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((which, body)) = data.split_first() else { return };
    let decode = match which % 4 {
        0 => list,
        1 => index,
        2 => pieces,
        _ => {
            // An index is believed for a length, and no one here is as long as the longest.
            let Some((len, opened)) = body.split_first_chunk::<3>() else { return };
            let len = u64::from(u32::from_le_bytes([len[0], len[1], len[2], 0]));
            if let Some(plain) = unpack(opened, len) {
                assert_eq!(plain.len() as u64, len);
                assert_eq!(unpack(&pack(&plain), len), Some(plain));
            }
            return;
        }
    };
    if let Some(encoded) = decode(body) {
        assert_eq!(decode(&encoded).as_ref(), Some(&encoded), "what was written can be read");
    }
});
