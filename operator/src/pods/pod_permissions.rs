//! Builds the permissions of a syncer pod at the API server: to read its own SyncRun and to patch its status. The
//! service account belongs to the SyncJob, whose runs use it one after the other; the Role names the run that currently
//! uses it.

use contract::Side;
use k8s_openapi::{
    api::{
        core::v1::{Secret, ServiceAccount},
        rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::Resource as _;

use super::Try;
use crate::{
    api::SyncRun,
    names,
    snapshots::{keep_base_snapshot::Changes, source_capture::SNAPSHOT_GROUP},
};

/// Builds the ServiceAccount of the pods in the SyncJob's namespace; `None` if the spec names one, or no pod is there.
pub fn service_account(of: &Try<'_>) -> Option<ServiceAccount> {
    let is_here = of.sides().iter().any(|side| of.ends.of(*side).grant().is_none());
    let is_made = is_here && of.job.pods.service_account_name.is_none();
    is_made.then(|| account(of.job_metadata(own_name(of))))
}

/// Builds the ServiceAccounts of the pods in other namespaces. Each is for one try, and named after its Job.
pub fn accounts_abroad(of: &Try<'_>) -> Vec<ServiceAccount> {
    let abroad = of.sides().iter().filter(|side| of.ends.of(**side).grant().is_some());
    abroad.map(|side| account(of.metadata(*side))).collect()
}

fn account(metadata: ObjectMeta) -> ServiceAccount {
    ServiceAccount { metadata, automount_service_account_token: Some(false), ..ServiceAccount::default() }
}

/// Returns the name of the ServiceAccount of an end's pods. A spec may name one of the SyncJob's namespace only.
pub fn service_account_name(of: &Try<'_>, side: Side) -> String {
    match of.ends.of(side).grant() {
        Some(_) => of.names.job(side),
        None => of.job.pods.service_account_name.clone().unwrap_or_else(|| own_name(of)),
    }
}

/// Builds the Role that allows, for this run's SyncRun only, `get` and `watch`, by which an end learns about its peer,
/// and `patch` on the status; and, until the job has its key for endpoints, to create Secrets, which no rule can limit
/// to one name; and to read VolumeSnapshots, of a run that asks the storage what has changed.
pub fn role(of: &Try<'_>) -> Role {
    let rule = |resource: String, verbs: &[&str]| PolicyRule {
        api_groups: Some(vec![SyncRun::group(&()).into_owned()]),
        resources: Some(vec![resource]),
        resource_names: Some(vec![of.run.id.clone()]),
        verbs: verbs.iter().map(ToString::to_string).collect(),
        ..PolicyRule::default()
    };
    let plural = SyncRun::plural(&());
    let mut rules =
        vec![rule(plural.to_string(), &["get", "watch"]), rule(format!("{plural}/status"), &["patch"])];
    rules.extend(of.makes_key.then(create_secrets));
    rules.extend(matches!(of.changes, Changes::Since(_)).then(get_snapshots));
    Role { metadata: of.job_metadata(own_name(of)), rules: Some(rules) }
}

/// Builds the right to read VolumeSnapshots, which the service that lists changed blocks demands of who asks.
fn get_snapshots() -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![SNAPSHOT_GROUP.into()]),
        resources: Some(vec!["volumesnapshots".into()]),
        verbs: vec!["get".into()],
        ..PolicyRule::default()
    }
}

/// Builds the right to create Secrets, of a pod that makes a key. It reveals and changes nothing that is there.
pub(crate) fn create_secrets() -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![Secret::group(&()).into_owned()]),
        resources: Some(vec![Secret::plural(&()).into_owned()]),
        verbs: vec!["create".into()],
        ..PolicyRule::default()
    }
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
        subjects: Some(subjects(of)),
    }
}

/// Returns the accounts of all pods of the try, each once.
fn subjects(of: &Try<'_>) -> Vec<Subject> {
    let subject = |side: &Side| Subject {
        kind: "ServiceAccount".into(),
        name: service_account_name(of, *side),
        namespace: Some(of.ends.of(*side).namespace.clone()),
        ..Subject::default()
    };
    let mut subjects: Vec<Subject> = of.sides().iter().map(subject).collect();
    subjects.dedup();
    subjects
}

fn own_name(of: &Try<'_>) -> String {
    names::access(&of.job.name, of.uid, of.account)
}
