//! Captures the sources of a SyncJobSet together: makes its VolumeGroupSnapshot once the runs of all its SyncJobs are
//! ready, and removes it once none of them reads from it.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use kube::{Api, ResourceExt as _, api::DynamicObject};

use crate::{
    api::{GroupCapture, SyncJob, SyncJobSet},
    controller::{
        context::Context,
        read::{Guarded, reading},
    },
    fault::Fault,
    snapshots::{
        group_progress,
        group_snapshot::{self, Next},
        make_capture::{self, CaptureError},
    },
};

/// How soon to look again for what no watch brings.
const LOOK: Duration = Duration::from_secs(1);

/// How the capture of a set stands after a step.
#[derive(Debug, Default)]
pub(super) struct Stands {
    /// What the status of the set has to say.
    pub(super) group: Option<GroupCapture>,
    /// The API server's objection.
    pub(super) objection: Option<Fault>,
    /// When to look again.
    pub(super) again: Option<Duration>,
}

/// Carries out the next step. `jobs` are all of the set's namespace.
///
/// # Errors
/// If the API server does not answer, or rejects a deletion.
pub(super) async fn carry_out(
    context: &Context,
    set: &SyncJobSet,
    jobs: &[Arc<Guarded>],
) -> Result<Stands, CaptureError> {
    let readable = || jobs.iter().filter_map(|job| job.0.as_ref().ok());
    let group = set.status.as_ref().and_then(|status| status.group_capture.clone());
    match (group_snapshot::next(set, readable(), Timestamp::now()), group) {
        // It is made after the status says so, by the reconciliation that follows.
        (Next::Begin(group), _) => {
            Ok(Stands { group: Some(group), again: Some(Duration::ZERO), ..Stands::default() })
        }
        (Next::Make, Some(group)) => {
            let objection = make(context, set, &group, readable()).await?;
            Ok(Stands { again: objection.is_some().then_some(LOOK), objection, group: Some(group) })
        }
        (Next::Remove, Some(group)) => {
            let is_left = is_left(context, set, &group).await?;
            Ok(Stands {
                group: is_left.then_some(group),
                again: is_left.then_some(LOOK),
                ..Stands::default()
            })
        }
        (Next::Keep, group) => Ok(Stands { group, ..Stands::default() }),
        _ => Ok(Stands::default()),
    }
}

/// Makes the VolumeGroupSnapshot, if it is missing.
async fn make<'a>(
    context: &Context,
    set: &SyncJobSet,
    group: &GroupCapture,
    jobs: impl Iterator<Item = &'a SyncJob>,
) -> Result<Option<Fault>, CaptureError> {
    let client = &context.client;
    let mut captured = jobs.filter(|job| group_snapshot::is_of(job, group));
    let of = captured.find_map(|job| job.spec.source.point_in_time.as_ref());
    let (Some(of), Some(kind)) = (of, group_progress::kind(client).await?) else { return Ok(None) };
    let Some(snapshot) = group_snapshot::build(set, group, of, &kind) else { return Ok(None) };
    let namespace = set.namespace().unwrap_or_default();
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, &kind);
    match make_capture::create(&api, &snapshot).await {
        Ok(()) => Ok(None),
        Err(error) => error.objection("template.spec.source.pointInTime").map(Some).ok_or(error),
    }
}

/// Deletes the VolumeGroupSnapshot. Returns whether it may still be there. One that is being deleted is the snapshot
/// controller's: it holds a group that it could not take, and the set goes on without waiting for that.
async fn is_left(context: &Context, set: &SyncJobSet, group: &GroupCapture) -> Result<bool, CaptureError> {
    let (client, namespace) = (&context.client, set.namespace().unwrap_or_default());
    let Some(kind) = group_progress::kind(client).await? else { return Ok(false) };
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), &namespace, &kind);
    // Without the right to look, it may be there: it is not forgotten.
    let found = api.get_opt(&group.name).await.map_err(reading("VolumeGroupSnapshot"))?;
    let is_own = |found: &DynamicObject| {
        found.metadata.deletion_timestamp.is_none() && group_snapshot::is_of_set(found, set)
    };
    let Some(found) = found.filter(is_own) else { return Ok(false) };
    make_capture::delete(&api, &found).await?;
    Ok(true)
}
