//! The destination of a run, opened.

use contract::{RunParams, WriteMode};

use crate::{
    apply::{Candidate, Destination, Settings, VolumeLock},
    root::TreeLocation,
    session::{
        plan::{backup_place, guard},
        session_error::SessionError,
    },
    transport::TransportError,
};

/// What a session keeps of its destination between runs, so that no other run comes in between. All else is opened
/// anew, so that nothing of one run is left for the next.
#[derive(Debug, Default)]
pub(crate) struct HeldDestination {
    lock: Option<VolumeLock>,
    /// Whether another run may follow.
    pub stays: bool,
}

/// Takes the destination at `path`, if it is the one that the run is meant for. Also returns what is to be noted in the
/// report.
pub(crate) fn open_destination(
    place: &TreeLocation,
    params: &RunParams,
    mut settings: Settings,
    held: &mut HeldDestination,
) -> Result<(Destination, Vec<String>), SessionError> {
    settings.in_place = params.write == WriteMode::InPlace;
    // A folder is made only if the run may go there, and looked at again for what came meanwhile.
    let candidate = match Candidate::look(place)? {
        Some(candidate) => candidate,
        None => {
            guard::check_volume(params, &place.path(), None)?;
            Candidate::open(place)?
        }
    };
    let mut notes = guard::check_volume(params, &place.path(), candidate.volume()?)?;
    let shard = params.shard.filter(|shard| shard.count > 1);
    if shard.is_some_and(|shard| !shard.is_valid()) {
        return Err(TransportError::Nonsense("there is no such shard").into());
    }
    if shard.is_some() && params.demands.snapshot.is_some() {
        return Err(SessionError::ShardedSnapshot);
    }
    if shard.is_some() && params.demands.backup_dir.is_some() {
        return Err(SessionError::ShardedBackup);
    }
    let shard = shard.map(|shard| (params.run.as_str(), shard));
    let mut destination = candidate.take(settings, shard, held.lock.take())?;
    held.lock = held.stays.then(|| destination.state().lock()).flatten();
    if let Some(backup) = backup_place::open(place, params)? {
        destination.keep_old(backup);
    }
    notes.extend_from_slice(destination.notes());
    Ok((destination, notes))
}
