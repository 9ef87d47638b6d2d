//! The clients, stores and caches that all reconciliations share.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt};

use super::{
    lookups::{LatePods, Sources},
    recently_read::Recent,
    stores::{Known, KnownEndpoints},
};
use crate::{
    api::{SyncRun, SyncRunStatus},
    grants::namespace_annotations::NamespaceUsers,
    hooks::hook_tasks::HookTasks,
    leases::held_namespaces::Namespaces,
    pods::{Settings, accounts::Accounts, stored_fields::Job},
    queue::turns::Limits,
    run::write_record::{self, RecordError},
    telemetry::{events::Events, metrics::JobLabels, probes::Health, traces::Traces},
    volumes::node_watches::Volumes,
};

/// The clients, stores and caches that all reconciliations share.
pub(crate) struct Context {
    /// The API server.
    pub(crate) client: Client,
    /// The settings that the pods of all runs have in common.
    pub(crate) settings: Settings,
    /// The publisher of events.
    pub(crate) events: Events,
    /// The metrics, and the state for the probes.
    pub(crate) health: Arc<Health>,
    /// The namespaces that this release of the operator holds.
    pub(crate) namespaces: Namespaces,
    /// The objects that the watches have reported.
    pub(crate) known: Known,
    /// The SyncEndpoints and their objects.
    pub(crate) endpoints: KnownEndpoints,
    /// The nodes of volumes.
    pub(crate) volumes: Volumes,
    /// The recent annotations of namespaces about syncers that run as root.
    pub(crate) consents: Recent<NamespaceUsers>,
    /// The service accounts that this operator has created for pods.
    pub(crate) accounts: Accounts,
    /// The recent findings about pods that start late, by the UIDs of their jobs.
    pub(crate) late: Recent<LatePods>,
    /// The times until which the status of a queued run keeps its position, by the UIDs of the jobs.
    pub(crate) positions: Recent<Timestamp>,
    /// The recent lists of pods that use claims, by their namespaces.
    pub(crate) users: Recent<Arc<Vec<Pod>>>,
    /// The UIDs of recently deleted Jobs.
    pub(crate) removed: Recent<()>,
    /// How often the last reconciliations of a job failed in a row, by the jobs' names.
    pub(crate) failures: Recent<u32>,
    /// The SyncJobSets whose status was written a moment ago, by their UIDs.
    pub(crate) told_sets: Recent<()>,
    /// The limits on concurrent runs.
    pub(crate) limits: Limits,
    /// The tasks of running hooks.
    pub(crate) hooks: HookTasks,
    /// The sender of traces.
    pub(crate) traces: Traces,
}

impl Context {
    pub(crate) fn sources(&self) -> Sources<'_> {
        let Self { client, known, volumes, limits, consents, late, users, removed, .. } = self;
        Sources { client, known, volumes, limits: *limits, consents, late, users, removed }
    }

    /// Writes the parts of a SyncRun's status that differ from `new`.
    pub(crate) async fn write_run_status(
        &self,
        run: &SyncRun,
        new: &SyncRunStatus,
    ) -> Result<(), RecordError> {
        let written = write_record::write(&self.client, run, new).await?;
        written.iter().for_each(|written| self.known.runs.wrote(written));
        Ok(())
    }

    /// Notes that Jobs were deleted, because the watch may report it only later.
    pub(crate) fn note_removed<'a>(&self, jobs: impl IntoIterator<Item = &'a Job>) {
        jobs.into_iter().filter_map(ResourceExt::uid).for_each(|uid| self.removed.put(&uid, ()));
    }

    /// Removes the metrics of a deleted SyncJob, stops its hooks and forgets its service accounts.
    pub(crate) fn forget(&self, namespace: &str, name: &str) {
        self.failures.forget(&format!("{namespace}/{name}"));
        self.health.metrics.forget(&JobLabels { namespace: namespace.into(), name: name.into() });
        self.hooks.forget(namespace, name);
        self.accounts.forget(namespace, name);
    }
}
