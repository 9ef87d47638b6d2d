//! Many SyncJobs at once, whose runs all end well, and what they cost the operator and the API server.

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
    kubelet::Crowd,
    scripted::{Controller, Stage},
    syncjob,
};

/// How many objects are created at a time.
const AT_ONCE: usize = 16;
/// How long all runs may take together: there may be little of the machine left for them.
const PATIENCE: Duration = Duration::from_secs(3600);

/// What the runs of many SyncJobs cost.
#[derive(Debug)]
pub struct Cost {
    /// How many runs there were.
    pub runs: usize,
    /// The most of them that had pods at a time.
    pub most_at_once: usize,
    /// From the controller's start to the last SyncRun that is done.
    pub took: Duration,
    /// The operator's requests of each kind, without watches.
    pub tally: Tally,
}

impl Cost {
    /// The operator's requests for each run.
    pub fn requests_per_run(&self) -> f64 {
        self.per_run(|_| true)
    }

    /// The operator's writes to the statuses of SyncJobs and SyncRuns for each run.
    pub fn status_writes_per_run(&self) -> f64 {
        self.per_run(|kind| kind.ends_with("/status"))
    }

    fn per_run(&self, is_counted: impl Fn(&str) -> bool) -> f64 {
        let counted = self.tally.iter().filter(|(kind, _)| is_counted(kind)).map(|(_, count)| count);
        counted.sum::<usize>() as f64 / self.runs as f64
    }
}

/// Makes that many SyncJobs, each with a destination of its own, and has all of them run at once with a controller that
/// lets `limit` runs start. Returns the controller, and what it did until everything was removed.
pub async fn due_at_once(stage: &Stage, jobs: usize, limit: usize) -> Result<(Controller, Cost)> {
    let made = stream::iter(0..jobs).map(async |number| make(stage, number).await);
    made.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    let (crowd, started) = (Crowd::default(), Instant::now());
    let limit = format!("--max-runs={limit}");
    let controller = stage.controller_with(&["--leader-elect=false", &limit]).await?;
    tokio::select! {
        error = stage.kubelet.play_all(&crowd) => bail!("{error:?}"),
        done = timeout(PATIENCE, until_done(stage, jobs)) => done.context("not all runs came to their end")??,
    }
    let mut tally = controller.tally();
    tally.retain(|kind, _| !kind.starts_with("WATCH"));
    let cost = Cost { runs: jobs, most_at_once: crowd.most(), took: started.elapsed(), tally };
    Ok((controller, cost))
}

async fn make(stage: &Stage, number: usize) -> Result<()> {
    let claim = format!("to-{number}");
    stage.claim(&claim, "Bound").await?;
    let destination = json!({"destination": {"persistentVolumeClaim": {"claimName": claim}}});
    stage.sync(&format!("job-{number}"), destination).await.map(drop)
}

/// Waits until so many SyncRuns are done.
async fn until_done(stage: &Stage, count: usize) -> Result<()> {
    let mut done = BTreeMap::new();
    let runs = watcher(stage.runs.clone(), watcher::Config::default()).default_backoff().applied_objects();
    let mut runs = std::pin::pin!(runs);
    while let Some(run) = runs.try_next().await? {
        done.insert(run.name_any(), syncjob::text(&run, "/stage") == "Done");
        if done.values().filter(|is_done| **is_done).count() == count {
            return Ok(());
        }
    }
    bail!("the watch of SyncRuns ended")
}

/// The largest of the namespace's SyncJobs and SyncRuns, in bytes of JSON.
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

/// What a controller uses while nothing happens.
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

/// Looks at a controller for so long.
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

/// The processor time of a process, in hundredths of a second.
fn ticks(id: u32) -> Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).context("a process's times")?;
    let fields = stat.rsplit_once(')').context("no name in /proc/…/stat")?.1;
    let of = |field: Option<&str>| field.and_then(|it| it.parse::<u64>().ok()).context("no times");
    let mut fields = fields.split_whitespace().skip(11);
    Ok(of(fields.next())? + of(fields.next())?)
}
