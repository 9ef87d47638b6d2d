//! Records that a restore leaves on the volume before it changes anything: a snapshot of the previous state, and a line
//! in the audit log.

use std::path::Path;

use contract::SnapshotEngine;

use crate::{
    destination::Destination,
    failures::Failures,
    filter::Filter,
    monitor::Monitor,
    snapshot::{
        create::{KnownFromRun, WantedSnapshot, create_in},
        retention::MAX_SAFETY,
        store::{Labels, Purpose, Roots, Snapshot, SnapshotError, SnapshotId, Writer, audit_log::COLLECT},
    },
};

/// A restore that is about to begin.
#[derive(Debug, Clone)]
pub struct Before {
    /// The snapshot that is restored.
    pub restored: SnapshotId,
    /// Whether the snapshot is one of the volume that is changed, whose log then gets a line.
    pub in_place: bool,
    /// The tag of the snapshot that keeps the state before; `None` if none is wanted.
    pub tag: Option<String>,
    /// Whether to take no snapshot if one with this tag exists, because an earlier try of the same run took it.
    pub once: bool,
    /// The run that the snapshot is labelled with.
    pub run: String,
    /// The user or run that the log names.
    pub by: String,
}

impl Before {
    /// Returns the records of a restore into another folder that keeps no state.
    pub fn nothing_of(restored: SnapshotId) -> Self {
        let (run, by) = (String::new(), String::new());
        Self { restored, in_place: false, tag: None, once: false, run, by }
    }

    /// Writes the restore to the volume's log, and takes a snapshot of its current state, so that the restore can be
    /// undone. Returns notes for the report.
    pub(crate) fn record(
        &self,
        destination: &Destination,
        path: &Path,
        monitor: &Monitor,
    ) -> Result<Option<String>, SnapshotError> {
        if !self.in_place && self.tag.is_none() {
            return Ok(None);
        }
        let mut writer = Writer::open(destination.state(), destination.root(), path, monitor)?;
        let has_tag = |snapshot: &Snapshot| self.tag.as_ref().is_some_and(|tag| snapshot.tags.contains(tag));
        let note = match &self.tag {
            Some(tag) if !(self.once && writer.roots.kept().any(has_tag)) => {
                Some(self.create_snapshot(&mut writer, destination, tag, monitor)?)
            }
            _ => None,
        };
        if self.in_place {
            writer.log("restore", &self.by, &[self.restored])?;
        }
        Ok(note)
    }

    /// Takes the snapshot, in place of the oldest one from before a restore if there are as many as a volume keeps.
    fn create_snapshot(
        &self,
        writer: &mut Writer<'_>,
        destination: &Destination,
        tag: &str,
        monitor: &Monitor,
    ) -> Result<String, SnapshotError> {
        let labels = self.labels(tag);
        labels.check()?;
        let surplus = surplus(&writer.roots, self.restored);
        if !surplus.is_empty() {
            writer.log(COLLECT, &self.by, &surplus)?;
            writer.roots.collections += 1;
            // The new list is published with the snapshot. The restore reads from the store, so the room of the others
            // is left to the next collection.
            writer.roots.snapshots.retain(|snapshot| !surplus.contains(&snapshot.id));
        }
        let wanted = WantedSnapshot { labels, engine: SnapshotEngine::Auto, filter: Filter::default() };
        let (failures, known) = (Failures::default(), KnownFromRun::default());
        let kept = create_in(writer, destination.root(), wanted, &failures, known, monitor)?;
        let lacks = match kept.failed {
            0 => String::new(),
            count => format!(", without {count} entries that could not be read"),
        };
        Ok(format!("the state before is kept in snapshot {}{lacks}", kept.id))
    }

    fn labels(&self, tag: &str) -> Labels {
        Labels {
            tags: [tag.into()].into(),
            note: format!("the state before {} was restored", self.restored),
            purpose: Purpose::Safety,
            run: self.run.clone(),
            user: self.by.clone(),
            ..Labels::default()
        }
    }
}

/// Returns the snapshots from before restores of this volume that are too many once another one is taken. The one that
/// is being restored stays, and so do pinned ones, and copies from another volume.
fn surplus(roots: &Roots, restored: SnapshotId) -> Vec<SnapshotId> {
    let is_judged = |it: &&Snapshot| it.purpose == Purpose::Safety && it.origin.is_none() && !it.pinned;
    let judged = roots.kept().filter(is_judged);
    let oldest_first: Vec<SnapshotId> = judged.map(|snapshot| snapshot.id).collect();
    let count = (oldest_first.len() + 1).saturating_sub(MAX_SAFETY as usize);
    oldest_first.into_iter().take(count).filter(|id| *id != restored).collect()
}
