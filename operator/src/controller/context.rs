//! The clients, stores and caches that all reconciliations share.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::{Client, ResourceExt};

use super::{
    accounts::Accounts,
    hook_tasks::HookTasks,
    namespaces::Namespaces,
    recent::Recent,
    record::{self, RecordError},
    sources::Sources,
    volumes::Volumes,
    watched::{Known, KnownEndpoints},
};
use crate::{
    api::{SyncRun, SyncRunStatus},
    events::Events,
    health::Health,
    metrics::JobLabels,
    model::{
        placement::Placements, queue::Limits, security::NamespaceUsers, stored::Job, warnings::Warnings,
    },
    resources::Settings,
    traces::Traces,
};

/// The clients, stores and caches that all reconciliations share.
pub(super) struct Context {
    /// The API server.
    pub(super) client: Client,
    /// The settings that the pods of all runs have in common.
    pub(super) settings: Settings,
    /// The publisher of events.
    pub(super) events: Events,
    /// The metrics, and the state for the probes.
    pub(super) health: Arc<Health>,
    /// The namespaces that this release of the operator holds.
    pub(super) namespaces: Namespaces,
    /// The objects that the watches have reported.
    pub(super) known: Known,
    /// The SyncEndpoints and their objects.
    pub(super) endpoints: KnownEndpoints,
    /// The nodes of volumes.
    pub(super) volumes: Volumes,
    /// The recent annotations of namespaces about syncers that run as root.
    pub(super) consents: Recent<NamespaceUsers>,
    /// The service accounts that this operator has created for pods.
    pub(super) accounts: Accounts,
    /// The recent findings about pods that start late, by the UIDs of their jobs.
    pub(super) late: Recent<(Warnings, Placements)>,
    /// The times until which the status of a queued run keeps its position, by the UIDs of the jobs.
    pub(super) positions: Recent<Timestamp>,
    /// The recent lists of pods that use claims, by their namespaces.
    pub(super) users: Recent<Arc<Vec<Pod>>>,
    /// The UIDs of recently deleted Jobs.
    pub(super) removed: Recent<()>,
    /// How often the last reconciliations of a job failed in a row, by the jobs' names.
    pub(super) failures: Recent<u32>,
    /// The SyncJobSets whose status was written a moment ago, by their UIDs.
    pub(super) told_sets: Recent<()>,
    /// The limits on concurrent runs.
    pub(super) limits: Limits,
    /// The tasks of running hooks.
    pub(super) hooks: HookTasks,
    /// The sender of traces.
    pub(super) traces: Traces,
}

impl Context {
    pub(super) fn sources(&self) -> Sources<'_> {
        let Self { client, known, volumes, limits, consents, late, users, removed, .. } = self;
        Sources { client, known, volumes, limits: *limits, consents, late, users, removed }
    }

    /// Writes the parts of a SyncRun's status that differ from `new`.
    pub(super) async fn tell_run(&self, run: &SyncRun, new: &SyncRunStatus) -> Result<(), RecordError> {
        let written = record::write(&self.client, run, new).await?;
        written.iter().for_each(|written| self.known.runs.wrote(written));
        Ok(())
    }

    /// Notes that Jobs were deleted, because the watch may report it only later.
    pub(super) fn note_removed<'a>(&self, jobs: impl IntoIterator<Item = &'a Job>) {
        jobs.into_iter().filter_map(ResourceExt::uid).for_each(|uid| self.removed.put(&uid, ()));
    }

    /// Removes the metrics of a deleted SyncJob, stops its hooks and forgets its service accounts.
    pub(super) fn forget(&self, namespace: &str, name: &str) {
        self.failures.forget(&format!("{namespace}/{name}"));
        self.health.metrics.forget(&JobLabels { namespace: namespace.into(), name: name.into() });
        self.hooks.forget(namespace, name);
        self.accounts.forget(namespace, name);
    }
}
