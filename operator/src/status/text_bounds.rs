//! How much text from a pod gets into a status.

/// The longest message, in bytes.
pub(super) const MAX_MESSAGE_BYTES: usize = 4096;
/// The most notes.
pub(super) const MAX_NOTES: usize = 20;
/// The longest note, in bytes.
pub(super) const MAX_NOTE_BYTES: usize = 1024;
