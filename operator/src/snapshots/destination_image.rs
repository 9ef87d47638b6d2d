//! Builds and judges the VolumeSnapshot of a destination that a run has brought into step, and decides which earlier
//! ones go. Pure.

use std::collections::BTreeSet;

use contract::{Reason, RunResult};
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, TypedLocalObjectReference},
    apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference},
};
use kube::{
    ResourceExt as _,
    api::{DynamicObject, ObjectMeta},
};
use serde_json::json;

use super::source_capture::{self, Captured, SNAPSHOT_GROUP};
use crate::{
    api::{ActiveRun, Capture, SyncJobPhase, SyncJobStatus, VolumeSnapshots},
    fault::Fault,
    names,
    spec::validate::ValidatedSyncJob,
    status::readiness,
};

/// Returns the VolumeSnapshot of a job's destination after that run.
pub fn of_run(
    job: &ValidatedSyncJob,
    demand: &VolumeSnapshots,
    run: &ActiveRun,
    owner: OwnerReference,
    name: &str,
) -> DynamicObject {
    let mut spec =
        json!({"source": {"persistentVolumeClaimName": job.ends.sink.claim().map(|claim| &claim.name)}});
    if let Some(class) = &demand.volume_snapshot_class_name {
        spec["volumeSnapshotClassName"] = json!(class);
    }
    let labels = [
        (names::LABEL_MANAGED_BY, names::FIELD_MANAGER.to_string()),
        (names::LABEL_SYNCJOB, names::label_value(&job.name)),
        (names::LABEL_IMAGE_OF, run.id.clone()),
    ];
    let metadata = ObjectMeta {
        name: Some(name.into()),
        namespace: Some(job.namespace.clone()),
        labels: Some(labels.map(|(key, value)| (key.to_string(), value)).into()),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    let image = DynamicObject::new(name, &source_capture::snapshot_type()).data(json!({"spec": spec}));
    DynamicObject { metadata, ..image }
}

/// Judges the VolumeSnapshot of a destination. It is taken once its time is set: what the next run writes is not in it,
/// although the storage may still be copying.
pub fn judge(image: Option<&DynamicObject>) -> Captured {
    match image {
        Some(image) if image.data["status"]["creationTime"].is_string() => Captured::Taken(None),
        image => source_capture::judge_snapshot(image),
    }
}

/// Returns whether the operator made an object for a job of that UID.
pub fn is_of_job(object: &DynamicObject, uid: &str) -> bool {
    let is_job = |owner: &OwnerReference| owner.kind == "SyncJob" && owner.uid == uid;
    object.labels().contains_key(names::LABEL_IMAGE_OF) && object.owner_references().iter().any(is_job)
}

/// Records that the destination's VolumeSnapshot is about to be made.
pub fn begin(status: &mut SyncJobStatus, name: String, now: Timestamp) {
    let Some(run) = &mut status.active_run else { return };
    run.image = Some(Capture { name, begin_time: Some(MicroTime(now)), ..Capture::default() });
}

/// Records that the storage is at work, with its complaint if any.
pub fn under_way(status: &mut SyncJobStatus, complaint: Option<&Fault>, now: Timestamp) {
    let Some(run) = &status.active_run else { return };
    let message = format!("Run {} has ended, and the storage takes a VolumeSnapshot of the copy.", run.id);
    let usual = Fault::new(Reason::Capturing, message);
    readiness::under_way(status, SyncJobPhase::Running, complaint.unwrap_or(&usual), now);
    readiness::hindered(status, complaint);
}

/// Records the VolumeSnapshot of a run that has ended as the newest one, if it was taken: a person may have withdrawn
/// the demand for it meanwhile.
pub fn remember(status: &mut SyncJobStatus, run: &ActiveRun, imaged: &Captured, result: RunResult) {
    let is_taken = result == RunResult::Succeeded && matches!(imaged, Captured::Taken(_));
    let Some(image) = run.image.as_ref().filter(|_| is_taken) else { return };
    status.latest_image = Some(TypedLocalObjectReference {
        api_group: Some(SNAPSHOT_GROUP.into()),
        kind: "VolumeSnapshot".into(),
        name: image.name.clone(),
    });
}

/// Returns the names of the VolumeSnapshots that claims are being made from.
pub fn in_use<'a>(claims: impl Iterator<Item = &'a PersistentVolumeClaim>) -> BTreeSet<String> {
    let is_bound = |claim: &PersistentVolumeClaim| {
        claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"))
    };
    let origin = |claim: &'a PersistentVolumeClaim| {
        let spec = claim.spec.as_ref()?;
        let plain = spec.data_source.as_ref().map(|it| (&it.kind, &it.name));
        let origin = plain.or_else(|| spec.data_source_ref.as_ref().map(|it| (&it.kind, &it.name)));
        origin.filter(|(kind, _)| *kind == "VolumeSnapshot").map(|(_, name)| name.clone())
    };
    claims.filter(|claim| !is_bound(claim)).filter_map(origin).collect()
}

/// Returns the VolumeSnapshots of a job that are not kept: all that were not taken, and of the others all but the
/// newest `last`. The `latest` one, which the status names, is kept, and so are those in use.
pub fn surplus<'a>(
    images: &'a [DynamicObject],
    latest: Option<&str>,
    last: u32,
    used: &BTreeSet<String>,
) -> Vec<&'a DynamicObject> {
    let is_taken = |image: &&DynamicObject| matches!(judge(Some(image)), Captured::Taken(_));
    let (mut taken, mut surplus): (Vec<_>, Vec<_>) = images.iter().partition(is_taken);
    // A run's number tells the order of those made in one second.
    let number = |image: &DynamicObject| {
        let run = image.labels().get(names::LABEL_IMAGE_OF)?.rsplit('-').next()?;
        run.parse::<u64>().ok()
    };
    taken.sort_by_key(|image| std::cmp::Reverse((image.creation_timestamp(), number(image))));
    surplus.extend(taken.into_iter().skip(usize::try_from(last).unwrap_or(usize::MAX)));
    surplus.retain(|image| latest != Some(&image.name_any()) && !used.contains(&image.name_any()));
    surplus
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value)] // json! is written in the place of an argument
mod tests {
    use serde_json::Value;

    use super::*;

    fn image(number: u32, status: Value) -> DynamicObject {
        let metadata = json!({
            "name": format!("image-{number}"), "creationTimestamp": "2026-11-25T10:00:00Z",
            "labels": {names::LABEL_IMAGE_OF: format!("web-{number}")},
            "ownerReferences": [{"apiVersion": "volferry.dev/v1alpha1", "kind": "SyncJob", "name": "web", "uid": "u"}],
        });
        let image = DynamicObject::new("i", &source_capture::snapshot_type()).data(json!({"status": status}));
        DynamicObject { metadata: serde_json::from_value(metadata).unwrap(), ..image }
    }

    fn taken(number: u32) -> DynamicObject {
        image(number, json!({"creationTime": "2026-11-25T10:00:00Z", "readyToUse": false}))
    }

    fn names_of(images: &[&DynamicObject]) -> Vec<String> {
        images.iter().map(|image| image.name_any()).collect()
    }

    #[test]
    fn an_image_is_taken_once_its_time_is_set() {
        assert_eq!(judge(None), Captured::Missing);
        assert_eq!(judge(Some(&image(1, json!(null)))), Captured::Taking(None));
        assert_eq!(judge(Some(&taken(1))), Captured::Taken(None));
        let failing = image(1, json!({"error": {"message": "no class"}}));
        assert!(matches!(judge(Some(&failing)), Captured::Taking(Some(_))));
    }

    #[test]
    fn the_newest_are_kept_and_those_in_use_and_what_was_never_taken_goes() {
        let images = [taken(9), taken(11), image(12, json!(null)), taken(10), taken(8)];
        let none = BTreeSet::new();
        let gone = surplus(&images, Some("image-11"), 2, &none);
        assert_eq!(names_of(&gone), ["image-12", "image-9", "image-8"]);
        let used = BTreeSet::from(["image-8".to_string()]);
        assert_eq!(names_of(&surplus(&images, Some("image-9"), 2, &used)), ["image-12"]);
    }

    #[test]
    fn a_claim_that_is_bound_uses_its_snapshot_no_more() {
        let claim = |field: &str, kind: &str, phase: &str| -> PersistentVolumeClaim {
            let origin = json!({"apiGroup": SNAPSHOT_GROUP, "kind": kind, "name": field});
            serde_json::from_value(json!({"spec": {field: origin}, "status": {"phase": phase}})).unwrap()
        };
        let claims = [
            claim("dataSource", "VolumeSnapshot", "Pending"),
            claim("dataSourceRef", "VolumeSnapshot", "Pending"),
            claim("dataSource", "PersistentVolumeClaim", "Pending"),
            claim("dataSource", "VolumeSnapshot", "Bound"),
        ];
        assert_eq!(in_use(claims[1..].iter()), BTreeSet::from(["dataSourceRef".to_string()]));
        assert_eq!(in_use(claims.iter()).len(), 2);
    }

    #[test]
    fn an_image_belongs_to_the_job_of_its_owner_only() {
        assert!(is_of_job(&taken(1), "u"));
        assert!(!is_of_job(&taken(1), "v"), "a job that was made anew");
        let mut foreign = taken(1);
        foreign.metadata.labels = None;
        assert!(!is_of_job(&foreign, "u"), "somebody else's");
    }
}
