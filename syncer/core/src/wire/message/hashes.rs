//! Requests and answers for hashes of whole files.

use super::fields::{put_ascending, read_ascending};
use crate::{
    codec::{DecodeError, Reader, put_bytes, put_varint},
    hash::TransferHash,
    tree::dir::DirId,
};

/// The most files in one request for hashes.
pub const MAX_HASHES: usize = 4096;

/// The longest description of a failure to read a file, in bytes.
const MAX_REASON_BYTES: usize = 4096;

/// Files of one directory in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileGroup {
    /// The directory of the files.
    pub dir: DirId,
    /// Their indexes in the directory's listing, ascending.
    pub indices: Vec<u32>,
}

/// Entries that the source is to remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Release {
    /// The stamp of this run in `.volferry/epoch` of the destination, by which the source knows that folder from its
    /// own.
    pub epoch: [u8; 16],
    /// The entries.
    pub groups: Vec<FileGroup>,
}

/// The result of hashing a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hashed {
    /// The hash of its content.
    Is(TransferHash),
    /// The same, of a file that another process may have been writing to meanwhile.
    IsInMotion(TransferHash),
    /// The file has changed since it was listed.
    Changed,
    /// It could not be read.
    Failed {
        /// The operation that failed.
        operation: String,
        /// The error.
        error: String,
    },
}

pub(super) fn put_group(out: &mut Vec<u8>, group: &FileGroup) {
    put_varint(out, u64::from(group.dir));
    put_varint(out, group.indices.len() as u64);
    put_ascending(out, group.indices.iter().copied());
}

pub(super) fn read_groups(reader: &mut Reader<'_>) -> Result<Vec<FileGroup>, DecodeError> {
    let mut groups = Vec::new();
    let mut left = MAX_HASHES;
    while !reader.is_empty() {
        let dir = reader.varint32()?;
        let count = reader.varint32()? as usize;
        left = left.checked_sub(count.max(1)).ok_or(TOO_MANY_HASHES)?;
        let mut indices = Vec::with_capacity(count);
        let mut next = 0;
        for _ in 0..count {
            indices.push(read_ascending(reader, &mut next)?);
        }
        groups.push(FileGroup { dir, indices });
    }
    Ok(groups)
}

pub(super) fn put_release(out: &mut Vec<u8>, release: &Release) {
    out.extend_from_slice(&release.epoch);
    release.groups.iter().for_each(|group| put_group(out, group));
}

pub(super) fn read_release(reader: &mut Reader<'_>) -> Result<Release, DecodeError> {
    Ok(Release { epoch: reader.array()?, groups: read_groups(reader)? })
}

pub(super) const TOO_MANY_HASHES: DecodeError =
    DecodeError::Invalid("there are more files than may be asked for at once");

pub(super) fn put_hashed(out: &mut Vec<u8>, hashed: &Hashed) {
    match hashed {
        Hashed::Is(hash) | Hashed::IsInMotion(hash) => {
            out.push(if matches!(hashed, Hashed::Is(_)) { 0 } else { 3 });
            out.extend_from_slice(&hash.0);
        }
        Hashed::Changed => out.push(1),
        Hashed::Failed { operation, error } => {
            out.push(2);
            put_bytes(out, clip(operation).as_bytes());
            put_bytes(out, clip(error).as_bytes());
        }
    }
}

fn clip(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_REASON_BYTES)]
}

pub(super) fn read_hashes(reader: &mut Reader<'_>) -> Result<Vec<Hashed>, DecodeError> {
    let mut hashes = Vec::new();
    while !reader.is_empty() {
        if hashes.len() == MAX_HASHES {
            return Err(TOO_MANY_HASHES);
        }
        hashes.push(match reader.byte()? {
            0 => Hashed::Is(TransferHash(reader.array()?)),
            1 => Hashed::Changed,
            2 => Hashed::Failed { operation: read_reason(reader)?, error: read_reason(reader)? },
            3 => Hashed::IsInMotion(TransferHash(reader.array()?)),
            _ => return Err(DecodeError::Invalid("the result of hashing is none of 0 to 3")),
        });
    }
    Ok(hashes)
}

fn read_reason(reader: &mut Reader<'_>) -> Result<String, DecodeError> {
    let bytes = reader.bytes(MAX_REASON_BYTES)?;
    String::from_utf8(bytes.into()).map_err(|_| DecodeError::Invalid("a reason is not UTF-8"))
}
