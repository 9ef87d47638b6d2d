//! `top`: shows what all SyncJobs do, and goes on as they change, until it is stopped.

use std::{fmt, io::IsTerminal as _, pin::pin, time::Duration};

use futures::{Stream, StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use kube::{
    Api, Resource,
    core::DeserializeGuard,
    runtime::{
        WatchStreamExt as _,
        reflector::{self, Store},
        watcher,
    },
};
use serde::de::DeserializeOwned;

use super::{
    cluster::Cluster,
    error::{PluginError, told},
    output, top_table,
};
use crate::{
    api::{SyncJob, SyncRun},
    signals::Stops,
};

/// How often times and rates are shown anew.
const PERIOD: Duration = Duration::from_secs(1);
/// The kinds that are watched.
const KINDS: usize = 2;

/// Shows a table of the SyncJobs of a namespace, or of all, once or as they change.
pub(super) async fn run(cluster: &Cluster, all_namespaces: bool, once: bool) -> Result<(), PluginError> {
    let (jobs, job_changes) = watched::<SyncJob>(cluster.api(all_namespaces));
    let (runs, run_changes) = watched::<SyncRun>(cluster.api(all_namespaces));
    let mut changes = pin!(stream::select(job_changes, run_changes));
    let lines = || {
        let (jobs, runs) = (jobs.state(), runs.state());
        let jobs = jobs.iter().filter_map(|job| job.0.as_ref().ok());
        let runs = runs.iter().filter_map(|run| run.0.as_ref().ok());
        top_table::lines(jobs, runs, all_namespaces, Timestamp::now())
    };
    let unwatched = |source| PluginError::Watch { what: "SyncJobs and SyncRuns".into(), source };
    let mut listed = 0;
    while listed < KINDS {
        let is_listed = changes.try_next().await.map_err(unwatched)?;
        listed += usize::from(is_listed == Some(true));
    }
    if once || !std::io::stdout().is_terminal() {
        return output::lines(&lines());
    }
    let (mut stops, mut ticks) = (Stops::new().map_err(PluginError::Output)?, tokio::time::interval(PERIOD));
    let screen = output::Screen::open()?;
    let mut trouble = None;
    loop {
        tokio::select! {
            () = stops.next() => return Ok(()),
            _ = ticks.tick() => screen.show(trouble.iter().cloned().chain(lines()))?,
            change = changes.next() => trouble = change.and_then(Result::err).map(|error| {
                format!("The API server does not answer, and is asked again: {}", told(&error))
            }),
        }
    }
}

/// Watches a kind: returns what is there, and a stream that keeps it up to date as it is read and yields true when all
/// has been listed.
fn watched<K>(
    api: Api<DeserializeGuard<K>>,
) -> (Store<DeserializeGuard<K>>, impl Stream<Item = watcher::Result<bool>>)
where
    K: Resource<DynamicType = ()> + Clone + fmt::Debug + DeserializeOwned + Send + Sync + 'static,
{
    let (store, writer) = reflector::store();
    let events = watcher(api, watcher::Config::default()).default_backoff().reflect(writer);
    (store, events.map_ok(|event| matches!(event, watcher::Event::InitDone)))
}
