//! Decides how a SyncEndpoint stands: whether its pod may run, and what its conditions say. Pure.

use contract::{PublicKey, Reason};
use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ContainerStatus, PersistentVolumeClaim, Pod},
};

use crate::{
    api::{SyncEndpoint, SyncEndpointStatus, conditions},
    fault::Fault,
    human,
};

/// The longest text from a pod in a message, in bytes.
const MAX_WORDS_BYTES: usize = 512;

/// How an endpoint stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServiceStanding {
    /// Peers can come, or nobody is to come.
    Ready(Fault),
    /// It becomes ready by itself.
    Reconciling(Fault),
    /// A person has to act.
    Stalled(Fault),
}

impl ServiceStanding {
    /// Writes the conditions.
    pub fn write(&self, status: &mut SyncEndpointStatus, generation: i64, now: Timestamp) {
        let (Self::Ready(told) | Self::Reconciling(told) | Self::Stalled(told)) = self;
        let cause = told.cause(generation);
        match self {
            Self::Ready(_) => conditions::ready(&mut status.conditions, cause, now),
            Self::Reconciling(_) => conditions::reconciling(&mut status.conditions, cause, now),
            Self::Stalled(_) => conditions::stalled(&mut status.conditions, cause, now),
        }
        // Nobody else has a say in them, so what else is there was forged.
        let known = [conditions::READY, conditions::RECONCILING, conditions::STALLED];
        status.conditions.retain(|condition| known.contains(&condition.type_.as_str()));
        status.observed_generation = Some(generation);
    }
}

/// Returns why the claim cannot be served, which only a person can change.
pub fn of_claim(endpoint: &SyncEndpoint, claim: Option<&PersistentVolumeClaim>) -> Result<(), Fault> {
    let name = &endpoint.spec.persistent_volume_claim.claim_name;
    let Some(claim) = claim else {
        let message = format!(
            "The claim {name} does not exist. Create it, or correct spec.persistentVolumeClaim.claimName; the endpoint goes on as \
             soon as the claim is there."
        );
        return Err(Fault::new(Reason::ClaimNotFound, message));
    };
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    if claim.metadata.deletion_timestamp.is_some() {
        let message =
            format!("The claim {name} is being deleted. Create it anew when it is gone, or name another.");
        return Err(Fault::new(Reason::ClaimTerminating, message));
    }
    if phase == Some("Lost") {
        let message =
            format!("The volume of the claim {name} is gone. Bring it back, or make the claim anew.");
        return Err(Fault::new(Reason::ClaimLost, message));
    }
    match claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()) {
        Some("Block") => {
            let message = format!(
                "The claim {name} has volumeMode Block, and an endpoint serves the files of a file system. Name another claim."
            );
            Err(Fault::new(Reason::BlockVolume, message))
        }
        _ => Ok(()),
    }
}

/// Returns how an endpoint stands whose objects are applied. `pods` are its own.
pub fn of_pod(
    endpoint: &SyncEndpoint,
    deployment: Option<&Deployment>,
    pods: &[Pod],
    address: Option<&str>,
) -> ServiceStanding {
    let waiting = |reason: Reason, message: String| ServiceStanding::Reconciling(Fault::new(reason, message));
    if endpoint.spec.suspend {
        let ends = pods.iter().find(|pod| pod_is_alive(pod));
        return ends.map_or_else(
            || {
                let message = "No peer is served while spec.suspend is true.";
                ServiceStanding::Ready(Fault::new(Reason::Suspended, message))
            },
            |pod| waiting(Reason::PodPending, still_ending(pod)),
        );
    }
    if !deployment.is_some_and(is_available) {
        return unavailable(deployment, pods);
    }
    if public_key(endpoint).is_none() {
        return waiting(Reason::PodPending, "The endpoint's pod has not told its public key yet.".into());
    }
    match address {
        Some(address) => {
            let peers = contract::human::plural(endpoint.spec.peers.len() as u64, "key", "keys");
            let message = format!("Peers with {peers} can reach {address}.");
            ServiceStanding::Ready(Fault::new(Reason::Serving, message))
        }
        None => waiting(
            Reason::AddressPending,
            "The Service has no address yet. If this lasts, the cluster has no load balancer: write service.type NodePort, or \
             service.hostName with the name by which peers reach it."
                .into(),
        ),
    }
}

/// Returns whether the process of a pod may run: a node that is cut off lets it go on.
fn pod_is_alive(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    !matches!(phase, Some("Succeeded" | "Failed"))
}

/// Returns whether one of an endpoint's pods goes on at that node, ready or not.
pub fn runs_on(pods: &[Pod], node: &str) -> bool {
    let is_there = |pod: &Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node);
    pods.iter().any(|pod| is_there(pod) && pod.metadata.deletion_timestamp.is_none() && pod_is_alive(pod))
}

fn still_ending(pod: &Pod) -> String {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or("no node");
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    format!("The pod {name} on {node} has not ended yet, and peers may still be served until it has.")
}

/// Returns the endpoint's public key, as its pod wrote it, if it is one.
pub fn public_key(endpoint: &SyncEndpoint) -> Option<PublicKey> {
    endpoint.status.as_ref()?.public_key.as_ref()?.parse().ok()
}

/// Returns whether a Deployment's pod is ready, and was made from what was applied last.
pub fn is_available(deployment: &Deployment) -> bool {
    let Some(status) = &deployment.status else { return false };
    let is_observed = status.observed_generation >= deployment.metadata.generation;
    is_observed && status.updated_replicas.unwrap_or(0) > 0 && status.available_replicas.unwrap_or(0) > 0
}

/// Returns why an endpoint's pod is not ready.
fn unavailable(deployment: Option<&Deployment>, pods: &[Pod]) -> ServiceStanding {
    let stuck = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).find_map(of_stuck_pod);
    if let Some(standing) = stuck {
        return standing;
    }
    let conditions = deployment.and_then(|it| it.status.as_ref()?.conditions.as_ref()).into_iter().flatten();
    let refused = conditions.filter(|it| it.type_ == "ReplicaFailure" && it.status == "True");
    match refused.filter_map(|it| it.message.as_deref()).next() {
        Some(words) => ServiceStanding::Stalled(Fault::new(
            Reason::ChildRefused,
            format!(
                "The endpoint's pod is refused: {} Correct spec.pods if that is what it names, else the quota or the policy that \
                 stands in the way.",
                human::sentence(&human::clipped(words, MAX_WORDS_BYTES))
            ),
        )),
        None => {
            let message = "The endpoint's pod is starting.";
            ServiceStanding::Reconciling(Fault::new(Reason::PodPending, message))
        }
    }
}

/// Returns what holds up a pod, if it says.
fn of_stuck_pod(pod: &Pod) -> Option<ServiceStanding> {
    let status = pod.status.as_ref()?;
    let words = |text: Option<&String>| {
        human::sentence(&human::clipped(text.map(String::as_str).unwrap_or_default(), MAX_WORDS_BYTES))
    };
    if let Some(container) = status.container_statuses.iter().flatten().next() {
        let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref());
        match waiting.and_then(|it| it.reason.as_deref()) {
            Some("ErrImagePull" | "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull") => {
                let told = words(waiting.and_then(|it| it.message.as_ref()));
                let message = format!("The endpoint's image cannot be pulled: {told}");
                return Some(ServiceStanding::Stalled(Fault::new(Reason::ImagePullFailed, message)));
            }
            Some("CrashLoopBackOff") => {
                let message =
                    format!("The endpoint's pod fails again and again: {}", words(last_words(container)));
                return Some(ServiceStanding::Stalled(Fault::new(Reason::PodFailed, message)));
            }
            _ => {}
        }
    }
    let unplaced = status.conditions.iter().flatten();
    let unplaced = unplaced.into_iter().find(|it| it.type_ == "PodScheduled" && it.status == "False")?;
    let message = format!("The endpoint's pod finds no node: {}", words(unplaced.message.as_ref()));
    Some(ServiceStanding::Reconciling(Fault::new(Reason::PodPending, message)))
}

/// Returns the termination message of a container's last end.
fn last_words(container: &ContainerStatus) -> Option<&String> {
    container.last_state.as_ref()?.terminated.as_ref()?.message.as_ref()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn endpoint(spec: &Value, status: &Value) -> SyncEndpoint {
        let mut whole = json!({"persistentVolumeClaim": {"claimName": "data"}, "access": "Write"});
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": whole, "status": status})).unwrap()
    }

    fn of<T: serde::de::DeserializeOwned>(value: Value) -> T {
        serde_json::from_value(value).unwrap()
    }

    fn ready() -> Deployment {
        of(json!({"metadata": {"generation": 2}, "spec": {"selector": {}, "template": {}}, "status":
            {"observedGeneration": 2, "updatedReplicas": 1, "availableReplicas": 1}}))
    }

    fn told(standing: &ServiceStanding) -> (&'static str, &str, &str) {
        let (kind, fault) = match standing {
            ServiceStanding::Ready(fault) => ("Ready", fault),
            ServiceStanding::Reconciling(fault) => ("Reconciling", fault),
            ServiceStanding::Stalled(fault) => ("Stalled", fault),
        };
        (kind, &fault.reason, &fault.message)
    }

    #[test]
    fn a_pod_that_is_not_ready_yet_keeps_its_node_until_it_goes() {
        let pod = |metadata: Value, phase: &str| {
            of(
                json!({"metadata": metadata, "spec": {"nodeName": "n1", "containers": []}, "status": {"phase": phase}}),
            )
        };
        let runs = |pod: Pod| runs_on(&[pod], "n1");
        assert!(runs(pod(json!({}), "Running")) && runs(pod(json!({}), "Pending")));
        assert!(!runs_on(&[pod(json!({}), "Running")], "n2") && !runs_on(&[], "n1"));
        assert!(!runs(pod(json!({}), "Failed")));
        assert!(!runs(pod(json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}), "Running")));
    }

    #[test]
    fn a_claim_is_served_if_it_is_there_with_a_file_system() {
        let endpoint = endpoint(&json!({}), &json!({}));
        let fault = |claim: Value| of_claim(&endpoint, Some(&of(claim))).map_err(|fault| fault.reason);
        assert_eq!(of_claim(&endpoint, None).unwrap_err().reason, "ClaimNotFound");
        assert_eq!(fault(json!({"metadata": {}, "status": {"phase": "Pending"}})), Ok(()));
        assert_eq!(fault(json!({"metadata": {}, "status": {"phase": "Lost"}})), Err("ClaimLost".into()));
        let going = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(fault(going), Err("ClaimTerminating".into()));
        assert_eq!(
            fault(json!({"metadata": {}, "spec": {"volumeMode": "Block"}})),
            Err("BlockVolume".into())
        );
    }

    fn standing(
        endpoint: &SyncEndpoint,
        deployment: Option<&Deployment>,
        address: Option<&str>,
    ) -> ServiceStanding {
        of_pod(endpoint, deployment, &[], address)
    }

    #[test]
    fn an_endpoint_is_ready_with_a_pod_a_key_and_an_address() {
        let key = json!({"publicKey": "2Ej8lyFbGXtk9sU3e3mYwA3HnJpKKeG1kcLEcQWvY1Q="});
        let serving = endpoint(&json!({}), &key);
        assert_eq!(told(&standing(&serving, Some(&ready()), Some("h::web"))).1, "Serving");
        assert_eq!(told(&standing(&serving, Some(&ready()), None)).1, "AddressPending");
        assert_eq!(told(&standing(&serving, None, Some("h::web"))).1, "PodPending");
        for forged in [json!({}), json!({"publicKey": "not a key"})] {
            let standing = standing(&endpoint(&json!({}), &forged), Some(&ready()), Some("h::web"));
            assert_eq!(told(&standing).0, "Reconciling");
        }
        let mut old = ready();
        old.metadata.generation = Some(3);
        assert_eq!(told(&standing(&serving, Some(&old), Some("h::web"))).1, "PodPending");
        let suspended = endpoint(&json!({"suspend": true}), &key);
        assert_eq!(
            told(&standing(&suspended, None, None)),
            ("Ready", "Suspended", told(&standing(&suspended, None, None)).2)
        );
        let with_pod = |phase: &str| {
            let pod = of(json!({"metadata": {"name": "p"}, "status": {"phase": phase}}));
            let standing = of_pod(&suspended, None, &[pod], None);
            let (kind, reason, _) = told(&standing);
            format!("{kind} {reason}")
        };
        assert_eq!(with_pod("Running"), "Reconciling PodPending");
        assert_eq!(with_pod("Succeeded"), "Ready Suspended");
    }

    #[test]
    fn a_pod_that_is_stuck_says_why() {
        let waiting = |reason: &str| {
            json!({"containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 1,
                "state": {"waiting": {"reason": reason, "message": "no such image"}},
                "lastState": {"terminated": {"exitCode": 1, "message": "the key is wrong"}}}]})
        };
        let unplaced =
            json!({"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/2 nodes"}]});
        let cases = [
            (waiting("ImagePullBackOff"), "Stalled", "ImagePullFailed", "no such image"),
            (waiting("CrashLoopBackOff"), "Stalled", "PodFailed", "the key is wrong"),
            (waiting("ContainerCreating"), "Reconciling", "PodPending", "starting"),
            (unplaced, "Reconciling", "PodPending", "0/2 nodes"),
        ];
        let endpoint = endpoint(&json!({}), &json!({}));
        for (status, kind, reason, words) in cases {
            let standing = of_pod(&endpoint, None, &[of(json!({"metadata": {}, "status": status}))], None);
            let found = told(&standing);
            assert_eq!((found.0, found.1), (kind, reason));
            assert!(found.2.contains(words), "{found:?}");
        }
        let refused = json!({"spec": {"selector": {}, "template": {}}, "status": {"conditions":
            [{"type": "ReplicaFailure", "status": "True", "message": "exceeded quota"}]}});
        let standing = of_pod(&endpoint, Some(&of(refused)), &[], None);
        assert_eq!((told(&standing).0, told(&standing).1), ("Stalled", "ChildRefused"));
    }

    #[test]
    fn conditions_that_somebody_forged_do_not_stay() {
        let forged = json!({"conditions": [
            {"type": "Ready", "status": "True", "reason": "Serving", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "Trusted", "status": "True", "reason": "X", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
        let mut status = endpoint(&json!({}), &forged).status.unwrap();
        ServiceStanding::Stalled(Fault::new(Reason::ClaimNotFound, "m")).write(
            &mut status,
            3,
            Timestamp::UNIX_EPOCH,
        );
        let types: Vec<_> =
            status.conditions.iter().map(|it| (it.type_.as_str(), it.status.as_str())).collect();
        assert_eq!(types, [("Ready", "False"), ("Stalled", "True")]);
        assert_eq!(status.observed_generation, Some(3));
    }
}
