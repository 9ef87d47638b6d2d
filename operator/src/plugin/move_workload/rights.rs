//! What a person needs to move a workload.

use k8s_openapi::api::authorization::v1::ResourceAttributes;

use super::super::{
    cluster::Cluster, doctor::users_rights::may, error::PluginError, move_args::WorkloadKind,
};
use crate::api::GROUP;

/// A group, a resource, whether that belongs to the namespace, and the verbs that are used of it after the survey.
type Right = (&'static str, &'static str, bool, &'static [&'static str]);

const RIGHTS: [Right; 6] = [
    ("", "secrets", true, &["get", "create", "update", "delete"]),
    ("", "persistentvolumeclaims", true, &["get", "list", "watch", "create", "delete"]),
    ("", "persistentvolumes", false, &["get", "patch"]),
    ("", "pods", true, &["list", "watch"]),
    (GROUP, "syncjobs", true, &["get", "list", "watch", "create", "patch", "delete"]),
    (GROUP, "syncendpoints", true, &["list"]),
];

/// Refuses a move before it begins that would lack a right later.
pub(super) async fn check(cluster: &Cluster, kind: WorkloadKind) -> Result<(), PluginError> {
    let verbs: &[&str] = match kind {
        WorkloadKind::StatefulSet => &["get", "list", "watch", "patch", "delete", "create"],
        WorkloadKind::Deployment => &["get", "list", "watch", "patch"],
    };
    for (group, resource, is_namespaced, verbs) in
        RIGHTS.into_iter().chain([("apps", kind.plural(), true, verbs)])
    {
        for verb in verbs {
            let attributes = ResourceAttributes {
                verb: Some((*verb).into()),
                group: Some(group.into()),
                resource: Some(resource.into()),
                namespace: is_namespaced.then(|| cluster.namespace.clone()),
                ..ResourceAttributes::default()
            };
            if !may(cluster, attributes).await? {
                let hint = "an administrator of the cluster has the right to change volumes";
                return Err(PluginError::blocked(format!("you may not {verb} {resource}"), hint));
            }
        }
    }
    Ok(())
}
