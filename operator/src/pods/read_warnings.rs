//! Reads the warnings of Kubernetes about pods of a run that do not start.

use contract::Side;
use futures::try_join;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::{Api, Client, ResourceExt as _, api::ListParams};

use super::{
    children::{Children, Stuck},
    pod_warnings::{Warning, Warnings},
};
use crate::{
    api::{ActiveRun, SyncJob},
    controller::read::{DereferenceError, Result, is_forbidden, reading},
    ends::{end_namespaces::EndNamespace, source_and_sink::Ends},
    names::TryNames,
};

/// Returns the latest warnings about the pods of the run under way. Fails if the API server does not answer.
pub(crate) async fn warnings(
    client: &Client,
    job: &SyncJob,
    run: &ActiveRun,
    children: &Children,
    ends: &Ends<EndNamespace>,
) -> Result<Warnings> {
    let uid = job.uid().unwrap_or_default();
    let names = TryNames::new(&job.name_any(), &uid, run.number, run.past_tries());
    let warning = async |side| match children.stuck(&names, side, run.shard_count()) {
        Some(Stuck::Pod(uid)) => {
            let text = last_warning(client, &ends.of(side).namespace, &uid).await?;
            Ok::<_, DereferenceError>(text.map(|text| Warning { pod: Some(uid), text }))
        }
        Some(Stuck::Job(uid)) => {
            let text = last_warning(client, &ends.of(side).namespace, &uid).await?;
            Ok(text.map(|text| Warning { pod: None, text }))
        }
        None => Ok(None),
    };
    let (source, sink) = try_join!(warning(Side::Source), warning(Side::Sink))?;
    Ok(Warnings { source, sink })
}

/// Returns the latest warning about the object with that UID; `None` without the right to list events.
pub(crate) async fn last_warning(client: &Client, namespace: &str, uid: &str) -> Result<Option<String>> {
    let about = ListParams::default().fields(&format!("involvedObject.uid={uid},type=Warning"));
    let events = match Api::<Event>::namespaced(client.clone(), namespace).list(&about).await {
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
