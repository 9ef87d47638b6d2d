//! What an end of a job is. Each kind has a file of its own. Pure.

use std::fmt;

use contract::Side;

use super::{
    bucket_end::BucketEnd,
    claim_end::{ClaimEnd, NamespacedClaim},
    remote_end::RemoteEnd,
};
use crate::{
    api::{ClaimReference, ObjectStore, RemoteEndpoint, RunFolder, SyncJobSpec},
    spec::fields::{ValidationError, invalid},
};

/// What is at an end of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndKind {
    /// A folder of a claim, which a pod of the run mounts.
    Claim(ClaimEnd),
    /// A folder that another cluster or machine serves, which a pod of the run dials.
    Remote(RemoteEnd),
    /// A place in object storage, which gets snapshots.
    Bucket(BucketEnd),
}

impl fmt::Display for EndKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Claim(end) => write!(f, "the claim {}", end.claim),
            Self::Remote(end) => write!(f, "the endpoint {end}"),
            Self::Bucket(end) => write!(f, "the object storage {end}"),
        }
    }
}

impl EndKind {
    /// Returns the end as runs and statuses record it, given the namespace of the SyncJob.
    pub fn run_folder(&self, own: &str) -> RunFolder {
        match self {
            Self::Claim(end) => end.run_folder(own),
            Self::Remote(end) => end.run_folder(),
            Self::Bucket(end) => end.run_folder(),
        }
    }

    /// Returns the folder of a claim that the end's pods mount; an end without one has no pods.
    pub fn mounted(&self) -> Option<&ClaimEnd> {
        match self {
            Self::Claim(end) => Some(end),
            Self::Remote(_) | Self::Bucket(_) => None,
        }
    }

    /// Returns the folder that somebody else serves, which the pod of the other end dials.
    pub fn remote(&self) -> Option<&RemoteEnd> {
        match self {
            Self::Remote(end) => Some(end),
            Self::Claim(_) | Self::Bucket(_) => None,
        }
    }

    /// Returns the claim that the end's pods mount.
    pub fn claim(&self) -> Option<&NamespacedClaim> {
        self.mounted().map(|end| &end.claim)
    }

    /// Returns whether it is a raw block device.
    pub fn is_block(&self) -> bool {
        self.mounted().is_some_and(|end| end.is_block)
    }

    /// Returns it with that kind of volume; what is no claim has no kind.
    #[must_use]
    pub fn of_kind(self, is_block: bool) -> Self {
        match self {
            Self::Claim(end) => Self::Claim(ClaimEnd { is_block, ..end }),
            other => other,
        }
    }

    /// Returns what a spec names at that end, given the namespace of the SyncJob.
    ///
    /// # Errors
    /// It names nothing there, or several things, or one that no run can use.
    pub fn parse(spec: &SyncJobSpec, side: Side, own: &str) -> Result<Self, ValidationError> {
        let named = Named::of(spec, side);
        match (named.claim, named.endpoint, named.store) {
            (Some(claim), None, None) => {
                ClaimEnd::parse(named.field, claim, named.path, own).map(Self::Claim)
            }
            (None, Some(endpoint), None) => RemoteEnd::parse(named.field, endpoint).map(Self::Remote),
            (None, None, Some(store)) => BucketEnd::parse(store).map(Self::Bucket),
            _ => Err(invalid(named.field, named.choice)),
        }
    }
}

/// What a spec says of an end, and the field where it does.
struct Named<'a> {
    field: &'static str,
    claim: Option<&'a ClaimReference>,
    endpoint: Option<&'a RemoteEndpoint>,
    store: Option<&'a ObjectStore>,
    /// What to write if it is not exactly one of them.
    choice: &'static str,
    path: &'a str,
}

impl<'a> Named<'a> {
    fn of(spec: &'a SyncJobSpec, side: Side) -> Self {
        let (source, destination) = (&spec.source, &spec.destination);
        match side {
            Side::Source => Self {
                field: "source",
                claim: source.persistent_volume_claim.as_ref(),
                endpoint: source.endpoint.as_ref(),
                store: None,
                choice: "has exactly one of persistentVolumeClaim and endpoint; write one of them",
                path: &source.path,
            },
            Side::Sink => Self {
                field: "destination",
                claim: destination.persistent_volume_claim.as_ref(),
                endpoint: destination.endpoint.as_ref(),
                store: destination.object_store.as_ref(),
                choice: "has exactly one of persistentVolumeClaim, endpoint and objectStore; write one of them",
                path: &destination.path,
            },
        }
    }
}
