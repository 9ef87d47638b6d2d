//! Builds what captures the source of a run at one instant: a VolumeSnapshot, and the temporary claim that the run
//! reads in place of the source's; and judges how far that is. Pure.

use std::borrow::Cow;

use contract::{Reason, Side};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        core::v1::{
            PersistentVolumeClaim, PersistentVolumeClaimSpec, TypedLocalObjectReference,
            VolumeResourceRequirements,
        },
        storage::v1::StorageClass,
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{MicroTime, OwnerReference},
    },
};
use kube::{
    ResourceExt as _,
    api::{ApiResource, DynamicObject, ObjectMeta},
    core::GroupVersionKind,
};
use serde_json::json;

use crate::{
    api::{
        ActiveRun, Capture, CaptureMethod, PointInTime, Stage, SyncJob, SyncJobPhase, SyncJobSpec,
        SyncJobStatus,
    },
    ends::end_kind::EndKind,
    fault::Fault,
    human::{clipped, sentence},
    names,
    spec::validate::ValidatedSyncJob,
    status::readiness,
    volumes::{claim_growth, claims::Claim},
};

/// The API group of VolumeSnapshots.
pub const SNAPSHOT_GROUP: &str = "snapshot.storage.k8s.io";
/// The only version of it.
pub const SNAPSHOT_VERSION: &str = "v1";
/// The longest message of a driver in a status, in bytes.
const MAX_WORDS_BYTES: usize = 1024;
/// The drivers whose read-only claims show a snapshot without copying it.
const SHALLOW: [&str; 1] = ["cephfs.csi.ceph.com"];

/// How far the capture of a run's source is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Captured {
    /// Nobody looked, because the run has no capture under way.
    #[default]
    Unknown,
    /// The cluster cannot capture it.
    Impossible(Fault),
    /// The VolumeSnapshot, or the clone, is still to be made.
    Missing,
    /// The storage is at work; with its complaint, if any.
    Taking(Option<Fault>),
    /// The storage clones as soon as a pod uses the temporary claim.
    Lazy,
    /// It is captured, by a VolumeSnapshot of this UID if not by a clone.
    Taken(Option<String>),
}

impl Captured {
    /// Returns what the storage complains of while it is at work.
    pub fn complaint(&self) -> Option<&Fault> {
        if let Self::Taking(complaint) = self { complaint.as_ref() } else { None }
    }
}

/// Returns how the source of a run is captured; `None` for one that has nothing of its source captured.
pub fn of_run<'a>(spec: &'a SyncJobSpec, run: &ActiveRun) -> Option<&'a PointInTime> {
    spec.source.point_in_time.as_ref().filter(|_| run.is_plain())
}

/// Returns the type of VolumeSnapshots.
pub fn snapshot_type() -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(SNAPSHOT_GROUP, SNAPSHOT_VERSION, "VolumeSnapshot"))
}

/// Judges a VolumeSnapshot, or a VolumeGroupSnapshot.
pub fn judge_snapshot(snapshot: Option<&DynamicObject>) -> Captured {
    let Some(snapshot) = snapshot else { return Captured::Missing };
    if snapshot.metadata.deletion_timestamp.is_some() {
        return Captured::Taking(None);
    }
    let status = &snapshot.data["status"];
    if status["readyToUse"] == json!(true) {
        return Captured::Taken(snapshot.metadata.uid.clone());
    }
    let complaint = status["error"]["message"].as_str().map(|words| {
        let words = sentence(&clipped(words, MAX_WORDS_BYTES));
        Fault::new(Reason::Capturing, format!("The storage cannot take the snapshot yet: {words}"))
    });
    Captured::Taking(complaint)
}

/// Judges the claim that is a clone of the source's.
pub fn judge_clone(claim: Option<&PersistentVolumeClaim>, class: Option<&StorageClass>) -> Captured {
    let Some(claim) = claim else { return Captured::Missing };
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    let waits = class.and_then(|class| class.volume_binding_mode.as_deref()) == Some("WaitForFirstConsumer");
    match phase {
        Some("Bound") => Captured::Taken(None),
        _ if waits => Captured::Lazy,
        _ => Captured::Taking(None),
    }
}

/// Returns why volumes of that class must not be made for a moment only: they would stay in the storage.
pub fn check_class(class: &StorageClass) -> Result<(), Fault> {
    if class.reclaim_policy.as_deref() != Some("Retain") {
        return Ok(());
    }
    let name = class.metadata.name.as_deref().unwrap_or_default();
    let message = format!(
        "The storage class {name} keeps volumes whose claims are deleted (reclaimPolicy: Retain), so the copy of each run would \
         stay in the storage. Name another class of the same driver in spec.source.pointInTime.storageClassName."
    );
    Err(Fault::new(Reason::CaptureFailed, message))
}

/// What owns and names the objects of a capture.
#[derive(Debug, Clone)]
pub struct CaptureOf<'a> {
    /// The job.
    pub job: &'a ValidatedSyncJob,
    /// How it is captured.
    pub demand: &'a PointInTime,
    /// The run that is under way.
    pub run: &'a ActiveRun,
    /// Its SyncRun.
    pub owner: OwnerReference,
    /// What owns its VolumeSnapshot: the SyncRun, or the SyncJob if the next run may need it.
    pub snapshot_owner: OwnerReference,
    /// The source's claim.
    pub source: &'a PersistentVolumeClaim,
    /// The name of what is made.
    pub name: &'a str,
}

impl CaptureOf<'_> {
    /// Builds the VolumeSnapshot.
    pub fn snapshot(&self) -> DynamicObject {
        let mut spec =
            json!({"source": {"persistentVolumeClaimName": self.job.ends.source.claim().map(|it| &it.name)}});
        if let Some(class) = &self.demand.volume_snapshot_class_name {
            spec["volumeSnapshotClassName"] = json!(class);
        }
        let snapshot = DynamicObject::new(self.name, &snapshot_type()).data(json!({"spec": spec}));
        let owner_references = Some(vec![self.snapshot_owner.clone()]);
        let annotations = Some([(names::ANNOTATION_RUN_UID.into(), self.owner.uid.clone())].into());
        DynamicObject {
            metadata: ObjectMeta { owner_references, annotations, ..self.metadata() },
            ..snapshot
        }
    }

    /// Builds the temporary claim: from the VolumeSnapshot with what that needs to be restored, or as a clone. `None`
    /// if a source has no size, or a group has no snapshot of it.
    pub fn claim(
        &self,
        class: Option<&StorageClass>,
        snapshot: Option<&DynamicObject>,
    ) -> Option<PersistentVolumeClaim> {
        let source = self.source.spec.as_ref()?;
        let needed =
            snapshot.and_then(|it| it.data["status"]["restoreSize"].as_str()).map(|it| Quantity(it.into()));
        let own = source.resources.as_ref().and_then(|it| it.requests.as_ref()?.get("storage").cloned());
        let actual = self.source.status.as_ref().and_then(|it| it.capacity.as_ref()?.get("storage").cloned());
        let size = [actual.or(own), needed].into_iter().flatten().reduce(claim_growth::larger)?;
        let origin = match self.demand.method {
            CaptureMethod::Snapshot => (Some(SNAPSHOT_GROUP.to_string()), "VolumeSnapshot", self.name),
            CaptureMethod::Group => {
                (Some(SNAPSHOT_GROUP.to_string()), "VolumeSnapshot", snapshot?.metadata.name.as_deref()?)
            }
            CaptureMethod::Clone => {
                (None, "PersistentVolumeClaim", self.job.ends.source.claim()?.name.as_str())
            }
        };
        let class_name = self.demand.storage_class_name.clone().or_else(|| source.storage_class_name.clone());
        Some(PersistentVolumeClaim {
            metadata: self.metadata(),
            spec: Some(PersistentVolumeClaimSpec {
                storage_class_name: class_name,
                access_modes: Some(self.modes(class, source)),
                volume_mode: source.volume_mode.clone(),
                data_source: Some(TypedLocalObjectReference {
                    api_group: origin.0,
                    kind: origin.1.into(),
                    name: origin.2.into(),
                }),
                resources: Some(VolumeResourceRequirements {
                    requests: Some([("storage".to_string(), size)].into()),
                    ..VolumeResourceRequirements::default()
                }),
                ..PersistentVolumeClaimSpec::default()
            }),
            status: None,
        })
    }

    fn modes(&self, class: Option<&StorageClass>, source: &PersistentVolumeClaimSpec) -> Vec<String> {
        let wanted = &self.demand.access_modes;
        if !wanted.is_empty() {
            return wanted.iter().map(|mode| mode.word().into()).collect();
        }
        let driver = class.map_or("", |class| class.provisioner.as_str());
        let is_shallow = self.demand.method != CaptureMethod::Clone
            && SHALLOW.iter().any(|it| driver == *it || driver.ends_with(&format!(".{it}")));
        if is_shallow { vec!["ReadOnlyMany".into()] } else { source.access_modes.clone().unwrap_or_default() }
    }

    fn metadata(&self) -> ObjectMeta {
        let labels = [
            (names::LABEL_MANAGED_BY, names::FIELD_MANAGER.to_string()),
            (names::LABEL_SYNCJOB, names::label_value(&self.job.name)),
            (names::LABEL_RUN, self.run.id.clone()),
        ];
        ObjectMeta {
            name: Some(self.name.into()),
            namespace: Some(self.job.namespace.clone()),
            labels: Some(labels.map(|(key, value)| (key.to_string(), value)).into()),
            owner_references: Some(vec![self.owner.clone()]),
            ..ObjectMeta::default()
        }
    }
}

/// Returns whether an object was made for a run, and not by somebody else under a name that can be guessed.
pub fn is_of_run(object: &ObjectMeta, run: &ActiveRun) -> bool {
    let owners = object.owner_references.iter().flatten();
    let is_run = |owner: &OwnerReference| {
        owner.kind == "SyncRun"
            && owner.name == run.id
            && run.uid.as_ref().is_none_or(|uid| *uid == owner.uid)
    };
    owners.into_iter().any(is_run)
}

/// Returns whether a VolumeSnapshot was made for a run of a job, of the claim that it reads, as one that the next run
/// may need.
pub fn is_of_job(snapshot: &DynamicObject, run: &ActiveRun, job: &SyncJob) -> bool {
    let is_job = |owner: &OwnerReference| {
        owner.kind == "SyncJob" && job.metadata.uid.as_ref().is_some_and(|uid| *uid == owner.uid)
    };
    let made_for = snapshot.annotations().get(names::ANNOTATION_RUN_UID);
    let claim = job.spec.source.persistent_volume_claim.as_ref().map(|claim| &claim.claim_name);
    let is_of_claim = snapshot.data["spec"]["source"]["persistentVolumeClaimName"] == json!(claim);
    let is_of_run = run.uid.is_some() && made_for == run.uid.as_ref();
    is_of_claim && is_of_run && snapshot.owner_references().iter().any(is_job)
}

/// Returns what keeps a run from an object that was not made for it.
pub fn not_of_run(kind: &str, name: &str) -> Fault {
    let message = format!(
        "The {kind} {name} has the name of one of this run, and was made by somebody else. Delete it."
    );
    Fault::new(Reason::CaptureFailed, message)
}

/// Returns the job whose pods read the temporary claim of a run, if it has one.
pub fn reading<'a>(job: &'a ValidatedSyncJob, run: &ActiveRun) -> Cow<'a, ValidatedSyncJob> {
    let Some(capture) = run.capture.as_ref().filter(|_| job.capture.is_some()) else {
        return Cow::Borrowed(job);
    };
    let mut job = job.clone();
    if let EndKind::Claim(end) = &mut job.ends.source {
        end.claim.name.clone_from(&capture.name);
    }
    Cow::Owned(job)
}

/// Records that the source of the run under way is about to be captured, before anything is made for it.
pub fn begin(status: &mut SyncJobStatus, name: String, now: Timestamp) {
    let Some(run) = &mut status.active_run else { return };
    status.captures.push(name.clone());
    run.capture = Some(Capture { name, begin_time: Some(MicroTime(now)), ..Capture::default() });
}

/// Records that the storage is at work, with its complaint if any.
pub fn under_way(status: &mut SyncJobStatus, complaint: Option<&Fault>, now: Timestamp) {
    let Some(run) = &status.active_run else { return };
    let usual = Fault::new(Reason::Capturing, readiness::stage_message(run, Stage::Capturing));
    readiness::under_way(status, SyncJobPhase::Preparing, complaint.unwrap_or(&usual), now);
    readiness::hindered(status, complaint);
}

/// Records that it is captured.
pub fn end(status: &mut SyncJobStatus, captured: &Captured, now: Timestamp) {
    let capture = status.active_run.as_mut().and_then(|run| run.capture.as_mut());
    let (Some(capture), Captured::Taken(uid)) = (capture, captured) else { return };
    capture.taken_time = Some(MicroTime(now));
    capture.uid.clone_from(uid);
}

/// Yields the names of what earlier captures have made and may still exist.
pub fn left(status: &SyncJobStatus) -> impl Iterator<Item = &String> {
    let current = status.active_run.as_ref().and_then(|run| run.capture.as_ref());
    status.captures.iter().filter(move |name| current.is_none_or(|current| current.name != **name))
}

/// Returns the source's claim.
pub fn source(claims: &[Claim]) -> Option<&PersistentVolumeClaim> {
    claims.iter().find(|claim| claim.side == Side::Source)?.found.as_ref()
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value)] // json! is written in the place of an argument
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::spec::validate::validate;

    fn job(point_in_time: Value) -> ValidatedSyncJob {
        let spec = json!({
            "source": {"persistentVolumeClaim": {"claimName": "a"}, "pointInTime": point_in_time},
            "destination": {"persistentVolumeClaim": {"claimName": "b"}},
        });
        validate(&serde_json::from_value(spec).unwrap(), "web", "prod").unwrap()
    }

    fn class(fields: Value) -> StorageClass {
        serde_json::from_value(fields).unwrap()
    }

    fn snapshot(status: Value) -> DynamicObject {
        DynamicObject::new("c", &snapshot_type()).data(json!({"status": status}))
    }

    fn made(point_in_time: Value, class: Option<&StorageClass>, taken: &DynamicObject) -> (Value, Value) {
        let job = job(point_in_time);
        let source: PersistentVolumeClaim = serde_json::from_value(json!({
            "spec": {
                "storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "volumeMode": "Block",
                "resources": {"requests": {"storage": "1Gi"}},
            },
            "status": {"capacity": {"storage": "2Gi"}},
        }))
        .unwrap();
        let run = ActiveRun { id: "web-1".into(), ..ActiveRun::default() };
        let owner =
            OwnerReference { kind: "SyncRun".into(), name: "web-1".into(), ..OwnerReference::default() };
        let demand = &job.capture.as_ref().unwrap().of;
        let snapshot_owner = owner.clone();
        let of =
            CaptureOf { job: &job, demand, run: &run, owner, snapshot_owner, source: &source, name: "c" };
        let claim = of.claim(class, Some(taken)).unwrap();
        (serde_json::to_value(of.snapshot()).unwrap(), serde_json::to_value(claim).unwrap())
    }

    #[test]
    fn a_temporary_claim_is_as_the_sources_and_as_large_as_its_snapshot_needs() {
        let taken = snapshot(json!({"readyToUse": true, "restoreSize": "3Gi"}));
        let (snapshot, claim) = made(json!({"method": "Snapshot"}), None, &taken);
        assert_eq!(snapshot["spec"], json!({"source": {"persistentVolumeClaimName": "a"}}));
        assert_eq!(snapshot["metadata"]["ownerReferences"][0]["name"], "web-1");
        let origin = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "c"});
        let expected = json!({
            "storageClassName": "fast", "accessModes": ["ReadWriteOnce"], "volumeMode": "Block",
            "dataSource": origin, "resources": {"requests": {"storage": "3Gi"}},
        });
        assert_eq!(
            (&claim["spec"], &claim["metadata"]["ownerReferences"][0]["kind"]),
            (&expected, &json!("SyncRun"))
        );
        let (_, clone) = made(json!({"method": "Clone"}), None, &taken);
        assert_eq!(clone["spec"]["dataSource"], json!({"kind": "PersistentVolumeClaim", "name": "a"}));
    }

    #[test]
    fn what_the_spec_says_goes_before_and_cephfs_is_read_without_a_copy() {
        let taken = snapshot(json!({"readyToUse": true, "restoreSize": "1Gi"}));
        let asked = json!({
            "volumeSnapshotClassName": "s", "storageClassName": "t", "accessModes": ["ReadWriteMany"],
        });
        let (snapshot, claim) = made(json!({"method": "Snapshot"}), None, &taken);
        assert_eq!(
            (
                &snapshot["spec"]["volumeSnapshotClassName"],
                &claim["spec"]["resources"]["requests"]["storage"]
            ),
            (&Value::Null, &json!("2Gi"))
        );
        let mut whole = json!({"method": "Snapshot"});
        whole.as_object_mut().unwrap().extend(asked.as_object().unwrap().clone());
        let (snapshot, claim) = made(whole, None, &taken);
        assert_eq!(snapshot["spec"]["volumeSnapshotClassName"], "s");
        assert_eq!(
            (&claim["spec"]["storageClassName"], &claim["spec"]["accessModes"]),
            (&json!("t"), &json!(["ReadWriteMany"]))
        );
        let ceph = class(json!({"provisioner": "rook-ceph.cephfs.csi.ceph.com"}));
        let (_, shallow) = made(json!({"method": "Snapshot"}), Some(&ceph), &taken);
        assert_eq!(shallow["spec"]["accessModes"], json!(["ReadOnlyMany"]));
        let (_, clone) = made(json!({"method": "Clone"}), Some(&ceph), &taken);
        assert_eq!(clone["spec"]["accessModes"], json!(["ReadWriteOnce"]));
    }

    #[test]
    fn a_capture_is_taken_once_the_storage_says_so_and_its_complaint_is_passed_on() {
        assert_eq!(judge_snapshot(None), Captured::Missing);
        assert_eq!(judge_snapshot(Some(&snapshot(json!(null)))), Captured::Taking(None));
        let failing = snapshot(json!({"readyToUse": false, "error": {"message": "no class"}}));
        let Captured::Taking(Some(fault)) = judge_snapshot(Some(&failing)) else { panic!() };
        assert!(fault.message.ends_with(": no class."), "{}", fault.message);
        assert_eq!(judge_snapshot(Some(&snapshot(json!({"readyToUse": true})))), Captured::Taken(None));
        let claim = |phase: &str| serde_json::from_value(json!({"status": {"phase": phase}})).unwrap();
        let lazy = class(json!({"provisioner": "p", "volumeBindingMode": "WaitForFirstConsumer"}));
        assert_eq!(judge_clone(None, None), Captured::Missing);
        assert_eq!(judge_clone(Some(&claim("Pending")), None), Captured::Taking(None));
        assert_eq!(judge_clone(Some(&claim("Pending")), Some(&lazy)), Captured::Lazy);
        assert_eq!(judge_clone(Some(&claim("Bound")), Some(&lazy)), Captured::Taken(None));
    }

    #[test]
    fn a_class_that_keeps_volumes_is_refused_and_so_is_a_snapshot_of_ours() {
        let keeps = class(json!({"metadata": {"name": "k"}, "provisioner": "p", "reclaimPolicy": "Retain"}));
        assert!(check_class(&keeps).unwrap_err().message.contains("class k keeps volumes"));
        assert_eq!(check_class(&class(json!({"provisioner": "p", "reclaimPolicy": "Delete"}))), Ok(()));
        let spec = json!({
            "source": {"persistentVolumeClaim": {"claimName": "a"}, "snapshot": "latest", "pointInTime": {"method": "Clone"}},
            "destination": {"persistentVolumeClaim": {"claimName": "b"}},
        });
        let error = validate(&serde_json::from_value(spec).unwrap(), "web", "prod").unwrap_err().to_string();
        assert!(error.starts_with("spec.source.pointInTime: a snapshot of the source"), "{error}");
    }

    #[test]
    fn an_object_of_a_name_that_was_guessed_is_not_the_runs() {
        let run = |uid: Option<&str>| ActiveRun {
            id: "web-1".into(),
            uid: uid.map(Into::into),
            ..ActiveRun::default()
        };
        let object = |owners: Value| -> ObjectMeta {
            serde_json::from_value(json!({"name": "c", "ownerReferences": owners})).unwrap()
        };
        let owner = |kind: &str, name: &str, uid: &str| json!([{"apiVersion": "v", "kind": kind, "name": name, "uid": uid}]);
        let own = object(owner("SyncRun", "web-1", "u"));
        assert!(is_of_run(&own, &run(Some("u"))) && is_of_run(&own, &run(None)));
        assert!(!is_of_run(&own, &run(Some("v"))), "of a run that was made anew");
        assert!(!is_of_run(&object(owner("SyncRun", "web-2", "u")), &run(Some("u"))));
        assert!(!is_of_run(&object(owner("Pod", "web-1", "u")), &run(Some("u"))));
        assert!(!is_of_run(&object(json!(null)), &run(Some("u"))), "a person's");
    }
}
