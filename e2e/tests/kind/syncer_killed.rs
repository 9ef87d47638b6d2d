//! A syncer that is killed in the middle of a run: the run is tried again and succeeds.

use crate::prelude::*;

#[tokio::test]
async fn a_killed_sink_is_replaced() {
    killed_in_mid_run("sink").await;
}

#[tokio::test]
async fn a_killed_source_is_replaced() {
    killed_in_mid_run("source").await;
}

async fn killed_in_mid_run(side: &str) {
    let (sandbox, from, to) = Sandbox::with_volumes(&format!("{side}-killed")).await;
    from.shell_as_syncer(tree::SLOW).unwrap();
    sandbox.sync("copy", tree::slowly()).await.unwrap();
    let running = sandbox.until_data_moves("copy", "copy-1").await.unwrap();
    sandbox.kill_syncer("copy", if side == "sink" { &to } else { &from }, side).await.unwrap();

    let retried = sandbox.until_reason("copy", "Reconciling", "Retrying").await.unwrap();
    assert_eq!(syncjob::text(&retried, "/activeRun/id"), syncjob::text(&running, "/activeRun/id"));
    let done = sandbox.until_is("copy", "Ready").await.unwrap();
    assert_eq!(syncjob::text(&done, "/lastRun/id"), syncjob::text(&running, "/activeRun/id"));
    assert_eq!(syncjob::status(&done, "/lastRun/retries"), 1);
    assert_same(&from.list().unwrap(), &to.list().unwrap());
    assert_eq!(to.staged_files().unwrap(), [""; 0], "a finished run leaves nothing half done");
}
