//! A success that both agents report before the kubelet reports the end of the pods.

use crate::prelude::*;

#[tokio::test]
async fn what_agents_report_is_no_success_before_their_pods_have_ended_and_none_if_an_exit_status_differs() {
    let (stage, _controller) = Stage::with_controller("reported").await.unwrap();
    stage.sync("web", json!({})).await.unwrap();
    let [source, sink] = stage.kubelet.start_both("web", &[]).await.unwrap();
    for (side, pod) in [(Side::Source, &source), (Side::Sink, &sink)] {
        let report = json!(json!(good_report("web-1")).to_string());
        stage.kubelet.publish(pod, &format!("/ends/{side}"), &report).await.unwrap();
    }
    // By the time that a later job waits for the run, the controller has seen the reports.
    stage.sync("rival", json!({})).await.unwrap();
    stage.until_reason("rival", "Reconciling", "WaitingForRun").await.unwrap();
    let web = stage.jobs.get("web").await.unwrap();
    assert!(!syncjob::is(&web, "Ready") && syncjob::status(&web, "/lastRun").is_null(), "{web:#?}");

    stage.kubelet.end(&source, 0, "").await.unwrap();
    stage.kubelet.end(&sink, 137, "").await.unwrap();
    let retried = stage.until_reason("web", "Reconciling", "Retrying").await.unwrap();
    for field in ["/lastRun", "/lastSuccessTime", "/destination", "/history", "/summary", "/notes"] {
        assert!(syncjob::status(&retried, field).is_null(), "{field}: {retried:#?}");
    }
}
