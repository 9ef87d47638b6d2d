//! Reads the directories of a scan, one after the other, on each of its workers.

use std::{
    ffi::CStr,
    io,
    mem::MaybeUninit,
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
};

use rustix::io::Errno;

use crate::{
    attrs::UNREADABLE,
    entry::{Entry, Kind},
    entry_paths::EntryPlace,
    filter::{InUse, Rules},
    lead_hard_links::Shared,
    listing::{Listing, ListingBuilder, SpillingBuilder},
    measure::{failures::Failures, monitor::Monitor},
    owners::Owners,
    path::OWN_DIR,
    path_list::PathList,
    scan::{
        dir_queue::{At, NextDir, PendingDir, Queue, limit, open, subdirectories},
        ignore_files::Rulebook,
        join_workers::WorkerTree,
        options::ScanOptions,
        read_entry::{Beside, Lookup, NamedEntry, Scratch},
        read_names::Names,
        reuse_earlier::{KnownDir, KnownTree, Stamped},
    },
    sys::{read_xattrs::AttrReader, root::Root, spill_to_file::Spool},
    tree::{
        dir::{Beyond, Dir, DirId, ROOT},
        seek::seek,
        stamps::Stamps,
    },
};

/// The rules of a folder where another file system is mounted: the destination's entries in it stay.
const ALL_STAYS: &[u8] = b"*\n";

const DIRENTS_BYTES: usize = 32 << 10;

/// A scan in progress, shared by its workers.
pub(super) struct Walk<'a> {
    pub root: &'a Root,
    pub known: KnownTree<'a>,
    pub options: &'a ScanOptions,
    pub failures: &'a Failures,
    pub monitor: &'a Monitor,
    pub queue: Queue,
    pub lookup: Lookup<'a>,
    pub patterns: InUse,
}

impl Walk<'_> {
    /// Reads directories until there are none left. Calls `has_more` while others are waiting to be read.
    pub(super) fn work(&self, attrs: AttrReader, has_more: &mut dyn FnMut()) -> WorkerTree {
        let mut part = WorkerTree::default();
        let mut buffer = vec![MaybeUninit::uninit(); DIRENTS_BYTES];
        let mut names = Names::default();
        let mut attrs = attrs.marking_unreadable(self.options.unreadable_attrs);
        while let Some(NextDir { dir: work, left }) = self.queue.pop() {
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
        if work.beyond.file_system && self.options.leave_mounts {
            return self.leave_mount(work, part);
        }
        if let Some(KnownDir { dir, changed: None }) = self.known_dir(work) {
            return self.list_unchanged(work, dir, part);
        }
        let read =
            open(work, self.root).and_then(|fd| self.read_names(work, &fd, buffer, names).map(|()| fd));
        let fd = match read {
            Ok(fd) => fd,
            Err(error) => return self.give_up(work, error, part),
        };
        attrs.enter(fd.as_fd());
        let Some(Rulebook { rules, text }) = self.rulebook(work, &fd, names) else {
            return self.leave_unread(work, part);
        };
        let (totals, shared) = (part.totals, part.shared.len());
        let listed = self.list(work, &fd, names, rules.as_deref(), attrs, part);
        let DirNames { listing, leaves_out, owners, stamps, inodes, elsewhere } = match listed {
            Ok(listed) => listed,
            Err(error) => {
                // Its entries are not listed, so they are not counted either.
                part.totals = totals;
                part.shared.truncate(shared);
                return self.give_up(work, error, part);
            }
        };
        let (digest, inode) = (listing.digest(), rustix::fs::fstat(&fd).map_or(0, |stat| stat.st_ino));
        let first_child = self.queue_below(work, fd, &listing, rules.as_ref(), &elsewhere, part);
        part.totals.entries += listing.len() as u64;
        part.owners.merge(owners);
        let (beyond, bytes, seen) = (work.beyond, part.totals.bytes - totals.bytes, Stamps::unknown());
        let mut dir = Dir {
            listing,
            first_child,
            digest,
            rules: text,
            leaves_out,
            inode,
            beyond,
            stamps,
            inodes,
            bytes,
            seen,
        };
        // Other names of one file, and the stamps below, are only known at the end of the scan.
        if self.options.stamps.is_some() && dir.listing.dirs() == 0 && part.shared.len() == shared {
            dir.seen = dir.stamps_with(std::iter::empty());
        }
        part.dirs.push((work.id, dir));
    }

    /// Queues the directories of a listing of `fd`, those `elsewhere` with what they are on. Returns the first one's
    /// number.
    fn queue_below(
        &self,
        work: &PendingDir,
        fd: OwnedFd,
        listing: &Listing,
        rules: Option<&Arc<Rules>>,
        elsewhere: &[(usize, Beyond)],
        part: &mut WorkerTree,
    ) -> DirId {
        let first = self.queue.number(listing.dirs());
        let fd = Arc::new(fd);
        let at = || At::Below(Arc::clone(&fd));
        let mut below = subdirectories(&work.path, at, listing, first, rules);
        self.recognise(work, &mut below);
        elsewhere.iter().for_each(|(nth, beyond)| below[*nth].beyond = *beyond);
        work.paths.iter().for_each(|paths| limit(&mut below, paths));
        self.queue_all(work, below, part);
        first
    }

    /// Finds a directory in the earlier scan.
    fn known_dir(&self, work: &PendingDir) -> Option<KnownDir<'_>> {
        Some(self.known.scan?.dir(work.known?))
    }

    /// Lists a directory as it was scanned before.
    fn list_unchanged(&self, work: &PendingDir, before: &Dir, part: &mut WorkerTree) {
        let listing = before.listing.clone();
        let first_child = self.queue.number(listing.dirs());
        let mut below = subdirectories(&work.path, || At::Path, &listing, first_child, None);
        self.recognise(work, &mut below);
        self.queue_all(work, below, part);
        part.totals.entries += listing.len() as u64;
        part.totals.bytes += before.bytes;
        let Dir { inode, beyond, bytes, .. } = *before;
        let (digest, seen) = match listing.dirs() {
            0 => (before.digest, before.seen),
            _ => (listing.digest(), Stamps::unknown()),
        };
        let (stamps, inodes) = (before.stamps.clone(), before.inodes.clone());
        let dir = Dir {
            listing,
            first_child,
            digest,
            inode,
            beyond,
            stamps,
            inodes,
            seen,
            bytes,
            ..Dir::default()
        };
        part.dirs.push((work.id, dir));
    }

    /// Finds subdirectories in the earlier scan, if it has the directory.
    fn recognise(&self, work: &PendingDir, below: &mut [PendingDir]) {
        if let (Some(known), Some(id)) = (self.known.scan, work.known) {
            known.recognise(id, below);
        }
    }

    /// Queues the directories `below` the one of this `work`, which is done, and counts those that are mounts.
    fn queue_all(&self, work: &PendingDir, below: Vec<PendingDir>, part: &mut WorkerTree) {
        part.has_mounts |= below.iter().any(|dir| !dir.beyond.is_nothing());
        let is_mount = |dir: &&PendingDir| dir.beyond.file_system && !work.beyond.file_system;
        below.iter().filter(is_mount).for_each(|dir| part.mounts.add(dir.path.clone()));
        self.queue.done(below.into_iter());
    }

    /// Returns the entries of the files of a directory that were written since the earlier scan.
    fn written(&self, work: &PendingDir) -> impl Iterator<Item = Stamped<'_>> {
        let files = self.known.written.map(|written| written.files(&work.path));
        files.into_iter().flatten().map(|(name, file)| {
            let stamp = self.options.stamps.map_or(0, |before| file.stamp_before(before));
            Stamped { entry: file.entry(name), stamp, inode: 0 }
        })
    }

    /// Lists a folder on another file system as empty, so that nothing in it is sent or deleted.
    fn leave_mount(&self, work: &PendingDir, part: &mut WorkerTree) {
        let listing = ListingBuilder::default().finish();
        let (digest, first_child) = (listing.digest(), self.queue.number(0));
        let (rules, leaves_out) = (ALL_STAYS.into(), true);
        part.dirs.push((work.id, Dir { listing, first_child, digest, rules, leaves_out, ..Dir::default() }));
        self.queue.done(std::iter::empty());
    }

    /// Reads the names of a directory, or takes them from the listed paths or from the earlier scan.
    fn read_names(
        &self,
        work: &PendingDir,
        fd: &OwnedFd,
        buffer: &mut [MaybeUninit<u8>],
        names: &mut Names,
    ) -> io::Result<()> {
        let known = self.known_dir(work).and_then(KnownDir::listing_of_names);
        match (&work.paths, known) {
            (Some(paths), _) => {
                let asked: Vec<&[u8]> = paths.names().map(|(name, _)| name).collect();
                names.take_asked(&asked, fd, buffer, self.monitor)?;
            }
            (None, Some(listing)) => names.take(listing.iter().map(|entry| entry.name)),
            (None, None) => names.read(fd, buffer, self.monitor)?,
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
            _ if error.kind() == io::ErrorKind::NotFound => self.failures.add_gone_dir(&work.path, &error),
            _ => self.failures.add(&work.path, "read directory", &error),
        }
        self.leave_unread(work, part);
    }

    fn leave_unread(&self, work: &PendingDir, part: &mut WorkerTree) {
        let mut builder = ListingBuilder::default();
        builder.mark_incomplete();
        let first_child = self.queue.number(0);
        // A run that may not read it may still recognise it, and give itself the rights.
        let inode =
            self.root.dir(&work.path).and_then(|dir| Ok(rustix::fs::fstat(&dir)?.st_ino)).unwrap_or(0);
        part.dirs.push((work.id, Dir { listing: builder.finish(), first_child, inode, ..Dir::default() }));
        self.queue.done(std::iter::empty());
    }

    fn rulebook(&self, work: &PendingDir, fd: &OwnedFd, names: &Names) -> Option<Rulebook> {
        let book = Rulebook::of_dir(work, fd, names, self.options, &self.patterns);
        book.map_err(|unread| unread.report(&work.path, self.failures)).ok()
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
        let mut known = self.known_dir(work).map(KnownDir::entries);
        let mut written = self.written(work).peekable();
        let (mut made, mut scratch) = (DirLister::default(), Scratch::default());
        let mut listed = work.paths.iter().flat_map(PathList::names);
        for name in names.iter() {
            self.monitor.check()?;
            let below = listed.next().and_then(|(_, below)| below);
            if work.id == ROOT && (name.to_bytes() == OWN_DIR || !self.takes(name)) {
                continue;
            }
            if names.is_unlisted(name) {
                self.miss(work, name, below.as_ref(), Errno::NOENT);
                continue;
            }
            let unchanged = known.as_mut().and_then(|known| known.unchanged(name.to_bytes()));
            let reused = unchanged.or_else(|| seek(&mut written, name.to_bytes(), |file| file.entry.name));
            if let Some(reused) = reused {
                made.reuse(&reused, part)?;
                continue;
            }
            match self.lookup.entry(work, fd, name, rules, attrs, &mut scratch) {
                Ok(NamedEntry::Entry(entry, ..)) if below.is_some() && entry.kind != Kind::Dir => {
                    self.miss(work, name, below.as_ref(), Errno::NOTDIR);
                }
                Ok(NamedEntry::Entry(entry, identity, beside)) => {
                    if let Some((device, inode)) = identity {
                        let place = EntryPlace { dir: work.id, index: made.builder.len() };
                        part.shared.push(Shared { device, inode, place });
                    }
                    let stamp = self.options.stamps.map(|_| beside.stamp);
                    made.add(&entry, &beside, stamp, part)?;
                }
                Ok(NamedEntry::Socket) => part.totals.skipped += 1,
                Ok(NamedEntry::Excluded) => made.leave_out(self.options.marks_excluded),
                Ok(NamedEntry::Gone | NamedEntry::Hidden) if work.paths.is_some() => {
                    self.miss(work, name, below.as_ref(), Errno::NOENT);
                }
                Ok(NamedEntry::Gone | NamedEntry::Hidden) => {}
                Err(error) => {
                    made.builder.mark_incomplete();
                    self.report(work, name, &error);
                }
            }
        }
        if work.paths.is_some() {
            made.builder.mark_incomplete();
        }
        made.finish()
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

/// The entries of a directory, while they are read.
#[derive(Default)]
struct DirLister {
    builder: SpillingBuilder<Spool>,
    /// Whether entries are excluded from the run.
    leaves_out: bool,
    owners: Owners,
    /// One for each entry, if stamps are taken.
    stamps: Vec<u64>,
    /// As many.
    inodes: Vec<u32>,
    /// The directories on other file systems or mounts than the root, as indices among the listing's directories.
    elsewhere: Vec<(usize, Beyond)>,
    dirs: usize,
}

/// Shares a list. The empty one, that of each directory of a usual scan, costs no memory.
fn shared<T>(list: Vec<T>) -> Arc<[T]> {
    if list.is_empty() { Arc::default() } else { list.into() }
}

impl DirLister {
    /// Notes that an entry is left out, which `marks` the listing as incomplete where that matters.
    fn leave_out(&mut self, marks: bool) {
        self.leaves_out = true;
        if marks {
            self.builder.mark_incomplete();
        }
    }

    /// Adds an entry of an earlier scan.
    fn reuse(&mut self, reused: &Stamped<'_>, part: &mut WorkerTree) -> io::Result<()> {
        let Stamped { entry, stamp, inode } = reused;
        part.totals.bytes += if let Kind::File { size } = entry.kind { size } else { 0 };
        self.dirs += usize::from(entry.kind == Kind::Dir);
        self.stamps.push(*stamp);
        self.inodes.push(*inode);
        self.builder.push(entry)
    }

    /// Adds an entry that was read.
    fn add(
        &mut self,
        entry: &Entry<'_>,
        beside: &Beside,
        stamp: Option<u64>,
        part: &mut WorkerTree,
    ) -> io::Result<()> {
        if let Kind::File { size } = entry.kind {
            part.totals.bytes += size;
            part.totals.sparse = part.totals.sparse.saturating_add(beside.sparse);
        }
        if entry.kind == Kind::Dir {
            self.elsewhere.extend((!beside.beyond.is_nothing()).then_some((self.dirs, beside.beyond)));
            self.dirs += 1;
        }
        part.has_unstorable |= entry.kind == Kind::Socket || entry.attrs.has(UNREADABLE);
        self.owners.add(entry.meta.owner, u64::from(entry.kind != Kind::Socket));
        part.totals.newest = part.totals.newest.max(entry.meta.mtime.of_the_file());
        if let Some(stamp) = stamp {
            self.stamps.push(stamp);
            self.inodes.push(beside.inode);
        }
        self.builder.push(entry)
    }

    fn finish(self) -> io::Result<DirNames> {
        let Self { builder, leaves_out, owners, stamps, inodes, elsewhere, .. } = self;
        let (listing, stamps, inodes) = (builder.finish()?, shared(stamps), shared(inodes));
        Ok(DirNames { listing, leaves_out, owners, stamps, inodes, elsewhere })
    }
}

/// The entries of a directory.
struct DirNames {
    listing: Listing,
    leaves_out: bool,
    owners: Owners,
    stamps: Arc<[u64]>,
    inodes: Arc<[u32]>,
    elsewhere: Vec<(usize, Beyond)>,
}
