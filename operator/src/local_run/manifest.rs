//! Reads manifests and prints statuses.

use std::path::{Path, PathBuf};

use kube::ResourceExt as _;
use serde::Serialize;
use serde_json::Value;
use thiserror::Error;

use crate::{
    api::{
        GROUP, KnownDestination, SyncJobSpec, SyncJobStatus, VERSION,
        admission::{AdmissionError, Admitted, admit},
        manifest_file::{ManifestFileError, documents},
    },
    spec::{
        fields::ValidationError,
        validate::{self, ValidatedSyncJob},
    },
};

/// The reasons why a manifest cannot be run.
#[derive(Debug, Error)]
pub enum ManifestError {
    /// The file cannot be read, or is not YAML.
    #[error(transparent)]
    File(#[from] ManifestFileError),
    /// The file contains no SyncJob.
    #[error("{0} holds no SyncJob (apiVersion: {GROUP}/{VERSION}, kind: SyncJob)")]
    NoJob(PathBuf),
    /// The API server would reject the object.
    #[error("{file}, document {document}")]
    Invalid {
        /// The file.
        file: PathBuf,
        /// The number of the document; the first is 1.
        document: usize,
        /// All problems of the object.
        source: Box<AdmissionError>,
    },
    /// The destination in its status cannot be parsed.
    #[error(
        "{file}, document {document}: status.destination cannot be read; correct it, or remove the status"
    )]
    Status {
        /// The file.
        file: PathBuf,
        /// The number of the document; the first is 1.
        document: usize,
        /// The parse error.
        source: serde_json::Error,
    },
    /// The controller would reject the spec.
    #[error("{file}, document {document}")]
    Refused {
        /// The file.
        file: PathBuf,
        /// The number of the document; the first is 1.
        document: usize,
        /// The validation error.
        source: ValidationError,
    },
}

/// A job to run.
#[derive(Debug)]
pub(super) struct Manifest {
    /// The validated job.
    pub(super) job: ValidatedSyncJob,
    /// The destination that the manifest's status remembers.
    pub(super) known: Option<KnownDestination>,
}

/// Reads the SyncJobs of a file, and validates each as the API server and then the controller would.
pub(super) fn read(file: &Path) -> Result<Vec<Manifest>, ManifestError> {
    let ours = documents(file)?.into_iter().enumerate().filter(|(_, document)| is_ours(document));
    let jobs = ours.filter_map(|(at, document)| job(file, at + 1, document).transpose());
    let jobs = jobs.collect::<Result<Vec<_>, _>>()?;
    if jobs.is_empty() { Err(ManifestError::NoJob(file.into())) } else { Ok(jobs) }
}

/// Returns the job of a document; `None` if the document is of another kind of the API.
fn job(file: &Path, document: usize, manifest: Value) -> Result<Option<Manifest>, ManifestError> {
    // The status is not validated with the rest, because users do not write it.
    let known = manifest.pointer("/status/destination").cloned().unwrap_or_default();
    let known = serde_json::from_value(known).map_err(|source| ManifestError::Status {
        file: file.into(),
        document,
        source,
    })?;
    let admitted = admit(manifest).map_err(|source| ManifestError::Invalid {
        file: file.into(),
        document,
        source: Box::new(source),
    })?;
    let Admitted::SyncJob(job) = admitted else { return Ok(None) };
    let namespace = job.namespace().unwrap_or_else(|| "default".into());
    let refused = |source| ManifestError::Refused { file: file.into(), document, source };
    if let Some(of_cluster) = of_cluster_alone(&job.spec) {
        return Err(refused(of_cluster));
    }
    let valid = validate::validate(&job.spec, &job.name_any(), &namespace).map_err(refused)?;
    Ok(Some(Manifest { job: valid, known }))
}

/// Returns what a job demands that only a cluster can do, and that would be missed in silence.
fn of_cluster_alone(spec: &SyncJobSpec) -> Option<ValidationError> {
    let storage = "needs the storage of a cluster, and here is none";
    let fields = [
        ("hooks", spec.hooks.is_some(), "runs commands in pods, and here are none"),
        ("source.pointInTime", spec.source.point_in_time.is_some(), storage),
        ("destination.volumeSnapshots", spec.destination.volume_snapshots.is_some(), storage),
    ];
    let (field, _, problem) = fields.into_iter().find(|(_, is_asked, _)| *is_asked)?;
    let problem = format!("{problem}; remove it from the manifest");
    Some(ValidationError::Invalid { field: field.into(), problem })
}

/// Returns whether a document belongs to Volferry's API. Other documents in the file are meant for a cluster.
fn is_ours(document: &Value) -> bool {
    document["apiVersion"].as_str().is_some_and(|version| version.starts_with(&format!("{GROUP}/")))
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Shown<'a> {
    api_version: String,
    kind: &'static str,
    metadata: Metadata<'a>,
    status: &'a SyncJobStatus,
}

#[derive(Serialize)]
struct Metadata<'a> {
    name: &'a str,
    namespace: &'a str,
}

/// Formats a job with its status as YAML, like `kubectl get -o yaml`.
pub(super) fn with_status(
    job: &ValidatedSyncJob,
    status: &SyncJobStatus,
) -> Result<String, serde_saphyr::ser::Error> {
    serde_saphyr::to_string(&Shown {
        api_version: format!("{GROUP}/{VERSION}"),
        kind: "SyncJob",
        metadata: Metadata { name: &job.name, namespace: &job.namespace },
        status,
    })
}

#[cfg(test)]
mod tests {
    use contract::chain;

    use super::*;

    const JOB: &str = "
apiVersion: volferry.dev/v1alpha1
kind: SyncJob
metadata: {name: web}
spec:
  source: {persistentVolumeClaim: {claimName: a}}
  destination: {persistentVolumeClaim: {claimName: b}}
";
    const CLAIM: &str = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a}\n";

    fn read_text(text: &str) -> Result<Vec<ValidatedSyncJob>, ManifestError> {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("job.yaml");
        std::fs::write(&file, text).unwrap();
        Ok(read(&file)?.into_iter().map(|manifest| manifest.job).collect())
    }

    #[test]
    fn jobs_are_read_in_order_among_objects_of_other_kinds() {
        let jobs = read_text(&format!("{CLAIM}---{JOB}---{}", JOB.replace("web", "again"))).unwrap();
        let names: Vec<&str> = jobs.iter().map(|job| job.name.as_str()).collect();
        assert_eq!(names, ["web", "again"]);
        assert_eq!(jobs[0].namespace, "default");
    }

    #[test]
    fn what_the_api_server_or_the_controller_would_refuse_is_refused_with_file_document_and_field() {
        let cases = [
            (JOB.replace("claimName: a", "claim: a"), "claimName"),
            (format!("{JOB}  schedule: {{cron: \"61 * * * *\"}}\n"), "spec.schedule.cron"),
            (
                format!("{JOB}  hooks: {{after: {{target: {{matchLabels: {{a: b}}}}, command: [sync]}}}}\n"),
                "spec.hooks: runs commands in pods",
            ),
        ];
        for (job, named) in cases {
            let text = chain(&read_text(&format!("{CLAIM}---{job}")).unwrap_err());
            assert!(text.contains("job.yaml, document 2") && text.contains(named), "{text}");
        }
    }

    #[test]
    fn a_file_without_a_job_is_an_error() {
        assert!(matches!(read_text(CLAIM), Err(ManifestError::NoJob(_))));
        assert!(matches!(read_text("a: ["), Err(ManifestError::File(ManifestFileError::Yaml { .. }))));
        assert!(matches!(
            read(Path::new("/no/such")),
            Err(ManifestError::File(ManifestFileError::Read { .. }))
        ));
    }

    #[test]
    fn the_status_is_shown_as_kubectl_would() {
        let job = &read_text(JOB).unwrap()[0];
        let status = SyncJobStatus { observed_generation: Some(1), ..SyncJobStatus::default() };
        let shown: Value = serde_saphyr::from_str(&with_status(job, &status).unwrap()).unwrap();
        assert_eq!(shown["kind"], "SyncJob");
        assert_eq!(shown["metadata"]["name"], "web");
        assert_eq!(shown["status"]["observedGeneration"], 1);
    }
}
