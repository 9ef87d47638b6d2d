//! Keeps the notes about files that were in motion when they were read: adds those that were compared in vain, and
//! removes those that a run has settled.

use std::collections::HashMap;

use contract::RunParams;
use rustix::fs::AtFlags;

use crate::{
    compare_entries::Step,
    destination::{ApplyError, Destination},
    measure::failures::Failures,
    path::RelPath,
    plan::{
        planned::{Checked, Planned, path_in},
        scan_params::lists_all,
    },
    session_error::SessionError,
    tree::noted_in_motion::NotedFiles,
};

/// Notes the files whose content was equal although another process may have been writing to them.
pub(crate) fn note_in_motion(destination: &Destination, checked: &Checked) -> Result<(), ApplyError> {
    let noted =
        checked.in_motion.iter().try_for_each(|(path, mtime)| destination.note_in_motion(path, *mtime));
    noted.map_err(|source| destination.own_error(source))
}

/// Removes the notes of earlier runs about files that this run has compared or replaced, and about those that are gone.
/// `failed` is the number of all processes' failures.
pub(crate) fn settle_notes(
    destination: &Destination,
    plan: &Planned,
    params: &RunParams,
    keeps_root: bool,
    failures: &Failures,
    failed: u64,
) -> Result<(), SessionError> {
    let noted = destination.noted();
    if noted.is_empty() {
        return Ok(());
    }
    let takes_all = lists_all(params)? && params.files_from.is_none() && !keeps_root;
    let seen = seen(plan, noted, params.shard.is_some() && failed > 0);
    destination.settle_notes(|path| match path {
        None => !takes_all || failed > 0,
        Some(path) => match seen.get(path) {
            Some(is_settled) => !is_settled || has_failed(failures, path),
            None => !(takes_all && lacks(plan, path)) && exists(destination, path),
        },
    })?;
    Ok(())
}

/// Returns whether the entry at `path` has failed, or a folder above it, of which nothing was changed then.
fn has_failed(failures: &Failures, path: &RelPath) -> bool {
    let above = |path: &RelPath| path.split_last().map(|(parent, _)| parent);
    std::iter::successors(Some(path.clone()), above).any(|path| failures.has(&path))
}

/// Returns the noted files that the source has, and whether the plan compares or replaces them. What is to be replaced
/// does not count where another process `may_have_failed` to.
fn seen(plan: &Planned, noted: &NotedFiles, may_have_failed: bool) -> HashMap<RelPath, bool> {
    let mut seen = HashMap::new();
    for dir in &plan.compared.dirs {
        for (index, entry) in (0..).zip(&dir.listing) {
            if noted.names_file(&dir.path, entry.name) {
                let is_settled = match dir.plan.step(index) {
                    None | Some(Step::Meta) => dir.plan.checks.binary_search(&index).is_ok(),
                    Some(Step::Create | Step::Update | Step::Replace { .. }) => !may_have_failed,
                };
                seen.insert(path_in(&dir.path, entry.name), is_settled);
            }
        }
    }
    seen
}

/// Returns whether the source is known to have no entry of this path, given that it has not been seen.
fn lacks(plan: &Planned, path: &RelPath) -> bool {
    let Some((parent, _)) = path.split_last() else { return false };
    plan.compared.dirs.iter().any(|dir| dir.path == parent && dir.listing.is_complete())
}

fn exists(destination: &Destination, path: &RelPath) -> bool {
    let Some((parent, name)) = path.split_last() else { return false };
    let dir = destination.root().dir(&parent);
    dir.is_ok_and(|dir| rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok())
}
