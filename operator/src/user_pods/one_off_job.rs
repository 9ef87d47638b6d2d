//! Builds the Job of a pod that mounts one claim for one command of a user: `kubectl volferry push`, `pull` or `copy`.
//! The pod has no token, no key and no port. The user starts the engine in it by `exec`.

use std::collections::BTreeMap;

use contract::Side;
use k8s_openapi::{
    api::{
        batch::v1::{Job, JobSpec},
        core::v1::{
            Affinity, Container, PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, PodSpec,
            PodTemplateSpec, ResourceRequirements, Volume, VolumeDevice,
        },
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::ResourceExt as _;

use super::{idle_limit, taken_over};
use crate::{
    api::PodSecurity,
    names,
    pods::{
        job::{self, OPERATOR, modest_resources, non_empty},
        placement::{self, Placement},
        pod_volumes::{DATA, TMP_DIR, TMP_SIZE, empty_dir, mount},
        security::{self, PodUser},
    },
    volumes::access_modes,
};

/// The engine in the pod.
pub const ENGINE: &str = job::SYNCER;
/// The longest beginning of the Job's name, before a word and the API server's five characters.
const MAX_STEM: usize = 49;
/// How long the Job stays after its pod has ended, in seconds, if the user's program cannot delete it.
const KEPT_S: i32 = 60;
/// How long a run may take to stop, in seconds.
const GRACE_S: i64 = 10;
const TMP: &str = "tmp";

/// A claim that a user reaches by a pod of its own.
#[derive(Debug, Clone, Copy)]
pub struct OneOff<'a> {
    /// The claim.
    pub claim: &'a PersistentVolumeClaim,
    /// The user's command.
    pub command: &'a str,
    /// Whether files come from the claim or go to it.
    pub side: Side,
    /// The image with both binaries.
    pub image: &'a str,
    /// The pods of a run in the same namespace, if there was one: the pod gets what users want of those.
    pub like: Option<&'a PodTemplateSpec>,
    /// The kind of user that the pod runs as.
    pub user: PodUser,
    /// The user and groups that were asked for.
    pub wanted: &'a PodSecurity,
    /// The node that the pod has to run on.
    pub placement: Option<&'a Placement>,
    /// How long the pod may run, in seconds.
    pub timeout_s: i64,
}

/// Returns the path at which the pod has the claim's folder or device.
pub fn path(claim: &PersistentVolumeClaim) -> &'static str {
    if is_block(claim) { "/dev/volferry" } else { "/volume" }
}

/// Returns whether the claim is a device.
fn is_block(claim: &PersistentVolumeClaim) -> bool {
    claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref()) == Some("Block")
}

/// Builds the Job.
pub fn job(of: &OneOff<'_>) -> Job {
    let labels = labels(of);
    let like = of.like.and_then(|template| template.metadata.as_ref());
    let pod_labels = taken_over::labels(like).into_iter().chain(labels.clone()).collect();
    let stem = names::shorten(&of.claim.name_any(), MAX_STEM);
    Job {
        metadata: ObjectMeta {
            generate_name: Some(format!("{stem}-{}-", of.command)),
            namespace: of.claim.namespace(),
            labels: Some(labels),
            ..ObjectMeta::default()
        },
        spec: Some(JobSpec {
            backoff_limit: Some(0),
            active_deadline_seconds: Some(of.timeout_s),
            ttl_seconds_after_finished: Some(KEPT_S),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(pod_labels),
                    annotations: taken_over::annotations(like),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod_spec(of)),
            },
            ..JobSpec::default()
        }),
        ..Job::default()
    }
}

/// Returns the labels of the Job and its pod: none by which the operator finds its own, and that by which pods that use
/// the same claim find its node.
fn labels(of: &OneOff<'_>) -> BTreeMap<String, String> {
    let own = [
        ("app.kubernetes.io/name".to_string(), "volferry".to_string()),
        ("app.kubernetes.io/component".into(), of.command.into()),
        ("app.kubernetes.io/part-of".into(), "volferry".into()),
        (names::LABEL_ONE_OFF.into(), names::label_value(&of.claim.name_any())),
    ];
    let tied = access_modes::ties(of.claim).then(|| (claim_label(of), names::CLAIM_USED.to_string()));
    own.into_iter().chain(tied).collect()
}

fn claim_label(of: &OneOff<'_>) -> String {
    names::claim_label(&of.claim.name_any())
}

fn affinity(of: &OneOff<'_>) -> Option<Affinity> {
    match of.placement {
        Some(at) => Some(placement::pinned(None, &at.node)),
        None => access_modes::ties(of.claim).then(|| placement::following(None, claim_label(of))),
    }
}

fn pod_spec(of: &OneOff<'_>) -> PodSpec {
    let tolerations = of.placement.map(|at| at.tolerations.clone()).unwrap_or_default();
    PodSpec {
        restart_policy: Some("Never".into()),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        termination_grace_period_seconds: Some(GRACE_S),
        security_context: Some(security::pod(of.user, of.wanted)),
        containers: vec![container(of)],
        volumes: Some(volumes(of)),
        affinity: affinity(of),
        tolerations: non_empty(tolerations, Vec::is_empty),
        image_pull_secrets: of.like.and_then(|template| template.spec.as_ref()?.image_pull_secrets.clone()),
        ..PodSpec::default()
    }
}

fn container(of: &OneOff<'_>) -> Container {
    let path = path(of.claim);
    let tmp = mount(TMP, TMP_DIR, false);
    let device = VolumeDevice { name: DATA.into(), device_path: path.into() };
    let (devices, mounts) = if is_block(of.claim) {
        (vec![device], vec![tmp])
    } else {
        (Vec::new(), vec![mount(DATA, path, is_read_only(of)), tmp])
    };
    Container {
        name: names::CONTAINER.into(),
        image: Some(of.image.into()),
        command: Some(vec![OPERATOR.into()]),
        args: Some(idle_limit::hold_args()),
        resources: Some(of.like.and_then(resources).unwrap_or_else(modest_resources)),
        security_context: Some(security::container(of.user == PodUser::Root, of.side)),
        volume_devices: non_empty(devices, Vec::is_empty),
        volume_mounts: Some(mounts),
        termination_message_policy: Some("FallbackToLogsOnError".into()),
        ..Container::default()
    }
}

/// Returns the resources of a run's pod.
fn resources(like: &PodTemplateSpec) -> Option<ResourceRequirements> {
    let mut containers = like.spec.iter().flat_map(|pod| &pod.containers);
    containers.find(|it| it.name == names::CONTAINER)?.resources.clone()
}

fn is_read_only(of: &OneOff<'_>) -> bool {
    of.side == Side::Source
}

fn volumes(of: &OneOff<'_>) -> Vec<Volume> {
    let data = Volume {
        name: DATA.into(),
        // Read-only also here, or the kubelet would change the group of the files to `fsGroup`.
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: of.claim.name_any(),
            read_only: Some(is_read_only(of)),
        }),
        ..Volume::default()
    };
    vec![data, empty_dir(TMP, None, TMP_SIZE)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user_pods::taken_over::tests::sink;

    fn made(like: Option<&PodTemplateSpec>) -> Job {
        let metadata = ObjectMeta { name: Some("data".into()), ..ObjectMeta::default() };
        let claim = PersistentVolumeClaim { metadata, ..PersistentVolumeClaim::default() };
        let wanted = PodSecurity::default();
        job(&OneOff {
            claim: &claim,
            command: "push",
            side: Side::Sink,
            image: "mine:1",
            like,
            user: PodUser::of(false, false, &wanted),
            wanted: &wanted,
            placement: None,
            timeout_s: 60,
        })
    }

    #[test]
    fn the_pod_is_treated_as_those_of_runs_also_with_another_image() {
        let like = sink().spec.unwrap().template;
        let template = made(Some(&like)).spec.unwrap().template;
        let labels = template.metadata.as_ref().unwrap().labels.clone().unwrap();
        assert_eq!(
            (labels["team"].as_str(), labels["app.kubernetes.io/component"].as_str()),
            ("web", "push")
        );
        assert!(!labels.contains_key("job-name") && !labels.contains_key(names::LABEL_TRY), "{labels:?}");
        assert_eq!(template.metadata.unwrap().annotations.unwrap()["policy"], "strict");
        let (pod, of_run) = (template.spec.unwrap(), like.spec.unwrap());
        assert_eq!(pod.image_pull_secrets, of_run.image_pull_secrets);
        assert_eq!(pod.containers[0].resources, of_run.containers[0].resources);
        assert_eq!(pod.containers[0].image.as_deref(), Some("mine:1"));
        let alone = made(None).spec.unwrap().template;
        assert_eq!(alone.metadata.unwrap().annotations, None);
        assert_eq!(alone.spec.unwrap().containers[0].resources, Some(modest_resources()));
    }
}
