//! One end of a run, or both.

use std::path::PathBuf;

use contract::{BucketUrl, Demands, RunParams, Side};
use syncer::root::TreeLocation;

use super::{link_config::LinkConfig, output_config::Output};
use crate::{remote::near_end::FarEnd, snapshot::key_flags::KeyFlags};

/// One end of a run, or both.
#[derive(Debug)]
pub(crate) struct Run {
    /// One after the other.
    pub(crate) jobs: Vec<NamedJob>,
    pub(crate) output: Output,
}

/// A job, and the path by which it was named.
#[derive(Debug)]
pub(crate) struct NamedJob {
    pub(crate) name: PathBuf,
    pub(crate) job: Job,
}

#[derive(Debug)]
pub(crate) enum Job {
    Send {
        source: TreeLocation,
        link: LinkConfig,
        params: RunParams,
        once: bool,
    },
    Receive {
        destination: TreeLocation,
        link: LinkConfig,
        once: bool,
        demands: Demands,
    },
    Sync {
        source: TreeLocation,
        destination: TreeLocation,
        params: RunParams,
    },
    /// A snapshot into object storage.
    Offsite {
        source: TreeLocation,
        url: BucketUrl,
        key: KeyFlags,
        params: RunParams,
    },
    /// To a far end that this process starts.
    Push {
        source: TreeLocation,
        far: Box<FarEnd>,
        params: RunParams,
    },
    /// From a far end that this process starts.
    Pull {
        far: Box<FarEnd>,
        destination: TreeLocation,
        demands: Demands,
    },
}

impl Job {
    /// Sets whether each change is reported before it is made.
    pub(super) fn set_itemize_changes(&mut self, tells: bool) {
        match self {
            Self::Send { params, .. }
            | Self::Sync { params, .. }
            | Self::Offsite { params, .. }
            | Self::Push { params, .. } => {
                params.itemize_changes = tells;
            }
            Self::Receive { demands, .. } | Self::Pull { demands, .. } => demands.itemize_changes = tells,
        }
    }

    /// Returns the run's name in reports.
    pub(crate) fn run(&self) -> &str {
        match self {
            Self::Send { params, .. }
            | Self::Sync { params, .. }
            | Self::Offsite { params, .. }
            | Self::Push { params, .. } => &params.run,
            Self::Receive { demands, .. } | Self::Pull { demands, .. } => &demands.run,
        }
    }

    /// Returns the ends that are on this machine.
    pub(crate) fn places(&self) -> impl Iterator<Item = (Side, &TreeLocation)> {
        let (source, destination) = match self {
            Self::Send { source, .. } | Self::Push { source, .. } | Self::Offsite { source, .. } => {
                (Some(source), None)
            }
            Self::Receive { destination, .. } | Self::Pull { destination, .. } => (None, Some(destination)),
            Self::Sync { source, destination, .. } => (Some(source), Some(destination)),
        };
        let of = |side| move |place| (side, place);
        source.map(of(Side::Source)).into_iter().chain(destination.map(of(Side::Sink)))
    }

    pub(super) fn sends(&self) -> bool {
        matches!(self, Self::Send { .. } | Self::Push { .. })
    }

    /// Returns the name of the other end's machine, if this end starts or asks it.
    pub(crate) fn far_end(&self) -> Option<String> {
        match self {
            Self::Push { far, .. } | Self::Pull { far, .. } => Some(far.host()),
            Self::Send { link: LinkConfig::Asks(asks), .. }
            | Self::Receive { link: LinkConfig::Asks(asks), .. } => Some(asks.place.typed_host()),
            _ => None,
        }
    }

    /// Returns whether another machine started this end.
    pub(crate) fn is_far(&self) -> bool {
        let (Self::Send { link, .. } | Self::Receive { link, .. }) = self else { return false };
        matches!(link, LinkConfig::Started(_))
    }

    /// Returns whether this end waits for the other one to dial.
    pub(crate) fn listens(&self) -> bool {
        match self {
            Self::Send { link, .. } | Self::Receive { link, .. } => link.listens(),
            Self::Sync { .. } | Self::Offsite { .. } | Self::Push { .. } | Self::Pull { .. } => false,
        }
    }
}
