//! What bodies of messages have in common: numbers that ascend, JSON, and their bounds.

use serde::{Serialize, de::DeserializeOwned};

use crate::{
    codec::{DecodeError, Reader, put_varint},
    wire::frame::{WireError, begin_frame, end_frame},
};

/// The longest JSON of a message. What is made of it may take many times as much memory: a pattern, for one.
pub(super) const MAX_JSON_BYTES: usize = 1 << 20;

/// Directories or files that one message may ask for. A number of one byte takes four in memory, and more once it is answered.
pub(super) const MAX_ASKED: usize = 32 << 10;

pub(super) const TOO_MUCH_ASKED: DecodeError = DecodeError::Invalid("more is asked for at once than may be");

/// A directory, or the end of one that came in parts.
pub const LISTED: u8 = 3;
/// No message of its own: the next bytes of the body of the `Listed` that follows.
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

/// Appends numbers that ascend, each as what lies between it and the one before.
pub(super) fn put_ascending(out: &mut Vec<u8>, numbers: impl IntoIterator<Item = u32>) {
    let mut next = 0;
    for number in numbers {
        put_varint(out, u64::from(number - next));
        next = number + 1;
    }
}

/// A number that is not below `next`, which becomes the number after it.
pub(super) fn read_ascending(reader: &mut Reader<'_>, next: &mut u32) -> Result<u32, DecodeError> {
    let number = next.checked_add(reader.varint32()?).ok_or(DecodeError::Overflow)?;
    *next = number.checked_add(1).ok_or(DecodeError::Overflow)?;
    Ok(number)
}
