//! Refuses to delete what another job writes to, and to write what another volume keeps over it.

use contract::{Compare, Reason, RunParams};

use crate::{
    compare_entries::Step,
    entry::{Entry, Kind},
    listing::Listing,
    measure::monitor::Monitor,
    path::OWN_DIR,
    plan::{
        guards::refused::Refused,
        planned::{Compared, PlannedDir, SparedEntries, path_in},
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

/// The files of a `.volferry` that tell which volume it is of, and where that volume is.
const IDENTITY: [&[u8]; 2] = [b"made", b"volume"];

/// Refuses to replace the `.volferry` of another volume below the root, whose list of snapshots would be lost. One that
/// came from this source, and that no run has used since, is brought up to date like any other folder.
pub(super) fn other_volume(params: &RunParams, planned: &Compared, sink: &Tree) -> Option<Refused> {
    let own = planned.dirs.iter().filter(|dir| dir.path.names().next_back() == Some(OWN_DIR));
    let found = own.filter_map(|dir| Some((dir, &sink.dirs[dir.sink? as usize].listing)));
    let (dir, _) = found.into_iter().find(|(dir, there)| is_others(params, dir, there))?;
    Some(Refused {
        reason: Reason::OtherJobsDestination,
        problem: format!(
            "the run would replace what Volferry keeps of another volume in the folder {} of the destination, the list of its \
             snapshots, too",
            dir.path
        ),
        remedy: "leave it out with --exclude, choose another destination, or remove it if no job uses it any more",
    })
}

/// Returns whether a planned `.volferry` is of another volume at the sink, which has the entries `there`, than at the
/// source: the file that tells which one it is differs.
fn is_others(params: &RunParams, dir: &PlannedDir, there: &Listing) -> bool {
    // These runs may leave that file as it is, and replace others.
    let by_time = params.update || params.compare != Compare::Metadata;
    let is_other = |(index, old): (u32, Entry<'_>)| {
        let mut entries = (0..).zip(&dir.listing);
        match entries.find(|(_, entry)| entry.name == old.name) {
            Some((at, new)) => {
                let is_replaced = matches!(dir.plan.step(at), Some(Step::Update | Step::Replace { .. }));
                is_replaced || by_time && new.meta.mtime != old.meta.mtime
            }
            None => dir.plan.deletes.binary_search(&index).is_ok(),
        }
    };
    (0..).zip(there).filter(|(_, entry)| IDENTITY.contains(&entry.name)).any(is_other)
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
