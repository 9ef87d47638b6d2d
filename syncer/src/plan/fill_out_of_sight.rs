//! New directories that have only small files: they are filled out of sight, which is quicker ([`StagedDir`]).

use std::{
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering::AcqRel},
    },
};

use crate::{
    destination::{Destination, StagedDir},
    entry::Kind,
    path::RelPath,
    plan::planned::PlannedDir,
    wire::MAX_PACKED_BYTES,
};

/// The smallest number of files for which moving the directory twice costs less than it saves.
const MIN_FILES: usize = 4;

/// The largest number of files and bytes in such a directory, because a run that is cut off loses them.
const MAX_FILES: usize = 4096;
const MAX_BYTES: u64 = 1 << 20;

/// A directory that is filled out of sight.
#[derive(Debug)]
pub(crate) struct FolderFill {
    /// Files that have neither been written nor failed.
    left: AtomicUsize,
    /// The hidden directory, from the first file on; `None` if it could not be hidden.
    hidden: OnceLock<Option<Arc<StagedDir>>>,
}

impl FolderFill {
    /// Returns the fill of a directory that has just been made; `None` if hiding it is not worthwhile.
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

    /// Returns the hidden directory, which is moved to `path` in the end. `None` if it could not be hidden and is
    /// filled at its place.
    pub(crate) fn dir(&self, destination: &Destination, path: &RelPath) -> Option<&Arc<StagedDir>> {
        let hide = || destination.hide_dir(path).map(Arc::new);
        let hidden = self.hidden.get_or_init(|| {
            hide().inspect_err(|error| tracing::debug!(%path, %error, "filled at its place")).ok()
        });
        hidden.as_ref()
    }

    /// Counts a file that has been written or has failed. After the last one, moves the directory to its place.
    pub(crate) fn one_done(&self, destination: &Destination) -> io::Result<()> {
        match (self.left.fetch_sub(1, AcqRel), self.hidden.get()) {
            (1, Some(Some(hidden))) => destination.show_dir(hidden),
            _ => Ok(()),
        }
    }
}

/// Returns the length of a small file; `None` for all other entries.
fn small(kind: Kind<'_>) -> Option<u64> {
    match kind {
        Kind::File { size } if size <= MAX_PACKED_BYTES => Some(size),
        _ => None,
    }
}
