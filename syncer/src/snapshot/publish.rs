//! Turns a scanned tree into a snapshot in the store.
//!
//! 1. [`plan`] finds what is unchanged since the last snapshot: whole directories by their digests, files by their
//!    stamps.
//! 2. [`read_all`] takes the content of all other files into the store.
//! 3. [`write_folders`] writes new directories, from the leaves to the root.
//! 4. The [`Writer`] makes everything durable, and then the snapshot visible.

use std::{
    collections::BTreeSet,
    iter::Peekable,
    os::fd::AsFd as _,
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::SystemTime,
};

use super::{
    choose_engine::choose_engine,
    content::ContentRef,
    folder::{Folder, FolderRef},
    folder_changes::FolderChanges,
    id::SnapshotId,
    keep::{Keeper, TakenFile},
    known_damage::KnownDamage,
    pack::Packing,
    roots::{Engine, Snapshot},
    select::{AS_OF, LATEST},
    snapshot_error::{SnapshotError, io_error},
    store::{Store, Writer},
    text::{MAX_NAME_BYTES, MAX_NOTE_BYTES, MAX_TAG_BYTES, MAX_TAGS},
    written::WrittenFiles,
};
use crate::{
    attrs::AttrsBuf,
    cores::cores,
    entry::{Entry, Kind, Meta, Time},
    hash::TreeDigest,
    listing::{EntryIndex, Listing, ListingBuilder},
    monitor::Monitor,
    path::RelPath,
    report::Failures,
    root::Root,
    tree::{
        Tree,
        dir::{Dir, DirId, ROOT},
        stamps::Stamps,
    },
};
use contract::SnapshotEngine;

/// A worker takes this many files of one directory at a time.
const FILES_PER_UNIT: usize = 64;

/// A directory is stored as its differences from another one if they are at most this fraction (1/n) of its length.
const SHARE_OF_FOLDER: usize = 4;

/// Shorter directories are stored as a whole.
const SMALL_FOLDER_BYTES: usize = 256;

/// The number of files for which one more thread is started.
const FILES_PER_THREAD: usize = 32;

/// The labels that users and runs give to a snapshot.
#[derive(Debug, Clone, Default)]
pub struct Labels {
    /// Labels to find it by.
    pub tags: BTreeSet<String>,
    /// The user's note.
    pub note: String,
    /// The run that takes it.
    pub run: String,
    /// The SyncJob that it belongs to.
    pub job: String,
    /// The user that takes it.
    pub user: String,
    /// Whether it is kept regardless of policies.
    pub pinned: bool,
}

impl Labels {
    /// Checks that each label is one line of text, and short enough.
    ///
    /// # Errors [`SnapshotError::Invalid`], which names the label.
    pub fn check(&self) -> Result<(), SnapshotError> {
        check_tags(&self.tags)?;
        if self.note.len() > MAX_NOTE_BYTES {
            return Err(SnapshotError::Invalid(format!("a note has at most {MAX_NOTE_BYTES} bytes")));
        }
        let long = [&self.run, &self.job, &self.user].into_iter().find(|name| name.len() > MAX_NAME_BYTES);
        long.map_or(Ok(()), |name| {
            Err(SnapshotError::Invalid(format!("{name} is longer than {MAX_NAME_BYTES} bytes")))
        })
    }
}

/// Checks the tags of a snapshot, or of rules, and their number: a list with more cannot be read.
pub(super) fn check_tags(tags: &BTreeSet<String>) -> Result<(), SnapshotError> {
    tags.iter().try_for_each(|tag| check_tag(tag))?;
    match tags.len() <= MAX_TAGS {
        true => Ok(()),
        false => Err(SnapshotError::Invalid(format!("there are at most {MAX_TAGS} tags"))),
    }
}

impl Snapshot {
    /// Checks the number of tags.
    ///
    /// # Errors [`SnapshotError::Invalid`].
    pub fn check_tags(&self) -> Result<(), SnapshotError> {
        check_tags(&self.tags)
    }
}

/// Checks a tag: text without spaces and control characters, other than the word for the newest snapshot.
///
/// # Errors [`SnapshotError::Invalid`], which names the tag.
pub fn check_tag(tag: &str) -> Result<(), SnapshotError> {
    let is_text = !tag.is_empty() && !tag.chars().any(|c| c.is_whitespace() || c.is_control());
    match is_text && tag.len() <= MAX_TAG_BYTES && tag != LATEST && !tag.starts_with(AS_OF) {
        true => Ok(()),
        false => Err(SnapshotError::Invalid(format!(
            "`{}` cannot be a tag: a tag has 1 to {MAX_TAG_BYTES} bytes without spaces, is not `{LATEST}`, and does \
             not begin with `{AS_OF}`",
            tag.escape_debug()
        ))),
    }
}

/// A tree to publish, with access to its files.
#[derive(Debug)]
pub struct ScannedTree<'a> {
    /// Its listings, scanned with stamps.
    pub tree: &'a Tree,
    /// The root directory's own metadata and attributes.
    pub root_meta: (Meta, AttrsBuf),
    /// The root that its files are read from.
    pub root: &'a Root,
    /// Files that were changed since then, by the file system's clock, get no stamp.
    pub before: Time,
    /// When the scan began.
    pub began: Time,
    /// The files that a run has just written, whose contents need not be read.
    pub written: Option<&'a WrittenFiles>,
}

/// Publishes a snapshot of a tree. Unreadable files go to `failures`, are counted, and are left out; their directories
/// are marked incomplete, so that a restore deletes nothing in them.
///
/// # Errors
/// If the store cannot be written to, or the run is told to stop; it is then unchanged.
pub fn publish(
    writer: &mut Writer<'_>,
    source: &ScannedTree<'_>,
    labels: Labels,
    engine: SnapshotEngine,
    failures: &Failures,
    monitor: &Monitor,
) -> Result<Snapshot, SnapshotError> {
    let engine = choose_engine(engine, writer.store.dir())
        .ok_or_else(|| SnapshotError::CannotClone(writer.store.path().into()))?;
    let id = SnapshotId::random().map_err(io_error("make an id for", writer.store.path()))?;
    let ScannedTree { before, written, .. } = *source;
    let packing = Packing::new(writer, id, written.and_then(WrittenFiles::take_pack));
    let mut keeper = Keeper { packing: &packing, engine, before, written, monitor, broken: OnceLock::new() };
    let made = make(writer, source, &mut keeper, failures).inspect_err(|_| writer.drop_new(id))?;
    drop(packing);
    let snapshot = record(id, source, labels, engine, &made, failures);
    let mut roots = writer.roots.clone();
    roots.snapshots.push(snapshot.clone());
    let by =
        [&snapshot.run, &snapshot.user].into_iter().find(|by| !by.is_empty()).cloned().unwrap_or_default();
    let committed = match made.is_new {
        true => writer.commit_with_objects(roots, &by, id),
        false => writer.commit_by(roots, "create", &by, &[id]),
    };
    if let Err(error) = committed {
        writer.drop_new(id);
        return Err(error);
    }
    if made.is_new {
        writer.settle()?;
    }
    Ok(snapshot)
}

/// The result of a publication before it is visible.
struct MadeSnapshot {
    tree: FolderRef,
    bytes: u64,
    added_bytes: u64,
    is_new: bool,
}

fn make(
    writer: &Writer<'_>,
    source: &ScannedTree<'_>,
    keeper: &mut Keeper<'_>,
    failures: &Failures,
) -> Result<MadeSnapshot, SnapshotError> {
    let store = &writer.store;
    let damage = KnownDamage::read(store)?;
    let mut planned = plan(source.tree, store, writer.roots.last().map(|last| &last.tree), &damage);
    let added = read_all(&mut planned, source, keeper, failures);
    let bytes = source.tree.totals.bytes.saturating_add_signed(planned.grown);
    let writing = || io_error("write to", store.path());
    if let Some(error) = keeper.broken.take() {
        return Err(writing()(error));
    }
    let tree = write_folders(planned, source.tree, store, keeper.packing).map_err(writing())?;
    let packed = keeper.packing.finish().map_err(writing())?;
    Ok(MadeSnapshot { tree, bytes, added_bytes: added + packed, is_new: keeper.packing.is_used() })
}

fn record(
    id: SnapshotId,
    source: &ScannedTree<'_>,
    labels: Labels,
    engine: Engine,
    made: &MadeSnapshot,
    failures: &Failures,
) -> Snapshot {
    let Labels { tags, note, run, job, user, pinned } = labels;
    Snapshot {
        id,
        tree: made.tree,
        root_meta: source.root_meta.0,
        root_attrs: source.root_meta.1.clone(),
        began: source.began,
        taken: time_of(SystemTime::now()),
        entries: source.tree.totals.entries,
        bytes: made.bytes,
        added_bytes: made.added_bytes,
        failed: failures.count(),
        engine,
        run,
        job,
        user,
        note,
        tags,
        pinned,
        forgotten: None,
    }
}

/// Converts a clock's time to the store's form.
pub fn time_of(time: SystemTime) -> Time {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => Time { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() },
        Err(before) => Time { seconds: -(before.duration().as_secs() as i64), nanos: 0 },
    }
}

/// The content of a listed file on its way into the store.
#[derive(Debug)]
enum Slot {
    /// Unchanged since the last snapshot, with its stamp.
    Same(ContentRef, u64),
    /// To be read; the last snapshot may have had this content.
    Wanted(Option<ContentRef>),
    /// Read.
    Taken(TakenFile),
    /// The file is gone.
    Gone,
    /// The file cannot be read.
    Failed,
}

/// A directory that may differ from the last snapshot.
#[derive(Debug)]
struct Making {
    dir: DirId,
    path: RelPath,
    /// The last snapshot's directory in its place.
    old: Option<FolderRef>,
    /// One for each file of the listing that has content.
    slots: Vec<Slot>,
}

/// The directories to write, and those that the store has.
#[derive(Debug, Default)]
struct PlannedFolders {
    making: Vec<Making>,
    /// Directories in the store, by number.
    there: Vec<Option<FolderRef>>,
    /// Bytes by which files have grown since the scan.
    grown: i64,
}

/// Compares a tree with the last snapshot, to find the directories to write. Entries whose old directory cannot be read
/// count as new. Once damage is known, every directory is read.
fn plan(tree: &Tree, store: &Store, last: Option<&FolderRef>, damage: &KnownDamage) -> PlannedFolders {
    let mut planned = PlannedFolders { there: vec![None; tree.dirs.len()], ..PlannedFolders::default() };
    let mut visits = vec![(ROOT, RelPath::root(), last.copied())];
    while let Some((id, path, old)) = visits.pop() {
        let dir = &tree.dirs[id as usize];
        let is_same = |old: &FolderRef| old.digest == dir.digest && old.seen.proves_same(dir.seen);
        if let Some(old) = old.filter(|old| damage.is_none() && is_same(old)) {
            planned.there[id as usize] = Some(old);
            continue;
        }
        let folder = old.and_then(|old| readable(store, &old));
        let slots = slots(dir, folder.as_ref(), damage);
        let mut below = folder.as_ref().map(OldDirs::new);
        let names = dir.listing.iter().filter(|entry| entry.kind == Kind::Dir).map(|entry| entry.name);
        for (child, name) in (dir.first_child..).zip(names) {
            // A path beyond the limit was not scanned.
            let Ok(path) = path.join(name) else { continue };
            visits.push((child, path, below.as_mut().and_then(|below| below.find(name))));
        }
        planned.making.push(Making { dir: id, path, old, slots });
    }
    planned
}

fn readable(store: &Store, folder: &FolderRef) -> Option<Folder> {
    let read = store.folder(folder);
    read.inspect_err(|error| tracing::warn!(%error, "a directory of the last snapshot cannot be read, and is written anew"))
        .ok()
}

/// Finds the subdirectories of a stored directory, in the order of their names.
struct OldDirs<'a> {
    entries: Peekable<Box<NamedDirs<'a>>>,
}

type NamedDirs<'a> = dyn Iterator<Item = (&'a [u8], FolderRef)> + 'a;

impl<'a> OldDirs<'a> {
    fn new(folder: &'a Folder) -> Self {
        let dirs = folder.listing.iter().filter(|entry| entry.kind == Kind::Dir).map(|entry| entry.name);
        let entries: Box<NamedDirs<'a>> = Box::new(dirs.zip(folder.children.iter().copied()));
        Self { entries: entries.peekable() }
    }

    fn find(&mut self, name: &[u8]) -> Option<FolderRef> {
        while self.entries.next_if(|(other, _)| *other < name).is_some() {}
        self.entries.next_if(|(other, _)| *other == name).map(|(_, folder)| folder)
    }
}

/// Finds the files that are unchanged since the last snapshot: same name, size, time and stamp.
fn slots(dir: &Dir, old: Option<&Folder>, damage: &KnownDamage) -> Vec<Slot> {
    let mut old = old.into_iter().flat_map(files_of).peekable();
    let files = dir.listing.iter().filter(|entry| entry.kind.has_content());
    let slot = |(entry, stamp): (Entry<'_>, u64)| {
        while old.next_if(|(other, ..)| other.name < entry.name).is_some() {}
        match old.next_if(|(other, ..)| other.name == entry.name) {
            Some((other, content, seen))
                if stamp != 0
                    && stamp == seen
                    && other.kind == entry.kind
                    && other.meta.mtime == entry.meta.mtime
                    && !damage.contents.contains(&content.id) =>
            {
                Slot::Same(content, stamp)
            }
            Some((_, content, _)) => Slot::Wanted(Some(content)),
            None => Slot::Wanted(None),
        }
    };
    files.zip(dir.stamps_of_files()).map(slot).collect()
}

/// Yields the files of a stored directory that have content, with that and their stamps.
pub fn files_of(folder: &Folder) -> impl Iterator<Item = (Entry<'_>, ContentRef, u64)> {
    let files = folder.listing.iter().filter(|entry| entry.kind.has_content());
    let contents = folder.contents.iter().copied().zip(folder.stamps.iter().copied());
    files.zip(contents).map(|(entry, (content, stamp))| (entry, content, stamp))
}

/// Some of a directory's files: its index among those to write, and the files' indexes among its slots and in its
/// listing.
type Unit = (usize, Vec<(usize, u32)>);

/// Takes the content of all wanted files into the store. Returns the number of bytes in new files of their own.
fn read_all(
    planned: &mut PlannedFolders,
    source: &ScannedTree<'_>,
    keeper: &Keeper<'_>,
    failures: &Failures,
) -> u64 {
    let units = units(planned, source.tree);
    let files: usize = units.iter().map(|(_, files)| files.len()).sum();
    // Asking for the number of cores reads system files, so a single thread does not ask.
    let threads = match files.div_ceil(FILES_PER_THREAD) {
        0 | 1 => 1,
        most => cores().min(most),
    };
    let reading = Reading {
        planned,
        source,
        keeper,
        failures,
        units: &units,
        next: AtomicUsize::new(0),
        added: AtomicU64::new(0),
        grown: AtomicI64::new(0),
        done: Mutex::default(),
    };
    std::thread::scope(|scope| {
        (1..threads).for_each(|_| drop(scope.spawn(|| reading.work())));
        reading.work();
    });
    let (added, grown) = (reading.added.load(Relaxed), reading.grown.load(Relaxed));
    let done = reading.done.into_inner().unwrap_or_else(PoisonError::into_inner);
    for (making, slot, result) in done {
        planned.making[making].slots[slot] = result;
    }
    planned.grown = grown;
    added
}

fn units(planned: &PlannedFolders, tree: &Tree) -> Vec<Unit> {
    let mut units = Vec::new();
    for (nth, making) in planned.making.iter().enumerate() {
        let listing = &tree.dirs[making.dir as usize].listing;
        let files = (0..).zip(listing).filter(|(_, entry)| entry.kind.has_content()).map(|(index, _)| index);
        let slots = making.slots.iter().enumerate().zip(files);
        let wanted = slots.filter(|((_, slot), _)| matches!(slot, Slot::Wanted(_)));
        let wanted: Vec<(usize, u32)> = wanted.map(|((slot, _), index)| (slot, index)).collect();
        units.extend(wanted.chunks(FILES_PER_UNIT).map(|files| (nth, files.to_vec())));
    }
    units
}

/// Files that several threads read.
struct Reading<'a> {
    planned: &'a PlannedFolders,
    source: &'a ScannedTree<'a>,
    keeper: &'a Keeper<'a>,
    failures: &'a Failures,
    units: &'a [Unit],
    next: AtomicUsize,
    added: AtomicU64,
    grown: AtomicI64,
    done: Mutex<Vec<(usize, usize, Slot)>>,
}

impl Reading<'_> {
    fn work(&self) {
        let mut done = Vec::new();
        while let Some((making, files)) = self.units.get(self.next.fetch_add(1, Relaxed))
            && self.keeper.broken.get().is_none()
        {
            self.unit(*making, files, &mut done);
        }
        self.done.lock().unwrap_or_else(PoisonError::into_inner).append(&mut done);
    }

    fn unit(&self, nth: usize, files: &[(usize, u32)], done: &mut Vec<(usize, usize, Slot)>) {
        let making = &self.planned.making[nth];
        let listed = &self.source.tree.dirs[making.dir as usize];
        let mut opened = None;
        let Some((_, first)) = files.first() else { return };
        let mut entries = (*first..).zip(EntryIndex::of(&listed.listing).from(*first));
        for (slot, index) in files {
            let Some((_, entry)) = entries.find(|(at, _)| at == index) else { return };
            let old = match &making.slots[*slot] {
                Slot::Wanted(old) => *old,
                _ => None,
            };
            let stamp = listed.stamps.get(*index as usize).copied().unwrap_or(0);
            let taken = match self.keeper.take_packed(&making.path, &entry, stamp, old) {
                Ok(Some(taken)) => Ok(taken),
                Err(error) => Err(error),
                Ok(None) => match opened.get_or_insert_with(|| self.source.root.dir(&making.path)) {
                    Ok(dir) => self.keeper.take(dir.as_fd(), entry.name, old),
                    Err(error) => Err(error.kind().into()),
                },
            };
            done.push((nth, *slot, self.slot(making, &entry, taken)));
        }
    }

    fn slot(&self, making: &Making, entry: &Entry<'_>, taken: std::io::Result<TakenFile>) -> Slot {
        match taken {
            Ok(taken) => {
                self.added.fetch_add(taken.added, Relaxed);
                if let Kind::File { size } = entry.kind {
                    self.grown.fetch_add(taken.len as i64 - size as i64, Relaxed);
                }
                Slot::Taken(taken)
            }
            Err(_) if self.keeper.broken.get().is_some() => Slot::Failed,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Slot::Gone,
            Err(error) => {
                let path = making.path.join(entry.name).unwrap_or_else(|_| making.path.clone());
                self.failures.add(&path, "take into the snapshot", &error);
                Slot::Failed
            }
        }
    }
}

/// Writes the new directories, from the leaves to the root.
fn write_folders(
    mut planned: PlannedFolders,
    tree: &Tree,
    store: &Store,
    packing: &Packing<'_>,
) -> std::io::Result<FolderRef> {
    planned.making.sort_unstable_by_key(|making| std::cmp::Reverse(making.dir));
    let PlannedFolders { making, mut there, .. } = planned;
    for Making { dir, old, slots, .. } in making {
        let scanned = &tree.dirs[dir as usize];
        let first = scanned.first_child as usize;
        let children: Vec<FolderRef> =
            there[first..first + scanned.listing.dirs() as usize].iter().flatten().copied().collect();
        let folder = assemble(&scanned.listing, children, slots);
        there[dir as usize] = Some(write_folder(&folder, old, store, packing)?);
    }
    there.first().copied().flatten().ok_or_else(|| std::io::Error::other("the tree has no root"))
}

/// Writes a directory, unless the last snapshot has the same one, undamaged, with the same stamps and objects.
fn write_folder(
    folder: &Folder,
    old: Option<FolderRef>,
    store: &Store,
    packing: &Packing<'_>,
) -> std::io::Result<FolderRef> {
    let below: Vec<TreeDigest> = folder.children.iter().map(|child| child.digest).collect();
    let own = folder.listing.digest();
    let digest = if below.is_empty() { own } else { own.with_children(&below) };
    let seen = match folder.listing.is_complete() {
        true => Stamps::of(folder.stamps.iter().copied(), folder.children.iter().map(|child| child.seen)),
        false => Stamps::unknown(),
    };
    let (id, bytes) = folder.encode();
    // The id does not cover the places of objects, which change where damaged ones were stored again.
    let refers_to_same = |old: &FolderRef| {
        let there = store.folder(old);
        there.is_ok_and(|there| there.children == folder.children && there.contents == folder.contents)
    };
    if let Some(old) = old.filter(|old| old.id == id && old.seen == seen && refers_to_same(old)) {
        return Ok(old);
    }
    let changes =
        old.filter(|_| bytes.len() >= SMALL_FOLDER_BYTES).and_then(|old| changes_of(&old, folder, store));
    let bytes = changes.filter(|changes| changes.len() <= bytes.len() / SHARE_OF_FOLDER).unwrap_or(bytes);
    Ok(FolderRef { id, place: packing.folder(&bytes)?, digest, seen })
}

/// Encodes the differences of a directory from its version in the last snapshot, or from the base of that version.
/// Returns `None` if neither can be read.
fn changes_of(old: &FolderRef, folder: &Folder, store: &Store) -> Option<Vec<u8>> {
    let (place, base) = store.base_of(old).ok()?;
    Some(FolderChanges::between(place, &base, folder).encode())
}

/// Joins a listing with the data read from its files. If a file has changed since the scan, the listing gets the data
/// that was read.
fn assemble(listing: &Listing, children: Vec<FolderRef>, slots: Vec<Slot>) -> Folder {
    let listing = if is_as_listed(listing, &slots) { listing.clone() } else { relist(listing, &slots) };
    let mut folder = Folder { listing, children, ..Folder::default() };
    for slot in slots {
        let (content, stamp) = match slot {
            Slot::Same(content, stamp) => (Some(content), stamp),
            Slot::Taken(taken) => (taken.content, taken.stamp),
            Slot::Wanted(_) | Slot::Gone | Slot::Failed => (None, 0),
        };
        if let Some(content) = content {
            folder.contents.push(content);
            folder.stamps.push(stamp);
        }
    }
    folder
}

fn is_as_listed(listing: &Listing, slots: &[Slot]) -> bool {
    let files = listing.iter().filter(|entry| entry.kind.has_content());
    files.zip(slots).all(|(entry, slot)| match slot {
        Slot::Same(..) => true,
        Slot::Taken(taken) => entry.kind == Kind::File { size: taken.len } && entry.meta == taken.meta,
        Slot::Wanted(_) | Slot::Gone | Slot::Failed => false,
    })
}

fn relist(listing: &Listing, slots: &[Slot]) -> Listing {
    let mut builder = ListingBuilder::default();
    let mut slots = slots.iter();
    for entry in listing {
        let slot = entry.kind.has_content().then(|| slots.next()).flatten();
        match slot {
            None | Some(Slot::Same(..)) => builder.push(&entry),
            Some(Slot::Taken(taken)) => builder.push(&taken.entry(entry.name, entry.attrs)),
            Some(Slot::Gone) => {}
            Some(Slot::Failed | Slot::Wanted(_)) => builder.mark_incomplete(),
        }
    }
    if !listing.is_complete() {
        builder.mark_incomplete();
    }
    builder.finish()
}
