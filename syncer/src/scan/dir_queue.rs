//! Directories that a scan has found and not yet read.

use std::{io, os::fd::OwnedFd, sync::Arc};

use parking_lot::{Condvar, Mutex};
use rustix::fs::OFlags;

use crate::{
    entry::Kind,
    filter::Rules,
    listing::Listing,
    measure::thread_time::{Activity, during},
    path::RelPath,
    path_list::PathList,
    sys::root::{Root, open_child},
    tree::{
        dir::{Beyond, DirId},
        seek::seek,
    },
};

/// The way in which a worker opens a directory.
pub(super) enum At {
    Open(OwnedFd),
    Below(Arc<OwnedFd>),
    /// By its path, as the directory above was not opened.
    Path,
}

/// A directory that was found and is to be read.
pub(super) struct PendingDir {
    pub id: DirId,
    pub at: At,
    pub path: RelPath,
    /// The rules of the ignore files above it.
    pub rules: Option<Arc<Rules>>,
    /// The only paths below it that are scanned.
    pub paths: Option<PathList>,
    /// Where it is, seen from the root.
    pub beyond: Beyond,
    /// Its number in an earlier scan.
    pub known: Option<DirId>,
}

/// The directory that a worker reads next.
pub(super) struct NextDir {
    pub dir: PendingDir,
    /// The number of directories that are left.
    pub left: usize,
}

/// Directories that were found and not yet read. Last in, first out, to bound the open descriptors.
pub(super) struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

struct QueueState {
    stack: Vec<PendingDir>,
    busy: usize,
    waiting: usize,
    next_id: DirId,
    root_error: Option<io::Error>,
}

impl Queue {
    pub(super) fn new(root: PendingDir) -> Self {
        let state = QueueState { stack: vec![root], busy: 0, waiting: 0, next_id: 1, root_error: None };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Takes the next directory; returns `None` when all have been read.
    pub(super) fn pop(&self) -> Option<NextDir> {
        let mut state = self.state.lock();
        loop {
            if let Some(dir) = state.stack.pop() {
                state.busy += 1;
                return Some(NextDir { dir, left: state.stack.len() });
            }
            if state.busy == 0 {
                return None;
            }
            state.waiting += 1;
            during(Activity::Idle, || self.changed.wait(&mut state));
            state.waiting -= 1;
        }
    }

    /// Records why the root cannot be read.
    pub(super) fn fail(&self, error: io::Error) {
        self.state.lock().root_error = Some(error);
    }

    /// Takes the error of the root.
    pub(super) fn take_error(&self) -> Option<io::Error> {
        self.state.lock().root_error.take()
    }

    /// Reserves `count` consecutive numbers for new directories.
    pub(super) fn number(&self, count: u32) -> DirId {
        let mut state = self.state.lock();
        let first = state.next_id;
        state.next_id += count;
        first
    }

    /// Ends the work on one directory, whose subdirectories are `found`.
    pub(super) fn done(&self, found: impl Iterator<Item = PendingDir>) {
        let mut state = self.state.lock();
        state.stack.extend(found);
        state.busy -= 1;
        if state.waiting > 0 && (state.busy == 0 || !state.stack.is_empty()) {
            self.changed.notify_all();
        }
    }
}

/// Opens a directory below `root` to read its names.
pub(super) fn open(work: &PendingDir, root: &Root) -> io::Result<OwnedFd> {
    match &work.at {
        At::Open(fd) => Ok(fd.try_clone()?),
        At::Below(parent) => {
            let name = work.path.names().last().unwrap_or(b".");
            open_child(parent, name, OFlags::RDONLY)
        }
        At::Path => root.read_dir(&work.path),
    }
}

/// Returns the subdirectories in a listing, numbered from `first`, each opened as `at` says.
pub(super) fn subdirectories(
    path: &RelPath,
    at: impl Fn() -> At,
    listing: &Listing,
    first: DirId,
    rules: Option<&Arc<Rules>>,
) -> Vec<PendingDir> {
    if listing.dirs() == 0 {
        return Vec::new();
    }
    let dirs = listing.iter().filter(|entry| entry.kind == Kind::Dir);
    dirs.zip(first..)
        .filter_map(|(entry, id)| {
            let path = path.join(entry.name).ok()?;
            let rules = rules.cloned();
            Some(PendingDir {
                id,
                at: at(),
                path,
                rules,
                paths: None,
                beyond: Beyond::default(),
                known: None,
            })
        })
        .collect()
}

/// Limits subdirectories, which are in the order of their names, to the listed paths in them.
pub(super) fn limit(dirs: &mut [PendingDir], paths: &PathList) {
    let mut names = paths.names().peekable();
    for dir in dirs {
        let Some(name) = dir.path.names().last() else { continue };
        dir.paths = seek(&mut names, name, |(listed, _)| listed).and_then(|(_, below)| below);
    }
}
