//! Says why a syncer's pod ended, where its report does not: out of memory, evicted, deleted, too late. Pure.

use contract::{Reason, Report, RunResult, Side};
use k8s_openapi::api::core::v1::ContainerStateTerminated;

use super::{
    stored_fields::{Pod, PodStatus},
    why_not_started::not_starting,
};
use crate::fault::Fault;

/// Returns the fault of a pod whose container has ended, if its report does not say all.
pub(super) fn terminated_fault(
    side: Side,
    pod: &Pod,
    terminated: &ContainerStateTerminated,
) -> Option<Fault> {
    match terminated.reason.as_deref() {
        Some("OOMKilled") => Some(Fault::new(
            Reason::OutOfMemory,
            format!(
                "The {side} was killed because it used more memory than it may (OOMKilled). Raise \
                 spec.pods.resources.limits.memory."
            ),
        )),
        Some("ContainerCannotRun" | "StartError") => {
            let message = terminated.message.as_deref().unwrap_or("no message");
            Some(not_starting(side, pod, "StartError", message))
        }
        _ => disruption(side, pod),
    }
}

/// Returns the fault of a pod that Kubernetes disrupted: evicted, preempted, or its node drained.
fn disruption(side: Side, pod: &Pod) -> Option<Fault> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let target = conditions.iter().find(|it| it.type_ == "DisruptionTarget" && it.status == "True")?;
    let why = target.reason.as_deref().unwrap_or("unknown");
    let message = target.message.as_deref().unwrap_or_default();
    Some(Fault::new(
        Reason::PodDisrupted,
        format!("The {side} pod was removed from its node ({why}). {message}"),
    ))
}

/// Returns the fault of a pod that was deleted while its Job stays, which the operator never does, if it says no more
/// than that it was told to stop.
pub(super) fn deleted(side: Side, pod: &Pod, report: Option<&Report>) -> Option<Fault> {
    pod.metadata.deletion_timestamp.as_ref()?;
    report.filter(|report| report.result == RunResult::Canceled)?;
    let message = format!("The {side} pod was deleted before it had ended, by a person or a controller.");
    Some(Fault::new(Reason::PodDeleted, message))
}

/// Returns the fault of a pod that failed as a whole.
pub(super) fn pod_failed(side: Side, pod: &Pod, status: &PodStatus) -> Fault {
    if let Some(fault) = disruption(side, pod) {
        return fault;
    }
    let why = status.reason.as_deref().unwrap_or("no reason");
    let message = status.message.as_deref().unwrap_or_default();
    let reason = if why == "DeadlineExceeded" { Reason::TimedOut } else { Reason::PodFailed };
    Fault::new(reason, format!("The {side} pod failed ({why}). {message}").trim_end())
}

/// Returns the fault of a pod that is still there long after it should be gone.
pub(super) fn lost(side: Side, pod: &Pod) -> Fault {
    disruption(side, pod).unwrap_or_else(|| job_failed(side, None))
}

/// Returns the fault of a Job that failed without a pod that says more.
pub(super) fn job_failed(side: Side, why: Option<&str>) -> Fault {
    if why == Some("DeadlineExceeded") {
        return Fault::new(
            Reason::TimedOut,
            format!("The {side} did not end in time; see spec.limits.timeout."),
        );
    }
    Fault::new(
        Reason::PodLost,
        format!("The {side} pod was deleted before it had ended, by a person or because its node is gone."),
    )
}
