//! Reconciles SyncJobs: each call carries out one step.

use contract::{Reason, RunResult, chain};
use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Api, Resource as _, ResourceExt,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
    core::error_boundary::InvalidObject,
    runtime::controller::Action,
};
use tokio::time::{Instant, timeout};

use super::{
    apply::Refusal,
    context::Context,
    dereference::{self, Dereferenced},
    error::Error,
    launch,
    read::Guarded,
    reconcile_timeout::TIMEOUT,
    view::{Inspected, View},
};
use crate::{
    api::{ActiveRun, SyncJob, SyncJobSpec, SyncJobStatus},
    ends::{destination_identity, end_namespaces::Consent},
    fault::Fault,
    grants::{namespace_annotations, refresh_grants, remove_abroad},
    hooks::run_hooks,
    names::{self, FIELD_MANAGER},
    pods::{one_pod_or_two, security},
    queue::priority,
    run::{
        bookkeeping,
        outcome::Outcome,
        record::Record,
        restore,
        stages::{
            self,
            step::{ClaimStep, Decision, Step, StorageStep},
        },
        stray_runs,
    },
    sets::members,
    snapshots::{engine_snapshots, make_capture, make_image},
    spec::validate::{self, ValidatedSyncJob},
    status::{
        announce::{announce, write_status},
        next_status, readiness,
    },
    volumes::block_volumes,
};

/// The interval between checks whether the objects of an ended run are gone, unless a watch reports it earlier.
const CLEANUP_PERIOD: Duration = Duration::from_secs(5);
/// The interval between looks whether another release still holds a namespace.
pub(crate) const OTHERS_PERIOD: Duration = Duration::from_secs(20);
/// The maximum time for which the status keeps a message about a run's position in the queue.
const POSITION_AGE: Duration = Duration::from_secs(600);

/// Reconciles one job, and counts that in the metrics. kube's controller calls it for each change.
pub(crate) async fn reconcile(job: Arc<Guarded>, context: Arc<Context>) -> Result<Action, Error> {
    let started = Instant::now();
    let done = timeout(TIMEOUT, reconcile_known(&job, &context)).await.unwrap_or(Err(Error::TimedOut));
    if done.is_ok() {
        context.failures.forget(&path(&job));
    }
    let has_failed = done.as_ref().is_err_and(|error| !error.is_conflict());
    context.health.metrics.reconciled(started.elapsed(), has_failed);
    done
}

/// Carries out the next step of a job of a namespace that this release holds. A run must not be started twice, so this
/// waits until the watches have reported all earlier writes of this operator.
async fn reconcile_known(job: &Guarded, context: &Context) -> Result<Action, Error> {
    if !context.namespaces.holds(&job.namespace().unwrap_or_default()).await? {
        context.forget(&job.namespace().unwrap_or_default(), &job.name_any());
        return Ok(Action::requeue(OTHERS_PERIOD));
    }
    context.known.catch_up(&job.namespace().unwrap_or_default()).await?;
    let found = context.known.jobs.get(&job.namespace().unwrap_or_default(), &job.name_any());
    // The garbage collector deletes the objects of a deleted SyncJob by their owner references.
    let Some(job) = found.filter(|job| job.meta().deletion_timestamp.is_none()) else {
        let (namespace, name) = (job.namespace().unwrap_or_default(), job.name_any());
        context.forget(&namespace, &name);
        run_hooks::end_orphans(context, &namespace, &name, None);
        remove_abroad::clear(context, &namespace, &name, None);
        return Ok(Action::await_change());
    };
    match &job.0 {
        Ok(job) => {
            refresh_grants::catch_up(&context.known, job).await?;
            if members::owner(job).is_some() {
                // Without the set, its limit on runs is not known.
                context.known.sets.catch_up(&job.namespace().unwrap_or_default()).await?;
            }
            Box::pin(go_on(job, context)).await
        }
        Err(unreadable) => Box::pin(set_aside(unreadable.clone(), context)).await,
    }
}

/// Checks that nobody has written to a job since the watch reported it: another operator may have believed that it
/// leads, too. Fails if somebody has.
async fn newest(context: &Context, job: &SyncJob) -> Result<(), Error> {
    let now = dereference::fresh(&context.client, job).await?;
    if now.as_ref().is_some_and(|now| now.resource_version() == job.resource_version()) {
        return Ok(());
    }
    now.iter().for_each(|now| context.known.jobs.wrote(now));
    Err(Error::Outdated)
}

fn path(job: &Guarded) -> String {
    format!("{}/{}", job.namespace().unwrap_or_default(), job.name_any())
}

/// Logs a failed reconciliation, and returns when to try it again: the later, the more have failed in a row.
#[allow(clippy::needless_pass_by_value)] // kube calls it so
pub(crate) fn on_error(job: Arc<Guarded>, error: &Error, context: Arc<Context>) -> Action {
    let (namespace, name) = (job.namespace().unwrap_or_default(), job.name_any());
    let pause = error.pause(context.failures.failed(&path(&job)));
    if error.is_conflict() {
        tracing::debug!(namespace, name, "somebody else has written to the job; reconciling anew");
        return Action::requeue(pause);
    }
    tracing::warn!(namespace, name, error = chain(error), "reconciling failed and is tried again");
    Action::requeue(pause)
}

/// Reports in the status of a job that this operator cannot parse it.
async fn set_aside(unreadable: InvalidObject, context: &Context) -> Result<Action, Error> {
    let fault = Fault::new(
        Reason::InvalidSpec,
        format!("This operator cannot read the SyncJob, which may be of a newer one: {}.", unreadable.error),
    );
    let job = SyncJob { metadata: unreadable.metadata, spec: SyncJobSpec::default(), status: None };
    let (namespace, name) = (job.namespace().unwrap_or_default(), job.name_any());
    let kind = ApiResource::erase::<SyncJob>(&());
    let raw = Api::<DynamicObject>::namespaced_with(context.client.clone(), &namespace, &kind);
    let Some(there) = raw.get_opt(&name).await.map_err(Error::Status)? else {
        return Ok(Action::await_change());
    };
    // A merge patch replaces the whole list, and others than those about readiness still decide, such as Restored.
    let conditions = there.data["status"]["conditions"].as_array().into_iter().flatten();
    let conditions = conditions.filter_map(|it| serde_json::from_value(it.clone()).ok()).collect();
    let old = SyncJobStatus { conditions, ..SyncJobStatus::default() };
    let mut status = old.clone();
    readiness::refused(&mut status, &fault, job.metadata.generation.unwrap_or(0), Timestamp::now());
    let api = Api::<Guarded>::namespaced(context.client.clone(), &namespace);
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    let metadata = serde_json::json!({ "uid": there.uid(), "resourceVersion": there.resource_version() });
    let patch = Patch::Merge(serde_json::json!({ "metadata": metadata, "status": status }));
    let written = api.patch_status(&name, &params, &patch).await.map_err(Error::Status)?;
    context.known.jobs.wrote(&written);
    announce(context, &job, &old, &status).await;
    Ok(Action::await_change())
}

/// Carries out one step of a SyncJob, and returns when to continue. The parts are boxed, because together they would
/// not fit into a worker's stack without optimization.
async fn go_on(job: &SyncJob, context: &Context) -> Result<Action, Error> {
    // 1. Put in order what no run of the job needs.
    if Box::pin(tidy(job, context)).await? {
        return Ok(Action::requeue(CLEANUP_PERIOD));
    }
    // 2. Look: writes nothing.
    let mut seen = Box::pin(inspect(job, context)).await?;
    // 3. Plan: talks to nobody.
    let mut planned = plan(job, &seen, context);
    // 4. Act. The SyncRun comes first, because it owns what is made for the run.
    // One that is outdated is deleted, unless another operator has made it from a newer spec.
    if seen.valid.is_ok() && matches!(seen.found.facts.record, Record::Outdated(_)) {
        newest(context, job).await?;
    }
    let has_record = seen.valid.is_err()
        || Box::pin(bookkeeping::make_record(context, job, &mut seen.found, &planned.step)).await?;
    if !has_record {
        planned = plan(job, &seen, context);
    }
    let Planned { step, again, next_run } = planned;
    let step = patient(context, job, step, again);
    // Whoever has not heard that the run makes its pods cannot give its start back, so they are told first.
    let launched = Box::pin(record_launch(context, job, &mut seen, &step, next_run)).await?;
    let job = launched.as_ref().unwrap_or(job);
    let view = View::new(job, &seen, &context.settings);
    let Acted { step, is_known } = Box::pin(act(context, &view, step, launched.is_some())).await?;
    // 5. Write the status.
    let new = new_status(context, &view, &step, next_run);
    Box::pin(write_status(context, job, &new)).await?;
    announce(context, job, &next_status::before(&step, &view), &new).await;
    // 6. Remove what the run no longer needs, now that the status says so.
    let is_settled = Box::pin(clear_up(context, &view, &step, &new, is_known)).await?;
    let soon = (!is_settled).then_some(CLEANUP_PERIOD);
    let again = again.map(|again| until(again, seen.now)).into_iter().chain(soon).min();
    Ok(again.map_or_else(Action::await_change, Action::requeue))
}

/// Takes back and removes what earlier SyncJobs of the name left, and what was said of SyncRuns before there was one.
/// Returns whether a run that the status has lost has yet to run its hook `after`.
async fn tidy(job: &SyncJob, context: &Context) -> Result<bool, Error> {
    let (namespace, name) = (job.namespace().unwrap_or_default(), job.name_any());
    stray_runs::take_back(context, &namespace, &name).await?;
    stray_runs::report_preset(context, &namespace, &name).await?;
    let owes = run_hooks::end_orphans(context, &namespace, &name, Some(job));
    remove_abroad::clear(context, &namespace, &name, job.uid().as_deref());
    Ok(owes)
}

/// Reads all objects that the next step depends on, and validates the SyncJob against them.
async fn inspect(job: &SyncJob, context: &Context) -> Result<Inspected, Error> {
    let mut found = dereference::dereference(context.sources(), job).await?;
    let wished = restore::wished(job, found.facts.asked.as_ref());
    let mut valid = validated(&wished, &found);
    if valid.is_err() && !found.are_users_fresh {
        refresh_grants::refresh(context.sources(), job, &mut found).await?;
        valid = validated(&wished, &found);
    }
    let (mut status, now) = (restore::released(job), Timestamp::now());
    let accepted = job.annotations().get(names::ANNOTATION_ACCEPT_VOLUME).map(String::as_str);
    destination_identity::accept(&mut status, &job.name_any(), accepted);
    if let Some(run) = &status.active_run {
        found.judge_record(job, run);
        found.owing = run.uid.as_ref().and_then(|uid| context.hooks.owed(uid));
    }
    Ok(Inspected { found, valid, status, now })
}

/// The next step of a job, when to reconcile it again, and when its next run falls due.
struct Planned {
    step: Step,
    again: Option<Timestamp>,
    next_run: Option<Timestamp>,
}

fn plan(job: &SyncJob, seen: &Inspected, context: &Context) -> Planned {
    let view = View::new(job, seen, &context.settings);
    let situation = view.situation();
    let Decision { step, again } = stages::plan::next(&situation);
    let again = again.into_iter().chain(refresh_grants::next_look(&seen.found, seen.now)).min();
    let next_run = stages::plan::next_run(&situation, &step);
    Planned { step: advised(step, &seen.valid, &seen.found), again, next_run }
}

/// A step that was carried out, or its successor.
struct Acted {
    step: Step,
    /// Whether all created objects are known.
    is_known: bool,
}

/// Carries out a step: records the stage, deletes the objects that are no longer needed, and creates those that the
/// step requires. Returns the step, or its successor if the API server rejected an object or a hook has ended.
async fn act(context: &Context, view: &View<'_>, step: Step, is_newest: bool) -> Result<Acted, Error> {
    let doomed = view.doomed(&step);
    let of_storage = matches!(step, Step::Capture(StorageStep::Wait(_)) | Step::Image(StorageStep::Wait(_)));
    let makes = of_storage || matches!(step, Step::Launch | Step::Claim(_));
    if !is_newest && (makes || !doomed.is_empty()) {
        newest(context, view.job).await?;
    }
    bookkeeping::report_stage(context, view, &step).await?;
    view.sweep(&context.client, &doomed).await?;
    context.note_removed(doomed.iter().copied());
    let refused = match (&step, view.valid) {
        (Step::Start(Some(_)), Ok(valid)) if view.found.warnings.lack_account(&view.found.children.jobs) => {
            context.accounts.forget(&view.subject.namespace, &view.subject.name);
            launch::launch(context, view, valid, &step).await?
        }
        // The job has its key by now, so its pod may keep no other.
        (Step::Start(_) | Step::Run, Ok(valid))
            if view.identity().is_some() && view.status.identity.is_none() =>
        {
            launch::launch(context, view, valid, &step).await?
        }
        (Step::Capture(StorageStep::Wait(_)), Ok(valid)) => make_capture::make(context, view, valid).await?,
        (Step::Image(StorageStep::Wait(None)), Ok(valid)) => {
            make_image::make(context, view, valid).await?.map(Refusal::Image)
        }
        (Step::Launch, Ok(valid)) => match make_capture::before_pods(context, view, valid).await? {
            None => launch::launch(context, view, valid, &step).await?,
            refused => refused,
        },
        (Step::Claim(ClaimStep::Create), Ok(valid)) => launch::create(context, view, valid).await?,
        (Step::Claim(ClaimStep::Grow), Ok(valid)) => launch::grow(context, view, valid).await?,
        _ => None,
    };
    // Objects that were created before the rejection become known in the next reconciliation.
    let is_known = refused.is_none();
    let step = refused.map_or(step, |refusal| stages::plan::refused(&view.situation(), refusal.step()));
    Ok(Acted { step: run_hooks::carry_out(context, view, step).await?, is_known })
}

/// Writes and announces the status after a launch before anything is launched, unless it is known that the run is.
/// Returns the job with that status, by which `seen` goes from then on.
async fn record_launch(
    context: &Context,
    job: &SyncJob,
    seen: &mut Inspected,
    step: &Step,
    next_run: Option<Timestamp>,
) -> Result<Option<SyncJob>, Error> {
    let view = View::new(job, seen, &context.settings);
    if *step != Step::Launch || view.active().is_some_and(|run| run.launched) {
        return Ok(None);
    }
    let new = new_status(context, &view, step, next_run);
    let launched = write_status(context, job, &new).await?;
    announce(context, job, &next_status::before(step, &view), &new).await;
    if launched.is_some() {
        seen.status = new;
    }
    Ok(launched)
}

/// Returns the status after a step.
fn new_status(context: &Context, view: &View<'_>, step: &Step, next_run: Option<Timestamp>) -> SyncJobStatus {
    let known = view.job.status.clone().unwrap_or_default();
    let mut new = next_status::before(step, view);
    new.next_run_time = next_run.map(Time);
    next_status::turn(&mut new, step, view);
    let begins = matches!(step, Step::Begin(_));
    if !begins && known.active_run.is_none() {
        // A volume that a person accepts is remembered by the run that it asks for.
        new.destination.clone_from(&known.destination);
    }
    if begins {
        next_status::start_or_wait(context, &mut new, view);
    }
    next_status::note_stage(&mut new, step, view);
    if view.job.spec.snapshots.as_ref().is_none_or(|asked| asked.verify.is_none()) {
        engine_snapshots::forget_damage(&mut new);
    }
    if new != known && !begins {
        bookkeeping::note_record(&mut new, view.found);
    }
    new
}

/// Removes what the status no longer needs. Returns whether nothing of runs that are over is left.
async fn clear_up(
    context: &Context,
    view: &View<'_>,
    step: &Step,
    new: &SyncJobStatus,
    is_known: bool,
) -> Result<bool, Error> {
    bookkeeping::drop_record(context, step, view.found).await?;
    if new.active_run.as_ref().is_some_and(ActiveRun::is_started) {
        view.let_go(&context.client).await?;
        context.note_removed(&view.found.outgoing.jobs);
    }
    run_hooks::release(context, view, new).await?;
    let is_settled = bookkeeping::settle_runs(context, view, new, is_known).await?;
    let is_settled = make_capture::remove(&context.client, view.job, new).await? && is_settled;
    if let Step::Finish(outcome) = step
        && outcome.report.result != RunResult::Succeeded
    {
        // One that somebody has deleted may be the cause.
        context.accounts.forget(&view.subject.namespace, &view.subject.name);
    }
    if let (Step::Finish(_), Ok(valid)) = (step, view.valid) {
        make_image::prune(context, view.job, new, valid).await?;
    }
    Ok(is_settled)
}

/// Returns the validated job, or the reason why its spec, its namespace or the kinds of its volumes do not allow it to
/// run.
fn validated(job: &SyncJob, found: &Dereferenced) -> Result<ValidatedSyncJob, Fault> {
    if let Some(fault) = restore::refusal(&job.spec) {
        return Err(fault);
    }
    let mut valid = validate::validate(&job.spec, &job.name_any(), &job.namespace().unwrap_or_default())?;
    valid.priority = priority::counted(valid.priority, found.users.max_priority.as_deref())?;
    for end in found.ends.iter() {
        let privileged = namespace_annotations::consent(end.users.privileged.as_deref(), &end.namespace)?;
        if !matches!(end.consent, Consent::Refused(_)) {
            let ownership = valid.params.preserve.ownership;
            security::check(privileged, &valid.pods.security_context, ownership, &end.namespace)?;
        }
    }
    Ok(one_pod_or_two::settle(block_volumes::settle(valid, &found.claims)?, &found.claims))
}

/// Returns the step, with advice on which namespace has to let syncers run as root if a try failed for lack of root,
/// and on the key that an endpoint was to show.
fn advised(step: Step, valid: &Result<ValidatedSyncJob, Fault>, found: &Dereferenced) -> Step {
    let Ok(valid) = valid else { return step };
    let mut without = found.ends.without_root();
    if !security::is_root(true, &valid.pods.security_context) {
        without.clear();
    }
    let advise = |outcome: Outcome| {
        let outcome = if without.is_empty() { outcome } else { outcome.without_root(&without) };
        valid.remote().into_iter().fold(outcome, Outcome::with_key)
    };
    match step {
        Step::Retry(outcome, at) => Step::Retry(advise(outcome), at),
        Step::Finish(outcome) => Step::Finish(advise(outcome)),
        other => other,
    }
}

/// Returns the step. If it lets a run wait in the queue, it keeps the last message about the position until a new one
/// is due: otherwise, every waiting run would write its status whenever another run ends.
fn patient(context: &Context, job: &SyncJob, step: Step, again: Option<Timestamp>) -> Step {
    let queued = |reason: &Reason| *reason == Reason::Queued;
    let (Step::Wait(fault), Some(again)) = (&step, again) else { return step };
    if !queued(&fault.reason) {
        return step;
    }
    let uid = job.uid().unwrap_or_default();
    let run = job.status.as_ref().and_then(|it| it.active_run.as_ref());
    let said = run.filter(|run| run.reason.as_ref().is_some_and(queued)).and_then(|run| run.message.clone());
    let is_recent = context.positions.get(&uid, POSITION_AGE).is_some_and(|until| Timestamp::now() < until);
    match said.filter(|_| is_recent) {
        Some(said) => Step::Wait(Fault::new(Reason::Queued, said)),
        None => {
            context.positions.put(&uid, again);
            step
        }
    }
}

fn until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or_default()
}
