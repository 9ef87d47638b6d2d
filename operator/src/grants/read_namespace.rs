//! Reads what a namespace's annotations permit, from the API server or from what was read shortly before.

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};

use super::namespace_annotations::NamespaceUsers;
use crate::controller::{
    read::{Result, is_forbidden, reading},
    recently_read::Recent,
};

/// The annotations and labels of a namespace.
pub(crate) struct Reading {
    pub(crate) users: NamespaceUsers,
    /// Whether they were read just now.
    pub(crate) is_fresh: bool,
}

/// Returns the annotations of a namespace. Namespaces are not watched, so a value read before is reused if it is
/// younger than `age`.
pub(crate) async fn of(
    client: &Client,
    known: &Recent<NamespaceUsers>,
    namespace: &str,
    age: Duration,
) -> Result<Reading> {
    let mut is_fresh = false;
    let read = async {
        is_fresh = true;
        read(client, namespace).await
    };
    let users = known.get_or_ask(namespace, age, read).await?;
    Ok(Reading { users, is_fresh: is_fresh || age.is_zero() })
}

async fn read(client: &Client, namespace: &str) -> Result<NamespaceUsers> {
    match Api::<Namespace>::all(client.clone()).get_metadata_opt(namespace).await {
        Ok(None) => Ok(NamespaceUsers::default()),
        Ok(Some(namespace)) => Ok(NamespaceUsers::of(&namespace)),
        Err(error) if is_forbidden(&error) => Ok(NamespaceUsers::default()),
        Err(error) => Err(reading("namespace")(error)),
    }
}
