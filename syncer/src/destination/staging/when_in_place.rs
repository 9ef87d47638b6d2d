//! Decides which files a run that writes in place does write so. Pure.

use rustix::fs::{FileType, Stat};

/// The length from which it does, in bytes. Replacing shorter files is quicker than two syncs to the disk.
const MIN_IN_PLACE_BYTES: u64 = 1 << 20;

/// Returns whether a file of these lengths, in bytes, is written in place of its old version: both have to be long.
pub(crate) fn is_long_enough(old: u64, new: u64) -> bool {
    old.min(new) >= MIN_IN_PLACE_BYTES
}

/// Returns whether a file of the destination may be written in place: it is a regular one, and has no other names,
/// which would change with it.
pub(crate) fn has_one_name(old: &Stat) -> bool {
    FileType::from_raw_mode(old.st_mode).is_file() && old.st_nlink == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_in_place_if_its_old_and_its_new_version_are_long() {
        let mib = MIN_IN_PLACE_BYTES;
        assert!(is_long_enough(mib, mib));
        assert!(!is_long_enough(mib - 1, mib) && !is_long_enough(mib, mib - 1));
    }
}
