//! Decides which files of a source are in doubt, because it is a destination that a run has left unsettled.

use std::sync::Arc;

use rustix::fs::Stat;

use crate::{
    entry::Time,
    path::RelPath,
    sys::stat::{changed, modified},
    tree::noted_in_motion::NotedFiles,
};

/// The files of a source that may not have the content that their lengths and times stand for: it is a destination, and
/// a run into it was cut off, or has read them in motion. They count as in motion until a run has settled that.
#[derive(Debug)]
pub(crate) struct Doubt {
    /// The change time from which on files are in doubt.
    pub since: Option<Time>,
    /// The files that a run has read in motion.
    pub noted: Arc<NotedFiles>,
}

impl Doubt {
    /// Returns whether the file `name` of the directory at `dir` is in doubt. `stat` is its state.
    pub(crate) fn covers(&self, dir: &RelPath, name: &[u8], stat: &Stat) -> bool {
        self.since.is_some_and(|since| changed(stat) >= since) || self.noted.holds(dir, name, modified(stat))
    }
}
