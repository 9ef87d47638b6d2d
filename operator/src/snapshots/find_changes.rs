//! Finds the service of a CSI driver that lists the blocks that changed between two VolumeSnapshots.

use k8s_openapi::ByteString;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject},
    core::GroupVersionKind,
};

use super::{
    change_base::{self, ChangedDemand, Changes, MAX_CERTIFICATE_BYTES},
    source_capture,
    storage_progress::{class, snapshot},
};
use crate::{
    api::{ActiveRun, Capture, ChangeBase, PointInTime, SyncJob, SyncJobStatus},
    controller::read,
    spec::validate::ValidatedSyncJob,
    volumes::claims::Claim,
};

/// The versions of SnapshotMetadataServices, newest first.
const VERSIONS: [&str; 2] = ["v1beta1", "v1alpha1"];

/// Returns how the pods of the run under way find out what has changed. Whatever is in the way costs time only, so the
/// run goes on without.
pub(crate) async fn find(
    client: &Client,
    job: &SyncJob,
    (status, run): (&SyncJobStatus, &ActiveRun),
    valid: &ValidatedSyncJob,
    claims: &[Claim],
) -> Changes {
    let (Some(capture), Some(demand)) = (&run.capture, &valid.capture) else { return Changes::Unlisted };
    if !change_base::may_have_base(valid) {
        return Changes::Unlisted;
    }
    let base = change_base::of_job(status, &valid.name, &job.uid().unwrap_or_default());
    match look(client, job, (&demand.of, capture), base, claims).await {
        Ok(changes) => changes,
        Err(error) => {
            let error = contract::chain(&error);
            tracing::warn!(error, "it is not known whether the storage lists changed blocks");
            Changes::Unlisted
        }
    }
}

async fn look(
    client: &Client,
    job: &SyncJob,
    (demand, target): (&PointInTime, &Capture),
    base: Option<&ChangeBase>,
    claims: &[Claim],
) -> read::Result<Changes> {
    let class = class(client, demand, claims).await?;
    let Some(service) = service(client, class.map(|class| class.provisioner)).await? else {
        return Ok(Changes::Unlisted);
    };
    let Some(base) = base.filter(|base| base.snapshot != target.name) else { return Ok(Changes::FromNowOn) };
    let of_base = content(client, job, &base.snapshot, Some(&base.snapshot_uid)).await?;
    let of_target = content(client, job, &target.name, target.uid.as_ref()).await?;
    let base_id = of_base.zip(of_target).and_then(|(base, target)| id_of_same_volume(&base, &target));
    let since = base_id.and_then(|base_id| demand_of(&service, &target.name, base, base_id));
    Ok(since.map_or(Changes::FromNowOn, |since| Changes::Since(Box::new(since))))
}

/// Returns the driver's id of a base, if it was taken of the volume that the target was taken of. The claim may have
/// another volume by now.
fn id_of_same_volume(base: &DynamicObject, target: &DynamicObject) -> Option<String> {
    let volume = |content: &DynamicObject| {
        let spec = &content.data["spec"];
        spec["driver"].as_str().map(String::from).zip(spec["source"]["volumeHandle"].as_str().map(String::from))
    };
    let is_same = volume(base).is_some() && volume(base) == volume(target);
    base.data["status"]["snapshotHandle"].as_str().filter(|_| is_same).map(Into::into)
}

fn demand_of(
    service: &DynamicObject,
    target: &str,
    base: &ChangeBase,
    base_id: String,
) -> Option<ChangedDemand> {
    let spec = &service.data["spec"];
    let text = |field: &str| spec[field].as_str().filter(|it| !it.is_empty()).map(String::from);
    let ca_cert: ByteString = serde_json::from_value(spec["caCert"].clone()).ok()?;
    let (address, audience) = (text("address")?, text("audience")?);
    let demand =
        ChangedDemand { address, audience, ca_cert, target: target.into(), base: base.clone(), base_id };
    (demand.ca_cert.0.len() <= MAX_CERTIFICATE_BYTES).then_some(demand)
}

/// Returns the service of that driver; `None` if it has none, or the operator may not look.
async fn service(client: &Client, driver: Option<String>) -> read::Result<Option<DynamicObject>> {
    let Some(driver) = driver else { return Ok(None) };
    for version in VERSIONS {
        let kind = GroupVersionKind::gvk("cbt.storage.k8s.io", version, "SnapshotMetadataService");
        if let Some(found) = cluster_wide(client, &kind, &driver).await? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Returns what the cluster knows of a VolumeSnapshot in the storage; `None` if it has not that UID, or is not in the
/// storage yet.
async fn content(
    client: &Client,
    job: &SyncJob,
    name: &str,
    uid: Option<&String>,
) -> read::Result<Option<DynamicObject>> {
    let found = snapshot(client, job, name).await?;
    let found = found.filter(|found| uid.is_some() && found.metadata.uid.as_ref() == uid);
    let bound = found.as_ref().and_then(|it| it.data["status"]["boundVolumeSnapshotContentName"].as_str());
    let Some(content) = bound else { return Ok(None) };
    let (group, version) = (source_capture::SNAPSHOT_GROUP, source_capture::SNAPSHOT_VERSION);
    let kind = GroupVersionKind::gvk(group, version, "VolumeSnapshotContent");
    cluster_wide(client, &kind, content).await
}

/// Returns an object of a kind without namespaces; none where the cluster does not know the kind, or the operator may
/// not look.
async fn cluster_wide(
    client: &Client,
    kind: &GroupVersionKind,
    name: &str,
) -> read::Result<Option<DynamicObject>> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(kind));
    match api.get(name).await {
        Err(kube::Error::Api(answer)) if matches!(answer.code, 403 | 404) => Ok(None),
        found => found.map(Some).map_err(read::reading("service for changed blocks")),
    }
}
