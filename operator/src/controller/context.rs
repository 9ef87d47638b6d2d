//! What a reconciliation works with.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{Client, ResourceExt};

use super::{
    accounts::Accounts,
    dereference::Sources,
    hook_tasks::HookTasks,
    recent::Recent,
    record::{self, RecordError},
    volumes::Volumes,
    watched::Known,
};
use crate::{
    api::{SyncRun, SyncRunStatus},
    events::Events,
    health::Health,
    metrics::JobLabels,
    model::{placement::Placements, queue::Limits, warnings::Warnings},
    resources::Settings,
    traces::Traces,
};

/// What a reconciliation works with.
pub(super) struct Context {
    /// The API server.
    pub(super) client: Client,
    /// What all pods have in common.
    pub(super) settings: Settings,
    /// Where events go.
    pub(super) events: Events,
    /// Where metrics go.
    pub(super) health: Arc<Health>,
    /// What the watches have brought.
    pub(super) known: Known,
    /// Where volumes are.
    pub(super) volumes: Volumes,
    /// What namespaces say of syncers that run as root.
    pub(super) consents: Recent<Option<String>>,
    /// The accounts of pods that have been made.
    pub(super) accounts: Accounts,
    /// What was found of pods that are late, by the UIDs of their jobs.
    pub(super) late: Recent<(Warnings, Placements)>,
    /// For how long the positions of queued runs stay as they are, by the UIDs of their jobs.
    pub(super) positions: Recent<Timestamp>,
    /// The pods that use claims, by their namespaces.
    pub(super) users: Recent<Arc<Vec<Pod>>>,
    /// The UIDs of Jobs that were deleted.
    pub(super) removed: Recent<()>,
    /// How many runs may be under way at a time.
    pub(super) limits: Limits,
    /// The hooks that run.
    pub(super) hooks: HookTasks,
    /// Where traces go.
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

    /// Notes that Jobs were deleted, because the watch may bring that later.
    pub(super) fn note_removed<'a>(&self, jobs: impl IntoIterator<Item = &'a Job>) {
        jobs.into_iter().filter_map(ResourceExt::uid).for_each(|uid| self.removed.put(&uid, ()));
    }

    /// Ends the metrics, hooks and accounts of a SyncJob that is deleted.
    pub(super) fn forget(&self, namespace: &str, name: &str) {
        self.health.metrics.forget(&JobLabels { namespace: namespace.into(), name: name.into() });
        self.hooks.forget(namespace, name);
        self.accounts.forget(namespace, name);
    }
}
