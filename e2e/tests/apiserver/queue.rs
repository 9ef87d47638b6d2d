//! Limits on the number of concurrent runs: the other runs wait in a queue, and their status names their position.

use k8s_openapi::api::core::v1::Namespace;

use crate::prelude::*;

const JOBS: usize = 20;
const LIMIT: usize = 3;

/// Returns the number of runs with pods that have not ended. Only the test ends pods, so it cannot miss an excess.
async fn under_way(pods: &Api<Pod>) -> usize {
    let sinks = ListParams::default().labels("volferry.dev/side=sink");
    let lives = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        !matches!(phase, Some("Succeeded" | "Failed"))
    };
    pods.list(&sinks).await.unwrap().items.iter().filter(|pod| lives(pod)).count()
}

fn is_in_the_queue(job: &DynamicObject) -> bool {
    syncjob::has_reason(job, "Reconciling", "Queued")
}

fn is_queued(job: &DynamicObject) -> bool {
    let message = syncjob::message(job, "Reconciling");
    is_in_the_queue(job)
        && message.contains("in the queue: all namespaces together may have 3 under way at a time")
}

#[tokio::test]
async fn of_twenty_jobs_that_are_due_no_more_run_at_a_time_than_the_limit() {
    let stage = Stage::new("queue").await.unwrap();
    for number in 0..JOBS {
        let claim = format!("to-{number}");
        stage.claim(&claim, "Bound").await.unwrap();
        let destination = json!({"destination": {"persistentVolumeClaim": {"claimName": claim}}});
        stage.sync(&format!("job-{number}"), destination).await.unwrap();
    }
    // Two controllers that both believe they lead are the worst case, and stay safe.
    let limit = ["--leader-elect=false", "--max-runs=3"];
    let _controllers =
        (stage.controller_with(&limit).await.unwrap(), stage.controller_with(&limit).await.unwrap());
    let pods = stage.api::<Pod>();
    let (mut known, mut ran) = (Vec::new(), Vec::new());
    for left in (1..=JOBS).rev() {
        let [source, sink] = stage.kubelet.start_any(&known).await.unwrap();
        assert!(under_way(&pods).await <= LIMIT, "with {left} jobs left");
        if left > LIMIT {
            e2e::wait::until_any(&stage.jobs, "", "a job is queued", PATIENCE, is_queued).await.unwrap();
        }
        let run = e2e::kubelet::try_of(&sink);
        stage.kubelet.succeed(&source, &sink, &good_report(&run)).await.unwrap();
        ran.push(sink.metadata.labels.as_ref().unwrap()["volferry.dev/syncjob"].clone());
        known.extend([source, sink]);
    }
    for job in &ran {
        stage.until_is(job, "Ready").await.unwrap();
    }
    ran.sort_unstable();
    ran.dedup();
    assert_eq!(ran.len(), JOBS, "each ran once");
}

#[tokio::test]
async fn a_run_waits_for_room_on_its_node_and_a_run_on_another_node_does_not() {
    let stage = Stage::new("nodes").await.unwrap();
    stage.may_read_volumes().await.unwrap();
    for (claim, node) in [("to-first", "n1"), ("to-second", "n1"), ("to-elsewhere", "n2")] {
        stage.claim_on(claim, node).await.unwrap();
    }
    let limit = ["--leader-elect=false", "--max-runs-per-node=1"];
    let _controller = stage.controller_with(&limit).await.unwrap();
    let sync = async |name: &str| {
        let destination = json!({"persistentVolumeClaim": {"claimName": format!("to-{name}")}});
        stage.sync(name, json!({"destination": destination})).await.unwrap();
    };
    sync("first").await;
    let [source, sink] = stage.kubelet.start_any(&[]).await.unwrap();
    let stands =
        |job: &DynamicObject| syncjob::status(job, "/activeRun/nodes") == &json!(["n1", "node-of-the-test"]);
    stage.until("first", "it counts for the nodes of its volume and of its pods", stands).await.unwrap();
    sync("second").await;
    let waits = |job: &DynamicObject| {
        let message = syncjob::message(job, "Reconciling");
        is_in_the_queue(job) && message.contains("the node n1 may have 1 under way at a time, and 1 are")
    };
    stage.until("second", "it waits for its node", waits).await.unwrap();
    sync("elsewhere").await;
    let mut known = vec![source.clone(), sink.clone()];
    let elsewhere = stage.kubelet.start_any(&known).await.unwrap();
    assert_eq!(elsewhere[1].metadata.labels.as_ref().unwrap()["volferry.dev/syncjob"], "elsewhere");
    known.extend(elsewhere);

    stage.kubelet.succeed(&source, &sink, &good_report("first-1")).await.unwrap();
    let [_, sink] = stage.kubelet.start_any(&known).await.unwrap();
    assert_eq!(sink.metadata.labels.unwrap()["volferry.dev/syncjob"], "second");
}

#[tokio::test]
async fn of_the_runs_that_wait_the_one_of_the_highest_priority_is_next() {
    let stage = Stage::new("priority").await.unwrap();
    let allowed = json!({"metadata": {"annotations": {"volferry.dev/max-priority": "5"}}});
    let namespaces: Api<Namespace> = Api::all(stage.client.clone());
    namespaces.patch(&stage.namespace, &PatchParams::default(), &Patch::Merge(allowed)).await.unwrap();
    let _controller = stage.controller_with(&["--leader-elect=false", "--max-runs=1"]).await.unwrap();
    let jobs = [("first", 0), ("idle", -1), ("usual", 0), ("urgent", 5)];
    let mut known = Vec::new();
    for (name, priority) in jobs {
        stage.claim(&format!("to-{name}"), "Bound").await.unwrap();
        let destination = json!({"persistentVolumeClaim": {"claimName": format!("to-{name}")}});
        stage.sync(name, json!({"priority": priority, "destination": destination})).await.unwrap();
        if known.is_empty() {
            known.extend(stage.kubelet.start_any(&[]).await.unwrap());
        } else {
            drop(stage.until(name, "it is queued", is_in_the_queue).await.unwrap());
        }
    }
    let mut order = Vec::new();
    for _ in jobs {
        let [source, sink] = &known[known.len() - 2..] else { panic!("no pods") };
        order.push(sink.metadata.labels.as_ref().unwrap()["volferry.dev/syncjob"].clone());
        stage.kubelet.succeed(source, sink, &good_report(&e2e::kubelet::try_of(sink))).await.unwrap();
        if order.len() < jobs.len() {
            known.extend(stage.kubelet.start_any(&known).await.unwrap());
        }
    }
    assert_eq!(order, ["first", "urgent", "usual", "idle"]);
}

#[tokio::test]
async fn a_run_that_waits_for_a_volume_in_use_takes_no_place_from_others() {
    let stage = Stage::new("busy-place").await.unwrap();
    stage.claim("to-other", "Bound").await.unwrap();
    let _controller = stage.controller_with(&["--leader-elect=false", "--max-runs=1"]).await.unwrap();
    stage.sync("busy", json!({})).await.unwrap();
    let [source, sink] = stage.kubelet.start_both("busy", &[]).await.unwrap();
    stage
        .sync("other", json!({"destination": {"persistentVolumeClaim": {"claimName": "to-other"}}}))
        .await
        .unwrap();
    stage.until("other", "it is queued", is_in_the_queue).await.unwrap();
    let busy =
        serde_json::to_string(&bad_report("busy-1", "DestinationBusy", "another works there")).unwrap();
    for pod in [&source, &sink] {
        stage.kubelet.end(pod, 1, &busy).await.unwrap();
    }
    let [source, sink] = stage.kubelet.start_both("other", &[]).await.unwrap();
    let waiting = stage.jobs.get("busy").await.unwrap();
    assert!(syncjob::status(&waiting, "/activeRun/startTime").is_null(), "{waiting:#?}");
    assert_eq!(syncjob::text(&waiting, "/activeRun/reason"), "WaitingForRun");
    let says_so = |run: &DynamicObject| syncjob::message(run, "Reconciling").contains("another works there");
    stage.run("busy-1", "its SyncRun says so", says_so).await.unwrap();
    stage.kubelet.succeed(&source, &sink, &good_report("other-1")).await.unwrap();
    stage.until_is("other", "Ready").await.unwrap();
}
