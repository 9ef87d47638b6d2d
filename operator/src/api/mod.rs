//! The `volferry.dev/v1alpha1` API: [`SyncJob`], [`SyncRun`] and their statuses.
//!
//! These types are the only source of the CRDs in `crds/`: doc comments become field documentation, serde defaults
//! become schema defaults, and the `rules` become CEL rules, by which the API server validates a manifest.

pub mod admission;
mod benchmark;
pub mod conditions;
mod crd;
mod endpoint;
mod files;
mod pods;
mod restore;
pub(crate) mod rules;
mod run;
mod spec;
mod status;
mod transfer;

pub use benchmark::{Benchmark, BenchmarkTree};
pub use crd::{crd_files, crds};
pub use endpoint::{AccessMode, ClaimReference, CreateClaim, DestinationEndpoint, SourceEndpoint};
pub use files::{DeleteLimit, Files, Preserve};
pub use pods::{CommonPodSettings, EndPodSettings, FsGroupFrom, PodSecurity, PodSettings};
pub use restore::Restore;
pub use run::{SyncJobReference, SyncRun, SyncRunSpec, SyncRunStatus};
pub use spec::{
    ConcurrencyPolicy, DeletionPolicy, HistoryLimit, Hook, HookTarget, Hooks, Limits, OnHookFailure,
    Regression, Retain, Schedule, Snapshots, SyncJob, SyncJobSpec, VerifySnapshots,
};
pub use status::{
    ActiveRun, Baseline, EarlierTries, FsGroups, HistoryEntry, HookRun, KeptSnapshot, KnownDestination,
    MAX_PARALLELISM, Reports, Run, RunCause, RunFolder, RunHooks, RunProgress, ShardProgress, ShardReports,
    SnapshotStatus, Stage, StoppedRun, Summary, Superseded, SyncJobPhase, SyncJobStatus,
};
pub use transfer::{CompressionMode, Placement, Transfer};

/// The API group of all kinds, and the prefix of Volferry's labels and annotations.
pub const GROUP: &str = "volferry.dev";

/// The only version of the API.
pub const VERSION: &str = "v1alpha1";
