//! Decides when the sources of a SyncJobSet are captured together, builds the VolumeGroupSnapshot for that, and finds
//! the snapshot of one source in it. Pure.

use contract::Reason;
use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::PersistentVolumeClaim,
    apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference},
};
use kube::{
    Resource as _, ResourceExt as _,
    api::{ApiResource, DynamicObject, ObjectMeta},
    core::GroupVersionKind,
};
use serde_json::json;

use crate::{
    api::{CaptureMethod, GroupCapture, PointInTime, SyncJob, SyncJobSet, conditions},
    fault::Fault,
    names::{self, FIELD_MANAGER},
    queue::turns::Limits,
    sets::members,
};

/// The API group of VolumeGroupSnapshots.
pub const GROUP: &str = "groupsnapshot.storage.k8s.io";
/// Its versions, the newest first. The fields that are used are the same in all.
pub const VERSIONS: [&str; 3] = ["v1", "v1beta2", "v1beta1"];
/// The number of SyncJobs that a message names.
const MAX_NAMED: usize = 5;

/// Returns the type of VolumeGroupSnapshots of a version.
pub fn group_type(version: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, version, "VolumeGroupSnapshot"))
}

/// What a set does next about the capture of its sources.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// Nothing is asked for, or not by all runs yet.
    Nothing,
    /// All runs are ready: record it, before anything is made.
    Begin(GroupCapture),
    /// Runs wait for it: make it, if it is missing.
    Make,
    /// Runs read from it.
    Keep,
    /// No run needs it any more.
    Remove,
}

/// Decides what a set does next. `jobs` are all of its namespace.
pub fn next<'a>(set: &SyncJobSet, jobs: impl IntoIterator<Item = &'a SyncJob>, now: Timestamp) -> Next {
    let own: Vec<&SyncJob> = jobs.into_iter().filter(|job| members::is_own(*job, set)).collect();
    if let Some(group) = set.status.as_ref().and_then(|status| status.group_capture.as_ref()) {
        let reading: Vec<&SyncJob> = own.into_iter().filter(|job| is_of(job, group)).collect();
        return if reading.is_empty() {
            Next::Remove
        } else if reading.iter().all(|job| is_waiting(job)) {
            Next::Make
        } else {
            Next::Keep
        };
    }
    let parts: Vec<&SyncJob> = own.into_iter().filter(|job| takes_part(job)).collect();
    if parts.is_empty() || !parts.iter().all(|job| is_waiting(job)) {
        return Next::Nothing;
    }
    let captures: Vec<String> = parts.iter().filter_map(|job| capture(job)).map(Into::into).collect();
    let name = names::group(&set.name_any(), &captures);
    Next::Begin(GroupCapture { name, begin_time: MicroTime(now), captures })
}

/// Returns whether the capture of a SyncJob's run is one of a group.
pub fn is_of(job: &SyncJob, group: &GroupCapture) -> bool {
    capture(job).is_some_and(|name| group.captures.iter().any(|it| it == name))
}

/// Returns whether the other SyncJobs of a set wait for this one.
pub fn takes_part(job: &SyncJob) -> bool {
    let method = job.spec.source.point_in_time.as_ref().map(|of| of.method);
    method == Some(CaptureMethod::Group) && !job.spec.suspend && job.metadata.deletion_timestamp.is_none()
}

/// Returns why a run cannot be captured together with the `others` of its set now: one of them needs a person, and the
/// run would hold its application still in vain. What keeps the capture itself from being made does not count, since
/// that is of all of them.
pub fn stalled_partner<'a>(others: impl IntoIterator<Item = &'a SyncJob>) -> Option<Fault> {
    let stalled = |job: &&SyncJob| {
        let conditions = job.status.as_ref().map(|status| &status.conditions);
        let stalled = conditions.and_then(|conditions| conditions::find(conditions, conditions::STALLED));
        stalled.is_some_and(|it| it.status == "True" && it.reason != *Reason::CaptureFailed)
    };
    let name = others.into_iter().filter(|job| takes_part(job)).find(stalled)?.name_any();
    let message = format!(
        "SyncJob {name}, whose source is captured together with this one, is Stalled. Solve what its condition says, or suspend \
         it: kubectl volferry suspend {name}."
    );
    Some(Fault::new(Reason::CaptureFailed, message))
}

/// Returns the name of the capture of the run under way, which others may not have written.
fn capture(job: &SyncJob) -> Option<&str> {
    let name = job.status.as_ref()?.active_run.as_ref()?.capture.as_ref()?.name.as_str();
    names::is_capture_of(name, &job.name_any(), &job.uid().unwrap_or_default()).then_some(name)
}

/// Returns whether the run of a SyncJob waits for its source to be captured.
fn is_waiting(job: &SyncJob) -> bool {
    let run = job.status.as_ref().and_then(|status| status.active_run.as_ref());
    let taken = run.and_then(|run| run.capture.as_ref()?.taken_time.as_ref());
    capture(job).is_some() && taken.is_none()
}

/// Returns why the source of a SyncJob cannot be captured with others. `set` is its SyncJobSet, `jobs` those of it that
/// take part, and `source` the claim.
pub fn check(
    set: Option<&SyncJobSet>,
    jobs: usize,
    source: Option<&PersistentVolumeClaim>,
    limits: Limits,
) -> Result<(), Fault> {
    let fault = |message: String| Err(Fault::new(Reason::CaptureFailed, message));
    let Some(set) = set else {
        return fault(
            "The method Group captures the sources of a SyncJobSet together, and this SyncJob is of none. Set \
             spec.source.pointInTime.method to Snapshot."
                .into(),
        );
    };
    let name = set.name_any();
    let selector = &set.spec.claim_selector;
    if selector.match_expressions.iter().flatten().next().is_some() {
        return fault(format!(
            "The snapshot controller selects the claims of a VolumeGroupSnapshot by labels only: replace \
             claimSelector.matchExpressions of the SyncJobSet {name} by matchLabels."
        ));
    }
    if source.is_some_and(|source| members::selects(set, source) != Ok(true)) {
        return fault(format!(
            "The source is no claim that claimSelector of the SyncJobSet {name} matches, and only those are captured together. \
             Name it by {{{{ .claim.name }}}} in spec.source of the template."
        ));
    }
    let of_set = u32::try_from(set.spec.max_runs.unwrap_or(0)).unwrap_or(0);
    if let Some((limit, most)) = limits.below(of_set, jobs) {
        return fault(format!(
            "The runs of {jobs} SyncJobs of the SyncJobSet {name} have to be under way together, and {limit} allows {most}: \
             raise it."
        ));
    }
    Ok(())
}

/// Returns what a run waits for that is not in a group yet. `jobs` are those of its set.
pub fn awaited<'a>(set: &SyncJobSet, jobs: impl IntoIterator<Item = &'a SyncJob>) -> Fault {
    let name = set.name_any();
    if let Some(group) = set.status.as_ref().and_then(|status| status.group_capture.as_ref()) {
        let message = format!(
            "The SyncJobSet {name} captures its sources again once the VolumeGroupSnapshot {} of earlier runs is deleted.",
            group.name
        );
        return Fault::new(Reason::Capturing, message);
    }
    let late = jobs.into_iter().filter(|job| takes_part(job) && !is_waiting(job));
    let mut late: Vec<String> = late.map(kube::ResourceExt::name_any).collect();
    late.sort_unstable();
    let more = late.len().saturating_sub(MAX_NAMED);
    late.truncate(MAX_NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let whom = if late.is_empty() {
        "all are ready".into()
    } else {
        format!("it waits for {}{more}", late.join(", "))
    };
    let message = format!(
        "The SyncJobSet {name} captures its sources together once each of its SyncJobs has a run that is ready for it: {whom}."
    );
    Fault::new(Reason::Capturing, message)
}

/// Builds the VolumeGroupSnapshot of a set: of all claims with the labels of its selector.
pub fn build(
    set: &SyncJobSet,
    group: &GroupCapture,
    of: &PointInTime,
    kind: &ApiResource,
) -> Option<DynamicObject> {
    let labels = set.spec.claim_selector.match_labels.as_ref()?;
    let mut spec = json!({"source": {"selector": {"matchLabels": labels}}});
    if let Some(class) = &of.volume_group_snapshot_class_name {
        spec["volumeGroupSnapshotClassName"] = json!(class);
    }
    let own = [
        (names::LABEL_MANAGED_BY, FIELD_MANAGER.to_string()),
        (names::LABEL_SYNCJOBSET, names::label_value(&set.name_any())),
    ];
    let metadata = ObjectMeta {
        name: Some(group.name.clone()),
        namespace: set.namespace(),
        labels: Some(own.map(|(key, value)| (key.to_string(), value)).into()),
        owner_references: Some(vec![set.owner_ref(&())?]),
        ..ObjectMeta::default()
    };
    let snapshot = DynamicObject::new(&group.name, kind).data(json!({"spec": spec}));
    Some(DynamicObject { metadata, ..snapshot })
}

/// Returns whether a set made a VolumeGroupSnapshot, and not somebody else under a name that can be guessed.
pub fn is_of_set(group: &DynamicObject, set: &SyncJobSet) -> bool {
    group.labels().get(names::LABEL_MANAGED_BY).is_some_and(|by| by == FIELD_MANAGER)
        && group.owner_references().iter().any(|owner| Some(&owner.uid) == set.metadata.uid.as_ref())
}

/// Returns the snapshot of a claim in a group.
pub fn member<'a>(
    group: &DynamicObject,
    snapshots: impl IntoIterator<Item = &'a DynamicObject>,
    claim: &str,
) -> Option<&'a DynamicObject> {
    let is_member = |snapshot: &&DynamicObject| {
        let is_owner = |owner: &OwnerReference| {
            owner.kind == "VolumeGroupSnapshot" && Some(&owner.uid) == group.metadata.uid.as_ref()
        };
        snapshot.owner_references().iter().any(is_owner)
            && snapshot.data["spec"]["source"]["persistentVolumeClaimName"] == claim
    };
    snapshots.into_iter().find(is_member)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::needless_pass_by_value, reason = "json! is written in the place of an argument")]

    use serde_json::Value;

    use super::*;
    use crate::names::TryNames;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn set(spec: Value, status: Value) -> SyncJobSet {
        let mut whole = json!({"claimSelector": {"matchLabels": {"app": "web"}}, "template": {"spec": {}}});
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        serde_json::from_value(json!({
            "apiVersion": "volferry.dev/v1alpha1", "kind": "SyncJobSet",
            "metadata": {"name": "web", "namespace": "prod", "uid": "s"}, "spec": whole, "status": status,
        }))
        .unwrap()
    }

    fn name(job: &str) -> String {
        TryNames::new(job, job, 1, 0).capture()
    }

    /// Returns a SyncJob of the set, whose run has this capture.
    fn job(name: &str, capture: Value) -> SyncJob {
        let set = json!({"apiVersion": "volferry.dev/v1alpha1", "kind": "SyncJobSet", "name": "web", "uid": "s", "controller": true});
        let source =
            json!({"persistentVolumeClaim": {"claimName": name}, "pointInTime": {"method": "Group"}});
        serde_json::from_value(json!({
            "apiVersion": "volferry.dev/v1alpha1", "kind": "SyncJob",
            "metadata": {"name": name, "namespace": "prod", "uid": name, "ownerReferences": [set]},
            "spec": {"source": source, "destination": {"persistentVolumeClaim": {"claimName": "b"}}},
            "status": {"activeRun": {"id": "r", "number": 1, "generation": 1, "stage": "Capturing", "capture": capture}},
        }))
        .unwrap()
    }

    fn waiting(of: &str) -> SyncJob {
        job(of, json!({"name": name(of)}))
    }

    #[test]
    fn a_run_holds_no_application_still_while_another_of_its_group_needs_a_person() {
        let stalled = |reason: &str| {
            let mut job = waiting("b");
            let condition = json!({
                "type": "Stalled", "status": "True", "reason": reason, "message": "",
                "lastTransitionTime": "2027-01-06T05:00:00Z",
            });
            let condition = serde_json::from_value(condition).unwrap();
            job.status.as_mut().unwrap().conditions = vec![condition];
            job
        };
        assert_eq!(stalled_partner([&waiting("a"), &stalled("CaptureFailed")]), None);
        let fault = stalled_partner([&waiting("a"), &stalled("ClaimNotFound")]).unwrap();
        assert!(fault.message.starts_with("SyncJob b, "), "{}", fault.message);
        let mut suspended = stalled("ClaimNotFound");
        suspended.spec.suspend = true;
        assert_eq!(stalled_partner([&suspended]), None);
    }

    #[test]
    fn a_group_begins_once_the_runs_of_all_are_ready_and_goes_with_the_last() {
        let fresh = set(json!({}), json!({}));
        let other = job("b", json!(null));
        assert_eq!(next(&fresh, [&waiting("a"), &other], NOW), Next::Nothing);
        assert!(awaited(&fresh, [&waiting("a"), &other]).message.ends_with("waits for b."));
        let mut suspended = other.clone();
        suspended.spec.suspend = true;
        let mut stray = other.clone();
        stray.metadata.owner_references = None;
        let Next::Begin(alone) = next(&fresh, [&waiting("a"), &suspended, &stray], NOW) else { panic!() };
        assert_eq!(alone.captures, [name("a")]);
        let Next::Begin(both) = next(&fresh, [&waiting("a"), &waiting("b")], NOW) else { panic!() };
        assert_eq!(both.captures, [name("a"), name("b")]);
        assert_ne!(both.name, alone.name, "of other runs");

        let status = json!({"groupCapture": serde_json::to_value(&both).unwrap()});
        let begun = set(json!({}), status);
        let reads = job("b", json!({"name": name("b"), "takenTime": "2026-01-01T00:00:00.000000Z"}));
        assert_eq!(next(&begun, [&waiting("a"), &waiting("b")], NOW), Next::Make);
        assert_eq!(next(&begun, [&waiting("a"), &reads], NOW), Next::Keep, "what is lost is not taken anew");
        assert_eq!(next(&begun, [&waiting("c"), &other], NOW), Next::Remove);
        assert!(awaited(&begun, [&waiting("c")]).message.contains(&format!("{} of earlier runs", both.name)));
    }

    #[test]
    fn what_can_never_be_captured_together_is_told_before() {
        let told = |spec: Value, jobs, claim: Value, limits| {
            let claim: PersistentVolumeClaim = serde_json::from_value(claim).unwrap();
            check(Some(&set(spec, json!({}))), jobs, Some(&claim), limits).map_err(|fault| fault.message)
        };
        let labelled = || json!({"metadata": {"name": "a", "labels": {"app": "web"}}});
        let limits = Limits { captures: 2, ..Limits::default() };
        assert_eq!(told(json!({"maxRuns": 2}), 2, labelled(), limits), Ok(()));
        let expression =
            json!({"claimSelector": {"matchExpressions": [{"key": "app", "operator": "Exists"}]}});
        for (spec, jobs, claim, words) in [
            (json!({}), 3, labelled(), "--max-snapshots of the operator allows 2"),
            (json!({"maxRuns": 1}), 2, labelled(), "spec.maxRuns of the SyncJobSet allows 1"),
            (json!({}), 2, json!({"metadata": {"name": "a"}}), "is no claim that claimSelector"),
            (expression, 2, labelled(), "by labels only"),
        ] {
            let message = told(spec, jobs, claim, limits).unwrap_err();
            assert!(message.contains(words), "{message}");
        }
        assert!(check(None, 0, None, limits).unwrap_err().message.contains("of none"));
    }

    #[test]
    fn a_group_is_of_the_labels_and_a_snapshot_is_found_by_its_group_and_claim() {
        let set = set(json!({}), json!({}));
        let Next::Begin(group) = next(&set, [&waiting("a")], NOW) else { panic!() };
        let of = PointInTime { volume_group_snapshot_class_name: Some("c".into()), ..PointInTime::default() };
        let mut built = build(&set, &group, &of, &group_type("v1beta2")).unwrap();
        let spec = json!({"source": {"selector": {"matchLabels": {"app": "web"}}}, "volumeGroupSnapshotClassName": "c"});
        assert_eq!(built.data["spec"], spec);
        assert!(is_of_set(&built, &set));
        built.metadata.uid = Some("g".into());
        let snapshot = |uid: &str, claim: &str| -> DynamicObject {
            let owner = json!({"apiVersion": "v", "kind": "VolumeGroupSnapshot", "name": "n", "uid": uid});
            serde_json::from_value(json!({"metadata": {"name": claim, "ownerReferences": [owner]},
                "spec": {"source": {"persistentVolumeClaimName": claim}}}))
            .unwrap()
        };
        let all = [snapshot("f", "a"), snapshot("g", "b"), snapshot("g", "a")];
        assert_eq!(member(&built, &all, "a"), Some(&all[2]));
        assert_eq!(member(&built, &all, "c"), None);
    }
}
