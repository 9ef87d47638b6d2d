//! Finds out which entry a name leads to where a file system takes several names for the same.

use std::{io, os::fd::BorrowedFd};

use rustix::fs::{AtFlags, Dir, Mode, OFlags};

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
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    for entry in Dir::new(rustix::fs::openat(dir, ".", flags, Mode::empty())?)? {
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

/// Returns whether the folder lists an entry by this very name, which leads to one: where names are folded, other
/// spellings do, too.
pub(crate) fn is_listed(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<bool> {
    Ok(!has_spellings(dir, &[name]) || holder(dir, name)? == Holder::Itself)
}

/// Returns whether one of the names may be another spelling of what the folder lists. False is certain.
pub(crate) fn has_spellings(dir: BorrowedFd<'_>, names: &[&[u8]]) -> bool {
    let is_there = |name: &[u8]| rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
    let has_letters = |name: &&[u8]| name.iter().any(u8::is_ascii_alphabetic);
    // One name that is there shows whether case is folded.
    let there = || names.iter().copied().filter(has_letters).find(|name| is_there(name));
    let is_folded = |name: &[u8]| {
        let cases = [name.to_ascii_uppercase(), name.to_ascii_lowercase()];
        cases.iter().any(|other| other != name && is_there(other))
    };
    names.iter().any(|name| is_unclear(name)) || there().is_some_and(is_folded)
}

/// Returns whether it depends on the file system what other names lead to the same entry: it folds other letters, too,
/// has short forms of names, or cuts dots and spaces off their ends.
pub(crate) fn is_unclear(name: &[u8]) -> bool {
    name.contains(&b'~') || !name.is_ascii() || name.ends_with(b".") || name.ends_with(b" ")
}
