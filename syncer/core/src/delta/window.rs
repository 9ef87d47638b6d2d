//! Buffers bytes that arrive in any pieces, so that whole chunks can be taken from the front.

use super::chunk_sizes::ChunkSizes;

/// A contiguous buffer: new bytes are appended, whole chunks are taken from the front.
#[derive(Debug)]
pub struct Window {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Window {
    /// Allocates room for any chunk of these sizes and as much again, or for a whole file of `file_len` bytes if that
    /// is shorter.
    #[must_use]
    pub fn new(sizes: ChunkSizes, file_len: u64) -> Self {
        let room = 2 * sizes.max() as usize;
        let room = usize::try_from(file_len).map_or(room, |len| len.clamp(1, room));
        Self { buffer: vec![0; room], start: 0, end: 0 }
    }

    /// Returns the buffered bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Returns the room for the next bytes: at least a fourth of the window, as long as it contains no complete chunk.
    pub fn spare(&mut self) -> &mut [u8] {
        if self.start == self.end || self.buffer.len() - self.end < self.buffer.len() / 4 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.buffer[self.end..]
    }

    /// Marks the first `len` bytes of [`Self::spare`] as filled.
    pub fn filled(&mut self, len: usize) {
        debug_assert!(len <= self.buffer.len() - self.end, "more bytes than there was room for");
        self.end += len;
    }

    /// Takes `len` bytes from the front.
    pub fn consume(&mut self, len: usize) {
        debug_assert!(len <= self.end - self.start, "more bytes than there are");
        self.start += len;
    }
}

#[cfg(test)]
mod tests {
    use super::super::list::{Lister, list};
    use super::super::testing::noise;
    use super::*;

    #[test]
    fn a_file_that_goes_through_a_window_is_cut_as_if_it_were_at_hand() {
        let sizes = ChunkSizes::FINE;
        for len in [0, 1, 1_000, 24_576, 24_577, 300_000] {
            let bytes = noise(1, len);
            for most in [1_000, 9_999, usize::MAX] {
                let (mut window, mut lister) = (Window::new(sizes, len as u64), Lister::new(sizes));
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    let spare = window.spare();
                    assert!(!spare.is_empty(), "there is always room");
                    let (now, later) = rest.split_at(rest.len().min(spare.len()).min(most));
                    spare[..now.len()].copy_from_slice(now);
                    window.filled(now.len());
                    rest = later;
                    while let Some(len) = lister.next(window.bytes(), rest.is_empty()) {
                        window.consume(len);
                    }
                }
                assert!(window.bytes().is_empty());
                assert_eq!(lister.finish(), list(&bytes, sizes));
            }
        }
    }
}
