//! Determines the node of a volume from objects of the cluster. Pure.

use k8s_openapi::api::{
    core::v1::{NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume},
    storage::v1::VolumeAttachment,
};
use kube::ResourceExt as _;

/// The part after the prefix of node labels that hold the node's name: that of Kubernetes, and those of drivers for
/// local volumes.
const NAME_LABELS: [&str; 3] = ["hostname", "node", "nodename"];

/// Returns the one node that a volume's node affinity allows; `None` if it allows several.
pub fn tied_to(volume: &PersistentVolume) -> Option<&str> {
    let required = volume.spec.as_ref()?.node_affinity.as_ref()?.required.as_ref()?;
    let mut nodes = required.node_selector_terms.iter().map(node_of_term);
    let first = nodes.next()??;
    nodes.all(|node| node == Some(first)).then_some(first)
}

fn node_of_term(term: &NodeSelectorTerm) -> Option<&str> {
    let named = |requirement: &&NodeSelectorRequirement| {
        let label = requirement.key.rsplit('/').next().unwrap_or_default();
        requirement.operator == "In" && NAME_LABELS.contains(&label)
    };
    let fields = term.match_fields.iter().flatten().find(|field| field.key == "metadata.name");
    let requirement = fields.or_else(|| term.match_expressions.iter().flatten().find(named))?;
    match requirement.values.as_deref()? {
        [node] => Some(node),
        _ => None,
    }
}

/// Returns the node that a volume of that name is attached to, or is about to be.
pub fn attached_to<'a>(
    volume: &str,
    attachments: impl IntoIterator<Item = &'a VolumeAttachment>,
) -> Option<&'a str> {
    let is_of = |attachment: &&VolumeAttachment| {
        attachment.spec.source.persistent_volume_name.as_deref() == Some(volume)
            && attachment.metadata.deletion_timestamp.is_none()
    };
    let is_done = |attachment: &VolumeAttachment| attachment.status.as_ref().is_some_and(|it| it.attached);
    let found = attachments.into_iter().filter(is_of);
    found.min_by_key(|it| (!is_done(it), it.name_any())).map(|it| it.spec.node_name.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn volume(terms: &Value) -> PersistentVolume {
        let affinity = json!({"required": {"nodeSelectorTerms": terms}});
        serde_json::from_value(json!({"metadata": {"name": "v"}, "spec": {"nodeAffinity": affinity}}))
            .unwrap()
    }

    fn is_in(key: &str, nodes: &[&str]) -> Value {
        json!({"key": key, "operator": "In", "values": nodes})
    }

    #[test]
    fn a_volume_is_tied_to_the_one_node_that_its_affinity_names() {
        for key in ["kubernetes.io/hostname", "topology.hostpath.csi/node", "openebs.io/nodename"] {
            let tied = volume(&json!([{"matchExpressions": [is_in("zone", &["z"]), is_in(key, &["n1"])]}]));
            assert_eq!(tied_to(&tied), Some("n1"), "{key}");
        }
        let by_field = volume(&json!([{"matchFields": [is_in("metadata.name", &["n1"])]}]));
        assert_eq!(tied_to(&by_field), Some("n1"));
    }

    #[test]
    fn a_volume_that_several_nodes_can_mount_is_tied_to_none() {
        let host = "kubernetes.io/hostname";
        let on = |nodes: &[&str]| json!({"matchExpressions": [is_in(host, nodes)]});
        let not = json!({"matchExpressions": [{"key": host, "operator": "NotIn", "values": ["n1"]}]});
        let zone = json!({"matchExpressions": [is_in("topology.kubernetes.io/zone", &["z"])]});
        for terms in
            [json!([on(&["n1", "n2"])]), json!([on(&["n1"]), on(&["n2"])]), json!([not]), json!([zone])]
        {
            assert_eq!(tied_to(&volume(&terms)), None, "{terms}");
        }
        assert_eq!(tied_to(&volume(&json!([on(&["n1"]), on(&["n1"])]))), Some("n1"));
        assert_eq!(tied_to(&PersistentVolume::default()), None);
    }

    fn attachment(name: &str, volume: &str, node: &str, attached: bool) -> VolumeAttachment {
        let spec = json!({"attacher": "a", "nodeName": node, "source": {"persistentVolumeName": volume}});
        let object = json!({"metadata": {"name": name}, "spec": spec, "status": {"attached": attached}});
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_volume_is_where_it_is_attached_and_not_where_it_leaves() {
        let mut leaving = attachment("a", "v", "n1", true);
        leaving.metadata.deletion_timestamp =
            Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
        let others = [leaving, attachment("b", "other", "n2", true)];
        assert_eq!(attached_to("v", &others), None);
        let both = [attachment("a", "v", "n1", false), attachment("b", "v", "n2", true)];
        assert_eq!(attached_to("v", &both), Some("n2"));
        assert_eq!(attached_to("v", &both[..1]), Some("n1"), "it is about to be attached");
    }
}
