//! Refuses to delete what another job writes to.

use contract::{Reason, RunParams};

use crate::{
    entry::Kind,
    measure::monitor::Monitor,
    path::OWN_DIR,
    plan::{
        guards::refused::Refused,
        planned::{Compared, SparedEntries, path_in},
    },
    session_error::{SessionError, go_on},
    tree::{Tree, dir::DirId},
};

/// Refuses to delete or replace another job's destination: a folder below the root that has a `.volferry` of its own.
pub(super) fn other_job(
    params: &RunParams,
    sink: &Tree,
    planned: &Compared,
    monitor: &Monitor,
) -> Result<Option<Refused>, SessionError> {
    let mut found = None;
    for dir in planned.dirs.iter().filter(|_| params.delete) {
        for (name, id) in dir.gone_dirs(sink) {
            go_on(monitor)?;
            if found.is_none() && loses_own_dir(sink, &planned.kept, name, id) {
                found = Some(if name == OWN_DIR { dir.path.clone() } else { path_in(&dir.path, name) });
            }
        }
    }
    Ok(found.map(|path| Refused {
        reason: Reason::OtherJobsDestination,
        problem: format!(
            "the run would delete or replace the folder {path}, or what Volferry keeps in it, and another job writes there: it holds a \
             folder .volferry"
        ),
        remedy: "choose another destination, exclude the folder, or remove its .volferry if no job uses it any more",
    }))
}

/// Returns whether a directory that is removed is a `.volferry`, or contains one that does not stay.
fn loses_own_dir(sink: &Tree, kept: &SparedEntries, name: &[u8], id: DirId) -> bool {
    let mut left = vec![id];
    let mut found = name == OWN_DIR;
    while let Some(id) = left.pop().filter(|_| !found) {
        let dir = &sink.dirs[id as usize];
        let dirs = (0..).zip(&dir.listing).filter(|(_, entry)| entry.kind == Kind::Dir);
        for ((index, entry), child) in dirs.zip(dir.first_child..) {
            if !kept.contains(&(id, index)) {
                found |= entry.name == OWN_DIR;
                left.push(child);
            }
        }
    }
    found
}
