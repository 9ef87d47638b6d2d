//! Judges objects that were read. Pure.

use contract::Side;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{
        coordination::v1::Lease,
        core::v1::{Namespace, Node, Pod},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::finding::{Finding, end};
use crate::{
    api::{SyncJob, SyncJobStatus, conditions},
    ends::claim_end,
    fault::Fault,
    grants::{find_grant::Granted, namespace_annotations},
    names,
    plugin::args::Scope,
    spec::validate::validate,
    volumes::claims::{self, Blocked, Claim},
};

const ENFORCED: &str = "pod-security.kubernetes.io/enforce";
/// The number of restarts from which on a pod of the operator is reported.
const MANY_RESTARTS: i32 = 3;

/// Returns how to install the chart in the cluster.
fn install(at: &Scope) -> String {
    let flags = at.helm_flags();
    format!(
        "install the chart: helm install volferry charts/volferry --namespace volferry-system --create-namespace{flags}"
    )
}

/// Judges whether the API server serves all kinds.
pub(super) fn kinds(served: &[String], at: &Scope) -> Finding {
    let kinds = ["syncjobs", "syncruns", "syncgrants", "syncjobsets", "syncendpoints"];
    let missing: Vec<_> = kinds.into_iter().filter(|kind| !served.iter().any(|it| it == kind)).collect();
    if missing.is_empty() {
        return Finding::ok("the API server serves all kinds of Volferry");
    }
    Finding::error(format!("the CRDs of {} are not installed", missing.join(", ")), install(at))
}

/// Compares the schema of an installed CRD with the one in this program.
pub(super) fn schema(installed: &CustomResourceDefinition, own: &CustomResourceDefinition) -> Finding {
    let name = installed.name_any();
    let schemas = |crd: &CustomResourceDefinition| -> Value {
        crd.spec.versions.iter().map(|version| json!([version.name, version.schema])).collect()
    };
    if is_same(&schemas(installed), &schemas(own)) {
        return Finding::ok(format!("the CRD {name} is that of version {}", env!("CARGO_PKG_VERSION")));
    }
    Finding::warning(
        format!("the CRD {name} is not that of version {}", env!("CARGO_PKG_VERSION")),
        "use a chart and a kubectl-volferry of one version; `helm upgrade` brings the chart's CRDs",
    )
}

/// Compares JSON values, in which the API server writes 0.0 as 0.
fn is_same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| is_same(a, b)))
        }
        _ => a == b,
    }
}

/// Judges the operator's pods.
pub(super) fn operator(pods: &[Pod], at: &Scope) -> Vec<Finding> {
    if pods.is_empty() {
        return vec![Finding::error("no pod of the operator is there", install(at))];
    }
    pods.iter().map(|pod| operator_pod(pod, at)).collect()
}

fn operator_pod(pod: &Pod, at: &Scope) -> Finding {
    let path = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
    let status = pod.status.as_ref();
    let is_ready = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    let is_ready = is_ready.clone().any(|it| it.type_ == "Ready" && it.status == "True");
    let containers = || status.and_then(|status| status.container_statuses.as_ref()).into_iter().flatten();
    let restarts: i32 = containers().map(|container| container.restart_count).sum();
    let images: Vec<_> = containers().map(|container| container.image.as_str()).collect();
    let flags = at.flags_in(&pod.namespace().unwrap_or_default());
    let logs = format!("kubectl logs{flags} {}", pod.name_any());
    if !is_ready {
        let waits = containers().find_map(|it| it.state.as_ref()?.waiting.as_ref()?.reason.clone());
        let why = waits.map(|reason| format!(" ({reason})")).unwrap_or_default();
        return Finding::error(format!("the operator's pod {path} is not ready{why}"), logs);
    }
    if restarts > MANY_RESTARTS {
        return Finding::warning(
            format!("the operator's pod {path} was restarted {restarts} times"),
            format!("{logs} --previous"),
        );
    }
    Finding::ok(format!("the operator's pod {path} is ready ({})", images.join(", ")))
}

/// Judges whether a namespace admits syncer pods as its annotation demands.
pub(super) fn namespace(namespace: &Namespace, at: &Scope) -> Finding {
    let (name, flags) = (namespace.name_any(), at.cluster_flags());
    let enforced = namespace.labels().get(ENFORCED).map_or("privileged", String::as_str);
    match namespace_annotations::consent(
        namespace.annotations().get(names::ANNOTATION_PRIVILEGED).map(String::as_str),
        &name,
    ) {
        Err(fault) => {
            Finding::error(fault.message, format!("kubectl annotate{flags} --overwrite namespace {name} …"))
        }
        Ok(true) if enforced == "restricted" => Finding::error(
            format!(
                "syncer pods of namespace {name} run as root, and it enforces PodSecurity restricted, which refuses them"
            ),
            format!(
                "label it {ENFORCED}=baseline, or remove the annotation {}",
                names::ANNOTATION_PRIVILEGED
            ),
        ),
        Ok(true) => Finding::ok(format!("namespace {name} lets syncers run as root")),
        Ok(false) => {
            let is_assigned = namespace.annotations().contains_key(names::ANNOTATION_USER_RANGE);
            let user = if is_assigned { "the user that the cluster assigns" } else { "user 65532" };
            Finding::ok(format!("syncers of namespace {name} run as {user} and read what this user may read"))
        }
    }
}

/// Judges which release of the operator works in a namespace, by its Lease.
pub(super) fn holder(namespace: &str, lease: Option<&Lease>, now: Timestamp) -> Finding {
    let spec = lease.and_then(|lease| lease.spec.as_ref());
    let holder = spec.and_then(|spec| spec.holder_identity.as_deref()).filter(|it| !it.is_empty());
    let Some((spec, holder)) = spec.zip(holder) else {
        return Finding::note(format!("no operator works in namespace {namespace} yet"));
    };
    let valid = SignedDuration::from_secs(spec.lease_duration_seconds.unwrap_or(0).into());
    let age = spec.renew_time.as_ref().map(|renewed| now.duration_since(renewed.0));
    if age.is_none_or(|age| age > valid) {
        let hint = "the next operator that watches the namespace takes it over; see its pods and its log";
        return Finding::warning(
            format!(
                "the operator {holder}, which worked in namespace {namespace}, has given no sign for minutes"
            ),
            hint,
        );
    }
    Finding::ok(format!("the operator {holder} works in namespace {namespace}; any other leaves it alone"))
}

/// Returns findings about nodes that are not ready.
pub(super) fn nodes(nodes: &[Node], at: &Scope) -> Vec<Finding> {
    let is_ready = |node: &&Node| {
        let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|it| it.type_ == "Ready" && it.status == "True")
    };
    let (ready, others): (Vec<_>, Vec<_>) = nodes.iter().partition(is_ready);
    let mut findings = vec![Finding::ok(format!("{} of {} nodes are ready", ready.len(), nodes.len()))];
    findings.extend(others.iter().map(|node| {
        let name = node.name_any();
        Finding::warning(
            format!("the node {name} is not ready; pods whose volumes are there cannot start"),
            format!("kubectl describe node{} {name}", at.cluster_flags()),
        )
    }));
    findings
}

/// Judges whether the user has a permission, and names the role that grants it.
pub(super) fn right(
    verb: &str,
    resource: &str,
    namespace: &str,
    is_allowed: bool,
    role: &str,
) -> Option<Finding> {
    let text = format!("you may not {verb} {resource} in namespace {namespace}");
    (!is_allowed).then(|| Finding::warning(text, format!("the role {role} includes it")))
}

/// Judges an object that cannot be read.
pub(super) fn unreadable(name: &str, why: &str) -> Finding {
    let text = format!("{name} cannot be read, so nothing is done for it: {why}");
    Finding::error(text, "correct that value, or delete the object; a newer version may have written it")
}

/// Judges a claim of a SyncJob.
pub(super) fn claim(claim: &Claim, is_created: bool, at: &Scope) -> Finding {
    let (namespace, name) = claim.name.split_once('/').unwrap_or_default();
    let flags = at.flags_in(namespace);
    match claims::check(claim) {
        Ok(()) => Finding::ok(format!("the {} claim {} can be used", end(claim.side), claim.name)),
        Err(_) if claim.found.is_none() && is_created => {
            Finding::note(format!("the {} claim {} will be created", end(claim.side), claim.name))
        }
        Err(Blocked::Waiting(fault)) => {
            Finding::warning(fault.message, format!("kubectl describe pvc{flags} {name}"))
        }
        Err(Blocked::Stalled(fault)) => {
            Finding::error(fault.message, format!("kubectl get pvc,storageclass{flags}"))
        }
    }
}

/// Judges whether a SyncJob may use a claim of another namespace.
pub(super) fn grant(
    side: Side,
    claim: &claim_end::NamespacedClaim,
    found: Result<Granted, Fault>,
    at: &Scope,
) -> Finding {
    let granted = match found {
        Ok(granted) => granted,
        Err(fault) => {
            let look = format!("kubectl get syncgrants{} -o yaml", at.flags_in(&claim.namespace));
            return Finding::error(fault.message, look);
        }
    };
    let until = granted.until.map(|until| format!(", until {until}")).unwrap_or_default();
    let (end, namespace) = (end(side), &claim.namespace);
    Finding::ok(format!(
        "the SyncGrant {namespace}/{} lets the {end} claim {claim} be used{until}",
        granted.name
    ))
}

/// Judges the spec of a SyncJob, its conditions, and its last failed runs.
pub(super) fn job(job: &SyncJob, at: &Scope) -> Vec<Finding> {
    let (name, namespace) = (job.name_any(), job.namespace().unwrap_or_default());
    let flags = at.flags_in(&namespace);
    let status = job.status.clone().unwrap_or_default();
    let mut findings = Vec::new();
    if let Err(error) = validate(&job.spec, &name, &namespace) {
        let explain = format!("kubectl explain{} syncjob.spec", at.cluster_flags());
        findings.push(Finding::error(format!("the spec cannot be run: {error}"), explain));
    }
    if status.observed_generation < job.metadata.generation && status.active_run.is_none() {
        let text = "the operator has not seen this spec yet";
        findings.push(Finding::warning(text, "see what is said of the operator above"));
    }
    if job.spec.suspend {
        findings.push(Finding::note(format!("it is suspended: kubectl volferry resume{flags} {name}")));
    }
    findings.extend(raised(&status, &flags, &name));
    findings.extend(failed(&status, &flags));
    findings
}

/// Returns findings about the conditions that a person should look at.
fn raised(status: &SyncJobStatus, flags: &str, name: &str) -> Vec<Finding> {
    let has_run = status.last_run.is_some() || status.active_run.is_some();
    let command = if has_run { "logs" } else { "status" };
    let logs = format!("kubectl volferry {command}{flags} {name}");
    let is_true =
        |kind| conditions::find(&status.conditions, kind).filter(|condition| condition.status == "True");
    let said = |kind: &str, message: &str| format!("{kind}: {message}");
    let mut findings = Vec::new();
    for condition in [conditions::STALLED, conditions::CORRUPT].into_iter().filter_map(is_true) {
        findings.push(Finding::error(said(&condition.type_, &condition.message), logs.clone()));
    }
    if let Some(held) = is_true(conditions::RESTORED) {
        let resume = format!("kubectl volferry resume{flags} {name}");
        findings.push(Finding::warning(said(conditions::RESTORED, &held.message), resume));
    }
    let others = [
        conditions::INCOMPLETE,
        conditions::OWNERS_NOT_KEPT,
        conditions::SNAPSHOT_FAILED,
        conditions::SNAPSHOTS_GONE,
        conditions::PERFORMANCE_REGRESSED,
    ];
    for condition in others.into_iter().filter_map(is_true) {
        findings.push(Finding::warning(said(&condition.type_, &condition.message), logs.clone()));
    }
    if let Some(ready) = is_true(conditions::READY) {
        findings.push(Finding::ok(format!("Ready: {}", ready.message)));
    }
    findings
}

/// Returns a finding about the newest run in the history that did not succeed.
fn failed(status: &SyncJobStatus, flags: &str) -> Option<Finding> {
    let entry = status.history.iter().find(|entry| entry.result != contract::RunResult::Succeeded)?;
    let reason = entry.reason.as_deref().unwrap_or("no reason");
    let times = status.history.iter().filter(|entry| entry.result != contract::RunResult::Succeeded).count();
    Some(Finding::warning(
        format!(
            "{times} of the last {} runs did not succeed, the newest of them {} ({reason})",
            status.history.len(),
            entry.id
        ),
        format!("kubectl volferry logs{flags} {}", entry.id),
    ))
}

#[cfg(test)]
mod tests;
