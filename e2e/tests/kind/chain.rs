//! SyncJobs in a chain: a run does not read a claim while another run writes to it.

use crate::prelude::*;

#[tokio::test]
async fn a_copy_of_a_copy_waits_for_the_run_that_makes_it() {
    let sandbox = Sandbox::new("chain").await;
    let first = sandbox.volume("from", 0).await.unwrap();
    sandbox.volume("to", 1).await.unwrap();
    let last = sandbox.volume("far", 0).await.unwrap();
    first.shell_as_syncer(tree::SLOW).unwrap();
    sandbox.sync("copy", tree::slowly()).await.unwrap();
    sandbox.until_data_moves("copy", "copy-1").await.unwrap();

    syncjob::create(&sandbox.jobs, syncjob::manifest("onward", "to", "far", json!({}))).await.unwrap();
    let waits = |job: &kube::api::DynamicObject| syncjob::has_reason(job, "Reconciling", "WaitingForRun");
    let waiting = sandbox.until("onward", "it waits", waits).await.unwrap();
    let message = syncjob::message(&waiting, "Reconciling");
    assert!(message.contains("run copy-1 of SyncJob copy"), "{message}");
    assert!(sandbox.children("onward").await.unwrap().is_empty(), "nothing is made for a run that waits");

    sandbox.until_is("copy", "Ready").await.unwrap();
    let done = sandbox.until_is("onward", "Ready").await.unwrap();
    assert_eq!(syncjob::status(&done, "/lastRun/retries"), 0);
    assert_same(&first.list().unwrap(), &last.list().unwrap());
}
