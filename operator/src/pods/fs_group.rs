//! Determines the `fsGroup` that syncer pods take over from the workload pods that use their claims. Pure.

use contract::Side;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;

use crate::{api::FsGroups, names::LABEL_TRY, volumes::claims::Claim};

/// Returns the groups of the pods that use the claims; for an unused claim, the group `known` from earlier.
pub fn groups(claims: &[Claim], pods: &[Pod], known: Option<FsGroups>) -> FsGroups {
    let known = known.unwrap_or_default();
    let of = |side| {
        let claim = claims.iter().find(|claim| claim.side == side)?.found.as_ref()?;
        group_of(claim, pods)
    };
    FsGroups { source: of(Side::Source).or(known.source), destination: of(Side::Sink).or(known.destination) }
}

/// Returns the group of the pods that use a claim, preferring running pods, then newer ones. Syncer pods and pods
/// without a group do not count.
fn group_of(claim: &PersistentVolumeClaim, pods: &[Pod]) -> Option<i64> {
    let users = pods.iter().filter(|pod| uses(pod, claim) && !pod.labels().contains_key(LABEL_TRY));
    let groups = users.filter_map(|pod| Some((pod, pod.spec.as_ref()?.security_context.as_ref()?.fs_group?)));
    groups.max_by_key(|(pod, _)| (is_running(pod), created(pod))).map(|(_, group)| group)
}

fn uses(pod: &Pod, claim: &PersistentVolumeClaim) -> bool {
    let (name, is_here) = (claim.name_any(), pod.metadata.namespace == claim.metadata.namespace);
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let mut claims = volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref());
    is_here && claims.any(|it| it.claim_name == name)
}

fn is_running(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
}

fn created(pod: &Pod) -> Option<Timestamp> {
    pod.creation_timestamp().map(|time| time.0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::volumes::claims::Class;

    fn claims() -> [Claim; 2] {
        [(Side::Source, "from"), (Side::Sink, "to")].map(|(side, name)| {
            let found = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            Claim { side, name: format!("prod/{name}"), found: Some(found), class: Class::Unknown }
        })
    }

    fn pod(claim: &str, group: Option<i64>, phase: &str, second: u32, labels: &Value) -> Pod {
        let created = format!("2026-11-22T18:00:{second:02}Z");
        let volume = json!({"name": "v", "persistentVolumeClaim": {"claimName": claim}});
        let spec = json!({"containers": [], "volumes": [volume], "securityContext": {"fsGroup": group}});
        let metadata = json!({"name": "p", "creationTimestamp": created, "labels": labels});
        let pod = json!({"metadata": metadata, "spec": spec, "status": {"phase": phase}});
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn each_claims_group_is_that_of_its_running_pod_or_else_of_the_newest() {
        let pods = [
            pod("from", Some(1), "Running", 1, &json!({})),
            pod("from", Some(2), "Pending", 2, &json!({})),
            pod("to", Some(3), "Succeeded", 1, &json!({})),
            pod("to", Some(4), "Failed", 2, &json!({})),
            pod("to", Some(5), "Running", 3, &json!({LABEL_TRY: "t"})),
            pod("to", None, "Running", 4, &json!({})),
        ];
        assert_eq!(groups(&claims(), &pods, None), FsGroups { source: Some(1), destination: Some(4) });
    }

    #[test]
    fn the_group_of_a_workload_that_has_no_pods_is_the_one_that_it_had() {
        let known = FsGroups { source: Some(7), destination: Some(8) };
        assert_eq!(groups(&claims(), &[], Some(known)), known);
        let pods = [pod("to", Some(9), "Running", 1, &json!({}))];
        assert_eq!(groups(&claims(), &pods, Some(known)), FsGroups { destination: Some(9), ..known });
        assert_eq!(groups(&claims(), &[], None), FsGroups::default());
    }
}
