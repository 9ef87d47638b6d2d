//! The children of a try, one builder a Kubernetes kind. Pure: what is read from the cluster comes in, and
//! building cannot fail.

pub mod access;
pub mod job;

use std::collections::BTreeMap;

use contract::VolumeId;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::{
    api::{ActiveRun, SyncRun},
    model::{placement::Placements, validate::ValidatedSyncJob},
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
    /// The UID of the run's SyncRun, which owns what is made for the run.
    pub run_uid: &'a str,
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

impl Try<'_> {
    /// Metadata of a child of this try.
    fn metadata(&self, name: String) -> ObjectMeta {
        let mut metadata = self.run_metadata(name);
        metadata.labels.get_or_insert_default().insert(names::LABEL_TRY.into(), self.names.label());
        metadata
    }

    /// Metadata of a child that all tries of the run share.
    fn run_metadata(&self, name: String) -> ObjectMeta {
        let mut labels = job_labels(&self.job.name);
        labels.insert(names::LABEL_RUN.into(), self.run.id.clone());
        ObjectMeta {
            name: Some(name),
            namespace: Some(self.job.namespace.clone()),
            labels: Some(labels),
            annotations: Some([(names::ANNOTATION_SYNCJOB.into(), self.job.name.clone())].into()),
            owner_references: Some(vec![SyncRun::owner(&self.run.id, self.run_uid)]),
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

#[cfg(test)]
pub(crate) mod tests;
