//! The operator's cost in requests and writes; `make bench-operator` measures the rest, with more jobs.

use e2e::load::{self, Cost, Loaded};

use crate::prelude::*;

const JOBS: usize = 40;
const LIMIT: usize = 20;
/// The largest number of requests of a run: of the first run of a SyncJob, and of a later one, which removes the
/// remains of the run before. [`OF_LATE_PODS`] are not among them.
const REQUESTS: [f64; 2] = [20.0, 22.0];
/// The most writes to statuses that a run costs. It takes 5; more tell of a late pod.
const STATUS_WRITES: f64 = 8.5;
/// The requests by which the operator searches for what keeps pods, which are late on a slow machine.
const OF_LATE_PODS: [&str; 2] = ["LIST events", "LIST pods"];

#[tokio::test]
async fn many_jobs_that_are_due_at_once_all_run_within_the_limit_and_cost_little_and_nothing_afterwards() {
    let stage = Stage::new("load").await.unwrap();
    let Loaded { controller, cost } = load::due_at_once(&stage, JOBS, LIMIT).await.unwrap();
    check(&cost, REQUESTS[0]);
    drop(controller);
    let Loaded { controller, cost } = load::due_again(&stage, JOBS, LIMIT, 2).await.unwrap();
    check(&cost, REQUESTS[1]);
    drop(controller);

    // A controller that starts again reads every job, and has to write only about the last one.
    let controller = stage.controller(Cut::Never).await.unwrap();
    stage.sync("last", json!({"suspend": true})).await.unwrap();
    stage.until_is("last", "Ready").await.unwrap();
    for number in 0..JOBS {
        assert!(syncjob::is(&stage.jobs.get(&format!("job-{number}")).await.unwrap(), "Ready"));
    }
    let written: Vec<_> = controller.tally().into_iter().filter(|(kind, _)| is_write(kind)).collect();
    assert_eq!(written, [("PATCH syncjobs/status".to_string(), 1)]);
}

fn check(cost: &Cost, requests: f64) {
    println!("{:.1} requests per run: {cost:#?}", cost.requests_per_run());
    assert!(cost.most_at_once <= LIMIT, "{cost:#?}");
    let of_late_pods: usize = OF_LATE_PODS.iter().filter_map(|kind| cost.tally.get(*kind)).sum();
    let made = cost.requests_per_run() - of_late_pods as f64 / JOBS as f64;
    assert!(made < requests, "{made:.1}: {cost:#?}");
    assert!(cost.status_writes_per_run() < STATUS_WRITES, "{:.1}: {cost:#?}", cost.status_writes_per_run());
}

/// Returns whether a kind of request changes anything; events and the Lease of the namespace, which is renewed by the
/// clock, are not counted.
fn is_write(kind: &str) -> bool {
    let is_read = ["GET", "LIST", "WATCH"].iter().any(|read| kind.starts_with(read));
    !is_read && !kind.ends_with("events") && !kind.ends_with("leases")
}
