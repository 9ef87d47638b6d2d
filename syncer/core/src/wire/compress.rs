//! Compresses data frames with zstd, if that is worthwhile.
//!
//! A compressed frame has [`COMPRESSED`] set in its kind. Its body is the length of the plain body (four bytes, little
//! endian) and one zstd frame.

use contract::Compression;
use zstd::bulk;

use super::frame::{HEADER_BYTES, MAX_FRAME_BYTES, WireError, begin_frame, end_frame};
use crate::{
    codec::{DecodeError, Reader},
    wire::buffers,
};

/// Marks the kind of a compressed frame.
pub const COMPRESSED: u8 = 0x80;

/// Smaller frames are sent as they are.
const MIN_BYTES: usize = 512;

/// The number of bytes of a frame that are compressed as a sample.
const SAMPLE_BYTES: usize = 16 << 10;

/// The share that a sample must shrink to on a link as fast as the machine. There, sending a byte costs both ends about
/// as much as compressing and decompressing it (2.8 ns).
const WORTH_ON_FAST_LINK: f64 = 0.2;
const WORTH_ON_SLOW_LINK: f64 = 0.95;

/// zstd levels of `auto`.
const FAST_LINK_LEVEL: i32 = 1;
const SLOW_LINK_LEVEL: i32 = 3;

/// The most frames that go unsampled after a sample that did not shrink.
const MAX_SKIPPED: u32 = 128;

/// Compresses the frames of one stream.
pub struct Compressor {
    mode: Compression,
    skip: u32,
    next_skip: u32,
}

impl Compressor {
    /// Starts with the run's parameters.
    pub fn new(mode: Compression) -> Self {
        Self { mode, skip: 0, next_skip: 1 }
    }

    /// Returns the frame as it is sent. `link_is_slow` tells that the link is slower than this end could compress.
    pub fn seal(&mut self, frame: Vec<u8>, link_is_slow: bool) -> Vec<u8> {
        if frame.len() < MIN_BYTES {
            return frame;
        }
        let level = match self.mode {
            Compression::None => return frame,
            Compression::Level(level) => i32::from(level),
            Compression::Auto => {
                if !self.shrinks(&frame, link_is_slow) {
                    return frame;
                }
                if link_is_slow { SLOW_LINK_LEVEL } else { FAST_LINK_LEVEL }
            }
        };
        let Some(compressed) = compress(&frame, level) else { return frame };
        buffers::give_back(frame);
        compressed
    }

    /// Compresses a sample from the middle of the frame. After one that did not shrink, more and more frames are sent
    /// without a sample.
    fn shrinks(&mut self, frame: &[u8], link_is_slow: bool) -> bool {
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        let worth = if link_is_slow { WORTH_ON_SLOW_LINK } else { WORTH_ON_FAST_LINK };
        let middle = frame.len().saturating_sub(SAMPLE_BYTES) / 2;
        let sample = &frame[middle..frame.len().min(middle + SAMPLE_BYTES)];
        let shrunk = bulk::compress(sample, FAST_LINK_LEVEL).map_or(usize::MAX, |bytes| bytes.len());
        if (shrunk as f64) < sample.len() as f64 * worth {
            self.next_skip = 1;
            return true;
        }
        self.skip = self.next_skip;
        self.next_skip = (self.next_skip * 2).min(MAX_SKIPPED);
        false
    }
}

/// Compresses a frame; `None` if it does not get smaller.
fn compress(frame: &[u8], level: i32) -> Option<Vec<u8>> {
    let body = &frame[HEADER_BYTES..];
    let packed = bulk::compress(body, level).ok()?;
    if packed.len() + 4 >= body.len() {
        return None;
    }
    let mut out = Vec::with_capacity(HEADER_BYTES + 4 + packed.len());
    begin_frame(&mut out, frame[0] | COMPRESSED);
    out.extend_from_slice(&(body.len() as u32).to_le_bytes());
    out.extend_from_slice(&packed);
    end_frame(&mut out, 0);
    Some(out)
}

/// Returns the plain body of a frame of this kind, which is compressed if the kind has [`COMPRESSED`].
///
/// # Errors
/// If the body is not zstd of exactly the length that it names, or that exceeds a frame's. Nothing longer is
/// allocated.
pub fn open(kind: u8, body: Vec<u8>) -> Result<Vec<u8>, WireError> {
    if kind & COMPRESSED == 0 {
        return Ok(body);
    }
    let malformed = |source| WireError::Malformed { what: "compressed frame", source };
    let mut reader = Reader::new(&body);
    let len = u32::from_le_bytes(reader.array().map_err(malformed)?) as usize;
    if len > MAX_FRAME_BYTES {
        return Err(WireError::TooLong { len, max: MAX_FRAME_BYTES });
    }
    let packed = reader.take(reader.remaining()).map_err(malformed)?;
    match bulk::decompress(packed, len) {
        Ok(plain) if plain.len() == len => Ok(plain),
        _ => Err(malformed(DecodeError::Invalid("it is not zstd of the length that it names"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(body: &[u8]) -> Vec<u8> {
        let mut frame = Vec::new();
        begin_frame(&mut frame, 65);
        frame.extend_from_slice(body);
        end_frame(&mut frame, 0);
        frame
    }

    fn words() -> Vec<u8> {
        b"the quick brown fox jumps over the lazy dog\n".repeat(2000)
    }

    fn noise() -> Vec<u8> {
        let mut noise = vec![0; 80_000];
        blake3::Hasher::new().finalize_xof().fill(&mut noise);
        noise
    }

    fn opened(sealed: &[u8]) -> (u8, Vec<u8>) {
        let body = sealed[HEADER_BYTES..].to_vec();
        (sealed[0] & !COMPRESSED, open(sealed[0], body).unwrap())
    }

    #[test]
    fn what_is_sealed_can_be_opened() {
        for mode in [Compression::Auto, Compression::None, Compression::Level(1), Compression::Level(19)] {
            for body in [words(), noise(), vec![], vec![7; 100]] {
                let sealed = Compressor::new(mode).seal(frame(&body), false);
                assert_eq!(opened(&sealed), (65, body), "{mode}");
            }
        }
    }

    #[test]
    fn words_shrink_and_noise_goes_as_it_is() {
        let mut auto = Compressor::new(Compression::Auto);
        assert!(auto.seal(frame(&words()), false).len() < words().len() / 10);
        assert_eq!(auto.seal(frame(&noise()), true), frame(&noise()));
        assert_eq!(Compressor::new(Compression::None).seal(frame(&words()), true), frame(&words()));
    }

    #[test]
    fn after_noise_fewer_and_fewer_frames_are_tried() {
        let mut auto = Compressor::new(Compression::Auto);
        let tried = (0..200).filter(|_| {
            let before = auto.skip;
            auto.seal(frame(&noise()), false);
            before == 0
        });
        assert!(tried.count() < 15);
    }

    #[test]
    fn a_bomb_is_refused_before_it_is_unpacked() {
        let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 1).unwrap();
        for claimed in [64 << 20_u32, 1000, 0, u32::MAX] {
            let body = [&claimed.to_le_bytes()[..], &bomb].concat();
            assert!(open(65 | COMPRESSED, body).is_err(), "{claimed}");
        }
        assert!(open(COMPRESSED, vec![1, 2]).is_err());
    }
}
