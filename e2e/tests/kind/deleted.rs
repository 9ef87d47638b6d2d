//! A SyncJob that is deleted in the middle of a run leaves no object in the cluster.

use crate::prelude::*;

#[tokio::test]
async fn nothing_is_left_in_the_cluster_of_a_deleted_job() {
    let (sandbox, from, to) = Sandbox::with_volumes("deleted").await;
    from.shell_as_syncer(tree::ONE_LARGE_FILE).unwrap();
    sandbox.sync("copy", tree::slowly()).await.unwrap();
    sandbox.until_data_moves("copy", "copy-1").await.unwrap();
    sandbox.running_pod("copy", "sink").await.unwrap();

    sandbox.jobs.delete("copy", &DeleteParams::default()).await.unwrap();
    wait::until_gone(&sandbox.jobs, "copy", PATIENCE).await.unwrap();
    sandbox.until_nothing_has("volferry.dev/syncjob").unwrap();
    // The received part of a file stays, for a job that continues the same copy.
    assert_eq!(to.staged_files().unwrap().len(), 1);
}
