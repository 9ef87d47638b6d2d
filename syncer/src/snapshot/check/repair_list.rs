//! Repairs a store whose list or log is damaged: says first what it would bring back and what it would forget.
//!
//! A snapshot of a damaged list comes from, in this order: the list's copy; the record at the end of the snapshot's
//! pack; a damaged record whose fields can be read. One that the log says was collected stays away, unless that was the
//! last thing before a crash, and the snapshot is whole.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
};

use crate::{
    destination::Destination,
    entry::{Kind, Time},
    monitor::Monitor,
    snapshot::store::{
        AuditLine, ContentRef, Home, ListState, Roots, Snapshot, SnapshotError, SnapshotId, Store,
        StoreFolder, Writer,
        audit_log::{self, COLLECT, UNCOLLECT},
        io_error, names, replace_file, walk,
    },
};

/// The file that keeps the damaged list after a repair.
const BEFORE_REPAIR: &str = "roots.before-repair";
const COPY_BEFORE_REPAIR: &str = "roots.copy.before-repair";

/// The origin of a snapshot that comes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordOrigin {
    /// The copy of the list.
    Copy,
    /// The record at the end of its pack.
    Pack,
    /// A damaged record of the list, whose tree can be read.
    Record,
}

/// One of the things that a repair does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RepairStep {
    /// Brings back a snapshot that the list lacks.
    BringBack(SnapshotId, RecordOrigin),
    /// Leaves out a snapshot whose record was found, and whose tree cannot be read.
    LeaveOut(SnapshotId, String),
    /// Forgets what nothing was found of: a snapshot that the log or a damaged record names, or such a record.
    Forget(Option<SnapshotId>),
    /// Writes the list and its copy anew, with this many snapshots.
    WriteList(usize),
    /// Puts the log aside, which is damaged from this line on, and begins a new one.
    NewLog(u64),
}

impl fmt::Display for RepairStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BringBack(id, RecordOrigin::Copy) => write!(f, "bring back {id} from the copy of the list"),
            Self::BringBack(id, RecordOrigin::Pack) => {
                write!(f, "bring back {id} from the record in its pack")
            }
            Self::BringBack(id, RecordOrigin::Record) => {
                write!(f, "bring back {id} from its damaged record, because its tree can be read")
            }
            Self::LeaveOut(id, why) => write!(f, "leave out {id}: {why}"),
            Self::Forget(Some(id)) => {
                write!(f, "forget {id}: nothing has a record of it that can be read")
            }
            Self::Forget(None) => write!(f, "forget a damaged record of the list: nothing can be read of it"),
            Self::WriteList(count) => write!(f, "write the list of {count} snapshots and its copy anew"),
            Self::NewLog(line) => {
                write!(
                    f,
                    "put the log aside, which is damaged or cut from line {line} on, and begin a new one"
                )
            }
        }
    }
}

/// A repair that was not carried out yet.
#[derive(Debug, Default)]
pub struct Repair {
    /// Its steps; none if nothing needs a repair.
    pub steps: Vec<RepairStep>,
    /// The list that it writes, if it writes one.
    roots: Option<Roots>,
}

/// Looks for what a repair of the store would do. Changes nothing.
///
/// # Errors
/// If the store cannot be read, or has another version.
pub fn plan_repair(store: &Store) -> Result<Repair, SnapshotError> {
    let mut repair = Repair::default();
    let listed = store.roots();
    let log = store.audit(listed.as_ref().unwrap_or(&Roots::default()))?;
    let (alone, copy) = (store.list().alone()?, store.list().copy_in_part()?);
    match listed {
        Ok(roots) if roots.damages() == 0 && roots.state == ListState::Read => {
            if store.list().is_copy_damaged()? {
                repair.write(roots);
            }
        }
        Ok(roots) if roots.damages() == 0 && roots.state == ListState::Known => repair.write(roots),
        Err(error) if !error.needs_repair() => return Err(error),
        _ => repair.rebuild(store, alone, copy, &log)?,
    }
    repair.steps.extend(log.broken.map(RepairStep::NewLog));
    Ok(repair)
}

impl Repair {
    fn write(&mut self, roots: Roots) {
        self.steps.push(RepairStep::WriteList(roots.snapshots.len()));
        self.roots = Some(roots);
    }

    fn rebuild(
        &mut self,
        store: &Store,
        alone: Option<Roots>,
        copy: Option<Roots>,
        log: &audit_log::Log,
    ) -> Result<(), SnapshotError> {
        let mut roots = alone.unwrap_or_default();
        let mut order = Vec::new();
        let damaged = std::mem::take(&mut roots.damaged);
        let damaged_in_copy = copy.iter().flat_map(|copy| &copy.damaged);
        let guesses: Vec<_> =
            damaged_in_copy.chain(&damaged).flat_map(|bytes| Snapshot::guesses(bytes)).collect();
        let mut found: BTreeMap<SnapshotId, (Snapshot, RecordOrigin)> = BTreeMap::new();
        // Nothing vouches for the fields of a damaged record, so it counts as one that others could write to.
        let guessed =
            guesses.iter().filter_map(|(_, guess)| Some(Snapshot { is_exposed: true, ..guess.clone()? }));
        found.extend(guessed.map(|snapshot| (snapshot.id, (snapshot, RecordOrigin::Record))));
        found.extend(records_in_packs(store)?.map(|snapshot| (snapshot.id, (snapshot, RecordOrigin::Pack))));
        if let Some(copy) = copy {
            order = copy.snapshots.iter().map(|snapshot| snapshot.id).collect();
            found.extend(
                copy.snapshots.into_iter().map(|snapshot| (snapshot.id, (snapshot, RecordOrigin::Copy))),
            );
            for (job, rules) in copy.rules {
                roots.rules.entry(job).or_insert(rules);
            }
            roots.collections = roots.collections.max(copy.collections);
            roots.changes = roots.changes.max(copy.changes);
        }
        let mut past = Past::of(log);
        // A list of as many collections as the log has lines of them is later than the last of these.
        if roots.collections >= past.collections {
            past.maybe_undone.clear();
        }
        found.retain(|id, _| roots.get(*id).is_none());
        let mut found: Vec<(Snapshot, RecordOrigin)> = found.into_values().collect();
        let place = |id| order.iter().position(|other| *other == id).unwrap_or(order.len());
        found.sort_by_key(|(snapshot, _)| (place(snapshot.id), snapshot.taken));
        for (mut snapshot, origin) in found {
            let id = snapshot.id;
            match past.doubt(store, &snapshot, origin) {
                None => {
                    past.apply(&mut snapshot, origin);
                    roots.insert(snapshot);
                    self.steps.push(RepairStep::BringBack(id, origin));
                }
                Some(error) => self.steps.push(RepairStep::LeaveOut(id, error)),
            }
        }
        let known = guesses.iter().map(|(id, _)| *id).chain(past.left());
        self.forget(&damaged, known, &roots);
        roots.is_cut = false;
        self.write(roots);
        Ok(())
    }

    /// Names the `known` snapshots and the damaged places of the list that nothing was found of.
    fn forget(&mut self, damaged: &[Vec<u8>], known: impl Iterator<Item = SnapshotId>, roots: &Roots) {
        let is_told = |id: &SnapshotId, steps: &[RepairStep]| {
            let is_left_out =
                |step: &RepairStep| matches!(step, RepairStep::LeaveOut(other, _) if other == id);
            roots.get(*id).is_some() || steps.iter().any(is_left_out)
        };
        let lost: BTreeSet<SnapshotId> = known.filter(|id| !is_told(id, &self.steps)).collect();
        let unread = damaged.iter().filter(|bytes| Snapshot::guesses(bytes).next().is_none()).count();
        // Bytes without an id may be those of a snapshot that came back.
        let came_back = self.steps.iter().filter(|step| matches!(step, RepairStep::BringBack(..))).count();
        self.steps.extend(lost.into_iter().map(|id| RepairStep::Forget(Some(id))));
        self.steps.extend((came_back..unread).map(|_| RepairStep::Forget(None)));
    }

    /// Carries out a repair of the store that `destination` holds: plans it anew under the lock, keeps the damaged
    /// files, and writes it to the log. Returns what it did.
    ///
    /// # Errors
    /// If the store cannot be read or written to.
    pub fn carry_out(
        destination: &Destination,
        path: &std::path::Path,
        by: &str,
    ) -> Result<Self, SnapshotError> {
        let mut writer = Writer::open_to_repair(destination.state(), destination.root(), path)?;
        let repair = plan_repair(&writer.store)?;
        if repair.steps.is_empty() {
            return Ok(repair);
        }
        writer.roots.changes =
            repair.roots.as_ref().map_or_else(|| writer.store.roots(), |roots| Ok(roots.clone()))?.changes;
        let mut note = String::new();
        if repair.steps.iter().any(|step| matches!(step, RepairStep::NewLog(_))) {
            let aside = audit_log::put_aside(writer.store.dir());
            let aside = aside.map_err(io_error("put aside the log of", writer.store.path()))?;
            note = format!("the log before is damaged and is now {aside}");
        }
        let back = repair.steps.iter().filter_map(|step| match step {
            RepairStep::BringBack(id, _) => Some(*id),
            _ => None,
        });
        let line = AuditLine { action: "repair", by, note: &note };
        writer.log_with_note(line, &back.collect::<Vec<_>>())?;
        if let Some(roots) = repair.roots.clone() {
            let list = writer.store.list();
            replace_file(&writer.store, BEFORE_REPAIR, &list.bytes_of_list()?)?;
            if list.is_copy_damaged()? {
                replace_file(&writer.store, COPY_BEFORE_REPAIR, &list.bytes_of_copy()?)?;
            }
            writer.commit(roots)?;
        } else {
            writer.roots = writer.store.roots()?;
        }
        writer.settle()?;
        writer.empty_trash(None, &Monitor::default())?;
        Ok(repair)
    }
}

/// Yields the records that packs end with, of publications that are settled or not.
fn records_in_packs(store: &Store) -> Result<impl Iterator<Item = Snapshot>, SnapshotError> {
    let mut ids = BTreeSet::new();
    for folder in [StoreFolder::Packs, StoreFolder::New] {
        match names(store.dir(), folder.name()) {
            Ok(names) => ids.extend(names.iter().filter_map(|name| name.parse::<SnapshotId>().ok())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(io_error("read", store.path_of(folder))(error)),
        }
    }
    Ok(ids.into_iter().filter_map(|id| store.record_in_pack(id.0).ok().flatten()))
}

/// Checks that all directories and contents of a snapshot are there. Reads only those in packs, of which a collection
/// may have freed a part.
fn check_whole(store: &Store, snapshot: &Snapshot) -> Result<(), SnapshotError> {
    walk(store, std::iter::once(snapshot), &mut |_, folder| {
        for row in folder?.rows() {
            match (row.content, row.entry.kind) {
                (Some((content @ ContentRef { home: Home::Pack { .. }, .. }, _)), Kind::File { size }) => {
                    store.check(&content, size)?;
                }
                (Some((content, _)), _) => drop(store.content(&content)?),
                (None, _) => {}
            }
        }
        Ok(())
    })
}

/// What the log says of the snapshots.
#[derive(Default)]
struct Past {
    /// Whether all of the log can be read.
    is_whole: bool,
    created: BTreeSet<SnapshotId>,
    collected: BTreeSet<SnapshotId>,
    /// The number of collections.
    collections: u64,
    /// The snapshots of the last line, if it is of a collection: a crash may have kept it from being carried out.
    maybe_undone: BTreeSet<SnapshotId>,
    pinned: BTreeMap<SnapshotId, bool>,
    forgotten: BTreeMap<SnapshotId, Option<Time>>,
}

impl Past {
    fn of(log: &audit_log::Log) -> Self {
        let mut past = Self { is_whole: log.broken.is_none(), ..Self::default() };
        for event in &log.events {
            let time = event.time.parse::<jiff::Timestamp>().ok();
            let time = time.map(|time| Time { seconds: time.as_second(), nanos: 0 });
            let ids = || event.snapshots.iter().filter_map(|id| id.parse().ok());
            past.maybe_undone.clear();
            match event.action.as_str() {
                COLLECT => {
                    past.collections += 1;
                    past.collected.extend(ids());
                    past.maybe_undone.extend(ids());
                }
                UNCOLLECT => past.collections = past.collections.saturating_sub(1),
                _ => {}
            }
            for id in ids() {
                match event.action.as_str() {
                    "create" => {
                        past.created.insert(id);
                        past.collected.remove(&id);
                    }
                    "copy" | "repair" | UNCOLLECT => drop(past.collected.remove(&id)),
                    "pin" | "unpin" => drop(past.pinned.insert(id, event.action == "pin")),
                    "forget" => drop(past.forgotten.insert(id, time)),
                    "unforget" => drop(past.forgotten.insert(id, None)),
                    _ => {}
                }
            }
        }
        past
    }

    /// Returns the snapshots that the log has as there, without those that were forgotten.
    fn left(&self) -> impl Iterator<Item = SnapshotId> {
        let gone = |id: &SnapshotId| self.collected.contains(id) || self.is_forgotten(*id);
        self.created.iter().copied().filter(move |id| !gone(id))
    }

    fn is_forgotten(&self, id: SnapshotId) -> bool {
        self.forgotten.get(&id).is_some_and(Option::is_some)
    }

    /// Returns the reason to leave out a snapshot of which a record was found: a guess has to lead to a root directory,
    /// and the tree of a record in a pack has to be whole unless the log says that the snapshot is there. One that was
    /// to be collected when the system crashed, or that was forgotten, has to be whole with its contents: earlier
    /// versions collected what they had logged as forgotten.
    fn doubt(&self, store: &Store, snapshot: &Snapshot, origin: RecordOrigin) -> Option<String> {
        if self.collected.contains(&snapshot.id) {
            let is_back = self.maybe_undone.contains(&snapshot.id) && check_whole(store, snapshot).is_ok();
            return (!is_back).then(|| "the log says that it was collected".into());
        }
        let read = match origin {
            RecordOrigin::Copy => return None,
            RecordOrigin::Pack if self.is_forgotten(snapshot.id) => check_whole(store, snapshot),
            RecordOrigin::Pack if self.is_whole && self.created.contains(&snapshot.id) => return None,
            RecordOrigin::Pack => walk(store, std::iter::once(snapshot), &mut |_, folder| folder.map(drop)),
            RecordOrigin::Record => store.folder(&snapshot.tree).map(drop),
        };
        read.err().map(|error| error.to_string())
    }

    /// Gives a snapshot that comes back as it was published the pin and the mark that it got later.
    fn apply(&self, snapshot: &mut Snapshot, origin: RecordOrigin) {
        if origin == RecordOrigin::Copy {
            return;
        }
        snapshot.pinned = self.pinned.get(&snapshot.id).copied().unwrap_or(snapshot.pinned);
        snapshot.forgotten = self.forgotten.get(&snapshot.id).copied().unwrap_or(snapshot.forgotten);
    }
}
