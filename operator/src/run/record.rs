//! Builds SyncRuns and their status, and judges whether a SyncRun belongs to the run under way. Pure.

use contract::{Reason, Side};
use jiff::Timestamp;
use kube::{Resource as _, ResourceExt as _, api::ObjectMeta};

use crate::{
    api::{
        ActiveRun, Run, RunProgress, ShardProgress, Stage, SyncJob, SyncJobReference, SyncRun, SyncRunSpec,
        SyncRunStatus,
        conditions::{self, Cause},
    },
    fault::Fault,
    human, names,
    status::{printer_columns, readiness},
};

/// The maximum length of the reason why a SyncRun cannot be read, in bytes.
const MAX_REASON_BYTES: usize = 2048;

/// The state of the SyncRun of the run under way.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Record {
    /// It does not exist yet.
    #[default]
    Missing,
    /// A person created it to ask for this run, and the operator still has to complete it.
    Asked,
    /// It exists and belongs to the run.
    Kept,
    /// It exists, but was created from an older spec, before anything was done for the run.
    Outdated(Box<SyncRun>),
    /// A SyncRun of the same name is being deleted.
    Leaving,
    /// Another object has the name.
    Taken(Fault),
    /// It existed, and somebody has deleted it.
    Deleted,
}

/// The SyncJob whose SyncRun is looked for.
#[derive(Debug, Clone, Copy)]
pub struct Owner<'a> {
    /// The name of the SyncJob.
    pub job: &'a str,
    /// The UID of the SyncJob.
    pub uid: &'a str,
    /// Whether objects of the run exist, which are only created after its SyncRun.
    pub has_children: bool,
}

/// Determines the state of the SyncRun of `run`, given the object of its name.
pub fn judge(run: &ActiveRun, owner: Owner<'_>, found: Option<&SyncRun>) -> Record {
    let Some(found) = found else {
        let was_there = run.uid.is_some() || owner.has_children;
        return if was_there { Record::Deleted } else { Record::Missing };
    };
    let is_leaving = found.metadata.deletion_timestamp.is_some();
    let is_known = run.uid.is_some() && run.uid == found.uid() && !is_leaving;
    if run.uid.is_some() && !is_known {
        return Record::Deleted;
    }
    if is_leaving {
        return Record::Leaving;
    }
    if found.is_asked_for() && found.spec.sync_job.name == owner.job {
        return Record::Asked;
    }
    if is_known {
        return Record::Kept;
    }
    if !found.is_of(owner.uid) {
        return Record::Taken(taken(run));
    }
    let is_same = found.spec.number == Some(run.number)
        && found.spec.sync_job.generation == Some(run.generation)
        && found.spec.local == Some(run.local);
    if is_same { Record::Kept } else { Record::Outdated(Box::new(found.clone())) }
}

fn taken(run: &ActiveRun) -> Fault {
    Fault::new(
        Reason::ChildRefused,
        format!(
            "There is a SyncRun {} that is not of this SyncJob. Delete it; the run goes on as soon as it is gone.",
            run.id
        ),
    )
}

/// Builds the SyncRun of a run that starts.
pub fn sync_run(job: &SyncJob, run: &ActiveRun) -> SyncRun {
    let spec = SyncRunSpec {
        sync_job: SyncJobReference { name: job.name_any(), uid: job.uid(), generation: Some(run.generation) },
        force: run.force,
        restore: run.restore.clone(),
        benchmark: run.benchmark.clone(),
        cause: run.cause,
        number: Some(run.number),
        job: Some(job.spec.clone()),
        source: run.source.clone(),
        destination: run.destination.clone(),
        local: Some(run.local),
    };
    let labels = [
        (names::LABEL_MANAGED_BY, names::FIELD_MANAGER.to_string()),
        (names::LABEL_SYNCJOB, names::label_value(&job.name_any())),
    ];
    let metadata = ObjectMeta {
        name: Some(run.id.clone()),
        namespace: job.namespace(),
        labels: Some(labels.map(|(key, value)| (key.to_string(), value)).into()),
        annotations: Some([(names::ANNOTATION_SYNCJOB.to_string(), job.name_any())].into()),
        owner_references: Some(job.controller_owner_ref(&()).into_iter().collect()),
        ..ObjectMeta::default()
    };
    SyncRun { metadata, spec, status: None }
}

/// Returns the SyncRun status of a run under way in that stage. At the start of a new try, reports and contacts of the
/// previous pods are dropped.
pub fn under_way(
    old: &SyncRunStatus,
    run: &ActiveRun,
    stage: Stage,
    why: Option<&Fault>,
    generation: i64,
    now: Timestamp,
) -> SyncRunStatus {
    let mut new = old.clone();
    if !has_room(old, run) {
        new.ends = Some(Default::default());
        new.progress = Some(no_progress(run, &names::try_id(&run.id, run.past_tries())));
        new.summary = None;
        new.contacts = Some(Default::default());
        new.free = Some(Default::default());
        // The pods of each try tell it, and one that was lost is not that of the next.
        new.identity = None;
        new.try_number = Some(run.try_number());
    }
    new.observed_generation = Some(generation);
    new.stage = Some(stage);
    new.report = None;
    new.retries = run.retries;
    new.hooks.clone_from(&run.hooks);
    let usual = Fault::new(stage.reason(), readiness::stage_message(run, stage));
    conditions::reconciling(&mut new.conditions, why.unwrap_or(&usual).cause(generation), now);
    new
}

/// Returns whether a status has the fields that the pods of the current try write into. A newly created SyncRun has
/// them for the first try of one pair.
fn has_room(status: &SyncRunStatus, run: &ActiveRun) -> bool {
    let shards = status.progress.as_ref().map_or(0, |progress| progress.shards.len());
    let wanted = if run.shard_count() == 1 { 0 } else { run.shard_count() as usize };
    status.try_number == Some(run.try_number()) && status.free.is_some() && shards == wanted
}

/// Returns whether the status of a SyncRun in that stage need not be written: nothing blocks the run, and its pods will
/// report themselves that they run.
pub fn is_told_by_agents(old: &SyncRunStatus, run: &ActiveRun, stage: Stage, why: Option<&Fault>) -> bool {
    let is_usual = matches!(stage, Stage::Queued | Stage::Starting | Stage::Running) && why.is_none();
    is_usual && old.conditions.is_empty() && old.hooks == run.hooks && has_room(old, run)
}

/// Removes what an end's pods wrote that are gone or terminating: the pods that follow have other keys.
pub fn forget_end(status: &mut SyncRunStatus, side: Side) {
    let own = |end: &str| {
        end.strip_prefix(&side.to_string()).is_some_and(|rest| !rest.starts_with(char::is_alphabetic))
    };
    status.contacts.iter_mut().for_each(|contacts| contacts.retain(|end, _| !own(end)));
    status.free.iter_mut().for_each(|free| free.retain(|end, _| !own(end)));
}

/// Returns the progress of a try that has none yet, with an entry for each of several shards, because a JSON patch
/// cannot add below a missing field.
fn no_progress(run: &ActiveRun, try_id: &str) -> RunProgress {
    let none = || ShardProgress { run: try_id.into(), ..ShardProgress::default() };
    let shards = (0..run.shard_count()).filter(|_| run.shard_count() > 1);
    let shards = shards.map(|shard| (shard.to_string(), none())).collect();
    RunProgress { run: try_id.into(), shards, ..RunProgress::default() }
}

/// Returns the SyncRun status of a run that has ended as `run` says; `is_swept` if all its objects are removed, except
/// those that are kept for readers of logs.
pub fn ended(
    old: &SyncRunStatus,
    run: &Run,
    is_swept: bool,
    generation: i64,
    now: Timestamp,
) -> SyncRunStatus {
    let stage = if is_swept { Stage::Done } else { Stage::Finishing };
    let mut new = SyncRunStatus {
        observed_generation: Some(generation),
        stage: Some(stage),
        conditions: old.conditions.clone(),
        retries: run.retries,
        summary: Some(printer_columns::summary_of(run)),
        report: Some(run.clone()),
        ..SyncRunStatus::default()
    };
    let message = readiness::standing_message(run);
    let cause = Cause { reason: &readiness::standing_reason(run), message: &message, generation };
    match run.result {
        contract::RunResult::Succeeded => conditions::ready(&mut new.conditions, cause, now),
        _ => conditions::stalled(&mut new.conditions, cause, now),
    }
    new
}

/// Returns the status of a SyncRun that asks for a run of a missing SyncJob.
pub fn astray(run: &SyncRun, now: Timestamp) -> SyncRunStatus {
    let mut new = run.status.clone().unwrap_or_default();
    let job = &run.spec.sync_job.name;
    let message = format!(
        "There is no SyncJob {job} in this namespace. Create it, and the run starts; or delete this SyncRun and create one \
         that names another."
    );
    let generation = run.metadata.generation.unwrap_or(1);
    let cause = Cause { reason: &Reason::JobNotFound, message: &message, generation };
    new.observed_generation = Some(generation);
    conditions::stalled(&mut new.conditions, cause, now);
    new
}

/// Returns the status of a SyncRun that cannot be read. Its conditions are of the time of its creation, so that the
/// same status is written each time.
pub fn unreadable(run: &SyncRun, why: &str) -> SyncRunStatus {
    let message = format!(
        "This operator cannot read the SyncRun, and starts nothing for it: {} Delete it, and create one without that value.",
        human::sentence(&human::clipped(why, MAX_REASON_BYTES))
    );
    let generation = run.metadata.generation.unwrap_or(1);
    let cause = Cause { reason: &Reason::InvalidSpec, message: &message, generation };
    let mut status = SyncRunStatus { observed_generation: Some(generation), ..SyncRunStatus::default() };
    conditions::stalled(&mut status.conditions, cause, run.created().unwrap_or(Timestamp::UNIX_EPOCH));
    status
}

/// Returns the status of such a SyncRun once its SyncJob exists; `None` if the status did not report it as missing.
pub fn no_longer_astray(run: &SyncRun, now: Timestamp) -> Option<SyncRunStatus> {
    let mut new = run.status.clone().unwrap_or_default();
    let told = conditions::find(&new.conditions, conditions::STALLED)?;
    if told.reason != *Reason::JobNotFound {
        return None;
    }
    let message = format!("The SyncJob {} has not begun this run yet.", run.spec.sync_job.name);
    let generation = run.metadata.generation.unwrap_or(1);
    let cause = Cause { reason: &Reason::Queued, message: &message, generation };
    new.observed_generation = Some(generation);
    conditions::reconciling(&mut new.conditions, cause, now);
    Some(new)
}

/// Returns the status of a SyncRun that a person made with a number, which the operator counts; `None` for others.
pub fn preset(run: &SyncRun, now: Timestamp) -> Option<SyncRunStatus> {
    let is_owned = run.metadata.owner_references.iter().flatten().next().is_some();
    if is_owned || run.spec.number.is_none() || run.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let mut new = run.status.clone().unwrap_or_default();
    let message = "The operator fills in spec.number and spec.cause of a SyncRun, and starts no run for one that has \
                   them already. Create one with spec.syncJob alone, and force, restore or benchmark where wanted.";
    let generation = run.metadata.generation.unwrap_or(1);
    let cause = Cause { reason: &Reason::InvalidSpec, message, generation };
    new.observed_generation = Some(generation);
    conditions::stalled(&mut new.conditions, cause, now);
    Some(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::run_status::new_run;

    fn run() -> ActiveRun {
        new_run("web", 1, 1, None, Timestamp::UNIX_EPOCH)
    }

    /// The default status that the CRD gives a new SyncRun.
    fn made() -> SyncRunStatus {
        SyncRunStatus {
            observed_generation: Some(-1),
            stage: Some(Stage::Queued),
            try_number: Some(1),
            contacts: Some(Default::default()),
            free: Some(Default::default()),
            ends: Some(Default::default()),
            ..SyncRunStatus::default()
        }
    }

    #[test]
    fn a_record_that_is_gone_was_deleted_if_anything_shows_that_it_was_there() {
        let owner = |has_children| Owner { job: "web", uid: "u", has_children };
        assert_eq!(judge(&run(), owner(false), None), Record::Missing);
        assert_eq!(judge(&run(), owner(true), None), Record::Deleted);
        let known = ActiveRun { uid: Some("r".into()), ..run() };
        assert_eq!(judge(&known, owner(false), None), Record::Deleted);
    }

    #[test]
    fn the_key_that_a_try_told_is_not_that_of_the_next_one() {
        let public_key = contract::PublicKey::from_bytes(&[7; 32]).unwrap();
        let identity = Some(crate::api::JobIdentity { public_key });
        let told = SyncRunStatus { identity, ..made() };
        let after = |run: &ActiveRun| {
            under_way(&told, run, Stage::Running, None, 1, Timestamp::UNIX_EPOCH).identity.is_some()
        };
        assert!(after(&run()));
        assert!(!after(&ActiveRun { retries: 1, ..run() }));
    }

    #[test]
    fn a_record_that_a_person_made_is_to_be_filled_in_and_is_canceled_by_its_deletion() {
        let owner = Owner { job: "web", uid: "u", has_children: false };
        let mut asked = SyncRun::new("now", SyncRunSpec::default());
        asked.spec.sync_job.name = "web".into();
        asked.metadata.uid = Some("r".into());
        let known = ActiveRun { uid: Some("r".into()), ..run() };
        assert_eq!(judge(&known, owner, Some(&asked)), Record::Asked);
        let other = ActiveRun { uid: Some("s".into()), ..run() };
        assert_eq!(judge(&other, owner, Some(&asked)), Record::Deleted);
        asked.spec.number = Some(1);
        assert_eq!(judge(&known, owner, Some(&asked)), Record::Kept);
    }

    #[test]
    fn a_syncrun_with_fields_of_the_operator_is_told_that_no_run_starts_for_it() {
        let mut run = SyncRun::new("mine", SyncRunSpec::default());
        assert_eq!(preset(&run, Timestamp::UNIX_EPOCH), None);
        run.spec.number = Some(7);
        let told = preset(&run, Timestamp::UNIX_EPOCH).unwrap();
        let stalled = conditions::find(&told.conditions, conditions::STALLED).unwrap();
        assert!(stalled.message.contains("spec.number"), "{}", stalled.message);
        run.metadata.owner_references = Some(vec![Default::default()]);
        assert_eq!(preset(&run, Timestamp::UNIX_EPOCH), None);
    }

    #[test]
    fn the_usual_run_is_not_told_what_its_pods_will_say() {
        let says_itself = is_told_by_agents;
        let fault = Fault::new(Reason::PodPending, "no node");
        assert!(says_itself(&made(), &run(), Stage::Starting, None));
        assert!(says_itself(&made(), &run(), Stage::Running, None));
        assert!(says_itself(&made(), &run(), Stage::Queued, None), "it gave its start back");
        assert!(!says_itself(&made(), &run(), Stage::Starting, Some(&fault)));
        assert!(!says_itself(&made(), &run(), Stage::Preparing, None));
        let mut told = under_way(&made(), &run(), Stage::Starting, Some(&fault), 1, Timestamp::UNIX_EPOCH);
        assert!(!says_itself(&told, &run(), Stage::Running, None), "what was said is taken back");
        told.conditions.clear();
        assert!(
            !says_itself(&told, &ActiveRun { retries: 1, ..run() }, Stage::Starting, None),
            "a second try"
        );
        let more = ActiveRun { shards: 2, ..run() };
        assert!(!says_itself(&made(), &more, Stage::Starting, None), "no room for what its pods write");
        let room = under_way(&made(), &more, Stage::Starting, None, 1, Timestamp::UNIX_EPOCH);
        assert!(has_room(&room, &more));
    }
}
