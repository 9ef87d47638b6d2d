//! Removes the remaining objects of tries that are over.

use std::sync::Arc;

use contract::Side;
use jiff::Timestamp;
use k8s_openapi::{NamespaceResourceScope, api::core::v1::ServiceAccount};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ObjectMeta, Preconditions, PropagationPolicy},
};
use serde::de::DeserializeOwned;
use thiserror::Error;

use super::{
    children::{Children, is_of_job},
    pod_state,
    stored_fields::{Job, Pod},
};
use crate::{
    ends::end_namespaces,
    names::{self, TryNames},
};

/// The number of pods that a message names.
const NAMED: usize = 3;

/// The reasons why an object could not be removed.
#[derive(Debug, Error)]
pub enum CleanupError {
    /// The API server rejected the deletion.
    #[error("cannot delete {kind} {name}")]
    Delete {
        /// The kind of the object.
        kind: String,
        /// The name of the object.
        name: String,
        /// The API server's error.
        #[source]
        source: kube::Error,
    },
}

/// Deletes Jobs of `owner` and their pods. Returns without waiting for the pods to terminate; fails at the first
/// deletion that the API server rejects.
pub async fn sweep(
    client: &Client,
    owner: &ChildOwner,
    children: &Children,
    jobs: &[&Job],
) -> Result<(), CleanupError> {
    for job in jobs {
        // The garbage collector would delete the pods too, but later; this does not depend on it.
        let pods = children.pods.iter().filter(|pod| is_of_job(pod, job));
        remove(client, owner, job).await?;
        for pod in pods.filter(|pod| pod.metadata.deletion_timestamp.is_none() && pod_state::is_alive(pod)) {
            delete_this(client, pod).await?;
        }
    }
    Ok(())
}

/// Deletes a Job, and the account of its pods if it is in another namespace, where each has one of its own.
async fn remove(client: &Client, owner: &ChildOwner, job: &Job) -> Result<(), CleanupError> {
    delete_this(client, job).await?;
    if job.namespace().as_deref() == Some(&owner.namespace) || !has_account(job) {
        return Ok(());
    }
    let account = ServiceAccount {
        metadata: ObjectMeta {
            name: job.metadata.name.clone(),
            namespace: job.namespace(),
            ..ObjectMeta::default()
        },
        ..ServiceAccount::default()
    };
    delete_this(client, &account).await
}

/// Returns whether a Job in another namespace has the name that only ends of runs have. Whoever may make Jobs there can
/// give them any annotation, and must not have an account of another name deleted by it.
fn has_account(job: &Job) -> bool {
    let said = |key: &str| job.annotations().get(key).map(String::as_str);
    let of_try = job.labels().get(names::LABEL_TRY).map(|label| TryNames::from_label(label));
    let (Some(name), Some(uid)) = (said(names::ANNOTATION_SYNCJOB), said(names::ANNOTATION_UID)) else {
        return false;
    };
    of_try.is_some_and(|of_try| {
        let own = [Side::Source, Side::Sink].map(|side| of_try.job(side));
        of_try.is_of(name, uid) && own.contains(&job.name_any())
    })
}

/// Deletes what was made in other namespaces for a SyncJob that is gone, by its Jobs. Fails at the first deletion that
/// the API server rejects.
pub async fn clear_abroad(client: &Client, namespace: &str, jobs: &[Arc<Job>]) -> Result<(), CleanupError> {
    let owner = ChildOwner { namespace: namespace.into(), uid: String::new(), runs: Vec::new() };
    for job in jobs {
        remove(client, &owner, job).await?;
    }
    Ok(())
}

/// Returns the Jobs of `owner` that belong to the given tries and are not being deleted yet.
pub fn due<'a>(owner: &ChildOwner, children: &'a Children, tries: &[TryNames]) -> Vec<&'a Job> {
    let is_due = |job: &&Job| {
        job.metadata.deletion_timestamp.is_none()
            && owner.owns(*job)
            && tries.iter().any(|of| is_of(*job, of))
    };
    children.jobs.iter().filter(is_due).collect()
}

/// Deletes those of the Jobs that belong to the owner, with their pods. Fails at the first deletion that the API server
/// rejects.
pub async fn stop(client: &Client, owner: &ChildOwner, children: &Children) -> Result<(), CleanupError> {
    for job in children.jobs.iter().filter(|job| owner.owns(*job)) {
        remove(client, owner, job).await?;
        for pod in children.pods.iter().filter(|pod| is_of_job(pod, job)) {
            delete_this(client, pod).await?;
        }
    }
    Ok(())
}

/// Deletes those of the Jobs that belong to the owner. Their pods have terminated, and are left to the garbage
/// collector. Fails at the first deletion that the API server rejects.
pub async fn discard(client: &Client, owner: &ChildOwner, children: &Children) -> Result<(), CleanupError> {
    for job in children.jobs.iter().filter(|job| owner.owns(*job)) {
        remove(client, owner, job).await?;
    }
    Ok(())
}

/// The owner of the children that may be removed: the SyncRuns of one SyncJob.
#[derive(Debug, Clone)]
pub struct ChildOwner {
    /// The SyncJob's namespace.
    pub namespace: String,
    /// The SyncJob's UID, which children in other namespaces have, since SyncRuns cannot own them.
    pub uid: String,
    /// The UIDs of its SyncRuns.
    pub runs: Vec<String>,
}

impl ChildOwner {
    /// Returns whether one of the SyncRuns owns a child, or it was made in another namespace for their SyncJob.
    pub fn owns(&self, child: &impl kube::ResourceExt) -> bool {
        child.owner_references().iter().any(|owner| self.runs.contains(&owner.uid))
            || end_namespaces::is_abroad(child, &self.namespace, &self.uid)
    }
}

fn is_of(child: &impl kube::ResourceExt, of: &TryNames) -> bool {
    child.labels().get(names::LABEL_TRY) == Some(&of.label())
}

/// Returns a status message about the pods of earlier tries that are terminating: their names, and advice on a pod that
/// is overdue.
pub fn farewell(pods: &[&Pod], now: Timestamp) -> String {
    let mut named: Vec<String> = pods.iter().map(|pod| with_node(pod)).collect();
    named.sort_unstable();
    let others = named.len().saturating_sub(NAMED);
    named.truncate(NAMED);
    let which = match (named.as_slice(), others) {
        ([], _) => return "What is left of an earlier try is being removed.".into(),
        (_, 0) => named.join(", "),
        _ => format!("{}, and {others} more", named.join(", ")),
    };
    let overdue = pods.iter().filter(|pod| pod_state::is_overdue(pod, now)).min_by_key(|pod| pod.name_any());
    let remedy = overdue.map(|pod| remedy(pod)).unwrap_or_default();
    format!("The pods of an earlier try are being removed: {which}.{remedy}")
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

fn with_node(pod: &Pod) -> String {
    let name = pod.name_any();
    node_of(pod).map_or_else(|| name.clone(), |node| format!("{name} on node {node}"))
}

fn remedy(pod: &Pod) -> String {
    let (name, node) = (pod.name_any(), node_of(pod).unwrap_or("NODE"));
    format!(
        " The pod {name} should be gone by now; its node may be lost. Only if it is and no process of it can run any more, \
         delete the pod by force (kubectl delete pod {name} --force), or taint the node, which detaches its volumes, too \
         (kubectl taint node {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute)."
    )
}

/// Deletes exactly this object, by its UID, and never a new object of the same name. Succeeds if the object is gone.
async fn delete_this<K>(client: &Client, object: &K) -> Result<(), CleanupError>
where
    K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + DeserializeOwned
        + std::fmt::Debug,
{
    let preconditions = Preconditions { uid: object.meta().uid.clone(), ..Preconditions::default() };
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        preconditions: Some(preconditions),
        ..DeleteParams::default()
    };
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    match Api::<K>::namespaced(client.clone(), &namespace).delete(&name, &params).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
        Err(source) => Err(CleanupError::Delete { kind: K::kind(&()).into_owned(), name, source }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    #[test]
    fn pods_that_are_removed_are_named_and_one_that_should_be_gone_is_given_a_way_out() {
        let pods: Vec<Pod> = (0..5)
            .map(|i| {
                let metadata = json!({"name": format!("p{i}"), "deletionTimestamp": at(60)});
                let spec = json!({"containers": [], "nodeName": "n1"});
                serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap()
            })
            .collect();
        let some: Vec<&Pod> = pods.iter().collect();
        assert_eq!(farewell(&[], at(0)), "What is left of an earlier try is being removed.");
        let said = "The pods of an earlier try are being removed: p0 on node n1.";
        assert_eq!(farewell(&some[..1], at(89)), said);
        assert!(
            farewell(&some, at(61)).ends_with("p2 on node n1, and 2 more."),
            "{}",
            farewell(&some, at(61))
        );
        let overdue = farewell(&some[..1], at(90));
        for words in
            [said, "kubectl delete pod p0 --force", "kubectl taint node n1 node.kubernetes.io/out-of-service"]
        {
            assert!(overdue.contains(words), "{overdue}");
        }
    }
}
