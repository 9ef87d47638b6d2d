//! Finds what else writes to the claims of a move. The copies would lack what comes after the comparison.

use std::collections::BTreeMap;

use kube::ResourceExt as _;

use super::super::{cluster::Cluster, error::PluginError};
use super::record::MovedClaim;
use crate::api::{EndpointAccess, GrantAccess, SyncEndpoint, SyncGrant, SyncJob};

/// Refuses claims that SyncJobs or the peers of SyncEndpoints may write to.
pub(super) async fn check(cluster: &Cluster, claims: &[MovedClaim]) -> Result<(), PluginError> {
    let is_moved = |name: &str| claims.iter().any(|claim| claim.name == name);
    for job in jobs(cluster, claims).await? {
        let own = job.namespace().unwrap_or_default();
        let destination = job.spec.destination.persistent_volume_claim.as_ref();
        let moved = destination.filter(|claim| {
            claim.namespace.as_ref().unwrap_or(&own) == &cluster.namespace && is_moved(&claim.claim_name)
        });
        let Some(moved) = moved else { continue };
        let path = format!("SyncJob {own}/{}", job.name_any());
        if !job.spec.suspend {
            let why = format!("{path} writes to claim {}", moved.claim_name);
            let flags = cluster.scope.flags_in(&own);
            let hint = format!("`kubectl volferry suspend{flags} {}` lets it wait", job.name_any());
            return Err(PluginError::blocked(why, hint));
        }
        if job.status.as_ref().is_some_and(|status| status.active_run.is_some()) {
            let why = format!("a run of {path} is under way, which writes to claim {}", moved.claim_name);
            return Err(PluginError::blocked(why, "run the same command again once that run is over"));
        }
    }
    let endpoints = cluster.readable(&cluster.api::<SyncEndpoint>(false)).await?;
    let writes = |it: &&SyncEndpoint| {
        let is_open = it.spec.access == EndpointAccess::Write && !it.spec.suspend;
        is_open && is_moved(&it.spec.persistent_volume_claim.claim_name)
    };
    let Some(endpoint) = endpoints.iter().find(writes) else { return Ok(()) };
    let claim = &endpoint.spec.persistent_volume_claim.claim_name;
    let why = format!("SyncEndpoint {} lets its peers write to claim {claim}", endpoint.name_any());
    Err(PluginError::blocked(why, "set its spec.suspend to true until the move is over"))
}

/// Returns the SyncJobs that may use claims of the namespace.
async fn jobs(cluster: &Cluster, claims: &[MovedClaim]) -> Result<Vec<SyncJob>, PluginError> {
    match cluster.jobs(true).await {
        Err(error) if error.is_forbidden() => {}
        jobs => return jobs,
    }
    let grants = cluster.readable(&cluster.api::<SyncGrant>(false)).await?;
    if let Some(grant) = grants.iter().find(|grant| claims.iter().any(|claim| may_be_written(grant, claim))) {
        let name = grant.name_any();
        let why = format!("SyncGrant {name} lets SyncJobs write to the claims that you may not list");
        return Err(PluginError::blocked(why, "get the right to list SyncJobs of all namespaces"));
    }
    cluster.jobs(false).await
}

fn may_be_written(grant: &SyncGrant, claim: &MovedClaim) -> bool {
    let labels = serde_json::from_value::<BTreeMap<String, String>>(claim.field("/metadata/labels").clone());
    let labels = labels.unwrap_or_default();
    let is_granted = grant.spec.claims.iter().any(|granted| {
        granted.name.as_ref() == Some(&claim.name)
            || granted.selector.as_ref().is_some_and(|selector| selector.selects(&labels))
    });
    grant.spec.access == GrantAccess::Write && is_granted
}
