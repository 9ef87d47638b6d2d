//! Opening of the destination of a run.

use contract::{RunParams, WriteMode};

use crate::{
    destination::{Candidate, Destination, RunShard, Settings, VolumeLock},
    plan::guards::{expected_volume::check_volume, other_source::check_source},
    session_error::SessionError,
    sink::backup_place,
    sys::root::TreeLocation,
    transport::TransportError,
};

/// The lock that a session holds on its destination between runs, so that no other run comes in between. Everything
/// else is opened again for each run, so that no state of one run affects the next.
#[derive(Debug, Default)]
pub(crate) struct HeldDestination {
    lock: Option<VolumeLock>,
    /// Whether another run may follow.
    pub stays: bool,
}

impl HeldDestination {
    /// Keeps the lock from the first run on, because another may follow each.
    pub(crate) fn kept_between_runs() -> Self {
        Self { lock: None, stays: true }
    }
}

/// A destination that a run has taken, with notes for the report.
pub(crate) struct TakenDestination {
    pub destination: Destination,
    pub notes: Vec<String>,
}

/// Takes the destination at `place`, if it is the one that the run is meant for.
pub(crate) fn open_destination(
    place: &TreeLocation,
    params: &RunParams,
    mut settings: Settings,
    held: &mut HeldDestination,
) -> Result<TakenDestination, SessionError> {
    settings.in_place = params.write == WriteMode::InPlace;
    // The folder is created only if the run may use it, and then checked again, in case it was created meanwhile.
    let candidate = match Candidate::find(place)? {
        Some(candidate) => candidate,
        None => {
            check_volume(params, &place.path(), None)?;
            Candidate::open(place)?
        }
    };
    let mut notes = check_volume(params, &place.path(), candidate.volume()?)?;
    if params.demands.other_source.is_some() {
        notes.extend(check_source(params, &place.path(), candidate.source()?)?);
    }
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
    let shard = shard.map(|shard| RunShard { run: &params.run, shard });
    let mut destination = candidate.take(settings, shard, held.lock.take())?;
    held.lock = held.stays.then(|| destination.state().lock()).flatten();
    if let Some(backup) = backup_place::open(place, params)? {
        destination.keep_old(backup);
    }
    notes.extend_from_slice(destination.notes());
    Ok(TakenDestination { destination, notes })
}
