//! Pods that cannot start: the status names the obstacle with its remedy, and the job continues by itself once it is
//! gone.

use crate::prelude::*;

#[tokio::test]
async fn a_pod_that_fits_nowhere_is_explained_and_the_job_goes_on_when_it_fits() {
    let (sandbox, from, to) = Sandbox::with_volumes("pending").await;
    from.shell_as_syncer("echo hello > a").unwrap();
    sandbox.sync("copy", json!({"pods": {"nodeSelector": {"disk": "none-such"}}})).await.unwrap();
    let waiting = sandbox.until_reason("copy", "Reconciling", "PodPending").await.unwrap();
    let message = syncjob::message(&waiting, "Reconciling");
    assert!(message.contains("node") && message.contains("nodeSelector"), "{message}");

    sandbox.patch("copy", json!({"spec": {"pods": null}})).await.unwrap();
    sandbox.until_is("copy", "Ready").await.unwrap();
    assert_eq!(to.shell("cat a").unwrap(), b"hello\n");
}
