//! Watches a job from its creation: collects the names of all its pods, and checks every state of the job.

use std::{collections::BTreeSet, pin::pin, sync::Arc};

use anyhow::{Result, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::DynamicObject,
    runtime::{WatchStreamExt as _, watcher},
};
use parking_lot::Mutex;
use tokio::task::JoinSet;

use crate::{scripted::Stage, syncjob};

/// The pods and the states of the job `web` and its first run, which must show no error.
pub struct Witness {
    seen: Arc<Mutex<Seen>>,
    /// The watching tasks, which end when this is dropped.
    _watching: JoinSet<()>,
}

#[derive(Default)]
struct Seen {
    pods: BTreeSet<String>,
    wrong: Vec<String>,
}

impl Witness {
    /// Starts to watch.
    pub fn new(stage: &Stage) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let mut watching = JoinSet::new();
        watching.spawn(watch_pods(Api::namespaced(stage.client.clone(), &stage.namespace), seen.clone()));
        watching.spawn(watch_states(stage.jobs.clone(), seen.clone()));
        Self { seen, _watching: watching }
    }

    /// Checks the pods and states seen so far.
    ///
    /// # Errors
    /// The number of pods was not `pods`, or the job had a forbidden state.
    pub fn testify(self, pods: usize) -> Result<()> {
        let seen = self.seen.lock();
        ensure!(seen.pods.len() == pods, "there were other pods than {pods}: {:?}", seen.pods);
        ensure!(seen.wrong.is_empty(), "{}", seen.wrong.join("\n"));
        Ok(())
    }
}

async fn watch_pods(pods: Api<Pod>, seen: Arc<Mutex<Seen>>) {
    let mut changes = pin!(watcher(pods, watcher::Config::default()).default_backoff().touched_objects());
    while let Some(pod) = changes.next().await {
        seen.lock().pods.extend(pod.ok().and_then(|pod| pod.metadata.name));
    }
}

async fn watch_states(jobs: Api<DynamicObject>, seen: Arc<Mutex<Seen>>) {
    let mut states = pin!(watcher::watch_object(jobs, "web").default_backoff());
    while let Some(state) = states.next().await {
        let wrong = state.ok().flatten().as_ref().and_then(what_is_wrong);
        seen.lock().wrong.extend(wrong);
    }
}

/// Returns the reason why kstatus or the design forbids this state, if any does.
fn what_is_wrong(job: &DynamicObject) -> Option<String> {
    let is_true = |kind: &str| {
        let conditions = syncjob::status(job, "/conditions").as_array();
        conditions.into_iter().flatten().any(|it| it["type"] == kind && it["status"] == "True")
    };
    let (ready, reconciling, stalled) = (is_true("Ready"), is_true("Reconciling"), is_true("Stalled"));
    let ids = ["/activeRun/id", "/lastRun/id"].map(|id| syncjob::text(job, id));
    let wrong = if usize::from(ready) + usize::from(reconciling) + usize::from(stalled) > 1 {
        "conditions that exclude each other"
    } else if stalled {
        "a stalled job, and nothing was wrong"
    } else if ids.iter().any(|id| !["", "web-1"].contains(id)) {
        "a second run"
    } else if job.metadata.generation != Some(1) {
        "a write to the spec"
    } else {
        return None;
    };
    Some(format!("{wrong}: {job:#?}"))
}
