//! What files in staging are called and made with.

use rustix::fs::Mode;

use crate::{hash::digest, path::RelPath};

/// For its owner alone.
pub(super) const OWNERS: Mode = Mode::RUSR.union(Mode::WUSR);

/// What the parts of a path are found by: 32 hexadecimal digits.
pub(super) fn part_key(path: &RelPath) -> String {
    digest(&[path.as_bytes()]).iter().map(|byte| format!("{byte:02x}")).collect()
}
