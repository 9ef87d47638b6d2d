//! What the operator costs, as far as it can be counted: `make bench-operator` measures the rest, with more jobs.

use e2e::{cut::Cut, load, scripted::Stage, syncjob};
use serde_json::json;

const JOBS: usize = 30;
const LIMIT: usize = 6;
/// The most requests that a run costs. On a slow machine pods are late, and the operator looks for the reasons.
const REQUESTS: f64 = 40.0;
/// The most writes to statuses that a run costs.
const STATUS_WRITES: f64 = 15.0;

#[tokio::test]
async fn many_jobs_that_are_due_at_once_all_run_within_the_limit_and_cost_little_and_nothing_afterwards() {
    let stage = Stage::new("load").await.unwrap();
    let (controller, cost) = load::due_at_once(&stage, JOBS, LIMIT).await.unwrap();
    assert!(cost.most_at_once <= LIMIT, "{cost:#?}");
    assert!(cost.requests_per_run() < REQUESTS, "{cost:#?}");
    assert!(cost.status_writes_per_run() < STATUS_WRITES, "{cost:#?}");
    drop(controller);

    // One that starts anew looks at each job, and has something to write about the last one only.
    let controller = stage.controller(Cut::Never).await.unwrap();
    stage.sync("last", json!({"suspend": true})).await.unwrap();
    stage.until_is("last", "Ready").await.unwrap();
    for number in 0..JOBS {
        assert!(syncjob::is(&stage.jobs.get(&format!("job-{number}")).await.unwrap(), "Ready"));
    }
    let written: Vec<_> = controller.tally().into_iter().filter(|(kind, _)| is_write(kind)).collect();
    assert_eq!(written, [("PATCH syncjobs/status".to_string(), 1)]);
}

/// Whether a kind of request changes anything; events are not counted.
fn is_write(kind: &str) -> bool {
    !["GET", "LIST", "WATCH"].iter().any(|read| kind.starts_with(read)) && !kind.ends_with("events")
}
