//! What a run does with snapshots: the one after it, the one before a restore, the check that follows, and copies of
//! the source's.

pub(crate) mod after_run;
pub(crate) mod before_restore;
pub(crate) mod check_after_run;
pub(crate) mod copy_in_run;
mod drop_snapshots;
mod make_room;
pub(crate) mod retain_offsite;

pub(crate) use after_run::{labels, remember_rules, snapshot_after_run, snapshot_refused};
pub use before_restore::Before;
pub(crate) use copy_in_run::{HistoryRules, copy_for_run};
pub(crate) use retain_offsite::retain_offsite;
