//! An API server that ends during a run and comes back: the operator continues the run.

use e2e::{cut::Cut, report::good_report, scripted::Stage, syncjob};
use serde_json::json;

#[tokio::test]
async fn a_run_and_those_after_it_go_on_when_the_api_server_is_back() {
    let stage = Stage::with_own_server("restart").await.unwrap();
    let _controller = stage.controller(Cut::Never).await.unwrap();
    stage.sync("web", json!({})).await.unwrap();
    let [source, sink] = stage.kubelet.start_both("web", &[]).await.unwrap();
    stage.until("web", "it runs", |job| syncjob::text(job, "/phase") == "Running").await.unwrap();

    stage.restart_api_server().unwrap();
    stage.kubelet.succeed(&source, &sink, &good_report("web-1")).await.unwrap();
    let done = stage.until_is("web", "Ready").await.unwrap();
    assert_eq!(syncjob::text(&done, "/lastRun/id"), "web-1");
    assert_eq!(*syncjob::status(&done, "/lastRun/retries"), 0, "{done:#?}");

    stage.patch("web", json!({"spec": {"trigger": "two"}})).await.unwrap();
    stage.kubelet.complete("web", &[&source, &sink]).await.unwrap();
    let is_over = |job: &kube::api::DynamicObject| syncjob::text(job, "/lastRun/id") == "web-2";
    stage.until("web", "the second run is over", is_over).await.unwrap();
}
