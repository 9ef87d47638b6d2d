//! Records that a restore in place leaves on the volume: a snapshot of the previous state, and a line in the audit log.

use std::os::unix::ffi::OsStrExt as _;

use contract::SnapshotEngine;

use super::{
    create::{create_in, take},
    id::SnapshotId,
    labels::Labels,
    roots::Snapshot,
    snapshot_error::SnapshotError,
    store_writer::Writer,
    written::KnownFromRun,
};
use crate::{monitor::Monitor, path::OWN_DIR, report::Failures, root::TreeLocation};

/// A restore that is about to begin.
#[derive(Debug)]
pub struct Before<'a> {
    /// The volume that is restored.
    pub place: &'a TreeLocation,
    /// The snapshot that it is brought back to.
    pub restored: SnapshotId,
    /// The tag of the snapshot that keeps the state before.
    pub tag: &'a str,
    /// Whether to take no snapshot if one with this tag exists, because an earlier try of the same run took it.
    pub once: bool,
    /// The run that the snapshot is labelled with.
    pub run: &'a str,
    /// The user or run that the log names.
    pub by: &'a str,
}

impl Before<'_> {
    /// Takes a pinned snapshot of the volume's current state, so that the restore can be undone. Unreadable entries go
    /// to `failures`. Returns `None` if the volume has no files, or an earlier try has taken the snapshot.
    ///
    /// # Errors
    /// If the volume cannot be scanned or written to.
    pub fn keep(&self, failures: &Failures, monitor: &Monitor) -> Result<Option<Snapshot>, SnapshotError> {
        let path = self.place.path();
        if !has_files(&path) {
            return Ok(None);
        }
        let labels = self.labels();
        labels.check()?;
        let destination = take(self.place)?;
        let root = destination.root();
        let mut writer = Writer::open(destination.state(), root, &path, monitor)?;
        if self.once && writer.roots.kept().any(|snapshot| snapshot.tags.contains(self.tag)) {
            return Ok(None);
        }
        let kept = create_in(
            &mut writer,
            root,
            labels,
            SnapshotEngine::Auto,
            failures,
            KnownFromRun::default(),
            monitor,
        )?;
        drop(writer);
        destination.close();
        Ok(Some(kept))
    }

    fn labels(&self) -> Labels {
        Labels {
            tags: [self.tag.into()].into(),
            note: format!("the state before {} was restored", self.restored),
            run: self.run.into(),
            user: self.by.into(),
            pinned: true,
            ..Labels::default()
        }
    }

    /// Writes the restore to the volume's audit log.
    ///
    /// # Errors
    /// If the volume cannot be written to.
    pub fn log(&self) -> Result<(), SnapshotError> {
        let destination = take(self.place)?;
        let path = self.place.path();
        let writer = Writer::open(destination.state(), destination.root(), &path, &Monitor::default())?;
        writer.log("restore", self.by, &[self.restored])
    }
}

fn has_files(dir: &std::path::Path) -> bool {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| entry.file_name().as_bytes() != OWN_DIR)
}
