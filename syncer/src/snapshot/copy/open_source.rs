//! A store of this machine, held open while snapshots are copied from it.

use std::{os::fd::OwnedFd, path::Path};

use contract::VolumeId;

use super::{
    collect::hold_for_reading,
    history_source::StoredHistory,
    roots::Roots,
    snapshot_error::{SnapshotError, io_error},
    store::Store,
};
use crate::{destination::volume_of, root::Root};

/// A store and its list. Collections remove no objects as long as it is there.
#[derive(Debug)]
pub struct OpenHistory {
    store: Store,
    roots: Roots,
    volume: Option<VolumeId>,
    _reading: OwnedFd,
}

impl OpenHistory {
    /// Opens the store of the volume at `root`, which messages call `path`; `None` if it has none.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn open(root: &Root, path: &Path) -> Result<Option<Self>, SnapshotError> {
        let Some(store) = Store::open(root, path)? else { return Ok(None) };
        // The lock comes first: no collection removes what the list has then.
        let reading = hold_for_reading(&store)?;
        let roots = store.roots()?;
        let volume = volume_of(root).map_err(io_error("read the id of", path))?;
        Ok(Some(Self { store, roots, volume, _reading: reading }))
    }

    /// Returns the store as a source of snapshots.
    pub fn source(&self) -> StoredHistory<'_> {
        StoredHistory { store: &self.store, roots: &self.roots, volume: self.volume }
    }
}
