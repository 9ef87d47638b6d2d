//! The types that the operator and the syncer share, and nothing else: the parameters of a run, its exit codes, its
//! [`Report`], its progress lines, and the identity files by which its two ends prove themselves.
//!
//! The operator never links the engine. It renders a [`RunParams`] into a command line with
//! [`RunParams::to_args`], starts `volferry`, and reads back [`Event`] lines and a [`Report`].

mod authorized;
mod bench;
mod bench_result;
mod bottleneck;
mod bucket_url;
mod busy;
mod changed_blocks;
pub mod client_bounds;
mod contact;
mod content_hash;
mod error_chain;
mod escape;
mod exit;
mod flag_table;
mod folder_request;
pub mod gitignore_pattern;
mod history;
pub mod human;
mod identity;
mod identity_error;
mod link;
mod own_key;
mod param_types;
mod params;
mod parse_error;
mod phase;
mod phase_effort;
mod planned_action;
mod private_file;
mod public_key;
mod reason;
pub mod regression;
mod report;
mod reshape;
mod run_kind;
mod snapshots;
mod store_key;
mod text_form;
mod timings;
mod volume;
mod work;

pub use authorized::{
    AuthorizedFileError, AuthorizedKey, AuthorizedKeyError, MAX_NAME_BYTES, is_name, read_authorized,
};
pub use bench::{
    BenchFigures, BenchFiles, BenchMachine, BenchPlace, BenchStep, BenchStepName, BenchTree, MAX_BENCH_BYTES,
    MAX_BENCH_FILES, MAX_BENCH_GROUPS,
};
pub use bench_result::BenchResult;
pub use bottleneck::{Bottleneck, Cause, MIN_JUDGED_US, Measured, bottleneck};
pub use bucket_url::{BucketUrl, NotABucket};
pub use busy::{BusyAnswer, BusyAnswerError, BusyAnswers, MAX_BUSY_ANSWER_BYTES};
pub use changed_blocks::{ChangedBlocks, ChangedRanges, MAX_CHANGED_RANGES, RangeError};
pub use contact::{Contact, Fingerprint};
pub use content_hash::{ContentHash, DeviceContent};
pub use error_chain::chain;
pub use escape::{drives_terminal, printable, printable_json, write_escaped_field};
pub use exit::ExitCode;
pub use flag_table::Flag;
pub use folder_request::{FolderAccess, FolderRequest, service_job};
pub use history::{CopySelection, History, HistoryReport, HistoryRequest};
pub use identity::{Identity, IdentityPair, MAX_JOB_BYTES};
pub use identity_error::IdentityError;
pub use link::{LinkKind, RunLink};
pub use own_key::OwnKey;
pub use param_types::{
    BYTE_UNITS, Compare, Compression, DeleteLimit, DeleteTiming, OtherSource, Ownership, Preserve, Shard,
    WriteMode, parse_bytes,
};
pub use params::{Demands, FilesFrom, RunParams};
pub use parse_error::ParseParamError;
pub use phase::Phase;
pub use phase_effort::{Effort, Efforts, MAX_EFFORTS};
pub use planned_action::{Action, Difference, EntryKind, PlannedAction};
pub use private_file::KeyOwner;
pub use public_key::PublicKey;
pub use reason::Reason;
pub use report::{Event, Failure, MAX_FAILURES, Progress, Report, RunResult, ServedRun, Side, timestamp};
pub use reshape::{Chmod, Chown, ModeChange};
pub use run_kind::RunKind;
pub use snapshots::{
    AS_OF, LATEST, MAX_DAMAGED, MAX_SNAPSHOTS, MAX_TAG_BYTES, Retention, SnapshotEngine, SnapshotEntry,
    SnapshotParams, SnapshotReport, SnapshotVerify, VerifyReport, is_tag,
};
pub use store_key::StoreKey;
pub use timings::Timings;
pub use volume::VolumeId;
pub use work::{Rates, Usage, Work};
