//! Reads and writes integers and byte strings with bounds, for every format of the engine. Input may come from a
//! hostile peer or a damaged file, so every length is checked before memory is allocated.

use bytes::Bytes;
use thiserror::Error;

/// Why bytes do not match the format.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)] // the messages say it
pub enum DecodeError {
    #[error("the data ends too early")]
    Truncated,
    #[error("a number does not fit its field")]
    Overflow,
    #[error("there is data after the end")]
    Trailing,
    #[error("{0}")]
    Invalid(&'static str),
}

/// Appends `value` as a little-endian base-128 number, 1 to 10 bytes.
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a signed number as zigzag, so that small magnitudes are short.
pub fn put_signed(out: &mut Vec<u8>, value: i64) {
    put_varint(out, ((value << 1) ^ (value >> 63)) as u64);
}

/// Appends a byte string after its length.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads the encodings of the functions above.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    rest: &'a [u8],
    /// The shared bytes that the input is part of, if its parts may be kept.
    whole: Option<&'a Bytes>,
}

impl<'a> Reader<'a> {
    /// Starts at the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, whole: None }
    }

    /// Starts at the start of shared bytes, so that parts of them are kept without a copy.
    pub fn sharing(bytes: &'a Bytes) -> Self {
        Self { rest: bytes, whole: Some(bytes) }
    }

    /// Returns whether everything was read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Returns the number of bytes that are left.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Reads the next byte.
    pub fn byte(&mut self) -> Result<u8, DecodeError> {
        let (&first, rest) = self.rest.split_first().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(first)
    }

    /// Reads the next `len` bytes.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    /// Reads the next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Reads a number of [`put_varint`].
    pub fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(DecodeError::Overflow);
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DecodeError::Overflow)
    }

    /// Reads a number of [`put_varint`] that fits 32 bits.
    pub fn varint32(&mut self) -> Result<u32, DecodeError> {
        self.varint()?.try_into().map_err(|_| DecodeError::Overflow)
    }

    /// Reads a number of [`put_signed`].
    pub fn signed(&mut self) -> Result<i64, DecodeError> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    /// Reads a byte string of [`put_bytes`] of at most `max` bytes.
    pub fn bytes(&mut self, max: usize) -> Result<&'a [u8], DecodeError> {
        let len = self.length()?;
        if len > max {
            return Err(DecodeError::Overflow);
        }
        self.take(len)
    }

    /// Reads a length, which may exceed the remaining bytes.
    pub fn length(&mut self) -> Result<usize, DecodeError> {
        usize::try_from(self.varint()?).map_err(|_| DecodeError::Overflow)
    }

    /// Reads the next `len` bytes without a copy, to be kept.
    pub fn shared(&mut self, len: usize) -> Result<Bytes, DecodeError> {
        let taken = self.take(len)?;
        Ok(self.whole.map_or_else(|| Bytes::copy_from_slice(taken), |whole| whole.slice_ref(taken)))
    }

    /// Checks that nothing is left.
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.is_empty() { Ok(()) } else { Err(DecodeError::Trailing) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_survive_the_trip() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            put_signed(&mut out, value as i64);
            put_signed(&mut out, (value as i64).wrapping_neg());
            let mut reader = Reader::new(&out);
            assert_eq!(reader.varint(), Ok(value));
            assert_eq!(reader.signed(), Ok(value as i64));
            assert_eq!(reader.signed(), Ok((value as i64).wrapping_neg()));
            assert_eq!(reader.finish(), Ok(()));
        }
    }

    #[test]
    fn a_number_longer_than_64_bits_is_refused() {
        assert_eq!(Reader::new(&[0xff; 10]).varint(), Err(DecodeError::Overflow));
        assert_eq!(Reader::new(&[0x80; 11]).varint(), Err(DecodeError::Overflow));
    }

    #[test]
    fn a_length_beyond_the_data_is_refused() {
        let mut out = Vec::new();
        put_varint(&mut out, u64::MAX);
        assert_eq!(Reader::new(&out).bytes(usize::MAX), Err(DecodeError::Truncated));
        assert_eq!(Reader::new(&[5, 1, 2]).bytes(100), Err(DecodeError::Truncated));
        assert_eq!(Reader::new(&[5, 1, 2, 3, 4, 5]).bytes(4), Err(DecodeError::Overflow));
    }
}
