//! Runs of several pods per side, with a simulated kubelet.

use anyhow::{Context as _, Result, ensure};
use contract::{Phase, Progress, RunResult, Work};
use k8s_openapi::api::{batch::v1::Job, core::v1::Container};
use kube::ResourceExt;

use crate::prelude::*;

const COUNT: u32 = 3;

#[tokio::test]
async fn shards_run_side_by_side_and_their_reports_add_up() {
    let (stage, _controller) = Stage::with_controller("shards").await.unwrap();
    stage.sync("web", json!({"parallelism": COUNT})).await.unwrap();
    let shards = stage.kubelet.start_shards("web", COUNT, &[]).await.unwrap();
    stage.until("web", "it runs", |job| syncjob::text(job, "/phase") == "Running").await.unwrap();
    check_each_pod_learns_its_number(&shards).unwrap();

    for (shard, [_, sink]) in (1..).zip(&shards[1..]) {
        let progress = Progress { phase: Phase::Transfer, files: shard, ..Progress::default() };
        let mut part = serde_json::to_value(progress).unwrap();
        part["run"] = json!("web-1");
        stage.kubelet.publish(sink, &format!("/progress/shards/{shard}"), &part).await.unwrap();
    }
    let run = stage.runs.get("web-1").await.unwrap();
    let files =
        [1, 2].map(|shard| syncjob::status(&run, &format!("/progress/shards/{shard}/files")).as_u64());
    assert_eq!(files, [Some(1), Some(2)]);

    let report = good_report("web-1");
    for [source, sink] in &shards {
        stage.kubelet.succeed(source, sink, &report).await.unwrap();
    }
    let done = stage.until_is("web", "Ready").await.unwrap();
    let work: Work = syncjob::part(&done, "/lastRun/work").unwrap();
    assert_eq!((work.files_created, work.bytes_changed), (6, 30), "three times that of one");
    assert_eq!(syncjob::status(&done, "/history").as_array().unwrap().len(), 1);
    stage.until_done("web").await.unwrap();
    assert!(syncjob::status(&stage.jobs.get("web").await.unwrap(), "/activeRun").is_null());
}

/// Checks the shard numbers that Kubernetes gives the pods, and the count that the operator sets.
fn check_each_pod_learns_its_number(shards: &[[Pod; 2]]) -> Result<()> {
    for pod in shards.iter().flatten() {
        let count = format!("--shards={}", shards.len());
        ensure!(container(pod)?.args.iter().flatten().any(|arg| *arg == count), "{pod:#?}");
        let env = container(pod)?.env.iter().flatten();
        ensure!(env.map(|it| &it.name).any(|it| it == "JOB_COMPLETION_INDEX"), "{pod:#?}");
    }
    Ok(())
}

fn container(pod: &Pod) -> Result<&Container> {
    pod.spec.as_ref().and_then(|spec| spec.containers.first()).context("a container")
}

#[tokio::test]
async fn a_shard_with_failed_files_leaves_the_others_to_their_work() {
    let (stage, _controller) = Stage::with_controller("partial-shard").await.unwrap();
    stage.sync("web", json!({"parallelism": COUNT, "limits": {"retries": 0}})).await.unwrap();
    let shards = stage.kubelet.start_shards("web", COUNT, &[]).await.unwrap();
    stage.until("web", "it runs", |job| syncjob::text(job, "/phase") == "Running").await.unwrap();
    let good = good_report("web-1");
    let partial = Report {
        result: RunResult::PartiallyFailed,
        reason: Some("FilesFailed".into()),
        message: "1 file failed".into(),
        work: Work { files_failed: 1, ..good.work },
        ..good.clone()
    };
    end_both(&stage, &shards[2], 3, &partial).await.unwrap();
    await_failed_index(&stage, "2").await.unwrap();
    for [source, sink] in &shards[..2] {
        for pod in [source, sink] {
            let now = stage.kubelet.pod(&pod.name_any()).await.unwrap();
            assert_eq!(now.metadata.deletion_timestamp, None, "a shard that is at work is stopped");
        }
        stage.kubelet.succeed(source, sink, &good).await.unwrap();
    }
    let over = stage.until_is("web", "Stalled").await.unwrap();
    assert_eq!(syncjob::text(&over, "/phase"), "PartiallyFailed");
    let work: Work = syncjob::part(&over, "/lastRun/work").unwrap();
    assert_eq!((work.files_created, work.files_failed), (6, 1));
    assert!(
        syncjob::message(&over, "Stalled").contains("Shard 2 of 3: 1 file failed"),
        "{:#}",
        over.data["status"]
    );
}

#[tokio::test]
async fn a_failed_shard_fails_the_run_and_all_shards_are_tried_again() {
    let (stage, _controller) = Stage::with_controller("failed-shard").await.unwrap();
    stage.sync("web", json!({"parallelism": COUNT})).await.unwrap();
    let shards = stage.kubelet.start_shards("web", COUNT, &[]).await.unwrap();
    end_both(&stage, &shards[1], 1, &bad_report("web-1", "NoSpace", "no space left")).await.unwrap();
    for at in [0, 2] {
        end_both(&stage, &shards[at], 5, &bad_report("web-1", "ShardLost", "shard 1/3 ended")).await.unwrap();
    }
    let waiting = stage.until_reason("web", "Reconciling", "Retrying").await.unwrap();
    let message = syncjob::message(&waiting, "Reconciling");
    assert!(message.contains("Shard 1 of 3: no space left"), "{message}");

    let known: Vec<&Pod> = shards.iter().flatten().collect();
    let again = stage.kubelet.start_shards("web", COUNT, &known).await.unwrap();
    for [source, sink] in &again {
        stage.kubelet.succeed(source, sink, &good_report("web-1.retry1")).await.unwrap();
    }
    let done = stage.until_is("web", "Ready").await.unwrap();
    assert_eq!(
        (syncjob::text(&done, "/lastRun/id"), &done.data["status"]["lastRun"]["retries"]),
        ("web-1", &json!(1))
    );
    stage.until_done("web").await.unwrap();
}

#[tokio::test]
async fn a_claim_for_one_pod_is_not_shared_and_the_field_is_named() {
    let (stage, _controller) = Stage::with_controller("one-pod").await.unwrap();
    stage.claim_with("single", "Bound", "ReadWriteOncePod").await.unwrap();
    let destination = json!({"persistentVolumeClaim": {"claimName": "single"}});
    stage.sync("web", json!({"parallelism": COUNT, "destination": destination})).await.unwrap();
    let stalled = stage.until_is("web", "Stalled").await.unwrap();
    assert!(syncjob::has_reason(&stalled, "Stalled", "ClaimNotShareable"), "{stalled:#?}");
    assert!(syncjob::message(&stalled, "Stalled").contains("Set spec.parallelism to 1"), "{stalled:#?}");
    assert_eq!(stage.children("web").unwrap(), [""; 0]);

    stage.patch("web", json!({"spec": {"parallelism": 1}})).await.unwrap();
    stage.kubelet.new_pod("web", Side::Sink, &[]).await.unwrap();
}

#[tokio::test]
async fn the_largest_run_fits_into_an_object_of_200_kib_with_what_the_api_server_adds() {
    const MOST: u32 = 64;
    let (stage, _controller) = Stage::with_controller("largest").await.unwrap();
    stage.sync("web", json!({"parallelism": MOST})).await.unwrap();
    let has_room = |run: &DynamicObject| syncjob::status(run, "/progress/shards/63").is_object();
    stage.run("web-1", "it has room for all reports", has_room).await.unwrap();
    // The longest report that the agent of a shard writes, by its own test.
    let report = Report { message: "x".repeat(400), ..good_report("web-1") };
    assert!((1000..=1200).contains(&json!(report).to_string().len()), "{}", json!(report).to_string().len());
    for shard in 0..MOST {
        for side in [Side::Source, Side::Sink] {
            let contact = json!({"fingerprint": format!("{shard:064x}"), "address": "10.100.100.100:8900"});
            let patch = json!([
                {"op": "add", "path": format!("/status/contacts/{side}-{shard}"), "value": contact},
                {"op": "add", "path": format!("/status/ends/{side}-{shard}"), "value": json!(report).to_string()},
            ]);
            let patch = Patch::Json::<()>(serde_json::from_value(patch).unwrap());
            let writer =
                PatchParams { field_manager: Some(format!("volferry-{side}-{shard}")), ..Default::default() };
            stage.runs.patch_status("web-1", &writer, &patch).await.unwrap();
        }
    }
    let size = serde_json::to_string(&stage.runs.get("web-1").await.unwrap()).unwrap().len();
    assert!(size < 200 << 10, "{size} bytes");
}

async fn end_both(stage: &Stage, [source, sink]: &[Pod; 2], exit: i32, report: &Report) -> Result<()> {
    let message = serde_json::to_string(report)?;
    stage.kubelet.end(source, exit, &message).await?;
    stage.kubelet.end(sink, exit, &message).await
}

/// Waits until Kubernetes has recorded the shard as failed in both Jobs.
async fn await_failed_index(stage: &Stage, index: &str) -> Result<()> {
    let jobs = stage.api::<Job>();
    for job in jobs.list(&ListParams::default()).await?.items {
        let failed = |job: &Job| {
            job.status.as_ref().and_then(|status| status.failed_indexes.as_deref()) == Some(index)
        };
        wait::until(&jobs, &job.name_any(), "the shard counts as failed", PATIENCE, failed).await?;
    }
    Ok(())
}
