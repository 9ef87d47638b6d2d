//! Leases: which replica leads, and which release holds a namespace.

pub mod election;
pub(crate) mod held_namespaces;
