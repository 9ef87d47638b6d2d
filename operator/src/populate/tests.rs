//! Plays whole lives of claims, in which each step is taken and the storage and the binder do their part.

use contract::RunResult;
use k8s_openapi::{
    api::core::v1::{PersistentVolume, PersistentVolumeClaim},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{
    choose_content::{ANNOTATION_IF_NONE, ANNOTATION_SNAPSHOT},
    plan::{ClaimSituation, FillStep, next},
    temporary_claim::ANNOTATION_TOLD,
};
use crate::{
    api::{
        Run, SnapshotStatus, SyncJob, SyncJobSpec, SyncJobStatus,
        conditions::{self, Cause},
    },
    names::{ANNOTATION_POPULATED, ANNOTATION_POPULATED_CLAIM, ANNOTATION_SELECTED_NODE, POPULATED_EMPTY},
};

/// How a run of the SyncJob that fills the volume ends: well, or for that reason.
type End = Result<(), &'static str>;

/// What is in a cluster.
#[derive(Clone)]
struct World {
    claim: PersistentVolumeClaim,
    is_lazy: bool,
    job: Option<SyncJob>,
    copy: Option<PersistentVolumeClaim>,
    temporary: Option<PersistentVolumeClaim>,
    warning: Option<&'static str>,
    filler: Option<SyncJob>,
    volume: Option<PersistentVolume>,
    /// Whether a run, or the storage from a VolumeSnapshot, has filled the volume.
    is_filled: bool,
}

fn job(has_copy: bool, snapshot: Option<&str>, spec: &Value) -> SyncJob {
    let ends = json!({"source": {"persistentVolumeClaim": {"claimName": "web"}},
        "destination": {"persistentVolumeClaim": {"claimName": "kept"}, "path": "/site"}});
    let mut job = SyncJob::new("copies", serde_json::from_value::<SyncJobSpec>(ends).unwrap());
    job.metadata.namespace = Some("prod".into());
    let destination = json!({"claimName": "kept", "claimUid": "u-kept", "path": "/site",
        "volume": "00000000000000000000000000000007"});
    job.status = Some(SyncJobStatus {
        last_success_time: has_copy.then_some(Time(jiff::Timestamp::UNIX_EPOCH)),
        destination: has_copy.then(|| serde_json::from_value(destination).unwrap()),
        snapshots: Some(SnapshotStatus { latest: snapshot.map(Into::into), ..SnapshotStatus::default() }),
        ..SyncJobStatus::default()
    });
    if let Some(snapshots) = spec.get("snapshots") {
        job.spec.snapshots = Some(serde_json::from_value(snapshots.clone()).unwrap());
    }
    job
}

#[allow(clippy::needless_pass_by_value)] // so that calls read like manifests
fn world(annotations: Value, job: Option<SyncJob>) -> World {
    let claim = json!({
        "metadata": {"name": "web", "namespace": "prod", "uid": "u-claim", "annotations": annotations},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "volumeMode": "Block",
            "resources": {"requests": {"storage": "1Gi"}},
            "dataSourceRef": {"apiGroup": "volferry.dev", "kind": "SyncJob", "name": "copies"}},
    });
    let copy = json!({"metadata": {"name": "kept", "namespace": "prod", "uid": "u-kept"}});
    World {
        claim: serde_json::from_value(claim).unwrap(),
        is_lazy: false,
        job,
        copy: Some(serde_json::from_value(copy).unwrap()),
        temporary: None,
        warning: None,
        filler: None,
        volume: None,
        is_filled: false,
    }
}

impl World {
    fn next(&self) -> FillStep {
        next(ClaimSituation {
            claim: &self.claim,
            is_lazy: self.is_lazy,
            job: self.job.as_ref(),
            copy: self.copy.as_ref(),
            temporary: self.temporary.as_ref(),
            warning: self.warning,
            filler: self.filler.as_ref(),
            volume: self.volume.as_ref(),
        })
    }

    /// Takes the next step as the API server would, and returns it.
    fn step(&mut self) -> FillStep {
        let step = self.next();
        match step.clone() {
            FillStep::MakeClaim(mut made) => {
                made.metadata.uid = Some("u-temporary".into());
                // Nobody makes one anew before the SyncJob that fills the first one.
                made.metadata.creation_timestamp = Some(at(if self.filler.is_some() { 3 } else { 1 }));
                self.temporary = Some(*made);
            }
            FillStep::Mark(annotations) => annotate(self.temporary.as_mut().unwrap(), annotations),
            FillStep::MarkClaim(annotations) => annotate(&mut self.claim, annotations),
            FillStep::MakeFiller(mut made) => {
                made.metadata.generation = Some(1);
                let claim = self.temporary.as_ref().and_then(ResourceExt::creation_timestamp).unwrap();
                made.metadata.creation_timestamp = Some(at(claim.0.as_second() + 1));
                self.filler = Some(*made);
            }
            FillStep::DropFiller => self.filler = None,
            FillStep::DropClaim => self.temporary = None,
            FillStep::Rebind(to) => {
                let may_be_empty = self.claim.annotations().contains_key(ANNOTATION_IF_NONE);
                assert!(self.is_filled || may_be_empty, "a volume that nothing has filled is given away");
                self.volume.as_mut().unwrap().spec.as_mut().unwrap().claim_ref = Some(*to);
            }
            FillStep::Done | FillStep::Wait | FillStep::Tell(_) => {}
        }
        step
    }

    /// Lets the storage make the volume of the temporary claim, or the binder give one to the claim.
    fn storage(&mut self) {
        match (&mut self.temporary, &self.volume) {
            (Some(temporary), None) => {
                let holder = json!({"name": temporary.name_any(), "namespace": "prod", "uid": "u-temporary"});
                let volume = json!({"metadata": {"name": "pv-1"}, "spec": {"claimRef": holder}});
                self.volume = Some(serde_json::from_value(volume).unwrap());
                let spec = temporary.spec.as_mut().unwrap();
                spec.volume_name = Some("pv-1".into());
                self.is_filled = spec.data_source.is_some();
            }
            (_, Some(volume))
                if volume.spec.as_ref().unwrap().claim_ref.as_ref().unwrap().uid == self.claim.uid() =>
            {
                self.claim.spec.as_mut().unwrap().volume_name = Some("pv-1".into());
            }
            _ => {}
        }
    }

    /// Lets the run of the SyncJob that fills the volume end.
    fn run(&mut self, end: End) {
        let Some(filler) = &mut self.filler else { return };
        self.is_filled = end.is_ok();
        let result = if end.is_ok() { RunResult::Succeeded } else { RunResult::Failed };
        let mut status = SyncJobStatus { observed_generation: Some(1), ..SyncJobStatus::default() };
        status.last_run = Some(Run { id: "vf-1".into(), result, ..Run::default() });
        if let Err(reason) = end {
            let cause = Cause { reason: &reason.into(), message: "It is too small.", generation: 1 };
            conditions::stalled(&mut status.conditions, cause, jiff::Timestamp::UNIX_EPOCH);
        }
        filler.status = Some(status);
    }

    /// Takes all steps to the end, and returns them. Nothing is kept from one to the next, so each is a restart.
    fn play(&mut self, end: End) -> Vec<FillStep> {
        let mut steps = Vec::new();
        for _ in 0..20 {
            match self.step() {
                FillStep::Wait => {
                    self.run(end);
                    self.storage();
                }
                step => {
                    steps.push(step);
                    if matches!(steps.last(), Some(FillStep::Done | FillStep::Tell(_))) {
                        return steps;
                    }
                }
            }
        }
        panic!("no end: {steps:?}")
    }
}

fn at(second: i64) -> Time {
    Time(jiff::Timestamp::from_second(second).unwrap())
}

fn annotate(claim: &mut PersistentVolumeClaim, annotations: Vec<(&'static str, Option<String>)>) {
    for (key, value) in annotations {
        match value {
            Some(value) => drop(claim.annotations_mut().insert(key.into(), value)),
            None => drop(claim.annotations_mut().remove(key)),
        }
    }
}

fn words(steps: &[FillStep]) -> Vec<String> {
    let word =
        |step: &FillStep| format!("{step:?}").split(['(', '{', ' ']).next().unwrap_or_default().to_string();
    steps.iter().map(word).collect()
}

/// Returns the snapshot that the SyncJob restores which the steps made.
fn restored(steps: &[FillStep]) -> Option<String> {
    let made = steps.iter().find_map(|step| match step {
        FillStep::MakeFiller(filler) => Some(filler.spec.source.snapshot.clone()),
        _ => None,
    });
    made.unwrap_or_else(|| panic!("{steps:?}"))
}

fn reason_of(steps: &[FillStep]) -> &str {
    let Some(FillStep::Tell(fault)) = steps.last() else { panic!("{steps:?}") };
    &fault.reason
}

#[test]
fn a_claim_comes_up_with_the_newest_snapshot_and_nothing_else_stays() {
    let mut world = world(json!({}), Some(job(true, Some("s-7"), &json!({}))));
    let steps = world.play(Ok(()));
    let order = ["MakeClaim", "MakeFiller", "Mark", "DropFiller", "MarkClaim", "Rebind", "DropClaim", "Done"];
    assert_eq!(words(&steps), order);
    assert!(world.temporary.is_none() && world.filler.is_none());
    assert_eq!(restored(&steps).as_deref(), Some("s-7"));
    let FillStep::MakeFiller(filler) = &steps[1] else { panic!("{steps:?}") };
    let source = &filler.spec.source;
    assert_eq!(
        (&*source.persistent_volume_claim.as_ref().unwrap().claim_name, &*source.path),
        ("kept", "/site")
    );
    let FillStep::MakeClaim(made) = &steps[0] else { panic!("{steps:?}") };
    let spec = made.spec.as_ref().unwrap();
    assert!(spec.data_source_ref.is_none(), "the storage would wait for a populator, too");
    assert_eq!(spec.volume_mode.as_deref(), Some("Block"));
    assert_eq!(world.claim.annotations()[ANNOTATION_POPULATED], "vf-1");
}

#[test]
fn a_claim_gets_the_snapshot_that_it_names_and_without_any_the_copy_itself() {
    let snapshot = |annotations: Value, newest: Option<&str>| {
        restored(&world(annotations, Some(job(true, newest, &json!({})))).play(Ok(())))
    };
    let named = |name: &str| json!({ANNOTATION_SNAPSHOT: name});
    let moment = "as-of:2027-01-01T00:00:00Z";
    assert_eq!(snapshot(named(moment), Some("s-7")).as_deref(), Some(moment));
    assert_eq!(snapshot(named("latest"), Some("s-7")).as_deref(), Some("s-7"));
    assert_eq!(snapshot(json!({}), None), None);
}

#[test]
fn a_claim_that_was_bound_before_it_was_filled_is_told_so() {
    let mut world = world(json!({}), None);
    world.claim.spec.as_mut().unwrap().volume_name = Some("pv-empty".into());
    let FillStep::Tell(fault) = world.next() else { panic!("nobody is told") };
    assert_eq!(fault.reason, "NotFilled");
    assert!(fault.message.contains("class \"fast\""), "{}", fault.message);
    world.claim.annotations_mut().insert(ANNOTATION_POPULATED.into(), "copies-1".into());
    assert_eq!(world.next(), FillStep::Done);
    world.claim.annotations_mut().insert(ANNOTATION_POPULATED_CLAIM.into(), "u-before".into());
    assert_eq!(reason_of(&[world.next()]), "NotFilled", "a claim that was made anew from its manifest");
}

#[test]
fn a_claim_gets_no_volume_that_it_did_not_ask_for() {
    let changes: [(&str, Value); 2] =
        [("storageClassName", json!("faster")), ("resources", json!({"requests": {"storage": "100Gi"}}))];
    for (field, value) in changes {
        let mut world = world(json!({}), Some(job(true, None, &json!({}))));
        world.step();
        let mut temporary = json!(world.temporary);
        temporary["spec"][field] = value;
        temporary["metadata"]["annotations"] = json!({ANNOTATION_POPULATED: "copies-1"});
        world.temporary = serde_json::from_value(temporary).unwrap();
        assert_eq!(reason_of(&world.play(Ok(()))), "NameTaken", "{field}");
    }
}

#[test]
fn a_claim_comes_up_from_the_volume_snapshot_if_there_is_no_other_or_it_says_so() {
    for (annotations, newest, path, is_from_image) in [
        (json!({}), None, "/", true),
        (json!({}), Some("s-7"), "/", false),
        (json!({ANNOTATION_SNAPSHOT: "latest-image"}), Some("s-7"), "/", true),
        // The volume holds more than the copy.
        (json!({}), None, "/site", false),
    ] {
        let mut job = job(true, newest, &json!({}));
        job.spec.destination.path = path.into();
        let status = job.status.as_mut().unwrap();
        status.destination.as_mut().unwrap().path = path.into();
        status.latest_image = Some(
            serde_json::from_value(
                json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "image-7"}),
            )
            .unwrap(),
        );
        let mut world = world(annotations, Some(job));
        let steps = world.play(Ok(()));
        let is_without_run = !words(&steps).contains(&"MakeFiller".into());
        assert_eq!(is_without_run, is_from_image, "{steps:?}");
        assert_eq!(world.claim.annotations()[ANNOTATION_POPULATED] == "image-7", is_from_image);
    }
    let asks = json!({ANNOTATION_SNAPSHOT: "latest-image"});
    let steps = world(asks, Some(job(true, Some("s-7"), &json!({})))).play(Ok(()));
    assert_eq!(reason_of(&steps), "NoCopyYet", "there is no VolumeSnapshot");
}

#[test]
fn a_claim_never_comes_up_empty_by_mistake() {
    let copy = || Some(job(true, None, &json!({})));
    for (annotations, job, reason) in [
        (json!({}), None, "JobNotFound"),
        (json!({ANNOTATION_IF_NONE: "Empty"}), None, "JobNotFound"),
        (json!({}), Some(job(false, None, &json!({}))), "NoCopyYet"),
        (json!({ANNOTATION_IF_NONE: "Perhaps"}), copy(), "InvalidAnnotation"),
    ] {
        let steps = world(annotations, job).play(Ok(()));
        assert_eq!((words(&steps), reason_of(&steps)), (vec!["Tell".into()], reason));
    }
    let steps = world(json!({}), copy()).play(Err("NotEnoughSpace"));
    assert_eq!(words(&steps), ["MakeClaim", "MakeFiller", "Tell"]);
    let mut anew = world(json!({}), copy());
    anew.copy.as_mut().unwrap().metadata.uid = Some("another".into());
    assert_eq!(reason_of(&anew.play(Ok(()))), "NoCopyYet", "the claim of the copy was made anew");
    for (made_s, last) in [(0, "Done"), (1, "Tell")] {
        let mut device = world(json!({}), copy());
        device.job.as_mut().unwrap().status.as_mut().unwrap().destination = None;
        device.copy.as_mut().unwrap().metadata.creation_timestamp = Some(at(made_s));
        assert_eq!(words(&device.play(Ok(()))).last().unwrap(), last, "{made_s}");
    }
    // The manifest of the copy's claim has not arrived yet.
    let mut early = world(json!({ANNOTATION_IF_NONE: "Empty"}), Some(job(false, None, &json!({}))));
    early.copy = None;
    assert_eq!(reason_of(&early.play(Ok(()))), "ClaimNotFound");
    // The copy goes away while the volume is made.
    let mut gone = world(json!({}), copy());
    gone.step();
    gone.storage();
    gone.job = None;
    assert!(matches!(gone.next(), FillStep::Tell(_)));
    let mut empty = world(json!({ANNOTATION_IF_NONE: "Empty"}), Some(job(false, None, &json!({}))));
    assert_eq!(words(&empty.play(Ok(()))), ["MakeClaim", "Mark", "MarkClaim", "Rebind", "DropClaim", "Done"]);
    assert_eq!(empty.claim.annotations()[ANNOTATION_POPULATED], POPULATED_EMPTY);
}

#[test]
fn what_a_run_wrote_to_a_temporary_claim_that_is_gone_fills_no_other_one() {
    let mut world = world(json!({}), Some(job(true, None, &json!({}))));
    while world.filler.is_none() {
        world.step();
        world.storage();
    }
    world.run(Ok(()));
    (world.temporary, world.volume, world.is_filled) = (None, None, false);
    assert!(matches!(world.step(), FillStep::MakeClaim(_)));
    world.storage();
    let steps = world.play(Ok(()));
    assert_eq!(words(&steps)[..2], ["DropFiller", "MakeFiller"]);
    assert_eq!(words(&steps).last().unwrap(), "Done");
}

#[test]
fn of_a_syncjob_that_knows_of_no_copy_the_volume_tells_whether_it_has_snapshots() {
    let unknown = || Some(job(false, None, &json!({"snapshots": {"retain": {"last": 3}}})));
    let steps = world(json!({}), unknown()).play(Ok(()));
    assert_eq!(restored(&steps).as_deref(), Some("latest"));
    let steps = world(json!({}), unknown()).play(Err("SnapshotNotFound"));
    assert_eq!(reason_of(&steps), "NoCopyYet");
    let may_be_empty = json!({ANNOTATION_IF_NONE: "Empty"});
    let mut first = world(may_be_empty.clone(), unknown());
    first.play(Err("SnapshotNotFound"));
    assert_eq!(first.claim.annotations()[ANNOTATION_POPULATED], POPULATED_EMPTY);
    for reason in ["NotEnoughSpace", "SnapshotDamaged"] {
        let steps = world(may_be_empty.clone(), unknown()).play(Err(reason));
        assert_eq!(reason_of(&steps), reason);
    }
    // It asks for one that is missing, which is not the same as none.
    let asks = json!({ANNOTATION_IF_NONE: "Empty", ANNOTATION_SNAPSHOT: "gold"});
    assert_eq!(reason_of(&world(asks, unknown()).play(Err("SnapshotNotFound"))), "SnapshotNotFound");
}

#[test]
fn a_claim_comes_up_with_what_its_syncjob_reads_at_an_endpoint_that_knows_the_key() {
    let reads = |identity: Value, to: &str| {
        let key = "2Ej8lyFbGXtk9sU3e3mYwA3HnJpKKeG1kcLEcQWvY1Q=";
        let mut spec = json!({"source": {"endpoint": {"address": "far.example.org::web", "publicKey": key}},
            "destination": {"persistentVolumeClaim": {"claimName": to}, "path": "/site"}, "suspend": true,
            "files": {"exclude": ["/cache/"]}});
        spec["source"]["endpoint"]["identity"] = identity;
        let mut job = SyncJob::new("copies", serde_json::from_value::<SyncJobSpec>(spec).unwrap());
        job.metadata.namespace = Some("prod".into());
        Some(job)
    };
    let known = || json!({"secretName": "key"});
    let steps = world(json!({}), reads(known(), "web")).play(Ok(()));
    let order = ["MakeClaim", "MakeFiller", "Mark", "DropFiller", "MarkClaim", "Rebind", "DropClaim", "Done"];
    assert_eq!(words(&steps), order);
    let FillStep::MakeFiller(filler) = &steps[1] else { panic!("{steps:?}") };
    let (source, to) = (&filler.spec.source, &filler.spec.destination);
    assert_eq!(source.endpoint.as_ref().unwrap().identity.as_ref().unwrap().secret_name, "key");
    assert_eq!(to.persistent_volume_claim.as_ref().unwrap().claim_name, "vf-populate-u-claim");
    assert_eq!((&*to.path, filler.spec.suspend), ("/site", false));
    assert_eq!(filler.spec.files.exclude, ["/cache/"]);

    for (annotations, job, reason) in [
        (json!({}), reads(Value::Null, "web"), "InvalidSpec"),
        (json!({ANNOTATION_SNAPSHOT: "gold"}), reads(known(), "web"), "InvalidAnnotation"),
        // The copy is on another claim, and no run has made it yet.
        (json!({}), reads(known(), "kept"), "NoCopyYet"),
    ] {
        assert_eq!(reason_of(&world(annotations, job).play(Ok(()))), reason);
    }
    let steps = world(json!({ANNOTATION_IF_NONE: "Empty"}), reads(known(), "web")).play(Err("PeerLost"));
    assert_eq!(reason_of(&steps), "PeerLost", "a way that is cut is no reason to come up empty");
}

#[test]
fn a_snapshot_that_was_dropped_while_the_restore_waited_gives_way_to_the_newest_one() {
    let mut world = world(json!({}), Some(job(true, Some("s-7"), &json!({}))));
    assert_eq!(words(&world.play(Err("SnapshotNotFound"))), ["MakeClaim", "MakeFiller", "Tell"]);
    world.job = Some(job(true, Some("s-8"), &json!({})));
    let steps = world.play(Ok(()));
    assert_eq!(words(&steps[..2]), ["DropFiller", "MakeFiller"]);
    assert_eq!(restored(&steps).as_deref(), Some("s-8"));
}

#[test]
fn a_claim_that_waits_for_its_first_consumer_is_filled_on_the_node_of_its_pod() {
    let mut world = world(json!({}), Some(job(true, None, &json!({}))));
    world.is_lazy = true;
    assert_eq!(world.next(), FillStep::Wait);
    let choose = |world: &mut World, node: &str| {
        world.claim.annotations_mut().insert(ANNOTATION_SELECTED_NODE.into(), node.into());
        world.step()
    };
    let node = |claim: &PersistentVolumeClaim| claim.annotations().get(ANNOTATION_SELECTED_NODE).cloned();
    choose(&mut world, "n1");
    assert_eq!(node(world.temporary.as_ref().unwrap()).as_deref(), Some("n1"));
    choose(&mut world, "n2");
    assert_eq!(node(world.temporary.as_ref().unwrap()).as_deref(), Some("n2"));
    assert_eq!(world.next(), FillStep::Wait);
    // The provisioner refuses the node, by which Kubernetes has the scheduler choose again: also the same one.
    for again in ["n3", "n3"] {
        world.temporary.as_mut().unwrap().annotations_mut().remove(ANNOTATION_SELECTED_NODE);
        world.step();
        assert_eq!(node(&world.claim), None);
        world.step();
        assert!(!world.temporary.as_ref().unwrap().annotations().contains_key(ANNOTATION_TOLD));
        choose(&mut world, again);
        assert_eq!(node(world.temporary.as_ref().unwrap()).as_deref(), Some(again));
    }
    assert_eq!(words(&world.play(Ok(())))[0], "MakeFiller");
}

#[test]
fn what_the_storage_says_and_a_missing_class_are_told() {
    let mut failing = world(json!({}), Some(job(true, None, &json!({}))));
    failing.step();
    failing.warning = Some("ProvisioningFailed: the pool is full");
    let FillStep::Tell(fault) = failing.next() else { panic!("{:?}", failing.next()) };
    assert!(fault.message.contains("the pool is full"), "{fault:?}");
    let mut without = world(json!({}), Some(job(true, None, &json!({}))));
    without.claim.spec.as_mut().unwrap().storage_class_name = None;
    assert_eq!(reason_of(&without.play(Ok(()))), "ClaimNotBound");
}

#[test]
fn what_somebody_else_has_made_under_that_name_or_taken_is_left_alone() {
    let mut others = world(json!({}), Some(job(true, None, &json!({}))));
    others.step();
    others.temporary.as_mut().unwrap().metadata.owner_references = None;
    assert_eq!(reason_of(&others.play(Ok(()))), "NameTaken");
    let mut taken = world(json!({}), Some(job(true, None, &json!({}))));
    taken.play(Err("NotEnoughSpace"));
    taken.run(Ok(()));
    let holder = taken.volume.as_mut().unwrap().spec.as_mut().unwrap().claim_ref.as_mut().unwrap();
    holder.uid = Some("other".into());
    assert_eq!(reason_of(&taken.play(Ok(()))), "Failed");
}
