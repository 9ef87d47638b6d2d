//! Why the pod of an end does not start, and what to advise. Pure.

use contract::{Reason, Side};
use k8s_openapi::api::core::v1::ContainerStateWaiting;
use kube::ResourceExt as _;

use super::stored_fields::{Pod, PodStatus};
use crate::{fault::Fault, human::sentence, names::ANNOTATION_PRIVILEGED};

/// The prefix of the scheduler's warnings, which say nothing about a pod that has a node by now.
const OF_THE_SCHEDULER: &str = "FailedScheduling: ";

/// The access mode by whose name the scheduler reports that another pod uses a claim.
const FOR_ONE_POD: &str = "ReadWriteOncePod";

/// Returns why a Job has no pod, with advice where Kubernetes' words are usual ones. They decide nothing: the Job
/// controller tries again in every case, and somebody may correct a quota, a policy or a LimitRange meanwhile.
pub(super) fn no_pod(place: &str, warning: &str) -> Fault {
    let cure = if warning.contains("violates PodSecurity") {
        format!(
            " Let it enforce the baseline standard, or remove its annotation {ANNOTATION_PRIVILEGED}, with which its syncers run \
             as root."
        )
    } else if warning.contains(" quota: ") {
        " Raise that ResourceQuota, or correct spec.pods.resources.".into()
    } else if warning.contains(" is invalid: ") {
        " Correct spec.pods, or the LimitRange that adds to it.".into()
    } else {
        String::new()
    };
    let words = sentence(warning);
    Fault::new(Reason::PodPending, format!("{place}: {words}{cure} The run goes on as soon as it can."))
}

/// Returns why the process of a pod does not run yet, with advice, from what its status says, what its container waits
/// for and the last recorded warning about it; `None` if nothing is in its way.
pub(super) fn starting_fault(
    side: Side,
    pod: &Pod,
    status: &PodStatus,
    waiting: Option<&ContainerStateWaiting>,
    warning: Option<&str>,
) -> Option<Fault> {
    let warning = warning.filter(|warning| !(has_node(pod) && warning.starts_with(OF_THE_SCHEDULER)));
    if let Some(message) = unschedulable(pod, status, warning) {
        return Some(if message.contains(FOR_ONE_POD) {
            no_turn(side, pod, message)
        } else {
            no_node(side, message)
        });
    }
    let why = waiting.and_then(|waiting| waiting.reason.as_deref()).unwrap_or_default();
    let message = waiting.and_then(|waiting| waiting.message.as_deref()).unwrap_or("no message");
    match why {
        "" | "ContainerCreating" | "PodInitializing" => warning.map(|warning| {
            Fault::new(
                Reason::PodPending,
                format!("The {side} pod {} waits on its node: {warning}", pod.name_any()),
            )
        }),
        "ErrImagePull"
        | "ImagePullBackOff"
        | "InvalidImageName"
        | "ErrImageNeverPull"
        | "RegistryUnavailable"
        | "ImageInspectError" => Some(image_fault(side, pod, why, message)),
        _ => Some(not_starting(side, pod, why, message)),
    }
}

/// Returns why a pod has no node. The scheduler's event may be visible before the condition that it writes to the pod.
fn unschedulable<'a>(pod: &Pod, status: &'a PodStatus, warning: Option<&'a str>) -> Option<&'a str> {
    let conditions = status.conditions.as_deref().unwrap_or_default();
    let refused = conditions.iter().find(|it| it.type_ == "PodScheduled" && it.status == "False");
    match refused {
        Some(refused) => Some(refused.message.as_deref().unwrap_or("the scheduler gives no reason")),
        None => warning.filter(|_| !has_node(pod)),
    }
}

fn has_node(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
}

/// Returns the fault of a pod that fits no node, in the words of the scheduler.
fn no_node(side: Side, message: &str) -> Fault {
    Fault::new(
        Reason::PodPending,
        format!(
            "The {side} pod cannot be scheduled: {} Check the claim's node, spec.pods.resources, nodeSelector, \
             tolerations and affinity; the run goes on as soon as a node fits.",
            sentence(message)
        ),
    )
}

/// Returns the fault of a pod that waits because another one uses its `ReadWriteOncePod` claim.
fn no_turn(side: Side, pod: &Pod, message: &str) -> Fault {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let claims =
        volumes.filter_map(|volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.as_str()));
    Fault::new(
        Reason::PodPending,
        format!(
            "The {side} pod cannot be scheduled: {} A claim with the access mode {FOR_ONE_POD} is for one pod at a time; `kubectl \
             describe pvc {}` names its user (Used By). The run goes on as soon as that pod is gone.",
            sentence(message),
            claims.collect::<Vec<_>>().join(" ")
        ),
    )
}

/// Returns the fault of a pod whose image cannot be pulled, with what makes it available.
fn image_fault(side: Side, pod: &Pod, why: &str, message: &str) -> Fault {
    let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let image = containers.first().and_then(|container| container.image.as_deref()).unwrap_or("unknown");
    Fault::new(
        Reason::ImagePullFailed,
        format!(
            "The {side} pod cannot pull the image {image} ({why}): {} Correct the operator's --image or \
             spec.pods.imagePullSecrets, or load the image onto the node; the run goes on as soon as it is there.",
            sentence(message)
        ),
    )
}

/// Returns the fault of a pod whose container does not start, in the words of the kubelet.
pub(super) fn not_starting(side: Side, pod: &Pod, why: &str, message: &str) -> Fault {
    Fault::new(
        Reason::PodFailed,
        format!("The container of the {side} pod {} does not start ({why}): {message}", pod.name_any()),
    )
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::names::CONTAINER;

    pub(crate) fn pod(status: &Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": CONTAINER, "image": "example.com/volferry:1"}]},
            "status": status,
        }))
        .unwrap()
    }

    fn waiting(why: &str, message: Option<&str>) -> ContainerStateWaiting {
        ContainerStateWaiting { reason: Some(why.into()), message: message.map(Into::into) }
    }

    fn fault_of(pod: &Pod, waiting: Option<&ContainerStateWaiting>, warning: Option<&str>) -> Option<Fault> {
        starting_fault(Side::Sink, pod, pod.status.as_ref().unwrap(), waiting, warning)
    }

    #[test]
    fn a_quota_or_a_policy_that_forbids_the_pod_is_named_with_its_cure() {
        for (words, cure) in [
            ("exceeded quota: pods, used: pods=2, limited: pods=2", "Raise that ResourceQuota"),
            (
                "violates PodSecurity \"restricted:latest\": runAsUser=0",
                "remove its annotation volferry.dev/privileged-syncers",
            ),
            ("denied by a webhook", "denied by a webhook. The run goes on"),
            ("Pod \"x\" is invalid: cpu", "or the LimitRange that adds to it. The run goes on"),
        ] {
            let warning = format!("FailedCreate: Error creating: pods \"x\" is forbidden: {words}");
            let fault = no_pod("The sink pod cannot be made in namespace prod", &warning);
            assert_eq!(fault.reason, "PodPending");
            for part in ["The sink pod cannot be made in namespace prod", words, cure] {
                assert!(fault.message.contains(part), "{part}: {}", fault.message);
            }
        }
    }

    #[test]
    fn a_pending_pod_gives_the_schedulers_reason() {
        let fault = fault_of(
            &pod(&json!({"phase": "Pending", "conditions": [{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": "0/2 nodes are available: 2 Insufficient cpu.",
            }]})),
            None,
            None,
        )
        .unwrap();
        assert_eq!(fault.reason, "PodPending");
        assert!(fault.message.contains("0/2 nodes are available: 2 Insufficient cpu."));
    }

    #[test]
    fn a_claim_that_another_pod_has_alone_is_named_with_how_to_find_that_pod() {
        let words = "0/1 nodes are available: 1 node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod \
                     access mode.";
        let condition =
            json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": words});
        let mut pod = pod(&json!({"phase": "Pending", "conditions": [condition]}));
        let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": "db-data"}});
        pod.spec.as_mut().unwrap().volumes = Some(vec![serde_json::from_value(volume).unwrap()]);
        let fault = fault_of(&pod, None, None).unwrap();
        assert_eq!(fault.reason, "PodPending");
        for part in [words, "`kubectl describe pvc db-data`", "as soon as that pod is gone"] {
            assert!(fault.message.contains(part), "{part}: {}", fault.message);
        }
    }

    #[test]
    fn an_image_that_cannot_be_pulled_is_named() {
        for why in ["ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"] {
            let fault = fault_of(&pod(&json!({})), Some(&waiting(why, Some("denied"))), None).unwrap();
            assert_eq!(fault.reason, "ImagePullFailed");
            assert!(fault.message.contains("example.com/volferry:1") && fault.message.contains(why));
        }
    }

    #[test]
    fn a_container_that_does_not_start_is_named() {
        let waiting = waiting("CreateContainerConfigError", Some("secret \"s\" not found"));
        let fault = fault_of(&pod(&json!({})), Some(&waiting), None).unwrap();
        assert_eq!(fault.reason, "PodFailed");
        assert!(
            fault.message.contains("CreateContainerConfigError")
                && fault.message.contains("secret \"s\" not found")
        );
    }

    #[test]
    fn a_pod_that_waits_for_its_volume_gives_the_last_warning() {
        let creating = waiting("ContainerCreating", None);
        let mut pod = pod(&json!({}));
        assert_eq!(fault_of(&pod, Some(&creating), None), None);
        pod.spec.as_mut().unwrap().node_name = Some("node".into());
        let message = fault_of(&pod, Some(&creating), Some("FailedMount: no such device")).unwrap().message;
        assert!(message.contains("waits on its node: FailedMount: no such device"), "{message}");
        let stale = Some("FailedScheduling: 0/2 nodes fit.");
        assert_eq!(fault_of(&pod, Some(&creating), stale), None);
    }

    #[test]
    fn the_schedulers_event_says_as_much_as_what_it_writes_into_the_pod() {
        let refused = json!({"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes fit."},
        ]});
        let waiting = json!({"phase": "Pending"});
        for (status, warning) in [(refused, None), (waiting, Some("FailedScheduling: 0/2 nodes fit."))] {
            let fault = fault_of(&pod(&status), None, warning).unwrap();
            assert_eq!(fault.reason, "PodPending");
            assert!(
                fault.message.contains("0/2 nodes fit.") && fault.message.contains("nodeSelector"),
                "{}",
                fault.message
            );
        }
    }
}
