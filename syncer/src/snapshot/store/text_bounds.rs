//! Bounds of the texts in the list of snapshots, and how they are read.

use contract::MAX_TAG_BYTES;

use crate::codec::{DecodeError, Reader};

/// The most tags of one snapshot, or of one job's rules.
pub(super) const MAX_TAGS: usize = 64;

/// The longest note, in bytes.
pub(super) const MAX_NOTE_BYTES: usize = 4096;

/// The longest name of a run, a SyncJob, a user or a time zone, in bytes.
pub(super) const MAX_NAME_BYTES: usize = 512;

/// Reads a text of at most `max` bytes.
pub(super) fn read_text(reader: &mut Reader<'_>, max: usize) -> Result<String, DecodeError> {
    let bytes = reader.bytes(max)?;
    String::from_utf8(bytes.into()).map_err(|_| DecodeError::Invalid("a text is not UTF-8"))
}

/// Reads tags, or other texts that are as short.
pub(super) fn read_tags<C: FromIterator<String>>(reader: &mut Reader<'_>) -> Result<C, DecodeError> {
    let count = reader.length()?;
    if count > MAX_TAGS {
        return Err(DecodeError::Invalid("it has more tags than may be"));
    }
    (0..count).map(|_| read_text(reader, MAX_TAG_BYTES)).collect()
}
