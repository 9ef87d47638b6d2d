//! A message on the control stream: a frame's kind and its body.
#![no_main]

use libfuzzer_sys::fuzz_target;
use syncer::internals::wire::{HEADER_BYTES, Message};

fuzz_target!(|data: &[u8]| {
    let Some((&kind, body)) = data.split_first() else { return };
    let Ok(message) = Message::decode(kind, body) else { return };
    if let Message::Listed(listed) = &message {
        assert_eq!(listed.children.len(), listed.listing.dirs() as usize);
        assert_eq!(listed.listing.iter().count(), listed.listing.len());
    }
    let mut frame = Vec::new();
    message.encode(&mut frame);
    let again = Message::decode(frame[0], &frame[HEADER_BYTES..]).expect("what was decoded can be encoded");
    assert_eq!(again.what(), message.what());
});
