//! A run as an object: what its SyncRun says, and whether the one that is there is the run's. Pure.

use contract::Side;
use jiff::Timestamp;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{Resource as _, ResourceExt as _, api::ObjectMeta};

use super::status;
use crate::{
    api::{
        ActiveRun, Reports, Run, RunProgress, ShardProgress, Stage, SyncJob, SyncJobReference, SyncJobStatus,
        SyncRun, SyncRunSpec, SyncRunStatus,
        conditions::{self, Cause, reason},
    },
    fault::Fault,
    names,
};

/// Where the SyncRun of the run under way is.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Record {
    /// There is none yet.
    #[default]
    Missing,
    /// A person made it to ask for this run, and it is still to be filled in.
    Asked,
    /// It is there.
    Kept,
    /// It is there, of an older spec, before anything was done for it.
    Outdated,
    /// One of the same name is on its way out.
    Leaving,
    /// Another object has the name.
    Taken(Fault),
    /// It was there, and somebody has deleted it.
    Deleted,
}

/// Tells where the SyncRun of `run` is, of the job with that name and UID, given the object of its name.
pub fn judge(run: &ActiveRun, job: &str, job_uid: &str, found: Option<&SyncRun>) -> Record {
    let Some(found) = found else {
        return if run.uid.is_some() { Record::Deleted } else { Record::Missing };
    };
    let is_leaving = found.metadata.deletion_timestamp.is_some();
    if run.uid.is_some() {
        return if run.uid == found.uid() && !is_leaving { Record::Kept } else { Record::Deleted };
    }
    if is_leaving {
        return Record::Leaving;
    }
    if found.is_asked_for() && found.spec.sync_job.name == job {
        return Record::Asked;
    }
    if !found.is_of(job_uid) {
        return Record::Taken(taken(run));
    }
    let is_same = found.spec.number == Some(run.number)
        && found.spec.sync_job.generation == Some(run.generation)
        && found.spec.local == Some(run.local);
    if is_same { Record::Kept } else { Record::Outdated }
}

fn taken(run: &ActiveRun) -> Fault {
    Fault::new(
        reason::CHILD_REFUSED,
        format!(
            "There is a SyncRun {} that is not of this SyncJob. Delete it; the run goes on as soon as it is gone.",
            run.id
        ),
    )
}

/// The SyncRun of a run that begins.
pub fn sync_run(job: &SyncJob, run: &ActiveRun) -> SyncRun {
    let spec = SyncRunSpec {
        sync_job: SyncJobReference { name: job.name_any(), uid: job.uid(), generation: Some(run.generation) },
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

/// The status of the SyncRun of a run under way in that stage. A new try has nothing yet of what its pods will say.
pub fn under_way(
    old: &SyncRunStatus,
    run: &ActiveRun,
    stage: Stage,
    why: Option<&Fault>,
    generation: i64,
    now: Timestamp,
) -> SyncRunStatus {
    let mut new = old.clone();
    let try_id = names::try_id(&run.id, run.past_tries());
    if old.try_id.as_deref() != Some(&try_id) {
        new.ends = Some(no_ends(run));
        new.progress = Some(no_progress(run, &try_id));
        new.summary = None;
        new.contacts = Some(Default::default());
        new.try_id = Some(try_id);
    }
    new.observed_generation = Some(generation);
    new.stage = Some(stage);
    new.report = None;
    new.retries = run.retries;
    new.hooks.clone_from(&run.hooks);
    let message = status::stage_message(run, stage);
    let (reason, message) =
        why.map_or((stage.word(), message.as_str()), |why| (why.reason.as_str(), why.message.as_str()));
    let cause = Cause { reason, message, generation };
    conditions::reconciling(&mut new.conditions, cause, now);
    new
}

/// Removes the contacts of an end's pods, which are gone or on their way out: those that follow have other keys.
pub fn forget_contacts(status: &mut SyncRunStatus, side: Side) {
    let own = |end: &str| {
        end.strip_prefix(&side.to_string()).is_some_and(|rest| !rest.starts_with(char::is_alphabetic))
    };
    status.contacts.iter_mut().for_each(|contacts| contacts.retain(|end, _| !own(end)));
}

/// What the contact of an end is called, or of one shard of it.
pub fn contact_key(side: Side, shard: Option<u32>) -> String {
    shard.map_or_else(|| side.to_string(), |shard| format!("{side}-{shard}"))
}

/// A place for what each end reports: what is not there cannot be added to.
fn no_ends(run: &ActiveRun) -> Reports {
    let shards = of_shards(run, |_| Default::default());
    let benchmarks = run.benchmark.is_some().then(Default::default);
    Reports { shards, benchmarks, ..Reports::default() }
}

fn no_progress(run: &ActiveRun, try_id: &str) -> RunProgress {
    let shards = of_shards(run, |_| ShardProgress { run: try_id.into(), ..ShardProgress::default() });
    RunProgress { run: try_id.into(), shards, ..RunProgress::default() }
}

fn of_shards<T>(run: &ActiveRun, make: impl Fn(u32) -> T) -> std::collections::BTreeMap<String, T> {
    match run.shard_count() {
        1 => Default::default(),
        count => (0..count).map(|shard| (shard.to_string(), make(shard))).collect(),
    }
}

/// The status of the SyncRun of a run that has ended as `run` says; `is_swept` if nothing that was made for it is
/// left, except for what stays for readers of logs.
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
        summary: Some(status::summary_of(run)),
        report: Some(run.clone()),
        ..SyncRunStatus::default()
    };
    let message = status::standing_message(run);
    let cause = Cause { reason: status::standing_reason(run), message: &message, generation };
    match run.result {
        contract::RunResult::Succeeded => conditions::ready(&mut new.conditions, cause, now),
        _ => conditions::stalled(&mut new.conditions, cause, now),
    }
    new
}

/// The status of a SyncRun that asks for a run of a SyncJob that is not there.
pub fn astray(run: &SyncRun, now: Timestamp) -> SyncRunStatus {
    let mut new = run.status.clone().unwrap_or_default();
    let job = &run.spec.sync_job.name;
    let message = format!(
        "There is no SyncJob {job} in this namespace. Create it, and the run starts; or delete this SyncRun and create one \
         that names another."
    );
    let generation = run.metadata.generation.unwrap_or(1);
    let cause = Cause { reason: reason::JOB_NOT_FOUND, message: &message, generation };
    new.observed_generation = Some(generation);
    conditions::stalled(&mut new.conditions, cause, now);
    new
}

/// The status of one whose SyncJob has come; `None`: nothing was said of it.
pub fn no_longer_astray(run: &SyncRun, now: Timestamp) -> Option<SyncRunStatus> {
    let mut new = run.status.clone().unwrap_or_default();
    let told = conditions::find(&new.conditions, conditions::STALLED)?;
    if told.reason != reason::JOB_NOT_FOUND {
        return None;
    }
    let message = format!("The SyncJob {} has not begun this run yet.", run.spec.sync_job.name);
    let generation = run.metadata.generation.unwrap_or(1);
    let cause = Cause { reason: reason::QUEUED, message: &message, generation };
    new.observed_generation = Some(generation);
    conditions::reconciling(&mut new.conditions, cause, now);
    Some(new)
}

/// The SyncRuns of a job that its history does not keep any more, but for those of benchmarks.
pub fn forgotten<'a>(
    status: &SyncJobStatus,
    runs: impl IntoIterator<Item = &'a SyncRun>,
) -> Vec<&'a SyncRun> {
    let Some(last) = &status.last_run else { return Vec::new() };
    let is_known = |name: &str| {
        status.history.iter().any(|entry| entry.id == name)
            || status.active_run.as_ref().is_some_and(|run| run.id == name)
    };
    let is_over = |run: &SyncRun| {
        run.spec.benchmark.is_none() && run.spec.number.is_some_and(|number| number <= last.number)
    };
    let runs = runs.into_iter().filter(|run| run.metadata.deletion_timestamp.is_none());
    runs.filter(|run| is_over(run) && !is_known(&run.name_any())).collect()
}

/// Whether a Job made a pod.
pub fn is_of_job(pod: &Pod, job: &Job) -> bool {
    job.metadata.uid.is_some()
        && pod
            .metadata
            .owner_references
            .iter()
            .flatten()
            .any(|owner| Some(&owner.uid) == job.metadata.uid.as_ref())
}
