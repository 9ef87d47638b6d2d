//! QUIC packets on a byte stream: before each packet its length, two bytes, little endian.

use super::WireError;

/// The longest packet on a stream. Both ends send packets of this size from the start, because a stream takes any.
pub const MAX_PACKET_BYTES: usize = 32 << 10;

/// Bytes before a packet.
pub const PACKET_PREFIX_BYTES: usize = 2;

/// Bytes that are read from a stream at once, at most.
const BUFFER_BYTES: usize = 256 << 10;

/// Returns the bytes before a packet of this length, which is at most [`MAX_PACKET_BYTES`].
pub const fn packet_prefix(len: usize) -> [u8; PACKET_PREFIX_BYTES] {
    (len as u16).to_le_bytes()
}

/// Cuts the bytes of a stream into packets. Holds one buffer of a fixed size, whatever the peer sends.
#[derive(Debug)]
pub struct Packets {
    buffer: Box<[u8]>,
    /// The bytes that have arrived and are in no packet that was taken.
    start: usize,
    end: usize,
}

impl Default for Packets {
    fn default() -> Self {
        Self { buffer: vec![0; BUFFER_BYTES].into(), start: 0, end: 0 }
    }
}

impl Packets {
    /// Returns the room for the next bytes of the stream, never empty once all whole packets are taken.
    pub fn room(&mut self) -> &mut [u8] {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        &mut self.buffer[self.end..]
    }

    /// Notes that bytes have arrived in the room.
    pub fn arrived(&mut self, bytes: usize) {
        self.end = self.buffer.len().min(self.end + bytes);
    }

    /// Takes the next packet; `None` until all of it has arrived.
    ///
    /// # Errors
    /// If its length is 0 or above the limit.
    pub fn take(&mut self) -> Result<Option<&[u8]>, WireError> {
        let arrived = &self.buffer[self.start..self.end];
        let Some((prefix, rest)) = arrived.split_first_chunk() else { return Ok(None) };
        let len = usize::from(u16::from_le_bytes(*prefix));
        if !(1..=MAX_PACKET_BYTES).contains(&len) {
            return Err(WireError::PacketLength { len, max: MAX_PACKET_BYTES });
        }
        if rest.len() < len {
            return Ok(None);
        }
        let at = self.start + PACKET_PREFIX_BYTES;
        self.start = at + len;
        Ok(Some(&self.buffer[at..self.start]))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn feed(packets: &mut Packets, bytes: &[u8]) -> Result<Vec<Vec<u8>>, WireError> {
        packets.room()[..bytes.len()].copy_from_slice(bytes);
        packets.arrived(bytes.len());
        let mut taken = Vec::new();
        while let Some(packet) = packets.take()? {
            taken.push(packet.to_vec());
        }
        Ok(taken)
    }

    #[test]
    fn a_packet_is_its_length_and_its_bytes() {
        let mut packets = Packets::default();
        assert_eq!(feed(&mut packets, &[3, 0, b'a', b'b', b'c', 1]).unwrap(), [b"abc"]);
        assert_eq!(feed(&mut packets, &[0, b'd']).unwrap(), [b"d"]);
        assert_eq!(packet_prefix(0x1234), [0x34, 0x12]);
    }

    #[test]
    fn a_packet_without_bytes_and_one_above_the_limit_are_refused() {
        for len in [0, MAX_PACKET_BYTES + 1, usize::from(u16::MAX)] {
            let refused = feed(&mut Packets::default(), &packet_prefix(len)).unwrap_err();
            assert_eq!(refused, WireError::PacketLength { len, max: MAX_PACKET_BYTES });
        }
        assert_eq!(feed(&mut Packets::default(), &packet_prefix(MAX_PACKET_BYTES)).unwrap().len(), 0);
    }

    proptest! {
        #[test]
        fn packets_leave_a_stream_as_they_entered_it_however_it_is_cut(
            lens in prop::collection::vec(1..=MAX_PACKET_BYTES, 0..12),
            piece in 1..BUFFER_BYTES / 2,
        ) {
            let sent: Vec<Vec<u8>> = (0u8..).zip(&lens).map(|(fill, len)| vec![fill; *len]).collect();
            let stream: Vec<u8> =
                sent.iter().flat_map(|packet| [&packet_prefix(packet.len()), packet.as_slice()].concat()).collect();
            let mut packets = Packets::default();
            let mut taken = Vec::new();
            for piece in stream.chunks(piece) {
                taken.extend(feed(&mut packets, piece).unwrap());
            }
            prop_assert!(taken == sent);
        }
    }
}
