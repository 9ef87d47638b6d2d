//! Runs in one pod that has both volumes, with a simulated kubelet.

use crate::prelude::*;

fn args(pod: &Pod) -> String {
    pod.spec.as_ref().unwrap().containers[0].args.as_ref().unwrap().join(" ")
}

/// Checks that a run in one pod has one Job and its pod's rights, but no Secret and no Service.
async fn assert_alone(stage: &Stage, pod: &Pod) {
    assert!(args(pod).contains(" sync /source /destination "), "{}", args(pod));
    let children = stage.children("web").unwrap().join(" ");
    assert!(!children.contains("secret/") && !children.contains("service/"), "{children}");
    assert_eq!(children.matches("job.batch/").count(), 1, "{children}");
}

#[tokio::test]
async fn one_pod_does_all_of_a_run_and_is_tried_again() {
    let (stage, _controller) = Stage::with_controller("local").await.unwrap();
    stage.sync("web", json!({"transfer": {"placement": "Local"}})).await.unwrap();
    let first = stage.kubelet.new_pod("web", Side::Sink, &[]).await.unwrap();
    assert_alone(&stage, &first).await;
    stage.kubelet.start(&first).await.unwrap();
    let running =
        stage.until("web", "it runs", |job| syncjob::text(job, "/phase") == "Running").await.unwrap();
    assert_eq!(syncjob::status(&running, "/activeRun/local"), true);
    let full: Report = bad_report("web-1", "NoSpace", "the disk is full");
    stage.kubelet.end(&first, 1, &serde_json::to_string(&full).unwrap()).await.unwrap();

    let second = stage.kubelet.new_pod("web", Side::Sink, &[&first]).await.unwrap();
    assert_alone(&stage, &second).await;
    stage.kubelet.start(&second).await.unwrap();
    let report = good_report("web-1.retry1");
    stage.kubelet.succeed_one(Side::Sink, &second, &report).await.unwrap();
    let done = stage.until_is("web", "Ready").await.unwrap();
    assert_eq!(
        (syncjob::text(&done, "/lastRun/id"), syncjob::status(&done, "/lastRun/retries")),
        ("web-1", &json!(1))
    );
    stage.until_done("web").await.unwrap();
}

#[tokio::test]
async fn volumes_that_any_node_can_mount_meet_in_one_pod_unless_the_spec_says_otherwise() {
    let (stage, _controller) = Stage::with_controller("local-auto").await.unwrap();
    for claim in ["many-from", "many-to"] {
        stage.claim_with(claim, "Bound", "ReadWriteMany").await.unwrap();
    }
    let claim = |name: &str| json!({"persistentVolumeClaim": {"claimName": name}});
    let many = json!({"source": claim("many-from"), "destination": claim("many-to")});
    stage.sync("web", many).await.unwrap();
    let pod = stage.kubelet.new_pod("web", Side::Sink, &[]).await.unwrap();
    assert_alone(&stage, &pod).await;

    // The change takes effect at once, as the pod does not run yet.
    stage.patch("web", json!({"spec": {"transfer": {"placement": "Network"}}})).await.unwrap();
    stage.kubelet.deleted_pod("web", Side::Sink).await.unwrap();
    stage.kubelet.finish_deletions().await.unwrap();
    let [source, sink] = stage.kubelet.start_both("web", &[&pod]).await.unwrap();
    assert!(args(&source).contains(" send /source ") && args(&sink).contains(" receive /destination "));
    stage.kubelet.succeed(&source, &sink, &good_report("web-1")).await.unwrap();
    stage.until_done("web").await.unwrap();
}
