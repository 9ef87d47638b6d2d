//! Finds out which entry a name leads to where a file system takes several names for the same.

use std::{io, os::fd::BorrowedFd};

use rustix::fs::{Dir, OFlags};

use super::root::open_child;

/// The entry that a name leads to, as its folder lists it.
#[derive(Debug, PartialEq)]
pub(crate) enum Holder {
    /// It has this very name.
    Itself,
    /// It may be one whose name differs in case.
    Other,
    /// There is none: the kernel takes names from a cache, which can be older than a delete.
    Nobody,
}

/// Finds the entry that a name leads to.
pub(crate) fn holder(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Holder> {
    let mut holder = Holder::Nobody;
    for entry in Dir::new(open_child(dir, b".", OFlags::RDONLY)?)? {
        let entry = entry?;
        let listed = entry.file_name().to_bytes();
        if listed == name {
            return Ok(Holder::Itself);
        }
        let is_entry = ![&b"."[..], b".."].contains(&listed);
        if is_entry && (listed.eq_ignore_ascii_case(name) || is_unclear(name) || is_unclear(listed)) {
            holder = Holder::Other;
        }
    }
    Ok(holder)
}

/// Returns whether it depends on the file system what other names lead to the same entry: it folds other letters, too,
/// has short forms of names, or cuts dots and spaces off their ends.
pub(crate) fn is_unclear(name: &[u8]) -> bool {
    name.contains(&b'~') || !name.is_ascii() || name.ends_with(b".") || name.ends_with(b" ")
}
