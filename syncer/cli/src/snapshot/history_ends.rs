//! The two ends of a copy of snapshots that are on this machine.

use std::path::Path;

use contract::CopySelection;
use syncer::{
    monitor::Monitor,
    root::TreeLocation,
    snapshot::{
        SnapshotError,
        copy::{
            CopiedHistory, HistorySource, StoredHistory, copy_selected, selected, staying_away, volume_at,
        },
        create::lock_or_make_volume,
        store::Writer,
    },
};

use super::{open_for_reading, user, waiting};

/// Passes on the store of the volume at `dir`, and keeps collections from removing objects meanwhile.
pub(crate) fn offering<T>(
    dir: &Path,
    pass: impl FnOnce(&mut StoredHistory<'_>) -> Result<T, SnapshotError>,
) -> Result<T, SnapshotError> {
    let opened = open_for_reading(dir)?;
    if opened.roots.snapshots.is_empty() && opened.roots.damages() == 0 {
        return Err(SnapshotError::None(dir.into()));
    }
    let volume = volume_at(&TreeLocation::from(dir))?;
    pass(&mut StoredHistory { store: &opened.store, roots: &opened.roots, volume })
}

/// Copies into the store of the volume at `dir`, which is made if it is missing, once it is known what is copied. Waits
/// so many seconds for the lock.
pub(crate) fn into(
    dir: &Path,
    source: &mut dyn HistorySource,
    selection: &CopySelection,
    wait: u64,
    monitor: &Monitor,
) -> Result<CopiedHistory, SnapshotError> {
    let offer = source.offer()?;
    let chosen = selected(&offer, selection)?;
    waiting(wait, || {
        let destination = lock_or_make_volume(&TreeLocation::from(dir))?;
        let mut writer = Writer::open(destination.state(), destination.root(), dir, monitor)?;
        let away = staying_away(&writer, selection)?;
        copy_selected(&mut writer, source, &offer, &chosen, &away, &user(), monitor)
    })
}
