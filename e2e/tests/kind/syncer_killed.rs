//! A syncer that is killed in the middle of a run: the run is tried again and succeeds.

use anyhow::Result;

use crate::prelude::*;

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
    let running = sandbox.until_data_moves("copy", "copy-1").await?;
    sandbox.kill_syncer("copy", if side == "sink" { &to } else { &from }, side).await?;

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
