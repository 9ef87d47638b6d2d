//! Reads what a namespace's annotations permit, from the API server or from what was read shortly before.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};

use super::namespace_annotations::NamespaceUsers;
use crate::controller::{
    read::{Result, is_forbidden, reading},
    recent::Recent,
};

/// Returns the annotations of a namespace, and whether they were read just now. Namespaces are not
/// watched, so a value read before is reused if it is younger than `age`.
pub(crate) async fn of(
    client: &Client,
    known: &Recent<NamespaceUsers>,
    namespace: &str,
    age: Duration,
) -> Result<(NamespaceUsers, bool)> {
    let mut is_fresh = false;
    let read = async {
        is_fresh = true;
        read(client, namespace).await
    };
    let consent = known.get_or_ask(namespace, age, read).await?;
    Ok((consent, is_fresh || age.is_zero()))
}

async fn read(client: &Client, namespace: &str) -> Result<NamespaceUsers> {
    match Api::<Namespace>::all(client.clone()).get_metadata_opt(namespace).await {
        Ok(None) => Ok(NamespaceUsers::default()),
        Ok(Some(namespace)) => Ok(NamespaceUsers::of(&namespace)),
        Err(error) if is_forbidden(&error) => Ok(NamespaceUsers::default()),
        Err(error) => Err(reading("namespace")(error)),
    }
}
