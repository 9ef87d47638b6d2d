//! New directories of small files and nothing else: they are filled out of sight, which is quicker ([`StagedDir`]).

use std::{
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering::AcqRel},
    },
};

use crate::{
    apply::{Destination, StagedDir},
    entry::Kind,
    path::RelPath,
    session::plan::planned::PlannedDir,
    wire::MAX_PACKED_BYTES,
};

/// With fewer files the two moves of the directory cost more than they save.
const MIN_FILES: usize = 4;

/// Bounds the files and bytes of all directories that are filled at once: a run that is cut off loses them.
const MAX_FILES: usize = 4096;
const MAX_BYTES: u64 = 1 << 20;

/// A directory that is filled out of sight.
#[derive(Debug)]
pub(crate) struct FolderFill {
    /// Files that have neither been written nor failed.
    left: AtomicUsize,
    /// Taken out of sight with the first file; `None` where that could not be.
    hidden: OnceLock<Option<Arc<StagedDir>>>,
}

impl FolderFill {
    /// For a directory that has just been made, if it is worth it.
    pub(crate) fn of(dir: &PlannedDir) -> Option<Self> {
        let files = dir.listing.len();
        let all_are_needed = dir.sink.is_none() && dir.plan.steps.len() == files && !dir.path.is_root();
        if !all_are_needed || !(MIN_FILES..=MAX_FILES).contains(&files) {
            return None;
        }
        let bytes: Option<u64> = dir.listing.iter().map(|entry| small(entry.kind)).sum();
        let left = AtomicUsize::new(files);
        bytes.filter(|bytes| *bytes <= MAX_BYTES).map(|_| Self { left, hidden: OnceLock::new() })
    }

    /// The directory, which is at `path` in the end. `None` where it is there already.
    pub(crate) fn dir(&self, destination: &Destination, path: &RelPath) -> Option<&Arc<StagedDir>> {
        let hide = || destination.hide_dir(path).map(Arc::new);
        let hidden = self.hidden.get_or_init(|| {
            hide().inspect_err(|error| tracing::debug!(%path, %error, "filled at its place")).ok()
        });
        hidden.as_ref()
    }

    /// Takes note that a file has been written or has failed; with the last of them the directory goes to its place.
    pub(crate) fn one_done(&self, destination: &Destination) -> io::Result<()> {
        match (self.left.fetch_sub(1, AcqRel), self.hidden.get()) {
            (1, Some(Some(hidden))) => destination.show_dir(hidden),
            _ => Ok(()),
        }
    }
}

/// The length of a small file.
fn small(kind: Kind<'_>) -> Option<u64> {
    match kind {
        Kind::File { size } if size <= MAX_PACKED_BYTES => Some(size),
        _ => None,
    }
}
