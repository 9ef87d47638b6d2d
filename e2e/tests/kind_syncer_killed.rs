//! A syncer that is killed in the middle of a run: the run is tried again and ends well.

use anyhow::{Context as _, Result};
use e2e::{cluster::Sandbox, syncjob, tree, tree::assert_same, volume::Volume};

#[tokio::test]
async fn a_killed_sink_is_replaced() {
    let sandbox = Sandbox::new("sink-killed").await;
    killed_in_mid_run(&sandbox, "sink").await.unwrap();
}

#[tokio::test]
async fn a_killed_source_is_replaced() {
    let sandbox = Sandbox::new("source-killed").await;
    killed_in_mid_run(&sandbox, "source").await.unwrap();
}

async fn killed_in_mid_run(sandbox: &Sandbox, side: &str) -> Result<()> {
    let from = sandbox.volume("from", 0).await?;
    let to = sandbox.volume("to", 1).await?;
    from.shell_as_syncer(tree::SLOW)?;
    sandbox.sync("copy", tree::slowly()).await?;
    let running = sandbox.until("copy", "data moves", tree::data_moves).await?;
    kill_container(sandbox, if side == "sink" { &to } else { &from }, side).await?;

    let retried = |job: &kube::api::DynamicObject| syncjob::has_reason(job, "Reconciling", "Retrying");
    let retried = sandbox.until("copy", "the run is to be tried again", retried).await?;
    assert_eq!(syncjob::text(&retried, "/activeRun/id"), syncjob::text(&running, "/activeRun/id"));
    let done = sandbox.until_is("copy", "Ready").await?;
    assert_eq!(syncjob::text(&done, "/lastRun/id"), syncjob::text(&running, "/activeRun/id"));
    assert_eq!(syncjob::status(&done, "/lastRun/retries"), 1);
    assert_same(&from.list()?, &to.list()?);
    assert_eq!(to.staged_files()?, [""; 0], "a finished run leaves nothing half done");
    Ok(())
}

/// Kills every process of the pod at once, as a node's failure would.
async fn kill_container(sandbox: &Sandbox, volume: &Volume, side: &str) -> Result<()> {
    let pod = sandbox.running_pod("copy", side).await?;
    let statuses = pod.status.and_then(|status| status.container_statuses).unwrap_or_default();
    let id = statuses
        .first()
        .and_then(|status| status.container_id.as_deref())
        .context("a container has an id")?;
    let id = id.trim_start_matches("containerd://");
    volume.shell(&format!("ctr --namespace k8s.io task kill --signal SIGKILL --all {id}"))?;
    Ok(())
}
