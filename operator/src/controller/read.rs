//! How the controller reads from the API server, and what it says where it cannot.

use kube::{Api, Client, ResourceExt as _, core::DeserializeGuard};
use thiserror::Error;

use crate::api::SyncJob;

/// A SyncJob, or what is left to know of one that this operator cannot read: one object that a newer operator has let
/// in must not stop the work for all others.
pub type Guarded = DeserializeGuard<SyncJob>;

/// What could not be read.
#[derive(Debug, Error)]
pub enum DereferenceError {
    /// The API server did not answer, or not as expected.
    #[error("cannot read the {kind} of the job")]
    Read {
        /// Of which kind.
        kind: &'static str,
        /// Why.
        #[source]
        source: kube::Error,
    },
}

impl DereferenceError {
    /// Whether the API server refused for lack of a right.
    pub fn is_forbidden(&self) -> bool {
        let Self::Read { source, .. } = self;
        is_forbidden(source)
    }
}

pub(super) type Result<T> = std::result::Result<T, DereferenceError>;

pub(super) fn api<K>(client: &Client, job: &SyncJob) -> Api<K>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
    K::DynamicType: Default,
{
    Api::namespaced(client.clone(), &job.namespace().unwrap_or_default())
}

pub(super) fn is_forbidden(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_forbidden())
}

pub(super) fn reading(kind: &'static str) -> impl Fn(kube::Error) -> DereferenceError {
    move |source| DereferenceError::Read { kind, source }
}
