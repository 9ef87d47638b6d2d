//! Looks how far the storage is with the capture of a run's source and with the VolumeSnapshot of its destination, and
//! what is left of earlier captures. Writes nothing.

use contract::Reason;
use k8s_openapi::{
    api::{core::v1::PersistentVolumeClaim, storage::v1::StorageClass},
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{Api, Client, Resource, ResourceExt as _, api::DynamicObject};

use super::{
    destination_image, group_progress, keep_base_snapshot,
    source_capture::{self, Captured},
};
use crate::{
    api::{ActiveRun, CaptureMethod, PointInTime, SyncJob},
    controller::{
        lookups::Sources,
        read::{self, is_forbidden, reading},
    },
    fault::Fault,
    names::{self, FIELD_MANAGER},
    volumes::claims::Claim,
};

/// What to do where [`knows_snapshots`] says no.
pub(crate) const NO_SNAPSHOTS: &str = "The cluster has no VolumeSnapshots (snapshot.storage.k8s.io/v1). Install the CRDs and \
                                       the snapshot controller of kubernetes-csi/external-snapshotter.";

/// Returns how far the capture of the source of a run is. Called while the run has its turn and no pods.
///
/// # Errors
/// If the API server does not answer.
pub(crate) async fn read_progress(
    sources: Sources<'_>,
    job: &SyncJob,
    run: &ActiveRun,
    claims: &[Claim],
) -> read::Result<Captured> {
    let client = sources.client;
    let Some(of) = source_capture::of_run(&job.spec, run) else { return Ok(Captured::Unknown) };
    match &run.capture {
        None => {
            let fault = match of.method {
                CaptureMethod::Group => group_progress::possible(sources, job, claims).await?,
                _ => None,
            };
            let fault = match fault {
                None => possible(client, of, claims).await?,
                fault => fault,
            };
            Ok(fault.map_or(Captured::Unknown, Captured::Impossible))
        }
        Some(capture) if capture.taken_time.is_some() => Ok(Captured::Taken(capture.uid.clone())),
        Some(capture) => match of.method {
            CaptureMethod::Snapshot => {
                let found = snapshot(client, job, &capture.name).await?;
                let others = found.as_ref().filter(|it| !source_capture::is_of_job(it, run, job));
                let foreign = others.and_then(|it| foreign(it, "VolumeSnapshot", run));
                Ok(foreign.unwrap_or_else(|| source_capture::judge_snapshot(found.as_ref())))
            }
            CaptureMethod::Clone => {
                let found = claim(client, job, &capture.name).await?;
                let class = class(client, of, claims).await?;
                let foreign = found.as_ref().and_then(|it| foreign(it, "claim", run));
                Ok(foreign.unwrap_or_else(|| source_capture::judge_clone(found.as_ref(), class.as_ref())))
            }
            CaptureMethod::Group => group_progress::read_progress(sources, job, run).await,
        },
    }
}

/// Returns how far the VolumeSnapshot of a run's destination is. Called once the run has asked for it.
///
/// # Errors
/// If the API server does not answer.
pub(crate) async fn inspect_image(client: &Client, job: &SyncJob, run: &ActiveRun) -> read::Result<Captured> {
    let Some(asked) = &run.image else { return Ok(Captured::Unknown) };
    let uid = job.uid().unwrap_or_default();
    match snapshot(client, job, &asked.name).await? {
        Some(found) if !destination_image::is_of_job(&found, &uid) => {
            Ok(Captured::Taking(Some(source_capture::not_of_run("VolumeSnapshot", &asked.name))))
        }
        None if !knows_snapshots(client).await? => {
            let message = format!(
                "{NO_SNAPSHOTS} Or remove spec.destination.volumeSnapshots; spec.snapshots keeps snapshots on the volume itself."
            );
            Ok(Captured::Impossible(Fault::new(Reason::VolumeSnapshotFailed, message)))
        }
        found => Ok(destination_image::judge(found.as_ref())),
    }
}

/// Returns what keeps a run from an object that has the name of its own and that somebody else has made.
fn foreign(object: &impl Resource, kind: &str, run: &ActiveRun) -> Option<Captured> {
    let complaint = || Captured::Taking(Some(source_capture::not_of_run(kind, &object.name_any())));
    (!source_capture::is_of_run(object.meta(), run)).then(complaint)
}

/// Returns the temporary claim of that name.
pub(crate) async fn claim(
    client: &Client,
    job: &SyncJob,
    name: &str,
) -> read::Result<Option<PersistentVolumeClaim>> {
    let api = read::api::<PersistentVolumeClaim>(client, job);
    api.get_opt(name).await.map_err(reading("temporary claim"))
}

/// Returns why the cluster cannot capture the source, if that is known before anything is made for it.
async fn possible(client: &Client, of: &PointInTime, claims: &[Claim]) -> read::Result<Option<Fault>> {
    if of.method == CaptureMethod::Snapshot && !knows_snapshots(client).await? {
        let message = format!("{NO_SNAPSHOTS} Or set spec.source.pointInTime.method to Clone.");
        return Ok(Some(Fault::new(Reason::CaptureFailed, message)));
    }
    let class = class(client, of, claims).await?;
    Ok(class.as_ref().and_then(|class| source_capture::check_class(class).err()))
}

/// Returns whether the cluster knows VolumeSnapshots.
pub(crate) async fn knows_snapshots(client: &Client) -> read::Result<bool> {
    let group = format!("{}/{}", source_capture::SNAPSHOT_GROUP, source_capture::SNAPSHOT_VERSION);
    match client.list_api_group_resources(&group).await {
        Ok(kinds) => Ok(kinds.resources.iter().any(|kind| kind.kind == "VolumeSnapshot")),
        Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(false),
        Err(error) => Err(reading("API group of VolumeSnapshots")(error)),
    }
}

/// Returns the storage class of the temporary claim; `None` if it has none or the operator may not read it.
pub(crate) async fn class(
    client: &Client,
    of: &PointInTime,
    claims: &[Claim],
) -> read::Result<Option<StorageClass>> {
    let own = || source_capture::source(claims)?.spec.as_ref()?.storage_class_name.clone();
    let Some(name) = of.storage_class_name.clone().or_else(own).filter(|name| !name.is_empty()) else {
        return Ok(None);
    };
    match Api::<StorageClass>::all(client.clone()).get_opt(&name).await {
        Err(error) if is_forbidden(&error) => Ok(None),
        found => found.map_err(reading("storage class")),
    }
}

/// Returns the VolumeSnapshot of that name; none where the cluster does not know the kind. An operator without the
/// right to read it learns so when it makes one.
pub(crate) async fn snapshot(
    client: &Client,
    job: &SyncJob,
    name: &str,
) -> read::Result<Option<DynamicObject>> {
    match snapshots(client, &job.namespace().unwrap_or_default()).get(name).await {
        // Without the kind, the API server answers with another reason than for a missing object.
        Err(kube::Error::Api(answer)) if matches!(answer.code, 403 | 404) => Ok(None),
        found => found.map(Some).map_err(reading("VolumeSnapshot")),
    }
}

pub(crate) fn snapshots(client: &Client, namespace: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), namespace, &source_capture::snapshot_type())
}

/// Returns the names of earlier captures of which nothing is left.
///
/// # Errors
/// If the API server does not answer.
pub(crate) async fn gone(client: &Client, job: &SyncJob) -> read::Result<Vec<String>> {
    let mut gone = Vec::new();
    let left = job.status.iter().flat_map(source_capture::left);
    let (own_name, uid) = (job.name_any(), job.uid().unwrap_or_default());
    for name in left {
        if !names::is_capture_of(name, &own_name, &uid) {
            gone.push(name.clone());
            continue;
        }
        let is_kept = job.status.as_ref().is_some_and(|status| keep_base_snapshot::is_kept(status, name));
        let is_left = claim(client, job, name).await?.is_some_and(|claim| is_ours(&claim))
            || !is_kept && is_there(client, job, name).await?;
        if !is_left {
            gone.push(name.clone());
        }
    }
    Ok(gone)
}

/// Returns whether the operator's VolumeSnapshot of that name is left. One that may not be read counts as left, so that
/// none is forgotten that still takes storage.
async fn is_there(client: &Client, job: &SyncJob, name: &str) -> read::Result<bool> {
    match snapshots(client, &job.namespace().unwrap_or_default()).get(name).await {
        Ok(snapshot) => Ok(is_ours(&snapshot)),
        Err(kube::Error::Api(answer)) if answer.code == 404 => Ok(false),
        Err(error) if is_forbidden(&error) => Ok(true),
        Err(error) => Err(reading("VolumeSnapshot")(error)),
    }
}

/// Returns whether an object is one that the operator made for a run: it has a SyncRun for its owner, or a SyncJob if
/// the next run may need it.
pub(crate) fn is_ours(object: &impl Resource) -> bool {
    let labels = object.labels();
    labels.get(names::LABEL_MANAGED_BY).is_some_and(|by| by == FIELD_MANAGER)
        && object
            .owner_references()
            .iter()
            .any(|owner: &OwnerReference| matches!(owner.kind.as_str(), "SyncRun" | "SyncJob"))
}
