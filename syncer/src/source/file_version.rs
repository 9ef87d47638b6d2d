//! Decides which properties of a file have to be unchanged for it to be the same version, so that the blocks of it
//! which an earlier run received still count.

use rustix::fs::Stat;

use crate::{
    delta::checked::FileVersion,
    hash::{ContentId, digest},
};

/// Returns an id of a file's present state: a change of content always moves the change time.
pub(crate) fn of_file(stat: &Stat) -> FileVersion {
    let Stat { st_size, st_mtime, st_mtime_nsec, st_ctime, st_ctime_nsec, .. } = *stat;
    let state = [st_size, st_mtime, st_mtime_nsec as i64, st_ctime, st_ctime_nsec as i64];
    let state: Vec<u8> = state.iter().flat_map(|part| part.to_le_bytes()).collect();
    FileVersion(digest(&[&state]))
}

/// Returns the id of an object of a store, made from that of its content.
pub(crate) fn of_stored(id: ContentId) -> FileVersion {
    FileVersion(digest(&[&id.0]))
}
