//! Walks a directory tree in parallel and builds its listings and digests. Never writes.
//!
//! It reads directories by descriptor (`openat`, `getdents64`, `statx` with only the fields needed). An unreadable
//! entry is reported and does not stop the walk.

mod earlier;
mod found;
mod ignore_files;
mod names;
mod options;
mod pending;
mod stamp;

use std::{
    ffi::CStr,
    io,
    mem::MaybeUninit,
    os::fd::{AsFd as _, OwnedFd},
    sync::{Arc, Mutex, PoisonError},
    thread::Scope,
};

use contract::Side;
use rustix::{
    fs::{AtFlags, FileType, RawDir, SeekFrom},
    io::Errno,
    time::{ClockId, clock_gettime},
};

use crate::{
    attrs::{Attrs, AttrsBuf, UNREADABLE},
    cores::cores,
    effort::{Activity, EffortPool, ThreadGroup, during},
    entry::{Entry, Kind, Meta},
    hash::TreeDigest,
    links::{EntryPlace, Shared, group},
    listing::{Listing, ListingBuilder, SpillingBuilder},
    monitor::Monitor,
    owners::Owners,
    path::{OWN_DIR, RelPath},
    path_list::PathList,
    report::Failures,
    root::Root,
    rules::{InUse, Rules},
    spool::Spool,
    tree::{
        Tree,
        dir::{Dir, DirId, Mounts, ROOT, Totals},
        seek::seek,
        stamps::Stamps,
    },
    xattr::AttrReader,
};
use earlier::KnownDir;
pub(crate) use earlier::{
    ChangedEntries, EarlierScan, KnownTree, WrittenEntries, WrittenEntry, WrittenNames,
};
pub(crate) use found::has_holes;
use found::{Lookup, NamedEntry, Scratch, meta_of, stat};
use ignore_files::Rulebook;
use names::Names;
pub use options::ScanOptions;
use pending::{At, PendingDir, Queue, limit, open, subdirectories};
pub(crate) use stamp::stamp_of_stat;

/// The rules of a folder where another file system is mounted: the destination's entries in it stay.
const ALL_STAYS: &[u8] = b"*\n";

const DIRENTS_BYTES: usize = 32 << 10;

/// A folder with at most this many entries and no subfolders is scanned by the calling thread.
const FEW_ENTRIES: usize = 16;

/// A buffer of this many bytes has space for nearly all names of [`FEW_ENTRIES`] entries.
const FEW_DIRENTS_BYTES: usize = 1 << 10;

/// Walks the tree below `root`. Unreadable entries go to `failures`, and their directory is marked incomplete.
///
/// # Errors
/// If the root itself cannot be read; `ECANCELED` if the monitor was told to stop.
pub fn scan(root: &Root, options: &ScanOptions, failures: &Failures, monitor: &Monitor) -> io::Result<Tree> {
    scan_changes(root, options, KnownTree::default(), failures, monitor)
}

/// Walks the tree as [`scan`] does, but takes unchanged directories and the entries of written files from `known`. They
/// are missing in the sums of owners, times and sparse files.
///
/// # Errors
/// The errors of [`scan`].
pub(crate) fn scan_changes(
    root: &Root,
    options: &ScanOptions,
    known: KnownTree<'_>,
    failures: &Failures,
    monitor: &Monitor,
) -> io::Result<Tree> {
    let since = clock_gettime(ClockId::RealtimeCoarse).tv_sec;
    let fd = root.read_dir(&RelPath::root())?;
    let is_few = has_few_entries(&fd)?;
    let root_stat = stat(&fd, c"", AtFlags::EMPTY_PATH)?;
    let root_meta = meta_of(&root_stat, options);
    let walk = Walk {
        root,
        known,
        options,
        failures,
        monitor,
        queue: Queue::new(PendingDir {
            id: ROOT,
            at: At::Open(fd),
            path: RelPath::root(),
            rules: None,
            paths: options.paths.clone(),
            is_elsewhere: false,
            known: known.scan.map(|_| ROOT),
        }),
        lookup: Lookup::below(root, &root_stat, options),
        patterns: InUse::default(),
    };
    let side = if options.is_source { Side::Source } else { Side::Sink };
    let crew = Crew { walk: &walk, pool: monitor.pool(side, ThreadGroup::Workers), parts: Mutex::default() };
    // The calling thread keeps its working directory; see `AttrReader::new`.
    let root_attrs = match is_few {
        true => {
            crew.work_alone();
            root_attrs(root, options, AttrReader::staying(options.attrs))
        }
        false => std::thread::scope(|scope| {
            let first = scope.spawn(|| {
                let attrs = root_attrs(root, options, AttrReader::new(options.attrs));
                crew.work(0, scope);
                attrs
            });
            first.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))
        }),
    };
    let parts = crew.parts.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(error) = walk.queue.take_error() {
        return Err(error);
    }
    monitor.check()?;
    let mut tree = assemble(parts)?;
    if options.stamps.is_some() {
        combine_stamps(&mut tree.dirs);
    }
    (tree.since, tree.root_meta) = (since, root_meta);
    tree.totals.newest = tree.totals.newest.max(root_meta.mtime);
    tree.root_attrs = root_attrs?;
    Ok(tree)
}

/// Reads the metadata and the attributes of the root, as [`scan`] does, and nothing below it.
///
/// # Errors
/// If they cannot be read.
pub(crate) fn scan_root(root: &Root, options: &ScanOptions) -> io::Result<(Meta, AttrsBuf)> {
    let meta = meta_of(&stat(&root.read_dir(&RelPath::root())?, c"", AtFlags::EMPTY_PATH)?, options);
    Ok((meta, root_attrs(root, options, AttrReader::staying(options.attrs))?))
}

/// Returns whether a directory has few entries and no subdirectories, as far as a listing shows it without reading each
/// entry. Such a tree is scanned before another thread would have started.
fn has_few_entries(dir: &OwnedFd) -> io::Result<bool> {
    let mut buffer = [MaybeUninit::uninit(); FEW_DIRENTS_BYTES];
    let mut entries = RawDir::new(dir, &mut buffer);
    let mut count = 0;
    let is_few = loop {
        match entries.next() {
            None => break true,
            Some(Ok(entry)) if count < FEW_ENTRIES && is_leaf(entry.file_type(), entry.file_name()) => {
                count += 1;
            }
            Some(_) => break false,
        }
    };
    rustix::fs::seek(dir, SeekFrom::Start(0))?;
    Ok(is_few)
}

fn is_leaf(file_type: FileType, name: &CStr) -> bool {
    let is_own = [&b"."[..], b"..", OWN_DIR].contains(&name.to_bytes());
    is_own || !matches!(file_type, FileType::Directory | FileType::Unknown)
}

/// Reads the root's attributes.
fn root_attrs(root: &Root, options: &ScanOptions, reader: AttrReader) -> io::Result<AttrsBuf> {
    let mut reader = reader.marking_unreadable(options.unreadable_attrs);
    let fd = root.read_dir(&RelPath::root())?;
    reader.enter(fd.as_fd());
    let mut attrs = Vec::new();
    reader.read(c".", &mut attrs)?;
    Ok(Attrs::trusted(&attrs).into())
}

/// The results of one worker.
#[derive(Default)]
struct WorkerTree {
    dirs: Vec<(DirId, Dir)>,
    totals: Totals,
    mounts: Mounts,
    owners: Owners,
    shared: Vec<Shared>,
    has_unstorable: bool,
}

fn assemble(parts: Vec<WorkerTree>) -> io::Result<Tree> {
    let count = parts.iter().map(|part| part.dirs.len()).sum();
    let mut tree = Tree::default();
    tree.dirs.resize_with(count, Dir::default);
    let mut shared = Vec::new();
    for part in parts {
        tree.totals.entries += part.totals.entries;
        tree.totals.bytes += part.totals.bytes;
        tree.totals.skipped += part.totals.skipped;
        tree.mounts.merge(part.mounts);
        tree.owners.merge(part.owners);
        tree.totals.sparse = tree.totals.sparse.saturating_add(part.totals.sparse);
        tree.totals.newest = tree.totals.newest.max(part.totals.newest);
        tree.has_unstorable |= part.has_unstorable;
        shared.extend(part.shared);
        for (id, dir) in part.dirs {
            tree.dirs[id as usize] = dir;
        }
    }
    let (groups, bytes) = group::<Spool>(&mut tree.dirs, shared)?;
    tree.groups = groups;
    tree.totals.bytes -= bytes;
    digest_upwards(&mut tree.dirs);
    Ok(tree)
}

/// Folds the digests of children into their parents'. Children have greater numbers, so walking backwards finds each of
/// them complete.
fn digest_upwards(dirs: &mut [Dir]) {
    for id in (0..dirs.len()).rev() {
        let children = dirs[id].listing.dirs() as usize;
        if children == 0 {
            continue;
        }
        let first = dirs[id].first_child as usize;
        let below: Vec<TreeDigest> = dirs[first..first + children].iter().map(|dir| dir.digest).collect();
        dirs[id].digest = dirs[id].digest.with_children(&below);
    }
}

/// Combines the stamps of directories with those of their children, where the walk has not.
fn combine_stamps(dirs: &mut [Dir]) {
    for id in (0..dirs.len()).rev() {
        if dirs[id].seen != Stamps::unknown() {
            continue;
        }
        let first = dirs[id].first_child as usize;
        let below = &dirs[first..first + dirs[id].listing.dirs() as usize];
        dirs[id].seen = dirs[id].stamps_with(below.iter().map(|dir| dir.seen));
    }
}

struct Walk<'a> {
    root: &'a Root,
    known: KnownTree<'a>,
    options: &'a ScanOptions,
    failures: &'a Failures,
    monitor: &'a Monitor,
    queue: Queue,
    lookup: Lookup<'a>,
    patterns: InUse,
}

/// The threads of a walk. Each starts the next one when directories are waiting besides the one that it reads, so a
/// small tree takes one thread.
struct Crew<'a> {
    walk: &'a Walk<'a>,
    pool: EffortPool<'a>,
    parts: Mutex<Vec<WorkerTree>>,
}

impl Crew<'_> {
    fn work<'s>(&'s self, nth: usize, scope: &'s Scope<'s, '_>) {
        let mut next = Some(nth + 1).filter(|next| *next < cores());
        let part = self.pool.run(Activity::Reading, || {
            self.walk.work(AttrReader::new(self.walk.options.attrs), &mut || {
                if let Some(next) = next.take() {
                    scope.spawn(move || self.work(next, scope));
                }
            })
        });
        self.add(part);
    }

    /// Walks on the calling thread, which keeps its working directory.
    fn work_alone(&self) {
        let attrs = AttrReader::staying(self.walk.options.attrs);
        self.add(during(Activity::Reading, || self.walk.work(attrs, &mut || {})));
    }

    fn add(&self, part: WorkerTree) {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).push(part);
    }
}

impl Walk<'_> {
    /// Reads directories until there are none left. Calls `has_more` while others are waiting to be read.
    fn work(&self, attrs: AttrReader, has_more: &mut dyn FnMut()) -> WorkerTree {
        let mut part = WorkerTree::default();
        let mut buffer = vec![MaybeUninit::uninit(); DIRENTS_BYTES];
        let mut names = Names::default();
        let mut attrs = attrs.marking_unreadable(self.options.unreadable_attrs);
        while let Some((work, left)) = self.queue.pop() {
            if left > 0 {
                has_more();
            }
            if self.monitor.cancelled() {
                self.queue.done(std::iter::empty());
                continue;
            }
            self.visit(&work, &mut buffer, &mut names, &mut attrs, &mut part);
        }
        part
    }

    fn visit(
        &self,
        work: &PendingDir,
        buffer: &mut [MaybeUninit<u8>],
        names: &mut Names,
        attrs: &mut AttrReader,
        part: &mut WorkerTree,
    ) {
        if work.is_elsewhere && self.options.leave_mounts {
            return self.leave_mount(work, part);
        }
        if let Some(KnownDir { dir, changed: None }) = self.known_dir(work) {
            return self.keep(work, dir, part);
        }
        let read =
            open(work, self.root).and_then(|fd| self.read_names(work, &fd, buffer, names).map(|()| fd));
        let fd = match read {
            Ok(fd) => fd,
            Err(error) => return self.give_up(work, error, part),
        };
        attrs.enter(fd.as_fd());
        let Rulebook { rules, text } = match self.rulebook(work, &fd, names) {
            Ok(book) => book,
            Err((name, error)) => return self.leave_out(work, name, &error, part),
        };
        let (totals, shared) = (part.totals, part.shared.len());
        let DirNames { listing, leaves_out, owners, stamps, elsewhere } =
            match self.list(work, &fd, names, rules.as_deref(), attrs, part) {
                Ok(listed) => listed,
                Err(error) => {
                    // Its entries are not listed, so they are not counted either.
                    part.totals = totals;
                    part.shared.truncate(shared);
                    return self.give_up(work, error, part);
                }
            };
        let first_child = self.queue.number(listing.dirs());
        let digest = listing.digest();
        let inode = rustix::fs::fstat(&fd).map_or(0, |stat| stat.st_ino);
        let fd = Arc::new(fd);
        let at = || At::Below(Arc::clone(&fd));
        let mut below = subdirectories(&work.path, at, &listing, first_child, rules.as_ref());
        self.recognise(work, &mut below);
        elsewhere.iter().for_each(|nth| below[*nth].is_elsewhere = true);
        work.paths.iter().for_each(|paths| limit(&mut below, paths));
        if !work.is_elsewhere {
            elsewhere.iter().for_each(|nth| part.mounts.add(below[*nth].path.clone()));
        }
        self.queue.done(below.into_iter());
        part.totals.entries += listing.len() as u64;
        part.owners.merge(owners);
        let is_elsewhere = work.is_elsewhere;
        let bytes = part.totals.bytes - totals.bytes;
        let mut dir = Dir {
            listing,
            first_child,
            digest,
            rules: text,
            leaves_out,
            inode,
            is_elsewhere,
            stamps,
            bytes,
            seen: Stamps::unknown(),
        };
        // Other names of one file, and the stamps below, are only known at the end of the scan.
        if self.options.stamps.is_some() && dir.listing.dirs() == 0 && part.shared.len() == shared {
            dir.seen = dir.stamps_with(std::iter::empty());
        }
        part.dirs.push((work.id, dir));
    }

    /// Finds a directory in the earlier scan.
    fn known_dir(&self, work: &PendingDir) -> Option<KnownDir<'_>> {
        Some(self.known.scan?.dir(work.known?))
    }

    /// Lists a directory as it was scanned before.
    fn keep(&self, work: &PendingDir, before: &Dir, part: &mut WorkerTree) {
        let listing = before.listing.clone();
        let first_child = self.queue.number(listing.dirs());
        let mut below = subdirectories(&work.path, || At::Path, &listing, first_child, None);
        self.recognise(work, &mut below);
        let is_mount = |below: &&PendingDir| below.is_elsewhere && !work.is_elsewhere;
        below.iter().filter(is_mount).for_each(|below| part.mounts.add(below.path.clone()));
        self.queue.done(below.into_iter());
        part.totals.entries += listing.len() as u64;
        part.totals.bytes += before.bytes;
        let Dir { inode, is_elsewhere, bytes, .. } = *before;
        let (digest, seen) = match listing.dirs() {
            0 => (before.digest, before.seen),
            _ => (listing.digest(), Stamps::unknown()),
        };
        let stamps = before.stamps.clone();
        let dir =
            Dir { listing, first_child, digest, inode, is_elsewhere, stamps, seen, bytes, ..Dir::default() };
        part.dirs.push((work.id, dir));
    }

    /// Returns the entries of the files of a directory that were written since the earlier scan, and their stamps.
    fn written(&self, work: &PendingDir) -> impl Iterator<Item = (Entry<'_>, u64)> {
        let files = self.known.written.map(|written| written.files(&work.path));
        files.into_iter().flatten().map(|(name, file)| {
            let stamp = self.options.stamps.map_or(0, |before| file.stamp_before(before));
            (file.entry(name), stamp)
        })
    }

    /// Finds subdirectories in the earlier scan, if it has the directory.
    fn recognise(&self, work: &PendingDir, below: &mut [PendingDir]) {
        if let (Some(known), Some(id)) = (self.known.scan, work.known) {
            known.recognise(id, below);
        }
    }

    /// Lists a folder on another file system as empty, so that nothing in it is sent or deleted.
    fn leave_mount(&self, work: &PendingDir, part: &mut WorkerTree) {
        let listing = ListingBuilder::default().finish();
        let (digest, first_child) = (listing.digest(), self.queue.number(0));
        let (rules, leaves_out) = (ALL_STAYS.into(), true);
        part.dirs.push((work.id, Dir { listing, first_child, digest, rules, leaves_out, ..Dir::default() }));
        self.queue.done(std::iter::empty());
    }

    /// Reads the names of a directory, or takes them from the listed paths.
    fn read_names(
        &self,
        work: &PendingDir,
        fd: &OwnedFd,
        buffer: &mut [MaybeUninit<u8>],
        names: &mut Names,
    ) -> io::Result<()> {
        match &work.paths {
            Some(paths) => names.take(paths.names().map(|(name, _)| name)),
            None => names.read(fd, buffer, self.monitor)?,
        }
        Ok(())
    }

    /// Gives an unreadable directory an empty, incomplete listing. After a stop it gets none, because the scan's result
    /// is not used.
    fn give_up(&self, work: &PendingDir, error: io::Error, part: &mut WorkerTree) {
        if self.monitor.cancelled() {
            return self.queue.done(std::iter::empty());
        }
        match work.id {
            ROOT => self.queue.fail(error),
            _ => self.failures.add(&work.path, "read directory", &error),
        }
        self.leave_unread(work, part);
    }

    fn leave_unread(&self, work: &PendingDir, part: &mut WorkerTree) {
        let mut builder = ListingBuilder::default();
        builder.mark_incomplete();
        let first_child = self.queue.number(0);
        part.dirs.push((work.id, Dir { listing: builder.finish(), first_child, ..Dir::default() }));
        self.queue.done(std::iter::empty());
    }

    fn rulebook(
        &self,
        work: &PendingDir,
        fd: &OwnedFd,
        names: &Names,
    ) -> Result<Rulebook, (&'static [u8], io::Error)> {
        match self.options.ignore_files {
            true => Rulebook::read(work, fd, names, &self.patterns),
            false => Ok(Rulebook::inherited(work)),
        }
    }

    /// Treats a directory with unknown rules as unreadable, because they may exclude entries that must stay private.
    fn leave_out(&self, work: &PendingDir, name: &[u8], error: &io::Error, part: &mut WorkerTree) {
        let path = work.path.join(name).unwrap_or_else(|_| work.path.clone());
        self.failures.add(&path, "read ignore file", error);
        self.leave_unread(work, part);
    }

    fn list(
        &self,
        work: &PendingDir,
        fd: &OwnedFd,
        names: &Names,
        rules: Option<&Rules>,
        attrs: &mut AttrReader,
        part: &mut WorkerTree,
    ) -> io::Result<DirNames> {
        let mut stamps = Vec::new();
        let mut known = self.known_dir(work).map(KnownDir::entries);
        let mut written = self.written(work).peekable();
        let mut builder = SpillingBuilder::<Spool>::default();
        let mut scratch = Scratch::default();
        let (mut leaves_out, mut owners) = (false, Owners::default());
        let (mut elsewhere, mut dirs) = (Vec::new(), 0);
        let mut listed = work.paths.iter().flat_map(PathList::names);
        for name in names.iter() {
            self.monitor.check()?;
            let below = listed.next().and_then(|(_, below)| below);
            if work.id == ROOT && (name.to_bytes() == OWN_DIR || !self.takes(name)) {
                continue;
            }
            let unchanged = known.as_mut().and_then(|known| known.unchanged(name.to_bytes()));
            let reused = unchanged.or_else(|| seek(&mut written, name.to_bytes(), |(file, _)| file.name));
            if let Some((entry, stamp)) = reused {
                part.totals.bytes += if let Kind::File { size } = entry.kind { size } else { 0 };
                dirs += usize::from(entry.kind == Kind::Dir);
                stamps.push(stamp);
                builder.push(&entry)?;
                continue;
            }
            match self.lookup.entry(work, fd, name, rules, attrs, &mut scratch) {
                Ok(NamedEntry::Entry(entry, ..)) if below.is_some() && entry.kind != Kind::Dir => {
                    self.miss(work, name, below.as_ref(), Errno::NOTDIR);
                }
                Ok(NamedEntry::Entry(entry, identity, beside)) => {
                    if let Some((device, inode)) = identity {
                        let place = EntryPlace { dir: work.id, index: builder.len() };
                        part.shared.push(Shared { device, inode, place });
                    }
                    if let Kind::File { size } = entry.kind {
                        part.totals.bytes += size;
                        part.totals.sparse = part.totals.sparse.saturating_add(beside.sparse);
                    }
                    if entry.kind == Kind::Dir {
                        elsewhere.extend(beside.is_elsewhere.then_some(dirs));
                        dirs += 1;
                    }
                    part.has_unstorable |= entry.kind == Kind::Socket || entry.attrs.has(UNREADABLE);
                    owners.add(entry.meta.owner, u64::from(entry.kind != Kind::Socket));
                    part.totals.newest = part.totals.newest.max(entry.meta.mtime);
                    if self.options.stamps.is_some() {
                        stamps.push(beside.stamp);
                    }
                    builder.push(&entry)?;
                }
                Ok(NamedEntry::Socket) => part.totals.skipped += 1,
                Ok(NamedEntry::Excluded) => leaves_out = true,
                Ok(NamedEntry::Gone) if work.paths.is_some() => {
                    self.miss(work, name, below.as_ref(), Errno::NOENT);
                }
                Ok(NamedEntry::Gone | NamedEntry::Own) => {}
                Err(error) => {
                    builder.mark_incomplete();
                    self.report(work, name, &error);
                }
            }
        }
        if work.paths.is_some() {
            builder.mark_incomplete();
        }
        let (listing, stamps) = (builder.finish()?, stamps.into());
        Ok(DirNames { listing, leaves_out, owners, stamps, elsewhere })
    }

    /// Reports that listed paths cannot be reached: the entry of this name, or those `below` it.
    fn miss(&self, work: &PendingDir, name: &CStr, below: Option<&PathList>, error: Errno) {
        let error = io::Error::from(error);
        match below {
            Some(below) => below.paths().iter().for_each(|path| self.failures.add(path, "read", &error)),
            None => self.report(work, name, &error),
        }
    }

    /// Returns whether an entry of the root with this name takes part.
    fn takes(&self, name: &CStr) -> bool {
        self.options.only.as_ref().is_none_or(|only| **only == *name.to_bytes())
    }

    fn report(&self, work: &PendingDir, name: &CStr, error: &io::Error) {
        let path = work.path.join(name.to_bytes()).unwrap_or_else(|_| work.path.clone());
        self.failures.add(&path, "read", error);
    }
}

/// The entries of a directory.
struct DirNames {
    listing: Listing,
    /// Whether entries are excluded from the run.
    leaves_out: bool,
    owners: Owners,
    /// One for each entry, if stamps are taken.
    stamps: Arc<[u64]>,
    /// The directories on other file systems than the root, as indices among the listing's directories.
    elsewhere: Vec<usize>,
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_scan_that_is_told_to_stop_looks_at_no_further_entry() {
        let dir = tempfile::tempdir().unwrap();
        for (folder, files) in [("one", 3000), ("two", 1000), ("three", 1000)] {
            fs::create_dir(dir.path().join(folder)).unwrap();
            (0..files).for_each(|n| fs::write(dir.path().join(format!("{folder}/{n}")), "").unwrap());
        }
        let root = Root::open(dir.path()).unwrap();
        let scan_with = |monitor: &Monitor, failures: &Failures| {
            scan(&root, &ScanOptions::default(), failures, monitor).map(|tree| tree.totals.entries)
        };
        let (whole, failures) = (Monitor::default(), Failures::default());
        assert_eq!(scan_with(&whole, &failures).unwrap(), 5003);
        assert!(whole.checks() >= 5003, "{} looks", whole.checks());
        for look in [1, 500, 2500, whole.checks() - 500] {
            let stopped = Monitor::canceled_at(look);
            let error = scan_with(&stopped, &failures).unwrap_err();
            assert_eq!(Errno::from_io_error(&error), Some(Errno::CANCELED));
            assert!(stopped.checks() <= look + 1 + cores() as u64, "{look}: {} looks", stopped.checks());
        }
        assert_eq!(failures.count(), 0, "what was not looked at has not failed");
    }
}
