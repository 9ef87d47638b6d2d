//! Decides whether a file of a store is believed: not if other users could have written it.

use rustix::fs::Stat;

/// The permission bits that let other users write.
const OTHERS_WRITE: u32 = 0o022;

/// Returns whether a user other than `user` and root can write to the file, or has made it.
pub(crate) fn is_exposed(file: &Stat, user: u32) -> bool {
    ![0, user].contains(&file.st_uid) || file.st_mode & OTHERS_WRITE != 0
}
