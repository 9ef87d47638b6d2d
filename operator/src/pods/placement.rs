//! Determines the node that the pod of an end has to run on, beyond what the scheduler knows. Pure.
//!
//! A volume that only one node at a time may mount is tied to the node of its current user. For a local volume, its
//! node affinity says so; for one that is attached over a network, nothing does, and a pod on another node would wait
//! forever. So a pod is pinned to the node of a foreign pod that uses the volume, and syncer pods carry labels for the
//! claims that they use, by which the scheduler places one next to the other. A volume that no pod uses but that is
//! still attached could move, which takes longer: its node is preferred.

use contract::Side;
use k8s_openapi::{
    api::core::v1::{
        Affinity, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolumeClaim, Pod, PodAffinityTerm,
        PodSpec, PodStatus, PreferredSchedulingTerm, Toleration, WeightedPodAffinityTerm,
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use kube::ResourceExt as _;

use crate::{
    names::{CLAIM_USED, LABEL_TRY},
    volumes::access_modes::ties,
};

/// The node that a pod has to run on.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// The node's name.
    pub node: String,
    /// The tolerations of the pod that runs there, which the node may require.
    pub tolerations: Vec<Toleration>,
    /// Whether the pod could not start elsewhere; otherwise, it would just start faster on this node.
    pub is_required: bool,
}

impl Placement {
    /// Returns the placement on the node that a volume is attached to without a known user.
    pub fn preferred(node: String) -> Self {
        Self { node, tolerations: Vec::new(), is_required: false }
    }
}

/// Returns the node of a pod that uses the claim, if the claim ties other pods to that node. Syncer pods do not count.
pub fn placement(claim: &PersistentVolumeClaim, pods: &[Pod]) -> Option<Placement> {
    if !ties(claim) {
        return None;
    }
    let name = claim.name_any();
    let users = pods.iter().filter(|pod| uses(pod, &name) && !pod.labels().contains_key(LABEL_TRY));
    let spec = users.min_by_key(|pod| (phase(pod) != "Running", pod.name_any()))?.spec.as_ref()?;
    Some(Placement {
        node: spec.node_name.clone()?,
        tolerations: spec.tolerations.clone().unwrap_or_default(),
        is_required: true,
    })
}

/// Reduces a pod to the fields that [`placement`] needs; `None` if it uses no claim.
pub fn user(pod: Pod) -> Option<Pod> {
    let PodSpec { node_name, tolerations, volumes, .. } = pod.spec?;
    let mut volumes = volumes.unwrap_or_default();
    volumes.retain(|volume| volume.persistent_volume_claim.is_some());
    let ObjectMeta { name, labels, .. } = pod.metadata;
    let spec = PodSpec { node_name, tolerations, volumes: Some(volumes), ..PodSpec::default() };
    let is_user = spec.volumes.as_ref().is_some_and(|volumes| !volumes.is_empty());
    is_user.then(|| Pod {
        metadata: ObjectMeta { name, labels, ..ObjectMeta::default() },
        status: Some(PodStatus { phase: pod.status.and_then(|status| status.phase), ..PodStatus::default() }),
        spec: Some(spec),
    })
}

fn uses(pod: &Pod, claim: &str) -> bool {
    let Some(spec) = pod.spec.as_ref().filter(|spec| spec.node_name.is_some()) else { return false };
    let mut volumes =
        spec.volumes.iter().flatten().filter_map(|volume| volume.persistent_volume_claim.as_ref());
    !["Succeeded", "Failed"].contains(&phase(pod)) && volumes.any(|it| it.claim_name == claim)
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// Adds the node to `wanted` as a requirement.
pub fn pinned(wanted: Option<Affinity>, node: &str) -> Affinity {
    let mut affinity = wanted.unwrap_or_default();
    let required = affinity.node_affinity.get_or_insert_default();
    let terms = &mut required
        .required_during_scheduling_ignored_during_execution
        .get_or_insert_default()
        .node_selector_terms;
    if terms.is_empty() {
        terms.push(NodeSelectorTerm::default());
    }
    // The scheduler needs only one of the terms to match, so each of them has to name the node.
    for term in terms {
        term.match_fields.get_or_insert_default().push(is_node(node));
    }
    affinity
}

/// Adds the node to `wanted` as a preference.
pub fn drawn(wanted: Option<Affinity>, node: &str) -> Affinity {
    let mut affinity = wanted.unwrap_or_default();
    let preference =
        NodeSelectorTerm { match_fields: Some(vec![is_node(node)]), ..NodeSelectorTerm::default() };
    let terms = affinity.node_affinity.get_or_insert_default();
    let preferred = terms.preferred_during_scheduling_ignored_during_execution.get_or_insert_default();
    preferred.push(PreferredSchedulingTerm { preference, weight: 100 });
    affinity
}

fn is_node(node: &str) -> NodeSelectorRequirement {
    NodeSelectorRequirement {
        key: "metadata.name".into(),
        operator: "In".into(),
        values: Some(vec![node.into()]),
    }
}

/// Adds to `wanted` the node of the first pod with that label. If the user has required terms, it is only a preference:
/// the scheduler considers only pods that match all required terms, so the user's would no longer be met.
pub fn following(wanted: Option<Affinity>, label: String) -> Affinity {
    let mut affinity = wanted.unwrap_or_default();
    let terms = affinity.pod_affinity.get_or_insert_default();
    let labels = [(label, CLAIM_USED.to_string())].into();
    let term = PodAffinityTerm {
        label_selector: Some(LabelSelector { match_labels: Some(labels), ..LabelSelector::default() }),
        topology_key: "kubernetes.io/hostname".into(),
        ..PodAffinityTerm::default()
    };
    let required = terms.required_during_scheduling_ignored_during_execution.get_or_insert_default();
    if required.is_empty() {
        required.push(term);
    } else {
        let preferred = terms.preferred_during_scheduling_ignored_during_execution.get_or_insert_default();
        preferred.push(WeightedPodAffinityTerm { pod_affinity_term: term, weight: 100 });
    }
    affinity
}

/// Where the pods of a try have to run, beyond what the scheduler knows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Placements {
    /// The node of the end that sends the files.
    pub source: Option<Placement>,
    /// The node of the end that receives the files.
    pub sink: Option<Placement>,
    /// Whether all pods that use the source's claim have to be on one node.
    pub source_on_one_node: bool,
    /// Whether all pods that use the destination's claim have to be on one node.
    pub sink_on_one_node: bool,
}

impl Placements {
    /// Returns whether all pods that use that end's claim have to be on one node.
    pub fn on_one_node(&self, side: Side) -> bool {
        match side {
            Side::Source => self.source_on_one_node,
            Side::Sink => self.sink_on_one_node,
        }
    }

    /// Returns the placements of the one pod of a local run, which counts as the sink's.
    pub fn in_one_pod(&self) -> Self {
        let sink = self.pinned(Side::Sink).or_else(|| self.pinned(Side::Source));
        Self { sink: sink.or(self.of(Side::Sink)).cloned(), ..self.clone() }
    }

    /// Returns the placement of that end's pod, if it could not start elsewhere.
    pub fn pinned(&self, side: Side) -> Option<&Placement> {
        self.of(side).filter(|it| it.is_required)
    }

    /// Returns the placement of that end's pod, whether it is required or preferred.
    pub fn of(&self, side: Side) -> Option<&Placement> {
        match side {
            Side::Source => self.source.as_ref(),
            Side::Sink => self.sink.as_ref(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(modes: &[&str]) -> PersistentVolumeClaim {
        serde_json::from_value(json!({"metadata": {"name": "data"}, "spec": {"accessModes": modes}})).unwrap()
    }

    fn pod(name: &str, node: Option<&str>, phase: &str, labels: &Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "containers": [], "nodeName": node, "tolerations": [{"key": name}],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
            },
            "status": {"phase": phase},
        }))
        .unwrap()
    }

    fn node(claim: &PersistentVolumeClaim, pods: &[Pod]) -> Option<String> {
        placement(claim, pods).map(|placement| placement.node)
    }

    #[test]
    fn a_volume_for_one_node_ties_to_the_node_of_its_user_and_to_what_that_tolerates() {
        let pods = [pod("app", Some("n1"), "Running", &json!({}))];
        let placement = placement(&claim(&["ReadWriteOnce"]), &pods).unwrap();
        assert_eq!((placement.node.as_str(), placement.tolerations[0].key.as_deref()), ("n1", Some("app")));
    }

    #[test]
    fn volumes_for_many_nodes_or_one_pod_tie_to_none() {
        let pods = [pod("app", Some("n1"), "Running", &json!({}))];
        for modes in [&["ReadWriteMany"][..], &["ReadWriteOnce", "ReadOnlyMany"], &["ReadWriteOncePod"], &[]]
        {
            assert_eq!(node(&claim(modes), &pods), None, "{modes:?}");
        }
    }

    #[test]
    fn pods_that_are_over_or_nowhere_or_syncers_do_not_count() {
        let pods = [
            pod("done", Some("n1"), "Succeeded", &json!({})),
            pod("nowhere", None, "Pending", &json!({})),
            pod("syncer", Some("n2"), "Running", &json!({LABEL_TRY: "t"})),
        ];
        assert_eq!(node(&claim(&["ReadWriteOnce"]), &pods), None);
    }

    #[test]
    fn a_running_user_counts_before_one_that_starts() {
        let pods = [pod("a", Some("n1"), "Pending", &json!({})), pod("b", Some("n2"), "Running", &json!({}))];
        assert_eq!(node(&claim(&["ReadWriteOnce"]), &pods).as_deref(), Some("n2"));
    }

    #[test]
    fn a_pod_follows_others_but_not_against_what_is_wanted() {
        let followed = following(None, "l".into()).pod_affinity.unwrap();
        assert_eq!(followed.required_during_scheduling_ignored_during_execution.unwrap().len(), 1);
        assert_eq!(followed.preferred_during_scheduling_ignored_during_execution, None);
        let own: Affinity = serde_json::from_value(json!({"podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone"},
            ],
        }}))
        .unwrap();
        let followed = following(Some(own.clone()), "l".into()).pod_affinity.unwrap();
        assert_eq!(
            followed.required_during_scheduling_ignored_during_execution,
            own.pod_affinity.unwrap().required_during_scheduling_ignored_during_execution
        );
        assert_eq!(followed.preferred_during_scheduling_ignored_during_execution.unwrap().len(), 1);
    }

    #[test]
    fn a_pod_is_drawn_to_a_node_and_may_be_elsewhere() {
        let drawn = drawn(Some(pinned(None, "n1")), "n2").node_affinity.unwrap();
        let preferred = drawn.preferred_during_scheduling_ignored_during_execution.unwrap();
        let field = &preferred[0].preference.match_fields.as_ref().unwrap()[0];
        assert_eq!(
            (field.key.as_str(), field.values.as_deref().unwrap()),
            ("metadata.name", &["n2".to_string()][..])
        );
        let required = drawn.required_during_scheduling_ignored_during_execution.unwrap();
        assert_eq!(required.node_selector_terms.len(), 1, "what was wanted stays");
    }

    #[test]
    fn one_pod_has_to_be_where_either_end_has_to() {
        let at =
            |node: &str, is_required| Some(Placement { is_required, ..Placement::preferred(node.into()) });
        let node = |source, sink| {
            let both = Placements { source, sink, ..Placements::default() };
            both.in_one_pod().sink.map(|it| it.node)
        };
        assert_eq!(node(at("n1", true), at("n2", false)).as_deref(), Some("n1"));
        assert_eq!(node(at("n1", true), at("n2", true)).as_deref(), Some("n2"));
        assert_eq!(node(None, at("n2", false)).as_deref(), Some("n2"));
    }

    #[test]
    fn a_node_is_added_to_each_of_the_wanted_terms() {
        let wanted: Affinity = serde_json::from_value(json!({"nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                {"matchExpressions": [{"key": "a", "operator": "Exists"}]},
                {"matchExpressions": [{"key": "b", "operator": "Exists"}]},
            ]},
        }}))
        .unwrap();
        for (wanted, terms) in [(Some(wanted), 2), (None, 1)] {
            let pinned = pinned(wanted, "n1").node_affinity.unwrap();
            let required = pinned.required_during_scheduling_ignored_during_execution.unwrap();
            let names =
                |term: &NodeSelectorTerm| term.match_fields.as_ref().unwrap()[0].values.clone().unwrap();
            let nodes: Vec<Vec<String>> = required.node_selector_terms.iter().map(names).collect();
            assert_eq!(nodes, vec![vec!["n1".to_string()]; terms]);
        }
    }
}
