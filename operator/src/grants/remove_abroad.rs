//! Removes what was made in other namespaces for SyncJobs that are gone. Owners are of one namespace, so that the
//! garbage collector does that only when the grant goes, too.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use contract::chain;
use kube::{Api, Client, ResourceExt as _};

use crate::{
    controller::{
        context::Context,
        error::Error,
        read::{Guarded, reading},
        stores::Known,
    },
    ends::end_namespaces,
    names,
    pods::{cleanup, stored_fields::Job},
};

/// How long to wait before the next attempt.
const PAUSE: Duration = Duration::from_secs(5);

/// Removes, in a task, what was made in other namespaces for SyncJobs that had this name. `uid` is the UID of the one
/// that has it now.
pub(crate) fn clear(context: &Context, namespace: &str, name: &str, uid: Option<&str>) {
    if left(&context.known, namespace, name, uid).is_empty() {
        return;
    }
    let (client, known) = (context.client.clone(), context.known.clone());
    let (namespace, name) = (namespace.to_string(), name.to_string());
    context.hooks.spawn_once(format!("{namespace}/{name} abroad"), async move {
        while let Err(error) = clear_once(&client, &known, &namespace, &name).await {
            tracing::warn!(
                namespace,
                name,
                error = chain(&error),
                "what is left of a SyncJob cannot be removed yet"
            );
            tokio::time::sleep(PAUSE).await;
        }
    });
}

/// Reads the SyncJob of that name anew, and removes what was made in other namespaces for earlier ones.
async fn clear_once(client: &Client, known: &Known, namespace: &str, name: &str) -> Result<(), Error> {
    let jobs = Api::<Guarded>::namespaced(client.clone(), namespace);
    let now = jobs.get_opt(name).await.map_err(reading("SyncJob"))?;
    let uid = now.as_ref().and_then(Guarded::uid);
    Ok(cleanup::clear_abroad(client, namespace, &left(known, namespace, name, uid.as_deref())).await?)
}

/// Returns the Jobs in other namespaces of SyncJobs that had this name, if the operator is to see to them.
fn left(known: &Known, namespace: &str, name: &str, uid: Option<&str>) -> Vec<Arc<Job>> {
    let is_left = |job: &Job| {
        let says = |key, value: &str| job.annotations().get(key).is_some_and(|it| it == value);
        let of = job.annotations().get(names::ANNOTATION_UID);
        job.metadata.deletion_timestamp.is_none()
            && end_namespaces::is_of_grant(job)
            && says(names::ANNOTATION_NAMESPACE, namespace)
            && says(names::ANNOTATION_SYNCJOB, name)
            && of.is_some_and(|of| uid != Some(of))
    };
    // Without its grant, a Job is the garbage collector's.
    let granting = known.grants.state().into_iter().filter_map(|grant| grant.namespace());
    let others: BTreeSet<_> =
        granting.filter(|it| it != namespace && known.jobs.watches(namespace)).collect();
    let label = names::label_value(name);
    let jobs = others.iter().flat_map(|other| known.batch.of(other, &label));
    jobs.filter(|job| is_left(job)).collect()
}
