//! Times of files, as the kernel tells them.

use rustix::fs::Stat;

use crate::entry::Time;

/// When the content of an open file was last modified, or is said to have been.
pub fn modified(stat: &Stat) -> Time {
    Time { seconds: stat.st_mtime, nanos: stat.st_mtime_nsec as u32 }
}

/// When anything of it was last changed, which nobody can set.
pub fn changed(stat: &Stat) -> Time {
    Time { seconds: stat.st_ctime, nanos: stat.st_ctime_nsec as u32 }
}
