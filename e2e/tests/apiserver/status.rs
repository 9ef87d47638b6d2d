//! A SyncJob's status and events: before the operator has seen it, of several runs, and of a run that left files out.

use contract::{Failure, RunResult, Timings, Work};
use k8s_openapi::api::{core::v1::Namespace, events::v1::Event};
use kube::api::Api;

use crate::prelude::*;

#[tokio::test]
async fn a_job_that_no_operator_has_seen_is_not_current() {
    let stage = Stage::new("unseen").await.unwrap();
    let created = stage.sync("web", json!({})).await.unwrap();
    let read = stage.jobs.get("web").await.unwrap();
    for job in [&created, &read] {
        assert_eq!(syncjob::status(job, "/observedGeneration"), -1, "{job:#?}");
    }
    let read = stage.kubectl.run(&["get", "syncjob", "web", "-o", "jsonpath={.status}"]).unwrap();
    assert_eq!(read, r#"{"observedGeneration":-1}"#);
}

#[tokio::test]
async fn the_columns_say_how_a_job_stands() {
    let (stage, _controller) = Stage::with_controller("columns").await.unwrap();
    stage.sync("web", json!({"schedule": {"interval": "24h"}})).await.unwrap();
    stage.kubelet.complete("web", &[]).await.unwrap();
    let done = stage.until_is("web", "Synced").await.unwrap();
    let (next, took) = (syncjob::text(&done, "/nextRunTime"), syncjob::text(&done, "/summary/duration"));
    let printed = |more: &[&str]| {
        let printed = stage.kubectl.run(&[&["get", "syncjob", "web"], more].concat()).unwrap();
        let mut lines = printed.lines();
        let of_line = |line: &str| -> Vec<String> {
            // Columns are at least three blanks apart; words of a header or a message are one blank apart.
            line.split("   ").map(|cell| cell.trim().to_string()).filter(|cell| !cell.is_empty()).collect()
        };
        let (header, row) = (of_line(lines.next().unwrap()), of_line(lines.next().unwrap()));
        header.into_iter().zip(row).collect::<Vec<_>>()
    };
    let narrow = printed(&[]);
    let cell = |name: &str, value: &str| (name.to_string(), value.to_string());
    for there in [
        cell("READY", "True"),
        cell("SYNCED", "True"),
        cell("PHASE", "Succeeded"),
        cell("NEXT", next),
        cell("DURATION", took),
        cell("SUSPENDED", "false"),
    ] {
        assert!(narrow.contains(&there), "{there:?}: {narrow:?}");
    }
    assert!(
        narrow.iter().any(|(name, ago)| name == "LAST SUCCESS" && !ago.contains("invalid")),
        "{narrow:?}"
    );
    let wide = printed(&["-o", "wide"]);
    for there in [cell("SOURCE", "from"), cell("DESTINATION", "to")] {
        assert!(wide.contains(&there), "{there:?}: {wide:?}");
    }
    assert!(wide.iter().any(|(name, said)| name == "MESSAGE" && said.starts_with("Run web-1")), "{wide:?}");
}

#[tokio::test]
async fn each_run_has_an_event_with_its_own_words() {
    let (stage, _controller) = Stage::with_controller("events").await.unwrap();
    let playing = stage.kubelet.play("web", Play::Succeeds);
    let script = async {
        stage.sync("web", json!({})).await?;
        // The event follows the status, and precedes the next run.
        for run in 1..=4 {
            let over = |job: &DynamicObject| {
                syncjob::is(job, "Ready") && syncjob::status(job, "/lastRun/number") == run
            };
            stage.until("web", "the run is over", over).await?;
            stage.patch("web", json!({"spec": {"trigger": run.to_string()}})).await?;
        }
        anyhow::Ok(())
    };
    tokio::select! {
        done = script => done.unwrap(),
        error = playing => panic!("{error:?}"),
    }
    let events = stage.api::<Event>();
    let events = events.list(&ListParams::default().fields("reason=Succeeded")).await.unwrap();
    let mut notes: Vec<_> = events.items.into_iter().filter_map(|event| event.note).collect();
    notes.sort();
    let runs: Vec<_> = notes.iter().take(3).map(|note| note.split(':').next().unwrap()).collect();
    assert_eq!(runs, ["Run web-1", "Run web-2", "Run web-3"]);
    let described = stage.kubectl.run(&["describe", "syncjob", "web"]).unwrap();
    assert!(described.contains("Run web-3: "), "{described}");
}

#[tokio::test]
async fn a_job_whose_runs_become_slower_says_by_how_much_until_they_are_as_usual() {
    let (stage, _controller) = Stage::with_controller("slower").await.unwrap();
    stage.sync("web", json!({"regression": {"window": 3}, "historyLimit": {"succeeded": 3}})).await.unwrap();
    let regressed = |job: &DynamicObject| syncjob::is(job, "PerformanceRegressed");
    let mut known: Vec<k8s_openapi::api::core::v1::Pod> = Vec::new();
    let took = [4_000, 4_000, 4_000, 9_000, 9_000, 9_000, 4_000];
    for (run, transfer) in (1..).zip(took) {
        let [source, sink] = stage.kubelet.start_any(&known).await.unwrap();
        let mut report = good_report(&format!("web-{run}"));
        report.work = Work { files_scanned: 5_000, files_updated: 10, ..Work::default() };
        report.timings = Timings { scan: 1_000, transfer, total: transfer + 1_000, ..Timings::default() };
        stage.kubelet.succeed(&source, &sink, &report).await.unwrap();
        let over =
            |job: &DynamicObject| syncjob::is(job, "Ready") && syncjob::status(job, "/lastRun/number") == run;
        let job = stage.until("web", "the run is over", over).await.unwrap();
        assert_eq!(regressed(&job), run == 6, "run {run}: {job:#?}");
        if run == 6 {
            let message = syncjob::message(&job, "PerformanceRegressed");
            assert!(message.contains("2.00 times as long as usual; transfer has grown most"), "{message}");
        }
        known.extend([source, sink]);
        stage.patch("web", json!({"spec": {"trigger": run.to_string()}})).await.unwrap();
    }
    let events = stage.api::<Event>();
    for reason in ["PerformanceRegressed", "PerformanceRecovered"] {
        // An event follows the status that it reports.
        let is_it = |event: &Event| event.reason.as_deref() == Some(reason);
        wait::until_any(&events, "", reason, PATIENCE, is_it).await.unwrap();
        let of_reason = ListParams::default().fields(&format!("reason={reason}"));
        assert_eq!(events.list(&of_reason).await.unwrap().items.len(), 1, "{reason}");
    }
}

#[tokio::test]
async fn a_run_that_left_files_out_is_incomplete_and_not_ready() {
    let (stage, _controller) = Stage::with_controller("incomplete").await.unwrap();
    stage.sync("web", json!({"limits": {"retries": 0}})).await.unwrap();
    let [source, sink] = stage.kubelet.start_both("web", &[]).await.unwrap();
    let error = "Permission denied (os error 13)".into();
    let failure = Failure { path: "secret/key".into(), operation: "read".into(), error };
    let mut report = Report {
        result: RunResult::PartiallyFailed,
        failures: vec![failure],
        ..bad_report("web-1", "SomeFilesFailed", "1 failed")
    };
    report.work.files_failed = 1;
    let message = serde_json::to_string(&report).unwrap();
    stage.kubelet.end(&source, 3, &message).await.unwrap();
    stage.kubelet.end(&sink, 3, &message).await.unwrap();

    let over = stage.until_is("web", "Incomplete").await.unwrap();
    assert!(syncjob::is(&over, "Stalled") && !syncjob::is(&over, "Ready"), "{over:#?}");
    assert!(syncjob::message(&over, "Incomplete").contains("left out 1 entry;"), "{over:#?}");
    assert!(
        syncjob::message(&over, "Incomplete").contains("secret/key (read: Permission denied"),
        "{over:#?}"
    );
    let stalled = syncjob::message(&over, "Stalled");
    assert!(stalled.contains("volferry.dev/privileged-syncers: \"true\""), "{stalled}");
}

#[tokio::test]
async fn a_namespaces_annotation_that_is_neither_true_nor_false_is_reported() {
    let stage = Stage::new("annotation").await.unwrap();
    let annotation = json!({"metadata": {"annotations": {"volferry.dev/privileged-syncers": "yes"}}});
    let namespaces = Api::<Namespace>::all(stage.client.clone());
    namespaces.patch(&stage.namespace, &PatchParams::default(), &Patch::Merge(annotation)).await.unwrap();
    let _controller = stage.controller(e2e::cut::Cut::Never).await.unwrap();
    stage.sync("web", json!({})).await.unwrap();
    let stalled = stage.until_is("web", "Stalled").await.unwrap();
    assert!(syncjob::has_reason(&stalled, "Stalled", "InvalidAnnotation"), "{stalled:#?}");
    assert!(syncjob::message(&stalled, "Stalled").contains("privileged-syncers is \"yes\""), "{stalled:#?}");
    assert_eq!(stage.children("web").unwrap(), [""; 0]);
}
