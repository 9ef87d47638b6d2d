//! The `volferry.dev/v1alpha1` API: [`SyncJob`], [`SyncRun`], [`SyncGrant`], [`SyncJobSet`], [`SyncEndpoint`] and their
//! statuses.
//!
//! These types are the only source of the CRDs in `crds/`: doc comments become field documentation, serde defaults
//! become schema defaults, and the `rules` become CEL rules, by which the API server validates a manifest.

mod active_run;
pub mod admission;
mod benchmark;
pub mod conditions;
mod crd;
pub mod crd_schema;
mod duration;
mod ends;
mod files;
mod grant;
pub mod manifest_file;
mod pods;
mod point_in_time;
mod remote_limits;
pub mod reports;
mod restore;
pub mod rules;
mod run;
mod set;
mod spec;
mod status;
mod sync_endpoint;
mod transfer;
mod volume_snapshots;

pub use active_run::{
    ActiveRun, EarlierTries, HookRun, MAX_PARALLELISM, RunCause, RunFolder, RunHooks, Stage, StoppedRun,
};
pub use benchmark::{Benchmark, BenchmarkTree};
pub use crd::{crd_files, crds};
pub use duration::parse_duration;
pub use ends::{
    AccessMode, ClaimReference, CreateClaim, DestinationEndpoint, IdentitySecret, ObjectStore,
    ObjectStoreSecret, RemoteEndpoint, SourceEndpoint,
};
pub use files::{DeleteLimit, Files, Preserve};
pub use grant::{
    GrantAccess, GrantSelector, GrantedClaim, GrantedNamespace, KnownNamespace, SyncGrant, SyncGrantSpec,
    SyncGrantStatus,
};
pub use pods::{CommonPodSettings, EndPodSettings, FsGroupFrom, PodSecurity, PodSettings};
pub use point_in_time::{Capture, CaptureAccess, CaptureMethod, PointInTime};
pub use remote_limits::{REMOTE_LIMITS, RemoteLimit};
pub use restore::Restore;
pub use run::{SyncJobReference, SyncRun, SyncRunSpec, SyncRunStatus, is_namespace};
pub use set::{
    GroupCapture, SetDeletionPolicy, SetProblem, SyncJobSet, SyncJobSetSpec, SyncJobSetStatus,
    SyncJobTemplate, TemplateMetadata, WorstJob,
};
pub use spec::{
    ConcurrencyPolicy, DeletionPolicy, HistoryLimit, Hook, HookTarget, Hooks, Limits, OnHookFailure,
    Regression, Retain, Schedule, Snapshots, SyncJob, SyncJobSpec, VerifySnapshots,
};
pub use status::{
    Baseline, ChangeBase, FsGroups, HistoryEntry, JobIdentity, KeptSnapshot, KnownDestination, KnownSource,
    Run, RunProgress, ShardProgress, SnapshotStatus, Summary, SyncJobPhase, SyncJobStatus,
};
pub use sync_endpoint::{
    EndpointAccess, EndpointClaim, EndpointDemands, EndpointPeer, EndpointRun, EndpointService,
    EndpointVisitor, IpFamilyPolicy, ServiceProtocol, ServiceType, SyncEndpoint, SyncEndpointSpec,
    SyncEndpointStatus,
};
pub use transfer::{CompressionMode, Placement, Transfer};
pub use volume_snapshots::{RetainImages, VolumeSnapshots};

/// The API group of all kinds, and the prefix of Volferry's labels and annotations.
pub const GROUP: &str = "volferry.dev";

/// The only version of the API.
pub const VERSION: &str = "v1alpha1";

/// What a person replaces by the public key of a SyncEndpoint's status. No key can be this, so the API server rejects a
/// SyncJob that has it.
pub const KEY_TO_FILL_IN: &str = "STATUS.PUBLICKEY";
