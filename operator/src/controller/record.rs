//! The SyncRun of a run: made before anything else of it, and told how far the run is before that is done.

use k8s_openapi::api::rbac::v1::Role;
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions, PropagationPolicy},
};
use serde_json::json;
use thiserror::Error;

use crate::{
    api::{ActiveRun, SyncJob, SyncRun, SyncRunStatus, conditions::reason},
    fault::Fault,
    human::{clipped, sentence},
    model::{
        record::{self, Record},
        status,
    },
    names::{FIELD_MANAGER, FINALIZER_HOOKS},
};

/// The most of the API server's words that get into a status.
const MAX_WORDS_BYTES: usize = 2048;

/// What could not be done to a SyncRun.
#[derive(Debug, Error)]
#[error("cannot {operation} the SyncRun {name}")]
pub struct RecordError {
    operation: &'static str,
    name: String,
    /// Why.
    #[source]
    pub source: kube::Error,
}

impl RecordError {
    /// What the API server has against the SyncRun, if that is why it is not there.
    pub fn refusal(&self) -> Option<Fault> {
        let kube::Error::Api(answer) = &self.source else { return None };
        let fault = || {
            let words = sentence(&clipped(&answer.message, MAX_WORDS_BYTES));
            let message = format!("The API server refuses the SyncRun {}: {words}", self.name);
            Fault::new(reason::CHILD_REFUSED, message)
        };
        [400, 403, 422].contains(&answer.code).then(fault)
    }
}

/// Makes the SyncRun of the run under way, or brings it to what it has to be. Returns it once it is there.
pub async fn keep(
    client: &Client,
    job: &SyncJob,
    run: &ActiveRun,
    found: Option<SyncRun>,
) -> Result<(Record, Option<SyncRun>), RecordError> {
    let uid = job.uid().unwrap_or_default();
    let record = record::judge(run, &job.name_any(), &uid, found.as_ref());
    let is_of_this_spec = job.metadata.generation == Some(run.generation);
    match (record, found) {
        (Record::Missing, _) if is_of_this_spec => Ok((Record::Kept, Some(create(client, job, run).await?))),
        (Record::Asked, Some(asked)) if is_of_this_spec => {
            Ok((Record::Kept, Some(adopt(client, job, run, &asked).await?)))
        }
        (Record::Outdated, Some(old)) => {
            delete(client, &old).await?;
            Ok((Record::Leaving, None))
        }
        (Record::Kept, found) => Ok((Record::Kept, found)),
        (record, _) => Ok((record, None)),
    }
}

async fn create(client: &Client, job: &SyncJob, run: &ActiveRun) -> Result<SyncRun, RecordError> {
    let params = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
    api(client, job).create(&params, &record::sync_run(job, run)).await.map_err(failed("create", &run.id))
}

/// Fills in what a person left to the operator.
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

/// Writes what of a SyncRun's status differs from what is wanted, and returns the SyncRun if anything does.
pub async fn write(
    client: &Client,
    run: &SyncRun,
    new: &SyncRunStatus,
) -> Result<Option<SyncRun>, RecordError> {
    let name = run.name_any();
    let old = run.status.clone().unwrap_or_default();
    let difference = status::difference(&old, new)
        .map_err(|error| failed("render", &name)(kube::Error::SerdeError(error)))?;
    let Some(difference) = difference else { return Ok(None) };
    let mut metadata = json!({"uid": run.uid()});
    // What the ends of another try have written is not removed unseen.
    if old.try_id != new.try_id {
        metadata["resourceVersion"] = json!(run.resource_version());
    }
    let patch = Patch::Merge(json!({"metadata": metadata, "status": difference}));
    match namespaced(client, run).patch_status(&name, &params(), &patch).await {
        Ok(written) => Ok(Some(written)),
        // It is gone: whoever deleted it wants no record.
        Err(kube::Error::Api(answer)) if answer.is_not_found() => Ok(None),
        Err(source) => Err(failed("write the status of", &name)(source)),
    }
}

/// Takes the rights of the pods of a run that has ended, so that its record stays as it is whoever has their token. One
/// that was not launched has none.
pub async fn revoke_rights(client: &Client, run: &SyncRun, role: &str) -> Result<(), RecordError> {
    let roles = Api::<Role>::namespaced(client.clone(), &run.namespace().unwrap_or_default());
    match roles.patch(role, &params(), &Patch::Merge(json!({"rules": null}))).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(answer)) if answer.is_not_found() => Ok(()),
        Err(source) => Err(failed("end the rights of the pods of", &run.name_any())(source)),
    }
}

/// Keeps a SyncRun from being removed before its run's hook `after` has run.
pub async fn hold(client: &Client, run: &SyncRun) -> Result<(), RecordError> {
    set_held(client, run, true).await
}

/// Ends that.
pub async fn release(client: &Client, run: &SyncRun) -> Result<(), RecordError> {
    set_held(client, run, false).await
}

/// Reads the SyncRun anew, since others may have set finalizers of theirs.
async fn set_held(client: &Client, run: &SyncRun, held: bool) -> Result<(), RecordError> {
    let (name, api) = (run.name_any(), namespaced(client, run));
    let now = api.get_opt(&name).await.map_err(failed("read", &name))?.filter(|now| now.uid() == run.uid());
    let Some(now) = now else { return Ok(()) };
    let mut finalizers = now.finalizers().to_vec();
    finalizers.retain(|it| it != FINALIZER_HOOKS);
    if held {
        finalizers.push(FINALIZER_HOOKS.into());
    }
    if finalizers.len() == now.finalizers().len() {
        return Ok(());
    }
    let version = now.resource_version();
    let patch = json!({"metadata": {"uid": now.uid(), "resourceVersion": version, "finalizers": finalizers}});
    match api.patch_metadata(&name, &params(), &Patch::Merge(patch)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(answer)) if answer.is_not_found() => Ok(()),
        Err(source) => Err(failed("hold", &name)(source)),
    }
}

/// Deletes this very SyncRun, and with it all that was made for it.
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
