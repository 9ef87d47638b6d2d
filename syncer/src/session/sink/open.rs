//! The destination of a run, opened.

use contract::{RunParams, WriteMode};

use crate::{
    apply::{Candidate, Destination, Settings},
    entry::Time,
    root::{Place, Root},
    session::{plan::guard, session_error::SessionError, sink::dry_run::DryDestination},
    transport::TransportError,
};

/// Takes the destination at `path`, if it is the one that the run is meant for. Also returns what is to be noted in the report.
pub(crate) fn open_destination(
    place: &Place,
    params: &RunParams,
    mut settings: Settings,
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
    let shard = shard.map(|shard| (params.run.as_str(), shard));
    let destination = candidate.take(settings, shard)?;
    notes.extend_from_slice(destination.notes());
    Ok((destination, notes))
}

/// The destination as a run needs it.
pub(crate) enum Target {
    /// Of a dry run.
    Look(DryDestination),
    Change(Box<Destination>),
}

impl Target {
    /// Opens the destination of a run from the tree at `source`, or from a snapshot, of which nobody knows how much room it needs. Also returns
    /// what is to be noted in the report.
    pub(crate) fn open(
        place: &Place,
        params: &RunParams,
        source: Option<&Root>,
    ) -> Result<(Self, Vec<String>), SessionError> {
        let settings = Settings::resolve(&params.preserve)?;
        if params.dry_run {
            let (mut looked, notes) = DryDestination::at(place, params, settings, source)?;
            looked.room = looked.room.filter(|_| source.is_some());
            return Ok((Self::Look(looked), notes));
        }
        open_destination(place, params, settings)
            .map(|(opened, notes)| (Self::Change(Box::new(opened)), notes))
    }

    pub(crate) fn root(&self) -> Option<&Root> {
        match self {
            Self::Look(looked) => looked.root(),
            Self::Change(destination) => Some(destination.root()),
        }
    }

    pub(crate) fn doubtful_since(&self) -> Option<Time> {
        match self {
            Self::Look(_) => None,
            Self::Change(destination) => destination.doubtful_since(),
        }
    }

    pub(crate) fn settings(&self) -> Settings {
        match self {
            Self::Look(looked) => looked.settings,
            Self::Change(destination) => destination.settings(),
        }
    }
}
