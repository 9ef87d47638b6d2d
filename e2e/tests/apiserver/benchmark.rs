//! Benchmarks between the volumes of a SyncJob, with a simulated kubelet.

use contract::{BenchFigures, BenchPlace, BenchStep, BenchStepName, BenchTree, Timings};

use e2e::{
    apiserver::{ApiServer, User},
    tutorial::Tutorial,
};

use crate::plugin;
use crate::prelude::*;

/// Returns the report of one end of a benchmark, with the storage of the volumes that it knows.
fn found(run: &str, source: Option<&str>, destination: Option<&str>) -> Report {
    let place = |device: &str| BenchPlace { device: device.into(), ..BenchPlace::default() };
    let took = Report { timings: Timings { total: 812, ..Timings::default() }, ..Report::default() };
    let figures = BenchFigures {
        bench: BenchTree::named("small").unwrap(),
        start_time: "2026-11-23T10:00:00Z".into(),
        source: source.map(place),
        destination: destination.map(place),
        steps: BenchStepName::ALL
            .into_iter()
            .filter_map(|it| BenchStep::of(it, std::slice::from_ref(&took)))
            .collect(),
        notes: Vec::new(),
    };
    Report { benchmark: Some(Box::new(figures)), ..good_report(run) }
}

fn benchmark(name: &str, spec: Value) -> Value {
    let mut run = syncjob::run_now(name, "web");
    run["spec"]["benchmark"] = spec;
    run
}

#[tokio::test]
async fn a_benchmark_is_asked_for_within_bounds() {
    let (stage, _controller) = Stage::with_controller("benchmark-bounds").await.unwrap();
    for (spec, words) in [
        (json!({"tree": "huge"}), "supported values"),
        (json!({"tree": "small", "files": [{"count": 1, "bytes": 1}]}), "remove one of the two"),
        (json!({"files": []}), "at least 1 items"),
        (json!({"files": [{"count": 0, "bytes": 1}]}), "greater than or equal to 1"),
        (json!({"changePercent": 101}), "less than or equal to 100"),
        (json!({"rounds": 0}), "greater than or equal to 1"),
    ] {
        let refused = syncjob::create(&stage.runs, benchmark("b", spec.clone())).await.unwrap_err();
        assert!(format!("{refused:#}").contains(words), "{spec}: {refused:#}");
    }
    let mut both = benchmark("b", json!({}));
    both["spec"]["restore"] = json!({"snapshot": "gold"});
    let refused = syncjob::create(&stage.runs, both).await.unwrap_err();
    assert!(format!("{refused:#}").contains("restore or benchmark"), "{refused:#}");
}

#[tokio::test]
async fn a_benchmark_of_two_pods_says_what_it_found_and_counts_as_no_run() {
    let (stage, _controller) = Stage::with_controller("benchmark").await.unwrap();
    stage.sync("web", json!({"suspend": true})).await.unwrap();
    stage.until("web", "it is suspended", |job| syncjob::text(job, "/phase") == "Suspended").await.unwrap();
    let asked = benchmark("fast", json!({"tree": "small", "rounds": 1}));
    syncjob::create(&stage.runs, asked).await.unwrap();
    let [source, sink] = stage.kubelet.start_both("web", &[]).await.unwrap();
    for (pod, end) in [(&source, "--end=source"), (&sink, "--end=sink")] {
        let args = pod.spec.as_ref().unwrap().containers[0].args.as_ref().unwrap().join(" ");
        assert!(args.contains(" /volferry bench /") && args.contains(end), "{args}");
    }
    let ends = [(Some("/dev/a"), None), (None, Some("/dev/b"))].map(|(from, to)| found("fast", from, to));
    stage.kubelet.end(&source, 0, &serde_json::to_string(&ends[0]).unwrap()).await.unwrap();
    stage.kubelet.end(&sink, 0, &serde_json::to_string(&ends[1]).unwrap()).await.unwrap();

    let done = stage
        .until("web", "the benchmark is over", |job| {
            syncjob::text(job, "/lastBenchmark/id") == "fast" && syncjob::text(job, "/phase") == "Suspended"
        })
        .await
        .unwrap();
    for absent in ["/lastRun", "/history", "/lastSuccessTime", "/baseline", "/destination", "/notes"] {
        assert!(syncjob::status(&done, absent).is_null(), "{absent}: {done:#?}");
    }
    let run = stage.run("fast", "it is done", |run| syncjob::text(run, "/stage") == "Done").await.unwrap();
    assert_eq!(run.data["spec"]["cause"], "Benchmark");
    let figures: BenchFigures = syncjob::part(&run, "/report/benchmark").unwrap();
    let devices = [figures.source, figures.destination].map(|place| place.unwrap().device);
    assert_eq!(devices, ["/dev/a", "/dev/b"]);
    assert_eq!(figures.steps.len(), 3);
    let ready = syncjob::condition(&run, "Ready").unwrap();
    assert_eq!(ready["message"], "Benchmark fast: first 812ms, unchanged 812ms, changed 812ms.");

    stage.patch("web", json!({"spec": {"suspend": false}})).await.unwrap();
    stage.kubelet.complete("web", &[&source, &sink]).await.unwrap();
    let ready = stage.until_is("web", "Ready").await.unwrap();
    assert_eq!(syncjob::text(&ready, "/lastRun/cause"), "Spec", "the first run was still due");
    stage.until_done("web").await.unwrap();
    assert!(stage.runs.get("fast").await.is_ok(), "the result stays");
}

#[tokio::test]
async fn the_plugin_asks_for_a_benchmark_in_one_pod_and_prints_its_table() {
    let (stage, _controller) = Stage::with_controller("benchmark-plugin").await.unwrap();
    stage.sync("web", json!({"suspend": true, "transfer": {"placement": "Local"}})).await.unwrap();
    let asked = ["bench", "web", "--tree", "small", "--rounds", "2", "--wait"];
    let (told, ()) = tokio::join!(plugin::told(&stage, &asked), measures(&stage, "web", 1));
    let steps: Vec<_> = told.lines().filter(|line| line.contains("812 ms")).collect();
    assert!(told.contains(" on /dev/b ") && steps.len() == 3, "{told}");
}

/// Simulates the pods of that many benchmarks of a job, one after the other.
async fn measures(stage: &Stage, job: &str, benchmarks: usize) {
    let mut pods: Vec<Pod> = Vec::new();
    for _ in 0..benchmarks {
        let known: Vec<_> = pods.iter().collect();
        let pod = stage.kubelet.new_pod(job, Side::Sink, &known).await.unwrap();
        stage.kubelet.start(&pod).await.unwrap();
        let active = stage.jobs.get(job).await.unwrap();
        let report = found(syncjob::text(&active, "/activeRun/id"), Some("/dev/a"), Some("/dev/b"));
        stage.kubelet.end(&pod, 0, &serde_json::to_string(&report).unwrap()).await.unwrap();
        pods.push(pod);
    }
}

#[tokio::test]
async fn the_commands_of_the_page_on_benchmarks_are_carried_out() {
    let (stage, _controller) = Stage::with_controller("benchmark-page").await.unwrap();
    stage.sync("web-assets", json!({"suspend": true, "transfer": {"placement": "Local"}})).await.unwrap();
    let (folder, kubeconfig) = (tempfile::tempdir().unwrap(), ApiServer::shared().kubeconfig(User::Admin));
    let page = Tutorial::open("../benchmark", folder.path(), &kubeconfig, &stage.namespace).await.unwrap();
    let (done, ()) = tokio::join!(page.follow(0..=0), measures(&stage, "web-assets", 2));
    done.unwrap();
}
