//! The life of a SyncJob's runs, with a simulated kubelet.

use contract::{Fingerprint, Phase, Progress, RunResult, Timings, VolumeId, Work};
use kube::ResourceExt;

use crate::prelude::*;

#[tokio::test]
async fn a_run_goes_from_its_record_to_its_report() {
    let (stage, _controller) = Stage::with_controller("run").await.unwrap();
    stage.sync("web", json!({})).await.unwrap();
    let [source, sink] = stage.kubelet.start_both("web", &[]).await.unwrap();
    let running =
        stage.until("web", "it runs", |job| syncjob::text(job, "/phase") == "Running").await.unwrap();
    assert!(syncjob::has_reason(&running, "Reconciling", "Running") && syncjob::is(&running, "Reconciling"));
    assert_eq!(syncjob::text(&running, "/activeRun/id"), "web-1");

    let now =
        Progress { phase: Phase::Transfer, files: 1, files_total: 2, bytes: 5, bytes_total: 10, rate: 5 };
    let mut progress = serde_json::to_value(now).unwrap();
    progress["run"] = json!("web-1");
    stage.kubelet.publish(&sink, "/progress", &progress).await.unwrap();
    stage.kubelet.publish(&sink, "/stage", &json!("Running")).await.unwrap();
    let run = stage.run("web-1", "its stage is known", |run| syncjob::text(run, "/stage") == "Running").await;
    assert_eq!(syncjob::status(&run.unwrap(), "/progress/files"), 1);
    let report = good_report("web-1");
    stage.kubelet.succeed(&source, &sink, &report).await.unwrap();

    let done = stage.until("web", "it is done", is_done("web-1")).await.unwrap();
    assert!(syncjob::is(&done, "Ready"), "{done:#?}");
    assert_eq!(syncjob::part::<Work>(&done, "/lastRun/work").unwrap(), report.work);
    let timings: Timings = syncjob::part(&done, "/lastRun/timings").unwrap();
    assert_eq!((timings.scan, timings.transfer, timings.commit), (2, 7, 1));
    assert!(timings.total >= 10 && timings.pod_start > 0, "{timings:?}");
    assert_eq!(syncjob::text(&done, "/phase"), "Succeeded");
    assert_eq!(syncjob::status(&done, "/observedGeneration").as_i64(), done.metadata.generation);
    assert_eq!(syncjob::status(&done, "/history/0/id"), "web-1");
    assert!(!syncjob::is(&done, "Reconciling") && !syncjob::is(&done, "Stalled"));

    stage.kubelet.finish_deletions().await.unwrap();
    let over = stage.run("web-1", "it is done", |run| syncjob::text(run, "/stage") == "Done").await.unwrap();
    assert_eq!(syncjob::part::<Work>(&over, "/report/work").unwrap(), report.work);
    assert_eq!(over.data["spec"]["job"]["source"]["persistentVolumeClaim"]["claimName"], "from");
    assert_eq!((&over.data["spec"]["cause"], &over.data["spec"]["number"]), (&json!("Spec"), &json!(1)));
    assert!(syncjob::is(&over, "Ready"), "{over:#?}");
    let late = stage.kubelet.publish(&sink, "/progress", &progress).await;
    assert!(late.is_err(), "a late patch has an effect");
    // Nor has one that tests nothing, or takes all away.
    let thief = syncjob::runs(&stage.kubelet.client_of(&sink).await.unwrap(), &stage.namespace);
    for forged in [json!({"report": null}), json!({"stage": "Running"}), json!(null)] {
        let forged = Patch::Merge(json!({"status": forged}));
        let refused = thief.patch_status("web-1", &PatchParams::default(), &forged).await;
        assert!(refused.unwrap_err().to_string().contains("Done cannot change"));
    }
    let after = stage.runs.get("web-1").await.unwrap();
    assert_eq!(after.metadata.resource_version, over.metadata.resource_version);
}

#[tokio::test]
async fn a_syncrun_that_a_person_makes_is_a_run_now_and_one_that_is_deleted_ends_its_run() {
    let (stage, _controller) = Stage::with_controller("run-now").await.unwrap();
    stage.sync("web", json!({})).await.unwrap();
    let first = stage.kubelet.complete("web", &[]).await.unwrap();
    stage.until_is("web", "Ready").await.unwrap();

    let mut forced = syncjob::run_now("before-upgrade", "web");
    forced["spec"]["force"] = json!(true);
    syncjob::create(&stage.runs, forced).await.unwrap();
    let second = stage.kubelet.start_both("web", &first.each_ref()).await.unwrap();
    let is_forced = |pod: &Pod| {
        pod.spec.as_ref().unwrap().containers[0].args.iter().flatten().any(|arg| arg == "--force")
    };
    assert!(!is_forced(&first[0]) && is_forced(&second[0]), "{second:?}");
    let run = stage.runs.get("before-upgrade").await.unwrap();
    assert_eq!((&run.data["spec"]["cause"], &run.data["spec"]["number"]), (&json!("Manual"), &json!(2)));
    let changed = Patch::Merge(json!({"spec": {"number": 3}}));
    let refused = stage.runs.patch("before-upgrade", &PatchParams::default(), &changed).await;
    assert!(refused.unwrap_err().to_string().contains("cannot change"));
    let mut filled_in = syncjob::run_now("filled-in", "web");
    filled_in["spec"]["job"] = run.data["spec"]["job"].clone();
    let refused = syncjob::create(&stage.runs, filled_in).await;
    assert!(format!("{:#}", refused.unwrap_err()).contains("the operator fills in the other fields"));

    stage.runs.delete("before-upgrade", &Default::default()).await.unwrap();
    let releasing = stage.kubelet.release("web");
    let gone = async {
        let over = stage.until_is("web", "Stalled").await?;
        assert_eq!(syncjob::text(&over, "/lastRun/result"), "Canceled");
        assert!(syncjob::has_reason(&over, "Stalled", "RunDeleted"), "{over:#?}");
        for pod in &second {
            stage
                .kubectl
                .run_async(&["wait", "--for=delete", "pod", &pod.name_any(), "--timeout=60s"])
                .await?;
        }
        anyhow::Ok(())
    };
    tokio::select! {
        gone = gone => gone.unwrap(),
        error = releasing => panic!("{error:?}"),
    }
}

#[tokio::test]
async fn a_syncrun_that_names_no_syncjob_says_so_and_runs_once_there_is_one() {
    let (stage, _controller) = Stage::with_controller("stray").await.unwrap();
    syncjob::create(&stage.runs, syncjob::run_now("early", "web")).await.unwrap();
    let stalled = stage.run("early", "it is stalled", |run| syncjob::is(run, "Stalled")).await.unwrap();
    assert!(syncjob::has_reason(&stalled, "Stalled", "JobNotFound"), "{stalled:#?}");
    assert!(syncjob::message(&stalled, "Stalled").contains("no SyncJob web"), "{stalled:#?}");

    stage.sync("web", json!({"suspend": true})).await.unwrap();
    let waits = |run: &DynamicObject| syncjob::has_reason(run, "Reconciling", "Queued");
    let waiting = stage.run("early", "its SyncJob is known", waits).await.unwrap();
    assert!(!syncjob::is(&waiting, "Stalled"), "{waiting:#?}");
    stage.patch("web", json!({"spec": {"suspend": false}})).await.unwrap();
    stage.run("early", "it is begun", |run| syncjob::text(run, "/stage") == "Starting").await.unwrap();
    let job = stage.jobs.get("web").await.unwrap();
    assert_eq!(syncjob::text(&job, "/activeRun/id"), "early");
}

#[tokio::test]
async fn the_history_keeps_its_runs_and_the_pods_of_the_last_failed_one() {
    let (stage, _controller) = Stage::with_controller("history").await.unwrap();
    let limits = json!({"historyLimit": {"succeeded": 1, "failed": 1}, "limits": {"retries": 0}});
    stage.sync("web", limits).await.unwrap();
    let failed = stage.kubelet.start_both("web", &[]).await.unwrap();
    end_both(&stage, failed.each_ref(), 1, &bad_report("web-1", "NoSpace", "no space left")).await.unwrap();
    stage.until_is("web", "Stalled").await.unwrap();
    let over = stage.run("web-1", "it is done", |run| syncjob::text(run, "/stage") == "Done").await.unwrap();
    assert!(syncjob::is(&over, "Stalled"), "{over:#?}");

    let playing = stage.kubelet.play("web", Play::Succeeds);
    let script = async {
        for number in [2, 3] {
            stage.patch("web", json!({"spec": {"trigger": number.to_string()}})).await?;
            stage.until("web", "the next run is over", is_done(&format!("web-{number}"))).await?;
        }
        e2e::wait::until_gone(&stage.runs, "web-2", e2e::scripted::PATIENCE).await
    };
    tokio::select! {
        done = script => done.unwrap(),
        error = playing => panic!("{error:?}"),
    }
    let kept: Vec<String> = stage
        .runs
        .list(&ListParams::default())
        .await
        .unwrap()
        .items
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    assert_eq!(kept, ["web-1", "web-3"]);
    assert_eq!(stage.kept("web").await.unwrap(), ["web-1", "web-1", "web-3", "web-3"]);
    assert_eq!(stage.kubelet.pod(&failed[0].name_any()).await.unwrap().uid(), failed[0].uid());
}

#[tokio::test]
async fn the_pods_of_the_last_run_stay_for_their_logs_until_the_next_one_has_its_turn() {
    let (stage, _controller) = Stage::with_controller("logs").await.unwrap();
    let pods = stage.api::<Pod>();
    stage.sync("web", json!({"trigger": "one"})).await.unwrap();
    let first = stage.kubelet.complete("web", &[]).await.unwrap();
    stage.until_done("web").await.unwrap();
    assert_eq!(stage.kept("web").await.unwrap(), ["web-1"; 2]);

    // Pods that have ended do not hinder other jobs that use their claims.
    stage.sync("rival", json!({})).await.unwrap();
    let rival = stage.kubelet.start_both("rival", &[]).await.unwrap();
    stage.patch("web", json!({"spec": {"trigger": "two"}})).await.unwrap();
    stage.until_reason("web", "Reconciling", "WaitingForRun").await.unwrap();
    assert_eq!(stage.kept("web").await.unwrap(), ["web-1"; 2]);

    stage.kubelet.succeed(&rival[0], &rival[1], &good_report("rival-1")).await.unwrap();
    let second = stage.kubelet.start_both("web", &[]).await.unwrap();
    for pod in &first {
        e2e::wait::until_gone(&pods, &pod.name_any(), e2e::scripted::PATIENCE).await.unwrap();
    }
    stage.kubelet.succeed(&second[0], &second[1], &good_report("web-2")).await.unwrap();
    stage.until("web", "it is done again", is_done("web-2")).await.unwrap();
    assert_eq!(stage.kept("web").await.unwrap(), ["web-2"; 2]);

    stage.runs.delete("web-2", &Default::default()).await.unwrap();
    for pod in &second {
        e2e::wait::until_gone(&pods, &pod.name_any(), e2e::scripted::PATIENCE).await.unwrap();
    }
}

#[tokio::test]
async fn a_contact_is_written_once_in_each_try_and_late_ones_have_no_effect() {
    let (stage, _controller) = Stage::with_controller("contacts").await.unwrap();
    stage.sync("web", json!({"limits": {"retries": 1}})).await.unwrap();
    let contact =
        |key: &str| json!({"fingerprint": Fingerprint::of(key.as_bytes()), "address": "10.1.2.3:8900"});
    let [source, sink] = stage.kubelet.start_both("web", &[]).await.unwrap();
    let kubelet = &stage.kubelet;
    let offer = async |pod, key| kubelet.publish(pod, "/contacts/sink", &contact(key)).await;
    offer(&sink, "first").await.unwrap();
    offer(&sink, "first").await.unwrap();
    let refused = format!("{:?}", offer(&source, "another").await.unwrap_err());
    assert!(refused.contains("the contact of an end is written once in a try"), "{refused}");
    let short = json!({"fingerprint": "00"});
    stage.kubelet.publish(&source, "/contacts/source", &short).await.unwrap_err();

    end_both(&stage, [&source, &sink], 5, &bad_report("web-1", "PeerLost", "gone")).await.unwrap();
    let [_, again] = stage.kubelet.start_both("web", &[&source, &sink]).await.unwrap();
    let run = stage.runs.get("web-1").await.unwrap();
    assert_eq!(syncjob::status(&run, "/contacts"), &json!({}), "contacts of pods that are gone");
    offer(&sink, "late").await.unwrap_err();
    offer(&again, "second").await.unwrap();
    let run = stage.runs.get("web-1").await.unwrap();
    assert_eq!(syncjob::status(&run, "/contacts/sink"), &contact("second"));
}

#[tokio::test]
async fn nothing_runs_while_suspended_and_a_trigger_asks_for_one_run() {
    let (stage, _controller) = Stage::with_controller("trigger").await.unwrap();
    stage.sync("web", json!({"suspend": true})).await.unwrap();
    let suspended = stage.until_is("web", "Ready").await.unwrap();
    assert!(syncjob::has_reason(&suspended, "Ready", "Suspended"));
    assert_eq!(syncjob::text(&suspended, "/phase"), "Suspended");
    assert_eq!(stage.children("web").unwrap(), [""; 0]);

    let playing = stage.kubelet.play("web", Play::Succeeds);
    let script = async {
        stage.patch("web", json!({"spec": {"suspend": false}})).await?;
        stage.until("web", "the first run is over", is_done("web-1")).await?;
        stage.patch("web", json!({"spec": {"trigger": "again"}})).await?;
        let second = stage.until("web", "the second run is over", is_done("web-2")).await?;
        assert_eq!(syncjob::text(&second, "/lastTrigger"), "again");
        // Suspending and resuming requests no run that was not due; labels are no part of the spec.
        stage.patch("web", json!({"metadata": {"labels": {"a": "b"}}})).await?;
        stage.patch("web", json!({"spec": {"trigger": "and again"}})).await?;
        stage.until("web", "the third run is over", is_done("web-3")).await
    };
    let third = tokio::select! {
        third = script => third.unwrap(),
        error = playing => panic!("{error:?}"),
    };
    let history = syncjob::status(&third, "/history").as_array().unwrap();
    let ids: Vec<_> = history.iter().map(|run| run["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["web-3", "web-2", "web-1"]);
}

#[tokio::test]
async fn a_failed_run_is_tried_again_under_its_name_and_given_up_in_the_end() {
    let (stage, _controller) = Stage::with_controller("retry").await.unwrap();
    stage.sync("web", json!({"limits": {"retries": 1}})).await.unwrap();
    let [source, sink] = stage.kubelet.start_both("web", &[]).await.unwrap();
    let lost = bad_report("web-1", "PeerLost", "the peer went away");
    end_both(&stage, [&source, &sink], 5, &lost).await.unwrap();
    let waiting = stage.until_reason("web", "Reconciling", "Retrying").await.unwrap();
    assert_eq!(syncjob::status(&waiting, "/activeRun/retries"), 1);
    assert!(syncjob::message(&waiting, "Reconciling").contains("the peer went away"));

    let [source, sink] = stage.kubelet.start_both("web", &[&source, &sink]).await.unwrap();
    let lost = bad_report("web-1.retry1", "PeerLost", "the peer went away again");
    end_both(&stage, [&source, &sink], 5, &lost).await.unwrap();
    let over = stage.until_is("web", "Stalled").await.unwrap();
    assert!(!syncjob::is(&over, "Ready") && !syncjob::is(&over, "Reconciling"));
    assert_eq!(syncjob::text(&over, "/lastRun/id"), "web-1");
    assert_eq!(syncjob::status(&over, "/lastRun/retries"), 1);
    assert_eq!(syncjob::text(&over, "/lastRun/reason"), "PeerLost");
    assert!(syncjob::message(&over, "Stalled").contains("the peer went away again"), "{over:#?}");

    let playing = stage.kubelet.play("web", Play::Succeeds);
    stage.patch("web", json!({"spec": {"trigger": "after repair"}})).await.unwrap();
    tokio::select! {
        done = stage.until_is("web", "Ready") => assert_eq!(syncjob::text(&done.unwrap(), "/lastRun/id"), "web-2"),
        error = playing => panic!("{error:?}"),
    }
}

#[tokio::test]
async fn what_another_try_cannot_help_is_not_tried_again() {
    let (stage, _controller) = Stage::with_controller("hopeless").await.unwrap();
    for (number, (exit, reason)) in
        [(4, "DeleteLimitExceeded"), (6, "IdentityRefused")].into_iter().enumerate()
    {
        let (name, run) = (format!("job{number}"), format!("job{number}-1"));
        stage.sync(&name, json!({})).await.unwrap();
        let pods = stage.kubelet.start_both(&name, &[]).await.unwrap();
        let report = bad_report(&run, reason, "no way");
        end_both(&stage, pods.each_ref(), exit, &report).await.unwrap();
        let over = stage.until_is(&name, "Stalled").await.unwrap();
        assert!(syncjob::has_reason(&over, "Stalled", reason), "{over:#?}");
        assert_eq!(syncjob::status(&over, "/lastRun/retries"), 0);
        assert_eq!(syncjob::text(&over, "/lastRun/result"), "Failed");
    }
}

#[tokio::test]
async fn the_destination_of_the_last_success_is_expected_until_a_person_accepts_another() {
    let (stage, _controller) = Stage::with_controller("destination").await.unwrap();
    stage.sync("web", json!({})).await.unwrap();
    let first = stage.kubelet.start_both("web", &[]).await.unwrap();
    assert_eq!(first.each_ref().map(expected_volume), [None, None]);
    let volume = VolumeId::new([7; 16]);
    let report = Report { volume: Some(volume), ..good_report("web-1") };
    stage.kubelet.succeed(&first[0], &first[1], &report).await.unwrap();
    let done = stage.until_is("web", "Ready").await.unwrap();
    assert_eq!(syncjob::text(&done, "/destination/volume"), volume.to_string());
    assert_eq!(syncjob::text(&done, "/destination/claimName"), "to");

    stage.patch("web", json!({"spec": {"trigger": "two"}})).await.unwrap();
    let second = stage.kubelet.start_both("web", &first.each_ref()).await.unwrap();
    assert_eq!(second.each_ref().map(expected_volume), [Some(volume), Some(volume)]);
    let refused = bad_report("web-2", "OtherDestination", "the destination is not the expected one");
    end_both(&stage, second.each_ref(), 4, &refused).await.unwrap();
    let refused = stage.until_is("web", "Stalled").await.unwrap();
    assert!(syncjob::has_reason(&refused, "Stalled", "OtherDestination"), "{refused:#?}");
    assert!(syncjob::message(&refused, "Stalled").contains("volferry.dev/accept-volume"), "{refused:#?}");
    assert_eq!(syncjob::text(&refused, "/destination/volume"), volume.to_string());

    // That starts a run, too.
    let other = VolumeId::new([8; 16]);
    let accepted = json!({"volferry.dev/accept-volume": other.to_string()});
    stage.patch("web", json!({"metadata": {"annotations": accepted}})).await.unwrap();
    let known: Vec<&Pod> = first.iter().chain(&second).collect();
    let third = stage.kubelet.start_both("web", &known).await.unwrap();
    assert_eq!(third.each_ref().map(expected_volume), [Some(other), Some(other)]);
}

#[tokio::test]
async fn a_run_with_failed_files_is_partial_and_names_them() {
    let (stage, _controller) = Stage::with_controller("partial").await.unwrap();
    stage.sync("web", json!({"limits": {"retries": 0}})).await.unwrap();
    let pods = stage.kubelet.start_both("web", &[]).await.unwrap();
    let failure =
        contract::Failure { path: "a/b".into(), operation: "read".into(), error: "Permission denied".into() };
    let good = good_report("web-1");
    let report = Report {
        result: RunResult::PartiallyFailed,
        reason: Some("FilesFailed".into()),
        message: "1 file failed".into(),
        work: Work { files_failed: 1, ..good.work },
        failures: vec![failure],
        ..good
    };
    end_both(&stage, pods.each_ref(), 3, &report).await.unwrap();
    let over = stage.until("web", "the run is over", is_done("web-1")).await.unwrap();
    assert!(!syncjob::is(&over, "Ready"));
    assert_eq!(syncjob::text(&over, "/phase"), "PartiallyFailed");
    assert_eq!(syncjob::text(&over, "/lastRun/failures/0/path"), "a/b");
    assert_eq!(syncjob::part::<Work>(&over, "/lastRun/work").unwrap().files_failed, 1);
}

#[tokio::test]
async fn a_report_that_only_the_termination_message_holds_is_not_lost() {
    let (stage, _controller) = Stage::with_controller("message").await.unwrap();
    stage.sync("web", json!({})).await.unwrap();
    let [source, sink] = stage.kubelet.start_both("web", &[]).await.unwrap();
    let report = good_report("web-1");
    let message = serde_json::to_string(&report).unwrap();
    stage.kubelet.end(&source, 0, &message).await.unwrap();
    stage.kubelet.end(&sink, 0, &message).await.unwrap();
    let done = stage.until_is("web", "Ready").await.unwrap();
    assert_eq!(syncjob::part::<Work>(&done, "/lastRun/work").unwrap(), report.work);
}

#[tokio::test]
async fn a_run_that_takes_too_long_is_stopped() {
    let (stage, _controller) = Stage::with_controller("timeout").await.unwrap();
    stage.sync("web", json!({"limits": {"timeout": "2s"}})).await.unwrap();
    let [source, sink] = stage.kubelet.start_both("web", &[]).await.unwrap();
    let over = stage.until_is("web", "Stalled").await.unwrap();
    assert!(syncjob::has_reason(&over, "Stalled", "TimedOut"), "{over:#?}");
    assert!(syncjob::message(&over, "Stalled").contains("spec.limits.timeout"));
    for (side, pod) in [(Side::Source, source), (Side::Sink, sink)] {
        let deleted = stage.kubelet.deleted_pod("web", side).await.unwrap();
        assert_eq!(deleted.metadata.uid, pod.metadata.uid);
    }
}

#[tokio::test]
async fn a_controller_that_finds_nothing_to_do_writes_nothing() {
    let (stage, controller) = Stage::with_controller("idle").await.unwrap();
    stage.sync("web", json!({})).await.unwrap();
    tokio::select! {
        done = stage.until_done("web") => done.unwrap(),
        error = stage.kubelet.play("web", Play::Succeeds) => panic!("{error:?}"),
    }
    drop(controller);
    let before = stage.jobs.get("web").await.unwrap();

    // The controller has read all jobs once it has handled a suspended job that was created after them.
    let controller = stage.controller(Cut::Never).await.unwrap();
    stage.sync("zzz", json!({"suspend": true})).await.unwrap();
    stage.until_is("zzz", "Ready").await.unwrap();
    assert_eq!(controller.writes(), 1, "the status of the second job, and nothing of the first");
    let after = stage.jobs.get("web").await.unwrap();
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);
}

async fn end_both(
    stage: &Stage,
    [source, sink]: [&Pod; 2],
    exit: i32,
    report: &Report,
) -> anyhow::Result<()> {
    let message = serde_json::to_string(report)?;
    stage.kubelet.end(source, exit, &message).await?;
    stage.kubelet.end(sink, exit, &message).await
}

/// Returns the id of the destination's volume that a pod's syncer has to expect.
fn expected_volume(pod: &Pod) -> Option<VolumeId> {
    let args = pod.spec.as_ref()?.containers[0].args.as_ref()?;
    args.iter().find_map(|arg| arg.strip_prefix("--expect-volume="))?.parse().ok()
}

pub(crate) fn is_done(run: &str) -> impl Fn(&DynamicObject) -> bool {
    move |job| syncjob::text(job, "/lastRun/id") == run && syncjob::status(job, "/activeRun").is_null()
}

/// The pods of the replaced run are told to stop, and the next run waits until they have gone.
#[tokio::test]
async fn with_replace_a_new_trigger_stops_the_run_in_progress() {
    let (stage, _controller) = Stage::with_controller("replace").await.unwrap();
    stage.sync("web", json!({"trigger": "one", "concurrencyPolicy": "Replace"})).await.unwrap();
    let [source, sink] = stage.kubelet.start_both("web", &[]).await.unwrap();
    stage.until("web", "it runs", |job| syncjob::text(job, "/phase") == "Running").await.unwrap();
    stage.patch("web", json!({"spec": {"trigger": "two"}})).await.unwrap();
    for side in [Side::Source, Side::Sink] {
        stage.kubelet.deleted_pod("web", side).await.unwrap();
    }
    stage.kubelet.finish_deletions().await.unwrap();
    stage.kubelet.complete("web", &[&source, &sink]).await.unwrap();
    let done = stage.until_is("web", "Ready").await.unwrap();
    assert_eq!(syncjob::text(&done, "/lastRun/id"), "web-2");
    let first = syncjob::status(&done, "/history/1");
    assert_eq!((&first["result"], &first["reason"]), (&"Canceled".into(), &"Replaced".into()), "{done:#?}");
}
