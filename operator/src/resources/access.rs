//! Builds the permissions of a syncer pod at the API server: to read its own SyncRun and to patch its status. The
//! service account belongs to the SyncJob, whose runs use it one after the other; the Role names the run that currently
//! uses it.

use k8s_openapi::api::{
    core::v1::ServiceAccount,
    rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject},
};
use kube::Resource as _;

use super::Try;
use crate::{api::SyncRun, names};

/// Builds the pods' ServiceAccount; `None` if the spec names one.
pub fn service_account(of: &Try<'_>) -> Option<ServiceAccount> {
    of.job.pods.service_account_name.is_none().then(|| ServiceAccount {
        metadata: of.job_metadata(own_name(of)),
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    })
}

/// Returns the name of the pods' ServiceAccount.
pub fn service_account_name(of: &Try<'_>) -> String {
    of.job.pods.service_account_name.clone().unwrap_or_else(|| own_name(of))
}

/// Builds the Role that allows, for this run's SyncRun only, `get` and `watch`, by which an end learns about its peer,
/// and `patch` on the status.
pub fn role(of: &Try<'_>) -> Role {
    let rule = |resource: String, verbs: &[&str]| PolicyRule {
        api_groups: Some(vec![SyncRun::group(&()).into_owned()]),
        resources: Some(vec![resource]),
        resource_names: Some(vec![of.run.id.clone()]),
        verbs: verbs.iter().map(ToString::to_string).collect(),
        ..PolicyRule::default()
    };
    let plural = SyncRun::plural(&());
    let rules =
        vec![rule(plural.to_string(), &["get", "watch"]), rule(format!("{plural}/status"), &["patch"])];
    Role { metadata: of.job_metadata(own_name(of)), rules: Some(rules) }
}

/// Builds the binding of the Role to the pods' ServiceAccount.
pub fn role_binding(of: &Try<'_>) -> RoleBinding {
    RoleBinding {
        metadata: of.job_metadata(own_name(of)),
        role_ref: RoleRef {
            api_group: "rbac.authorization.k8s.io".into(),
            kind: "Role".into(),
            name: own_name(of),
        },
        subjects: Some(vec![Subject {
            kind: "ServiceAccount".into(),
            name: service_account_name(of),
            namespace: Some(of.job.namespace.clone()),
            ..Subject::default()
        }]),
    }
}

fn own_name(of: &Try<'_>) -> String {
    names::access(&of.job.name, of.uid, of.account)
}
