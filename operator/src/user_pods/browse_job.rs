//! Builds the Job by which a user looks into the snapshots on a SyncJob's destination. It is derived from the Job of a
//! run's sink, so that its pod has the same image, user, node and security, but mounts the claim read-only, knows no
//! token, and may do nothing that reading does not take. The user starts the engine in it by `exec`.

use std::collections::BTreeMap;

use contract::Side;
use k8s_openapi::{
    api::{
        batch::v1::{Job, JobSpec},
        core::v1::{
            Container, PersistentVolumeClaimVolumeSource, PodSpec, PodTemplateSpec, Volume, VolumeMount,
        },
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::ResourceExt as _;

use super::{idle_limit, taken_over};
use crate::{
    api::SyncJob,
    names,
    pods::{
        job::OPERATOR,
        pod_volumes::{DATA, DESTINATION_DIR},
        security,
    },
};

/// The longest beginning of the Job's name, before `-browse-` and the API server's five characters.
const MAX_STEM: usize = 49;
/// How long the Job stays after its pod has ended, in seconds, if the user's program cannot delete it.
const KEPT_S: i32 = 60;
/// How long the pod may take to stop: it has nothing to put in order.
const GRACE_S: i64 = 1;

/// Builds the Job whose pod has the volume at [`DESTINATION_DIR`], for at most `timeout_s` seconds. Returns `None` if
/// the sink's volume is no file system.
pub fn job(sink: &Job, of: &SyncJob, timeout_s: i64) -> Option<Job> {
    let template = &sink.spec.as_ref()?.template;
    let pod = template.spec.as_ref()?;
    let syncer = pod.containers.first()?;
    let claim_name = claim(pod, syncer)?;
    let metadata = template.metadata.as_ref();
    let labels = labels(of, metadata);
    let pod_labels = taken_over::labels(metadata).into_iter().chain(labels.clone()).collect();
    let is_here = sink.namespace() == of.namespace();
    let owner = is_here.then(|| kube::Resource::controller_owner_ref(of, &())).flatten();
    Some(Job {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-browse-", names::shorten(&of.name_any(), MAX_STEM))),
            namespace: sink.namespace(),
            labels: Some(labels),
            // The SyncJob does not control it, so that the operator takes it for none of its own.
            owner_references: owner.map(|owner| vec![OwnerReference { controller: None, ..owner }]),
            ..ObjectMeta::default()
        },
        spec: Some(JobSpec {
            backoff_limit: Some(0),
            active_deadline_seconds: Some(timeout_s),
            ttl_seconds_after_finished: Some(KEPT_S),
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta {
                    labels: Some(pod_labels),
                    annotations: taken_over::annotations(metadata),
                    ..ObjectMeta::default()
                }),
                spec: Some(pod_spec(pod, syncer, claim_name)),
            },
            ..JobSpec::default()
        }),
        ..Job::default()
    })
}

/// Returns the claim that the sink writes to.
fn claim(pod: &PodSpec, syncer: &Container) -> Option<String> {
    let mounted = syncer.volume_mounts.iter().flatten().find(|mount| mount.mount_path == DESTINATION_DIR)?;
    let volume = pod.volumes.iter().flatten().find(|volume| volume.name == mounted.name)?;
    Some(volume.persistent_volume_claim.as_ref()?.claim_name.clone())
}

/// Returns the labels of the Job and of its pod: none by which the operator finds its own, and those by which pods that
/// use the same claim find its node.
fn labels(of: &SyncJob, template: Option<&ObjectMeta>) -> BTreeMap<String, String> {
    let used = template.into_iter().flat_map(|metadata| metadata.labels.iter().flatten());
    let used = used.filter(|(label, _)| names::is_claim_label(label));
    let own = [
        ("app.kubernetes.io/name", "volferry".to_string()),
        ("app.kubernetes.io/component", "browse".into()),
        ("app.kubernetes.io/part-of", "volferry".into()),
        (names::LABEL_BROWSE, names::label_value(&of.name_any())),
    ];
    let own = own.map(|(label, value)| (label.to_string(), value));
    used.map(|(label, value)| (label.clone(), value.clone())).chain(own).collect()
}

fn pod_spec(sink: &PodSpec, syncer: &Container, claim_name: String) -> PodSpec {
    let is_root = sink.security_context.as_ref().and_then(|security| security.run_as_user) == Some(0);
    PodSpec {
        restart_policy: Some("Never".into()),
        automount_service_account_token: Some(false),
        enable_service_links: Some(false),
        termination_grace_period_seconds: Some(GRACE_S),
        security_context: sink.security_context.clone(),
        containers: vec![Container {
            name: names::CONTAINER.into(),
            image: syncer.image.clone(),
            image_pull_policy: syncer.image_pull_policy.clone(),
            command: Some(vec![OPERATOR.into()]),
            args: Some(idle_limit::hold_args()),
            resources: syncer.resources.clone(),
            security_context: Some(security::container(is_root, Side::Source)),
            volume_mounts: Some(vec![VolumeMount {
                name: DATA.into(),
                mount_path: DESTINATION_DIR.into(),
                read_only: Some(true),
                ..VolumeMount::default()
            }]),
            ..Container::default()
        }],
        volumes: Some(vec![Volume {
            name: DATA.into(),
            // Read-only also here, or the kubelet would change the group of the files to `fsGroup`.
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name,
                read_only: Some(true),
            }),
            ..Volume::default()
        }]),
        node_selector: sink.node_selector.clone(),
        tolerations: sink.tolerations.clone(),
        affinity: sink.affinity.clone(),
        priority_class_name: sink.priority_class_name.clone(),
        runtime_class_name: sink.runtime_class_name.clone(),
        image_pull_secrets: sink.image_pull_secrets.clone(),
        ..PodSpec::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user_pods::taken_over::tests::sink;

    #[test]
    fn the_pod_is_treated_as_those_of_runs_and_found_as_none_of_them() {
        let of: SyncJob = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "web", "namespace": "prod"},
            "spec": {
                "source": {"persistentVolumeClaim": {"claimName": "data"}},
                "destination": {"persistentVolumeClaim": {"claimName": "copy"}},
            },
        }))
        .unwrap();
        let made = job(&sink(), &of, 60).unwrap();
        let template = made.spec.unwrap().template;
        let pod = template.metadata.unwrap();
        let labels = pod.labels.unwrap();
        assert_eq!(labels["sidecar.istio.io/inject"], "false");
        assert_eq!(
            (labels["app.kubernetes.io/component"].as_str(), labels["team"].as_str()),
            ("browse", "web")
        );
        assert!(labels.contains_key("volferry.dev/claim-1"), "{labels:?}");
        assert!(!labels.contains_key(names::LABEL_RUN) && !labels.contains_key("job-name"), "{labels:?}");
        assert_eq!(pod.annotations.unwrap()["policy"], "strict");
        let container = &template.spec.unwrap().containers[0];
        assert_eq!(container.resources, sink().spec.unwrap().template.spec.unwrap().containers[0].resources);
        assert!(!made.metadata.labels.unwrap().contains_key("team"));
    }
}
