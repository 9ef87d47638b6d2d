//! Pods that cannot start: the status names the obstacle with its remedy, and the job continues by itself once it is
//! gone.

use crate::prelude::*;

#[tokio::test]
async fn a_pod_that_fits_nowhere_is_explained_and_the_job_goes_on_when_it_fits() {
    let sandbox = Sandbox::new("pending").await;
    sandbox.volume("from", 0).await.unwrap().shell_as_syncer("echo hello > a").unwrap();
    let to = sandbox.volume("to", 1).await.unwrap();
    sandbox.sync("copy", json!({"pods": {"nodeSelector": {"disk": "none-such"}}})).await.unwrap();
    let pending = |job: &kube::api::DynamicObject| syncjob::has_reason(job, "Reconciling", "PodPending");
    let waiting = sandbox.until("copy", "the pending pod is named", pending).await.unwrap();
    let message = syncjob::message(&waiting, "Reconciling");
    assert!(message.contains("node") && message.contains("nodeSelector"), "{message}");

    sandbox.patch("copy", json!({"spec": {"pods": null}})).await.unwrap();
    sandbox.until_is("copy", "Ready").await.unwrap();
    assert_eq!(to.shell("cat a").unwrap(), b"hello\n");
}
