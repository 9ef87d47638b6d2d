//! Writes the SyncRun of a run. It is created before all other objects of the run, and the stage of a run is written to
//! it before the stage is acted on.

use contract::Reason;
use k8s_openapi::{api::core::v1::Namespace, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy},
};
use serde_json::json;
use thiserror::Error;

use super::record;
use crate::{
    api::{ActiveRun, Stage, SyncJob, SyncRun, SyncRunStatus, is_namespace},
    controller::read::GuardedRun,
    fault::Fault,
    human::{clipped, sentence},
    names::FIELD_MANAGER,
    status::merge_patch,
};

/// The maximum length of an API server message in a status, in bytes.
const MAX_WORDS_BYTES: usize = 2048;

/// The failure of an operation on a SyncRun.
#[derive(Debug, Error)]
#[error("cannot {operation} the SyncRun {name}")]
pub struct RecordError {
    operation: &'static str,
    name: String,
    /// The API server's error.
    #[source]
    pub source: kube::Error,
}

impl RecordError {
    /// Returns the fault if the API server rejected the SyncRun; `None` if the error has another cause.
    pub fn refusal(&self) -> Option<Fault> {
        let kube::Error::Api(answer) = &self.source else { return None };
        let fault = || {
            let words = sentence(&clipped(&answer.message, MAX_WORDS_BYTES));
            let message = format!("The API server refuses the SyncRun {}: {words}", self.name);
            Fault::new(Reason::ChildRefused, message)
        };
        [400, 403, 422].contains(&answer.code).then(fault)
    }
}

/// Creates the SyncRun of the run under way, or completes the one by which a person `asked` for the run. Fails if
/// somebody else has done so meanwhile, or if the API server rejects it.
pub async fn make(
    client: &Client,
    job: &SyncJob,
    run: &ActiveRun,
    asked: Option<&SyncRun>,
) -> Result<SyncRun, RecordError> {
    match asked {
        Some(asked) => adopt(client, job, run, asked).await,
        None => create(client, job, run).await,
    }
}

async fn create(client: &Client, job: &SyncJob, run: &ActiveRun) -> Result<SyncRun, RecordError> {
    let params = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
    api(client, job).create(&params, &record::sync_run(job, run)).await.map_err(failed("create", &run.id))
}

/// Completes the fields that a person left to the operator.
async fn adopt(
    client: &Client,
    job: &SyncJob,
    run: &ActiveRun,
    asked: &SyncRun,
) -> Result<SyncRun, RecordError> {
    let filled = record::sync_run(job, run);
    let metadata = json!({
        "uid": asked.metadata.uid,
        "resourceVersion": asked.metadata.resource_version,
        "labels": filled.metadata.labels,
        "annotations": filled.metadata.annotations,
        "ownerReferences": filled.metadata.owner_references,
    });
    let patch = Patch::Merge(json!({"metadata": metadata, "spec": filled.spec}));
    api(client, job).patch(&run.id, &params(), &patch).await.map_err(failed("fill in", &run.id))
}

/// Writes the fields of a SyncRun's status that differ from `new`, and returns the SyncRun if any does. A SyncRun in
/// stage `Done` is left unchanged. Fails if the API server rejects the write; a deleted SyncRun is no failure.
pub async fn write(
    client: &Client,
    run: &SyncRun,
    new: &SyncRunStatus,
) -> Result<Option<SyncRun>, RecordError> {
    let name = run.name_any();
    let old = run.status.clone().unwrap_or_default();
    if old.stage == Some(Stage::Done) {
        return Ok(None);
    }
    let difference = merge_patch::difference(&old, new)
        .map_err(|error| failed("render", &name)(kube::Error::SerdeError(error)))?;
    let Some(difference) = difference else { return Ok(None) };
    let mut metadata = json!({"uid": run.uid()});
    // The version check rejects this write if an end has reported meanwhile, since it would drop or miss that report.
    if old.try_number != new.try_number || new.stage == Some(Stage::Done) {
        metadata["resourceVersion"] = json!(run.resource_version());
    }
    let patch = Patch::Merge(json!({"metadata": metadata, "status": difference}));
    match namespaced(client, run).patch_status(&name, &params(), &patch).await {
        Ok(written) => Ok(Some(written)),
        // Gone: the person who deleted it wants no record.
        Err(kube::Error::Api(answer)) if answer.is_not_found() => Ok(None),
        Err(source) => Err(failed("write the status of", &name)(source)),
    }
}

/// Writes the conditions of a SyncRun whose other fields cannot be read. Fails if the API server rejects the write.
pub async fn write_unread(client: &Client, run: &SyncRun, new: &SyncRunStatus) -> Result<(), RecordError> {
    let (name, namespace) = (run.name_any(), run.namespace().unwrap_or_default());
    let status = json!({"observedGeneration": new.observed_generation, "conditions": new.conditions});
    let patch = Patch::Merge(json!({"metadata": {"uid": run.uid()}, "status": status}));
    let api = Api::<GuardedRun>::namespaced(client.clone(), &namespace);
    match api.patch_status(&name, &params(), &patch).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(answer)) if answer.is_not_found() => Ok(()),
        Err(source) => Err(failed("write the status of", &name)(source)),
    }
}

/// Has a SyncRun outlive its SyncJob until its run's hook `after` has run: its namespace becomes an owner, too, so that
/// the garbage collector keeps it, and nothing holds up the namespace.
pub async fn hold(client: &Client, run: &SyncRun) -> Result<(), RecordError> {
    let (name, namespace) = (run.name_any(), run.namespace().unwrap_or_default());
    let found = Api::<Namespace>::all(client.clone()).get_metadata(&namespace).await;
    let uid = found.map_err(failed("read the namespace of", &name))?.uid().unwrap_or_default();
    let (api_version, kind) = ("v1".into(), "Namespace".into());
    let owner = OwnerReference { api_version, kind, name: namespace, uid, ..OwnerReference::default() };
    set_holder(client, run, Some(owner)).await
}

/// Undoes [`hold`].
pub async fn release(client: &Client, run: &SyncRun) -> Result<(), RecordError> {
    set_holder(client, run, None).await
}

/// Adds the namespace to the owners of a SyncRun, or removes it. The SyncRun is read first, since others may have set
/// owners of their own.
async fn set_holder(
    client: &Client,
    run: &SyncRun,
    holder: Option<OwnerReference>,
) -> Result<(), RecordError> {
    let (name, api) = (run.name_any(), namespaced(client, run));
    let now = api.get_opt(&name).await.map_err(failed("read", &name))?.filter(|now| now.uid() == run.uid());
    let Some(now) = now.filter(|now| now.is_held() != holder.is_some()) else { return Ok(()) };
    let others = now.owner_references().iter().filter(|owner| !is_namespace(owner)).cloned();
    let owners: Vec<OwnerReference> = others.chain(holder).collect();
    let version = now.resource_version();
    let patch =
        json!({"metadata": {"uid": now.uid(), "resourceVersion": version, "ownerReferences": owners}});
    match api.patch_metadata(&name, &params(), &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(answer)) if answer.is_not_found() => Ok(()),
        Err(source) => Err(failed("hold", &name)(source)),
    }
}

/// Deletes exactly this SyncRun, by its UID, and with it all objects that were created for it.
pub async fn delete(client: &Client, run: &SyncRun) -> Result<(), RecordError> {
    let params = DeleteParams {
        preconditions: Some(Preconditions { uid: run.uid(), ..Preconditions::default() }),
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    match namespaced(client, run).delete(&run.name_any(), &params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(answer)) if answer.is_not_found() || answer.is_conflict() => Ok(()),
        Err(source) => Err(failed("delete", &run.name_any())(source)),
    }
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() }
}

fn api(client: &Client, job: &SyncJob) -> Api<SyncRun> {
    Api::namespaced(client.clone(), &job.namespace().unwrap_or_default())
}

fn namespaced(client: &Client, run: &SyncRun) -> Api<SyncRun> {
    Api::namespaced(client.clone(), &run.namespace().unwrap_or_default())
}

fn failed(operation: &'static str, name: &str) -> impl FnOnce(kube::Error) -> RecordError {
    let name = name.to_string();
    move |source| RecordError { operation, name, source }
}
