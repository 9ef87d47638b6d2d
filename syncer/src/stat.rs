//! Times of files in the kernel's answers.

use rustix::fs::Stat;

use crate::entry::Time;

/// Returns when the content of an open file was last modified, or was set to be.
pub(crate) fn modified(stat: &Stat) -> Time {
    Time { seconds: stat.st_mtime, nanos: stat.st_mtime_nsec as u32 }
}

/// Returns when anything of it was last changed; no user can set this.
pub(crate) fn changed(stat: &Stat) -> Time {
    Time { seconds: stat.st_ctime, nanos: stat.st_ctime_nsec as u32 }
}

/// Changes the modification time of a listed file that may not be as a run left it, so that it equals no real file's
/// and the plan compares the content. Applied twice it gives the time back.
pub(crate) fn in_doubt(mtime: Time) -> Time {
    Time { seconds: !mtime.seconds, ..mtime }
}
