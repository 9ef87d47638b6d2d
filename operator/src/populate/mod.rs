//! Implements `volferry-operator populate`: claims whose `dataSourceRef` names a SyncJob come up filled with its copy.
//!
//! It is a program of its own, since it must patch PersistentVolumes, which the operator has no right to. It makes no
//! pods: a SyncJob that it makes for each claim does the filling, and the operator runs that.

pub mod choose_content;
pub mod plan;
pub mod serve;
pub mod temporary_claim;
#[cfg(test)]
mod tests;
