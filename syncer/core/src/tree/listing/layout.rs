//! The first byte of an entry in a listing: its kind, and the fields that it shares with the entry before.

/// The kind that is never sent.
pub(super) const SOCKET: u8 = 6;
pub(super) const HARD_LINK: u8 = 7;

pub(super) const KIND_BITS: u8 = 0b0000_0111;
pub(super) const SAME_MODE: u8 = 0b0000_1000;
pub(super) const SAME_SECONDS: u8 = 0b0001_0000;
pub(super) const WHOLE_SECONDS: u8 = 0b0010_0000;
/// A hard link takes no room for metadata.
pub(super) const NO_META: u8 = SAME_MODE | SAME_SECONDS | WHOLE_SECONDS;
pub(super) const KNOWN_BITS: u8 = 0b0011_1111;
