//! Makes the VolumeSnapshot of a destination that a run has brought into step, and removes those that are not kept.

use kube::{
    Client, Resource as _, ResourceExt as _,
    api::{DynamicObject, ListParams},
};

use super::{
    destination_image,
    make_capture::{CaptureError, create, delete},
    source_capture::Captured,
    storage_progress::snapshots,
};
use crate::{
    api::{SyncJob, SyncJobStatus},
    controller::{
        context::Context,
        read::{self, is_forbidden, reading},
        view::View,
    },
    fault::Fault,
    names,
    spec::validate::ValidatedSyncJob,
};

/// Makes the VolumeSnapshot of the run under way, if it is missing. Returns the API server's objection, if it has one.
///
/// # Errors
/// If the API server does not answer.
pub(crate) async fn make(
    context: &Context,
    view: &View<'_>,
    valid: &ValidatedSyncJob,
) -> Result<Option<Fault>, CaptureError> {
    let asked = view.active().and_then(|run| Some((run, run.image.as_ref()?)));
    let (Some((run, asked)), Some(demand)) = (asked, &valid.images) else { return Ok(None) };
    let (Some(owner), Captured::Missing) = (view.job.owner_ref(&()), &view.found.facts.imaged) else {
        return Ok(None);
    };
    let made = destination_image::of_run(valid, &demand.of, run, owner, &asked.name);
    match create(&snapshots(&context.client, &valid.namespace), &made).await {
        Ok(()) => Ok(None),
        Err(error) => error.objection("destination.volumeSnapshots").map(Some).ok_or(error),
    }
}

/// Removes the VolumeSnapshots of a job's destination that it does not keep, once one of its runs has ended.
///
/// # Errors
/// If the API server does not answer, or rejects a deletion.
pub(crate) async fn prune(
    context: &Context,
    job: &SyncJob,
    status: &SyncJobStatus,
    valid: &ValidatedSyncJob,
) -> Result<(), CaptureError> {
    let Some(demand) = &valid.images else { return Ok(()) };
    let images = all(&context.client, job).await?;
    let claims = context.known.claims.in_namespace(&valid.namespace);
    let used = destination_image::in_use(claims.iter().map(AsRef::as_ref));
    let latest = status.latest_image.as_ref().map(|image| image.name.as_str());
    for gone in destination_image::surplus(&images, latest, demand.of.retain.last, &used) {
        delete(&snapshots(&context.client, &valid.namespace), gone).await?;
    }
    Ok(())
}

/// Returns the VolumeSnapshots that the operator has made of a job's destination.
async fn all(client: &Client, job: &SyncJob) -> read::Result<Vec<DynamicObject>> {
    let (namespace, uid) = (job.namespace().unwrap_or_default(), job.uid().unwrap_or_default());
    let label = format!("{}={}", names::LABEL_SYNCJOB, names::label_value(&job.name_any()));
    match snapshots(client, &namespace).list(&ListParams::default().labels(&label)).await {
        Ok(found) => {
            Ok(found.items.into_iter().filter(|it| destination_image::is_of_job(it, &uid)).collect())
        }
        Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(Vec::new()),
        Err(error) if is_forbidden(&error) => Ok(Vec::new()),
        Err(error) => Err(reading("VolumeSnapshots")(error)),
    }
}
