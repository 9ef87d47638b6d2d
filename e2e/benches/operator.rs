//! What the operator costs: `make bench-operator`. Prints a table in Markdown.
//!
//! The API server is real, and the ends of the runs are simulated, so what is measured is the operator.

use std::time::Duration;

use anyhow::Result;
use e2e::{load, scripted::Stage};

/// How long the operator is looked at while nothing happens.
const REST: Duration = Duration::from_secs(60);
/// How many SyncJobs there are, and how many of their runs may be under way, unless the command line says otherwise.
const JOBS: (usize, usize) = (1000, 50);

#[tokio::main]
async fn main() -> Result<()> {
    let mut numbers = std::env::args().filter_map(|argument| argument.parse::<usize>().ok());
    let (jobs, limit) = (numbers.next().unwrap_or(JOBS.0), numbers.next().unwrap_or(JOBS.1));
    let stage = Stage::new("load").await?;
    let (controller, cost) = load::due_at_once(&stage, jobs, limit).await?;
    let rest = load::at_rest(&controller, REST).await?;
    println!("| {jobs} SyncJobs | measured | target | |\n|---|---|---|---|");
    let mib = rest.memory as f64 / f64::from(1 << 20);
    line("memory at rest, MiB", mib, 100.0);
    line("processor at rest, mCPU", rest.mcpu, 20.0);
    line("writes at rest", rest.writes as f64, 0.0);
    line("most runs with pods at a time", cost.most_at_once as f64, limit as f64);
    line("operator requests per run", cost.requests_per_run(), 12.0);
    line("status writes per run", cost.status_writes_per_run(), 10.0);
    line("largest object, KiB", load::largest_object(&stage).await? as f64 / 1024.0, 200.0);
    println!("\nAll {jobs} runs took {:.0} s. Requests by kind, for each run:\n", cost.took.as_secs_f64());
    println!("| request | per run |\n|---|---|");
    for (kind, count) in &cost.tally {
        println!("| {kind} | {:.2} |", *count as f64 / jobs as f64);
    }
    Ok(())
}

fn line(what: &str, measured: f64, target: f64) {
    let verdict = if measured <= target { "met" } else { "missed" };
    println!("| {what} | {measured:.1} | {target:.0} | {verdict} |");
}
