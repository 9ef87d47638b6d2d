//! Finds out beforehand whether other runs leave the ends of a run free, for programs that hold an application still as
//! long as a run goes on.

use contract::Side;

use crate::{
    destination::ApplyError,
    ends::source_lock::SourceLock,
    session_error::SessionError,
    sys::{
        block_device::PathKind,
        root::{Root, TreeLocation},
    },
};

/// Checks that no other run writes to the end of a run at `place`. Makes and writes nothing, and holds nothing when it
/// returns. An end that cannot be opened, or is a device, counts as free: the run itself says what is wrong with it.
///
/// # Errors
/// [`SessionError::SourceBusy`] or [`ApplyError::Busy`].
pub fn check_free(place: &TreeLocation, side: Side) -> Result<(), SessionError> {
    let folder = if PathKind::at(place, false) == PathKind::File { place.folder() } else { place.clone() };
    let Ok(root) = Root::enter(&folder) else { return Ok(()) };
    match (SourceLock::hold(&root, place), side) {
        (Ok(lock), Side::Sink) if lock.is_shared() => Err(ApplyError::Busy { path: place.path() }.into()),
        (Err(SessionError::SourceBusy { path }), Side::Sink) => Err(ApplyError::Busy { path }.into()),
        (held, _) => held.map(drop),
    }
}
