//! A claim for one pod at a time (ReadWriteOncePod) that an application uses: the run waits for that pod to go.

use k8s_openapi::api::core::v1::Pod;

use crate::prelude::*;

#[tokio::test]
async fn a_run_waits_for_the_pod_that_uses_its_claim_alone_and_says_so() {
    let sandbox = Sandbox::new("rwop").await;
    let from = sandbox.volume("from", 0).await.unwrap();
    let node = sandbox.nodes().await.unwrap().remove(1);
    let to = Volume::create_local_with(&sandbox, "to", &node, "ReadWriteOncePod").await.unwrap();
    from.shell_as_syncer("echo content > file").unwrap();
    sandbox.application("db", "to").await.unwrap();

    sandbox.sync("copy", json!({})).await.unwrap();
    let waits = |job: &DynamicObject| {
        let message = syncjob::message(job, "Reconciling");
        syncjob::has_reason(job, "Reconciling", "PodPending")
            && message.contains("ReadWriteOncePod")
            && message.contains("`kubectl describe pvc to` names its user")
    };
    let waiting = sandbox.until("copy", "it waits for the application", waits).await.unwrap();
    println!("{}", syncjob::message(&waiting, "Reconciling"));
    let described = sandbox.kubectl.run(&["describe", "pvc", "to"]).unwrap();
    assert!(described.contains("db-0"), "{described}");

    sandbox.api::<Pod>().delete("db-0", &DeleteParams::default()).await.unwrap();
    sandbox.until_is("copy", "Ready").await.unwrap();
    assert_eq!(to.shell("cat file").unwrap(), b"content\n");
    Volume::delete_local(&sandbox, "to").await.unwrap();
}
