//! Walks a directory tree in parallel and builds its listings and digests. Never writes.
//!
//! It reads directories by descriptor (`openat`, `getdents64`, `statx` with only the fields needed). An unreadable
//! entry is reported and does not stop the walk.

mod dir_queue;
mod ignore_files;
mod join_workers;
pub(crate) mod lost_found;
mod options;
mod read_entry;
mod read_names;
mod reuse_earlier;
mod stamp;
mod walker;

use std::{
    ffi::CStr,
    io,
    mem::MaybeUninit,
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
    thread::Scope,
};

use contract::Side;
use parking_lot::Mutex;
use rustix::{
    fs::{AtFlags, FileType, RawDir, SeekFrom},
    time::{ClockId, clock_gettime},
};

use crate::{
    entry::{FullMeta, Time},
    filter::{InUse, Rules},
    measure::{
        failures::Failures,
        monitor::Monitor,
        thread_time::{Activity, EffortPool, ThreadGroup, during},
    },
    path::{OWN_DIR, RelPath},
    scan::{
        dir_queue::{At, PendingDir, Queue},
        join_workers::{WorkerTree, assemble, combine_stamps},
        read_entry::{Lookup, meta_of, stat},
        walker::Walk,
    },
    sys::{
        cores::cores,
        read_xattrs::{self, AttrReader},
        root::Root,
    },
    tree::{
        Tree,
        dir::{Beyond, ROOT},
    },
};
pub(crate) use options::ScanOptions;
pub(crate) use reuse_earlier::{
    ChangedEntries, EarlierScan, KnownTree, WrittenEntries, WrittenEntry, WrittenNames,
};
pub(crate) use stamp::stamp_of_stat;

/// A folder with at most this many entries and no subfolders is scanned by the calling thread.
const FEW_ENTRIES: usize = 16;

/// A buffer of this many bytes has space for nearly all names of [`FEW_ENTRIES`] entries.
const FEW_DIRENTS_BYTES: usize = 1 << 10;

/// Walks the tree below `root`. Unreadable entries go to `failures`, and their directory is marked incomplete.
///
/// # Errors
/// If the root itself cannot be read; `ECANCELED` if the monitor was told to stop.
pub(crate) fn scan(
    root: &Root,
    options: &ScanOptions,
    failures: &Failures,
    monitor: &Monitor,
) -> io::Result<Tree> {
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
    let now = clock_gettime(ClockId::RealtimeCoarse);
    let since = Time { seconds: now.tv_sec, nanos: now.tv_nsec as u32 };
    let fd = root.read_dir(&RelPath::root())?;
    let is_few = has_few_entries(&fd)?;
    let root_stat = stat(&fd, c"", AtFlags::EMPTY_PATH)?;
    let root_attrs = read_xattrs::of_open(fd.as_fd(), options.attrs)?;
    let root_meta = meta_of(&root_stat, options, root_attrs.as_attrs());
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
            rules: options.merges.clone().map(|merges| Arc::new(Rules::of_run(merges))),
            paths: options.paths.clone(),
            beyond: Beyond::default(),
            known: known.scan.map(|_| ROOT),
        }),
        lookup: Lookup::below(root, &root_stat, options),
        patterns: InUse::default(),
    };
    let side = if options.is_source { Side::Source } else { Side::Sink };
    let crew = Crew { walk: &walk, pool: monitor.pool(side, ThreadGroup::Workers), parts: Mutex::default() };
    if is_few {
        crew.work_alone();
    } else {
        // The calling thread keeps its working directory; see `AttrReader::new`.
        std::thread::scope(|scope| scope.spawn(|| crew.work(0, scope)).join())
            .map_err(|_| io::Error::other("a scanning thread failed"))?;
    }
    let parts = crew.parts.into_inner();
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
    tree.root_attrs = root_attrs;
    Ok(tree)
}

/// Reads the metadata and the attributes of the root, as [`scan`] does, and nothing below it.
///
/// # Errors
/// If they cannot be read.
pub(crate) fn scan_root(root: &Root, options: &ScanOptions) -> io::Result<FullMeta> {
    let fd = root.read_dir(&RelPath::root())?;
    let attrs = read_xattrs::of_open(fd.as_fd(), options.attrs)?;
    let meta = meta_of(&stat(&fd, c"", AtFlags::EMPTY_PATH)?, options, attrs.as_attrs());
    Ok(FullMeta { meta, attrs })
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

/// The threads of a walk. Each starts the next one when directories are waiting besides the one that it reads, so a
/// small tree takes one thread.
struct Crew<'a> {
    walk: &'a Walk<'a>,
    pool: EffortPool<'a>,
    parts: Mutex<Vec<WorkerTree>>,
}

impl Crew<'_> {
    fn work<'s>(&'s self, nth: usize, scope: &'s Scope<'s, '_>) {
        let mut next = Some(nth + 1);
        let part = self.pool.run(Activity::Reading, || {
            self.walk.work(AttrReader::new(self.walk.options.attrs), &mut || {
                // The number of cores takes files to read, so it is asked for where another worker is wanted.
                if let Some(next) = next.take().filter(|next| *next < cores()) {
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
        self.parts.lock().push(part);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::io::Errno;

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
