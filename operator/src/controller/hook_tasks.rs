//! The tasks that hooks run in.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use futures::channel::mpsc::UnboundedSender;
use kube::{Client, ResourceExt as _, runtime::reflector::ObjectRef};
use tokio::{sync::Semaphore, task::AbortHandle};

use super::{exec, read::Guarded};
use crate::{
    api::{Hook, SyncJob},
    model::hooks::Point,
};

/// How many hooks run at a time.
const AT_ONCE: usize = 64;
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
    pub(super) fn poll(
        &self,
        client: &Client,
        job: &SyncJob,
        id: String,
        point: Point,
        hook: &Hook,
    ) -> Option<Option<String>> {
        let (namespace, name) = (job.namespace().unwrap_or_default(), job.name_any());
        let mut tasks = self.lock();
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

    /// Runs a hook when there is room for it, and returns why it failed.
    pub(super) async fn run(
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

    /// Starts a task with that key, unless one runs. It is forgotten when it has ended.
    pub(super) fn spawn_once(&self, key: String, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.lock();
        if tasks.contains_key(&key) {
            return;
        }
        let (this, id) = (self.clone(), key.clone());
        let task = tokio::spawn(async move {
            task.await;
            this.lock().remove(&id);
        });
        tasks.insert(key.clone(), Task { id: key, end: Arc::default(), handle: task.abort_handle() });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Task>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Drops the task of a SyncJob, and ends it if it runs.
    pub(super) fn forget(&self, namespace: &str, name: &str) {
        self.lock().remove(&format!("{namespace}/{name}"));
    }
}
