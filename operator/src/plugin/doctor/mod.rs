//! `kubectl volferry doctor`: checks the requirements of SyncJobs, and reports what would make runs fail.
//!
//! `judge` evaluates objects, and `finding` formats the results. Objects that the user may not read are skipped with a
//! note.

mod abroad;
mod finding;
mod judge;
pub(super) mod users_rights;

use finding::{Finding, Severity};
use jiff::Timestamp;
use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Namespace, Node, Pod},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, ResourceExt as _, api::ListParams};

use super::{
    cluster::{Cluster, OPERATOR_PODS},
    error::PluginError,
    lines, output,
};
use crate::{
    api::{GROUP, SyncEndpoint, SyncGrant, SyncJob, SyncJobSet, SyncRun, VERSION, crds},
    controller::dereference,
    names,
};

/// Prints findings about the cluster, the namespace, and one SyncJob or all in the namespace.
pub(super) async fn run(cluster: &Cluster, job: Option<&str>) -> Result<(), PluginError> {
    let mut worst = Severity::Ok;
    let mut tell = |findings: Vec<Finding>| {
        worst = findings.iter().map(|finding| finding.severity).chain([worst]).max().unwrap_or(worst);
        output::lines(&findings.iter().flat_map(Finding::lines).collect::<Vec<_>>())
    };
    let served = kinds(cluster).await?;
    let is_installed = served.severity == Severity::Ok;
    tell(vec![served])?;
    if is_installed {
        tell(schemas(cluster).await?)?;
    }
    tell(operator(cluster).await?)?;
    tell(nodes(cluster).await?)?;
    tell(vec![namespace(cluster, &cluster.namespace).await?])?;
    tell(holder(cluster).await?)?;
    tell(users_rights::findings(cluster).await?)?;
    if is_installed {
        let (jobs, runs) = (cluster.unreadable::<SyncJob>().await?, cluster.unreadable::<SyncRun>().await?);
        let grants = cluster.unreadable::<SyncGrant>().await?;
        let sets = cluster.unreadable::<SyncJobSet>().await?;
        let endpoints = cluster.unreadable::<SyncEndpoint>().await?;
        let all = jobs.iter().chain(&runs).chain(&grants).chain(&sets).chain(&endpoints);
        tell(all.map(|it| judge::unreadable(&it.name, &it.why)).collect())?;
    }
    let jobs = match job {
        _ if !is_installed => Vec::new(),
        Some(name) => vec![cluster.job(name).await?],
        None => cluster.jobs(false).await?,
    };
    for job in &jobs {
        output::lines(&[format!("SyncJob {}", lines::path(job))])?;
        tell(one_job(cluster, job).await?)?;
    }
    if worst == Severity::Error { Err(PluginError::Unwell) } else { Ok(()) }
}

/// Returns `None` for an object that the user may not read.
fn if_allowed<T>(answer: Result<T, kube::Error>) -> Result<Option<T>, kube::Error> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.is_forbidden() => Ok(None),
        Err(error) => Err(error),
    }
}

async fn kinds(cluster: &Cluster) -> Result<Finding, PluginError> {
    let version = format!("{GROUP}/{VERSION}");
    let served = match cluster.client.list_api_group_resources(&version).await {
        Ok(list) => list.resources.into_iter().map(|resource| resource.name).collect(),
        Err(kube::Error::Api(status)) if status.is_not_found() => Vec::new(),
        Err(error) => return Err(cluster.failed(format!("list the kinds of {version}"))(error)),
    };
    Ok(judge::kinds(&served, &cluster.scope))
}

async fn schemas(cluster: &Cluster) -> Result<Vec<Finding>, PluginError> {
    let api = Api::<CustomResourceDefinition>::all(cluster.client.clone());
    let mut findings = Vec::new();
    for own in crds() {
        let name = own.name_any();
        let found =
            if_allowed(api.get(&name).await).map_err(cluster.failed(format!("read the CRD {name}")))?;
        findings.push(match found {
            Some(installed) => judge::schema(&installed, &own),
            None => return Ok(vec![Finding::unseen("the version of the CRDs")]),
        });
    }
    Ok(findings)
}

async fn operator(cluster: &Cluster) -> Result<Vec<Finding>, PluginError> {
    let pods =
        Api::<Pod>::all(cluster.client.clone()).list(&ListParams::default().labels(OPERATOR_PODS)).await;
    let pods = if_allowed(pods).map_err(cluster.failed("list the operator's pods".into()))?;
    Ok(pods.map_or_else(
        || vec![Finding::unseen("the operator's pods")],
        |pods| judge::operator(&pods.items, &cluster.scope),
    ))
}

async fn nodes(cluster: &Cluster) -> Result<Vec<Finding>, PluginError> {
    let nodes = Api::<Node>::all(cluster.client.clone()).list(&ListParams::default()).await;
    let nodes = if_allowed(nodes).map_err(cluster.failed("list nodes".into()))?;
    Ok(nodes.map_or_else(
        || vec![Finding::unseen("the nodes")],
        |nodes| judge::nodes(&nodes.items, &cluster.scope),
    ))
}

async fn namespace(cluster: &Cluster, name: &str) -> Result<Finding, PluginError> {
    let found = Api::<Namespace>::all(cluster.client.clone()).get(name).await;
    let found = if_allowed(found).map_err(cluster.failed(format!("read namespace {name}")))?;
    Ok(found.map_or_else(
        || Finding::unseen(&format!("namespace {name}")),
        |it| judge::namespace(&it, &cluster.scope),
    ))
}

async fn holder(cluster: &Cluster) -> Result<Vec<Finding>, PluginError> {
    let (name, namespace) = (names::NAMESPACE_LEASE, &cluster.namespace);
    let found = Api::<Lease>::namespaced(cluster.client.clone(), namespace).get_opt(name).await;
    let found = if_allowed(found).map_err(cluster.failed(format!("read the Lease {namespace}/{name}")))?;
    let seen = found.map(|lease| judge::holder(namespace, lease.as_ref(), Timestamp::now()));
    Ok(vec![
        seen.unwrap_or_else(|| Finding::unseen(&format!("the operator that holds namespace {namespace}"))),
    ])
}

async fn one_job(cluster: &Cluster, job: &SyncJob) -> Result<Vec<Finding>, PluginError> {
    let mut findings = judge::job(job, &cluster.scope);
    let claims = match dereference::claims(&cluster.client, None, job).await {
        Ok(claims) => claims,
        Err(error) if error.is_forbidden() => {
            findings.push(Finding::unseen("its claims"));
            Vec::new()
        }
        Err(source) => return Err(PluginError::Claims { at: cluster.at(), job: lines::path(job), source }),
    };
    findings.extend(claims.iter().map(|claim| {
        let is_created = claim.side == contract::Side::Sink && job.spec.destination.create.is_some();
        judge::claim(claim, is_created, &cluster.scope)
    }));
    findings.extend(abroad::inspect(cluster, job, &claims).await?);
    Ok(findings)
}
