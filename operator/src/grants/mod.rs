//! What other namespaces permit: SyncGrants, annotations, and the removal of what was made there.

pub mod find_grant;
pub mod namespace_annotations;
pub(crate) mod read_namespace;
pub(crate) mod refresh_grants;
pub(crate) mod remove_abroad;
