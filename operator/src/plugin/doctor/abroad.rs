//! Looks at the other namespaces that a SyncJob has claims of: their rules for pods, and their SyncGrants.

use std::collections::{BTreeMap, BTreeSet};

use contract::Side;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt, api::ListParams};

use super::{finding::Finding, if_allowed, judge};
use crate::{
    api::{GrantAccess, SyncGrant, SyncJob, conditions},
    ends::claim_end::NamespacedClaim,
    grants::find_grant::{self, Applicant, Request},
    plugin::{cluster::Cluster, error::PluginError},
    volumes::claims,
};

/// Returns findings about the other namespaces of a job's claims. What its condition Stalled says is not repeated.
pub(super) async fn inspect(
    cluster: &Cluster,
    job: &SyncJob,
    claims: &[claims::Claim],
) -> Result<Vec<Finding>, PluginError> {
    let (own, spec) = (job.namespace().unwrap_or_default(), &job.spec);
    let conditions = job.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
    let told = conditions::find(conditions, conditions::STALLED).map(|stalled| stalled.message.as_str());
    let (mut findings, mut seen) = (Vec::new(), BTreeSet::new());
    for (side, named) in spec.claims() {
        let Some(namespace) = named.namespace.clone().filter(|it| *it != own) else { continue };
        if seen.insert(namespace.clone()) {
            findings.push(super::namespace(cluster, &namespace).await?);
        }
        let claim = NamespacedClaim { namespace, name: named.claim_name.clone() };
        let found = claims.iter().find(|it| it.side == side).and_then(|it| it.found.as_ref());
        let finding = grant(cluster, &own, side, &claim, found.map(ResourceExt::labels)).await?;
        findings.extend(Some(finding).filter(|finding| told != Some(finding.text.as_str())));
    }
    Ok(findings)
}

async fn grant(
    cluster: &Cluster,
    own: &str,
    side: Side,
    claim: &NamespacedClaim,
    labels: Option<&BTreeMap<String, String>>,
) -> Result<Finding, PluginError> {
    let there = &claim.namespace;
    let api = Api::<SyncGrant>::namespaced(cluster.client.clone(), there);
    let grants = if_allowed(api.list(&ListParams::default()).await)
        .map_err(cluster.failed(format!("list the SyncGrants of namespace {there}")))?;
    let Some(grants) = grants else {
        return Ok(Finding::unseen(&format!("the SyncGrants of namespace {there}")));
    };
    let namespace = if_allowed(Api::<Namespace>::all(cluster.client.clone()).get(own).await)
        .map_err(cluster.failed(format!("read namespace {own}")))?;
    let Some(namespace) = namespace else {
        return Ok(Finding::unseen(&format!("whether SyncGrants are for namespace {own}")));
    };
    let uid = namespace.uid();
    let from = Applicant { namespace: own, uid: uid.as_deref(), labels: namespace.labels() };
    let access = if side == Side::Source { GrantAccess::Read } else { GrantAccess::Write };
    let request = Request { side, claim, labels, access, from: &from, now: Timestamp::now() };
    Ok(judge::grant(side, claim, find_grant::find(&grants.items, request, None), &cluster.scope))
}
