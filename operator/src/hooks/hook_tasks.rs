//! The tasks that hooks run in.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use futures::channel::mpsc::UnboundedSender;
use kube::{Client, ResourceExt as _, runtime::reflector::ObjectRef};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

use super::{exec, hook_state::Point};
use crate::{
    api::{Hook, SyncJob, SyncRun},
    controller::read::Guarded,
};

/// The maximum number of hooks of one kind that run in a namespace at a time. No namespace waits for the hooks of
/// another, and no `after`, which resumes an application, for a `before`.
const AT_ONCE: usize = 16;

/// The tasks of running hooks.
#[derive(Clone)]
pub struct HookTasks {
    /// The SyncRuns whose hook `after` has to run, by their UIDs: a person may delete one together with its SyncJob.
    owing: Arc<Mutex<HashMap<String, SyncRun>>>,
    /// The hooks that run, or have ended and were not polled since, by what tells each from all others.
    hooks: Arc<Mutex<HashMap<String, HookTask>>>,
    /// The keys of other tasks that run.
    others: Arc<Mutex<HashSet<String>>>,
    rooms: Arc<Mutex<HashMap<Room, Arc<Semaphore>>>>,
    ended: UnboundedSender<ObjectRef<Guarded>>,
}

/// The hooks that share slots.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Room {
    namespace: String,
    point: Point,
}

/// A hook of a run that has its turn.
pub(crate) struct DueHook<'a> {
    /// The SyncJob of the run.
    pub job: &'a SyncJob,
    /// The name of the run.
    pub run: &'a str,
    /// Tells this start of the hook from all others.
    pub id: String,
    /// Which of the run's hooks it is.
    pub point: Point,
    /// Its part of the spec.
    pub hook: &'a Hook,
}

/// The task of one hook. It runs to its end even if its SyncJob is gone: aborting it would not end the command.
struct HookTask {
    job: ObjectRef<Guarded>,
    run: String,
    point: Point,
    end: watch::Receiver<Option<HookEnd>>,
}

/// The end of a hook: its failure, if any.
type HookEnd = Option<String>;

impl HookTasks {
    /// Creates the set of tasks. When a hook ends, its SyncJob is sent to `ended`, which triggers a reconciliation.
    pub fn new(ended: UnboundedSender<ObjectRef<Guarded>>) -> Self {
        let (owing, hooks, others, rooms) = Default::default();
        Self { owing, hooks, others, rooms, ended }
    }

    /// Starts a hook, unless it runs. Returns its result once it has ended: `Some(None)` is success, `Some(Some(_))`
    /// the failure.
    pub(crate) fn poll(&self, client: &Client, due: DueHook<'_>) -> Option<HookEnd> {
        let mut hooks = self.hooks.lock();
        if let Some(task) = hooks.get(&due.id) {
            return task.end.borrow().clone();
        }
        let namespace = due.job.namespace().unwrap_or_default();
        let job = ObjectRef::new(&due.job.name_any()).within(&namespace);
        hooks.retain(|_, task| task.job != job || task.end.borrow().is_none());
        let (ending, end) = watch::channel(None);
        let (this, client, hook, point) = (self.clone(), client.clone(), due.hook.clone(), due.point);
        let changed = job.clone();
        tokio::spawn(async move {
            let failure = this.run(&client, &namespace, &hook, point).await;
            ending.send_replace(Some(failure));
            // Fails only while the controller stops, as nobody receives any more.
            let _ = this.ended.unbounded_send(changed);
        });
        hooks.insert(due.id, HookTask { job, run: due.run.into(), point, end });
        None
    }

    /// Runs a hook as soon as one of the slots is free, and returns its failure, if any.
    pub(crate) async fn run(&self, client: &Client, namespace: &str, hook: &Hook, point: Point) -> HookEnd {
        let room = Room { namespace: namespace.into(), point };
        let slots =
            self.rooms.lock().entry(room).or_insert_with(|| Arc::new(Semaphore::new(AT_ONCE))).clone();
        // The semaphore is never closed.
        let _slot = slots.acquire().await.ok();
        let failure = exec::in_all(client, namespace, hook, point).await.err()?;
        Some(failure.to_string())
    }

    /// Waits for the end of a hook that runs for a run, since the other hook may only run after it. Returns that end;
    /// `None` if no such hook is known to this process.
    pub(crate) async fn end_of(&self, run: &SyncRun, point: Point) -> Option<HookEnd> {
        let mut end = {
            let (hooks, name, namespace) = (self.hooks.lock(), run.name_any(), run.namespace());
            let is_of =
                |task: &&HookTask| task.run == name && task.point == point && task.job.namespace == namespace;
            hooks.values().find(is_of)?.end.clone()
        };
        end.wait_for(Option::is_some).await.ok()?.clone()
    }

    /// Starts a task under that key, unless one runs.
    pub(crate) fn spawn_once(&self, key: String, task: impl Future<Output = ()> + Send + 'static) {
        if !self.others.lock().insert(key.clone()) {
            return;
        }
        let others = self.others.clone();
        tokio::spawn(async move {
            task.await;
            others.lock().remove(&key);
        });
    }

    /// Remembers that the hook `after` of a SyncRun has to run.
    pub(crate) fn owe(&self, run: &SyncRun) {
        self.owing.lock().insert(run.uid().unwrap_or_default(), run.clone());
    }

    /// Returns the SyncRuns whose hook `after` has to run, as far as this process knows.
    pub(crate) fn owing(&self) -> Vec<SyncRun> {
        self.owing.lock().values().cloned().collect()
    }

    /// Returns the SyncRun of that UID whose hook `after` has to run, as it was when that began.
    pub(crate) fn owed(&self, uid: &str) -> Option<SyncRun> {
        self.owing.lock().get(uid).cloned()
    }

    /// Forgets a SyncRun whose hook `after` has run, or need not any more.
    pub(crate) fn settle(&self, run: &SyncRun) {
        self.owing.lock().remove(&run.uid().unwrap_or_default());
    }

    /// Forgets the hooks of a SyncJob that have ended.
    pub(crate) fn forget(&self, namespace: &str, name: &str) {
        let job = ObjectRef::new(name).within(namespace);
        self.hooks.lock().retain(|_, task| task.job != job || task.end.borrow().is_none());
    }
}
