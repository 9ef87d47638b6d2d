//! A run of a SyncJob: when it is due ([`schedule`]), what comes next ([`stages`]), how a try ended ([`outcome`]), and
//! its record ([`record`]).

pub mod benchmark;
pub(crate) mod bookkeeping;
pub mod kept_records;
pub mod outcome;
pub mod record;
pub mod regression;
pub mod restore;
pub mod retry;
pub mod schedule;
pub mod shard_pairs;
pub mod stages;
pub(crate) mod stray_runs;
pub mod write_record;
