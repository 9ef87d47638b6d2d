//! The children of a try, one builder a Kubernetes kind. Pure: what is read from the cluster comes in, and
//! building cannot fail.

pub mod access;
pub mod job;
pub mod secret;
pub mod security;
pub mod service;

use std::collections::BTreeMap;

use contract::{Side, VolumeId};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Resource as _;

use crate::{
    api::{ActiveRun, SyncJob},
    controller::{placement::Placement, validate::ValidatedSyncJob},
    names::{self, TryNames},
    telemetry::LogFormat,
};

/// The image of syncer pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// As a kubelet pulls it.
    pub name: String,
    /// `Always`, `IfNotPresent` or `Never`; `None` leaves it to Kubernetes.
    pub pull_policy: Option<String>,
}

/// What is the same for all pods that an operator makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where both binaries are.
    pub image: Image,
    /// The form of log lines.
    pub log_format: LogFormat,
}

/// One try of a run: all that its children are made from.
#[derive(Debug, Clone, Copy)]
pub struct Try<'a> {
    /// The job.
    pub job: &'a ValidatedSyncJob,
    /// The job's UID.
    pub uid: &'a str,
    /// The run.
    pub run: &'a ActiveRun,
    /// The children's names.
    pub names: &'a TryNames,
    /// The operator's settings.
    pub settings: &'a Settings,
    /// The namespace lets syncers run as root.
    pub privileged: bool,
    /// Where the pods have to run.
    pub placements: &'a Placements,
    /// The destination of the last successful run, unless this run is to write to another.
    pub expect_volume: Option<VolumeId>,
}

/// Where the pods of a try have to run, beyond what the scheduler knows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Placements {
    /// The end with the files.
    pub source: Option<Placement>,
    /// The end that receives them.
    pub sink: Option<Placement>,
    /// All pods that use the source's claim have to be on one node.
    pub source_on_one_node: bool,
    /// All pods that use the destination's claim have to be on one node.
    pub sink_on_one_node: bool,
}

impl Placements {
    /// Whether all pods that use that end's claim have to be on one node.
    pub fn on_one_node(&self, side: Side) -> bool {
        match side {
            Side::Source => self.source_on_one_node,
            Side::Sink => self.sink_on_one_node,
        }
    }

    /// Those of the one pod of a local run, which goes by the sink's name.
    pub fn in_one_pod(&self) -> Self {
        Self { sink: self.sink.clone().or_else(|| self.source.clone()), ..self.clone() }
    }

    /// Where the pod of that end has to run.
    pub fn of(&self, side: Side) -> Option<&Placement> {
        match side {
            Side::Source => self.source.as_ref(),
            Side::Sink => self.sink.as_ref(),
        }
    }
}

impl Try<'_> {
    /// Metadata of a child of this try.
    fn metadata(&self, name: String) -> ObjectMeta {
        let mut metadata = self.job_metadata(name);
        let labels = metadata.labels.get_or_insert_default();
        labels.insert(names::LABEL_RUN.into(), self.run.id.clone());
        labels.insert(names::LABEL_TRY.into(), self.names.label());
        metadata
    }

    /// Metadata of a child that outlives the try.
    fn job_metadata(&self, name: String) -> ObjectMeta {
        ObjectMeta {
            name: Some(name),
            namespace: Some(self.job.namespace.clone()),
            labels: Some(job_labels(&self.job.name)),
            annotations: Some([(names::ANNOTATION_SYNCJOB.into(), self.job.name.clone())].into()),
            owner_references: Some(vec![owner(&self.job.name, self.uid)]),
            ..ObjectMeta::default()
        }
    }
}

/// The labels of all children of a job.
fn job_labels(job: &str) -> BTreeMap<String, String> {
    [
        ("app.kubernetes.io/name", "volferry".to_string()),
        ("app.kubernetes.io/component", "syncer".into()),
        ("app.kubernetes.io/part-of", "volferry".into()),
        ("app.kubernetes.io/instance", names::label_value(job)),
        (names::LABEL_MANAGED_BY, names::FIELD_MANAGER.into()),
        (names::LABEL_SYNCJOB, names::label_value(job)),
    ]
    .map(|(key, value)| (key.to_string(), value))
    .into()
}

/// Deleting the job is not held up by the child (`blockOwnerDeletion`), because the finalizer sees to the
/// order.
fn owner(name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: SyncJob::api_version(&()).into_owned(),
        kind: SyncJob::kind(&()).into_owned(),
        name: name.into(),
        uid: uid.into(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

#[cfg(test)]
pub(crate) mod tests;
