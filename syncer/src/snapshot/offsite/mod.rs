//! A snapshot that is taken straight into a store elsewhere, which needs nothing written at the source.

pub(crate) mod compare_with_base;
pub(crate) mod offsite_store;
pub(crate) mod read_for_offsite;
pub(crate) mod take_offsite;

pub(crate) use compare_with_base::quiet_before;
pub use offsite_store::{
    ChangeRoots, JudgeRoots, OffsiteStore, ReceiveOldFolder, RemovedSnapshots, VerifiedShare,
};
pub(crate) use take_offsite::{OffsiteWork, last_of_job, take_offsite};
