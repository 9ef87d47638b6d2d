//! Takes a snapshot of a scanned tree into a store elsewhere.
//!
//! 1. [`plan_offsite`] compares the tree with the last snapshot of the job there.
//! 2. [`OffsiteReader`] reads all that may differ into the store.
//! 3. [`read_until_settled`] does both again if files were moved meanwhile.
//! 4. New directories follow, from the leaves to the root.
//! 5. The store makes the snapshot visible.

use std::io;

use contract::{Phase, Reason, Work};

use super::{
    compare_with_base::plan_offsite,
    offsite_store::{ChangeRoots, OffsiteStore},
    read_for_offsite::{NotRead, OffsiteReader},
};
use crate::{
    entry::{Entry, Kind},
    entry_paths::EntryPlace,
    failures::Failures,
    listing::EntryIndex,
    monitor::Monitor,
    path::RelPath,
    snapshot::{
        create::{
            EarlierReads, ListedFiles, LiveFile, LocatedFile, MadeSnapshot, Making, PlannedFolders,
            ScannedTree, SettledTree, Slot, WantedFile, assemble, digest_of, path_of, read_until_settled,
            record, seen_of,
        },
        store::{
            ContentRef, Engine, FolderRef, Labels, ObjectRef, Purpose, Snapshot, SnapshotError, SnapshotId,
            io_error,
        },
    },
    tree::{Tree, dir::ROOT, stamps::IN_MOTION},
};

/// A snapshot begins again after so many prunes by others that removed what it needs.
const MAX_BEGINNINGS: usize = 8;

/// In place of the stamp of a file that was quiet when it was read. A stamp itself means nothing to another volume.
const QUIET: u64 = 1;

/// The place of a directory that is found by its id.
const NO_PLACE: ObjectRef = ObjectRef { pack: 0, offset: 0, len: 0 };

/// What is asked for.
pub(crate) struct OffsiteWork<'a> {
    pub source: &'a ScannedTree<'a>,
    pub labels: Labels,
    /// Whether all files are read, whatever the last snapshot says of them.
    pub reads_all: bool,
    pub failures: &'a Failures,
    pub monitor: &'a Monitor,
}

/// Takes a snapshot. Counts what was read in `work`, and tells each phase that begins. Unreadable files go to the
/// failures, and their directories are marked incomplete.
///
/// # Errors
/// If the store cannot be read or written to, or the run is told to stop.
pub(crate) fn take_offsite(
    of: &OffsiteWork<'_>,
    store: &mut dyn OffsiteStore,
    change: &mut ChangeRoots<'_>,
    enter: &mut dyn FnMut(Phase),
    work: &mut Work,
) -> Result<Snapshot, SnapshotError> {
    of.labels.check()?;
    let id = SnapshotId::random().map_err(io_error("make an id for", "the snapshot"))?;
    let (before, nothing, failures) = (store.written(), *work, of.failures.so_far());
    for _ in 0..MAX_BEGINNINGS {
        of.failures.go_back_to(&failures);
        let base = last_of_job(store, &of.labels.job).cloned();
        let SettledTree { again, planned } =
            read_until_settled(of.source, of.failures, of.monitor, &mut |source, earlier| {
                *work = nothing;
                enter(Phase::Plan);
                let mut planned =
                    plan_offsite(source.tree, base.as_ref(), of.reads_all, &earlier.written_anew, store)?;
                enter(Phase::Transfer);
                read_contents(of, source, earlier, &mut planned, store, work)?;
                Ok(planned)
            })?;
        let source = of.source.seen_again(again.as_ref());
        let sums = planned.sums(&source.tree.totals);
        let tree = add_folders(source.tree, planned, store)?;
        store.finish()?;
        enter(Phase::Commit);
        let added_bytes = store.written() - before;
        let made = MadeSnapshot { tree, root_meta: source.root_meta, sums, added_bytes, is_new: true };
        let snapshot = record(id, of.source, of.labels.clone(), Engine::Copy, &made, of.failures);
        if store.publish(&snapshot, change)? {
            return Ok(snapshot);
        }
    }
    let message =
        "others keep removing snapshots there, so that this one cannot be finished: run again".into();
    let reason = Reason::ObjectStoreLost;
    Err(SnapshotError::Offsite { exit: reason.exit(), reason, message })
}

/// Returns the newest snapshot that runs of this job took: files are compared with it.
pub(crate) fn last_of_job<'s>(store: &'s dyn OffsiteStore, job: &str) -> Option<&'s Snapshot> {
    let is_own = |it: &&Snapshot| it.job == job && it.purpose == Purpose::AfterRun;
    store.roots().snapshots.iter().filter(is_own).max_by_key(|it| it.taken)
}

/// Reads the files that may differ, unless earlier looks have.
fn read_contents(
    of: &OffsiteWork<'_>,
    source: &ScannedTree<'_>,
    earlier: &EarlierReads,
    planned: &mut PlannedFolders,
    store: &mut dyn OffsiteStore,
    work: &mut Work,
) -> Result<(), SnapshotError> {
    expect(of.monitor, source.tree, planned);
    let terms = source.terms().map_err(io_error("look at", "the source"))?;
    let mut reader = OffsiteReader::new(terms, of.monitor);
    let listed = ListedFiles::new(source.tree, source.root, earlier);
    for making in &mut planned.making {
        let dir = &source.tree.dirs[making.dir as usize];
        let mut index = EntryIndex::of(&dir.listing);
        let mut opened = None;
        for at in 0..making.slots.len() {
            let Slot::Wanted(WantedFile { index: nth, old, .. }) = making.slots[at] else { continue };
            let Some(entry) = index.from(nth).next() else { continue };
            let place = EntryPlace { dir: making.dir, index: nth };
            let stamp = dir.stamps.get(nth as usize).copied().unwrap_or(0);
            let read = match listed.find(&making.path, entry.name, place, &mut opened) {
                Ok(LocatedFile::Read(live)) => Ok(live),
                Ok(LocatedFile::Open(file)) => reader.read(store, file, stamp),
                Err(error) => Err(NotRead::File(error)),
            };
            let size = if let Kind::File { size } = entry.kind { size } else { 0 };
            planned.grown -= size as i64;
            making.slots[at] = match read {
                Ok(live) => {
                    planned.grown += live.len as i64;
                    count(of, work, &live, old, &path_of(making, &entry));
                    Slot::Read(Box::new(live))
                }
                Err(NotRead::File(error)) => {
                    planned.left_out += 1;
                    not_read(of, making, &entry, &error)
                }
                Err(NotRead::Store(error)) => return Err(error),
            };
        }
    }
    planned.displaced = listed.displaced();
    Ok(())
}

fn not_read(of: &OffsiteWork<'_>, making: &Making, entry: &Entry<'_>, error: &io::Error) -> Slot {
    if error.kind() == io::ErrorKind::NotFound {
        return Slot::Gone;
    }
    of.failures.add(&path_of(making, entry), "read", error);
    Slot::Failed
}

/// Tells the monitor how much there is to read.
fn expect(monitor: &Monitor, tree: &Tree, planned: &PlannedFolders) {
    let (mut files, mut bytes) = (0, 0);
    for making in &planned.making {
        let listed = &tree.dirs[making.dir as usize].listing;
        let entries = listed.iter().filter(|entry| entry.kind.has_content());
        for (entry, _) in entries.zip(&making.slots).filter(|(_, slot)| matches!(slot, Slot::Wanted(_))) {
            if let Kind::File { size } = entry.kind {
                (files, bytes) = (files + 1, bytes + size);
            }
        }
    }
    // What an attempt before has read counts as well.
    let done = monitor.snapshot();
    monitor.set_totals(done.files + files, done.bytes + bytes);
}

/// Counts a file that was read.
fn count(of: &OffsiteWork<'_>, work: &mut Work, live: &LiveFile, old: Option<ContentRef>, path: &RelPath) {
    of.monitor.add_files(1);
    of.monitor.add_bytes(live.len);
    if live.kept_changing {
        of.failures.add_in_motion(path);
    }
    match old {
        Some(old) if live.content.is_some_and(|content| content.id == old.id) => return,
        Some(_) => work.files_updated += 1,
        None => work.files_created += 1,
    }
    work.bytes_changed += live.len;
}

/// Passes on the new directories, the deepest ones first, and returns the root.
fn add_folders(
    tree: &Tree,
    planned: PlannedFolders,
    store: &mut dyn OffsiteStore,
) -> Result<FolderRef, SnapshotError> {
    let PlannedFolders { making, mut there, .. } = planned;
    for making @ Making { dir, .. } in making.iter().rev() {
        let scanned = &tree.dirs[*dir as usize];
        let first = scanned.first_child as usize;
        let below = there.get(first..first + scanned.listing.dirs() as usize).unwrap_or_default();
        let children = below.iter().flatten().map(|child| FolderRef { place: NO_PLACE, ..*child }).collect();
        let mut folder = assemble(&scanned.listing, children, making);
        for stamp in folder.stamps.iter_mut().filter(|stamp| ![0, IN_MOTION].contains(*stamp)) {
            *stamp = QUIET;
        }
        let id = store.add_folder(&folder)?;
        there[*dir as usize] =
            Some(FolderRef { id, place: NO_PLACE, digest: digest_of(&folder), seen: seen_of(&folder) });
    }
    there[ROOT as usize].ok_or_else(|| SnapshotError::Elsewhere("the tree has no root".into()))
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{BTreeMap, BTreeSet, HashMap},
        fs,
        path::Path,
        time::SystemTime,
    };

    use rustix::fs::{XattrFlags, setxattr};

    use super::*;
    use crate::{
        attrs::Attrs,
        entry::FullMeta,
        hash::ContentId,
        kept_xattrs::Classes,
        root::Root,
        scan::{ScanOptions, scan},
        snapshot::{
            check::ReadPace,
            copy::ContentPiece,
            offsite::{JudgeRoots, ReceiveOldFolder, RemovedSnapshots, VerifiedShare, quiet_before},
            store::{Folder, FolderId, Roots},
            typed_time::time_of,
        },
    };

    /// A store in memory.
    #[derive(Default)]
    struct MemoryStore {
        roots: Roots,
        folders: HashMap<FolderId, Folder>,
        contents: HashMap<ContentId, Vec<u8>>,
        arriving: Vec<u8>,
    }

    impl OffsiteStore for MemoryStore {
        fn roots(&self) -> &Roots {
            &self.roots
        }
        fn old_folders(&mut self, _: &[FolderId], _: &mut ReceiveOldFolder<'_>) -> Result<(), SnapshotError> {
            Ok(())
        }
        fn has_folder(&self, _: FolderId) -> bool {
            false
        }
        fn has_content(&self, _: ContentId, _: u64) -> bool {
            false
        }
        fn begin_content(&mut self, _: u64) {
            self.arriving.clear();
        }
        fn add_piece(&mut self, piece: ContentPiece<'_>) -> Result<(), SnapshotError> {
            if let ContentPiece::Data(bytes) = piece {
                self.arriving.extend_from_slice(bytes);
            }
            Ok(())
        }
        fn end_content(&mut self) -> Result<ContentId, SnapshotError> {
            let id = ContentId::of(&self.arriving);
            self.contents.insert(id, self.arriving.clone());
            Ok(id)
        }
        fn add_folder(&mut self, folder: &Folder) -> Result<FolderId, SnapshotError> {
            self.folders.insert(folder.id(), folder.clone());
            Ok(folder.id())
        }
        fn finish(&mut self) -> Result<(), SnapshotError> {
            Ok(())
        }
        fn written(&self) -> u64 {
            0
        }
        fn publish(&mut self, _: &Snapshot, _: &mut ChangeRoots<'_>) -> Result<bool, SnapshotError> {
            Ok(true)
        }
        fn remove(&mut self, _: &JudgeRoots<'_>) -> Result<RemovedSnapshots, SnapshotError> {
            Ok(RemovedSnapshots { snapshots: BTreeSet::new(), bytes: 0 })
        }
        fn verify(&mut self, _: u64, _: &ReadPace<'_>) -> Result<VerifiedShare, SnapshotError> {
            Err(SnapshotError::Elsewhere("nothing is checked".into()))
        }
    }

    impl MemoryStore {
        /// Adds the entries of a folder: content, or the path of the first name, and the value of attributes.
        fn add_entries(&self, folder: FolderId, above: &str, entries: &mut BTreeMap<String, String>) {
            for row in self.folders[&folder].rows() {
                let path = format!("{above}{}", String::from_utf8_lossy(row.entry.name));
                let content = row.content.map_or(&[][..], |(content, _)| &self.contents[&content.id]);
                let text = match row.entry.kind {
                    Kind::HardLink { to } => format!("->{}", String::from_utf8_lossy(to)),
                    _ => String::from_utf8_lossy(content).into_owned(),
                };
                entries.insert(path.clone(), text + &values(row.entry.attrs));
                row.child.iter().for_each(|child| self.add_entries(child.id, &format!("{path}/"), entries));
            }
        }
    }

    fn values(attrs: Attrs<'_>) -> String {
        attrs.iter().map(|(_, value)| String::from_utf8_lossy(value).into_owned()).collect()
    }

    /// Changes a folder after its scan and before it is read.
    #[test]
    fn files_that_are_moved_or_replaced_after_the_scan_arrive_as_they_are() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        ["a", "b", "z"].iter().for_each(|name| fs::create_dir(path(name)).unwrap());
        let write = |name: &str, content: &str| fs::write(path(name), content).unwrap();
        for (name, content) in [("b/file", "moved"), ("first", "old"), ("gone", "gone"), ("with", "old")] {
            write(name, content);
        }
        fs::hard_link(path("first"), path("z/other")).unwrap();
        let set = |at: &Path| setxattr(at, "user.of", b" of old", XattrFlags::empty()).unwrap();
        set(&path("with"));
        let (root, monitor, failures) =
            (Root::open(dir.path()).unwrap(), Monitor::default(), Failures::default());
        let began = time_of(SystemTime::now());
        let options = ScanOptions {
            hard_links: true,
            attrs: Classes::ALL,
            stamps: Some(quiet_before(began)),
            ..ScanOptions::default()
        };
        let tree = scan(&root, &options, &failures, &monitor).unwrap();
        let root_meta = FullMeta { meta: tree.root_meta, attrs: tree.root_attrs.clone() };
        let source =
            ScannedTree { tree: &tree, options: &options, root_meta, root: &root, began, written: None };
        fs::rename(path("b/file"), path("a/file")).unwrap();
        fs::remove_file(path("gone")).unwrap();
        for name in ["first", "with"] {
            write("temporary", "new");
            fs::rename(path("temporary"), path(name)).unwrap();
        }
        let labels = Labels::default();
        let of =
            OffsiteWork { source: &source, labels, reads_all: false, failures: &failures, monitor: &monitor };
        let (mut store, mut work) = (MemoryStore::default(), Work::default());
        let made = take_offsite(&of, &mut store, &mut |_| Ok(()), &mut |_| {}, &mut work).unwrap();
        let mut entries = BTreeMap::new();
        store.add_entries(made.tree.id, "", &mut entries);
        let entries: Vec<_> = entries.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let now = [
            ("a", ""),
            ("a/file", "moved"),
            ("b", ""),
            ("first", "new"),
            ("with", "new"),
            ("z", ""),
            ("z/other", "old"),
        ];
        assert_eq!(entries, now);
        assert_eq!((made.entries, made.bytes, failures.count()), (7, 14, 0));
        assert_eq!((work.files_created, work.bytes_changed), (4, 14));
    }
}
