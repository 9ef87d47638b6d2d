//! The tasks that hooks run in.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use futures::channel::mpsc::UnboundedSender;
use kube::{Client, ResourceExt as _, runtime::reflector::ObjectRef};
use parking_lot::Mutex;
use tokio::{sync::Semaphore, task::AbortHandle};

use super::{exec, hook_state::Point};
use crate::{
    api::{Hook, SyncJob, SyncRun},
    controller::read::Guarded,
};

/// The maximum number of hooks that run at a time.
const AT_ONCE: usize = 64;
/// The tasks of running hooks.
#[derive(Clone)]
pub struct HookTasks {
    /// The SyncRuns whose hook `after` has to run, by their UIDs: a person may delete one together with its SyncJob.
    owing: Arc<Mutex<HashMap<String, SyncRun>>>,
    tasks: Arc<Mutex<HashMap<String, Task>>>,
    room: Arc<Semaphore>,
    ended: UnboundedSender<ObjectRef<Guarded>>,
}

/// The task of one hook that runs, or has ended and was not polled since.
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
    /// Creates the set of tasks. When a hook ends, its SyncJob is sent to `ended`, which triggers a reconciliation.
    pub fn new(ended: UnboundedSender<ObjectRef<Guarded>>) -> Self {
        Self { owing: Arc::default(), tasks: Arc::default(), room: Arc::new(Semaphore::new(AT_ONCE)), ended }
    }

    /// Starts the hook `id` of a SyncJob, unless it runs. Returns its result once it has ended: `Some(None)` is
    /// success, `Some(Some(_))` the failure.
    pub(crate) fn poll(
        &self,
        client: &Client,
        job: &SyncJob,
        id: String,
        point: Point,
        hook: &Hook,
    ) -> Option<Option<String>> {
        let (namespace, name) = (job.namespace().unwrap_or_default(), job.name_any());
        let mut tasks = self.tasks.lock();
        let key = format!("{namespace}/{name}");
        if let Some(task) = tasks.get(&key).filter(|task| task.id == id) {
            return task.end.get().cloned();
        }
        let end = Arc::new(OnceLock::new());
        let (told, this, client, hook) = (end.clone(), self.clone(), client.clone(), hook.clone());
        let task = tokio::spawn(async move {
            let failure = this.run(&client, &namespace, &hook, point).await;
            // Cannot fail: only this task sets the value.
            let _ = told.set(failure);
            // Fails only while the controller stops, as nobody receives any more.
            let _ = this.ended.unbounded_send(ObjectRef::new(&name).within(&namespace));
        });
        tasks.insert(key, Task { id, end, handle: task.abort_handle() });
        None
    }

    /// Runs a hook as soon as one of the slots is free, and returns its failure, if any.
    pub(crate) async fn run(
        &self,
        client: &Client,
        namespace: &str,
        hook: &Hook,
        point: Point,
    ) -> Option<String> {
        // The semaphore is never closed.
        let _room = self.room.acquire().await.ok();
        let failure = exec::in_all(client, namespace, hook, point).await.err()?;
        Some(failure.to_string())
    }

    /// Starts a task under that key, unless one runs. The task is removed when it has ended.
    pub(crate) fn spawn_once(&self, key: String, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock();
        if tasks.contains_key(&key) {
            return;
        }
        let (this, id) = (self.clone(), key.clone());
        let task = tokio::spawn(async move {
            task.await;
            this.tasks.lock().remove(&id);
        });
        tasks.insert(key.clone(), Task { id: key, end: Arc::default(), handle: task.abort_handle() });
    }

    /// Remembers that the hook `after` of a SyncRun has to run.
    pub(crate) fn owe(&self, run: &SyncRun) {
        self.owing.lock().insert(run.uid().unwrap_or_default(), run.clone());
    }

    /// Returns the SyncRuns whose hook `after` has to run, as far as this process knows.
    pub(crate) fn owing(&self) -> Vec<SyncRun> {
        self.owing.lock().values().cloned().collect()
    }

    /// Forgets a SyncRun whose hook `after` has run, or need not any more.
    pub(crate) fn settle(&self, run: &SyncRun) {
        self.owing.lock().remove(&run.uid().unwrap_or_default());
    }

    /// Removes the task of a SyncJob, and aborts it if it runs.
    pub(crate) fn forget(&self, namespace: &str, name: &str) {
        self.tasks.lock().remove(&format!("{namespace}/{name}"));
    }
}
