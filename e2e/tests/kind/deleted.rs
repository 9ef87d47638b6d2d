//! A SyncJob that is deleted in the middle of a run leaves no object in the cluster.

use crate::prelude::*;

#[tokio::test]
async fn nothing_is_left_in_the_cluster_of_a_deleted_job() {
    let sandbox = Sandbox::new("deleted").await;
    let from = sandbox.volume("from", 0).await.unwrap();
    let to = sandbox.volume("to", 1).await.unwrap();
    from.shell_as_syncer(tree::ONE_LARGE_FILE).unwrap();
    sandbox.sync("copy", tree::slowly()).await.unwrap();
    sandbox.until_data_moves("copy", "copy-1").await.unwrap();
    assert_ne!(left_over(&sandbox).unwrap(), "");

    sandbox.jobs.delete("copy", &DeleteParams::default()).await.unwrap();
    wait::until_gone(&sandbox.jobs, "copy", PATIENCE).await.unwrap();

    for kind in KINDS.split(',') {
        sandbox
            .kubectl
            .run(&["wait", "--for=delete", kind, "-l", "volferry.dev/syncjob", "--timeout=60s"])
            .unwrap();
    }
    assert_eq!(left_over(&sandbox).unwrap(), "");
    // The received part of a file stays, for a job that continues the same copy.
    assert_eq!(to.staged_files().unwrap().len(), 1);
}

const KINDS: &str = "jobs,pods,services,secrets,serviceaccounts,roles,rolebindings";

fn left_over(sandbox: &Sandbox) -> anyhow::Result<String> {
    sandbox.kubectl.run(&["get", KINDS, "-l", "volferry.dev/syncjob", "-o", "name"])
}
