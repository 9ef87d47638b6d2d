//! Refuses a run that would empty a volume, or write to another volume than the one it is meant for, before anything is
//! changed. Each guard has a file.

mod counted_deletes;
mod delete_limit;
pub(crate) mod expected_volume;
mod first_run_deletes;
pub(crate) mod first_snapshot_room;
pub(crate) mod free_space;
mod other_jobs_folder;
pub(crate) mod other_source;
pub(crate) mod owners_demands;
mod pattern_notes;
mod refused;
pub(crate) mod renamed_file;
mod wrong_direction;

use contract::{Reason, RunParams, human_bytes::bytes as human_bytes, plural};

use crate::{
    measure::monitor::Monitor,
    plan::{
        guards::{
            delete_limit::check_deletes,
            free_space::{Room, TooFewBytes},
            other_jobs_folder::other_job,
            pattern_notes::pattern_notes,
            refused::Refused,
            wrong_direction::wrong_direction,
        },
        planned::{Compared, Planned},
    },
    session_error::SessionError,
    sys::root::Root,
    tree::{Tree, dir::Mounts},
    wire::TreeHead,
};

/// Checks a plan before anything is changed. `root` is the destination, if it is there; `room` is the state of its file
/// system, if known; `failed` is the number of entries that could not be read or listed. Returns notes, also of
/// overridden guards.
///
/// # Errors
/// [`SessionError::Guard`] with the next step.
pub(crate) fn check(
    params: &RunParams,
    plan: &Planned,
    root: Option<&Root>,
    room: Option<&Room>,
    failed: u64,
    monitor: &Monitor,
) -> Result<Vec<String>, SessionError> {
    let Planned { head, compared: planned, sink, .. } = plan;
    let deletes = failed == 0 || params.deletes_anyway();
    let refused = [
        other_job(params, sink, planned, monitor)?,
        wrong_direction(params, head, sink, planned, monitor)?,
        no_room(params, head, sink, planned, room.filter(|_| !planned.dirs.is_empty()), deletes, monitor)?,
    ];
    let mut notes = Vec::new();
    if head.last_run.is_some() {
        notes.push("the source has a folder .volferry: it is itself a destination of runs".to_owned());
    }
    notes.extend(mounts_note(params, &head.mounts));
    notes.extend(pattern_notes(params, head.source.patterns.as_ref(), sink.patterns.as_ref()));
    notes.extend(stay_note(params, &planned.beyond));
    notes.extend(check_deletes(params, plan, root, monitor)?);
    for refused in refused.into_iter().flatten() {
        notes.extend(refused.unless(params.force)?);
    }
    Ok(notes)
}

/// Returns a note about file systems that are mounted inside the source, which the user may have overlooked.
fn mounts_note(params: &RunParams, mounts: &Mounts) -> Option<String> {
    let first = &mounts.first;
    let found = match mounts.count {
        0 => return None,
        1 => format!("another file system is mounted inside the source, at {first}"),
        count => format!("{count} other file systems are mounted inside the source, the first at {first}"),
    };
    Some(if params.one_file_system {
        format!("{found}: its entries were left out")
    } else {
        format!("{found}: what is in it belongs to the run; --one-file-system leaves it out")
    })
}

/// Returns a note about entries that stay because they are in other mounts inside the destination.
fn stay_note(params: &RunParams, stay: &Mounts) -> Option<String> {
    let entries = plural(
        stay.count,
        "entry that the source does not have stays",
        "entries that the source does not have stay",
    );
    (stay.count > 0 && !params.one_file_system).then(|| {
        format!(
            "{entries}, in what is mounted inside the destination, the first at {}: --cross-mounts deletes there, too",
            stay.first
        )
    })
}

fn no_room(
    params: &RunParams,
    head: &TreeHead,
    sink: &Tree,
    planned: &Compared,
    room: Option<&Room>,
    deletes: bool,
    monitor: &Monitor,
) -> Result<Option<Refused>, SessionError> {
    let Some(room) = room else { return Ok(None) };
    let lacks = room.lacks(params, &head.totals, sink, planned, deletes, monitor)?;
    Ok(lacks.map(|TooFewBytes { needed, free }| Refused {
        reason: Reason::NotEnoughSpace,
        problem: format!(
            "the run needs at least {} at the destination, and {} are free",
            human_bytes(needed),
            human_bytes(free)
        ),
        remedy: "make room, or have deletes make it with --delete=before",
    }))
}
