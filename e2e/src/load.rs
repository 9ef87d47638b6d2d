//! Many concurrent SyncJobs whose runs all succeed, and their cost to the operator and the API server.

use std::{
    collections::BTreeMap,
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::{
    ResourceExt as _,
    api::{DynamicObject, ListParams},
    runtime::{WatchStreamExt as _, watcher},
};
use serde_json::json;
use tokio::time::{sleep, timeout};

use crate::{
    cut::Tally,
    played_runs::PlayedRuns,
    scripted::{Controller, Stage},
    syncjob,
};

/// The number of objects that are created concurrently.
const AT_ONCE: usize = 16;
/// The limit for all runs together; other processes may use most of the machine.
const PATIENCE: Duration = Duration::from_secs(3600);

/// The cost of the runs of many SyncJobs.
#[derive(Debug)]
pub struct Cost {
    /// The number of runs.
    pub runs: usize,
    /// The largest number of runs that had pods at a time.
    pub most_at_once: usize,
    /// The time from the controller's start until the last SyncRun is done.
    pub took: Duration,
    /// The operator's requests of each kind, without watches.
    pub tally: Tally,
}

impl Cost {
    /// Returns the operator's requests for each run.
    pub fn requests_per_run(&self) -> f64 {
        self.per_run(|_| true)
    }

    /// Returns the operator's writes to the statuses of SyncJobs and SyncRuns for each run.
    pub fn status_writes_per_run(&self) -> f64 {
        self.per_run(|kind| kind.ends_with("/status"))
    }

    fn per_run(&self, is_counted: impl Fn(&str) -> bool) -> f64 {
        let counted = self.tally.iter().filter(|(kind, _)| is_counted(kind)).map(|(_, count)| count);
        counted.sum::<usize>() as f64 / self.runs as f64
    }
}

/// A controller, and its cost until all runs were done.
pub struct Loaded {
    /// The controller, which goes on.
    pub controller: Controller,
    /// Its cost.
    pub cost: Cost,
}

/// Makes this many SyncJobs, each with its own destination, and has all of them run at once with a controller that lets
/// `limit` runs start.
pub async fn due_at_once(stage: &Stage, jobs: usize, limit: usize) -> Result<Loaded> {
    let made = stream::iter(0..jobs).map(async |number| make(stage, number).await);
    made.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    run_all(stage, jobs, limit, 1).await
}

/// Has all SyncJobs that [`due_at_once`] made run once more, which is their run of that number, with a new controller.
pub async fn due_again(stage: &Stage, jobs: usize, limit: usize, number: usize) -> Result<Loaded> {
    let asked = stream::iter(0..jobs).map(async |job| {
        stage.patch(&format!("job-{job}"), json!({"spec": {"trigger": number.to_string()}})).await.map(drop)
    });
    asked.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    run_all(stage, jobs, limit, number).await
}

async fn run_all(stage: &Stage, jobs: usize, limit: usize, number: usize) -> Result<Loaded> {
    let (played, started) = (PlayedRuns::default(), Instant::now());
    let limit = format!("--max-runs={limit}");
    let controller = stage.controller_with(&["--leader-elect=false", &limit]).await?;
    tokio::select! {
        error = stage.kubelet.play_all(&played) => bail!("{error:?}"),
        done = timeout(PATIENCE, until_done(stage, jobs, number)) => done.context("not all runs came to their end")??,
    }
    let mut tally = controller.tally();
    tally.retain(|kind, _| !kind.starts_with("WATCH"));
    let cost = Cost { runs: jobs, most_at_once: played.most(), took: started.elapsed(), tally };
    Ok(Loaded { controller, cost })
}

async fn make(stage: &Stage, number: usize) -> Result<()> {
    let claim = format!("to-{number}");
    stage.claim(&claim, "Bound").await?;
    let destination = json!({"destination": {"persistentVolumeClaim": {"claimName": claim}}});
    stage.sync(&format!("job-{number}"), destination).await.map(drop)
}

/// Waits until `count` SyncRuns are done that have this `number` in their SyncJobs.
async fn until_done(stage: &Stage, count: usize, number: usize) -> Result<()> {
    let mut done = BTreeMap::new();
    let runs = watcher(stage.runs.clone(), watcher::Config::default()).default_backoff().applied_objects();
    let mut runs = std::pin::pin!(runs);
    while let Some(run) = runs.try_next().await? {
        if run.data["spec"]["number"] != number {
            continue;
        }
        done.insert(run.name_any(), syncjob::text(&run, "/stage") == "Done");
        if done.values().filter(|is_done| **is_done).count() == count {
            return Ok(());
        }
    }
    bail!("the watch of SyncRuns ended")
}

/// Returns the size of the namespace's largest SyncJob or SyncRun, in bytes of JSON.
pub async fn largest_object(stage: &Stage) -> Result<usize> {
    let (jobs, runs) = (&stage.jobs, &stage.runs);
    let mut largest = 0;
    for api in [jobs, runs] {
        for object in api.list(&ListParams::default()).await?.items {
            largest = largest.max(size(&object)?);
        }
    }
    Ok(largest)
}

fn size(object: &DynamicObject) -> Result<usize> {
    Ok(serde_json::to_string(object)?.len())
}

/// The resources that a controller uses while nothing happens.
#[derive(Debug)]
pub struct Rest {
    /// Its writes in that time.
    pub writes: usize,
    /// Its requests in that time, without watches.
    pub requests: usize,
    /// The memory that it occupies at the end, in bytes.
    pub memory: u64,
    /// Thousandths of a processor.
    pub mcpu: f64,
}

/// Measures a controller at rest for `period`.
pub async fn at_rest(controller: &Controller, period: Duration) -> Result<Rest> {
    let ticks_before = ticks(controller.id())?;
    let (writes, requests) = (controller.writes(), controller.requests());
    sleep(period).await;
    let ticks = ticks(controller.id())? - ticks_before;
    let status = fs::read_to_string(format!("/proc/{}/status", controller.id()))?;
    let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
    Ok(Rest {
        writes: controller.writes() - writes,
        requests: controller.requests() - requests,
        memory: memory.context("no VmRSS")?.parse::<u64>()? * 1024,
        // Linux counts 100 ticks a second.
        mcpu: ticks as f64 * 10.0 / period.as_secs_f64(),
    })
}

/// Returns the processor time of a process, in hundredths of a second.
fn ticks(id: u32) -> Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).context("a process's times")?;
    let fields = stat.rsplit_once(')').context("no name in /proc/…/stat")?.1;
    let of = |field: Option<&str>| field.and_then(|it| it.parse::<u64>().ok()).context("no times");
    let mut fields = fields.split_whitespace().skip(11);
    Ok(of(fields.next())? + of(fields.next())?)
}
