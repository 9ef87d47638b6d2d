//! Garbage collection: moves objects that no snapshot refers to any more to the trash, and removes them from there.
//!
//! 1. [`plan_collection`] marks the objects that the remaining snapshots refer to; all others are removed. It changes
//!    nothing.
//! 2. [`collect_garbage`] publishes the list without the removed snapshots, moves whole objects to the trash, and
//!    punches holes into packs that stay.
//! 3. [`Writer::empty_trash`] removes the trash. It may be cut off anywhere and done again.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    io,
    ops::Range,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, FallocateFlags, OFlags, SeekFrom},
    io::Errno,
};

use crate::destination::open_own;
use crate::snapshot::store::{
    ContentRef, Home, ObjectRef, PACK_MAGIC, Referred, Roots, Snapshot, SnapshotError, SnapshotId, Store,
    StoreFolder, Writer, audit_log, gather, io_error, lock_out_readers, names, open_file, open_folder,
};

/// Unused ranges of a pack are freed in blocks of this many bytes.
const BLOCK_BYTES: u64 = 4096;

/// The number of marks that the smallest set has room for. There may be thousands of sets.
const FEW_MARKS: usize = 1 << 12;

/// The snapshots and objects that a collection removes.
#[derive(Debug, Default)]
pub struct Plan {
    /// The removed snapshots.
    pub snapshots: Vec<SnapshotId>,
    /// Packs without references.
    packs: Vec<String>,
    /// Contents in files of their own without references: their folders, and their names there.
    contents: Vec<(String, String)>,
    /// Ranges of packs without references.
    holes: Vec<(String, Range<u64>)>,
    /// Bytes that it frees.
    pub bytes: u64,
    /// Damaged records of the list: as long as there are any, no object goes.
    pub damaged_records: usize,
}

impl Plan {
    /// Returns the number of files that it removes.
    pub fn files(&self) -> u64 {
        (self.packs.len() + self.contents.len()) as u64
    }
}

/// The result of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collected {
    /// Everything was removed.
    All,
    /// A command reads from the store, so the objects are left for the next collection.
    Later,
    /// The list has damaged records, so the objects are left until it is repaired.
    Damaged,
}

/// Plans the removal of these snapshots and of all objects that only they refer to. While records of the list are
/// damaged, no object goes, because the snapshots of these records may need it.
///
/// # Errors
/// If a directory cannot be read, because it is then unknown which objects are still needed.
pub fn plan_collection(
    store: &Store,
    roots: &Roots,
    gone: &BTreeSet<SnapshotId>,
) -> Result<Plan, SnapshotError> {
    let stay: Vec<&Snapshot> =
        roots.snapshots.iter().filter(|snapshot| !gone.contains(&snapshot.id)).collect();
    let snapshots =
        roots.snapshots.iter().map(|snapshot| snapshot.id).filter(|id| gone.contains(id)).collect();
    let mut plan = Plan { snapshots, damaged_records: roots.damages(), ..Plan::default() };
    if plan.damaged_records > 0 {
        return Ok(plan);
    }
    let failed = |error| io_error("look for what can go in", store.path())(error);
    let packs = packs_of_none(store, &stay).map_err(failed)?;
    let has_contents = has_contents(store).map_err(failed)?;
    if packs.is_empty() && !has_contents {
        return Ok(plan);
    }
    let live = mark(store, &stay, &packs)?;
    plan.find_packs(store, &live, packs).map_err(failed)?;
    plan.find_contents(store, &live).map_err(failed)?;
    Ok(plan)
}

/// Returns the names of the packs that none of these snapshots added. A pack needs no search for unused objects while
/// the snapshot that added it stays, because that snapshot needs all of it.
fn packs_of_none(store: &Store, stay: &[&Snapshot]) -> io::Result<Vec<String>> {
    let added: HashSet<u64> = stay.iter().map(|snapshot| snapshot.id.0).collect();
    let is_other = |name: &String| pack_of_name(name).is_none_or(|pack| !added.contains(&pack));
    Ok(names(store.within(StoreFolder::Packs)?, ".")?.into_iter().filter(is_other).collect())
}

fn pack_of_name(name: &str) -> Option<u64> {
    name.parse::<SnapshotId>().ok().map(|id| id.0)
}

/// Returns whether any content is in a file of its own.
fn has_contents(store: &Store) -> io::Result<bool> {
    let contents = store.within(StoreFolder::Content)?;
    for prefix in names(contents, ".")? {
        if !names(open_folder(contents, &prefix)?.as_fd(), ".")?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Objects with references.
#[derive(Debug, Default)]
struct Live {
    /// Ranges of each pack that may be unused.
    packs: HashMap<u64, MarkSet<PackRange>>,
    /// The first half of the ids of contents in files of their own.
    own: MarkSet<[u8; 16]>,
}

/// The place of an object in its pack, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct PackRange {
    offset: u64,
    len: u64,
}

/// Marks the objects in `packs` and in files of their own that these snapshots refer to.
fn mark(store: &Store, stay: &[&Snapshot], packs: &[String]) -> Result<Live, SnapshotError> {
    let packs: HashSet<u64> = packs.iter().filter_map(|name| pack_of_name(name)).collect();
    let matters = |content: &ContentRef| match content.home {
        Home::Own => true,
        Home::Pack { pack, .. } => packs.contains(&pack),
    };
    let parts = gather(store, stay, &matters, |live: &mut Live, referred| match referred {
        Referred::Folder(ObjectRef { pack, offset, len }) => {
            live.push(&packs, pack, PackRange { offset, len: len.into() });
        }
        Referred::Content(ContentRef { home: Home::Own, id }, _) => live.own.push(half(&id.0)),
        Referred::Content(ContentRef { home: Home::Pack { pack, offset }, .. }, len) => {
            live.push(&packs, pack, PackRange { offset, len });
        }
    })?;
    let mut live = parts.into_iter().reduce(Live::with).unwrap_or_default();
    live.own.settle();
    live.packs.values_mut().for_each(MarkSet::settle);
    Ok(live)
}

impl Live {
    /// Marks a range of one of these `packs`, and of no other.
    fn push(&mut self, packs: &HashSet<u64>, pack: u64, range: PackRange) {
        if packs.contains(&pack) {
            self.packs.entry(pack).or_default().push(range);
        }
    }

    fn with(mut self, other: Self) -> Self {
        self.own.merge(other.own);
        for (pack, marks) in other.packs {
            self.packs.entry(pack).or_default().merge(marks);
        }
        self
    }
}

fn half(id: &[u8; 32]) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&id[..16]);
    half
}

/// A set that is filled first and queried later. It takes little more memory than its members.
#[derive(Debug)]
struct MarkSet<T> {
    marks: Vec<T>,
}

impl<T> Default for MarkSet<T> {
    fn default() -> Self {
        Self { marks: Vec::new() }
    }
}

impl<T: Ord> MarkSet<T> {
    /// Adds a mark. Most marks come many times, so a full set is deduplicated before it grows.
    fn push(&mut self, mark: T) {
        if self.marks.len() == self.marks.capacity() {
            self.settle();
            self.marks.reserve_exact(self.marks.len() * 3 / 4 + FEW_MARKS);
        }
        self.marks.push(mark);
    }

    /// Sorts the marks and removes duplicates, so that [`Self::has`] finds them.
    fn settle(&mut self) {
        self.marks.sort_unstable();
        self.marks.dedup();
    }

    /// Adds the marks of another set.
    fn merge(&mut self, mut other: Self) {
        self.settle();
        other.settle();
        self.marks.reserve_exact(other.marks.len());
        self.marks.append(&mut other.marks);
    }

    fn has(&self, mark: &T) -> bool {
        self.marks.binary_search(mark).is_ok()
    }
}

impl Plan {
    fn find_packs(&mut self, store: &Store, live: &Live, packs: Vec<String>) -> io::Result<()> {
        let packs_folder = store.within(StoreFolder::Packs)?;
        for name in packs {
            let id = pack_of_name(&name);
            let marks = id.and_then(|id| live.packs.get(&id));
            let stat = || rustix::fs::statat(packs_folder, &name, AtFlags::SYMLINK_NOFOLLOW);
            let Some(marks) = marks else {
                self.bytes += stat()?.st_blocks as u64 * 512;
                self.packs.push(name);
                continue;
            };
            // The lengths of most packs are known, because their directories were read.
            let len = match id.and_then(|id| store.len_of_open(id)) {
                Some(len) => len,
                None => stat()?.st_size as u64,
            };
            self.find_holes(store, &name, len, &marks.marks)?;
        }
        Ok(())
    }

    /// Finds the blocks of a pack without references. Existing holes have no data and do not count.
    fn find_holes(&mut self, store: &Store, name: &str, pack_len: u64, live: &[PackRange]) -> io::Result<()> {
        let mut file: Option<OwnedFd> = None;
        let mut at = PACK_MAGIC.len() as u64;
        let end = PackRange { offset: pack_len, len: 0 };
        for PackRange { offset, len } in live.iter().copied().chain([end]) {
            let dead = at.next_multiple_of(BLOCK_BYTES)..offset / BLOCK_BYTES * BLOCK_BYTES;
            at = at.max(offset.saturating_add(len));
            if dead.start >= dead.end {
                continue;
            }
            let open = match file.take() {
                Some(open) => open,
                None => open_file(store.within(StoreFolder::Packs)?, name)?,
            };
            if has_data(open.as_fd(), &dead)? {
                self.bytes += dead.end - dead.start;
                self.holes.push((name.to_owned(), dead));
            }
            file = Some(open);
        }
        Ok(())
    }

    fn find_contents(&mut self, store: &Store, live: &Live) -> io::Result<()> {
        let contents = store.within(StoreFolder::Content)?;
        for prefix in names(contents, ".")? {
            let folder = open_folder(contents, &prefix)?;
            for name in names(folder.as_fd(), ".")? {
                let id = half_of_name(&name);
                if id.is_some_and(|id| live.own.has(&id)) {
                    continue;
                }
                let stat = rustix::fs::statat(&folder, &name, AtFlags::SYMLINK_NOFOLLOW)?;
                self.bytes += stat.st_blocks as u64 * 512;
                self.contents.push((prefix.clone(), name));
            }
        }
        Ok(())
    }
}

fn half_of_name(name: &str) -> Option<[u8; 16]> {
    let value = u128::from_str_radix(name.get(..32)?, 16).ok()?;
    Some(value.to_be_bytes())
}

fn has_data(file: BorrowedFd<'_>, range: &Range<u64>) -> io::Result<bool> {
    match rustix::fs::seek(file, SeekFrom::Data(range.start)) {
        Ok(data) => Ok(data < range.end),
        Err(Errno::NXIO) => Ok(false),
        // The file system cannot tell.
        Err(Errno::INVAL) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Carries out a plan, except for emptying the trash.
///
/// # Errors
/// If the list cannot be published; nothing is removed then. If an object cannot be moved; the next collection
/// finds it again.
pub fn collect_garbage(writer: &mut Writer<'_>, plan: &Plan, by: &str) -> Result<Collected, SnapshotError> {
    let gone: BTreeSet<SnapshotId> = plan.snapshots.iter().copied().collect();
    if !gone.is_empty() {
        let mut roots = writer.roots.clone();
        roots.snapshots.retain(|snapshot| !gone.contains(&snapshot.id));
        let jobs: BTreeSet<&str> = roots.snapshots.iter().map(|snapshot| snapshot.job.as_str()).collect();
        roots.rules.retain(|job, _| jobs.contains(job.as_str()));
        roots.collections += 1;
        writer.commit_by(roots, audit_log::COLLECT, by, &plan.snapshots)?;
    }
    if plan.damaged_records > 0 {
        return Ok(Collected::Damaged);
    }
    let failed = || io_error("move to the trash in", writer.store.path());
    let Some(_alone) = lock_out_readers(writer.store.dir()).map_err(failed())? else {
        return Ok(Collected::Later);
    };
    writer.check()?;
    plan.discard_all(&writer.store).map_err(failed())?;
    Ok(Collected::All)
}

impl Plan {
    /// Moves whole objects to the trash, and frees ranges of packs.
    fn discard_all(&self, store: &Store) -> io::Result<()> {
        let [packs, contents, trash] =
            [StoreFolder::Packs, StoreFolder::Content, StoreFolder::Trash].map(|folder| store.within(folder));
        let (packs, contents, trash) = (packs?, contents?, trash?);
        self.packs.iter().try_for_each(|name| discard(packs, name, trash))?;
        for of_folder in self.contents.chunk_by(|(one, _), (next, _)| one == next) {
            let folder = open_folder(contents, &of_folder[0].0)?;
            of_folder.iter().try_for_each(|(_, name)| discard(folder.as_fd(), name, trash))?;
        }
        self.holes.iter().try_for_each(|(name, hole)| punch(packs, name, hole))
    }
}

/// Moves an object to the trash, or removes it at once if a full file system has no room for its name there.
fn discard(dir: BorrowedFd<'_>, name: &str, trash: BorrowedFd<'_>) -> io::Result<()> {
    match rustix::fs::renameat(dir, name, trash, name) {
        Err(Errno::NOSPC | Errno::DQUOT) => Ok(rustix::fs::unlinkat(dir, name, AtFlags::empty())?),
        moved => Ok(moved?),
    }
}

/// Frees a range of a pack, if the file system can, and has room to note that.
fn punch(packs: BorrowedFd<'_>, name: &str, hole: &Range<u64>) -> io::Result<()> {
    let file = open_own(packs, name, OFlags::WRONLY)?;
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(&file, flags, hole.start, hole.end - hole.start) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::NOSPC | Errno::DQUOT) => Ok(()),
        result => Ok(result?),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_kept_once_however_often_they_come() {
        let mut marks = MarkSet::default();
        for round in 0..50_u32 {
            (0..FEW_MARKS as u32 / 2).for_each(|mark| marks.push(mark * 2 + round % 2));
        }
        assert!(marks.marks.capacity() < 3 * FEW_MARKS, "{}", marks.marks.capacity());
        let mut both = MarkSet::default();
        both.push(7);
        both.merge(marks);
        both.settle();
        assert_eq!(both.marks.len(), FEW_MARKS);
        assert!(both.has(&0) && both.has(&1) && !both.has(&(FEW_MARKS as u32)));
    }

    #[test]
    fn a_name_has_the_first_half_of_its_id() {
        let id = [0xab; 32];
        assert_eq!(half_of_name(&crate::hash::ContentId(id).to_string()), Some(half(&id)));
        assert_eq!(half_of_name("ab.part"), None);
    }
}
