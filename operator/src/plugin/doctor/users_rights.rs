//! Checks whether the user has the rights that the plugin's commands need.

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use kube::{Api, api::PostParams};

use super::{
    super::{cluster::Cluster, error::PluginError},
    finding::Finding,
    judge,
};
use crate::api::GROUP;

/// The permissions that the plugin's commands need: verb, resource, subresource, and the role that grants it.
const RIGHTS: [(&str, &str, &str, &str); 9] = [
    ("list", "syncjobs", "", "view"),
    ("list", "syncruns", "", "view"),
    ("list", "pods", "", "view"),
    ("get", "pods", "log", "view"),
    ("create", "syncruns", "", "edit"),
    ("patch", "syncjobs", "", "edit"),
    ("create", "jobs", "", "edit"),
    ("create", "pods", "exec", "edit"),
    // Before Kubernetes 1.35, to open the connection.
    ("get", "pods", "exec", "edit"),
];

/// Returns which rights are missing.
pub(super) async fn findings(cluster: &Cluster) -> Result<Vec<Finding>, PluginError> {
    let mut missing = Vec::new();
    for (verb, resource, subresource, role) in RIGHTS {
        let group = match resource {
            "pods" => "",
            "jobs" => "batch",
            _ => GROUP,
        };
        let attributes = ResourceAttributes {
            verb: Some(verb.into()),
            group: Some(group.into()),
            resource: Some(resource.into()),
            subresource: (!subresource.is_empty()).then(|| subresource.into()),
            namespace: Some(cluster.namespace.clone()),
            ..ResourceAttributes::default()
        };
        let is_allowed = may(cluster, attributes).await?;
        let resource =
            if subresource.is_empty() { resource.into() } else { format!("{resource}/{subresource}") };
        missing.extend(judge::right(verb, &resource, &cluster.namespace, is_allowed, role));
    }
    let all = || vec![Finding::ok("you have the rights that the commands of this plugin need")];
    Ok(if missing.is_empty() { all() } else { missing })
}

/// Returns whether the user has a right.
pub(in super::super) async fn may(
    cluster: &Cluster,
    attributes: ResourceAttributes,
) -> Result<bool, PluginError> {
    let spec = SelfSubjectAccessReviewSpec { resource_attributes: Some(attributes), ..Default::default() };
    let review = SelfSubjectAccessReview { spec, ..SelfSubjectAccessReview::default() };
    let answer = Api::all(cluster.client.clone()).create(&PostParams::default(), &review).await;
    let answer = answer.map_err(cluster.failed("ask for your rights".into()))?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}
