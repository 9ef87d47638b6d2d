//! What a syncer pod may ask of the API server: to read its own SyncRun, and to patch the status of that.

use k8s_openapi::api::{
    core::v1::ServiceAccount,
    rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject},
};
use kube::Resource as _;

use super::Try;
use crate::{api::SyncRun, names};

/// The pods' ServiceAccount; `None` where the spec names one.
pub fn service_account(of: &Try<'_>) -> Option<ServiceAccount> {
    of.job.pods.service_account_name.is_none().then(|| ServiceAccount {
        metadata: of.run_metadata(own_name(of)),
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    })
}

/// The name of the pods' ServiceAccount.
pub fn service_account_name(of: &Try<'_>) -> String {
    of.job.pods.service_account_name.clone().unwrap_or_else(|| own_name(of))
}

/// `get` and `watch` on the SyncRun of this run, by which an end hears of its peer, and `patch` on its status, all by
/// name.
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
    Role { metadata: of.run_metadata(own_name(of)), rules: Some(rules) }
}

/// Gives the role to the pods' ServiceAccount.
pub fn role_binding(of: &Try<'_>) -> RoleBinding {
    RoleBinding {
        metadata: of.run_metadata(own_name(of)),
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
    names::access(&of.job.name, of.uid, of.run.number)
}
