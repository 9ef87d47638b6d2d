//! Finds the service of a CSI driver that lists the blocks that changed between two VolumeSnapshots.

use std::time::Duration;

use k8s_openapi::ByteString;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject},
    core::GroupVersionKind,
};
use serde_json::{Value, json};

use super::{
    keep_base_snapshot::{self, ChangedDemand, Changes, MAX_CERTIFICATE_BYTES},
    source_capture,
    storage_progress::{class, snapshot},
};
use crate::{
    api::{ActiveRun, Capture, ChangeBase, PointInTime, SyncJob},
    controller::{read, view::View},
    queue::turns::Line,
    spec::validate::ValidatedSyncJob,
    volumes::claims::Claim,
};

/// The version of SnapshotMetadataServices. Services of before it differ in how they name the base.
const VERSION: &str = "v1beta1";

/// Returns how the pods of the run under way find out what has changed. Whatever is in the way costs time only, so the
/// run goes on without.
pub(crate) async fn find(
    client: &Client,
    view: &View<'_>,
    run: &ActiveRun,
    valid: &ValidatedSyncJob,
) -> Changes {
    let (Some(capture), Some(demand)) = (&run.capture, &valid.capture) else { return Changes::Unlisted };
    let base = keep_base_snapshot::of_job(view.status, &valid.name, view.uid());
    let may_leave_one = view.found.line.as_ref().is_none_or(Line::has_room_for_base);
    if !keep_base_snapshot::may_have_base(valid) || base.is_none() && !may_leave_one {
        return Changes::Unlisted;
    }
    let patience = valid.timeout / 4;
    match inspect_storage(client, view.job, &demand.of, capture, patience, base, &view.found.claims).await {
        Ok(changes) => changes,
        Err(error) => {
            let error = contract::chain(&error);
            tracing::warn!(error, "it is not known whether the storage lists changed blocks");
            Changes::Unlisted
        }
    }
}

async fn inspect_storage(
    client: &Client,
    job: &SyncJob,
    demand: &PointInTime,
    target: &Capture,
    patience: Duration,
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
    let driver = service.name_any();
    let base_id = of_base.zip(of_target).and_then(|(base, target)| base_id(&driver, &base, &target));
    let since = base_id.and_then(|base_id| demand_of(&service, target, base, base_id, patience));
    Ok(since.map_or(Changes::FromNowOn, |since| Changes::Since(Box::new(since))))
}

/// Returns the driver's id of a base, if it is another snapshot of the same volume as the target. The claim may have
/// another volume by now.
fn base_id(driver: &str, base: &DynamicObject, target: &DynamicObject) -> Option<String> {
    let text = |value: &Value| value.as_str().map(String::from);
    let volume = |content: &DynamicObject| {
        let spec = &content.data["spec"];
        text(&spec["source"]["volumeHandle"]).filter(|_| spec["driver"].as_str() == Some(driver))
    };
    let id = |content: &DynamicObject| text(&content.data["status"]["snapshotHandle"]);
    let is_same_volume = volume(base).is_some() && volume(base) == volume(target);
    id(base).filter(|base_id| is_same_volume && id(target).is_some_and(|target_id| target_id != *base_id))
}

fn demand_of(
    service: &DynamicObject,
    target: &Capture,
    base: &ChangeBase,
    base_id: String,
    patience: Duration,
) -> Option<ChangedDemand> {
    let spec = &service.data["spec"];
    let text = |field: &str| spec[field].as_str().filter(|it| !it.is_empty()).map(String::from);
    let ca_cert: ByteString = serde_json::from_value(spec["caCert"].clone()).ok()?;
    let (address, audience) = (text("address")?, text("audience")?);
    let (target, base, patience_seconds) = (target.name.clone(), base.clone(), patience.as_secs());
    let demand = ChangedDemand { address, audience, ca_cert, target, base, base_id, patience_seconds };
    (demand.ca_cert.0.len() <= MAX_CERTIFICATE_BYTES).then_some(demand)
}

/// Returns the service of that driver; `None` if it has none, or the operator may not look.
async fn service(client: &Client, driver: Option<String>) -> read::Result<Option<DynamicObject>> {
    let Some(driver) = driver else { return Ok(None) };
    let kind = GroupVersionKind::gvk("cbt.storage.k8s.io", VERSION, "SnapshotMetadataService");
    cluster_wide(client, &kind, &driver).await
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
    let content = cluster_wide(client, &kind, content).await?;
    let is_its = |content: &DynamicObject| {
        uid.is_some_and(|uid| content.data["spec"]["volumeSnapshotRef"]["uid"] == json!(uid))
    };
    Ok(content.filter(is_its))
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
