//! The types that the operator and the syncer share, and nothing else: the parameters of a run, its exit codes, its
//! [`Report`], its progress lines, and the identity files by which its two ends prove themselves.
//!
//! The operator never links the engine. It renders a [`RunParams`] into a command line with
//! [`RunParams::to_args`], starts `volferry`, and reads back [`Event`] lines and a [`Report`].

mod bench;
mod bench_result;
mod bottleneck;
mod contact;
mod escape;
mod exit;
mod identity;
mod param_types;
mod params;
mod parse_error;
mod phase;
mod planned_action;
mod plural;
pub mod regression;
mod report;
mod snapshots;
mod timings;
mod volume;

pub use bench::{
    BenchFigures, BenchFiles, BenchMachine, BenchPlace, BenchStep, BenchStepName, BenchTree, MAX_BENCH_BYTES,
    MAX_BENCH_FILES, MAX_BENCH_GROUPS,
};
pub use bench_result::BenchResult;
pub use bottleneck::{Bottleneck, Cause, Effort, Efforts, MAX_EFFORTS, MIN_JUDGED_US, Measured, bottleneck};
pub use contact::{Contact, Fingerprint};
pub use escape::Escaping;
pub use exit::ExitCode;
pub use identity::{FreshKey, Identity, IdentityError, IdentityPair, MAX_JOB_BYTES};
pub use param_types::{
    BYTE_UNITS, Compare, Compression, DeleteLimit, DeleteTiming, Ownership, Preserve, Shard, WriteMode,
    parse_bytes,
};
pub use params::{Demands, FilesFrom, RunParams};
pub use parse_error::ParseParamError;
pub use phase::Phase;
pub use planned_action::{Action, Difference, EntryKind, PlannedAction};
pub use plural::plural;
pub use report::{
    Event, Failure, MAX_FAILURES, Progress, Rates, Report, RunResult, Side, Usage, Work, timestamp,
};
pub use snapshots::{
    MAX_DAMAGED, MAX_SNAPSHOTS, Retention, SNAPSHOTS_DAMAGED, SnapshotEngine, SnapshotEntry, SnapshotParams,
    SnapshotReport, SnapshotVerify, VerifyReport,
};
pub use timings::Timings;
pub use volume::VolumeId;
