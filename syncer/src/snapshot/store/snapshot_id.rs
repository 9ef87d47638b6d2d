//! The name of a snapshot.

use std::{fmt, io, str::FromStr};

use crate::sys::random::fill_random;

/// The digits of a whole id.
const DIGITS: usize = 16;

/// The name of a snapshot: 64 random bits, written as 16 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SnapshotId(pub u64);

impl SnapshotId {
    /// Makes a new random id.
    ///
    /// # Errors
    /// If the system has no random bytes.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; 8];
        fill_random(&mut bytes)?;
        Ok(Self(u64::from_be_bytes(bytes)))
    }

    /// Returns whether the id begins with these digits.
    pub fn begins_with(self, digits: &str) -> bool {
        !digits.is_empty() && self.to_string().starts_with(&digits.to_ascii_lowercase())
    }
}

impl fmt::Display for SnapshotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Reports text that is not an id.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("an id has 16 hexadecimal digits")]
pub struct NotAnId;

impl FromStr for SnapshotId {
    type Err = NotAnId;

    fn from_str(text: &str) -> Result<Self, NotAnId> {
        let digits = text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let value = digits.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        value.map(Self).ok_or(NotAnId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_what_it_is_written_as() {
        let id = SnapshotId(0x0123_4567_89ab_cdef);
        assert_eq!(id.to_string(), "0123456789abcdef");
        assert_eq!("0123456789abcdef".parse(), Ok(id));
        assert!(id.begins_with("0123") && id.begins_with("0123456789ABCDEF") && !id.begins_with(""));
        for text in ["", "0123", "+123456789abcdef", "0123456789abcdeg", "0123456789abcdef0"] {
            assert_eq!(text.parse::<SnapshotId>(), Err(NotAnId), "{text}");
        }
        assert_ne!(SnapshotId::random().unwrap(), SnapshotId::random().unwrap());
    }
}
