//! The Jobs and pods of a job's runs, and what they say about a try. Pure.

use std::collections::BTreeMap;

use contract::Side;
use jiff::Timestamp;
use kube::ResourceExt;

use super::{
    placement::Placements,
    pod_state::{self, EndState},
    pod_warnings::Warnings,
    stored_fields::{Job, Pod, PodSpec},
};
use crate::{
    api::reports::Reports,
    names::{self, TryNames},
};

/// The maximum number of service accounts of a job: one each for the run under way, the last one, and the last failed
/// one.
const MOST_ACCOUNTS: usize = 3;

/// The Jobs and pods of a job's runs.
#[derive(Debug, Clone, Default)]
pub struct Children {
    /// The Jobs.
    pub jobs: Vec<Job>,
    /// The pods.
    pub pods: Vec<Pod>,
}

/// The UID of the object whose warnings explain why an end does not start.
pub enum Stuck {
    /// The UID of a pod.
    Pod(String),
    /// The UID of a Job that lacks pods.
    Job(String),
}

impl Children {
    /// Returns the names of the tries that these children belong to, except `current`: of the SyncJob's own Jobs with
    /// their pods, and of all other pods that live, since those may write to the volume whoever made them.
    pub fn leftovers(&self, current: Option<&TryNames>, is_own: impl Fn(&Job) -> bool) -> Vec<TryNames> {
        let made = tries(self.jobs.iter().filter(|job| is_own(job)).map(ResourceExt::labels));
        let is_of_own = |pod: &Pod| self.jobs.iter().any(|job| is_own(job) && is_of_job(pod, job));
        let pods = self.pods.iter().filter(|pod| pod_state::is_alive(pod) || is_of_own(pod));
        let others = made.chain(tries(pods.map(ResourceExt::labels)));
        let mut others: Vec<TryNames> = others.filter(|names| Some(names) != current).collect();
        others.sort_unstable();
        others.dedup();
        others
    }

    /// Returns whether a try has an outdated Job: it was built from another spec generation or with another image, or
    /// its pods cannot reach the node that their volume is on by now.
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
                    .pinned(side)
                    .is_some_and(|it| node_of(job) != Some(&it.node) && !self.are_on(names, side, &it.node));
                moved || generation_of(job) != Some(generation) || image_of(job) != Some(image)
            })
        };
        is(Side::Source) || is(Side::Sink)
    }

    /// Returns whether all pods of an end run on that node anyway, by the scheduler's choice.
    fn are_on(&self, names: &TryNames, side: Side, node: &str) -> bool {
        let is_there =
            |pod: &&Pod| pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node);
        let pods = self.pods_of(names, side);
        !pods.is_empty() && pods.iter().all(is_there)
    }

    /// Returns the state of one end of a try, or of one of its shards.
    pub fn end_state(
        &self,
        side: Side,
        shard: Option<u32>,
        names: &TryNames,
        try_id: &str,
        seen: Reported<'_>,
    ) -> EndState {
        let mut pods = self.pods_of(names, side);
        pods.retain(|pod| shard.is_none() || shard_of(pod) == shard);
        pod_state::end_state(&pod_state::EndObjects {
            side,
            shard,
            job: self.job_of(names, side),
            pods: &pods,
            warning: seen.warnings.of(side).as_ref().and_then(|warning| warning.about(&pods)),
            report: seen.reports.and_then(|reports| reports.of(side, shard)),
            try_id,
            now: seen.now,
        })
    }

    /// Returns whether a try has a pod whose process may be running.
    pub fn has_live_pods(&self, names: &TryNames) -> bool {
        self.pods_of_try(names).any(pod_state::is_alive)
    }

    /// Returns when the first pod of a try that lives and is being deleted counts as lost; `None` if none does after
    /// `now`.
    pub fn overdue_at(&self, names: &TryNames, now: Timestamp) -> Option<Timestamp> {
        let living = self.pods_of_try(names).filter(|pod| pod_state::is_alive(pod));
        living.filter_map(pod_state::overdue_at).filter(|at| *at > now).min()
    }

    /// Returns when the last process of a try began, by the kubelets' clocks; `None` unless each of its `count` pods
    /// has begun.
    pub fn ran_since(&self, names: &TryNames, count: usize) -> Option<Timestamp> {
        let begun: Vec<_> = self.pods_of_try(names).map(pod_state::began).collect::<Option<_>>()?;
        begun.into_iter().max().filter(|_| self.pods_of_try(names).count() == count)
    }

    /// Returns the pods of both ends of a try.
    pub fn pods_of_try(&self, names: &TryNames) -> impl Iterator<Item = &Pod> {
        [Side::Source, Side::Sink].into_iter().flat_map(|side| self.pods_of(names, side))
    }

    /// Returns whether an end of a try has ended without its report in `ends`, the reports in the SyncRun.
    pub fn lacks_reports(&self, names: &TryNames, try_id: &str, ends: Option<&Reports>) -> bool {
        let has = |shard, side| {
            let report = ends.and_then(|ends| ends.of(side, shard));
            report.is_some_and(|report| report.run == try_id)
        };
        [Side::Source, Side::Sink].into_iter().any(|side| {
            let is_over = self.job_of(names, side).is_some_and(pod_state::is_over);
            let mut ended =
                self.pods_of(names, side).into_iter().filter(|pod| pod_state::has_ended(pod)).peekable();
            (is_over && ended.peek().is_none() && !has(None, side))
                || ended.any(|pod| !has(shard_of(pod), side))
        })
    }

    /// Returns the Job of one end of a try.
    pub fn job_of(&self, names: &TryNames, side: Side) -> Option<&Job> {
        let name = names.job(side);
        self.jobs.iter().find(|job| job.metadata.name.as_ref() == Some(&name))
    }

    /// Returns the number of the service account for a try's pods of the SyncJob `job`: the one in the try's Jobs, or
    /// else the first that no pod uses, because a pod's token stays valid as long as the pod exists.
    pub fn account(&self, names: &TryNames, job: &str, uid: &str) -> u32 {
        // In another namespace, a Job has an account of its own name.
        let own = [Side::Source, Side::Sink].into_iter().find_map(|side| {
            let account = account_of(self.job_of(names, side)?.spec.as_ref()?.template.spec.as_ref()?)?;
            (account != names.job(side)).then_some(account)
        });
        let taken: Vec<&str> = self.pods.iter().filter_map(|pod| account_of(pod.spec.as_ref()?)).collect();
        let is_it = |number: &u32| {
            let name = names::access(job, uid, *number);
            own.map_or_else(|| !taken.contains(&name.as_str()), |own| own == name)
        };
        // If a Job uses an account that the spec names, any number will do.
        (0..).take(taken.len() + MOST_ACCOUNTS).find(is_it).unwrap_or(0)
    }

    /// Returns whether a try has any Job.
    pub fn has_jobs(&self, names: &TryNames) -> bool {
        [Side::Source, Side::Sink].into_iter().any(|side| self.job_of(names, side).is_some())
    }

    /// Returns the pods of one end of a try.
    pub fn pods_of(&self, names: &TryNames, side: Side) -> Vec<&Pod> {
        let (label, side) = (names.label(), side.to_string());
        let is = |pod: &Pod, key, value: &String| pod.labels().get(key) == Some(value);
        let ours = |pod: &&Pod| is(pod, names::LABEL_TRY, &label) && is(pod, names::LABEL_SIDE, &side);
        self.pods.iter().filter(ours).collect()
    }

    /// Returns the pending pod of an end, or its Job if that lacks pods; `None` if neither exists.
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

/// What is known about an end besides its children.
#[derive(Debug, Clone, Copy)]
pub struct Reported<'a> {
    /// The reports that the agents wrote into the SyncRun's status.
    pub reports: Option<&'a Reports>,
    /// The warnings of Kubernetes.
    pub warnings: &'a Warnings,
    /// The present.
    pub now: Timestamp,
}

/// Returns whether a Job owns a pod.
pub fn is_of_job(pod: &Pod, job: &Job) -> bool {
    job.metadata.uid.is_some()
        && pod
            .metadata
            .owner_references
            .iter()
            .flatten()
            .any(|owner| Some(&owner.uid) == job.metadata.uid.as_ref())
}

/// Returns the shard index of a pod, if its Job has several shards.
fn shard_of(pod: &Pod) -> Option<u32> {
    pod.annotations().get(names::ANNOTATION_INDEX)?.parse().ok()
}

fn account_of(spec: &PodSpec) -> Option<&str> {
    spec.service_account_name.as_deref()
}

fn generation_of(job: &Job) -> Option<i64> {
    job.annotations().get(names::ANNOTATION_GENERATION)?.parse().ok()
}

fn node_of(job: &Job) -> Option<&String> {
    job.annotations().get(names::ANNOTATION_NODE)
}

/// Returns the image that the operator built a Job with. Earlier operators did not note it.
fn image_of(job: &Job) -> Option<&str> {
    if let Some(noted) = job.annotations().get(names::ANNOTATION_BUILT_WITH) {
        return Some(noted);
    }
    job.spec.as_ref()?.template.spec.as_ref()?.containers.first()?.image.as_deref()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pods::placement;

    fn names(number: i64) -> TryNames {
        TryNames::new("web", "u", number, 0)
    }

    fn job(of: &TryNames, generation: i64, image: &str) -> Job {
        serde_json::from_value(json!({
            "metadata": {
                "name": of.job(Side::Sink),
                "labels": {names::LABEL_TRY: of.label()},
                "annotations": {names::ANNOTATION_GENERATION: generation.to_string()},
                "ownerReferences": [
                    {"apiVersion": "volferry.dev/v1alpha1", "kind": "SyncRun", "name": "web-1", "uid": "r"},
                ],
            },
            "spec": {"template": {"spec": {"containers": [{"name": "syncer", "image": image}]}}},
        }))
        .unwrap()
    }

    fn is_own(job: &Job) -> bool {
        job.owner_references().iter().any(|owner| owner.uid == "r")
    }

    fn labelled<K: serde::de::DeserializeOwned>(of: &TryNames) -> K {
        serde_json::from_value(json!({"metadata": {"name": "x", "labels": {names::LABEL_TRY: of.label()}}}))
            .unwrap()
    }

    #[test]
    fn children_of_the_try_under_way_are_no_leftovers() {
        let children = Children { jobs: vec![job(&names(2), 4, "i")], pods: vec![labelled(&names(2))] };
        assert_eq!(children.leftovers(Some(&names(2)), is_own), []);
        assert_eq!(children.leftovers(None, is_own), [names(2)]);
    }

    #[test]
    fn a_job_that_somebody_else_labelled_is_no_leftover() {
        let mut foreign = job(&names(1), 4, "i");
        foreign.metadata.owner_references = None;
        let children = Children { jobs: vec![foreign], ..Children::default() };
        assert_eq!(children.leftovers(None, is_own), []);
    }

    #[test]
    fn a_run_has_an_account_that_no_pod_of_another_has() {
        let account = |number| names::access("web", "u", number);
        let pod = |number: u32| -> Pod {
            let spec = json!({"containers": [], "serviceAccountName": account(number)});
            serde_json::from_value(json!({"metadata": {"name": "x"}, "spec": spec})).unwrap()
        };
        let with = |pods: &[u32], own: Option<&str>| {
            let mut made = job(&names(9), 4, "i");
            let jobs = own.map(|own| {
                let spec = made.spec.as_mut().unwrap().template.spec.as_mut().unwrap();
                spec.service_account_name = Some(own.into());
                made
            });
            let children =
                Children { jobs: jobs.into_iter().collect(), pods: pods.iter().map(|it| pod(*it)).collect() };
            children.account(&names(9), "web", "u")
        };
        assert_eq!(
            [with(&[], None), with(&[0, 0], None), with(&[1], None), with(&[2, 0], None)],
            [0, 1, 0, 1]
        );
        assert_eq!((with(&[], Some(&account(2))), with(&[1], Some(&account(1)))), (2, 1), "that of the try");
        assert_eq!(with(&[0], Some("own")), 0, "that of the spec");
    }

    #[test]
    fn a_try_runs_since_the_last_of_its_pods_began_and_not_before_all_have() {
        let pod = |side: &str, state: serde_json::Value| -> Pod {
            let labels = json!({names::LABEL_TRY: names(2).label(), names::LABEL_SIDE: side});
            let status = json!({"containerStatuses": [{"name": names::CONTAINER, "image": "i", "imageID": "i",
                "ready": true, "restartCount": 0, "state": state}]});
            serde_json::from_value(json!({"metadata": {"labels": labels}, "status": status})).unwrap()
        };
        let since = |second: &str| json!({"startedAt": format!("2027-01-15T08:00:{second}Z")});
        let source = pod("source", json!({"running": since("03")}));
        let mut over = since("05");
        over["exitCode"] = json!(0);
        let ran = |pods: &[Pod]| {
            let children = Children { pods: pods.to_vec(), ..Children::default() };
            children.ran_since(&names(2), 2).map(|at| at.to_string())
        };
        let sink = pod("sink", json!({"terminated": over}));
        assert_eq!(ran(&[source.clone(), sink]).as_deref(), Some("2027-01-15T08:00:05Z"));
        let alone = ran(std::slice::from_ref(&source));
        let waits = pod("sink", json!({"waiting": {}}));
        assert_eq!((alone, ran(&[source, waits])), (None, None));
    }

    #[test]
    fn any_kind_of_child_betrays_an_earlier_try() {
        let by_job = Children { jobs: vec![job(&names(1), 4, "i")], ..Children::default() };
        let by_pod = Children { pods: vec![labelled(&names(1))], ..Children::default() };
        for children in [by_job, by_pod] {
            assert_eq!(children.leftovers(Some(&names(2)), is_own), [names(1)]);
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
        let mut rewritten = job(&names(2), 4, "mirror/new@sha256:1");
        rewritten.annotations_mut().insert(names::ANNOTATION_BUILT_WITH.into(), "new".into());
        let children = Children { jobs: vec![rewritten], ..Children::default() };
        assert!(!children.is_outdated(&names(2), 4, "new", &anywhere), "an admission policy's image");
        assert!(children.is_outdated(&names(2), 4, "newer", &anywhere));
    }

    #[test]
    fn a_job_for_another_node_than_its_volumes_is_outdated() {
        let mut tied = job(&names(2), 4, "i");
        tied.annotations_mut().insert(names::ANNOTATION_NODE.into(), "n1".into());
        let children = Children { jobs: vec![tied], ..Children::default() };
        let on = |node: &str| Placements {
            sink: Some(placement::Placement {
                is_required: true,
                ..placement::Placement::preferred(node.into())
            }),
            ..Placements::default()
        };
        assert!(!children.is_outdated(&names(2), 4, "i", &on("n1")));
        assert!(!children.is_outdated(&names(2), 4, "i", &Placements::default()), "its user has left");
        assert!(children.is_outdated(&names(2), 4, "i", &on("n2")));
        let attached = Placements { sink: Some(placement::Placement::preferred("n2".into())), ..on("n2") };
        assert!(!children.is_outdated(&names(2), 4, "i", &attached), "it can start where it is");
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
            sink: Some(placement::Placement {
                is_required: true,
                ..placement::Placement::preferred("n1".into())
            }),
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
