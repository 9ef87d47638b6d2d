//! Determines the state of one end of a try from its Job and its pods. Pure.

use contract::{Report, Side};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::core::v1::ContainerStateTerminated, apimachinery::pkg::apis::meta::v1::Time};
use kube::ResourceExt as _;

use super::{
    stored_fields::{ContainerStatus, Job, Pod, PodStatus},
    why_ended::{deleted, job_failed, lost, pod_failed, terminated_fault},
    why_not_started::{no_pod, starting_fault},
};
use crate::{api::reports, fault::Fault, names::CONTAINER, run::outcome::Ending};

/// How long a pod may still exist after its deletion deadline.
const OVERDUE: SignedDuration = SignedDuration::from_secs(30);

/// The state of one end of a try.
#[derive(Debug, Clone, PartialEq)]
pub enum EndState {
    /// Neither a Job nor a pod exists.
    Absent,
    /// Terminating: the Job is gone or being deleted, and a pod still exists.
    Stopping,
    /// The process does not run yet; with the cause, if known.
    Starting(Option<Fault>),
    /// The process runs.
    Running,
    /// The end has ended.
    Ended(Box<Ending>),
}

/// The objects and reports of one end.
#[derive(Debug, Clone, Copy)]
pub struct EndObjects<'a> {
    /// The end.
    pub side: Side,
    /// The shard; `None` if the run has only one.
    pub shard: Option<u32>,
    /// The end's Job.
    pub job: Option<&'a Job>,
    /// The pods of that Job and shard.
    pub pods: &'a [&'a Pod],
    /// The last recorded warning about the pod, or about a Job without pods.
    pub warning: Option<&'a str>,
    /// The report that the agent wrote into the status.
    pub report: Option<&'a Report>,
    /// The try's id, which its reports carry.
    pub try_id: &'a str,
    /// The present.
    pub now: Timestamp,
}

/// Returns the state of an end.
pub fn end_state(end: &EndObjects<'_>) -> EndState {
    let newest = end.pods.iter().max_by_key(|pod| pod.creation_timestamp());
    let Some(job) = end.job.filter(|job| job.metadata.deletion_timestamp.is_none()) else {
        return if end.job.is_none() && newest.is_none() { EndState::Absent } else { EndState::Stopping };
    };
    match newest {
        Some(pod) => pod_state(end, pod),
        None => job_state(end, job),
    }
}

/// Returns the state of an end whose Job has no pod for it, either not yet or no longer.
fn job_state(end: &EndObjects<'_>, job: &Job) -> EndState {
    let Some(over) = over(end, job) else {
        let place = format!(
            "The {} pod cannot be made in namespace {}",
            end.side,
            job.namespace().unwrap_or_default()
        );
        return EndState::Starting(end.warning.map(|warning| no_pod(&place, warning)));
    };
    let report = end.report.filter(|report| report.run == end.try_id).cloned();
    let ending = if over.well {
        Ending { exit: Some(0), at: over.at, report, ..Ending::default() }
    } else {
        Ending { at: over.at, report, ..Ending::of(job_failed(end.side, over.reason)) }
    };
    EndState::Ended(Box::new(ending))
}

/// How a Job, or one index of it, has ended.
struct Over<'a> {
    well: bool,
    at: Option<Timestamp>,
    reason: Option<&'a str>,
}

/// Returns how an end has ended according to its Job. For a shard, its own index comes before the Job as a whole, which
/// waits for the other shards.
fn over<'a>(end: &EndObjects<'_>, job: &'a Job) -> Option<Over<'a>> {
    let status = job.status.as_ref()?;
    let of_shard = |indexes: &Option<String>| {
        end.shard.zip(indexes.as_deref()).is_some_and(|(shard, indexes)| holds(indexes, shard))
    };
    if of_shard(&status.completed_indexes) {
        return Some(Over { well: true, at: None, reason: None });
    }
    if of_shard(&status.failed_indexes) {
        return Some(Over { well: false, at: None, reason: None });
    }
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let over =
        conditions.iter().find(|it| it.status == "True" && ["Complete", "Failed"].contains(&&*it.type_))?;
    let at = over.last_transition_time.as_ref().map(|time| time.0);
    Some(Over { well: over.type_ == "Complete", at, reason: over.reason.as_deref() })
}

/// Returns whether a Job's index list, such as `0,2-4`, contains an index.
fn holds(indexes: &str, shard: u32) -> bool {
    indexes.split(',').any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        matches!((first.parse(), last.parse()), (Ok(first), Ok(last)) if (first..=last).contains(&shard))
    })
}

fn pod_state(end: &EndObjects<'_>, pod: &Pod) -> EndState {
    let status = pod.status.clone().unwrap_or_default();
    let container = container_of(&status);
    let state = container.and_then(|container| container.state.clone()).unwrap_or_default();
    if let Some(terminated) = state.terminated {
        return EndState::Ended(Box::new(terminated_ending(end, pod, &terminated)));
    }
    if status.phase.as_deref() == Some("Failed") {
        return EndState::Ended(Box::new(Ending {
            at: status
                .conditions
                .iter()
                .flatten()
                .filter_map(|it| Some(it.last_transition_time.as_ref()?.0))
                .max(),
            report: report_of(end, None),
            ..Ending::of(pod_failed(end.side, pod, &status))
        }));
    }
    match state.running {
        // Nobody says what became of a pod whose node is lost.
        Some(_) if is_overdue(pod, end.now) => EndState::Ended(Box::new(Ending {
            report: report_of(end, None),
            ..Ending::of(lost(end.side, pod))
        })),
        Some(_) => EndState::Running,
        None => {
            EndState::Starting(starting_fault(end.side, pod, &status, state.waiting.as_ref(), end.warning))
        }
    }
}

/// Returns whether a pod still exists long after its deletion timestamp, which is the time by which it should be gone.
pub fn is_overdue(pod: &Pod, now: Timestamp) -> bool {
    overdue_at(pod).is_some_and(|at| now >= at)
}

/// Returns when [`is_overdue`] becomes true.
pub fn overdue_at(pod: &Pod) -> Option<Timestamp> {
    pod.metadata.deletion_timestamp.as_ref()?.0.checked_add(OVERDUE).ok()
}

/// Returns whether a process of the pod may be running, or may start. The kubelet reports a terminated container before
/// the phase changes, which waits until the volumes are unmounted.
pub fn is_alive(pod: &Pod) -> bool {
    let Some(status) = &pod.status else { return true };
    let state = container_of(status).and_then(|container| container.state.as_ref());
    let has_ended = state.is_some_and(|state| state.terminated.is_some());
    !has_ended && !matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

/// Returns whether the pod's process has ended, according to the kubelet.
pub fn has_ended(pod: &Pod) -> bool {
    let container = pod.status.as_ref().and_then(container_of);
    !is_alive(pod)
        || container.is_some_and(|it| it.state.as_ref().is_some_and(|state| state.terminated.is_some()))
}

/// Returns when the process of a pod began, by the kubelet's clock, so that the age of its try is known.
pub fn began(pod: &Pod) -> Option<Timestamp> {
    let state = pod.status.as_ref().and_then(container_of)?.state.as_ref()?;
    let running = state.running.as_ref().and_then(|it| it.started_at.as_ref());
    let terminated = state.terminated.as_ref().and_then(|it| it.started_at.as_ref());
    running.or(terminated).map(|Time(at)| *at)
}

/// Returns whether a Job's conditions say that it has ended.
pub fn is_over(job: &Job) -> bool {
    let conditions = job.status.iter().flat_map(|status| status.conditions.as_deref().unwrap_or_default());
    conditions.into_iter().any(|it| it.status == "True" && ["Complete", "Failed"].contains(&&*it.type_))
}

fn container_of(status: &PodStatus) -> Option<&ContainerStatus> {
    status.container_statuses.iter().flatten().find(|container| container.name == CONTAINER)
}

fn terminated_ending(end: &EndObjects<'_>, pod: &Pod, terminated: &ContainerStateTerminated) -> Ending {
    let message = terminated.message.as_deref();
    let report = report_of(end, message);
    Ending {
        exit: Some(terminated.exit_code),
        at: terminated.finished_at.as_ref().map(|Time(at)| *at),
        fault: terminated_fault(end.side, pod, terminated)
            .or_else(|| deleted(end.side, pod, report.as_ref())),
        last_words: message.filter(|_| report.is_none()).map(Into::into),
        report,
    }
}

/// Returns this try's report, from the status or else from the termination message.
fn report_of(end: &EndObjects<'_>, message: Option<&str>) -> Option<Report> {
    let of_this_try = |report: &Report| report.run == end.try_id;
    let from_message = || message.and_then(|message| reports::read(serde_json::from_str(message).ok()?));
    end.report.cloned().filter(of_this_try).or_else(|| from_message().filter(of_this_try))
}

#[cfg(test)]
mod tests;
