//! The namespace of one test, and what tests do with the SyncJobs in it.

use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::Value;

use crate::{kubectl::Kubectl, syncjob, wait};

/// A namespace with its clients, which have all rights.
pub struct OwnNamespace {
    /// A client.
    pub client: Client,
    /// kubectl in the namespace.
    pub kubectl: Kubectl,
    /// The namespace's SyncJobs.
    pub jobs: Api<DynamicObject>,
    /// The namespace's SyncRuns.
    pub runs: Api<DynamicObject>,
    /// The namespace's name.
    pub namespace: String,
    /// The limit of waits.
    patience: Duration,
}

impl OwnNamespace {
    /// Returns the namespace of that name.
    pub(crate) fn new(client: Client, kubectl: Kubectl, namespace: String, patience: Duration) -> Self {
        let (jobs, runs) = (syncjob::api(&client, &namespace), syncjob::runs(&client, &namespace));
        Self { client, kubectl, jobs, runs, namespace, patience }
    }

    /// Returns the namespace's API of a kind.
    pub fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    /// Creates a SyncJob from claim `from` to claim `to`.
    pub async fn sync(&self, name: &str, others: Value) -> Result<DynamicObject> {
        syncjob::create(&self.jobs, syncjob::manifest(name, "from", "to", others)).await
    }

    /// Patches a SyncJob.
    pub async fn patch(&self, name: &str, patch: Value) -> Result<DynamicObject> {
        let patch = Patch::Merge(patch);
        self.jobs.patch(name, &PatchParams::default(), &patch).await.context("patching a SyncJob")
    }

    /// Returns the SyncJob once `holds` is true of it.
    pub async fn until(
        &self,
        name: &str,
        what: &str,
        holds: impl Fn(&DynamicObject) -> bool,
    ) -> Result<DynamicObject> {
        wait::until(&self.jobs, name, what, self.patience, holds).await
    }

    /// Returns the SyncRun once `holds` is true of it.
    pub async fn run(
        &self,
        name: &str,
        what: &str,
        holds: impl Fn(&DynamicObject) -> bool,
    ) -> Result<DynamicObject> {
        wait::until(&self.runs, name, what, self.patience, holds).await
    }

    /// Returns the SyncJob once its condition `kind` is true.
    pub async fn until_is(&self, name: &str, kind: &str) -> Result<DynamicObject> {
        self.until(name, &format!("{kind} is true"), |job| syncjob::is(job, kind)).await
    }

    /// Returns the SyncJob once its condition `kind` has that reason, with any status.
    pub async fn until_reason(&self, name: &str, kind: &str, reason: &str) -> Result<DynamicObject> {
        let what = format!("the reason of {kind} is {reason}");
        self.until(name, &what, |job| syncjob::has_reason(job, kind, reason)).await
    }
}
