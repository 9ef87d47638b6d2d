//! A SyncJob that is deleted at any point of a run, with or without an operator: nothing of it remains, and its
//! namespace can be deleted without an operator.

use anyhow::{Context as _, Result, bail, ensure};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::core::v1::Namespace;

use crate::prelude::*;

/// The number of scenarios that run concurrently.
const AT_ONCE: usize = 4;
/// The kinds of objects that are made for a run.
const OF_A_RUN: &str = "syncruns,jobs,pods,services,secrets,serviceaccounts,roles,rolebindings";

/// The state of the run when the job is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// The job was created a moment ago.
    Created,
    /// Its pods exist and do not run.
    Pending,
    /// All its pods run.
    Running,
    /// Its first try has failed, and the next one waits for its time.
    BetweenTries,
    /// Its run has succeeded, and its pods stay for their logs.
    Done,
}

#[tokio::test]
async fn a_deleted_job_leaves_nothing_whether_or_not_there_is_an_operator() {
    let stages = [
        (At::Created, 1),
        (At::Pending, 1),
        (At::Running, 1),
        (At::Running, 2),
        (At::BetweenTries, 1),
        (At::Done, 1),
    ];
    let lives = stages.into_iter().flat_map(|stage| [true, false].map(|operated| (stage, operated)));
    let lives = lives.map(|((at, shards), operated)| async move {
        let stage = Stage::new("deletion").await?;
        let lived = deletion(&stage, at, shards, operated).await.inspect_err(|_| stage.print_diagnosis());
        lived.with_context(|| format!("{at:?}, {shards} shards, with an operator: {operated}"))
    });
    stream::iter(lives).buffer_unordered(AT_ONCE).try_collect::<()>().await.unwrap();
}

#[tokio::test]
async fn a_job_that_is_deleted_after_its_operator_was_killed_anywhere_leaves_nothing() {
    let writes = abandoned(Cut::Never).await.unwrap();
    assert!(
        writes > 7,
        "the record twice, the account and its rights, two Jobs, that it runs: more than {writes} writes"
    );
    cut::each(cuts_before(writes), AT_ONCE, abandoned).await.unwrap();
}

#[tokio::test]
async fn a_namespace_can_be_deleted_after_the_operator_was_removed() {
    let (stage, controller) = Stage::with_controller("uninstalled").await.unwrap();
    stage.may_run_hooks().await.unwrap();
    let after = json!({"target": {"matchLabels": {"app": "db"}}, "command": ["sync"]});
    stage.sync("web", json!({"hooks": {"after": after}})).await.unwrap();
    let [source, sink] = stage.kubelet.start_both("web", &[]).await.unwrap();
    stage.until("web", "it runs", |job| syncjob::text(job, "/phase") == "Running").await.unwrap();
    drop(controller);
    // Kubernetes waits until running pods have stopped, or their time to stop has passed.
    for pod in [&source, &sink] {
        stage.kubelet.end(pod, 5, "").await.unwrap();
    }
    let namespaces: Api<Namespace> = Api::all(stage.client.clone());
    namespaces.delete(&stage.namespace, &DeleteParams::default()).await.unwrap();
    // Kubernetes itself protects claims; its controller for that does not run here.
    for claim in ["from", "to"] {
        stage.lose_claim(claim).await.unwrap();
    }
    tokio::select! {
        gone = wait::until_gone(&namespaces, &stage.namespace, PATIENCE) => gone.unwrap(),
        error = stage.kubelet.release("web") => panic!("{error:?}"),
    }
}

/// Deletes a job in the state `at`, and checks that nothing remains.
async fn deletion(stage: &Stage, at: At, shards: u32, operated: bool) -> Result<()> {
    let controller = stage.controller(Cut::Never).await?;
    stage.sync("web", json!({"parallelism": shards})).await?;
    bring_to(stage, at, shards).await?;
    let _controller = operated.then_some(controller);
    delete(stage).await
}

/// Kills the operator at the cut on the way to a run, then deletes the job. Returns the number of writes.
async fn abandoned(cut: Cut) -> Result<usize> {
    let stage = Stage::new("abandoned").await?;
    let lived = async {
        let controller = stage.controller(cut).await?;
        stage.sync("web", json!({})).await?;
        controller.until_cut_or(bring_to(&stage, At::Running, 1)).await?;
        let writes = controller.writes();
        drop(controller);
        delete(&stage).await?;
        anyhow::Ok(writes)
    };
    lived.await.inspect_err(|_| stage.print_diagnosis())
}

/// Deletes the job, which disappears at once, and waits until Kubernetes has removed its children.
async fn delete(stage: &Stage) -> Result<()> {
    let job = stage.jobs.delete("web", &DeleteParams::default()).await?;
    ensure!(job.is_right(), "something holds up the deletion: {job:#?}");
    let gone = async {
        for kind in OF_A_RUN.split(',') {
            stage
                .kubectl
                .run_async(&["wait", "--for=delete", kind, "-l", "volferry.dev/syncjob", "--timeout=60s"])
                .await?;
        }
        anyhow::Ok(())
    };
    tokio::select! {
        gone = gone => gone?,
        error = stage.kubelet.release("web") => bail!("{error:?}"),
    }
    ensure!(stage.children("web")?.is_empty(), "{:?}", stage.children("web")?);
    Ok(())
}

async fn bring_to(stage: &Stage, at: At, shards: u32) -> Result<()> {
    if at == At::Created {
        return Ok(());
    }
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
        for pod in pods.iter().flatten() {
            stage.kubelet.end(pod, 5, &report).await?;
        }
        stage.until_reason("web", "Reconciling", "Retrying").await?;
    }
    if at == At::Done {
        for [source, sink] in &pods {
            stage.kubelet.succeed(source, sink, &good_report("web-1")).await?;
        }
        stage.until_done("web").await?;
        ensure!(stage.kept("web").await? == ["web-1"; 2], "{:?}", stage.kept("web").await?);
    }
    Ok(())
}
