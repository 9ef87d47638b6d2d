//! Handles restores in place: derives the job that a restore runs as, and holds back the runs that would follow. Pure.

use std::borrow::Cow;

use contract::{History, MAX_TAG_BYTES, Reason};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;

use super::{benchmark, run_annotations::RunNames};
use crate::{
    api::{
        ActiveRun, DeletionPolicy, EndPodSettings, Files, Placement, Restore, SourceEndpoint, SyncJob,
        SyncJobSpec, SyncJobStatus, SyncRun, Transfer,
        conditions::{self, Cause},
    },
    fault::Fault,
    human, names,
};

/// Returns the job as the run under way, or else the run `asked` for, requires it. For a restore in place, the source
/// is a snapshot on the destination's own claim, so that the job's source need not exist. For a benchmark, the job is
/// reduced to its volumes.
pub fn wished<'a>(job: &'a SyncJob, asked: Option<&SyncRun>) -> Cow<'a, SyncJob> {
    let active = job.status.as_ref().and_then(|status| status.active_run.as_ref());
    let (restore, is_benchmark) = match (active, asked.map(|asked| &asked.spec)) {
        (Some(run), _) => (run.restore.as_ref(), run.benchmark.is_some()),
        (None, Some(asked)) => (asked.restore.as_ref(), asked.benchmark.is_some()),
        (None, None) => (None, false),
    };
    match restore {
        Some(restore) => Cow::Owned(SyncJob { spec: in_place(&job.spec, restore), ..job.clone() }),
        None if is_benchmark => Cow::Owned(SyncJob { spec: benchmark::spec(&job.spec), ..job.clone() }),
        None => Cow::Borrowed(job),
    }
}

/// Returns the spec of a restore in place: it restores the whole snapshot, without the job's filters and suspension.
fn in_place(spec: &SyncJobSpec, restore: &Restore) -> SyncJobSpec {
    let mut spec = spec.clone();
    let snapshot = Some(restore.snapshot.clone());
    let (persistent_volume_claim, path) =
        (spec.destination.persistent_volume_claim.clone(), spec.destination.path.clone());
    let Restore { trust_store, keep_going, .. } = *restore;
    let pods = EndPodSettings::default();
    spec.source = SourceEndpoint {
        persistent_volume_claim,
        endpoint: None,
        path,
        snapshot,
        trust_store,
        keep_going,
        pods,
        point_in_time: None,
        history: History::None,
    };
    let Files { compare, preserve, write, mut delete_limit, .. } = spec.files;
    delete_limit.percent = 100;
    spec.files = Files { delete: true, delete_limit, compare, preserve, write, ..Files::default() };
    let placement = Placement::Auto;
    spec.transfer = Transfer { placement, bandwidth_limit: None, ..spec.transfer };
    (spec.schedule, spec.suspend, spec.snapshots, spec.parallelism) = (None, false, None, 1);
    (spec.destination.create, spec.deletion_policy) = (None, DeletionPolicy::Retain);
    spec.hooks = None;
    spec
}

/// Returns why a SyncJob as [`wished`] cannot be restored in place: its copy is at an endpoint.
pub fn refusal(wished: &SyncJobSpec) -> Option<Fault> {
    let (source, destination) = (&wished.source, &wished.destination);
    let is_restore = source.snapshot.is_some() && source.persistent_volume_claim.is_none();
    let message = "The destination is an endpoint, and a restore in place is of a claim. Restore where the copy is, with \
                   `volferry snapshot restore`, or fetch the snapshot by another SyncJob with source.endpoint and \
                   source.snapshot.";
    let is_remote = is_restore && source.endpoint.is_none() && destination.endpoint.is_some();
    let in_bucket = "The destination is object storage, and a restore in place is of a claim. Bring the snapshot to a volume with \
                     `volferry snapshot copy s3://… DIR`, and restore it there with `volferry snapshot restore`.";
    let message = match &destination.object_store {
        Some(_) if is_restore => in_bucket,
        _ if is_remote => message,
        _ => return None,
    };
    Some(Fault::new(Reason::InvalidSpec, message))
}

/// Returns the tag of the safety snapshot that a restore takes before it starts; `None` if the run takes none.
pub fn tag_before(run: &ActiveRun) -> Option<String> {
    let keeps = run.restore.as_ref().is_some_and(|restore| restore.safety);
    keeps.then(|| human::clipped(&format!("before-{}", run.id), MAX_TAG_BYTES))
}

/// Returns the only paths that a restore brings back; none if it brings back all.
pub fn paths(run: &ActiveRun) -> Vec<String> {
    run.restore.as_ref().map(|restore| restore.paths.clone()).unwrap_or_default()
}

/// Returns whether a restore in place holds back the runs that no person asks for.
pub fn holds(status: &SyncJobStatus) -> bool {
    conditions::is_true(&status.conditions, conditions::RESTORED)
}

/// Sets the condition that a restore holds back further runs, from its start on; it is as old as the restore's SyncRun.
/// Any other run removes it.
pub fn set_conditions(conditions: &mut Vec<Condition>, run: &ActiveRun, now: Timestamp) {
    let Some(restore) = &run.restore else { return resume(conditions) };
    let what = match restore.paths.len() {
        0 => "the destination".into(),
        count => contract::human::plural(count as u64, "path", "paths") + " of the destination",
    };
    let message = format!(
        "Run {0} brings {what} back to its snapshot {1}. No run starts by the schedule or for a change of the \
         spec until you resume the job with `kubectl volferry resume`, which annotates it with {2}=UID, the UID of \
         SyncRun {0}. You can also start one run now: change spec.trigger, or create a SyncRun.",
        run.id,
        restore.snapshot,
        names::ANNOTATION_RESUME
    );
    let cause = Cause { reason: &Reason::RestoredInPlace, message: &message, generation: run.generation };
    // Its time is that of the newest restore, to compare with when other runs were asked for.
    conditions::remove(conditions, conditions::RESTORED);
    let asked = run.asked_time.as_ref().map_or(now, |asked| asked.0);
    conditions::set(conditions, conditions::RESTORED, true, cause, asked);
}

/// Returns whether a SyncRun may be the next run, or may end the one under way. A run that was asked for before a
/// restore in place waits until the job is resumed, since it would undo the restore.
pub fn lets_in(status: &SyncJobStatus, asked: &SyncRun) -> bool {
    match &status.active_run {
        Some(run) => asked.spec.restore.is_some() && run.is_plain(),
        None if asked.spec.restore.is_some() || asked.spec.benchmark.is_some() => true,
        None => {
            let held = conditions::find(&status.conditions, conditions::RESTORED);
            held.is_none_or(|held| asked.created() > Some(held.last_transition_time.0))
        }
    }
}

/// Returns the restore whose hold a person can end now: it has ended, even if its pods still exist, and no other run
/// has followed.
pub fn held_by(status: &SyncJobStatus) -> Option<RunNames<'_>> {
    let last = status.last_run.as_ref().filter(|_| holds(status))?;
    let is_over = status.active_run.as_ref().is_none_or(|run| run.id == last.id);
    is_over.then(|| last.into())
}

/// Returns the status of a job, without the hold if the job's annotation resumes it after that restore.
pub fn released(job: &SyncJob) -> SyncJobStatus {
    let mut status = job.status.clone().unwrap_or_default();
    let asked = job.annotations().get(names::ANNOTATION_RESUME);
    if held_by(&status).zip(asked).is_some_and(|(held, asked)| held.is_meant(asked, &job.name_any())) {
        resume(&mut status.conditions);
    }
    status
}

/// Ends the hold. If `spec.suspend` is true, it still prevents runs.
pub fn resume(conditions: &mut Vec<Condition>) {
    conditions::remove(conditions, conditions::RESTORED);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{api::Run, spec::validate};

    fn job() -> SyncJob {
        let spec = json!({
            "source": {"persistentVolumeClaim": {"claimName": "gone"}, "path": "/a"},
            "destination": {"persistentVolumeClaim": {"claimName": "kept"}, "path": "/b", "create": {}},
            "schedule": {"interval": "1h"},
            "suspend": true,
            "files": {"exclude": ["*.tmp"], "preserve": {"xattrs": false}},
            "transfer": {"placement": "Network", "bandwidthLimit": "1Mi"},
            "parallelism": 4,
        });
        SyncJob::new("web", serde_json::from_value(spec).unwrap())
    }

    fn asked() -> SyncRun {
        let restore = json!({"snapshot": "as-of:2026-11-22T18:00:00Z", "keepGoing": true});
        let spec = json!({"syncJob": {"name": "web"}, "restore": restore});
        SyncRun::new("back", serde_json::from_value(spec).unwrap())
    }

    #[test]
    fn a_restore_needs_the_destination_alone_and_takes_all_of_the_snapshot() {
        let (job, asked) = (job(), asked());
        let wished = wished(&job, Some(&asked));
        let valid = validate::validate(&wished.spec, "web", "prod").unwrap();
        assert_eq!(valid.ends.source, valid.ends.sink);
        assert_eq!(valid.params.source_snapshot.as_deref(), Some("as-of:2026-11-22T18:00:00Z"));
        assert!(valid.params.keep_going && !valid.params.trust_store);
        assert!(valid.params.delete && valid.params.exclude.is_empty() && !valid.params.preserve.xattrs);
        assert_eq!((valid.params.delete_limit.0, valid.parallelism, valid.suspend), (100, 1, false));
        assert!(valid.is_local && valid.create.is_none() && valid.schedule.is_none());
    }

    #[test]
    fn the_run_under_way_decides_what_the_job_is_and_not_who_asks_next() {
        let (mut job, asked) = (job(), asked());
        job.status =
            Some(SyncJobStatus { active_run: Some(ActiveRun::default()), ..SyncJobStatus::default() });
        assert_eq!(wished(&job, Some(&asked)).spec, job.spec);
        let run = ActiveRun { restore: asked.spec.restore.clone(), ..ActiveRun::default() };
        job.status = Some(SyncJobStatus { active_run: Some(run), ..SyncJobStatus::default() });
        assert!(wished(&job, None).spec.source.snapshot.is_some());
    }

    #[test]
    fn the_state_before_has_a_tag_of_its_run_unless_it_is_declined() {
        let mut run =
            ActiveRun { id: "x".repeat(253), restore: asked().spec.restore, ..ActiveRun::default() };
        assert!(tag_before(&run).unwrap().len() <= MAX_TAG_BYTES);
        run.id = "back".into();
        assert_eq!(tag_before(&run).as_deref(), Some("before-back"));
        run.restore.as_mut().unwrap().safety = false;
        assert_eq!(tag_before(&run), None);
    }

    #[test]
    fn a_restore_holds_until_another_run_begins() {
        let mut status = SyncJobStatus::default();
        let mut run = ActiveRun { restore: asked().spec.restore, ..ActiveRun::default() };
        set_conditions(&mut status.conditions, &run, Timestamp::UNIX_EPOCH);
        assert!(holds(&status));
        run.restore = None;
        set_conditions(&mut status.conditions, &run, Timestamp::UNIX_EPOCH);
        assert!(!holds(&status));
    }

    #[test]
    fn a_person_releases_a_restore_that_is_over_and_no_later_one_of_its_name() {
        let mut job = job();
        let (id, uid) = ("back", Some("u2".to_string()));
        let restore = asked().spec.restore;
        let run = ActiveRun { id: id.into(), uid: uid.clone(), restore, ..ActiveRun::default() };
        let last_run = Some(Run { id: id.into(), uid, ..Run::default() });
        let mut status = SyncJobStatus { last_run, ..SyncJobStatus::default() };
        set_conditions(&mut status.conditions, &run, Timestamp::UNIX_EPOCH);
        let finishing = SyncJobStatus { active_run: Some(run), ..status.clone() };
        let under_way = SyncJobStatus { last_run: None, ..finishing.clone() };
        for (status, asked, is_held) in [
            (&status, None, true),
            (&status, Some("u1"), true),
            (&status, Some("back"), true),
            (&under_way, Some("u2"), true),
            (&finishing, Some("u2"), false),
            (&status, Some("u2"), false),
        ] {
            job.status = Some(status.clone());
            let annotation = asked.map(|asked| (names::ANNOTATION_RESUME.into(), asked.into()));
            job.metadata.annotations = Some(annotation.into_iter().collect());
            assert_eq!(holds(&released(&job)), is_held, "{asked:?}");
        }
    }
}
