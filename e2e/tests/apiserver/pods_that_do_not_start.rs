//! Pods that cannot be made or do not start: what the status says, and what happens once that is put right.

use crate::prelude::*;

#[tokio::test]
async fn what_no_retry_can_fix_stalls_in_the_api_servers_words_until_the_spec_is_corrected() {
    let (stage, _controller) = Stage::with_controller("refused").await.unwrap();
    let cpu = |request: &str| json!({"resources": {"requests": {"cpu": request}, "limits": {"cpu": "1"}}});
    stage.sync("web", json!({"pods": cpu("2")})).await.unwrap();
    let refused = stage.until_is("web", "Stalled").await.unwrap();
    assert!(syncjob::has_reason(&refused, "Stalled", "ChildRefused"), "{refused:#?}");
    let message = syncjob::message(&refused, "Stalled");
    assert!(
        message.contains("-sink: ") && message.contains("must be less than or equal to cpu limit"),
        "{message}"
    );

    stage.patch("web", json!({"spec": {"pods": cpu("1")}})).await.unwrap();
    stage.kubelet.start_both("web", &[]).await.unwrap();
    let runs = stage.until("web", "it runs", |job| syncjob::text(job, "/phase") == "Running").await.unwrap();
    assert_eq!(syncjob::text(&runs, "/activeRun/id"), "web-2");
}

#[tokio::test]
async fn a_label_that_is_none_stalls() {
    let (stage, _controller) = Stage::with_controller("label").await.unwrap();
    stage.sync("labelled", json!({"pods": {"labels": {"team": "not a label!"}}})).await.unwrap();
    let refused = stage.until_is("labelled", "Stalled").await.unwrap();
    assert!(syncjob::message(&refused, "Stalled").contains("not a label!"), "{refused:#?}");
}

#[tokio::test]
async fn a_pod_that_a_limit_range_makes_invalid_is_explained_and_made_once_the_spec_is_corrected() {
    let (stage, _controller) = Stage::with_controller("limits").await.unwrap();
    let cpu = |request: &str| json!({"resources": {"requests": {"cpu": request}}});
    let range = json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small"},
        "spec": {"limits": [{"type": "Container", "default": {"cpu": "500m"}}]}});
    stage.kubectl.apply(&range.to_string()).unwrap();
    stage.sync("web", json!({"pods": cpu("1")})).await.unwrap();
    let is_told = |job: &DynamicObject| {
        let message = syncjob::message(job, "Reconciling");
        syncjob::has_reason(job, "Reconciling", "PodPending")
            && message.contains("must be less than or equal to cpu limit")
            && message.contains("LimitRange")
    };
    stage.until("web", "it says so", is_told).await.unwrap();

    stage.patch("web", json!({"spec": {"pods": cpu("100m")}})).await.unwrap();
    stage.kubelet.start_both("web", &[]).await.unwrap();
    let runs = stage.until("web", "it runs", |job| syncjob::text(job, "/phase") == "Running").await.unwrap();
    assert_eq!(syncjob::text(&runs, "/activeRun/id"), "web-1", "the same run, which had done nothing");
}

#[tokio::test]
async fn the_partner_of_a_pod_that_cannot_start_leaves_its_node_and_comes_back() {
    let (stage, _controller) = Stage::with_controller("partner").await.unwrap();
    stage.sync("web", json!({})).await.unwrap();
    let source = stage.kubelet.new_pod("web", Side::Source, &[]).await.unwrap();
    let sink = stage.kubelet.new_pod("web", Side::Sink, &[]).await.unwrap();
    stage.kubelet.start(&source).await.unwrap();
    stage.kubelet.unschedulable(&sink, "0/3 nodes are available: 3 Insufficient cpu.").await.unwrap();
    stage.kubelet.deleted_pod_within("web", Side::Source, e2e::scripted::PATIENCE).await.unwrap();
    stage.kubelet.finish_deletions().await.unwrap();
    let alone = |job: &DynamicObject| {
        let message = syncjob::message(job, "Reconciling");
        syncjob::has_reason(job, "Reconciling", "PodPending") && message.contains("there is no source pod")
    };
    let waiting = stage.until("web", "it says so", alone).await.unwrap();
    assert!(syncjob::message(&waiting, "Reconciling").contains("Insufficient cpu"));

    stage.kubelet.start(&sink).await.unwrap();
    let again = stage.kubelet.new_pod("web", Side::Source, &[&source]).await.unwrap();
    stage.kubelet.start(&again).await.unwrap();
    stage.kubelet.succeed(&again, &sink, &good_report("web-1")).await.unwrap();
    let done = stage.until_is("web", "Ready").await.unwrap();
    assert_eq!(syncjob::status(&done, "/lastRun/retries"), 0);
}

#[tokio::test]
async fn a_pod_that_does_not_start_is_explained_and_waited_for() {
    let (stage, _controller) = Stage::with_controller("start").await.unwrap();
    stage.sync("web", json!({})).await.unwrap();
    let source = stage.kubelet.new_pod("web", Side::Source, &[]).await.unwrap();
    let sink = stage.kubelet.new_pod("web", Side::Sink, &[]).await.unwrap();
    stage.kubelet.start(&sink).await.unwrap();
    let says = |reason: &'static str, words: [&'static str; 2]| {
        move |job: &DynamicObject| {
            syncjob::has_reason(job, "Reconciling", reason)
                && words.iter().all(|word| syncjob::message(job, "Reconciling").contains(word))
        }
    };
    let message = "0/3 nodes are available: 3 node(s) had volume node affinity conflict.";
    stage.kubelet.unschedulable(&source, message).await.unwrap();
    let unschedulable = says("PodPending", ["source", "volume node affinity conflict"]);
    stage.until("web", "the scheduler's reason is passed on", unschedulable).await.unwrap();
    stage.kubelet.wait(&source, "ImagePullBackOff", "not found").await.unwrap();
    let unpulled = says("ImagePullFailed", ["volferry.test/volferry:1", "not found"]);
    stage.until("web", "the image that cannot be pulled is named", unpulled).await.unwrap();

    stage.kubelet.start(&source).await.unwrap();
    stage.kubelet.succeed(&source, &sink, &good_report("web-1")).await.unwrap();
    stage.until_is("web", "Ready").await.unwrap();
}

#[tokio::test]
async fn pods_that_cannot_start_are_replaced_when_the_spec_is_put_right() {
    let (stage, _controller) = Stage::with_controller("replaced").await.unwrap();
    stage.sync("web", json!({"pods": {"nodeSelector": {"disk": "none-such"}}})).await.unwrap();
    let source = stage.kubelet.new_pod("web", Side::Source, &[]).await.unwrap();
    let sink = stage.kubelet.new_pod("web", Side::Sink, &[]).await.unwrap();
    stage.kubelet.unschedulable(&source, "0/3 nodes are available").await.unwrap();
    let pending = stage.until_reason("web", "Reconciling", "PodPending").await.unwrap();
    assert!(syncjob::message(&pending, "Reconciling").contains("nodeSelector"), "{pending:#?}");

    stage.patch("web", json!({"spec": {"pods": null}})).await.unwrap();
    let [source, _] = stage.kubelet.complete("web", &[&source, &sink]).await.unwrap();
    assert_eq!(source.spec.unwrap().node_selector, None);
    stage.until_is("web", "Ready").await.unwrap();
}
