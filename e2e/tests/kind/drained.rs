//! A syncer pod that is deleted with its grace period, as a drain does, in the middle of a large file: the next try
//! continues with the part that has arrived.

use kube::ResourceExt as _;

use crate::prelude::*;

#[tokio::test]
async fn a_drained_sink_leaves_what_has_arrived_to_the_next_try() {
    let (sandbox, from, to) = Sandbox::with_volumes("drained").await;
    from.shell_as_syncer(tree::ONE_LARGE_FILE).unwrap();
    sandbox.sync("copy", tree::slowly()).await.unwrap();
    sandbox.until_data_moves("copy", "copy-1").await.unwrap();
    let pod = sandbox.running_pod("copy", "sink").await.unwrap();
    let pods = sandbox.api::<k8s_openapi::api::core::v1::Pod>();
    pods.delete(&pod.name_any(), &DeleteParams::default()).await.unwrap();

    sandbox.until_reason("copy", "Reconciling", "Retrying").await.unwrap();
    assert_eq!(to.staged_files().unwrap().len(), 1, "what has arrived is kept");
    let done = sandbox.until_is("copy", "Ready").await.unwrap();
    assert_eq!(syncjob::status(&done, "/lastRun/retries"), 1);
    let reused = syncjob::status(&done, "/lastRun/work/bytesReused").as_u64().unwrap();
    assert!(reused > 0, "the second try goes on from the first: {done:#?}");
    assert_same(&from.list().unwrap(), &to.list().unwrap());
    assert_eq!(to.staged_files().unwrap(), [""; 0], "a finished run leaves nothing half done");
}
