//! Missing or wrong objects: the status names each with its remedy, and the job continues by itself once it is put
//! right.

use crate::prelude::*;

#[tokio::test]
async fn a_missing_claim_is_named_and_the_job_goes_on_when_it_is_there() {
    let sandbox = Sandbox::new("missing").await;
    let from = sandbox.volume("from", 0).await.unwrap();
    from.shell_as_syncer("echo hello > a").unwrap();
    sandbox.sync("copy", json!({})).await.unwrap();
    let stalled = sandbox.until_is("copy", "Stalled").await.unwrap();
    assert!(syncjob::has_reason(&stalled, "Stalled", "ClaimNotFound"), "{stalled:#?}");
    let message = syncjob::message(&stalled, "Stalled");
    assert!(
        message.contains(&format!("{}/to", sandbox.namespace)) && message.contains("Create it"),
        "{message}"
    );

    let to = sandbox.volume("to", 1).await.unwrap();
    sandbox.until_is("copy", "Ready").await.unwrap();
    assert_eq!(to.shell("cat a").unwrap(), b"hello\n");
}

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

#[tokio::test]
async fn a_bad_cron_is_refused_at_apply() {
    let sandbox = Sandbox::new("cron").await;
    let manifest = syncjob::manifest("copy", "from", "to", json!({"schedule": {"cron": "at noon"}}));
    let message = sandbox.kubectl.apply(&manifest.to_string()).unwrap_err().to_string();
    assert!(message.contains("spec.schedule.cron") && message.contains("0 3 * * *"), "{message}");
}
