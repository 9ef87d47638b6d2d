//! Benchmarks between the volumes of SyncJobs: over the network, and in one pod.

use contract::{BenchFigures, BenchStepName};

use crate::prelude::*;

/// A script that prints the owner, the mode and the modification time of every entry.
const STATE: &str = "find . -mindepth 1 -exec stat -c '%n %u %g %a %y' {} + | sort";

fn state(volumes: &[&Volume]) -> Vec<Vec<u8>> {
    volumes.iter().map(|volume| volume.shell(STATE).unwrap()).collect()
}

fn has_ended(run: &DynamicObject) -> bool {
    !syncjob::status(run, "/report").is_null()
}

/// Both benchmarks read one volume, so one waits for the other.
#[tokio::test]
async fn benchmarks_name_their_volumes_and_nodes_and_leave_the_volumes_as_they_were() {
    let sandbox = Sandbox::new("benchmark").await;
    let from = sandbox.volume("from", 0).await.unwrap();
    let far = sandbox.volume("far", 1).await.unwrap();
    let near = sandbox.volume("near", 0).await.unwrap();
    from.shell_as_syncer("echo content > file; touch -d 2001-01-01 file").unwrap();
    let before = state(&[&from, &far, &near]);
    for (job, placement) in [("far", "Network"), ("near", "Local")] {
        let claim = |name: &str| json!({"persistentVolumeClaim": {"claimName": name}});
        let transfer = json!({"placement": placement});
        let spec = json!({"source": claim("from"), "destination": claim(job), "transfer": transfer, "suspend": true});
        sandbox.sync(job, spec).await.unwrap();
        syncjob::create(&sandbox.runs, benchmark(job)).await.unwrap();
    }
    for (job, nodes) in [("far", 2), ("near", 1)] {
        let patience = e2e::cluster::PATIENCE;
        let run = wait::until(&sandbox.runs, job, "it has ended", patience, has_ended).await.unwrap();
        assert_eq!(syncjob::text(&run, "/report/result"), "Succeeded", "{run:#?}");
        let found: BenchFigures = syncjob::part(&run, "/report/benchmark").unwrap();
        assert_eq!(found.steps.iter().map(|it| it.step).collect::<Vec<_>>(), BenchStepName::ALL);
        let places = [found.source, found.destination].map(Option::unwrap);
        for place in &places {
            assert!(!place.file_system.is_empty() && !place.device.is_empty(), "{place:?}");
            assert!(!place.machine.kernel.is_empty() && place.storage_class.is_some(), "{place:?}");
        }
        let mut on: Vec<_> = places.into_iter().map(|place| place.node.unwrap()).collect();
        on.dedup();
        assert_eq!(on.len(), nodes, "{on:?}");
        let is_over = |job: &DynamicObject| syncjob::text(job, "/phase") == "Suspended";
        let job = sandbox.until(job, "it is suspended again", is_over).await.unwrap();
        assert!(syncjob::status(&job, "/lastRun").is_null(), "{job:#?}");
    }
    assert_eq!(state(&[&from, &far, &near]), before);
}

fn benchmark(job: &str) -> Value {
    let mut run = syncjob::run_now(job, job);
    let files = json!([{"count": 50, "bytes": 4096, "folders": 5}, {"count": 1, "bytes": 3_000_000}]);
    run["spec"]["benchmark"] = json!({"files": files, "rounds": 1});
    run
}
