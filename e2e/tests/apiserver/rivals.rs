//! Runs of several SyncJobs that use the same claims: one follows the other, and a waiting job names the job that it
//! waits for.

use crate::prelude::*;

fn claims(source: &str, destination: &str) -> Value {
    json!({
        "source": {"persistentVolumeClaim": {"claimName": source}},
        "destination": {"persistentVolumeClaim": {"claimName": destination}},
        "limits": {"retries": 0, "timeout": "30s"},
    })
}

fn waits(job: &DynamicObject) -> bool {
    syncjob::has_reason(job, "Reconciling", "WaitingForRun")
}

/// Returns the SyncJobs that have Kubernetes Jobs, sorted; Jobs of ended runs stay.
fn launched(stage: &Stage) -> Vec<String> {
    let path = r#"jsonpath={range .items[*]}{.metadata.labels.volferry\.dev/syncjob}{"\n"}{end}"#;
    let names = stage.kubectl.run(&["get", "jobs", "-o", path]).unwrap();
    let mut names: Vec<String> = names.lines().map(Into::into).collect();
    names.sort();
    names.dedup();
    names
}

#[tokio::test]
async fn a_claim_that_a_run_writes_is_not_read_before_that_run_is_over() {
    let (stage, _controller) = Stage::with_controller("chain").await.unwrap();
    stage.claim("far", "Bound").await.unwrap();
    stage.sync("near", json!({})).await.unwrap();
    let [source, sink] = stage.kubelet.start_both("near", &[]).await.unwrap();

    stage.sync("onward", claims("to", "far")).await.unwrap();
    let waiting = stage.until("onward", "it waits", waits).await.unwrap();
    let message = syncjob::message(&waiting, "Reconciling");
    assert!(
        message.contains("run near-1 of SyncJob near, which writes the claim to that this run reads"),
        "{message}"
    );
    assert!(!syncjob::is(&waiting, "Ready") && syncjob::status(&waiting, "/activeRun/startTime").is_null());
    assert_eq!(launched(&stage), ["near"]);

    stage.kubelet.succeed(&source, &sink, &good_report("near-1")).await.unwrap();
    stage.kubelet.complete("onward", &[]).await.unwrap();
    let done = stage.until_is("onward", "Ready").await.unwrap();
    assert_eq!(syncjob::status(&done, "/lastRun/retries"), 0);
}

#[tokio::test]
async fn of_jobs_that_are_due_at_a_time_one_runs_after_the_other() {
    let stage = Stage::new("together").await.unwrap();
    let names = ["a", "b", "c", "d"];
    for name in names {
        stage.sync(name, json!({})).await.unwrap();
    }
    // Two controllers that both believe they lead are the worst case, and stay safe.
    let _controllers =
        (stage.controller(Cut::Never).await.unwrap(), stage.controller(Cut::Never).await.unwrap());
    let (mut known, mut ran) = (Vec::new(), Vec::new());
    for _ in names {
        let [source, sink] = stage.kubelet.start_any(&known).await.unwrap();
        let run = e2e::kubelet::try_of(&sink);
        let job = sink.metadata.labels.as_ref().unwrap()["volferry.dev/syncjob"].clone();
        ran.push(job.clone());
        ran.sort_unstable();
        assert_eq!(launched(&stage), ran, "all use the same claims");
        stage.kubelet.succeed(&source, &sink, &good_report(&run)).await.unwrap();
        stage.until_is(&job, "Ready").await.unwrap();
        known.extend([source, sink]);
    }
}

#[tokio::test]
async fn a_volume_that_another_syncer_uses_is_waited_for_without_a_retry() {
    let (stage, _controller) = Stage::with_controller("busy").await.unwrap();
    for (name, reason, used) in [("late", "DestinationBusy", "to"), ("torn", "SourceBusy", "from")] {
        stage.sync(name, json!({"limits": {"retries": 0}})).await.unwrap();
        let [source, sink] = stage.kubelet.start_both(name, &[]).await.unwrap();
        let busy = bad_report(&format!("{name}-1"), reason, "another syncer works there");
        let text = serde_json::to_string(&busy).unwrap();
        stage.kubelet.end(&source, 1, &text).await.unwrap();
        stage.kubelet.end(&sink, 1, &text).await.unwrap();
        let waiting = stage.until(name, "it waits", waits).await.unwrap();
        let message = syncjob::message(&waiting, "Reconciling");
        for words in [reason, "another syncer works there", used, "another namespace or cluster"] {
            assert!(message.contains(words), "{words}: {message}");
        }
        assert_eq!(syncjob::status(&waiting, "/activeRun/retries"), 0);

        stage.kubelet.complete(name, &[&source, &sink]).await.unwrap();
        let done = stage.until_is(name, "Ready").await.unwrap();
        assert_eq!(syncjob::status(&done, "/lastRun/retries"), 0);
    }
}

#[tokio::test]
async fn a_run_that_waits_can_be_suspended_and_lets_others_by() {
    let (stage, _controller) = Stage::with_controller("aside").await.unwrap();
    stage.sync("first", json!({})).await.unwrap();
    let [source, sink] = stage.kubelet.start_both("first", &[]).await.unwrap();
    stage.sync("second", json!({})).await.unwrap();
    stage.until("second", "it waits", waits).await.unwrap();
    stage.patch("second", json!({"spec": {"suspend": true}})).await.unwrap();
    let aside = stage.until_is("second", "Ready").await.unwrap();
    assert!(syncjob::has_reason(&aside, "Ready", "Suspended"), "{aside:#?}");

    stage.sync("third", json!({})).await.unwrap();
    stage.until("third", "it waits", waits).await.unwrap();
    stage.kubelet.succeed(&source, &sink, &good_report("first-1")).await.unwrap();
    let sink = stage.kubelet.new_pod("third", Side::Sink, &[]).await.unwrap();
    let source = stage.kubelet.new_pod("third", Side::Source, &[]).await.unwrap();
    stage.kubelet.start(&source).await.unwrap();
    stage.kubelet.start(&sink).await.unwrap();
    stage.kubelet.succeed(&source, &sink, &good_report("third-1")).await.unwrap();
    stage.until_is("third", "Ready").await.unwrap();

    stage.patch("second", json!({"spec": {"suspend": false}})).await.unwrap();
    stage.kubelet.complete("second", &[]).await.unwrap();
    stage.until_is("second", "Ready").await.unwrap();
}
