//! The bytes of a stream that carries QUIC's packets, from an end that has not shown its key: they are cut into packets
//! in the same way however they arrive.
#![no_main]

use libfuzzer_sys::fuzz_target;
use syncer::internals::wire::packets::{MAX_PACKET_BYTES, Packets};

fuzz_target!(|data: &[u8]| {
    let Some((&piece, stream)) = data.split_first() else { return };
    assert_eq!(cut(stream, stream.len().max(1)), cut(stream, 1 + usize::from(piece)));
});

/// Returns the packets of a stream that arrives in pieces, and whether it was refused.
fn cut(stream: &[u8], piece: usize) -> (Vec<Vec<u8>>, bool) {
    let (mut packets, mut taken) = (Packets::default(), Vec::new());
    let mut rest = stream;
    while !rest.is_empty() {
        let room = packets.room();
        let len = piece.min(rest.len()).min(room.len());
        room[..len].copy_from_slice(&rest[..len]);
        packets.arrived(len);
        rest = &rest[len..];
        loop {
            match packets.take() {
                Ok(Some(packet)) => taken.push(packet.to_vec()),
                Ok(None) => break,
                Err(_) => return (taken, true),
            }
        }
    }
    assert!(taken.iter().all(|packet| (1..=MAX_PACKET_BYTES).contains(&packet.len())));
    (taken, false)
}
