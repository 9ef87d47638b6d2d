//! What files in staging are called and made with.

use rustix::fs::Mode;

use crate::{hash::digest, path::RelPath};

/// For its owner alone.
pub(super) const OWNERS: Mode = Mode::RUSR.union(Mode::WUSR);

/// What the name of a part's file of arrived blocks ends in.
const BLOCKS: &str = ".blocks";

/// The name of the file that has the arrived blocks of a part.
pub(super) fn blocks_name(part: &str) -> String {
    format!("{part}{BLOCKS}")
}

/// The part whose arrived blocks the file of this name has, if it is one.
pub(super) fn part_of_blocks(name: &str) -> Option<&str> {
    name.strip_suffix(BLOCKS).filter(|part| key_of(part).is_some())
}

/// What the name of a part has behind its key that a run has gone on from.
const TRIED: &str = "again-";

/// The name of a part that a run goes on from.
pub(super) fn tried_name(key: &str, fresh: &str) -> String {
    format!("{key}.{TRIED}{fresh}")
}

/// Whether a run has gone on from the part of this name.
pub(super) fn is_tried(part: &str) -> bool {
    part.split_once('.').is_some_and(|(_, rest)| rest.starts_with(TRIED))
}

/// The key in the name of a part: 32 hexadecimal digits before a dot.
pub(super) fn key_of(name: &str) -> Option<&str> {
    let (key, rest) = name.split_once('.')?;
    let is_key = key.len() == 32 && key.bytes().all(|byte| byte.is_ascii_hexdigit());
    (is_key && !rest.contains('.')).then_some(key)
}

/// Names an entry that is made beside its place, as it would be named in staging.
pub(super) fn beside(name: &str) -> String {
    format!(".volferry-new-{name}")
}

/// What the parts of a path are found by: 32 hexadecimal digits.
pub(super) fn part_key(path: &RelPath) -> String {
    digest(&[path.as_bytes()]).iter().map(|byte| format!("{byte:02x}")).collect()
}
