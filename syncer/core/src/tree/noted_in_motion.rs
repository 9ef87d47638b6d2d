//! The files of a destination that were in motion when they were read: another process may have been writing to them.

use std::collections::HashSet;

use crate::tree::{entry::Time, path::RelPath};

/// The files whose content the next run compares.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct NotedFiles {
    paths: HashSet<RelPath>,
    /// The last names of the paths, so that a scan builds the paths of few entries.
    names: HashSet<Box<[u8]>>,
    /// Also every file with this modification time or a later one: there were too many to name.
    since: Option<Time>,
}

impl NotedFiles {
    /// Adds the file at `path`.
    pub fn add(&mut self, path: RelPath) {
        if let Some((_, name)) = path.split_last() {
            self.names.insert(name.into());
            self.paths.insert(path);
        }
    }

    /// Adds every file that was modified at this time or later.
    pub fn add_since(&mut self, time: Time) {
        self.since = Some(self.since.map_or(time, |since| since.min(time)));
    }

    /// Returns whether it holds the file `name` of the directory `dir`, which was modified at `mtime`.
    pub fn holds(&self, dir: &RelPath, name: &[u8], mtime: Time) -> bool {
        self.since.is_some_and(|since| mtime >= since) || self.names_file(dir, name)
    }

    /// Returns whether it names this file.
    pub fn names_file(&self, dir: &RelPath, name: &[u8]) -> bool {
        self.names.contains(name) && dir.join(name).is_ok_and(|path| self.paths.contains(&path))
    }

    /// Returns whether it holds no file.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty() && self.since.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_held_by_its_path_or_by_its_time() {
        let path = |text: &str| RelPath::parse(text.as_bytes()).unwrap();
        let time = |seconds| Time { seconds, nanos: 0 };
        let mut noted = NotedFiles::default();
        assert!(noted.is_empty());
        noted.add(path("a/b"));
        assert!(noted.holds(&path("a"), b"b", time(1)) && !noted.is_empty());
        assert!(!noted.holds(&RelPath::root(), b"b", time(1)) && !noted.holds(&path("a"), b"c", time(1)));
        noted.add_since(time(7));
        noted.add_since(time(9));
        assert!(noted.holds(&path("a"), b"c", time(7)) && !noted.holds(&path("a"), b"c", time(6)));
        assert!(!noted.names_file(&path("a"), b"c"));
    }
}
