//! Proves that no file of a directory has changed since it was last looked at: the stamps of all files in it and below,
//! as one word.

use crate::{
    codec::{DecodeError, Reader},
    hash::digest,
};

/// In place of a stamp, of a file that another process may have been writing to while it was read.
pub const IN_MOTION: u64 = u64::MAX;

/// The stamps of the files of a directory and of all below it, hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stamps([u8; 16]);

impl Stamps {
    /// Makes the word for files of which at least one has no stamp.
    pub fn unknown() -> Self {
        Self([0; 16])
    }

    /// Combines the stamps of a directory's files, one for each file that has content, and the words of its
    /// subdirectories.
    pub fn of(stamps: impl Iterator<Item = u64>, below: impl Iterator<Item = Self>) -> Self {
        let mut bytes = Vec::new();
        for stamp in stamps {
            if stamp == 0 || stamp == IN_MOTION {
                return Self::unknown();
            }
            bytes.extend_from_slice(&stamp.to_le_bytes());
        }
        bytes.extend_from_slice(b"below");
        for seen in below {
            if seen == Self::unknown() {
                return seen;
            }
            bytes.extend_from_slice(&seen.0);
        }
        Self(digest(&[&bytes]))
    }

    /// Returns whether at least one file has no stamp.
    pub fn is_unknown(self) -> bool {
        self == Self::unknown()
    }

    /// Returns whether nothing has changed between the two: every file of both has a stamp, and all are equal.
    pub fn proves_same(self, other: Self) -> bool {
        self == other && self != Self::unknown()
    }

    /// Appends it to an encoding.
    pub fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    /// Decodes an encoding of [`Self::put`].
    ///
    /// # Errors
    /// If the encoding ends before.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self(reader.array()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_file_without_a_stamp_makes_all_unknown() {
        let of = |stamps: &[u64], below: &[Stamps]| Stamps::of(stamps.iter().copied(), below.iter().copied());
        let (one, other) = (of(&[1, 2], &[]), of(&[1, 3], &[]));
        assert!(one.proves_same(of(&[1, 2], &[])) && !one.proves_same(other));
        assert!(of(&[1, 0], &[]).is_unknown() && of(&[1, IN_MOTION], &[]).is_unknown());
        assert_eq!(of(&[1], &[one, Stamps::unknown()]), Stamps::unknown());
        assert!(!Stamps::unknown().proves_same(Stamps::unknown()));
        assert!(
            of(&[1], &[one]).proves_same(of(&[1], &[one]))
                && !of(&[1], &[one]).proves_same(of(&[1], &[other]))
        );
        assert_ne!(of(&[], &[]), Stamps::unknown());
    }
}
