//! Refuses a run whose ends seem to be swapped.

use std::collections::HashSet;

use contract::{Reason, RunParams, human::counted};

use crate::{
    compare_entries::Step,
    entry::{Entry, Kind},
    measure::monitor::Monitor,
    plan::{
        guards::refused::Refused,
        planned::{Compared, PlannedDir, SparedEntries},
    },
    session_error::{SessionError, go_on},
    tree::{Tree, dir::DirId},
    wire::TreeHead,
};

/// Refuses a run whose ends seem to be swapped: the source is itself a destination, and the run would delete or replace
/// files that are newer than its last run and all of its files.
pub(super) fn wrong_direction(
    params: &RunParams,
    head: &TreeHead,
    sink: &Tree,
    planned: &Compared,
    monitor: &Monitor,
) -> Result<Option<Refused>, SessionError> {
    let Some(last_run) = head.last_run.filter(|_| params.delete) else { return Ok(None) };
    let newest = last_run.max(head.totals.newest);
    let is_newer = |entry: &Entry<'_>| {
        matches!(entry.kind, Kind::File { .. }) && entry.meta.mtime.of_the_file() > newest
    };
    let mut newer = 0;
    for dir in &planned.dirs {
        go_on(monitor)?;
        newer += newer_files(dir, sink, &planned.kept, is_newer);
    }
    Ok((newer > 0).then(|| Refused {
        reason: Reason::WrongDirection,
        problem: format!(
            "the source is itself a destination of runs, and {} newer than anything in it would be deleted or replaced",
            counted(newer as u64, "file")
        ),
        remedy: "see that source and destination are not the wrong way round",
    }))
}

/// Counts the newer files that a plan deletes or replaces in one directory and below.
fn newer_files(
    dir: &PlannedDir,
    sink: &Tree,
    kept: &SparedEntries,
    is_newer: impl Fn(&Entry<'_>) -> bool,
) -> usize {
    let Some(id) = dir.sink else { return 0 };
    let there = &sink.dirs[id as usize].listing;
    let replaced: HashSet<&[u8]> =
        dir.steps().filter(|(step, _)| *step != Step::Meta).map(|(_, entry)| entry.name).collect();
    let deleted = (0..).zip(there).filter(|(index, entry)| {
        let goes = dir.plan.deletes.binary_search(index).is_ok() || replaced.contains(entry.name);
        goes && is_newer(entry)
    });
    let mut newer = deleted.count();
    let mut left: Vec<DirId> = dir.gone_dirs(sink).into_iter().map(|(_, id)| id).collect();
    while let Some(id) = left.pop() {
        let below = &sink.dirs[id as usize];
        let goes = (0..).zip(&below.listing).filter(|(index, _)| !kept.contains(&(id, *index)));
        newer += goes.filter(|(_, entry)| is_newer(entry)).count();
        left.extend(below.children().map(|(_, child)| child));
    }
    newer
}
