//! Captures the source of a run at one instant: makes the VolumeSnapshot and the temporary claim, and removes them once
//! no run reads from them.

use contract::Reason;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api, Client, Resource, ResourceExt as _,
    api::{DeleteParams, PostParams, Preconditions},
};
use serde::{Serialize, de::DeserializeOwned};

use super::{
    group_progress, keep_base_snapshot,
    source_capture::{self, CaptureOf, Captured},
    storage_progress::{self, class, is_ours, snapshot, snapshots},
};
use crate::{
    api::{CaptureMethod, SyncJob, SyncJobStatus},
    controller::{apply::Refusal, context::Context, dereference::Dereferenced, read, view::View},
    fault::Fault,
    human::{clipped, sentence},
    names::{self, FIELD_MANAGER},
    spec::validate::ValidatedSyncJob,
};

/// The longest message of an API server in a status, in bytes.
const MAX_WORDS_BYTES: usize = 1024;

/// The failure of an operation on what captures a source.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CaptureError {
    /// An object cannot be made or removed.
    #[error("cannot {operation} {name}, which captures the source of a run")]
    Change {
        operation: &'static str,
        name: String,
        #[source]
        source: kube::Error,
    },
    /// An object cannot be read.
    #[error(transparent)]
    Read(#[from] read::DereferenceError),
}

impl CaptureError {
    /// Returns the API server's objection to what that field of the spec asks for; `None` if the error has another
    /// cause, such as an outage.
    pub(crate) fn objection(&self, field: &str) -> Option<Fault> {
        let Self::Change { name, source: kube::Error::Api(answer), .. } = self else { return None };
        let words = sentence(&clipped(&answer.message, MAX_WORDS_BYTES));
        let message = format!(
            "The API server refuses {name}: {words} Correct spec.{field} if that is what it names, else the quota, the admission \
             policy or the operator's rights that stand in the way."
        );
        let is_refused = matches!(answer.code, 400 | 403 | 404 | 422);
        is_refused.then(|| Fault::new(Reason::ChildRefused, message))
    }
}

/// Makes what the capture of a run lacks. Returns the API server's objection, if it has one.
///
/// # Errors
/// If the API server does not answer.
pub(crate) async fn make(
    context: &Context,
    view: &View<'_>,
    valid: &ValidatedSyncJob,
) -> Result<Option<Refusal>, CaptureError> {
    if view.found.facts.captured != Captured::Missing {
        return Ok(None);
    }
    let Some(of) = capture_of(view, valid) else { return Ok(None) };
    match of.demand.method {
        CaptureMethod::Snapshot => {
            refused(create(&snapshots(&context.client, &valid.namespace), &of.snapshot()).await)
        }
        CaptureMethod::Clone => give_claim(context, view.job, &of, view.found).await,
        // The set makes one for all its runs.
        CaptureMethod::Group => Ok(None),
    }
}

/// Makes the temporary claim that the pods of a run read from, before those.
///
/// # Errors
/// If the API server does not answer.
pub(crate) async fn before_pods(
    context: &Context,
    view: &View<'_>,
    valid: &ValidatedSyncJob,
) -> Result<Option<Refusal>, CaptureError> {
    let capture = capture_of(view, valid).filter(|of| of.demand.method != CaptureMethod::Clone);
    match capture {
        Some(of) => give_claim(context, view.job, &of, view.found).await,
        None => Ok(None),
    }
}

/// Returns what the capture of the run under way needs.
fn capture_of<'a>(view: &'a View<'_>, valid: &'a ValidatedSyncJob) -> Option<CaptureOf<'a>> {
    let run = view.active()?;
    let (demand, name) = (&valid.capture.as_ref()?.of, run.capture.as_ref()?.name.as_str());
    let source = source_capture::source(&view.found.claims)?;
    let owner = view.found.run.as_ref()?.owner_ref(&())?;
    let by_job = view.job.owner_ref(&()).filter(|_| keep_base_snapshot::may_have_base(valid));
    let snapshot_owner = by_job.unwrap_or_else(|| owner.clone());
    Some(CaptureOf { job: valid, demand, run, owner, snapshot_owner, source, name })
}

async fn give_claim(
    context: &Context,
    job: &SyncJob,
    of: &CaptureOf<'_>,
    found: &Dereferenced,
) -> Result<Option<Refusal>, CaptureError> {
    let (client, name) = (&context.client, of.name);
    if let Some(there) = storage_progress::claim(client, job, name).await? {
        let foreign = || Refusal::Hindered(source_capture::not_of_run("claim", name));
        return Ok((!source_capture::is_of_run(&there.metadata, of.run)).then(foreign));
    }
    let class = class(client, of.demand, &found.claims).await?;
    let snapshot = match of.demand.method {
        CaptureMethod::Snapshot => snapshot(client, job, name).await?,
        CaptureMethod::Clone => None,
        CaptureMethod::Group => match group_progress::member(context.sources(), job, of.run).await? {
            Ok(snapshot) => Some(snapshot),
            Err(fault) => return Ok(Some(Refusal::Hindered(fault))),
        },
    };
    match of.claim(class.as_ref(), snapshot.as_ref()) {
        Some(claim) => refused(create(&read::api(client, job), &claim).await),
        None => Ok(None),
    }
}

fn refused(made: Result<(), CaptureError>) -> Result<Option<Refusal>, CaptureError> {
    match made {
        Ok(()) => Ok(None),
        Err(error) => {
            let objection = error.objection("source.pointInTime").map(Refusal::Hindered);
            objection.map(Some).ok_or(error)
        }
    }
}

/// Creates an object, unless it is there.
pub(crate) async fn create<K>(api: &Api<K>, object: &K) -> Result<(), CaptureError>
where
    K: Clone + std::fmt::Debug + Serialize + DeserializeOwned + Resource,
{
    let params = PostParams { field_manager: Some(FIELD_MANAGER.into()), ..PostParams::default() };
    match api.create(&params, object).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(answer)) if answer.code == 409 => Ok(()),
        Err(source) => Err(CaptureError::Change { operation: "create", name: object.name_any(), source }),
    }
}

/// Removes what earlier captures have made, and returns whether nothing is left of it.
///
/// # Errors
/// If the API server does not answer, or rejects a deletion.
pub(crate) async fn remove(
    client: &Client,
    job: &SyncJob,
    status: &SyncJobStatus,
) -> Result<bool, CaptureError> {
    let namespace = job.namespace().unwrap_or_default();
    let mut is_removed = true;
    let (own_name, uid) = (job.name_any(), job.uid().unwrap_or_default());
    for name in source_capture::left(status) {
        is_removed = false;
        if !names::is_capture_of(name, &own_name, &uid) {
            continue;
        }
        let claims = read::api::<PersistentVolumeClaim>(client, job);
        delete_ours(&claims, storage_progress::claim(client, job, name).await?).await?;
        if !keep_base_snapshot::is_kept(status, name) {
            delete_ours(&snapshots(client, &namespace), snapshot(client, job, name).await?).await?;
        }
    }
    Ok(is_removed)
}

/// Deletes an object, if it is there and the operator made it for a run.
async fn delete_ours<K>(api: &Api<K>, found: Option<K>) -> Result<(), CaptureError>
where
    K: Clone + std::fmt::Debug + DeserializeOwned + Resource,
{
    match found.filter(is_ours) {
        Some(found) => delete(api, &found).await,
        None => Ok(()),
    }
}

/// Deletes an object, unless that is under way.
pub(crate) async fn delete<K>(api: &Api<K>, found: &K) -> Result<(), CaptureError>
where
    K: Clone + std::fmt::Debug + DeserializeOwned + Resource,
{
    if found.meta().deletion_timestamp.is_some() {
        return Ok(());
    }
    let (name, uid) = (found.name_any(), found.uid());
    let uid = Preconditions { uid, ..Preconditions::default() };
    let params = DeleteParams { preconditions: Some(uid), ..DeleteParams::default() };
    match api.delete(&name, &params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(answer)) if matches!(answer.code, 404 | 409) => Ok(()),
        Err(source) => Err(CaptureError::Change { operation: "delete", name, source }),
    }
}
