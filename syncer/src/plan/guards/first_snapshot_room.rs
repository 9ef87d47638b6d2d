//! Notes what the first snapshot after a run copies, and refuses it where it does not fit.

use std::path::Path;

use contract::{SnapshotEngine, SnapshotParams, human};

use crate::{
    plan::planned::Planned,
    snapshot::{
        SnapshotError,
        create::{FirstCopy, copy_of},
    },
    sys::root::Root,
    tree::dir::Totals,
};

/// Returns a note on the first snapshot of the destination at `path`, for which the run asks, before anything is
/// changed; `None` if it copies nothing. What cannot be found out now is an error of the snapshot later.
pub(crate) fn note(
    root: &Root,
    path: &Path,
    asked: Option<&SnapshotParams>,
    plan: &Planned,
) -> Option<String> {
    let engine = asked?.engine;
    let (bytes, before) = (data_bytes(&plan.head.totals), data_bytes(&plan.sink.totals));
    let FirstCopy { free, .. } = copy_of(root, path, engine, bytes).ok().flatten()?;
    let free = free.saturating_add(before).saturating_sub(bytes);
    let refusal = if bytes > free && engine != SnapshotEngine::Copy {
        ": it will be refused; make room, or ask for the engine `copy`, since equal files are stored once"
    } else {
        ""
    };
    Some(format!(
        "the destination cannot clone files, so its first snapshot copies about {}, and {} will be free \
         after the run{refusal}",
        human::bytes(bytes),
        human::bytes(free)
    ))
}

/// Refuses the first snapshot after a run if its copy does not fit, so that it does not fill the volume.
///
/// # Errors
/// [`SnapshotError::NoRoomForFirst`]; those of the store.
pub(crate) fn check(
    root: &Root,
    path: &Path,
    engine: SnapshotEngine,
    plan: &Planned,
) -> Result<(), SnapshotError> {
    match copy_of(root, path, engine, data_bytes(&plan.head.totals))? {
        Some(FirstCopy { bytes, free }) if bytes > free && engine != SnapshotEngine::Copy => {
            Err(SnapshotError::NoRoomForFirst { path: path.into(), bytes, free })
        }
        _ => Ok(()),
    }
}

fn data_bytes(totals: &Totals) -> u64 {
    totals.bytes.saturating_sub(totals.sparse)
}
