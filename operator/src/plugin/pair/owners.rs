//! Finds tools that set the fields of a pair's objects from manifests, such as those of a git repository. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::{Resource, ResourceExt as _};
use serde_json::Value;

use super::FIELD_MANAGER;

/// Tools that set fields from manifests without a server-side apply.
const APPLYING: [&str; 3] = ["argocd-controller", "helm", "kubectl-client-side-apply"];

/// Returns the tool that sets this field of the spec from manifests, and so would take a change back or refuse it.
pub(super) fn from_manifests<'a>(object: &'a impl Resource, field: &[&str]) -> Option<&'a str> {
    let sets = |entry: &&ManagedFieldsEntry| {
        let path = ["spec"].iter().chain(field);
        let fields = entry.fields_v1.as_ref().map(|fields| &fields.0);
        path.fold(fields, |at: Option<&Value>, name| at?.get(format!("f:{name}"))).is_some()
    };
    let entry = object.managed_fields().iter().filter(|entry| applies(entry)).find(sets)?;
    entry.manager.as_deref()
}

fn applies(entry: &ManagedFieldsEntry) -> bool {
    let manager = entry.manager.as_deref().unwrap_or_default();
    let is_applied = entry.operation.as_deref() == Some("Apply") || APPLYING.contains(&manager);
    manager != FIELD_MANAGER && is_applied
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::SyncEndpoint;

    #[test]
    fn fields_that_a_tool_sets_from_manifests_are_found() {
        let owned = |manager: &str, operation: &str| -> SyncEndpoint {
            let fields = json!({"f:spec": {"f:peers": {}, "f:service": {"f:port": {}}}});
            let entry = json!({"manager": manager, "operation": operation, "fieldsV1": fields});
            let spec = json!({"persistentVolumeClaim": {"claimName": "web"}, "access": "Write"});
            serde_json::from_value(json!({"metadata": {"managedFields": [entry]}, "spec": spec})).unwrap()
        };
        for tool in ["kustomize-controller", "argocd-controller"] {
            let endpoint = owned(tool, "Apply");
            assert_eq!(from_manifests(&endpoint, &["peers"]), Some(tool));
            assert_eq!(from_manifests(&endpoint, &["service", "port"]), Some(tool));
            assert_eq!(from_manifests(&endpoint, &["keyVersion"]), None);
        }
        assert!(from_manifests(&owned("argocd-controller", "Update"), &["peers"]).is_some());
        assert_eq!(from_manifests(&owned("kubectl-edit", "Update"), &["peers"]), None);
        assert_eq!(from_manifests(&owned(FIELD_MANAGER, "Apply"), &["peers"]), None);
    }
}
