//! Fifty SyncJobs come to one SyncEndpoint at once.

use std::time::Duration;

use futures::{StreamExt as _, future::join_all, stream};

use crate::{
    endpoints_stage::content,
    prelude::*,
    remote_more::{fill_large, own_key, run_until_taken},
    remote_stage::{Dialling, Remote, fill},
};

const JOBS: usize = 50;
/// The peers that may wait at the endpoint. One more is served, and two are refused until there is room.
const QUEUE: usize = JOBS - 3;
const AT_ONCE: usize = 8;

#[tokio::test]
async fn fifty_jobs_of_one_endpoint_all_have_their_turn_within_its_limit_and_nothing_is_left() {
    let demands = json!({"demands": {"queue": QUEUE, "bandwidthLimit": "64Ki"}});
    let remote = Remote::with("crowd", Side::Source, demands).await;
    let others: Vec<_> =
        (1..JOBS).map(|at| Dialling::new(&remote.stage, &format!("job-{at}"), Side::Source)).collect();
    let keys: Vec<_> = [&remote.own].into_iter().chain(&others).map(own_key).collect();
    let keys: Vec<_> = keys.iter().map(String::as_str).collect();
    remote.list(&keys).await;
    let large = fill_large(&remote.volume());
    create(&remote, &remote.own, 0).await;
    let first = remote.pod(&[]).await;
    let process = remote.start(&first).await;
    let sends = |run: &DynamicObject| syncjob::status(run, "/progress/bytes").as_u64() > Some(0);
    wait::until(&remote.stage.runs, "copy-1", "it sends", PATIENCE, sends).await.unwrap();

    let (waiting, refused) = others.split_at(QUEUE);
    let coming = waiting.iter().enumerate().map(async |(at, job)| {
        let pod = come(&remote, job, at + 1).await;
        let process = job.start(&pod).await;
        (job, pod, process)
    });
    let came: Vec<_> = stream::iter(coming).buffered(AT_ONCE).collect().await;
    until_gauge(&remote, "waiting_peers", QUEUE).await;
    let refuse = refused.iter().enumerate().map(async |(at, job)| {
        let pod = come(&remote, job, QUEUE + 1 + at).await;
        assert_eq!(job.run(&pod).await, 1);
        let is_refused = |job: &DynamicObject| syncjob::message(job, "Reconciling").contains("QueueFull");
        job.until("it is refused for the time being", is_refused).await;
        (job, pod)
    });
    let refused = join_all(refuse).await;

    remote.list(&keys[1..]).await;
    assert_ne!(remote.end(&first, process).await, 0, "its key was taken out");
    let all = async {
        let ends = came.into_iter().map(async |(job, pod, process)| {
            assert_eq!(job.end(&pod, process).await, 0, "{}", job.name);
        });
        stream::iter(ends).buffered(AT_ONCE).collect::<()>().await;
        join_all(refused.into_iter().map(|(job, pod)| until_served(job, pod))).await;
    };
    tokio::select! {
        () = all => {}
        () = keep_limit(&remote) => {}
    }
    remote.serving.change(json!({"spec": {"demands": {"bandwidthLimit": null}}})).await;
    remote.list(&keys).await;
    run_until_taken(&remote, vec![first]).await;

    assert_all_arrived(&remote, &others, &large).await;
    until_nothing_is_left(&remote).await;
}

/// Asserts that each job has run once without a retry, that its folder is whole, and that the endpoint tells of all.
async fn assert_all_arrived(remote: &Remote, others: &[Dialling], large: &[u8]) {
    for (at, job) in [&remote.own].into_iter().chain(others).enumerate() {
        let done = job.until_ready().await;
        let tries = syncjob::status(&done, "/lastRun/retries").as_u64();
        assert!(at == 0 || tries == Some(0), "{}: {done:#?}", job.name);
        let arrived = remote.serving.volume().join(at.to_string());
        let is_whole = match at {
            0 => std::fs::read(arrived.join("file")).unwrap() == large,
            _ => content(&arrived).as_deref() == Some(&job.name),
        };
        assert!(is_whole, "{}", job.name);
    }
    // The first one's run that was stopped, and one for each.
    let came = |it: &DynamicObject| {
        let peers = syncjob::status(it, "/peers").as_array();
        peers.into_iter().flatten().filter_map(|peer| peer["runs"].as_u64()).sum::<u64>() == JOBS as u64 + 1
    };
    remote.serving.until("each run is told", came).await;
    for gauge in ["sessions", "waiting_peers"] {
        until_gauge(remote, gauge, 0).await;
    }
}

/// Creates a SyncJob that sends into a folder of its own. Of one folder, the operator itself would let one go after the
/// other.
async fn create(remote: &Remote, job: &Dialling, at: usize) {
    let endpoint = json!({"identity": {"secretName": "mine"}, "address": format!("{}/{at}", remote.address)});
    remote.sync_as(job, endpoint, json!({})).await;
}

/// Creates another SyncJob with a small file, and returns its pod.
async fn come(remote: &Remote, job: &Dialling, at: usize) -> Pod {
    fill(&job.volume(), &job.name);
    create(remote, job, at).await;
    job.pod(&[]).await
}

/// Runs the pods after this one until the endpoint has room for one of them.
async fn until_served(job: &Dialling, refused: Pod) {
    let mut pods = vec![refused];
    while pods.len() == 1 || job.run(pods.last().unwrap()).await != 0 {
        job.next_memory();
        let next = job.pod(&pods.iter().collect::<Vec<_>>()).await;
        pods.push(next);
    }
}

/// Looks again and again whether the endpoint keeps its limits. Never returns.
async fn keep_limit(remote: &Remote) {
    let mut looks = tokio::time::interval(Duration::from_millis(20));
    loop {
        looks.tick().await;
        let (running, waiting) =
            tokio::join!(remote.serving.gauge("sessions"), remote.serving.gauge("waiting_peers"));
        assert!(running <= 1 && waiting <= QUEUE, "{running} run, {waiting} wait");
    }
}

async fn until_gauge(remote: &Remote, name: &str, value: usize) {
    let is_reached = async || remote.serving.gauge(name).await == value;
    wait::poll(&format!("{name} is {value}"), PATIENCE, is_reached).await.unwrap();
}

/// Deletes everything, and waits until no object and no pod is there.
async fn until_nothing_is_left(remote: &Remote) {
    let (jobs, stage) = (&remote.stage.jobs, &remote.stage);
    jobs.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    remote.serving.endpoints.delete("web", &DeleteParams::default()).await.unwrap();
    remote.serving.until_nothing_is_left().await;
    let kinds = "syncjobs,syncruns,jobs,pods,roles,rolebindings,secrets";
    let is_empty = async || {
        stage.kubelet.finish_deletions().await.unwrap();
        // Asked first, because each question to kubectl starts a process.
        jobs.list(&ListParams::default()).await.unwrap().items.is_empty()
            && stage.kubectl.run(&["get", kinds, "-o", "name"]).unwrap().is_empty()
    };
    wait::poll("nothing is left", PATIENCE, is_empty).await.unwrap();
}
