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

/// Returns the key by which partial files of a path are found: 32 hexadecimal digits.
pub(crate) fn part_key(path: &RelPath) -> String {
    digest(&[path.as_bytes()]).iter().map(|byte| format!("{byte:02x}")).collect()
}
