//! The names and modes of files in staging.

use rustix::fs::Mode;

use crate::{hash::digest, path::RelPath};

/// The mode that lets only the owner read and write.
pub(crate) const OWNERS: Mode = Mode::RUSR.union(Mode::WUSR);

/// The suffix of the file that records the arrived blocks of a partial file.
const BLOCKS: &str = ".blocks";

/// Returns the name of the file that records the arrived blocks of the partial file `part`.
pub(crate) fn blocks_name(part: &str) -> String {
    format!("{part}{BLOCKS}")
}

/// Returns the partial file that a file of this name records the blocks of; `None` if it is not such a file.
pub(crate) fn part_of_blocks(name: &str) -> Option<&str> {
    name.strip_suffix(BLOCKS).filter(|part| key_of(part).is_some())
}

/// The mark in the name of a partial file that another run has continued with.
const TRIED: &str = "again-";

/// Returns the name of a partial file that a run continues with.
pub(crate) fn tried_name(key: &str, fresh: &str) -> String {
    format!("{key}.{TRIED}{fresh}")
}

/// Returns whether a run has continued with the partial file of this name.
pub(crate) fn is_tried(part: &str) -> bool {
    part.split_once('.').is_some_and(|(_, rest)| rest.starts_with(TRIED))
}

/// Returns the key in the name of a partial file: 32 hexadecimal digits before a dot.
pub(crate) fn key_of(name: &str) -> Option<&str> {
    let (key, rest) = name.split_once('.')?;
    let is_key = key.len() == 32 && key.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_key && !rest.contains('.')).then_some(key)
}

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

/// Returns the key by which partial files of a path are found: 32 hexadecimal digits.
pub(crate) fn part_key(path: &RelPath) -> String {
    digest(&[path.as_bytes()]).iter().map(|byte| format!("{byte:02x}")).collect()
}
