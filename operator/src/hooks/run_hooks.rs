//! Runs the hooks of runs, each in its own task, so that no other SyncJob waits for a command. When a task ends, it
//! triggers a reconciliation, which records the result. A task dies with its process; the next operator sees in the
//! status that the hook was started, and runs it again.

use std::{sync::Arc, time::Duration};

use contract::chain;
use kube::{Api, Client, Resource as _, ResourceExt as _};

use super::{
    hook_state::{self, Point},
    hook_tasks::{DueHook, HookTasks},
};
use crate::{
    api::{ActiveRun, HookRun, SyncJob, SyncJobReference, SyncJobStatus, SyncRun},
    controller::{context::Context, dereference, error::Error, read::Guarded, stores::Known, view::View},
    ends::end_namespaces::Places,
    pods::cleanup::{self, ChildOwner},
    run::{
        stages::step::{HookStep, Step},
        write_record::{self, RecordError},
    },
};

/// How long to wait before the next attempt to end a run whose SyncJob is gone.
const PAUSE: Duration = Duration::from_secs(5);

/// Carries out what a step requires of hooks. Returns the step, or its successor if the hook has ended. Fails if the
/// SyncRun cannot be made to outlive its SyncJob.
pub(crate) async fn carry_out(context: &Context, view: &View<'_>, step: Step) -> Result<Step, RecordError> {
    match step {
        Step::Hook(HookStep::Open | HookStep::Begin { point: Point::Before, .. }) => {
            let owes = view.hooks().is_some_and(|hooks| hooks.after.is_some());
            if let Some(run) = view.found.run.as_ref().filter(|_| owes) {
                write_record::hold(&context.client, run).await?;
                context.hooks.owe(run);
            }
            Ok(step)
        }
        Step::Hook(HookStep::Await(point)) => Ok(awaited(context, view, point)),
        step => Ok(step),
    }
}

fn awaited(context: &Context, view: &View<'_>, point: Point) -> Step {
    let Some(hook) = view.hooks().and_then(|hooks| point.of(hooks)) else {
        let lost = format!(
            "The hook {point} cannot run: its SyncRun is gone, and the spec does not have it any more."
        );
        return Step::Hook(HookStep::End(point, Some(lost)));
    };
    let begun = view.active().and_then(|run| Some((run, point.state(run)?)));
    let id = begun.map(|(run, state)| format!("{} {point} {}", run.id, state.start_time.0));
    let (job, run) = (view.job, view.active().map_or("", |run| &run.id));
    let due = DueHook { job, run, id: format!("{} {id:?}", view.uid()), point, hook };
    let end = context.hooks.poll(&context.client, due);
    end.map_or(Step::Hook(HookStep::Await(point)), |failure| Step::Hook(HookStep::End(point, failure)))
}

/// Lets those SyncRuns of a job go whose hook `after` need not run any more. Fails if the API server does not accept
/// that.
pub(crate) async fn release(
    context: &Context,
    view: &View<'_>,
    status: &SyncJobStatus,
) -> Result<(), RecordError> {
    let owes =
        |run: &&ActiveRun| run.hooks.is_some() && !Point::After.state(run).is_some_and(HookRun::is_over);
    let owing = status.active_run.as_ref().filter(owes).map(|run| run.id.as_str());
    let is_owing = |run: &SyncRun| owing == Some(&*run.name_any());
    let fresh = view.found.run.as_ref();
    let known = view.found.runs.iter().map(|run| &**run);
    let known = known.filter(|run| fresh.is_none_or(|fresh| fresh.uid() != run.uid()));
    for run in known.chain(fresh).filter(|run| run.is_held()) {
        if is_owing(run) {
            context.hooks.owe(run);
        } else {
            write_record::release(&context.client, run).await?;
        }
    }
    let settled = |run: &SyncRun| run.spec.sync_job.uid.as_deref() == Some(view.uid()) && !is_owing(run);
    context.hooks.owing().iter().filter(|run| settled(run)).for_each(|run| context.hooks.settle(run));
    Ok(())
}

/// Ends runs that still have to run their hook `after` although their SyncJob is gone or its status has lost them, each
/// in its own task. `found` is the SyncJob that has the name now. Returns whether a run is one of that SyncJob, of
/// which none may begin before.
pub(crate) fn end_orphans(context: &Context, namespace: &str, job: &str, found: Option<&SyncJob>) -> bool {
    let uid = found.and_then(|found| found.metadata.uid.as_deref());
    let status = found.and_then(|found| found.status.clone()).unwrap_or_default();
    let is_own = |run: &SyncRun| uid.is_some() && run.spec.sync_job.uid.as_deref() == uid;
    let is_orphan = |run: &SyncRun| {
        run.metadata.namespace.as_deref() == Some(namespace)
            && run.spec.sync_job.name == job
            && (!is_own(run) || hook_state::is_forgotten(run, &status))
    };
    let mut has_own = false;
    let there = context.known.runs.of(namespace, job).into_iter().filter(|run| run.is_held());
    let all = there.map(Arc::unwrap_or_clone).chain(context.hooks.owing());
    for run in all.filter(|run| is_orphan(run)) {
        has_own |= is_own(&run);
        let (client, known, hooks) = (context.client.clone(), context.known.clone(), context.hooks.clone());
        let key = run.uid().unwrap_or_default();
        context.hooks.spawn_once(key, async move { end_orphan(&client, &known, &hooks, &run).await });
    }
    has_own
}

/// Stops the pods of a run, runs its hook `after` once `before` has ended, and deletes its SyncRun.
async fn end_orphan(client: &Client, known: &Known, hooks: &HookTasks, run: &SyncRun) {
    let (namespace, name) = (run.namespace().unwrap_or_default(), run.name_any());
    // The watch may not have brought the SyncJob, or its status, yet.
    let is_known = loop {
        match is_known(client, &namespace, run).await {
            Ok(is_known) => break is_known,
            Err(error) => pause(&namespace, &name, &chain(&error)).await,
        }
    };
    if is_known {
        return;
    }
    tracing::info!(namespace, name, "no SyncJob knows of the run any more; it ends with the hook after");
    while let Err(error) = stop(client, known, run).await {
        pause(&namespace, &name, &chain(&error)).await;
    }
    hooks.end_of(run, Point::Before).await;
    let after = run.spec.job.as_ref().and_then(|job| job.hooks.as_ref()?.after.as_ref());
    let end = match hooks.end_of(run, Point::After).await {
        Some(end) => end,
        None => match after {
            Some(hook) => hooks.run(client, &namespace, hook, Point::After).await,
            None => None,
        },
    };
    if let Some(failure) = end {
        tracing::warn!(namespace, name, failure, "the hook after of a run whose SyncJob is gone failed");
    }
    while let Err(error) = write_record::delete(client, run).await {
        pause(&namespace, &name, &chain(&error)).await;
    }
    hooks.settle(run);
}

/// Returns whether the API server has the SyncJob of a run itself, and no other of its name, whose status has the run.
/// One that a finalizer holds after its deletion plans nothing more.
async fn is_known(client: &Client, namespace: &str, run: &SyncRun) -> kube::Result<bool> {
    let SyncJobReference { name, uid, .. } = &run.spec.sync_job;
    let found = Api::<Guarded>::namespaced(client.clone(), namespace).get_opt(name).await?;
    let stays = |found: &Guarded| found.uid() == *uid && found.meta().deletion_timestamp.is_none();
    let Some(found) = found.filter(stays) else { return Ok(false) };
    // One that cannot be read may know the run.
    Ok(found.0.map_or(true, |job| !hook_state::is_forgotten(run, &job.status.unwrap_or_default())))
}

async fn pause(namespace: &str, name: &str, error: &str) {
    tracing::warn!(namespace, name, error, "a run whose SyncJob is gone cannot be ended yet");
    tokio::time::sleep(PAUSE).await;
}

async fn stop(client: &Client, known: &Known, run: &SyncRun) -> Result<(), Error> {
    known.catch_up(&run.namespace().unwrap_or_default()).await?;
    let namespace = run.namespace().unwrap_or_default();
    let places = Places::of_run(&namespace, run);
    let children = dereference::children(known, &places, &run.spec.sync_job.name);
    let uid = run.spec.sync_job.uid.clone().unwrap_or_default();
    let owner = ChildOwner { namespace, uid, runs: run.uid().into_iter().collect() };
    Ok(cleanup::stop(client, &owner, &children).await?)
}
