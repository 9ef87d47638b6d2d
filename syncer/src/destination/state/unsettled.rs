//! Tells a run that reads a destination which of its files may not be whole, since a run into it was cut off.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd},
    sync::Arc,
};

use rustix::io::Errno;

use crate::{
    destination::state::{
        dirty_mark::DirtyMark,
        motion_notes::MotionNotes,
        state_names::{JOURNAL, open_inside},
    },
    sys::{files_in_doubt::Doubt, root::each_name},
};

/// Returns which files are in doubt, by the `.volferry/` that is open as `own`; `None` if none are.
pub(crate) fn doubt_in(own: BorrowedFd<'_>) -> io::Result<Option<Doubt>> {
    let since = DirtyMark::inspect(own, 0)?.since();
    let noted = Arc::clone(MotionNotes::inspect(own, 0)?.found());
    Ok((since.is_some() || !noted.is_empty()).then_some(Doubt { since, noted }))
}

/// Returns whether a run that writes in place was cut off in the middle of a file. Any run into the destination
/// completes it.
pub(crate) fn is_half_written(own: BorrowedFd<'_>) -> io::Result<bool> {
    let journal = match open_inside(own, JOURNAL) {
        Err(error) if error.raw_os_error() == Some(Errno::NOENT.raw_os_error()) => return Ok(false),
        opened => opened?,
    };
    let mut is_pending = false;
    each_name(journal.as_fd(), |_| {
        is_pending = true;
        Ok(())
    })?;
    Ok(is_pending)
}
