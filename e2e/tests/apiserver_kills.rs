//! A controller that is killed at every point of a job's life: between any two of its writes, and after any write whose
//! answer it never saw. Another one goes on from there, with the same run and the same pods.

use std::{
    collections::BTreeSet,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context as _, Result, bail, ensure};
use e2e::{
    cut::Cut,
    scripted::{PATIENCE, Stage},
    syncjob, wait,
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, ListParams},
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::json;
use tokio::task::JoinSet;

/// How many lives are lived at once.
const AT_ONCE: usize = 4;
/// What is made for a run, and removed after it.
const OF_A_RUN: [&str; 3] = ["job.batch/", "service/", "secret/"];

#[tokio::test]
async fn a_run_is_the_same_run_wherever_the_controller_is_killed() {
    let writes = run(Cut::Never).await.unwrap();
    assert!(writes > 10, "the finalizer, the record, nine children, the report: more than {writes} writes");
    stream::iter(
        all_cuts(writes).map(|cut| async move { run(cut).await.with_context(|| format!("{cut:?}")) }),
    )
    .buffer_unordered(AT_ONCE)
    .try_collect::<Vec<_>>()
    .await
    .unwrap();
}

#[tokio::test]
async fn a_deleted_job_leaves_nothing_wherever_the_controller_is_killed() {
    let writes = deletion(Cut::Never).await.unwrap();
    assert!(writes > 5, "two Jobs, two Secrets, a Service, the finalizer: more than {writes} writes");
    stream::iter(
        all_cuts(writes).map(|cut| async move { deletion(cut).await.with_context(|| format!("{cut:?}")) }),
    )
    .buffer_unordered(AT_ONCE)
    .try_collect::<Vec<_>>()
    .await
    .unwrap();
}

fn all_cuts(writes: usize) -> impl Iterator<Item = Cut> {
    (0..writes).flat_map(|write| [Cut::Before(write), Cut::After(write)])
}

/// A job from its creation until its run is over and swept up, with a controller that is killed at the cut, and another one
/// after it. Returns the number of writes of the first.
async fn run(cut: Cut) -> Result<usize> {
    let stage = Stage::new("kills").await?;
    run_on(&stage, cut).await.inspect_err(|_| stage.print_diagnosis())
}

async fn run_on(stage: &Stage, cut: Cut) -> Result<usize> {
    let witness = Witness::new(stage);
    let first = stage.controller(cut).await?;
    stage.sync("web", json!({"trigger": "one"})).await?;
    let played = async {
        let writes = first.until_cut_or(stage.until_swept("web")).await?;
        ensure!(recorded_if_made(stage).await?, "there are children of a run that is not recorded");
        let _second = stage.controller(Cut::Never).await?;
        stage.until_swept("web").await?;
        anyhow::Ok(writes)
    };
    let writes = tokio::select! {
        writes = played => writes?,
        error = stage.kubelet.play("web") => bail!("{error:?}"),
    };
    let done = stage.jobs.get("web").await?;
    ensure!(syncjob::text(&done, "/lastRun/id") == "web-1", "{done:#?}");
    ensure!(syncjob::status(&done, "/lastRun/retries") == 0, "{done:#?}");
    ensure!(syncjob::status(&done, "/lastRun/work/filesCreated") == 2, "the report is lost: {done:#?}");
    ensure!(syncjob::status(&done, "/history").as_array().is_some_and(|runs| runs.len() == 1), "{done:#?}");
    witness.testify(2)?;
    Ok(writes)
}

/// A job that is deleted while its run is under way, from the deletion until nothing is left, with a controller that is killed
/// at the cut, and another one after it. Returns the number of writes of the first.
async fn deletion(cut: Cut) -> Result<usize> {
    let stage = Stage::new("deletion").await?;
    deletion_on(&stage, cut).await.inspect_err(|_| stage.print_diagnosis())
}

async fn deletion_on(stage: &Stage, cut: Cut) -> Result<usize> {
    let controller = stage.controller(Cut::Never).await?;
    stage.sync("web", json!({})).await?;
    stage.kubelet.start_both("web", &[]).await?;
    stage.until("web", "it runs", |job| syncjob::text(job, "/phase") == "Running").await?;
    drop(controller);
    stage.jobs.delete("web", &DeleteParams::default()).await?;

    let played = async {
        let writes = stage.controller(cut).await?.until_cut_or(until_gone(stage)).await?;
        let _second = stage.controller(Cut::Never).await?;
        until_gone(stage).await?;
        anyhow::Ok(writes)
    };
    let writes = tokio::select! {
        writes = played => writes?,
        error = stage.kubelet.release("web") => bail!("{error:?}"),
    };
    let pods =
        Api::<Pod>::namespaced(stage.client.clone(), &stage.namespace).list(&ListParams::default()).await?;
    ensure!(pods.items.is_empty(), "a pod may still write after its SyncJob is gone: {pods:#?}");
    // What has an owner is removed by Kubernetes, in its own time; nothing else can be waited for.
    let kinds = "jobs,services,secrets,serviceaccounts,roles,rolebindings";
    for kind in kinds.split(',') {
        stage
            .kubectl
            .run_async(&["wait", "--for=delete", kind, "-l", "volferry.dev/syncjob", "--timeout=30s"])
            .await?;
    }
    ensure!(stage.children("web")?.is_empty(), "{:?}", stage.children("web")?);
    Ok(writes)
}

async fn until_gone(stage: &Stage) -> Result<()> {
    wait::until_gone(&stage.jobs, "web", PATIENCE).await
}

async fn recorded_if_made(stage: &Stage) -> Result<bool> {
    let made = stage.children("web")?.iter().any(|child| OF_A_RUN.iter().any(|kind| child.starts_with(kind)));
    let job = stage.jobs.get("web").await?;
    let is_recorded = |run: &str| syncjob::text(&job, run) == "web-1";
    Ok(!made || is_recorded("/activeRun/id") || is_recorded("/lastRun/id"))
}

/// Watches from the beginning: all pods that there ever were, and every state that the job was in.
struct Witness {
    seen: Arc<Mutex<Seen>>,
    /// Ends with this.
    _watching: JoinSet<()>,
}

#[derive(Default)]
struct Seen {
    pods: BTreeSet<String>,
    wrong: Vec<String>,
}

impl Witness {
    fn new(stage: &Stage) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let mut watching = JoinSet::new();
        watching.spawn(watch_pods(Api::namespaced(stage.client.clone(), &stage.namespace), seen.clone()));
        watching.spawn(watch_states(stage.jobs.clone(), seen.clone()));
        Self { seen, _watching: watching }
    }

    fn testify(self, pods: usize) -> Result<()> {
        let seen = locked(&self.seen);
        ensure!(seen.pods.len() == pods, "there were other pods than one a side: {:?}", seen.pods);
        ensure!(seen.wrong.is_empty(), "{}", seen.wrong.join("\n"));
        Ok(())
    }
}

async fn watch_pods(pods: Api<Pod>, seen: Arc<Mutex<Seen>>) {
    let mut changes = pin!(watcher(pods, watcher::Config::default()).default_backoff().touched_objects());
    while let Some(pod) = changes.next().await {
        locked(&seen).pods.extend(pod.ok().and_then(|pod| pod.metadata.name));
    }
}

async fn watch_states(jobs: Api<DynamicObject>, seen: Arc<Mutex<Seen>>) {
    let mut states = pin!(watcher::watch_object(jobs, "web").default_backoff());
    while let Some(state) = states.next().await {
        let wrong = state.ok().flatten().as_ref().and_then(what_is_wrong);
        locked(&seen).wrong.extend(wrong);
    }
}

/// What kstatus and the design forbid in any state.
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

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
