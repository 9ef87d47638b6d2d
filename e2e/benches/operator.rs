//! Measures the operator's cost: `make bench-operator`. Prints a table in Markdown.
//!
//! The API server is real, and the ends of the runs are simulated, so only the operator is measured.

use std::{collections::BTreeSet, time::Duration};

use anyhow::Result;
use e2e::{
    load::{self, Cost, Loaded},
    scripted::Stage,
};

/// How long the operator is measured while nothing happens.
const REST: Duration = Duration::from_secs(60);
/// The number of SyncJobs, and the limit of their concurrent runs, unless the command line sets others.
const JOBS: (usize, usize) = (1000, 50);

#[tokio::main]
async fn main() -> Result<()> {
    let mut numbers = std::env::args().filter_map(|argument| argument.parse::<usize>().ok());
    let (jobs, limit) = (numbers.next().unwrap_or(JOBS.0), numbers.next().unwrap_or(JOBS.1));
    let stage = Stage::new("load").await?;
    let Loaded { controller, cost } = load::due_at_once(&stage, jobs, limit).await?;
    let rest = load::at_rest(&controller, REST).await?;
    drop(controller);
    let Loaded { controller: _controller, cost: again } = load::due_again(&stage, jobs, limit, 2).await?;
    println!("| {jobs} SyncJobs | measured | target | |\n|---|---|---|---|");
    let mib = rest.memory as f64 / f64::from(1 << 20);
    line("memory at rest, MiB", mib, 100.0);
    line("processor at rest, mCPU", rest.mcpu, 20.0);
    line("writes at rest", rest.writes as f64, 0.0);
    for (which, cost) in [("first", &cost), ("second", &again)] {
        line(&format!("most {which} runs with pods at a time"), cost.most_at_once as f64, limit as f64);
        line(&format!("operator requests per {which} run"), cost.requests_per_run(), 12.0);
        line(&format!("status writes per {which} run"), cost.status_writes_per_run(), 10.0);
    }
    line("largest object, KiB", load::largest_object(&stage).await? as f64 / 1024.0, 200.0);
    let took = [cost.took, again.took].map(|took| took.as_secs_f64());
    println!(
        "\nAll {jobs} first runs took {:.0} s, and the second ones {:.0} s. For each run:\n",
        took[0], took[1]
    );
    println!("| request | first run | second run |\n|---|---|---|");
    let kinds: BTreeSet<&String> = cost.tally.keys().chain(again.tally.keys()).collect();
    for kind in kinds {
        let of = |cost: &Cost| cost.tally.get(kind).copied().unwrap_or(0) as f64 / jobs as f64;
        println!("| {kind} | {:.2} | {:.2} |", of(&cost), of(&again));
    }
    Ok(())
}

fn line(what: &str, measured: f64, target: f64) {
    let verdict = if measured <= target { "met" } else { "missed" };
    println!("| {what} | {measured:.1} | {target:.0} | {verdict} |");
}
