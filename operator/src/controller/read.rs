//! Reads objects from the API server, with errors that name what could not be read.

use kube::{Api, Client, ResourceExt as _, core::DeserializeGuard};
use thiserror::Error;

use crate::api::{SyncEndpoint, SyncGrant, SyncJob, SyncJobSet, SyncRun};

/// A SyncJob, or only the metadata of one that this operator cannot parse: one object that a newer operator has
/// admitted must not stop the work for all others.
pub type Guarded = DeserializeGuard<SyncJob>;

/// A SyncRun, or only the metadata of one that this operator cannot parse.
pub type GuardedRun = DeserializeGuard<SyncRun>;

/// A SyncGrant, or only the metadata of one that this operator cannot parse.
pub type GuardedGrant = DeserializeGuard<SyncGrant>;

/// A SyncJobSet, or only the metadata of one that this operator cannot parse.
pub type GuardedSet = DeserializeGuard<SyncJobSet>;

/// A SyncEndpoint, or only the metadata of one that this operator cannot parse.
pub type GuardedEndpoint = DeserializeGuard<SyncEndpoint>;

/// The reasons why an object could not be read.
#[derive(Debug, Error)]
pub enum DereferenceError {
    /// The API server did not answer, or not as expected.
    #[error("cannot read the {kind} of the job")]
    Read {
        /// The kind of the object.
        kind: &'static str,
        /// The API server's error.
        #[source]
        source: kube::Error,
    },
}

impl DereferenceError {
    /// Returns whether the API server rejected the request for lack of a permission.
    pub fn is_forbidden(&self) -> bool {
        let Self::Read { source, .. } = self;
        is_forbidden(source)
    }
}

pub(crate) type Result<T> = std::result::Result<T, DereferenceError>;

pub(crate) fn api<K>(client: &Client, job: &SyncJob) -> Api<K>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
    K::DynamicType: Default,
{
    Api::namespaced(client.clone(), &job.namespace().unwrap_or_default())
}

pub(crate) fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_forbidden())
}

pub(crate) fn reading(kind: &'static str) -> impl Fn(kube::Error) -> DereferenceError {
    move |source| DereferenceError::Read { kind, source }
}
