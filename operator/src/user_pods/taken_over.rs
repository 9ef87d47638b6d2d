//! What the pod for a user's command takes over from the pods of runs: the labels and annotations by which policies,
//! webhooks and service meshes of the namespace treat it as they treat those. Pure.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The beginnings of names that are set for each pod anew, by Volferry and by the controller of Jobs.
const SET_ANEW: [&str; 3] = ["volferry.dev/", "app.kubernetes.io/", "batch.kubernetes.io/"];
/// Labels of the controller of Jobs that have no such beginning. It refuses a Job that has those of another.
const OF_JOBS: [&str; 2] = ["controller-uid", "job-name"];

/// Returns the labels of a pod template that users have given it.
pub(super) fn labels(template: Option<&ObjectMeta>) -> BTreeMap<String, String> {
    of_users(template.and_then(|metadata| metadata.labels.as_ref()))
}

/// Returns the annotations of a pod template that users have given it.
pub(super) fn annotations(template: Option<&ObjectMeta>) -> Option<BTreeMap<String, String>> {
    let annotations = of_users(template.and_then(|metadata| metadata.annotations.as_ref()));
    Some(annotations).filter(|annotations| !annotations.is_empty())
}

fn of_users(all: Option<&BTreeMap<String, String>>) -> BTreeMap<String, String> {
    let is_set_anew =
        |name: &str| OF_JOBS.contains(&name) || SET_ANEW.iter().any(|start| name.starts_with(start));
    let own = all.into_iter().flatten().filter(|(name, _)| !is_set_anew(name));
    own.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use k8s_openapi::api::batch::v1::Job;
    use serde_json::json;

    use super::*;

    /// Returns the Job of a sink as the API server has it, with what a user wants of its pods.
    pub(in super::super) fn sink() -> Job {
        let labels = json!({
            "sidecar.istio.io/inject": "false", "team": "web",
            "app.kubernetes.io/name": "volferry", "app.kubernetes.io/component": "syncer",
            "volferry.dev/run": "web-1", "volferry.dev/try": "t", "volferry.dev/claim-1": "used",
            "batch.kubernetes.io/job-name": "web-1-sink", "job-name": "web-1-sink", "controller-uid": "u",
        });
        let annotations = json!({"policy": "strict", "volferry.dev/syncjob-name": "web"});
        let container = json!({
            "name": "syncer", "image": "registry/volferry:1",
            "resources": {"limits": {"memory": "1Gi"}},
            "volumeMounts": [{"name": "data", "mountPath": "/destination"}],
        });
        let volume = json!({"name": "data", "persistentVolumeClaim": {"claimName": "copy"}});
        let pod = json!({
            "containers": [container], "volumes": [volume], "imagePullSecrets": [{"name": "registry"}],
        });
        let template = json!({"metadata": {"labels": labels, "annotations": annotations}, "spec": pod});
        let metadata = json!({"name": "web-1-sink", "namespace": "prod"});
        serde_json::from_value(json!({"metadata": metadata, "spec": {"template": template}})).unwrap()
    }

    #[test]
    fn what_users_want_of_pods_is_taken_over_and_nothing_by_which_controllers_find_their_own() {
        let template = sink().spec.unwrap().template.metadata;
        let taken = labels(template.as_ref());
        assert_eq!(taken.keys().collect::<Vec<_>>(), ["sidecar.istio.io/inject", "team"]);
        let taken = annotations(template.as_ref()).unwrap();
        assert_eq!(taken.keys().collect::<Vec<_>>(), ["policy"]);
        assert_eq!((labels(None), annotations(None)), (BTreeMap::new(), None));
    }
}
