//! The fourth step: bring into the cluster what was built, by server-side apply under one field manager.
//!
//! The order is what makes a kill harmless at any point. The Services come first, because by their label
//! everything else of a try is found again. The Secrets are written only while there is no Job, and both
//! before the first Job: so whoever sees a Job knows that its keys are a pair. A Job that is there is left as
//! it is.

use std::{fmt::Debug, net::IpAddr};

use contract::{IdentityError, Side};
use k8s_openapi::{
    NamespaceResourceScope,
    api::core::v1::{Secret, Service},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde::{Serialize, de::DeserializeOwned};
use thiserror::Error;

use super::{
    build::{self, Groundwork},
    cleanup::{self, CleanupError},
    dereference::Children,
};
use crate::{names::FIELD_MANAGER, resources::Try};

/// What could not be made.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// The API server refused an object.
    #[error("cannot apply {kind} {name}")]
    Apply {
        /// Of which kind.
        kind: String,
        /// Which one.
        name: String,
        /// Why.
        #[source]
        source: kube::Error,
    },
    /// The Service has no address that a pod could dial.
    #[error("Service {0} was given no cluster IP")]
    NoAddress(String),
    /// There are no keys to be had.
    #[error("cannot make the run's keys")]
    Keys(#[from] IdentityError),
    /// Keys of a launch that was cut short cannot be removed.
    #[error(transparent)]
    Stale(#[from] CleanupError),
}

/// Makes what is missing of a try, given what there is.
pub async fn launch(client: &Client, of: &Try<'_>, children: &Children) -> Result<(), ApplyError> {
    let there = |side| children.job_of(of.names, side).is_some();
    let (has_source, has_sink) = (there(Side::Source), there(Side::Sink));
    let sinks = groundwork(client, build::groundwork(of)).await?;
    if of.run.local {
        if !has_sink {
            apply(client, &build::both_ends(of)).await?;
        }
        return Ok(());
    }
    if !has_source && !has_sink {
        secrets(client, of).await?;
    }
    let ends = build::ends(of, &sinks);
    if !has_sink {
        apply(client, &ends.sink).await?;
    }
    if !has_source {
        apply(client, &ends.source).await?;
    }
    Ok(())
}

/// Returns the addresses of the Services.
async fn groundwork(client: &Client, built: Groundwork) -> Result<Vec<IpAddr>, ApplyError> {
    let mut sinks = Vec::with_capacity(built.services.len());
    for service in &built.services {
        sinks.push(address_of(&apply(client, service).await?)?);
    }
    if let Some(account) = &built.service_account {
        apply(client, account).await?;
    }
    apply(client, &built.role).await?;
    apply(client, &built.role_binding).await?;
    Ok(sinks)
}

fn address_of(service: &Service) -> Result<IpAddr, ApplyError> {
    let address = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_ref()?.parse().ok());
    address.ok_or_else(|| ApplyError::NoAddress(service.name_any()))
}

/// Writes a fresh pair. What a launch that was cut short has left of another pair is of no use to anybody.
async fn secrets(client: &Client, of: &Try<'_>) -> Result<(), ApplyError> {
    for side in [Side::Source, Side::Sink] {
        cleanup::delete::<Secret>(client, &of.job.namespace, &of.names.secret(side)).await?;
    }
    for secret in build::secrets(of)? {
        apply(client, &secret).await?;
    }
    Ok(())
}

async fn apply<K>(client: &Client, object: &K) -> Result<K, ApplyError>
where
    K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + Serialize
        + DeserializeOwned,
{
    let (name, namespace) = (object.name_any(), object.namespace().unwrap_or_default());
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let api = Api::<K>::namespaced(client.clone(), &namespace);
    api.patch(&name, &params, &Patch::Apply(object)).await.map_err(|source| ApplyError::Apply {
        kind: K::kind(&()).into_owned(),
        name,
        source,
    })
}
