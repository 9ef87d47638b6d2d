//! Copies snapshots from another store, each with its id, times, labels and origin.
//!
//! A snapshot is published as one of this volume is: its objects arrive in `new/ID/`, are checked, and one rename of
//! the list makes it visible. A snapshot that both stores have is fetched again if this store has damage in it.

use std::collections::BTreeSet;

use contract::{CopySelection, HistoryReport, VolumeId, chain};

use super::{
    copy_source::{HistorySource, OfferedHistory},
    fetch_tree::{FetchedBytes, TreeFetch},
    tree_counts::{TreeCounts, TreeTotals},
};
use crate::{
    monitor::Monitor,
    snapshot::{
        browse::select_snapshot,
        store::{
            AuditLine, Engine, FolderRef, KnownDamage, Packing, Purpose, Roots, Snapshot, SnapshotError,
            SnapshotId, Writer, check_tags, free_bytes, io_error,
        },
    },
};

/// What a copy did.
#[derive(Debug, Default)]
pub struct CopiedHistory {
    /// The snapshots that this store did not have, or had forgotten and brings back, as it has them now.
    pub copied: Vec<Snapshot>,
    /// The snapshots that this store had.
    pub present: Vec<SnapshotId>,
    /// Those of them in which damaged objects were replaced.
    pub healed: Vec<SnapshotId>,
    /// The snapshots that were forgotten here, and stay away.
    pub forgotten: Vec<SnapshotId>,
    /// The snapshots that cannot be copied, with the reasons.
    pub failed: Vec<(SnapshotId, String)>,
    /// The number of copies of earlier runs that were dropped, because the rules do not keep them any more.
    pub dropped: u64,
    /// Bytes of contents that have crossed.
    pub bytes: u64,
}

impl CopiedHistory {
    /// Returns the counts, for a report.
    pub fn report(&self) -> HistoryReport {
        let mut report = HistoryReport {
            copied: self.copied.len() as u64,
            present: self.present.len() as u64,
            healed: self.healed.len() as u64,
            forgotten: self.forgotten.len() as u64,
            failed: self.failed.len() as u64,
            dropped: self.dropped,
            bytes: self.bytes,
            ..HistoryReport::default()
        };
        if let Some((id, error)) = self.failed.first() {
            report.name_first_failed(&id.to_string(), error);
        }
        report
    }
}

/// Copies snapshots into the store of `writer`. `by` is the user that its log names.
///
/// # Errors
/// If the other store does not answer, or this one cannot be written to. What was copied before stays.
pub fn copy_history(
    writer: &mut Writer<'_>,
    source: &mut dyn HistorySource,
    selection: &CopySelection,
    by: &str,
    monitor: &Monitor,
) -> Result<CopiedHistory, SnapshotError> {
    let offer = source.offer()?;
    let selected = selected(&offer, selection)?;
    let away = staying_away(writer, selection)?;
    copy_selected(writer, source, &offer, &selected, &away, by, monitor)
}

/// Returns the snapshots that a copy of this selection does not bring back: those that were forgotten here or collected
/// since they came, unless they are named.
///
/// # Errors
/// If the log cannot be read, or is damaged.
pub fn staying_away(
    writer: &Writer<'_>,
    selection: &CopySelection,
) -> Result<BTreeSet<SnapshotId>, SnapshotError> {
    if matches!(selection, CopySelection::Named(_)) {
        return Ok(BTreeSet::new());
    }
    let log = writer.store.audit(&writer.roots)?;
    if let Some(line) = log.broken {
        return Err(SnapshotError::DamagedLog(line));
    }
    let mut away = log.gone();
    for own in &writer.roots.snapshots {
        // The log may have a line for a change of the list that did not happen.
        if own.forgotten.is_some() {
            away.insert(own.id);
        } else {
            away.remove(&own.id);
        }
    }
    Ok(away)
}

/// Copies these snapshots of an offer, but for those that stay `away`. Brings back others that were forgotten here.
///
/// # Errors
/// As [`copy_history`].
pub fn copy_selected(
    writer: &mut Writer<'_>,
    source: &mut dyn HistorySource,
    offer: &OfferedHistory,
    selected: &[&Snapshot],
    away: &BTreeSet<SnapshotId>,
    by: &str,
    monitor: &Monitor,
) -> Result<CopiedHistory, SnapshotError> {
    let damage = KnownDamage::read(&writer.store)?;
    let counts = TreeCounts::new(&damage);
    let mut copy = HistoryCopy { writer, source, offer, counts, by, monitor, bytes: 0 };
    let mut done = CopiedHistory::default();
    for offered in selected.iter().copied() {
        let id = offered.id;
        let fetched = match copy.writer.roots.get(id).cloned() {
            Some(own) if own.tree.id != offered.tree.id => {
                Err(SnapshotError::Elsewhere("another snapshot has this id here".into()))
            }
            Some(own) => copy.renew(&own, offered, &damage, away, &mut done),
            None if away.contains(&id) => {
                done.forgotten.push(id);
                Ok(())
            }
            None => copy.publish(offered).map(|copied| done.copied.push(copied)),
        };
        match fetched {
            Err(error) if error.is_of_an_object() => done.failed.push((id, chain(&error))),
            fetched => fetched?,
        }
    }
    done.bytes = copy.bytes;
    Ok(done)
}

/// Returns the selected snapshots of an offer, in the order of its list.
///
/// # Errors
/// If a named one is not there.
pub fn selected<'o>(
    offer: &'o OfferedHistory,
    selection: &CopySelection,
) -> Result<Vec<&'o Snapshot>, SnapshotError> {
    let roots = Roots { snapshots: offer.snapshots.clone(), ..Roots::default() };
    let find = |text: &String| select_snapshot(&roots, text).map(|snapshot| snapshot.id);
    let all = || offer.snapshots.iter().filter(|it| it.forgotten.is_none() && it.purpose != Purpose::Safety);
    Ok(match selection {
        CopySelection::All => all().collect(),
        CopySelection::Since(text) => {
            let since = find(text)?;
            let after = offer.snapshots.iter().skip_while(|it| it.id != since).skip(1);
            let after: BTreeSet<SnapshotId> = after.map(|it| it.id).collect();
            all().filter(|it| after.contains(&it.id)).collect()
        }
        CopySelection::Named(texts) => {
            let ids = texts.iter().map(find).collect::<Result<BTreeSet<_>, _>>()?;
            offer.snapshots.iter().filter(|it| ids.contains(&it.id)).collect()
        }
    })
}

/// The most entries of a tree that is copied, as many as ext4 has inodes. A few directories that name each next one
/// twice claim any number, and who walks such a tree never ends.
const MAX_ENTRIES: u64 = 1 << 32;

/// A copy that is going on.
struct HistoryCopy<'a, 'w, 'c> {
    writer: &'a mut Writer<'w>,
    source: &'a mut dyn HistorySource,
    offer: &'a OfferedHistory,
    counts: TreeCounts<'c>,
    by: &'a str,
    monitor: &'a Monitor,
    bytes: u64,
}

/// A tree whose objects are in the store and not visible yet.
struct FetchedTree {
    tree: FolderRef,
    totals: TreeTotals,
    added_bytes: u64,
    /// Bytes of contents that have crossed.
    crossed: u64,
    has_objects: bool,
}

impl HistoryCopy<'_, '_, '_> {
    /// Publishes a snapshot that this store does not have.
    fn publish(&mut self, offered: &Snapshot) -> Result<Snapshot, SnapshotError> {
        check_tags(&offered.tags)?;
        let id = offered.id;
        // A pack of this name has what other snapshots still need of one that was collected.
        let is_own = !self.writer.has_pack(id);
        let pack = if is_own { id } else { self.random()? };
        let old = self.old_tree(id);
        let made = |fetched: &FetchedTree, origin| Snapshot {
            tree: fetched.tree,
            entries: fetched.totals.entries,
            bytes: fetched.totals.bytes,
            added_bytes: fetched.added_bytes,
            engine: Engine::Copy,
            forgotten: None,
            origin,
            ..offered.clone()
        };
        let origin = self.origin_of(offered);
        let record = |fetched: &FetchedTree| is_own.then(|| made(fetched, origin).record());
        let fetched = self.fetch(offered, old, pack, record).inspect_err(|_| self.writer.drop_new(pack))?;
        let snapshot = made(&fetched, origin);
        let mut roots = self.writer.roots.clone();
        roots.insert(snapshot.clone());
        self.commit(roots, &fetched, pack, id).inspect_err(|_| self.writer.drop_new(pack))?;
        Ok(snapshot)
    }

    /// Heals a snapshot that this store has, and brings it back if it was forgotten and does not stay away.
    fn renew(
        &mut self,
        own: &Snapshot,
        offered: &Snapshot,
        damage: &KnownDamage,
        away: &BTreeSet<SnapshotId>,
        done: &mut CopiedHistory,
    ) -> Result<(), SnapshotError> {
        let id = own.id;
        if !damage.is_none() && self.heal(own, offered)? {
            done.healed.push(id);
        }
        if away.contains(&id) {
            done.forgotten.push(id);
        } else if own.forgotten.is_some() {
            done.copied.extend(self.unforget(id)?);
        } else {
            done.present.push(id);
        }
        Ok(())
    }

    /// Brings back a forgotten snapshot, and returns it.
    fn unforget(&mut self, id: SnapshotId) -> Result<Option<Snapshot>, SnapshotError> {
        let mut roots = self.writer.roots.clone();
        roots.get_mut(id).map_or(Ok(()), |own| own.forget(None))?;
        self.writer.commit_by(roots, "unforget", self.by, &[id])?;
        Ok(self.writer.roots.get(id).cloned())
    }

    /// Brings the objects of a snapshot again that this store has damaged. Returns whether anything was replaced.
    fn heal(&mut self, own: &Snapshot, offered: &Snapshot) -> Result<bool, SnapshotError> {
        let pack = self.random()?;
        let fetched = self
            .fetch(offered, Some(own.tree), pack, |_| None)
            .inspect_err(|_| self.writer.drop_new(pack))?;
        if fetched.crossed == 0 && fetched.tree == own.tree {
            return Ok(false);
        }
        let mut roots = self.writer.roots.clone();
        roots.get_mut(own.id).into_iter().for_each(|own| own.tree = fetched.tree);
        self.commit(roots, &fetched, pack, own.id).inspect_err(|_| self.writer.drop_new(pack))?;
        Ok(true)
    }

    fn random(&self) -> Result<SnapshotId, SnapshotError> {
        SnapshotId::random().map_err(io_error("make an id for", self.writer.store.path()))
    }

    /// Returns the volume that a snapshot was taken of, unless that is this one.
    fn origin_of(&self, offered: &Snapshot) -> Option<VolumeId> {
        offered.origin.or(self.offer.volume).filter(|origin| *origin != self.writer.volume())
    }

    /// Returns the tree here that is probably the most like that of an offered snapshot: of the nearest snapshot before
    /// it that both have, else after it, else of the last one here.
    fn old_tree(&self, id: SnapshotId) -> Option<FolderRef> {
        let at = self.offer.snapshots.iter().position(|offered| offered.id == id).unwrap_or_default();
        let (before, after) = self.offer.snapshots.split_at(at);
        let mut near = before.iter().rev().chain(after);
        let both = near.find_map(|offered| self.writer.roots.get(offered.id));
        both.or_else(|| self.writer.roots.last()).map(|own| own.tree)
    }

    /// Brings the tree of a snapshot into the pack, which ends with what `record` returns.
    fn fetch(
        &mut self,
        offered: &Snapshot,
        old: Option<FolderRef>,
        pack: SnapshotId,
        record: impl Fn(&FetchedTree) -> Option<Vec<u8>>,
    ) -> Result<FetchedTree, SnapshotError> {
        let writer = &*self.writer;
        let failed = || io_error("write to", writer.store.path());
        let packing = Packing::new(writer, pack, None);
        let mut fetch = TreeFetch::new(&writer.store, &packing, &mut self.counts, self.monitor);
        fetch.walk(self.source, offered.tree, old)?;
        let needed = fetch.measure(self.source)?;
        check_room(writer, needed)?;
        let result = (|| {
            let own = fetch.fetch_contents(self.source)?;
            let tree = fetch.write()?;
            Ok((own, tree, packing.finish().map_err(failed())?))
        })();
        let (own, tree, packed) = result.inspect_err(|error: &SnapshotError| {
            if error.is_no_room() {
                fetch.remove_placed();
            }
        })?;
        drop(fetch);
        let totals = self.counts.of(&writer.store, &tree).unwrap_or_default();
        if totals.entries > MAX_ENTRIES {
            return Err(SnapshotError::Elsewhere(format!(
                "it has a tree of more than {MAX_ENTRIES} entries"
            )));
        }
        let has_objects = packing.is_used();
        let (crossed, added_bytes) = (needed.contents, own + packed);
        let fetched = FetchedTree { tree, totals, added_bytes, crossed, has_objects };
        if let Some(record) = record(&fetched) {
            packing.close(&record).map_err(failed())?;
        }
        self.bytes += crossed;
        Ok(fetched)
    }

    /// Publishes the list, with the objects in the pack's folder, which is named after the snapshot or at random.
    fn commit(
        &mut self,
        roots: Roots,
        fetched: &FetchedTree,
        pack: SnapshotId,
        id: SnapshotId,
    ) -> Result<(), SnapshotError> {
        let from = self.offer.volume.map(|volume| format!("from volume {volume}")).unwrap_or_default();
        let line = AuditLine { action: "copy", by: self.by, note: &from };
        if pack == id && fetched.has_objects {
            return self.writer.publish_new(roots, line, id);
        }
        if fetched.has_objects {
            // Nothing refers to these objects until the list does, so they are moved to their places before.
            self.writer.settle_one(pack)?;
        }
        self.writer.log_with_note(line, &[id])?;
        self.writer.commit_synced(roots)
    }
}

fn check_room(writer: &Writer<'_>, needed: FetchedBytes) -> Result<(), SnapshotError> {
    let path = writer.store.path();
    let free = free_bytes(writer.store.dir()).map_err(io_error("look at", path))?;
    if needed.room > free {
        Err(SnapshotError::NoRoomForCopy { path: path.into(), bytes: needed.room, free })
    } else {
        Ok(())
    }
}
