//! Describes a source's tree to the sink.

use contract::Side;
use rustix::fs::AtFlags;

use crate::{
    entry::Time,
    measure::failures::Failures,
    path::OWN_DIR,
    report::Stopwatch,
    sys::{root::Root, stat::modified},
    wire::SourceDone,
};

/// Returns the time when a run last wrote to the source, if that is itself a destination: its `.volferry` changes at
/// the beginning and the end of each run. It also has a `.volferry` if only snapshots were taken of it.
pub(crate) fn last_run(root: &Root) -> Option<Time> {
    let changed = |path: &[u8]| {
        let stat = rustix::fs::statat(root, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(modified(&stat))
    };
    changed(b".volferry/volume")?;
    let folder = changed(OWN_DIR)?;
    Some(changed(b".volferry/epoch").map_or(folder, |epoch| epoch.max(folder)))
}

pub(crate) fn done(failures: &Failures, watch: &mut Stopwatch<'_>) -> SourceDone {
    SourceDone {
        usage: watch.source_usage(),
        efforts: watch.efforts(Side::Source),
        failed: failures.count(),
        failures: failures.named(),
        failed_paths: failures.paths(),
        snapshot: None,
        patterns: None,
    }
}
