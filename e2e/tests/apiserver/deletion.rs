//! A SyncJob that is deleted in the middle of a run, with a controller that is killed at every point of the deletion:
//! nothing is left, and no pod outlives the job.

use anyhow::{Context as _, Result, bail, ensure};
use contract::Side;
use e2e::{
    cut::Cut,
    report::bad_report,
    scripted::{PATIENCE, Stage},
    syncjob, wait,
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api,
    api::{DeleteParams, ListParams},
};
use serde_json::json;

/// How many lives are lived at once.
const AT_ONCE: usize = 4;

/// How far the run is when the job is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// Its pods are there, and do not run.
    Pending,
    /// All its pods run.
    Running,
    /// Its first try has failed, and the next waits for its time.
    BetweenTries,
}

#[tokio::test]
async fn a_deleted_job_leaves_nothing_wherever_the_controller_is_killed() {
    let writes = deletion(At::Running, 1, Cut::Never).await.unwrap();
    assert!(writes > 4, "two Jobs, their pods, the finalizer: more than {writes} writes");
    let cuts = (0..writes).flat_map(|write| [Cut::Before(write), Cut::After(write)]);
    each(At::Running, 1, cuts).await.unwrap();
}

#[tokio::test]
async fn a_deleted_job_with_shards_leaves_nothing_wherever_the_controller_is_killed() {
    let writes = deletion(At::Running, 2, Cut::Never).await.unwrap();
    each(At::Running, 2, (0..writes).map(Cut::Before)).await.unwrap();
}

#[tokio::test]
async fn a_job_that_is_deleted_before_its_pods_run_or_between_tries_leaves_nothing_either() {
    for at in [At::Pending, At::BetweenTries] {
        let writes = deletion(at, 1, Cut::Never).await.unwrap();
        each(at, 1, (0..writes).map(Cut::Before)).await.unwrap();
    }
}

async fn each(at: At, shards: u32, cuts: impl Iterator<Item = Cut>) -> Result<()> {
    let lives = cuts.map(|cut| async move {
        deletion(at, shards, cut).await.with_context(|| format!("{at:?}, {shards} shards, {cut:?}"))
    });
    stream::iter(lives).buffer_unordered(AT_ONCE).map_ok(drop).try_collect().await
}

/// A job that is deleted while its run is under way, from the deletion until nothing is left, with a controller that is
/// killed at the cut, and another one after it. Returns the number of writes of the first.
async fn deletion(at: At, shards: u32, cut: Cut) -> Result<usize> {
    let stage = Stage::new("deletion").await?;
    deletion_on(&stage, at, shards, cut).await.inspect_err(|_| stage.print_diagnosis())
}

async fn deletion_on(stage: &Stage, at: At, shards: u32, cut: Cut) -> Result<usize> {
    let controller = stage.controller(Cut::Never).await?;
    stage.sync("web", json!({"parallelism": shards})).await?;
    bring_to(stage, at, shards).await?;
    drop(controller);
    stage.jobs.delete("web", &DeleteParams::default()).await?;

    let played = async {
        let first = stage.controller(cut).await?;
        first.until_cut_or(until_gone(stage)).await?;
        let writes = first.writes();
        drop(first);
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

async fn bring_to(stage: &Stage, at: At, shards: u32) -> Result<()> {
    if at == At::Pending {
        stage.kubelet.new_pod("web", Side::Source, &[]).await?;
        stage.kubelet.new_pod("web", Side::Sink, &[]).await?;
        return Ok(());
    }
    let pods = match shards {
        1 => vec![stage.kubelet.start_both("web", &[]).await?],
        _ => stage.kubelet.start_shards("web", shards, &[]).await?,
    };
    stage.until("web", "it runs", |job| syncjob::text(job, "/phase") == "Running").await?;
    if at == At::BetweenTries {
        let report = serde_json::to_string(&bad_report("web-1", "PeerLost", "the peer went away"))?;
        for pod in pods.iter().flat_map(|(source, sink)| [source, sink]) {
            stage.kubelet.end(pod, 5, &report).await?;
        }
        stage.until("web", "it waits", |job| syncjob::has_reason(job, "Reconciling", "Retrying")).await?;
    }
    Ok(())
}

async fn until_gone(stage: &Stage) -> Result<()> {
    wait::until_gone(&stage.jobs, "web", PATIENCE).await
}
