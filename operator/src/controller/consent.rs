//! Reads the namespace annotation that allows syncers to run as root.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt as _};

use super::{
    read::{Result, is_forbidden, reading},
    recent::Recent,
};
use crate::{api::SyncJob, names};

/// Returns the annotation's value for the namespace of `job`, and whether it was read just now. Namespaces are not
/// watched, so a value read before is reused if it is younger than `age`.
pub(super) async fn of(
    client: &Client,
    known: &Recent<Option<String>>,
    job: &SyncJob,
    age: Duration,
) -> Result<(Option<String>, bool)> {
    let namespace = job.namespace().unwrap_or_default();
    let mut is_fresh = false;
    let read = async {
        is_fresh = true;
        read(client, &namespace).await
    };
    let consent = known.get_or_ask(&namespace, age, read).await?;
    Ok((consent, is_fresh))
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
