//! Runs the hooks of runs: each in a task of its own, so that no other SyncJob waits for a command. What a task came to
//! is told by the next reconciliation, which its end asks for. A task dies with its process; the next operator finds
//! that the hook was begun, and runs it again.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use futures::channel::mpsc::UnboundedSender;
use kube::{Client, ResourceExt as _, runtime::reflector::ObjectRef};
use tokio::{sync::Semaphore, task::AbortHandle};

use super::{
    Context,
    cleanup::{self, Owner},
    dereference, exec,
    read::Guarded,
    record::{self, RecordError},
    skeleton,
    view::View,
};
use crate::{
    api::{ActiveRun, Hook, HookRun, SyncJob, SyncJobStatus, SyncRun},
    model::hooks::Point,
    names,
    stages::situation::Step,
    telemetry::chain,
};

/// How many hooks run at a time.
const AT_ONCE: usize = 64;
/// How long to wait before trying again to end a run whose SyncJob is gone.
const PAUSE: Duration = Duration::from_secs(5);

/// The hooks that run.
#[derive(Clone)]
pub struct HookTasks {
    tasks: Arc<Mutex<HashMap<String, Task>>>,
    room: Arc<Semaphore>,
    ended: UnboundedSender<ObjectRef<Guarded>>,
}

/// One hook that runs, or has ended and was not asked for yet.
struct Task {
    id: String,
    end: Arc<OnceLock<Option<String>>>,
    handle: AbortHandle,
}

impl Drop for Task {
    fn drop(&mut self) {
        self.handle.abort();
    }
}

impl HookTasks {
    /// No hooks yet; the SyncJobs of those that end go to `ended`.
    pub fn new(ended: UnboundedSender<ObjectRef<Guarded>>) -> Self {
        Self { tasks: Arc::default(), room: Arc::new(Semaphore::new(AT_ONCE)), ended }
    }

    /// Starts the hook `id` of a SyncJob, unless it runs. Returns how it ended once it has: `Some(None)` is success.
    fn poll(
        &self,
        client: &Client,
        job: &SyncJob,
        id: String,
        point: Point,
        hook: &Hook,
    ) -> Option<Option<String>> {
        let (namespace, name) = (job.namespace().unwrap_or_default(), job.name_any());
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let key = format!("{namespace}/{name}");
        if let Some(task) = tasks.get(&key).filter(|task| task.id == id) {
            return task.end.get().cloned();
        }
        let end = Arc::new(OnceLock::new());
        let (told, this, client, hook) = (end.clone(), self.clone(), client.clone(), hook.clone());
        let task = tokio::spawn(async move {
            let failure = this.run(&client, &namespace, &hook, point).await;
            // Set once, since this task is the only one that has it.
            let _ = told.set(failure);
            // Nobody receives any more while the controller stops.
            let _ = this.ended.unbounded_send(ObjectRef::new(&name).within(&namespace));
        });
        tasks.insert(key, Task { id, end, handle: task.abort_handle() });
        None
    }

    async fn run(&self, client: &Client, namespace: &str, hook: &Hook, point: Point) -> Option<String> {
        // The semaphore is never closed.
        let _room = self.room.acquire().await.ok();
        let failure = exec::in_all(client, namespace, hook, point).await.err()?;
        Some(failure.to_string())
    }

    /// Drops the task of a SyncJob, and ends it if it runs.
    pub(super) fn forget(&self, namespace: &str, name: &str) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).remove(&format!("{namespace}/{name}"));
    }
}

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
        let key = run.uid().unwrap_or_default();
        let mut tasks = context.hooks.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if tasks.contains_key(&key) {
            continue;
        }
        let (client, hooks, id) = (context.client.clone(), context.hooks.clone(), key.clone());
        let task = tokio::spawn(async move {
            end_orphan(&client, &hooks, &run).await;
            hooks.tasks.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        });
        tasks.insert(key.clone(), Task { id: key, end: Arc::default(), handle: task.abort_handle() });
    }
}

/// Stops the pods of a run, runs its hook `after`, and lets go of its SyncRun, which is removed then.
async fn end_orphan(client: &Client, hooks: &HookTasks, run: &SyncRun) {
    let (namespace, name) = (run.namespace().unwrap_or_default(), run.name_any());
    tracing::info!(namespace, name, "the SyncJob is gone; its run ends with the hook after");
    while let Err(error) = stop(client, run).await {
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

async fn stop(client: &Client, run: &SyncRun) -> Result<(), super::Error> {
    let metadata = kube::api::ObjectMeta {
        name: Some(run.spec.sync_job.name.clone()),
        namespace: run.namespace(),
        ..Default::default()
    };
    let children = dereference::children(client, &skeleton(metadata)).await?;
    let owner =
        Owner { namespace: run.namespace().unwrap_or_default(), runs: run.uid().into_iter().collect() };
    Ok(cleanup::stop(client, &owner, &children).await?)
}
