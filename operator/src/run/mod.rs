//! A run of a SyncJob: when it is due ([`due_times`]), what comes next ([`stages`]), how a try ended ([`outcome`]), and
//! its record ([`record`]).

pub mod benchmark;
pub(crate) mod bookkeeping;
pub mod due_times;
mod judge_hooks;
pub mod old_runs;
pub mod outcome;
pub mod record;
pub mod regression;
pub mod restore;
pub mod retry;
pub mod run_annotations;
pub mod shard_pairs;
pub mod stages;
pub(crate) mod stray_runs;
pub mod write_record;
