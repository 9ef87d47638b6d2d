//! The controller of SyncJobs.
//!
//! Each reconciliation goes through the same steps, each in a module of its own: *dereference* reads,
//! *validate* turns the spec into a [`ValidatedSyncJob`], *plan* decides, *build* says what objects
//! that takes, *apply* makes them, and *status* says how it stands. Only dereference, apply and cleanup talk
//! to the API server.

pub mod apply;
pub mod build;
pub mod cleanup;
mod consent;
pub mod dereference;
pub mod exec;
pub mod hook_tasks;
pub mod hooks;
pub mod read;
pub mod recent;
pub mod record;
pub mod serve;
mod strays;
mod view;
mod warnings;
pub mod watched;

use std::{sync::Arc, time::Duration};

use contract::RunResult;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Api, Client, Resource as _, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams},
    core::error_boundary::InvalidObject,
    runtime::controller::Action,
};
use thiserror::Error;
use tokio::time::{Instant, timeout};

use self::{
    apply::{ApplyError, Refusal},
    cleanup::CleanupError,
    dereference::{Found, Sources},
    hook_tasks::HookTasks,
    read::{DereferenceError, Guarded},
    recent::Recent,
    record::RecordError,
    view::View,
    watched::{Known, WatchEnded},
};
use crate::{
    api::{
        ActiveRun, RunCause, Stage, SyncJob, SyncJobSpec, SyncJobStatus, SyncRun, SyncRunStatus, conditions,
    },
    events::{self, Events, Note},
    fault::Fault,
    health::Health,
    metrics::{JobLabels, Standing},
    model::{
        self,
        claims::Blocked,
        creation, destination, kinds, locality,
        outcome::Outcome,
        placement::Placements,
        queue::{Limits, Queued},
        record::Record,
        restore, security, status, trend,
        validate::{self, ValidatedSyncJob},
        warnings::Warnings,
    },
    names::FIELD_MANAGER,
    resources::{Settings, Try},
    schedule::Schedule,
    stages::{
        plan,
        situation::{Step, Turn},
    },
    telemetry::chain,
};

/// How often to look whether what was made for a run is gone, if no watch says so before.
const CLEANUP_PERIOD: Duration = Duration::from_secs(5);
/// How long one reconciliation may take. Without a bound, a connection that died without a word would hold
/// its job up for ever.
const TIMEOUT: Duration = Duration::from_secs(60);
/// For how long the words on a run's position in the queue stay at most.
const POSITION_AGE: Duration = Duration::from_secs(600);
/// For how long the rights of a run's pods that were taken count as taken.
const REVOKED_AGE: Duration = Duration::from_secs(600);
/// How long to wait before trying again what failed.
const ERROR_PAUSE: Duration = Duration::from_secs(5);
/// The same, where somebody else has written to the object in between.
const CONFLICT_PAUSE: Duration = Duration::from_millis(100);

/// What a reconciliation works with.
pub struct Context {
    /// The API server.
    pub client: Client,
    /// What all pods have in common.
    pub settings: Settings,
    /// Where events go.
    pub events: Events,
    /// Where metrics go.
    pub health: Arc<Health>,
    /// What the watches have brought.
    pub known: Known,
    /// The one namespace that is watched; `None`: all are.
    pub namespace: Option<String>,
    /// What namespaces say of syncers that run as root.
    pub consents: Recent<Option<String>>,
    /// What was found of pods that are late, by the UIDs of their jobs.
    pub late: Recent<(Warnings, Placements)>,
    /// For how long the positions of queued runs stay as they are, by the UIDs of their jobs.
    pub positions: Recent<Timestamp>,
    /// The UIDs of SyncRuns whose pods have no rights any more.
    pub revoked: Recent<()>,
    /// How many runs may be under way at a time.
    pub limits: Limits,
    /// The hooks that run.
    pub hooks: HookTasks,
}

impl Context {
    fn sources(&self) -> Sources<'_> {
        let Self { client, known, limits, consents, late, .. } = self;
        Sources { client, known, limits: *limits, consents, late }
    }

    /// Writes what of a SyncRun's status differs from what is wanted.
    async fn tell_run(&self, run: &SyncRun, new: &SyncRunStatus) -> Result<(), RecordError> {
        let written = record::write(&self.client, run, new).await?;
        written.iter().for_each(|written| self.known.runs.wrote(written));
        Ok(())
    }

    /// Ends the metrics of a SyncJob that is deleted.
    pub(crate) fn forget(&self, namespace: &str, name: &str) {
        self.health.metrics.forget(&JobLabels { namespace: namespace.into(), name: name.into() });
        self.hooks.forget(namespace, name);
    }
}

/// Why a reconciliation was broken off. It is tried again.
#[derive(Debug, Error)]
pub enum Error {
    /// Something cannot be read.
    #[error(transparent)]
    Dereference(#[from] DereferenceError),
    /// Something cannot be made.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// Something cannot be removed.
    #[error(transparent)]
    Cleanup(#[from] CleanupError),
    /// A run cannot be recorded.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The operator hears of nothing any more.
    #[error(transparent)]
    Unwatched(#[from] WatchEnded),
    /// The job has changed since the watch brought it.
    #[error("there is a newer version of the job")]
    Outdated,
    /// The status cannot be written.
    #[error("cannot write the status")]
    Status(#[source] kube::Error),
    /// The status has no JSON form.
    #[error("cannot render the status")]
    Render(#[source] serde_json::Error),
    /// The API server does not answer.
    #[error("no end within {} s", TIMEOUT.as_secs())]
    TimedOut,
}

/// Reconciles one job.
pub async fn reconcile(job: Arc<Guarded>, context: Arc<Context>) -> Result<Action, Error> {
    let started = Instant::now();
    let done = timeout(TIMEOUT, reconcile_known(&job, &context)).await.unwrap_or(Err(Error::TimedOut));
    context.health.metrics.reconciled(started.elapsed(), done.is_err());
    done
}

/// A run must not be started twice. So first the watches have to bring what this operator wrote before.
async fn reconcile_known(job: &Guarded, context: &Context) -> Result<Action, Error> {
    context.known.catch_up().await?;
    let found = context.known.jobs.get(&job.namespace().unwrap_or_default(), &job.name_any());
    // Owner references see to all that was made for a SyncJob that is deleted.
    let Some(job) = found.filter(|job| job.meta().deletion_timestamp.is_none()) else {
        let (namespace, name) = (job.namespace().unwrap_or_default(), job.name_any());
        context.forget(&namespace, &name);
        hooks::end_orphans(context, &namespace, &name, None);
        return Ok(Action::await_change());
    };
    match &job.0 {
        Ok(job) => go_on(job, context).await,
        Err(unreadable) => set_aside(unreadable.clone(), context).await,
    }
}

/// Makes sure that nobody has written to a job since the watch brought it: another operator may have believed that it
/// leads, too.
async fn newest(context: &Context, job: &SyncJob) -> Result<(), Error> {
    let now = dereference::fresh(&context.client, job).await?;
    if now.as_ref().is_some_and(|now| now.resource_version() == job.resource_version()) {
        return Ok(());
    }
    now.iter().for_each(|now| context.known.jobs.wrote(now));
    Err(Error::Outdated)
}

/// What becomes of a reconciliation that failed.
#[allow(clippy::needless_pass_by_value)] // kube calls it so
pub fn on_error(job: Arc<Guarded>, error: &Error, _: Arc<Context>) -> Action {
    let (namespace, name) = (job.namespace().unwrap_or_default(), job.name_any());
    if is_conflict(error) {
        tracing::debug!(namespace, name, "somebody else has written to the job; reconciling anew");
        return Action::requeue(CONFLICT_PAUSE);
    }
    tracing::warn!(namespace, name, error = chain(error), "reconciling failed and is tried again");
    Action::requeue(ERROR_PAUSE)
}

/// Says of a job that cannot be read that it cannot.
async fn set_aside(unreadable: InvalidObject, context: &Context) -> Result<Action, Error> {
    let fault = Fault::new(
        conditions::reason::INVALID_SPEC,
        format!("This operator cannot read the SyncJob, which may be of a newer one: {}.", unreadable.error),
    );
    let job = skeleton(unreadable.metadata);
    let mut status = SyncJobStatus::default();
    status::refused(&mut status, &fault, job.metadata.generation.unwrap_or(0), Timestamp::now());
    let api = Api::<Guarded>::namespaced(context.client.clone(), &job.namespace().unwrap_or_default());
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    let patch = Patch::Merge(serde_json::json!({ "status": status }));
    let written = api.patch_status(&job.name_any(), &params, &patch).await.map_err(Error::Status)?;
    context.known.jobs.wrote(&written);
    tell(context, &job, &SyncJobStatus::default(), &status).await;
    Ok(Action::await_change())
}

/// A job of which nothing is known but its metadata.
fn skeleton(metadata: ObjectMeta) -> SyncJob {
    SyncJob { metadata, spec: SyncJobSpec::default(), status: None }
}

async fn go_on(job: &SyncJob, context: &Context) -> Result<Action, Error> {
    // 1. Dereference.
    let (namespace, name) = (job.namespace().unwrap_or_default(), job.name_any());
    strays::take_back(context, &namespace, &name).await?;
    hooks::end_orphans(context, &namespace, &name, job.uid().as_deref());
    let mut found = dereference::dereference(context.sources(), job).await?;
    // 2. Validate.
    let wished = restore::wished(job, found.asked.as_ref());
    let mut valid = validated(&wished, &found);
    if valid.is_err() && !found.is_consent_fresh {
        (found.consent, found.is_consent_fresh) =
            consent::of(&context.client, &context.consents, job, Duration::ZERO).await?;
        valid = validated(&wished, &found);
    }
    // 3. Plan, for a run that is an object before anything else is made of it.
    let (known, old) = (job.status.clone().unwrap_or_default(), restore::released(job));
    if let (Some(run), Ok(_)) = (&old.active_run, &valid) {
        (found.record, found.run) = keep(context, job, run, found.run.take()).await?;
    }
    let found = found;
    let view = View::new(job, &old, &found, &context.settings);
    let now = Timestamp::now();
    let situation = view.situation(&valid, now);
    let (step, again) = plan::next(&situation);
    let next_run = plan::next_run(&situation, &step);
    let step = patient(context, job, advised(step, &valid, &found), again);
    // 4. Record the stage; build and apply; remove what is over.
    let doomed = view.doomed(&step);
    if !doomed.is_empty() || matches!(step, Step::Launch | Step::Create) {
        newest(context, job).await?;
    }
    tell_run(context, &view, &step, now).await?;
    view.sweep(&context.client, &doomed).await?;
    let refused = match (&step, &valid) {
        (Step::Launch, Ok(valid)) => launch(job, context, &view, valid).await?,
        (Step::Create, Ok(valid)) => create(context, (job, valid), &found).await?,
        _ => None,
    };
    let step = refused.map_or(step, Refusal::step);
    let step = hooks::carry_out(context, job, &view, step).await?;
    // 5. Status.
    let mut new = old.clone();
    new.next_run_time = next_run.map(Time);
    turn(&mut new, &step, &valid, &found, view.generation, now);
    if matches!(step, Step::Begin(_)) {
        start_or_wait(&mut new, &view, now);
    }
    note_run(&mut new, &step, &view);
    if job.spec.snapshots.as_ref().is_none_or(|asked| asked.verify.is_none()) {
        model::snapshots::forget_damage(&mut new);
    }
    write_status(context, job, &known, &new).await?;
    tell(context, job, &old, &new).await;
    view.let_go(&context.client, &new).await?;
    hooks::release(context, &view, &new).await?;
    let is_settled = settle_runs(context, &view, &new, now).await?;
    // No watch tells when the last Role is empty.
    let soon = (!is_settled).then_some(CLEANUP_PERIOD);
    let again = again.map(|again| until(again, now)).into_iter().chain(soon).min();
    Ok(again.map_or_else(Action::await_change, Action::requeue))
}

/// Makes the run's SyncRun, if it is not there. A SyncRun that the API server refuses is said, as any other child is.
async fn keep(
    context: &Context,
    job: &SyncJob,
    run: &ActiveRun,
    found: Option<SyncRun>,
) -> Result<(Record, Option<SyncRun>), Error> {
    match record::keep(&context.client, job, run, found).await {
        Ok((record, kept)) => {
            kept.iter().for_each(|kept| context.known.runs.wrote(kept));
            Ok((record, kept))
        }
        Err(error) => match error.refusal() {
            Some(fault) => Ok((Record::Taken(fault), None)),
            None => Err(error.into()),
        },
    }
}

/// Writes into the SyncRun which stage the run comes to, before anything is done in it.
async fn tell_run(
    context: &Context,
    view: &View<'_>,
    step: &Step,
    now: Timestamp,
) -> Result<(), RecordError> {
    let (Some((run, _)), Some(kept)) = (view.active(), &view.found.run) else { return Ok(()) };
    let is_told = run.reported.is_some() || matches!(step, Step::Begin(_) | Step::Admit | Step::Report(_));
    if view.found.record != Record::Kept || is_told {
        return Ok(());
    }
    let old = kept.status.clone().unwrap_or_default();
    // The SyncJob says at which position it is in the queue.
    let why = step.obstacle().filter(|why| why.reason != conditions::reason::QUEUED);
    let mut new = model::record::under_way(&old, run, step.stage(run.stage), why, generation(kept), now);
    view.absent_ends(step).for_each(|side| model::record::forget_contacts(&mut new, side));
    context.tell_run(kept, &new).await
}

/// Notes in the status which SyncRun the run under way has, and its stage. A run that has its turn and no hooks starts
/// at once.
fn note_run(status: &mut SyncJobStatus, step: &Step, view: &View<'_>) {
    let Some(run) = &mut status.active_run else { return };
    let is_admitted = matches!(step, Step::Begin(_) | Step::Admit) && run.is_started();
    run.stage = if is_admitted && view.is_without_hooks() { Stage::Starting } else { step.stage(run.stage) };
    if view.found.record == Record::Kept && !matches!(step, Step::Begin(_)) {
        run.uid = view.found.run.as_ref().and_then(ResourceExt::uid);
    }
}

/// Writes into the SyncRun of the last run how that ended, and removes those that the history does not keep. Returns
/// whether the last run's is done: what was made for it is gone or stays for readers of logs, and its SyncRun says so.
async fn settle_runs(
    context: &Context,
    view: &View<'_>,
    status: &SyncJobStatus,
    now: Timestamp,
) -> Result<bool, RecordError> {
    let runs = view.found.runs.iter().map(|run| &**run);
    let mut is_settled = true;
    for last in [&status.last_run, &status.last_benchmark].into_iter().flatten() {
        let Some(run) = runs.clone().find(|run| run.spec.number == Some(last.number)) else { continue };
        let old = run.status.clone().unwrap_or_default();
        let mut known = [&view.status.last_run, &view.status.last_benchmark].into_iter().flatten();
        let is_known = known.any(|known| known.number == last.number);
        let is_under_way = view.active().is_some_and(|(run, _)| run.number == last.number);
        let is_over = is_known && !is_under_way;
        // What stayed for readers may be removed later; the run is done all the same.
        let is_swept = is_over && (old.stage == Some(Stage::Done) || view.leftovers().is_empty());
        is_settled &= is_swept;
        let uid = run.uid().unwrap_or_default();
        if is_over && old.stage != Some(Stage::Done) && context.revoked.get(&uid, REVOKED_AGE).is_none() {
            record::revoke_rights(&context.client, run, &view.access(last.number)).await?;
            context.revoked.put(&uid, ());
        }
        context.tell_run(run, &model::record::ended(&old, last, is_swept, generation(run), now)).await?;
    }
    let forgotten = model::record::forgotten(status, runs.clone()).into_iter();
    for run in forgotten.chain(model::benchmark::forgotten(status, runs)) {
        record::delete(&context.client, run).await?;
    }
    Ok(is_settled)
}

fn generation(run: &SyncRun) -> i64 {
    run.metadata.generation.unwrap_or(1)
}

/// Makes what there is not yet of the run under way. Returns what the API server has against it, if it refuses
/// any of it: that is for whoever reads the status, and only they can help.
async fn launch(
    job: &SyncJob,
    context: &Context,
    view: &View<'_>,
    valid: &ValidatedSyncJob,
) -> Result<Option<Refusal>, Error> {
    let Some((run, names)) = view.active() else { return Ok(None) };
    let Some(run_uid) = view.found.run.as_ref().and_then(ResourceExt::uid) else { return Ok(None) };
    let run_uid = &run_uid;
    let (settings, found) = (&context.settings, view.found);
    let uid = &job.uid().unwrap_or_default();
    let (privileged, placements) = (found.privileged(), &found.placements);
    let expect_volume = destination::expected(view.status, valid, found.destination_uid());
    let of = Try { job: valid, uid, run, run_uid, names, settings, privileged, placements, expect_volume };
    match apply::launch(&context.client, &context.known.batch, &of, &found.children).await {
        Ok(()) => Ok(None),
        Err(error) => error.refusal().map(Some).ok_or_else(|| error.into()),
    }
}

/// Creates the destination's claim. Returns what the API server has against it, if it refuses it.
async fn create(
    context: &Context,
    (job, valid): (&SyncJob, &ValidatedSyncJob),
    found: &Found,
) -> Result<Option<Refusal>, Error> {
    let Some(claim) = creation::due(valid, &found.claims) else { return Ok(None) };
    match apply::create_claim(&context.client, &creation::given_to(claim, job)).await {
        Ok(made) => {
            made.iter().for_each(|made| context.known.claims.wrote(made));
            Ok(None)
        }
        Err(error) => error.refusal().map(Some).ok_or_else(|| error.into()),
    }
}

/// The job, if its spec, its namespace and the kinds of its volumes allow it to be run.
fn validated(job: &SyncJob, found: &Found) -> Result<ValidatedSyncJob, Fault> {
    let valid = validate::validate(&job.spec, &job.name_any(), &job.namespace().unwrap_or_default())?;
    let privileged = security::consent(found.consent.as_deref())?;
    security::check(privileged, &valid.pods.security_context, valid.params.preserve.ownership)?;
    Ok(locality::settle(kinds::settle(valid, &found.claims)?, &found.claims))
}

/// The same step; of a try that failed for lack of root, with how to have root.
fn advised(step: Step, valid: &Result<ValidatedSyncJob, Fault>, found: &Found) -> Step {
    let is_root =
        |valid: &ValidatedSyncJob| security::is_root(found.privileged(), &valid.pods.security_context);
    if valid.as_ref().map_or(true, is_root) {
        return step;
    }
    match step {
        Step::Retry(outcome, at) => Step::Retry(outcome.without_root(), at),
        Step::Finish(outcome) => Step::Finish(outcome.without_root()),
        other => other,
    }
}

/// The same step; of a run that waits in the queue, with the words of its last position until it is time for a new
/// one: each that looks writes otherwise whenever another run ends.
fn patient(context: &Context, job: &SyncJob, step: Step, again: Option<Timestamp>) -> Step {
    let queued = |reason: &str| reason == conditions::reason::QUEUED;
    let (Step::Wait(fault), Some(again)) = (&step, again) else { return step };
    if !queued(&fault.reason) {
        return step;
    }
    let uid = job.uid().unwrap_or_default();
    let said = job.status.as_ref().and_then(|it| conditions::find(&it.conditions, conditions::RECONCILING));
    let is_recent = context.positions.get(&uid, POSITION_AGE).is_some_and(|until| Timestamp::now() < until);
    match said.filter(|said| is_recent && queued(&said.reason)) {
        Some(said) => Step::Wait(Fault::new(conditions::reason::QUEUED, said.message.clone())),
        None => {
            context.positions.put(&uid, again);
            step
        }
    }
}

/// Starts a run that begins if nothing seems to be in its way, else says what is. Either way it looks again once its
/// record is there, before anything is made of it.
fn start_or_wait(status: &mut SyncJobStatus, view: &View<'_>, now: Timestamp) {
    let Some(run) = status.active_run.clone() else { return };
    match view.turn_of(&run) {
        Turn::Free => status::admit(status, now),
        Turn::Taken(fault) | Turn::Queued(Queued { fault, .. }) => status::wait(status, &fault, now),
        Turn::Unknown => {}
    }
}

/// The status after a step.
fn turn(
    status: &mut SyncJobStatus,
    step: &Step,
    valid: &Result<ValidatedSyncJob, Fault>,
    found: &Found,
    generation: i64,
    now: Timestamp,
) {
    match step {
        Step::Rest => status::rest(status, generation, now),
        Step::Suspend => {
            let is_scheduled = valid.as_ref().is_ok_and(|valid| valid.schedule.is_some());
            status::suspended(status, is_scheduled, generation, now);
        }
        Step::Refuse(fault) => status::refused(status, fault, generation, now),
        Step::Block(blocked) => status::blocked(status, blocked, generation, now),
        Step::Create => {
            let claim = valid.as_ref().ok().and_then(|valid| creation::due(valid, &found.claims));
            let why = claim.as_ref().map(creation::announced).map(Blocked::Waiting);
            why.iter().for_each(|why| status::blocked(status, why, generation, now));
        }
        Step::Begin(run) => status::begin(status, run.clone(), now),
        Step::Queue => status::queue(status, found.round, now),
        Step::Wait(fault) => status::wait(status, fault, now),
        Step::Admit => status::admit(status, now),
        Step::Launch => status::preparing(status, None, now),
        Step::Start(fault) => status::preparing(status, fault.as_ref(), now),
        Step::Dismiss(_, fault) => status::preparing(status, Some(fault), now),
        Step::Halt(why) => status::halt(status, why, now),
        Step::Run => status::running(status, now),
        Step::OpenHooks => model::hooks::open(status),
        Step::BeginHook { point, stopped, .. } => {
            model::hooks::begin(status, *point, stopped.as_deref(), now);
        }
        Step::EndHook(point, failure) => model::hooks::end(status, *point, failure.clone(), now),
        Step::Await | Step::Linger | Step::Withdraw | Step::AwaitHook(_) => {}
        Step::Retry(outcome, at) => status::retry(status, outcome, *at, now),
        Step::Postpone(outcome, at) => {
            let suspects = found.suspects(status.active_run.as_ref(), outcome.volume_in_use());
            status::postpone(status, outcome, &suspects, *at, now);
        }
        Step::Report(outcome) | Step::Finish(outcome) => {
            let benchmark = status.active_run.clone().filter(|run| run.benchmark.is_some());
            let outcome = &placed(outcome, benchmark.as_ref(), found);
            let limit = valid.as_ref().ok().map(|valid| valid.history_limit);
            let is_confirmed = matches!(step, Step::Finish(_));
            let end = if is_confirmed { status::finish } else { status::report };
            end(status, outcome, limit, now);
            if benchmark.is_none() {
                status::give_way(status, now);
                conclude(status, outcome, valid, found, (generation, now));
            }
            if let Some((_, fault)) = found.lost() {
                status::refused(status, &fault, generation, now);
            }
        }
        Step::Confirm => status.active_run = None,
    }
    if valid.as_ref().is_ok_and(|valid| valid.regression.is_none()) {
        trend::forget(status);
    }
}

/// What the status says of the job once its run has ended.
fn conclude(
    status: &mut SyncJobStatus,
    outcome: &Outcome,
    valid: &Result<ValidatedSyncJob, Fault>,
    found: &Found,
    (generation, now): (i64, Timestamp),
) {
    if let Ok(valid) = valid {
        destination::remember(status, valid, found.destination_uid(), &outcome.report);
        let judged = status.last_run.as_ref().filter(|run| run.cause != Some(RunCause::Restore));
        if let Some(rule) = valid.regression.filter(|_| judged.is_some()) {
            trend::judge(status, rule, generation, now);
        }
    }
}

/// The outcome of a benchmark with what the cluster knows of its ends; any other as it is.
fn placed(outcome: &Outcome, benchmark: Option<&ActiveRun>, found: &Found) -> Outcome {
    let mut outcome = outcome.clone();
    let figures = outcome.report.benchmark.take();
    outcome.report.benchmark = figures.zip(benchmark).map(|(figures, run)| {
        Box::new(model::benchmark::placed(*figures, run, &found.claims, &found.children.pods))
    });
    outcome
}

async fn write_status(
    context: &Context,
    job: &SyncJob,
    old: &SyncJobStatus,
    new: &SyncJobStatus,
) -> Result<(), Error> {
    let version = job.resource_version().unwrap_or_default();
    let Some(patch) = status::patch(old, new, &version).map_err(Error::Render)? else { return Ok(()) };
    let api = Api::<SyncJob>::namespaced(context.client.clone(), &job.namespace().unwrap_or_default());
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    let written =
        api.patch_status(&job.name_any(), &params, &Patch::Merge(patch)).await.map_err(Error::Status)?;
    context.known.jobs.wrote(&written);
    Ok(())
}

/// Logs, events and metrics of a status that has been written.
async fn tell(context: &Context, job: &SyncJob, old: &SyncJobStatus, new: &SyncJobStatus) {
    let labels = JobLabels { namespace: job.namespace().unwrap_or_default(), name: job.name_any() };
    let metrics = &context.health.metrics;
    if let (Some(before), Some(after)) = (&old.active_run, &new.active_run)
        && after.retries > before.retries
    {
        metrics.retried(&labels);
    }
    let ended = old.active_run.as_ref().filter(|run| run.benchmark.is_none());
    if let (Some(_), None, Some(run)) = (ended, &new.active_run, &new.last_run) {
        metrics.run_ended(&labels, run);
    }
    metrics.stands(&labels, standing(job, new));
    let notes = events::of_change(old, new).into_iter().chain(events::of_trend(old, new));
    for note in notes.chain(events::of_hooks(old, new)).chain(events::of_damage(old, new)) {
        let Note { reason, message, .. } = &note;
        tracing::info!(namespace = labels.namespace, name = labels.name, reason, "{message}");
        context.events.publish(job, &note).await;
    }
}

fn standing(job: &SyncJob, status: &SyncJobStatus) -> Standing {
    let reconciling = conditions::is_true(&status.conditions, conditions::RECONCILING);
    let is_active = status.active_run.as_ref().is_some_and(ActiveRun::is_started);
    Standing {
        active: is_active,
        waiting: !is_active && reconciling,
        failed: status.last_run.as_ref().is_some_and(|run| run.result == RunResult::Failed),
        stalled: conditions::is_true(&status.conditions, conditions::STALLED),
        incomplete: conditions::is_true(&status.conditions, conditions::INCOMPLETE),
        regressed: conditions::is_true(&status.conditions, conditions::PERFORMANCE_REGRESSED),
        last_success_s: status.last_success_time.as_ref().map(|time| time.0.as_second() as f64),
        damaged_snapshot_objects: status.snapshots.as_ref().and_then(|snapshots| snapshots.damaged),
        success_deadline_s: success_deadline(job, status).map(|time| time.as_second() as f64),
    }
}

/// Finds by when a job with a schedule has to succeed again. `None` while it is suspended, because no run begins then.
fn success_deadline(job: &SyncJob, status: &SyncJobStatus) -> Option<Timestamp> {
    let success = status.last_success_time.as_ref()?;
    let schedule = job.spec.schedule.as_ref().filter(|_| !job.spec.suspend)?;
    Schedule::new(schedule).ok()?.deadline(&job.uid().unwrap_or_default(), success.0)
}

fn is_conflict(error: &Error) -> bool {
    let source = match error {
        Error::Outdated => return true,
        Error::Status(source) | Error::Record(RecordError { source, .. }) => source,
        _ => return false,
    };
    is_stale(source)
}

fn is_stale(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_conflict() || status.is_not_found())
}

fn until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gauges_of_a_job_tell_a_failed_run_and_by_when_it_has_to_succeed() {
        let schedule = crate::api::Schedule { cron: Some("@daily".into()), ..Default::default() };
        let spec = SyncJobSpec { schedule: Some(schedule), ..SyncJobSpec::default() };
        let mut job = SyncJob::new("web", spec);
        let run = |result| Some(crate::api::Run { result, ..crate::api::Run::default() });
        let success: Timestamp = "2027-01-06T05:00:00Z".parse().unwrap();
        let status = SyncJobStatus {
            last_run: run(RunResult::Failed),
            last_success_time: Some(Time(success)),
            ..SyncJobStatus::default()
        };
        let deadline: Timestamp = "2027-01-08T00:00:00Z".parse().unwrap();
        let there = standing(&job, &status);
        assert_eq!((there.failed, there.success_deadline_s), (true, Some(deadline.as_second() as f64)));
        job.spec.suspend = true;
        let corrected = SyncJobStatus { last_run: run(RunResult::Succeeded), ..status };
        let there = standing(&job, &corrected);
        assert_eq!((there.failed, there.success_deadline_s), (false, None));
    }
}
