//! What Kubernetes warns of while the pods of a run do not start. Only reads.

use contract::Side;
use futures::try_join;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::{Client, ResourceExt as _, api::ListParams};

use super::dereference::{Children, DereferenceError, Result, api, is_forbidden, reading};
use crate::{
    api::{ActiveRun, SyncJob},
    names::TryNames,
};

/// The last warning that Kubernetes recorded about a pod of each end that does not start, or about a Job that lacks pods.
#[derive(Debug, Default)]
pub struct Warnings {
    source: Option<Warning>,
    sink: Option<Warning>,
}

/// One warning.
#[derive(Debug)]
pub struct Warning {
    /// The pod's UID; `None`: it is about the Job.
    pod: Option<String>,
    text: String,
}

impl Warnings {
    /// That about an end.
    pub fn of(&self, side: Side) -> Option<&Warning> {
        match side {
            Side::Source => self.source.as_ref(),
            Side::Sink => self.sink.as_ref(),
        }
    }
}

impl Warning {
    /// What it says, if it is about one of these pods, or about there being none.
    pub fn about(&self, pods: &[&Pod]) -> Option<&str> {
        let is_about = match &self.pod {
            Some(uid) => pods.iter().any(|pod| pod.uid().as_ref() == Some(uid)),
            None => pods.is_empty(),
        };
        is_about.then_some(&self.text)
    }
}

/// Looks for warnings about the pods of the run under way.
pub(super) async fn warnings(
    client: &Client,
    job: &SyncJob,
    run: &ActiveRun,
    children: &Children,
) -> Result<Warnings> {
    let uid = job.uid().unwrap_or_default();
    let names = TryNames::new(&job.name_any(), &uid, run.number, run.past_tries());
    let warning = async |side| match children.stuck(&names, side, run.shard_count()) {
        Some(Stuck::Pod(uid)) => {
            let text = last_warning(client, job, &uid).await?;
            Ok::<_, DereferenceError>(text.map(|text| Warning { pod: Some(uid), text }))
        }
        Some(Stuck::Job(uid)) => {
            let text = last_warning(client, job, &uid).await?;
            Ok(text.map(|text| Warning { pod: None, text }))
        }
        None => Ok(None),
    };
    let (source, sink) = try_join!(warning(Side::Source), warning(Side::Sink))?;
    Ok(Warnings { source, sink })
}

/// The UID of an object whose warnings say why an end does not start.
enum Stuck {
    Pod(String),
    Job(String),
}

impl Children {
    /// A pod of that end that does not start, or its Job if that lacks pods.
    fn stuck(&self, names: &TryNames, side: Side, shards: u32) -> Option<Stuck> {
        let pods = self.pods_of(names, side);
        let is_pending =
            |pod: &&&Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Pending");
        match pods.iter().find(is_pending) {
            Some(pod) => pod.uid().map(Stuck::Pod),
            None if pods.len() < shards as usize => self.job_of(names, side)?.uid().map(Stuck::Job),
            None => None,
        }
    }
}

async fn last_warning(client: &Client, job: &SyncJob, uid: &str) -> Result<Option<String>> {
    let about = ListParams::default().fields(&format!("involvedObject.uid={uid},type=Warning"));
    let events = match api::<Event>(client, job).list(&about).await {
        Ok(events) => events.items,
        Err(error) if is_forbidden(&error) => return Ok(None),
        Err(error) => return Err(reading("events")(error)),
    };
    let last = events.into_iter().max_by_key(time_of);
    Ok(last.map(|event| {
        let reason = event.reason.unwrap_or_default();
        format!("{reason}: {}", event.message.unwrap_or_default())
    }))
}

fn time_of(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref().and_then(|series| Some(series.last_observed_time.as_ref()?.0));
    let last = event.last_timestamp.as_ref().map(|time| time.0);
    series.or(last).or(event.event_time.as_ref().map(|time| time.0))
}
