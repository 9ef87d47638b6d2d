//! The two ends of a run: where they are, who permits their use, and how they are known again.

pub mod bucket_end;
pub mod claim_end;
pub mod destination_identity;
pub mod end_kind;
pub mod end_namespaces;
pub(crate) mod permission;
pub mod remote_end;
pub mod shared_destination;
pub mod source_and_sink;
pub mod source_identity;
