//! Parts that bodies of messages share: ascending numbers, JSON, and their limits.

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    codec::{DecodeError, Reader, put_varint},
    wire::frame::{WireError, begin_frame, end_frame},
};

/// The longest JSON of a message, in bytes. Decoded, it may take many times as much memory, for example as patterns.
pub(super) const MAX_JSON_BYTES: usize = 1 << 20;

/// The most directories or files in one request. A number of one byte takes four in memory, and more once it is
/// answered.
pub(super) const MAX_ASKED: usize = 32 << 10;

pub(super) const TOO_MUCH_ASKED: DecodeError = DecodeError::Invalid("more is asked for at once than may be");

/// The kind of a directory, or of the end of one that arrived in parts.
pub const LISTED: u8 = 3;
/// The kind of a frame that is no message: the next bytes of the `Listed` body that follows.
pub const LISTED_PART: u8 = 12;
pub(super) fn frame(kind: u8, put_body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    begin_frame(&mut out, kind);
    put_body(&mut out);
    end_frame(&mut out, 0);
    out
}

pub(super) fn put_json(out: &mut Vec<u8>, value: &impl Serialize) {
    // Writing these types to memory cannot fail; a failure would reach the peer as a malformed message.
    let _ = serde_json::to_writer(out, value);
}

pub(super) fn json<T: DeserializeOwned>(what: &'static str, body: &[u8]) -> Result<T, WireError> {
    if body.len() > MAX_JSON_BYTES {
        return Err(WireError::TooLong { len: body.len(), max: MAX_JSON_BYTES });
    }
    serde_json::from_slice(body).map_err(|error| WireError::Json { what, error: error.to_string() })
}

/// Appends ascending numbers, each as the gap to the one before.
pub(super) fn put_ascending(out: &mut Vec<u8>, numbers: impl IntoIterator<Item = u32>) {
    let mut next = 0;
    for number in numbers {
        put_varint(out, u64::from(number - next));
        next = number + 1;
    }
}

/// Reads a number that is at least `next`, and sets `next` to the number after it.
pub(super) fn read_ascending(reader: &mut Reader<'_>, next: &mut u32) -> Result<u32, DecodeError> {
    let number = next.checked_add(reader.varint32()?).ok_or(DecodeError::Overflow)?;
    *next = number.checked_add(1).ok_or(DecodeError::Overflow)?;
    Ok(number)
}
