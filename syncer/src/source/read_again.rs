//! Decides how often a file that changes while a run reads it is read again before it is reported as failed.

use std::io;

/// The number of times that a file is read before it counts as changing all the time.
const MAX_ATTEMPTS: u32 = 4;

/// The error for a file that changes all the time.
pub(crate) const CHANGED: &str =
    "the file kept changing while it was read; the destination keeps the version it has";

/// Calls `attempt`, which returns `None` if the file changed meanwhile, until it has read a file that did not.
///
/// # Errors
/// Those of `attempt`; [`CHANGED`] if the file changed each time.
pub(crate) fn until_unchanged<T>(mut attempt: impl FnMut() -> io::Result<Option<T>>) -> io::Result<T> {
    for _ in 0..MAX_ATTEMPTS {
        if let Some(read) = attempt()? {
            return Ok(read);
        }
    }
    Err(io::Error::other(CHANGED))
}

/// Returns whether a file that changed during this attempt, of which the first is 0, is read again.
pub(crate) fn has_another(attempt: u32) -> bool {
    attempt + 1 < MAX_ATTEMPTS
}
