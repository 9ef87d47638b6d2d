//! A success that both agents report before the kubelet reports the end of the pods, or reports another end.

use contract::{Report, RunResult, Side, VolumeId};
use e2e::{report::good_report, scripted::Stage, syncjob};
use k8s_openapi::api::core::v1::Pod;
use kube::api::DynamicObject;
use serde_json::json;

/// Publishes the success of both agents of a run; their pods continue to run.
async fn report(stage: &Stage, (source, sink): (&Pod, &Pod), report: &Report) {
    for (side, pod) in [(Side::Source, source), (Side::Sink, sink)] {
        stage.kubelet.publish(pod, &format!("/ends/{side}"), &json!(report)).await.unwrap();
    }
}

fn report_of(run: &str) -> Report {
    Report { volume: Some(VolumeId::new([7; 16])), ..good_report(run) }
}

fn waits(job: &DynamicObject) -> bool {
    syncjob::has_reason(job, "Reconciling", "WaitingForRun")
}

#[tokio::test]
async fn a_job_is_ready_when_both_agents_say_so_and_its_claims_are_free_when_its_pods_have_ended() {
    let (stage, _controller) = Stage::with_controller("reported").await.unwrap();
    stage.sync("web", json!({"trigger": "one"})).await.unwrap();
    let (source, sink) = stage.kubelet.start_both("web", &[]).await.unwrap();
    stage.kubelet.publish(&source, "/ends/source", &json!(report_of("web-1"))).await.unwrap();
    stage.sync("rival", json!({})).await.unwrap();
    let rival = stage.until("rival", "it waits", waits).await.unwrap();
    assert!(!syncjob::is(&stage.jobs.get("web").await.unwrap(), "Ready"), "the sink has said nothing");

    report(&stage, (&source, &sink), &report_of("web-1")).await;
    let ready = stage.until_is("web", "Ready").await.unwrap();
    assert_eq!(syncjob::text(&ready, "/lastRun/id"), "web-1");
    assert_eq!(syncjob::text(&ready, "/activeRun/stage"), "Finishing");
    let run = stage.run("web-1", "it says so, too", |run| syncjob::is(run, "Ready")).await.unwrap();
    assert_eq!(syncjob::text(&run, "/stage"), "Finishing");

    // A reconciliation of either job finds the pods running, so no new run begins.
    stage.patch("web", json!({"spec": {"trigger": "two"}})).await.unwrap();
    let patched = stage.patch("rival", json!({"metadata": {"labels": {"looked": "again"}}})).await.unwrap();
    assert_eq!(syncjob::status(&rival, "/activeRun/id"), syncjob::status(&patched, "/activeRun/id"));
    assert!(waits(&stage.jobs.get("rival").await.unwrap()));
    assert_eq!(syncjob::text(&stage.jobs.get("web").await.unwrap(), "/activeRun/id"), "web-1");
    assert_eq!(stage.children("web").unwrap().iter().filter(|it| it.starts_with("job.batch/")).count(), 2);

    stage.kubelet.end(&source, 0, "").await.unwrap();
    stage.kubelet.end(&sink, 0, "").await.unwrap();
    let (source, sink) = stage.kubelet.start_any(&[source, sink]).await.unwrap();
    let next = e2e::kubelet::try_of(&sink);
    stage.kubelet.succeed(&source, &sink, &good_report(&next)).await.unwrap();
    stage.run("web-1", "it is done", |run| syncjob::text(run, "/stage") == "Done").await.unwrap();
    stage.run(&next, "it is ready", |run| syncjob::is(run, "Ready")).await.unwrap();
}

#[tokio::test]
async fn a_success_that_an_exit_status_contradicts_is_taken_back_and_the_run_is_tried_again() {
    let (stage, _controller) = Stage::with_controller("contradicted").await.unwrap();
    stage.sync("web", json!({})).await.unwrap();
    let (source, sink) = stage.kubelet.start_both("web", &[]).await.unwrap();
    report(&stage, (&source, &sink), &report_of("web-1")).await;
    let ready = stage.until_is("web", "Ready").await.unwrap();
    assert!(syncjob::status(&ready, "/destination/volume").is_string(), "{ready:#?}");

    stage.kubelet.end(&source, 0, "").await.unwrap();
    stage.kubelet.end(&sink, 137, "").await.unwrap();
    let is_taken_back = |job: &DynamicObject| syncjob::has_reason(job, "Reconciling", "Retrying");
    let retried = stage.until("web", "it is taken back", is_taken_back).await.unwrap();
    for field in ["/lastRun", "/lastSuccessTime", "/destination", "/history"] {
        assert!(syncjob::status(&retried, field).is_null(), "{field}: {retried:#?}");
    }
    let releasing = stage.kubelet.release("web");
    let again = async {
        let (source, sink) = stage.kubelet.start_both("web", &[&source, &sink]).await?;
        stage.kubelet.succeed(&source, &sink, &report_of("web-1.retry1")).await?;
        stage.until_is("web", "Ready").await
    };
    let done = tokio::select! {
        done = again => done.unwrap(),
        error = releasing => panic!("{error:?}"),
    };
    assert_eq!(syncjob::status(&done, "/lastRun/retries"), 1);
    let result: RunResult = syncjob::part(&done, "/lastRun/result").unwrap();
    assert_eq!(
        (result, syncjob::status(&done, "/history").as_array().unwrap().len()),
        (RunResult::Succeeded, 1)
    );
}
