//! Runs the hooks of runs: each in a task of its own, so that no other SyncJob waits for a command. What a task came to
//! is told by the next reconciliation, which its end asks for. A task dies with its process; the next operator finds
//! that the hook was begun, and runs it again.

use std::time::Duration;

use kube::{Client, ResourceExt as _};

use super::{
    Context,
    cleanup::{self, Owner},
    dereference,
    hook_tasks::HookTasks,
    record::{self, RecordError},
    view::View,
    watched::Known,
};
use crate::{
    api::{ActiveRun, HookRun, SyncJob, SyncJobStatus, SyncRun},
    model::hooks::Point,
    names,
    stages::situation::Step,
    telemetry::chain,
};

/// How long to wait before trying again to end a run whose SyncJob is gone.
const PAUSE: Duration = Duration::from_secs(5);

/// Does what a step asks for of hooks. Returns the step, or the one that follows from a hook that has ended.
pub(super) async fn carry_out(
    context: &Context,
    job: &SyncJob,
    view: &View<'_>,
    step: Step,
) -> Result<Step, RecordError> {
    match step {
        Step::OpenHooks | Step::BeginHook { point: Point::Before, .. } => {
            let owes = view.hooks().is_some_and(|hooks| hooks.after.is_some());
            if let Some(run) = view.found.run.as_ref().filter(|_| owes) {
                record::hold(&context.client, run).await?;
            }
            Ok(step)
        }
        Step::AwaitHook(point) => Ok(awaited(context, job, view, point)),
        step => Ok(step),
    }
}

fn awaited(context: &Context, job: &SyncJob, view: &View<'_>, point: Point) -> Step {
    let Some(hook) = view.hooks().and_then(|hooks| point.of(hooks)) else {
        let lost = format!(
            "The hook {point} cannot run: its SyncRun is gone, and the spec does not have it any more."
        );
        return Step::EndHook(point, Some(lost));
    };
    let begun = view.active().and_then(|(run, _)| Some((run, point.state(run)?)));
    let id = begun.map(|(run, state)| format!("{} {point} {}", run.id, state.start_time.0));
    let uid = job.uid().unwrap_or_default();
    let end = context.hooks.poll(&context.client, job, format!("{uid} {id:?}"), point, hook);
    end.map_or(Step::AwaitHook(point), |failure| Step::EndHook(point, failure))
}

/// Lets go of the SyncRuns of a job that owe no hook `after` any more.
pub(super) async fn release(
    context: &Context,
    view: &View<'_>,
    status: &SyncJobStatus,
) -> Result<(), RecordError> {
    let owes =
        |run: &&ActiveRun| run.hooks.is_some() && !Point::After.state(run).is_some_and(HookRun::is_over);
    let owing = status.active_run.as_ref().filter(owes).map(|run| run.id.as_str());
    let fresh = view.found.run.as_ref();
    let known = view.found.runs.iter().map(|run| &**run);
    let known = known.filter(|run| fresh.is_none_or(|fresh| fresh.uid() != run.uid()));
    for run in known.chain(fresh).filter(|run| is_held(run) && owing != Some(&*run.name_any())) {
        record::release(&context.client, run).await?;
    }
    Ok(())
}

fn is_held(run: &SyncRun) -> bool {
    run.finalizers().iter().any(|it| it == names::FINALIZER_HOOKS)
}

/// Ends the runs of a SyncJob that is gone and owe their hook `after`, each in a task of its own. `uid` is that of the
/// SyncJob that has the name now.
pub(super) fn end_orphans(context: &Context, namespace: &str, job: &str, uid: Option<&str>) {
    let is_orphan = |run: &SyncRun| {
        is_held(run)
            && run.metadata.namespace.as_deref() == Some(namespace)
            && run.spec.sync_job.name == job
            && run.spec.sync_job.uid.as_deref() != uid
    };
    for run in context.known.runs.state().into_iter().filter(|run| is_orphan(run)) {
        let (client, known, hooks) = (context.client.clone(), context.known.clone(), context.hooks.clone());
        let key = run.uid().unwrap_or_default();
        context.hooks.spawn_once(key, async move { end_orphan(&client, &known, &hooks, &run).await });
    }
}

/// Stops the pods of a run, runs its hook `after`, and lets go of its SyncRun, which is removed then.
async fn end_orphan(client: &Client, known: &Known, hooks: &HookTasks, run: &SyncRun) {
    let (namespace, name) = (run.namespace().unwrap_or_default(), run.name_any());
    tracing::info!(namespace, name, "the SyncJob is gone; its run ends with the hook after");
    while let Err(error) = stop(client, known, run).await {
        pause(&namespace, &name, &chain(&error)).await;
    }
    let after = run.spec.job.as_ref().and_then(|job| job.hooks.as_ref()?.after.as_ref());
    if let Some(hook) = after
        && let Some(failure) = hooks.run(client, &namespace, hook, Point::After).await
    {
        tracing::warn!(namespace, name, failure, "the hook after of a run whose SyncJob is gone failed");
    }
    while let Err(error) = record::release(client, run).await {
        pause(&namespace, &name, &chain(&error)).await;
    }
}

async fn pause(namespace: &str, name: &str, error: &str) {
    tracing::warn!(namespace, name, error, "a run whose SyncJob is gone cannot be ended yet");
    tokio::time::sleep(PAUSE).await;
}

async fn stop(client: &Client, known: &Known, run: &SyncRun) -> Result<(), super::Error> {
    known.catch_up().await?;
    let namespace = run.namespace().unwrap_or_default();
    let children = dereference::children(known, &namespace, &run.spec.sync_job.name);
    let owner = Owner { namespace, runs: run.uid().into_iter().collect() };
    Ok(cleanup::stop(client, &owner, &children).await?)
}
