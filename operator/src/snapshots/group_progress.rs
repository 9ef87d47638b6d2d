//! Looks how far the storage is with the VolumeGroupSnapshot from which the run of a SyncJobSet reads. Writes nothing.

use std::sync::Arc;

use contract::Reason;
use kube::{
    Api, Client, ResourceExt as _,
    api::{ApiResource, DynamicObject, ListParams},
};

use super::{
    group_snapshot::{self, GROUP, VERSIONS},
    source_capture::{self, Captured},
};
use crate::{
    api::{ActiveRun, SyncJob, SyncJobSet},
    controller::{
        lookups::Sources,
        read::{self, Guarded, GuardedSet, reading},
    },
    fault::Fault,
    sets::members,
    volumes::claims::Claim,
};

/// What to do where [`kind`] finds none.
const NO_GROUPS: &str = "The cluster has no VolumeGroupSnapshots (groupsnapshot.storage.k8s.io). Install their CRDs and have \
                         the snapshot controller of kubernetes-csi/external-snapshotter serve them, or set \
                         spec.source.pointInTime.method to Snapshot.";

/// Returns the type of VolumeGroupSnapshots, if the cluster knows them.
///
/// # Errors
/// If the API server does not answer.
pub(crate) async fn kind(client: &Client) -> read::Result<Option<ApiResource>> {
    for version in VERSIONS {
        match client.list_api_group_resources(&format!("{GROUP}/{version}")).await {
            Ok(kinds) if kinds.resources.iter().any(|kind| kind.kind == "VolumeGroupSnapshot") => {
                return Ok(Some(group_snapshot::group_type(version)));
            }
            Ok(_) => {}
            Err(kube::Error::Api(answer)) if answer.code == 404 => {}
            Err(error) => return Err(reading("API group of VolumeGroupSnapshots")(error)),
        }
    }
    Ok(None)
}

/// Returns the VolumeGroupSnapshot of that name.
///
/// # Errors
/// If the API server does not answer.
async fn find(
    client: &Client,
    namespace: &str,
    kind: &ApiResource,
    name: &str,
) -> read::Result<Option<DynamicObject>> {
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, kind);
    match api.get(name).await {
        Err(kube::Error::Api(answer)) if matches!(answer.code, 403 | 404) => Ok(None),
        found => found.map(Some).map_err(reading("VolumeGroupSnapshot")),
    }
}

/// Returns why a run cannot be captured with others of its set, if that is known before anything is made for it.
///
/// # Errors
/// If the API server does not answer.
pub(crate) async fn possible(
    sources: Sources<'_>,
    job: &SyncJob,
    claims: &[Claim],
) -> read::Result<Option<Fault>> {
    if kind(sources.client).await?.is_none() {
        return Ok(Some(Fault::new(Reason::CaptureFailed, NO_GROUPS)));
    }
    let set = set_of(sources, job);
    let set = set.as_ref().and_then(|set| set.0.as_ref().ok());
    let jobs = jobs_of(sources, job, set);
    let others = readable(&jobs).filter(|other| other.metadata.uid != job.metadata.uid);
    if let Some(fault) = group_snapshot::stalled_partner(others) {
        return Ok(Some(fault));
    }
    let parts = readable(&jobs).filter(|job| group_snapshot::takes_part(job)).count();
    Ok(group_snapshot::check(set, parts, source_capture::source(claims), sources.limits).err())
}

/// Returns how far the capture of a run's source is.
///
/// # Errors
/// If the API server does not answer.
pub(crate) async fn read_progress(
    sources: Sources<'_>,
    job: &SyncJob,
    run: &ActiveRun,
) -> read::Result<Captured> {
    Ok(match member(sources, job, run).await? {
        Ok(snapshot) => source_capture::judge_snapshot(Some(&snapshot)),
        Err(fault) => Captured::Taking(Some(fault)),
    })
}

/// Returns the snapshot of a run's source in the VolumeGroupSnapshot of its set, or what it waits for.
///
/// # Errors
/// If the API server does not answer.
pub(crate) async fn member(
    sources: Sources<'_>,
    job: &SyncJob,
    run: &ActiveRun,
) -> read::Result<Result<DynamicObject, Fault>> {
    let wait = |message: String| Ok(Err(Fault::new(Reason::Capturing, message)));
    let set = set_of(sources, job);
    let Some(set) = set.as_ref().and_then(|set| set.0.as_ref().ok()) else {
        return wait("The SyncJobSet that captures the sources of its SyncJobs together is gone.".into());
    };
    let group = set.status.as_ref().and_then(|status| status.group_capture.as_ref());
    let own = run.capture.as_ref().map(|capture| &capture.name);
    let Some(group) = group.filter(|group| own.is_some_and(|own| group.captures.contains(own))) else {
        return Ok(Err(group_snapshot::awaited(set, readable(&jobs_of(sources, job, Some(set))))));
    };
    let (client, namespace) = (sources.client, job.namespace().unwrap_or_default());
    let Some(kind) = kind(client).await? else { return wait(NO_GROUPS.into()) };
    let Some(found) = find(client, &namespace, &kind, &group.name).await? else {
        return wait(format!("The VolumeGroupSnapshot {} is to be made.", group.name));
    };
    if !group_snapshot::is_of_set(&found, set) {
        return Ok(Err(source_capture::not_of_run("VolumeGroupSnapshot", &group.name)));
    }
    match source_capture::judge_snapshot(Some(&found)) {
        Captured::Taken(_) => {}
        Captured::Taking(Some(fault)) => return Ok(Err(fault)),
        _ => return wait(format!("The storage takes the VolumeGroupSnapshot {}.", group.name)),
    }
    let claim = job.spec.source.persistent_volume_claim.as_ref().map_or("", |claim| &claim.claim_name);
    let all =
        Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, &source_capture::snapshot_type());
    let all = all.list(&ListParams::default()).await.map_err(reading("VolumeSnapshots"))?;
    match group_snapshot::member(&found, &all.items, claim) {
        Some(snapshot) => Ok(Ok(snapshot.clone())),
        None => wait(format!("The VolumeGroupSnapshot {} has no snapshot of the claim {claim}.", group.name)),
    }
}

/// Returns the SyncJobSet that owns a job.
fn set_of(sources: Sources<'_>, job: &SyncJob) -> Option<Arc<GuardedSet>> {
    let owner = members::owner(job)?;
    let found = sources.known.sets.get(&job.namespace()?, &owner.name)?;
    (found.uid().as_ref() == Some(&owner.uid)).then_some(found)
}

/// Returns the SyncJobs of a job's set, with the job as it is now.
fn jobs_of(sources: Sources<'_>, job: &SyncJob, set: Option<&SyncJobSet>) -> Vec<Arc<Guarded>> {
    let mut all = sources.known.jobs.in_namespace(&job.namespace().unwrap_or_default());
    all.retain(|it| set.is_some_and(|set| members::is_own(&**it, set)));
    all
}

fn readable(jobs: &[Arc<Guarded>]) -> impl Iterator<Item = &SyncJob> {
    jobs.iter().filter_map(|job| job.0.as_ref().ok())
}
