//! What there is of a job's runs in the cluster, and what it says of a try. Pure.

use std::collections::BTreeMap;

use contract::Side;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::ResourceExt;

use super::{
    observe::{self, EndState},
    placement::Placements,
    warnings::Warnings,
};
use crate::{
    api::Reports,
    names::{self, TryNames},
};

/// What there is of a job's runs.
#[derive(Debug, Default)]
pub struct Children {
    /// The Jobs.
    pub jobs: Vec<Job>,
    /// The pods.
    pub pods: Vec<Pod>,
}

/// The UID of an object whose warnings say why an end does not start.
pub enum Stuck {
    /// Of a pod.
    Pod(String),
    /// Of a Job that lacks pods.
    Job(String),
}

impl Children {
    /// The names of the tries that these children belong to, apart from `current`, of the job with that name and UID. A
    /// pod counts whatever its label is, since it may write to the volume.
    pub fn leftovers(&self, current: Option<&TryNames>, job: &str, uid: &str) -> Vec<TryNames> {
        let made = tries(self.jobs.iter().map(ResourceExt::labels)).filter(|names| names.is_of(job, uid));
        let others = made.chain(tries(self.pods.iter().map(ResourceExt::labels)));
        let mut others: Vec<TryNames> = others.filter(|names| Some(names) != current).collect();
        others.sort_unstable();
        others.dedup();
        others
    }

    /// Whether a try has a Job that was made from another generation of the spec, with another image, or whose pods
    /// cannot come to the node that its volume is on by now.
    pub fn is_outdated(
        &self,
        names: &TryNames,
        generation: i64,
        image: &str,
        placements: &Placements,
    ) -> bool {
        let is = |side| {
            let job = self.job_of(names, side).filter(|job| job.metadata.deletion_timestamp.is_none());
            job.is_some_and(|job| {
                let moved = placements
                    .of(side)
                    .is_some_and(|it| node_of(job) != Some(&it.node) && !self.are_on(names, side, &it.node));
                moved || generation_of(job) != Some(generation) || image_of(job) != Some(image)
            })
        };
        is(Side::Source) || is(Side::Sink)
    }

    /// Whether all pods of an end are on that node, by the scheduler's own choice.
    fn are_on(&self, names: &TryNames, side: Side, node: &str) -> bool {
        let is_there =
            |pod: &&Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node);
        let pods = self.pods_of(names, side);
        !pods.is_empty() && pods.iter().all(is_there)
    }

    /// Where one end of a try is, or of one of its shards.
    pub fn end_state(
        &self,
        side: Side,
        shard: Option<u32>,
        names: &TryNames,
        try_id: &str,
        seen: Seen<'_>,
    ) -> EndState {
        let mut pods = self.pods_of(names, side);
        pods.retain(|pod| shard.is_none() || shard_of(pod) == shard);
        observe::end_state(&observe::End {
            side,
            shard,
            job: self.job_of(names, side),
            pods: &pods,
            warning: seen.warnings.of(side).and_then(|warning| warning.about(&pods)),
            report: seen.reports.and_then(|reports| reports.of(shard, side)),
            try_id,
        })
    }

    /// Whether a try has a pod whose process may run.
    pub fn has_live_pods(&self, names: &TryNames) -> bool {
        let mut pods = [Side::Source, Side::Sink].into_iter().flat_map(|side| self.pods_of(names, side));
        pods.any(observe::is_alive)
    }

    /// Whether an end of a try has ended whose report is not in what its SyncRun says of the ends.
    pub fn lacks_reports(&self, names: &TryNames, try_id: &str, ends: Option<&Reports>) -> bool {
        let has = |shard, side| {
            let report = ends.and_then(|ends| ends.of(shard, side));
            report.is_some_and(|report| report.run == try_id)
        };
        [Side::Source, Side::Sink].into_iter().any(|side| {
            let is_over = self.job_of(names, side).is_some_and(observe::is_over);
            let mut ended =
                self.pods_of(names, side).into_iter().filter(|pod| observe::has_ended(pod)).peekable();
            (is_over && ended.peek().is_none() && !has(None, side))
                || ended.any(|pod| !has(shard_of(pod), side))
        })
    }

    /// The Job of one end of a try.
    pub fn job_of(&self, names: &TryNames, side: Side) -> Option<&Job> {
        let name = names.job(side);
        self.jobs.iter().find(|job| job.metadata.name.as_ref() == Some(&name))
    }

    /// The pods of one end of a try.
    pub fn pods_of(&self, names: &TryNames, side: Side) -> Vec<&Pod> {
        let (label, side) = (names.label(), side.to_string());
        let is = |pod: &Pod, key, value: &String| pod.labels().get(key) == Some(value);
        let ours = |pod: &&Pod| is(pod, names::LABEL_TRY, &label) && is(pod, names::LABEL_SIDE, &side);
        self.pods.iter().filter(ours).collect()
    }

    /// A pod of that end that does not start, or its Job if that lacks pods.
    pub fn stuck(&self, names: &TryNames, side: Side, shards: u32) -> Option<Stuck> {
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

fn tries<'a>(labels: impl Iterator<Item = &'a BTreeMap<String, String>>) -> impl Iterator<Item = TryNames> {
    labels.filter_map(|labels| labels.get(names::LABEL_TRY)).map(|label| TryNames::from_label(label))
}

/// What is known of an end besides its children.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// What the agents wrote into the status.
    pub reports: Option<&'a Reports>,
    /// What Kubernetes warns of.
    pub warnings: &'a Warnings,
}

/// Which shard a pod has, of a Job with several.
fn shard_of(pod: &Pod) -> Option<u32> {
    pod.annotations().get(names::ANNOTATION_INDEX)?.parse().ok()
}

fn generation_of(job: &Job) -> Option<i64> {
    job.annotations().get(names::ANNOTATION_GENERATION)?.parse().ok()
}

fn node_of(job: &Job) -> Option<&String> {
    job.annotations().get(names::ANNOTATION_NODE)
}

fn image_of(job: &Job) -> Option<&str> {
    job.spec.as_ref()?.template.spec.as_ref()?.containers.first()?.image.as_deref()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::placement;

    fn names(number: i64) -> TryNames {
        TryNames::new("web", "u", number, 0)
    }

    fn job(of: &TryNames, generation: i64, image: &str) -> Job {
        serde_json::from_value(json!({
            "metadata": {
                "name": of.job(Side::Sink),
                "labels": {names::LABEL_TRY: of.label()},
                "annotations": {names::ANNOTATION_GENERATION: generation.to_string()},
            },
            "spec": {"template": {"spec": {"containers": [{"name": "syncer", "image": image}]}}},
        }))
        .unwrap()
    }

    fn labelled<K: serde::de::DeserializeOwned>(of: &TryNames) -> K {
        serde_json::from_value(json!({"metadata": {"name": "x", "labels": {names::LABEL_TRY: of.label()}}}))
            .unwrap()
    }

    #[test]
    fn children_of_the_try_under_way_are_no_leftovers() {
        let children = Children { jobs: vec![job(&names(2), 4, "i")], pods: vec![labelled(&names(2))] };
        assert_eq!(children.leftovers(Some(&names(2)), "web", "u"), []);
        assert_eq!(children.leftovers(None, "web", "u"), [names(2)]);
    }

    #[test]
    fn any_kind_of_child_betrays_an_earlier_try() {
        let by_job = Children { jobs: vec![job(&names(1), 4, "i")], ..Children::default() };
        let by_pod = Children { pods: vec![labelled(&names(1))], ..Children::default() };
        for children in [by_job, by_pod] {
            assert_eq!(children.leftovers(Some(&names(2)), "web", "u"), [names(1)]);
        }
    }

    #[test]
    fn a_job_made_from_another_spec_or_with_another_image_is_outdated() {
        let children = Children { jobs: vec![job(&names(2), 4, "new")], ..Children::default() };
        let anywhere = Placements::default();
        assert!(!children.is_outdated(&names(2), 4, "new", &anywhere));
        assert!(children.is_outdated(&names(2), 5, "new", &anywhere));
        assert!(children.is_outdated(&names(2), 4, "newer", &anywhere));
        assert!(!children.is_outdated(&names(1), 5, "newer", &anywhere), "another try's Job");
    }

    #[test]
    fn a_job_for_another_node_than_its_volumes_is_outdated() {
        let mut tied = job(&names(2), 4, "i");
        tied.annotations_mut().insert(names::ANNOTATION_NODE.into(), "n1".into());
        let children = Children { jobs: vec![tied], ..Children::default() };
        let on = |node: &str| Placements {
            sink: Some(placement::Placement { node: node.into(), tolerations: vec![] }),
            ..Placements::default()
        };
        assert!(!children.is_outdated(&names(2), 4, "i", &on("n1")));
        assert!(!children.is_outdated(&names(2), 4, "i", &Placements::default()), "its user has left");
        assert!(children.is_outdated(&names(2), 4, "i", &on("n2")));
    }

    #[test]
    fn a_pod_that_came_to_the_node_of_a_later_user_of_its_volume_by_itself_is_left_alone() {
        let pod = |node: Option<&str>| -> Pod {
            let labels = json!({names::LABEL_TRY: names(2).label(), names::LABEL_SIDE: "sink"});
            let spec = json!({"containers": [], "nodeName": node});
            serde_json::from_value(json!({"metadata": {"name": "x", "labels": labels}, "spec": spec}))
                .unwrap()
        };
        let placements = Placements {
            sink: Some(placement::Placement { node: "n1".into(), tolerations: vec![] }),
            ..Placements::default()
        };
        for (nodes, is_outdated) in
            [(vec![None], true), (vec![Some("n2")], true), (vec![Some("n1")], false), (vec![], true)]
        {
            let jobs = vec![job(&names(2), 4, "i")];
            let children = Children { jobs, pods: nodes.iter().map(|node| pod(*node)).collect() };
            assert_eq!(children.is_outdated(&names(2), 4, "i", &placements), is_outdated, "{nodes:?}");
        }
    }
}
