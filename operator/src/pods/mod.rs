//! Builds the objects of a try, with one builder for each Kubernetes kind. Pure: everything read from the cluster comes
//! in as arguments, and building cannot fail.

pub mod accounts;
pub mod build_try;
pub mod children;
pub mod cleanup;
pub mod fs_group;
pub mod job;
pub mod kept_for_logs;
pub(crate) mod neighbours;
pub mod object_store;
pub mod one_pod_or_two;
pub mod placement;
pub mod pod_permissions;
pub mod pod_state;
pub mod pod_volumes;
pub mod pod_warnings;
pub(crate) mod read_warnings;
pub mod security;
pub mod stored_fields;
pub mod why_ended;
pub mod why_not_started;

use std::collections::BTreeMap;

use contract::{OtherSource, Side, VolumeId};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use self::placement::Placements;
use crate::{
    api::{ActiveRun, CommonPodSettings, FsGroups, Hook, SyncJob, SyncRun},
    ends::{
        end_namespaces::{self, EndNamespace},
        source_and_sink::Ends,
    },
    names::{self, TryNames},
    snapshots::keep_base_snapshot::Changes,
    spec::validate::ValidatedSyncJob,
    telemetry::LogFormat,
};

/// The image of syncer pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The image reference.
    pub name: String,
    /// `Always`, `IfNotPresent` or `Never`; `None` leaves it to Kubernetes.
    pub pull_policy: Option<String>,
}

/// The settings that all pods of an operator share.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The image with both binaries.
    pub image: Image,
    /// The form of log lines.
    pub log_format: LogFormat,
    /// The settings for the pods of all SyncJobs; the settings of a SyncJob override them.
    pub pods: CommonPodSettings,
    /// The environment variables that configure the export of the pods' traces, by their names.
    pub trace_env: Vec<(String, String)>,
}

/// One try of a run, with everything that its objects are built from.
#[derive(Debug, Clone, Copy)]
pub struct Try<'a> {
    /// The job.
    pub job: &'a ValidatedSyncJob,
    /// The job's UID.
    pub uid: &'a str,
    /// The run.
    pub run: &'a ActiveRun,
    /// The number of the pods' service account, which no pod of an earlier run uses.
    pub account: u32,
    /// The UID of the run's SyncRun, which owns the run's objects.
    pub run_uid: &'a str,
    /// The names of the objects.
    pub names: &'a TryNames,
    /// The operator's settings.
    pub settings: &'a Settings,
    /// The namespaces of the two ends.
    pub ends: &'a Ends<EndNamespace>,
    /// The nodes that the pods have to run on.
    pub placements: &'a Placements,
    /// The volume id of the last successful run's destination, unless this run has to write to another.
    pub expect_volume: Option<VolumeId>,
    /// Whether the destination refuses another source than that of its copy; `None` for a run that asks for no source.
    pub other_source: Option<OtherSource>,
    /// The hook `before` that the pods have to wait for, if any.
    pub awaited_hook: Option<&'a Hook>,
    /// The groups of the workloads that use the claims, if the spec takes them over.
    pub fs_groups: FsGroups,
    /// Whether the run's pod may have to make the job's key, and to create the Secret for it.
    pub makes_key: bool,
    /// How the run finds out what has changed at its source.
    pub changes: &'a Changes,
}

impl Try<'_> {
    /// Returns the metadata of an object of an end of this try, which is named after that end's Job. In the SyncJob's
    /// namespace, the SyncRun owns it; in another one, the grant does.
    fn metadata(&self, side: Side) -> ObjectMeta {
        let mut labels = job_labels(&self.job.name);
        labels.insert(names::LABEL_RUN.into(), self.run.id.clone());
        labels.insert(names::LABEL_TRY.into(), self.names.label());
        let (name, end) = (self.names.job(side), self.ends.of(side));
        let Some(granted) = end.grant() else {
            return self.owned(name, labels, owner::<SyncRun>(&self.run.id, self.run_uid));
        };
        let mut metadata = self.owned(name, labels, end_namespaces::owner(granted));
        metadata.namespace = Some(end.namespace.clone());
        metadata.annotations.get_or_insert_default().extend([
            (names::ANNOTATION_NAMESPACE.to_string(), self.job.namespace.clone()),
            (names::ANNOTATION_UID.to_string(), self.uid.to_string()),
        ]);
        metadata
    }

    /// Returns the ends that have pods of their own.
    fn sides(&self) -> &'static [Side] {
        self.run.sides()
    }

    /// Returns the metadata of an object that runs of the job share, one after the other.
    fn job_metadata(&self, name: String) -> ObjectMeta {
        self.owned(name, job_labels(&self.job.name), owner::<SyncJob>(&self.job.name, self.uid))
    }

    fn owned(&self, name: String, labels: BTreeMap<String, String>, owner: OwnerReference) -> ObjectMeta {
        ObjectMeta {
            name: Some(name),
            namespace: Some(self.job.namespace.clone()),
            labels: Some(labels),
            annotations: Some([(names::ANNOTATION_SYNCJOB.into(), self.job.name.clone())].into()),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        }
    }
}

/// Returns the owner reference for the objects of a SyncRun or SyncJob.
pub(crate) fn owner<K: kube::Resource<DynamicType = ()>>(name: &str, uid: &str) -> OwnerReference {
    OwnerReference {
        api_version: K::api_version(&()).into_owned(),
        kind: K::kind(&()).into_owned(),
        name: name.into(),
        uid: uid.into(),
        controller: Some(true),
        block_owner_deletion: None,
    }
}

/// Returns the labels of all objects of a job.
pub(crate) fn job_labels(job: &str) -> BTreeMap<String, String> {
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
