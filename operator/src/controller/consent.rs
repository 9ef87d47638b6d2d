//! What the annotations of namespaces say of syncers that run as root.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt as _};

use super::{
    read::{Result, is_forbidden, reading},
    recent::Recent,
};
use crate::{api::SyncJob, names};

/// Returns what the annotation of a job's namespace says, and whether that was read just now: what was read before is
/// enough if it is younger than `age`, since namespaces are not watched.
pub(super) async fn of(
    client: &Client,
    known: &Recent<Option<String>>,
    job: &SyncJob,
    age: Duration,
) -> Result<(Option<String>, bool)> {
    let namespace = job.namespace().unwrap_or_default();
    if let Some(consent) = known.get(&namespace, age) {
        return Ok((consent, false));
    }
    let consent = read(client, &namespace).await?;
    known.put(&namespace, consent.clone());
    Ok((consent, true))
}

async fn read(client: &Client, namespace: &str) -> Result<Option<String>> {
    match Api::<Namespace>::all(client.clone()).get_metadata_opt(namespace).await {
        Ok(namespace) => {
            Ok(namespace.and_then(|it| it.annotations().get(names::ANNOTATION_PRIVILEGED).cloned()))
        }
        Err(error) if is_forbidden(&error) => Ok(None),
        Err(error) => Err(reading("namespace")(error)),
    }
}
