//! Decides which snapshots are kept, and removes the others with what only they need.

pub(crate) mod collect_garbage;
pub(crate) mod keep_reasons;
pub(crate) mod kept_by_rules;

pub use collect_garbage::{Collected, collect_garbage, plan_collection};
pub use keep_reasons::{KeptBy, Period, Rule, Until, Verdict};
pub(crate) use kept_by_rules::{MAX_SAFETY, not_kept};
pub use kept_by_rules::{explain, judge, removed_by};
