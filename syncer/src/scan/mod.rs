//! Walks a directory tree in parallel and builds its listings and digests. Never writes.
//!
//! It reads directories by descriptor (`openat`, `getdents64`, `statx` with only the fields needed). An unreadable
//! entry is reported and does not stop the walk.

mod names;

use std::{
    ffi::CStr,
    fs::File,
    io::{self, Read as _},
    mem::MaybeUninit,
    os::fd::{AsFd as _, OwnedFd},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, Stat, Statx, StatxFlags},
    io::Errno,
    time::{ClockId, clock_gettime},
};

use crate::{
    attrs::{Attrs, AttrsBuf, Classes},
    cores::cores,
    entry::{Entry, Kind, MAX_TARGET_BYTES, Meta, Owner, Time},
    filter::{Filter, SizeLimits},
    hash::TreeDigest,
    links::{EntryPlace, Shared, group},
    listing::{Listing, ListingBuilder, SpillingBuilder},
    monitor::Monitor,
    owners::Owners,
    path::{OWN_DIR, RelPath},
    path_list::PathList,
    report::Failures,
    root::{Root, open_child},
    rules::{IGNORE_FILES, InUse, MAX_RULES_BYTES, Rules},
    spool::Spool,
    stat::{changed, in_doubt},
    tree::{
        Tree,
        dir::{Dir, DirId, Mounts, ROOT, Totals},
    },
    xattr::AttrReader,
};
use names::Names;

/// The rules of a folder where another file system is mounted: whatever the destination has in it stays.
const ALL_STAYS: &[u8] = b"*\n";

const DIRENTS_BYTES: usize = 32 << 10;

/// The fields of an [`Entry`], and the time that decides whether it is in doubt.
const FIELDS: StatxFlags = StatxFlags::TYPE
    .union(StatxFlags::MODE)
    .union(StatxFlags::UID)
    .union(StatxFlags::GID)
    .union(StatxFlags::INO)
    .union(StatxFlags::NLINK)
    .union(StatxFlags::MTIME)
    .union(StatxFlags::CTIME)
    .union(StatxFlags::SIZE)
    .union(StatxFlags::BLOCKS);

/// The longest block of a file system, in bytes.
pub(crate) const LARGEST_BLOCK_BYTES: u64 = 64 << 10;

/// Whether a file of `size` bytes has holes, by its `blocks` of 512 bytes.
pub(crate) fn has_holes(size: u64, blocks: u64) -> bool {
    const PAGE: u64 = 4096;
    size > PAGE && blocks.saturating_mul(512).saturating_add(PAGE) <= size
}

/// Decides how a scan looks at a tree.
#[derive(Debug, Default)]
pub struct ScanOptions {
    /// The entries to exclude.
    pub filter: Filter,
    /// The only entry of the root that is scanned, by its name.
    pub only: Option<Box<[u8]>>,
    /// The only paths that are scanned. A directory above them is incomplete.
    pub paths: Option<PathList>,
    /// Read ignore files, and exclude their matches.
    pub ignore_files: bool,
    /// List folders of other file systems than the root's as empty, with rules that exclude everything in them.
    pub leave_mounts: bool,
    /// Leave modes out of the comparison.
    pub ignore_permissions: bool,
    /// Leave out pipes, devices and sockets.
    pub ignore_specials: bool,
    /// List sockets, which are otherwise counted and left out.
    pub list_sockets: bool,
    /// Find the names that are hard links of one another.
    pub hard_links: bool,
    /// Files of other sizes are listed, but never as hard links.
    pub sizes: SizeLimits,
    /// The extended attributes to read.
    pub attrs: Classes,
    /// Files that were changed at this time or later get a time that no file has, because their content may be damaged.
    pub doubt: Option<Time>,
    /// List the `user.*` attributes of unreadable files without values. Otherwise such a file is an error.
    pub unreadable_attrs: bool,
    /// Take stamps of regular files that were last changed before this time. A file keeps its stamp until its inode or
    /// its content changes; 0 is no stamp.
    pub stamps: Option<Time>,
}

/// Walks the tree below `root`. Unreadable entries go to `failures`, and their directory is marked incomplete.
///
/// # Errors
/// If the root itself cannot be read; `ECANCELED` if the monitor was told to stop.
pub fn scan(root: &Root, options: &ScanOptions, failures: &Failures, monitor: &Monitor) -> io::Result<Tree> {
    let since = clock_gettime(ClockId::RealtimeCoarse).tv_sec;
    let fd = root.read_dir(&RelPath::root())?;
    let root_stat = stat(&fd, c"", AtFlags::EMPTY_PATH)?;
    let root_meta = meta_of(&root_stat, options);
    let walk = Walk {
        options,
        failures,
        monitor,
        queue: Queue::new(Work {
            id: ROOT,
            at: At::Open(fd),
            path: RelPath::root(),
            rules: None,
            paths: options.paths.clone(),
            is_elsewhere: false,
        }),
        device: device_of(&root_stat),
        patterns: InUse::default(),
        own: own_folder(root),
    };
    let workers = cores();
    // Reading attributes may change a thread's working directory, so the scan starts all of its threads.
    let (parts, root_attrs) = std::thread::scope(|scope| {
        let root = scope.spawn(|| walk.root_attrs(root));
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(|| walk.work())).collect();
        let parts: Vec<WorkerTree> = workers.into_iter().filter_map(|worker| worker.join().ok()).collect();
        (parts, root.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into())))
    });
    if let Some(error) = walk.queue.lock().root_error.take() {
        return Err(error);
    }
    monitor.check()?;
    let mut tree = assemble(parts)?;
    (tree.since, tree.root_meta) = (since, root_meta);
    tree.totals.newest = tree.totals.newest.max(root_meta.mtime);
    tree.root_attrs = root_attrs?;
    Ok(tree)
}

/// The results of one worker.
#[derive(Default)]
struct WorkerTree {
    dirs: Vec<(DirId, Dir)>,
    totals: Totals,
    mounts: Mounts,
    owners: Owners,
    shared: Vec<Shared>,
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

/// How a worker opens a directory.
enum At {
    Open(OwnedFd),
    Below(Arc<OwnedFd>),
}

struct Work {
    id: DirId,
    at: At,
    path: RelPath,
    /// The rules of the ignore files above it.
    rules: Option<Arc<Rules>>,
    /// The only paths below it that are scanned.
    paths: Option<PathList>,
    /// It is on another file system than the root.
    is_elsewhere: bool,
}

/// Directories that were found and not yet read. Last in, first out, to bound the open descriptors.
struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

struct QueueState {
    stack: Vec<Work>,
    busy: usize,
    waiting: usize,
    next_id: DirId,
    root_error: Option<io::Error>,
}

impl Queue {
    fn new(root: Work) -> Self {
        let state = QueueState { stack: vec![root], busy: 0, waiting: 0, next_id: 1, root_error: None };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next directory; `None` when all have been read.
    fn pop(&self) -> Option<Work> {
        let mut state = self.lock();
        loop {
            if let Some(work) = state.stack.pop() {
                state.busy += 1;
                return Some(work);
            }
            if state.busy == 0 {
                return None;
            }
            state.waiting += 1;
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
    }

    /// Reserves `count` consecutive numbers for new directories.
    fn number(&self, count: u32) -> DirId {
        let mut state = self.lock();
        let first = state.next_id;
        state.next_id += count;
        first
    }

    /// Ends the work on one directory, whose subdirectories are `found`.
    fn done(&self, found: impl Iterator<Item = Work>) {
        let mut state = self.lock();
        state.stack.extend(found);
        state.busy -= 1;
        if state.waiting > 0 && (state.busy == 0 || !state.stack.is_empty()) {
            self.changed.notify_all();
        }
    }
}

struct Walk<'a> {
    options: &'a ScanOptions,
    failures: &'a Failures,
    monitor: &'a Monitor,
    queue: Queue,
    /// The root's file system.
    device: u64,
    patterns: InUse,
    /// The inode of Volferry's own folder.
    own: Option<u64>,
}

impl Walk<'_> {
    fn work(&self) -> WorkerTree {
        let mut part = WorkerTree::default();
        let mut buffer = vec![MaybeUninit::uninit(); DIRENTS_BYTES];
        let mut names = Names::default();
        let mut attrs = AttrReader::new(self.options.attrs).marking_unreadable(self.options.unreadable_attrs);
        while let Some(work) = self.queue.pop() {
            if self.monitor.cancelled() {
                self.queue.done(std::iter::empty());
                continue;
            }
            self.visit(&work, &mut buffer, &mut names, &mut attrs, &mut part);
        }
        part
    }

    fn root_attrs(&self, root: &Root) -> io::Result<AttrsBuf> {
        let mut reader =
            AttrReader::new(self.options.attrs).marking_unreadable(self.options.unreadable_attrs);
        let fd = root.read_dir(&RelPath::root())?;
        reader.enter(fd.as_fd());
        let mut attrs = Vec::new();
        reader.read(c".", &mut attrs)?;
        Ok(Attrs::trusted(&attrs).into())
    }

    fn visit(
        &self,
        work: &Work,
        buffer: &mut [MaybeUninit<u8>],
        names: &mut Names,
        attrs: &mut AttrReader,
        part: &mut WorkerTree,
    ) {
        if work.is_elsewhere && self.options.leave_mounts {
            return self.leave_mount(work, part);
        }
        let read = open(work).and_then(|fd| self.read_names(work, &fd, buffer, names).map(|()| fd));
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
                    // Its entries are not listed, and so not counted.
                    part.totals = totals;
                    part.shared.truncate(shared);
                    return self.give_up(work, error, part);
                }
            };
        let first_child = self.queue.number(listing.dirs());
        let digest = listing.digest();
        let inode = rustix::fs::fstat(&fd).map_or(0, |stat| stat.st_ino);
        let fd = Arc::new(fd);
        let mut below = subdirectories(&work.path, &fd, &listing, first_child, rules.as_ref());
        elsewhere.iter().for_each(|nth| below[*nth].is_elsewhere = true);
        work.paths.iter().for_each(|paths| limit(&mut below, paths));
        if !work.is_elsewhere {
            elsewhere.iter().for_each(|nth| part.mounts.add(below[*nth].path.clone()));
        }
        self.queue.done(below.into_iter());
        part.totals.entries += listing.len() as u64;
        part.owners.merge(owners);
        let is_elsewhere = work.is_elsewhere;
        let dir = Dir { listing, first_child, digest, rules: text, leaves_out, inode, is_elsewhere, stamps };
        part.dirs.push((work.id, dir));
    }

    /// Lists a folder of another file system as empty, so that nothing of it is sent, and nothing at its place deleted.
    fn leave_mount(&self, work: &Work, part: &mut WorkerTree) {
        let listing = ListingBuilder::default().finish();
        let (digest, first_child) = (listing.digest(), self.queue.number(0));
        let (rules, leaves_out) = (ALL_STAYS.into(), true);
        part.dirs.push((work.id, Dir { listing, first_child, digest, rules, leaves_out, ..Dir::default() }));
        self.queue.done(std::iter::empty());
    }

    /// Reads the names of a directory, or takes those that are listed.
    fn read_names(
        &self,
        work: &Work,
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

    /// Gives an unreadable directory an empty, incomplete listing. After a cancelled scan nobody sees it.
    fn give_up(&self, work: &Work, error: io::Error, part: &mut WorkerTree) {
        if self.monitor.cancelled() {
            return self.queue.done(std::iter::empty());
        }
        match work.id {
            ROOT => self.queue.lock().root_error = Some(error),
            _ => self.failures.add(&work.path, "read directory", &error),
        }
        self.leave_unread(work, part);
    }

    fn leave_unread(&self, work: &Work, part: &mut WorkerTree) {
        let mut builder = ListingBuilder::default();
        builder.mark_incomplete();
        let first_child = self.queue.number(0);
        part.dirs.push((work.id, Dir { listing: builder.finish(), first_child, ..Dir::default() }));
        self.queue.done(std::iter::empty());
    }

    /// Reads the rules for a directory's entries. An unreadable ignore file is an error that names it.
    fn rulebook(
        &self,
        work: &Work,
        fd: &OwnedFd,
        names: &Names,
    ) -> Result<Rulebook, (&'static [u8], io::Error)> {
        let mut text = Vec::new();
        if self.options.ignore_files {
            for name in
                IGNORE_FILES.into_iter().filter(|name| work.paths.is_some() || names.may_contain(name))
            {
                read_rules(fd, name, &mut text).map_err(|error| (name, error))?;
            }
        }
        if text.is_empty() {
            return Ok(Rulebook { rules: work.rules.clone(), text: Box::default() });
        }
        let rules = Rules::new(work.rules.clone(), &work.path, &text, &self.patterns);
        let rules = rules.map_err(|error| (IGNORE_FILES[0], io::Error::other(error)))?;
        Ok(Rulebook { rules: Some(Arc::new(rules)), text: text.into() })
    }

    /// Treats a directory with unknown rules as unreadable, because they may hide entries that nobody else shall see.
    fn leave_out(&self, work: &Work, name: &[u8], error: &io::Error, part: &mut WorkerTree) {
        let path = work.path.join(name).unwrap_or_else(|_| work.path.clone());
        self.failures.add(&path, "read ignore file", error);
        self.leave_unread(work, part);
    }

    fn list(
        &self,
        work: &Work,
        fd: &OwnedFd,
        names: &Names,
        rules: Option<&Rules>,
        attrs: &mut AttrReader,
        part: &mut WorkerTree,
    ) -> io::Result<DirNames> {
        let mut stamps = Vec::new();
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
            match self.entry(work, fd, name, rules, attrs, &mut scratch) {
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
    fn miss(&self, work: &Work, name: &CStr, below: Option<&PathList>, error: Errno) {
        let error = io::Error::from(error);
        match below {
            Some(below) => below.paths().iter().for_each(|path| self.failures.add(path, "read", &error)),
            None => self.report(work, name, &error),
        }
    }

    /// Whether an entry of the root with this name takes part.
    fn takes(&self, name: &CStr) -> bool {
        self.options.only.as_ref().is_none_or(|only| **only == *name.to_bytes())
    }

    fn entry<'b>(
        &self,
        work: &Work,
        fd: &OwnedFd,
        name: &'b CStr,
        rules: Option<&Rules>,
        attrs: &mut AttrReader,
        scratch: &'b mut Scratch,
    ) -> io::Result<NamedEntry<'b>> {
        let stat = match stat(fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(NamedEntry::Gone),
            result => result?,
        };
        let file_type = FileType::from_raw_mode(stat.stx_mode.into());
        // If the file system folds case, another name may also lead to this folder.
        if work.id == ROOT && file_type == FileType::Directory && self.own == Some(stat.stx_ino) {
            return Ok(NamedEntry::Own);
        }
        if self.options.filter.excludes(&work.path, name.to_bytes(), file_type == FileType::Directory) {
            return Ok(NamedEntry::Excluded);
        }
        if let (Some(rules), Ok(path)) = (rules, work.path.join(name.to_bytes()))
            && rules.excludes(&path, file_type == FileType::Directory)
        {
            return Ok(NamedEntry::Excluded);
        }
        let rdev = || rustix::fs::makedev(stat.stx_rdev_major, stat.stx_rdev_minor);
        let kind = match file_type {
            FileType::RegularFile => Kind::File { size: stat.stx_size },
            FileType::Directory if work.path.join(name.to_bytes()).is_err() => {
                return Err(Errno::NAMETOOLONG.into());
            }
            FileType::Directory => Kind::Dir,
            FileType::Symlink => {
                scratch.target = read_link(fd, name)?;
                Kind::Symlink { target: &scratch.target }
            }
            FileType::Socket if !self.options.list_sockets => return Ok(NamedEntry::Socket),
            FileType::Fifo | FileType::CharacterDevice | FileType::BlockDevice | FileType::Socket
                if self.options.ignore_specials =>
            {
                return Ok(NamedEntry::Excluded);
            }
            FileType::Fifo => Kind::Fifo,
            FileType::CharacterDevice => Kind::CharDevice { rdev: rdev() },
            FileType::BlockDevice => Kind::BlockDevice { rdev: rdev() },
            FileType::Socket => Kind::Socket,
            FileType::Unknown => return Ok(NamedEntry::Socket),
        };
        if kind != Kind::Socket {
            attrs.read(name, &mut scratch.attrs)?;
        }
        let mut meta = meta_of(&stat, self.options);
        if matches!(kind, Kind::File { .. }) && self.is_doubtful(&stat) {
            meta.mtime = in_doubt(meta.mtime);
        }
        let entry = Entry { name: name.to_bytes(), kind, meta, attrs: Attrs::trusted(&scratch.attrs) };
        let may_share = self.options.hard_links && stat.stx_nlink > 1 && !self.options.sizes.exclude(kind);
        let identity = (may_share && !matches!(kind, Kind::Dir | Kind::Socket))
            .then(|| (device_of(&stat), stat.stx_ino));
        let stamp = self.options.stamps.filter(|_| matches!(kind, Kind::File { .. }));
        let stamp = stamp.map_or(0, |before| stamp_of(&stat, before));
        let sparse = match has_holes(stat.stx_size, stat.stx_blocks) {
            true => stat.stx_size.saturating_add(LARGEST_BLOCK_BYTES),
            false => 0,
        };
        let is_elsewhere = kind == Kind::Dir && device_of(&stat) != self.device;
        Ok(NamedEntry::Entry(entry, identity, Beside { stamp, sparse, is_elsewhere }))
    }

    fn is_doubtful(&self, stat: &Statx) -> bool {
        let changed = Time { seconds: stat.stx_ctime.tv_sec, nanos: stat.stx_ctime.tv_nsec };
        self.options.doubt.is_some_and(|since| changed >= since)
    }

    fn report(&self, work: &Work, name: &CStr, error: &io::Error) {
        let path = work.path.join(name.to_bytes()).unwrap_or_else(|_| work.path.clone());
        self.failures.add(&path, "read", error);
    }
}

/// The entries of a directory.
struct DirNames {
    listing: Listing,
    /// Some entries are excluded from the run.
    leaves_out: bool,
    owners: Owners,
    /// One for each entry, if stamps are taken.
    stamps: Box<[u64]>,
    /// The directories on other file systems than the root, as indices among the listing's directories.
    elsewhere: Vec<usize>,
}

/// Buffers for an entry's parts of any length.
#[derive(Default)]
struct Scratch {
    target: Vec<u8>,
    attrs: Vec<u8>,
}

/// The rules for a directory, and the text of its own ignore files.
struct Rulebook {
    rules: Option<Arc<Rules>>,
    text: Box<[u8]>,
}

/// Limits subdirectories, which are in the order of their names, to the listed paths in them.
fn limit(dirs: &mut [Work], paths: &PathList) {
    let mut names = paths.names().peekable();
    for dir in dirs {
        let Some(name) = dir.path.names().last() else { continue };
        while names.next_if(|(listed, _)| *listed < name).is_some() {}
        dir.paths = names.next_if(|(listed, _)| *listed == name).and_then(|(_, below)| below);
    }
}

/// Appends the text of an ignore file. Only a regular file counts; a link is not followed, as in git.
fn read_rules(dir: &OwnedFd, name: &[u8], text: &mut Vec<u8>) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Err(Errno::LOOP | Errno::NOENT | Errno::NXIO) => return Ok(()),
        result => result?,
    };
    if FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode) != FileType::RegularFile {
        return Ok(());
    }
    let room = (MAX_RULES_BYTES - text.len()) as u64;
    File::from(fd).take(room).read_to_end(text)?;
    text.push(b'\n');
    match text.len() > MAX_RULES_BYTES {
        true => Err(io::Error::other(format!(
            "a folder's ignore files may have {MAX_RULES_BYTES} bytes together"
        ))),
        false => Ok(()),
    }
}

/// Returns the inode of Volferry's own folder in a root, if it has one.
fn own_folder(root: &Root) -> Option<u64> {
    let stat = rustix::fs::statat(root, OWN_DIR, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    Some(stat.st_ino)
}

/// Data of an entry that its listing does not contain.
struct Beside {
    /// See [`ScanOptions::stamps`]; 0 if none are taken.
    stamp: u64,
    /// Its part of [`Totals::sparse`].
    sparse: u64,
    /// A directory is on another file system than the root.
    is_elsewhere: bool,
}

enum NamedEntry<'a> {
    /// Volferry's own folder.
    Own,
    /// An entry; device and inode of one that may have other names; and further data.
    Entry(Entry<'a>, Option<(u64, u64)>, Beside),
    Socket,
    Excluded,
    Gone,
}

fn open(work: &Work) -> io::Result<OwnedFd> {
    match &work.at {
        At::Open(fd) => Ok(fd.try_clone()?),
        At::Below(parent) => {
            let name = work.path.names().last().unwrap_or(b".");
            open_child(parent, name, OFlags::RDONLY)
        }
    }
}

fn subdirectories(
    path: &RelPath,
    fd: &Arc<OwnedFd>,
    listing: &Listing,
    first: DirId,
    rules: Option<&Arc<Rules>>,
) -> Vec<Work> {
    if listing.dirs() == 0 {
        return Vec::new();
    }
    let dirs = listing.iter().filter(|entry| entry.kind == Kind::Dir);
    dirs.zip(first..)
        .filter_map(|(entry, id)| {
            let path = path.join(entry.name).ok()?;
            let at = At::Below(Arc::clone(fd));
            Some(Work { id, at, path, rules: rules.cloned(), paths: None, is_elsewhere: false })
        })
        .collect()
}

/// Asks for the state that any program sees. With `STATX_DONT_SYNC`, a network file system's client could answer from
/// an old cache.
fn stat(fd: &OwnedFd, name: &CStr, flags: AtFlags) -> Result<Statx, Errno> {
    rustix::fs::statx(fd, name, flags, FIELDS)
}

fn meta_of(stat: &Statx, options: &ScanOptions) -> Meta {
    let mtime = Time { seconds: stat.stx_mtime.tv_sec, nanos: stat.stx_mtime.tv_nsec };
    Meta {
        mode: if options.ignore_permissions { 0 } else { stat.stx_mode & 0o7777 },
        mtime,
        owner: Owner { uid: stat.stx_uid, gid: stat.stx_gid },
    }
}

/// Returns the stamp of an open file; see [`ScanOptions::stamps`].
pub(crate) fn stamp_of_stat(stat: &Stat, before: Time) -> u64 {
    let (major, minor) = (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    stamp(u64::from(major) << 32 | u64::from(minor), stat.st_ino, changed(stat), before)
}

fn stamp_of(stat: &Statx, before: Time) -> u64 {
    let changed = Time { seconds: stat.stx_ctime.tv_sec, nanos: stat.stx_ctime.tv_nsec };
    stamp(device_of(stat), stat.stx_ino, changed, before)
}

fn device_of(stat: &Statx) -> u64 {
    u64::from(stat.stx_dev_major) << 32 | u64::from(stat.stx_dev_minor)
}

/// Mixes device, inode and change time of a file into its stamp; 0 for one that was changed since `before`.
fn stamp(device: u64, inode: u64, changed: Time, before: Time) -> u64 {
    if changed >= before {
        return 0;
    }
    let parts = [device, inode, changed.seconds as u64, u64::from(changed.nanos)];
    parts.into_iter().fold(1, |mixed, part| mix(mixed ^ part)).max(1)
}

/// Mixes all bits of a word with one another; the constants are those of SplitMix64.
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

fn read_link(fd: &OwnedFd, name: &CStr) -> io::Result<Vec<u8>> {
    let target = rustix::fs::readlinkat(fd, name, Vec::with_capacity(128))?.into_bytes();
    if target.len() > MAX_TARGET_BYTES {
        return Err(Errno::NAMETOOLONG.into());
    }
    Ok(target)
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
