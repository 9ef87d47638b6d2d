//! Refuses a run that would empty a volume, or write to another volume than the one it is meant for, before anything is
//! changed. Each guard has a file.

mod counted_deletes;
mod delete_limit;
pub(crate) mod empty_source;
pub(crate) mod expected_volume;
mod first_run_deletes;
pub(crate) mod first_snapshot_room;
pub(crate) mod free_space;
mod mount_notes;
mod other_jobs_folder;
pub(crate) mod other_source;
pub(crate) mod owners_demands;
mod pattern_notes;
mod refused;
pub(crate) mod renamed_file;
mod wrong_direction;

use contract::{Reason, RunParams};

use crate::{
    measure::monitor::Monitor,
    plan::{
        guards::{
            delete_limit::check_deletes,
            free_space::Room,
            mount_notes::{mounts_note, stay_note},
            other_jobs_folder::{other_job, other_volume},
            owners_demands::left_out_note,
            pattern_notes::pattern_notes,
            refused::Refused,
            wrong_direction::wrong_direction,
        },
        planned::Planned,
    },
    session_error::SessionError,
    sys::root::Root,
};

/// Checks a plan before anything is changed. `root` is the destination, if it is there; `room` is the state of its file
/// system, if known; `failed` is the number of entries that could not be read or listed. For a restore `in_place`,
/// nothing overrides the guard of room. Returns notes, also of overridden guards.
///
/// # Errors
/// [`SessionError::Guard`] with the next step.
pub(crate) fn check(
    params: &RunParams,
    plan: &Planned,
    root: Option<&Root>,
    room: Option<&Room>,
    failed: u64,
    in_place: bool,
    monitor: &Monitor,
) -> Result<Vec<String>, SessionError> {
    let Planned { head, compared: planned, sink, .. } = plan;
    let deletes = failed == 0 || params.deletes_anyway();
    let refused = [
        other_job(params, sink, planned, monitor)?,
        other_volume(params, planned, sink),
        wrong_direction(params, head, sink, planned, monitor)?,
        lack_of_room(params, plan, room, deletes, monitor)?,
    ];
    let mut notes = Vec::new();
    if head.last_run.is_some() {
        notes.push("the source has a folder .volferry: it is itself a destination of runs".to_owned());
    }
    notes.extend(mounts_note(params, &head.mounts));
    notes.extend(pattern_notes(params, head.source.patterns.as_ref(), sink.patterns.as_ref()));
    notes.extend(left_out_note(params, planned.left_out));
    notes.extend(stay_note(params, &planned.beyond));
    notes.extend(check_deletes(params, plan, root, monitor)?);
    for refused in refused.into_iter().flatten() {
        let holds = in_place && refused.reason == Reason::NotEnoughSpace;
        notes.extend(refused.unless(params.force && !holds)?);
    }
    Ok(notes)
}

fn lack_of_room(
    params: &RunParams,
    plan: &Planned,
    room: Option<&Room>,
    deletes: bool,
    monitor: &Monitor,
) -> Result<Option<Refused>, SessionError> {
    let Planned { head, compared, sink, .. } = plan;
    let Some(room) = room.filter(|_| !compared.dirs.is_empty()) else { return Ok(None) };
    room.refusal(params, &head.totals, sink, compared, deletes, monitor)
}

/// Refuses a restore in place if keeping the state before it took the room that it needs.
///
/// # Errors
/// [`SessionError::Guard`] with the next step.
pub(crate) fn check_room_left(
    params: &RunParams,
    plan: &Planned,
    room: Option<&Room>,
    monitor: &Monitor,
) -> Result<(), SessionError> {
    let refused = lack_of_room(params, plan, room, true, monitor)?;
    refused.map_or(Ok(()), |refused| refused.unless(false).map(drop))
}
