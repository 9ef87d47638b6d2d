//! Names directories that are made beside their places instead of in staging, notes in staging where they are, and
//! removes those that a run left.

use std::{io, os::fd::BorrowedFd};

use rustix::fs::AtFlags;

use super::state_names::{empty, open_inside};
use crate::{path::RelPath, sys::root::Root};

/// Returns the name of an entry that is made beside its place, for a `name` that it would have in staging.
pub(crate) fn beside(name: &str) -> String {
    format!(".volferry-new-{name}")
}

/// The prefix of the names of notes on directories that are made beside their places.
const NOTE: &str = "at-";

/// Returns the name of the note on the directory that is made beside its place for a `name` in staging.
pub(crate) fn note_name(name: &str) -> String {
    format!("{NOTE}{name}")
}

/// Returns the name in staging of the directory that a note of this name is on; `None` if it is no note.
pub(crate) fn name_noted(note: &str) -> Option<&str> {
    note.strip_prefix(NOTE)
}

/// The first bytes of a note's target: the target of a link is not empty.
const AT_ROOT: &[u8] = b"./";

/// Returns the target of the link that is a note on a directory in `parent`.
pub(crate) fn note_target(parent: &RelPath) -> Vec<u8> {
    [AT_ROOT, parent.as_bytes()].concat()
}

/// Returns the parent that is the target of a note.
pub(crate) fn parent_noted(target: &[u8]) -> Option<RelPath> {
    match target.strip_prefix(AT_ROOT)? {
        b"" => Some(RelPath::root()),
        path => RelPath::parse(path).ok(),
    }
}

/// Removes a directory that was made beside its place, with all its content, and returns the number of entries that it
/// had: directories in it are emptied as those in staging are.
pub(crate) fn remove_beside(parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<u64> {
    let dir = open_inside(parent, name)?;
    let removed = empty(&dir, |_| true)?;
    rustix::fs::unlinkat(parent, name, AtFlags::REMOVEDIR)?;
    Ok(removed)
}

/// Removes the directory that the note of this name in staging is on, if it is empty. Its name has random bytes of a
/// run, so it cannot be a user's. Does nothing if there is no such note.
pub(crate) fn remove_noted(root: &Root, staging: BorrowedFd<'_>, note: &str) {
    let Some(name) = name_noted(note) else { return };
    let Ok(target) = rustix::fs::readlinkat(staging, note, Vec::new()) else { return };
    if let Some(parent) = parent_noted(target.to_bytes()).and_then(|parent| root.dir(&parent).ok()) {
        let _ = rustix::fs::unlinkat(parent, beside(name), AtFlags::REMOVEDIR);
    }
}
