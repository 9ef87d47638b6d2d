//! Where reconciliations read from: the API server, the watches' stores, and what was read for other ones a moment ago.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::Client;

use super::{recently_read::Recent, stores::Known};
use crate::{
    grants::namespace_annotations::NamespaceUsers,
    pods::{placement::Placements, pod_warnings::Warnings},
    queue::turns::Limits,
    volumes::node_watches::Volumes,
};

/// What keeps a run's pods from starting, and where they have to run.
#[derive(Debug, Clone)]
pub struct LatePods {
    /// The warnings about them.
    pub warnings: Warnings,
    /// Their places.
    pub placements: Placements,
}

/// The sources that reconciliations read from.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    /// The API server.
    pub client: &'a Client,
    /// The watches' stores.
    pub known: &'a Known,
    /// The nodes of volumes.
    pub volumes: &'a Volumes,
    /// The limits on concurrent runs.
    pub limits: Limits,
    /// The recent annotations of namespaces about syncers that run as root.
    pub consents: &'a Recent<NamespaceUsers>,
    /// The recent findings about pods that start late, by the UIDs of their jobs.
    pub late: &'a Recent<LatePods>,
    /// The recent lists of pods that use claims, by their namespaces.
    pub users: &'a Recent<Arc<Vec<Pod>>>,
    /// The UIDs of recently deleted Jobs.
    pub removed: &'a Recent<()>,
}
