//! The check that follows a block of a very large file in its frame.

use super::{
    data::BLOCK,
    frame::{CHECK_BYTES, WireError, end_frame},
    patch::PATCH,
};
use crate::{
    codec::DecodeError,
    delta::checked::{BlockCheck, FileVersion},
};

/// The kind of a [`BLOCK`] that is followed by a check.
pub const CHECKED_BLOCK: u8 = 69;
/// The kind of a [`PATCH`] that is followed by a check.
pub const CHECKED_PATCH: u8 = 70;

/// Adds a check to the finished frame of a block or a patch.
pub fn add_check(frame: &mut Vec<u8>, check: &BlockCheck) {
    frame[0] = if frame[0] == BLOCK { CHECKED_BLOCK } else { CHECKED_PATCH };
    frame.extend_from_slice(&check.version.0);
    frame.extend_from_slice(&check.value);
    end_frame(frame, 0);
}

/// A frame whose check, if its kind has one, stands apart.
#[derive(Debug, PartialEq, Eq)]
pub struct SplitFrame<'a> {
    /// The kind without a check.
    pub kind: u8,
    /// The body without the check.
    pub body: &'a [u8],
    /// The check.
    pub check: Option<BlockCheck>,
}

/// Takes the check from a frame's body, if its kind has one.
///
/// # Errors
/// [`WireError::Malformed`] if the body is too short.
pub fn split_check(kind: u8, body: &[u8]) -> Result<SplitFrame<'_>, WireError> {
    let plain = match kind {
        CHECKED_BLOCK => BLOCK,
        CHECKED_PATCH => PATCH,
        _ => return Ok(SplitFrame { kind, body, check: None }),
    };
    let short = WireError::Malformed { what: "checked block", source: DecodeError::Truncated };
    let (body, check) = body.split_last_chunk::<CHECK_BYTES>().ok_or(short)?;
    let (mut version, mut value) = ([0; 16], [0; 32]);
    version.copy_from_slice(&check[..16]);
    value.copy_from_slice(&check[16..]);
    let check = Some(BlockCheck { version: FileVersion(version), value });
    Ok(SplitFrame { kind: plain, body, check })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{HEADER_BYTES, data::Block, read_header};

    #[test]
    fn a_check_goes_with_its_block_and_one_that_is_cut_is_refused() {
        let len = 100;
        let plain = Block::seal(vec![7; Block::PREFIX_BYTES + len], 1, 0, len as u64, 0);
        let check = BlockCheck { version: FileVersion([1; 16]), value: [2; 32] };
        let mut frame = plain.clone();
        add_check(&mut frame, &check);
        let header = read_header(*frame.first_chunk().unwrap(), 1 << 20).unwrap();
        assert_eq!((header.kind, header.len), (CHECKED_BLOCK, frame.len() - HEADER_BYTES));
        let split = split_check(header.kind, &frame[HEADER_BYTES..]).unwrap();
        assert_eq!(split, SplitFrame { kind: BLOCK, body: &plain[HEADER_BYTES..], check: Some(check) });
        assert!(split_check(CHECKED_PATCH, &[0; CHECK_BYTES - 1]).is_err());
        assert_eq!(
            split_check(BLOCK, &[1, 2]).unwrap(),
            SplitFrame { kind: BLOCK, body: &[1, 2], check: None }
        );
    }
}
