//! Reconciles SyncEndpoints: checks the claim and the spec, applies the objects, looks at the pod, writes the status.
//!
//! Everything is made from the spec anew each time, and what the endpoint's pod wrote into the status decides nothing
//! but whether the pod still needs the right to store its key.

use contract::{Reason, chain};
use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{PersistentVolumeClaim, Pod, Service},
};
use kube::{
    Api, Resource as _, ResourceExt as _,
    api::{ListParams, Patch, PatchParams},
    core::error_boundary::InvalidObject,
    runtime::controller::Action,
};
use serde_json::json;
use thiserror::Error;
use tokio::time::timeout;

use super::{
    address,
    endpoint_objects::{self, Serving},
    endpoint_standing::{self, ServiceStanding, is_available},
    serve_config,
};
use crate::{
    api::{ServiceType, SyncEndpoint, SyncEndpointSpec, SyncEndpointStatus, conditions},
    controller::{
        apply::{ApplyError, apply},
        context::Context,
        pause_after_failure::pause_after,
        read::{DereferenceError, GuardedEndpoint, reading},
        reconcile_timeout::TIMEOUT,
        stores::WatchError,
    },
    fault::Fault,
    grants::{
        namespace_annotations::{self, NamespaceUsers},
        read_namespace,
    },
    human::{clipped, sentence},
    leases::held_namespaces::NotTaken,
    names::{self, FIELD_MANAGER},
    pods::{
        placement::{self, Placement},
        security,
    },
    volumes::access_modes,
};

/// How long to wait before an endpoint is looked at again whose pod is not ready: no watch tells of its pods.
const LOOK: Duration = Duration::from_secs(10);
/// How long to wait before one that is ready is looked at again: no watch tells of its namespace's annotations.
const IDLE: Duration = Duration::from_secs(300);
const OTHERS_PERIOD: Duration = Duration::from_secs(20);
/// The HTTP status codes by which the API server rejects an object as it is.
const REFUSALS: [u16; 3] = [400, 403, 422];
/// The longest text from the API server in a status, in bytes.
const MAX_WORDS_BYTES: usize = 1024;

/// The reasons why a reconciliation was aborted. It is tried again.
#[derive(Debug, Error)]
pub(crate) enum EndpointError {
    /// Nobody knows which release of the operator holds the namespace.
    #[error(transparent)]
    NotTaken(#[from] NotTaken),
    /// A watch has ended or fails.
    #[error(transparent)]
    Unwatched(#[from] WatchError),
    /// An object cannot be read.
    #[error(transparent)]
    Read(#[from] DereferenceError),
    /// An object cannot be applied.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// The pod cannot be ended.
    #[error("cannot end the pod of the SyncEndpoint")]
    Suspend(#[source] kube::Error),
    /// The status cannot be written.
    #[error("cannot write the status of the SyncEndpoint")]
    Status(#[source] kube::Error),
    /// The reconciliation took too long.
    #[error("no end within {} s", TIMEOUT.as_secs())]
    TimedOut,
}

/// Reconciles one endpoint. kube's controller calls it for each change.
pub(crate) async fn reconcile(
    endpoint: Arc<GuardedEndpoint>,
    context: Arc<Context>,
) -> Result<Action, EndpointError> {
    let done = timeout(TIMEOUT, known(&endpoint, &context)).await.unwrap_or(Err(EndpointError::TimedOut));
    if done.is_ok() {
        context.failures.forget(&path(&endpoint));
    }
    done
}

fn path(endpoint: &GuardedEndpoint) -> String {
    format!("SyncEndpoint {}/{}", endpoint.namespace().unwrap_or_default(), endpoint.name_any())
}

/// Logs a failed reconciliation, and returns when to try it again: the later, the more have failed in a row.
#[allow(clippy::needless_pass_by_value)] // kube calls it so
pub(crate) fn on_error(
    endpoint: Arc<GuardedEndpoint>,
    error: &EndpointError,
    context: Arc<Context>,
) -> Action {
    let (namespace, name) = (endpoint.namespace().unwrap_or_default(), endpoint.name_any());
    tracing::warn!(
        namespace,
        name,
        error = chain(error),
        "reconciling a SyncEndpoint failed and is tried again"
    );
    Action::requeue(pause_after(context.failures.failed(&path(&endpoint))))
}

async fn known(endpoint: &GuardedEndpoint, context: &Context) -> Result<Action, EndpointError> {
    let (namespace, name) = (endpoint.namespace().unwrap_or_default(), endpoint.name_any());
    if !context.namespaces.holds(&namespace).await? {
        return Ok(Action::requeue(OTHERS_PERIOD));
    }
    // A store that has no list yet would show no claim, and the service would end.
    context.known.claims.catch_up(&namespace).await?;
    context.endpoints.endpoints.catch_up(&namespace).await?;
    context.endpoints.deployments.catch_up(&namespace).await?;
    context.endpoints.services.catch_up(&namespace).await?;
    let found = context.endpoints.endpoints.get(&namespace, &name);
    // The garbage collector deletes the objects of a deleted endpoint by their owner references.
    let Some(endpoint) = found.filter(|it| it.meta().deletion_timestamp.is_none()) else {
        return Ok(Action::await_change());
    };
    match &endpoint.0 {
        Ok(endpoint) => go_on(context, endpoint).await,
        Err(unreadable) => set_aside(context, unreadable).await,
    }
}

/// Says in the status of an endpoint that this operator cannot parse it.
async fn set_aside(context: &Context, unreadable: &InvalidObject) -> Result<Action, EndpointError> {
    let said = format!(
        "This operator cannot read the SyncEndpoint, which may be of a newer one: {}.",
        unreadable.error
    );
    let metadata = unreadable.metadata.clone();
    let endpoint = SyncEndpoint { metadata, spec: SyncEndpointSpec::default(), status: None };
    let standing = ServiceStanding::Stalled(Fault::new(Reason::InvalidSpec, said));
    report_standing(context, &endpoint, &standing, None).await?;
    Ok(Action::await_change())
}

/// Applies the objects of an endpoint, and writes how it stands.
async fn go_on(context: &Context, endpoint: &SyncEndpoint) -> Result<Action, EndpointError> {
    let namespace = endpoint.namespace().unwrap_or_default();
    let users =
        read_namespace::of(&context.client, &context.consents, &namespace, Duration::ZERO).await?.users;
    let claim = context.known.claims.get(&namespace, &endpoint.spec.persistent_volume_claim.claim_name);
    let checked = check(endpoint, &users, &namespace)
        .and_then(|()| endpoint_standing::of_claim(endpoint, claim.as_deref()));
    let name = names::endpoint(&endpoint.name_any(), &endpoint.uid().unwrap_or_default());
    let before = context.endpoints.deployments.get(&namespace, &name);
    let pinned = pinned(context, endpoint, claim.as_deref(), before.as_deref()).await?;
    let serving = Serving {
        endpoint,
        settings: &context.settings,
        users: &users,
        // A pod would keep a claim that is being deleted, wait for one that is not there, or keep rights that it lost.
        runs: !endpoint.spec.suspend && checked.is_ok(),
        on_one_node: claim.as_deref().is_some_and(access_modes::ties),
        pinned: pinned.as_ref(),
        has_key: endpoint_standing::public_key(endpoint).is_some(),
    };
    if !serving.runs {
        end_pod(context, before.as_deref()).await?;
    }
    let applied = match apply_all(context, &serving).await {
        Ok(applied) => Ok(applied),
        Err(error) => Err(refusal(&error).ok_or(error)?),
    };
    let pods = own_pods(context, endpoint).await?;
    let node = address::node(&pods);
    let earlier = context.endpoints.services.get(&namespace, &name);
    let service = applied.as_ref().map_or(earlier.as_deref(), |applied| Some(&applied.service));
    let address = address::address(endpoint, service, node.as_deref());
    let standing = match (checked, &applied) {
        (Err(fault), _) => ServiceStanding::Stalled(fault),
        (Ok(()), Err(fault)) => ServiceStanding::Stalled(fault.clone()),
        (Ok(()), Ok(applied)) => {
            endpoint_standing::of_pod(endpoint, Some(&applied.deployment), &pods, address.as_deref())
        }
    };
    report_standing(context, endpoint, &standing, address).await?;
    Ok(Action::requeue(if matches!(standing, ServiceStanding::Ready(_)) { IDLE } else { LOOK }))
}

/// Ends the pod of an endpoint, before anything is applied that the API server might refuse.
async fn end_pod(context: &Context, before: Option<&Deployment>) -> Result<(), EndpointError> {
    let runs = |it: &&Deployment| it.spec.as_ref().is_some_and(|spec| spec.replicas != Some(0));
    let Some(before) = before.filter(runs) else { return Ok(()) };
    let patch = Patch::Merge(json!({"metadata": {"uid": before.uid()}, "spec": {"replicas": 0}}));
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    let namespace = before.namespace().unwrap_or_default();
    let api = Api::<Deployment>::namespaced(context.client.clone(), &namespace);
    match api.patch(&before.name_any(), &params, &patch).await {
        // It is gone, or another one has its name.
        Err(kube::Error::Api(answer)) if answer.is_not_found() || answer.is_conflict() => Ok(()),
        ended => ended.map(drop).map_err(EndpointError::Suspend),
    }
}

/// Checks what only the spec and the namespace decide.
fn check(endpoint: &SyncEndpoint, users: &NamespaceUsers, namespace: &str) -> Result<(), Fault> {
    serve_config::check(&endpoint.spec)?;
    namespace_annotations::consent(users.privileged.as_deref(), namespace)?;
    let wanted = &endpoint.spec.pods.security_context;
    security::check(users.is_privileged(), wanted, contract::Ownership::Auto, namespace)
}

/// The objects of an endpoint whose status tells how it stands.
struct Applied {
    deployment: Deployment,
    service: Service,
}

/// Applies all objects. The account and its rights come first, because the pod needs them.
async fn apply_all(context: &Context, of: &Serving<'_>) -> Result<Applied, ApplyError> {
    let client = &context.client;
    if let Some(account) = endpoint_objects::service_account(of) {
        apply(client, &account).await?;
    }
    apply(client, &endpoint_objects::role(of)).await?;
    apply(client, &endpoint_objects::role_binding(of)).await?;
    let mut service = apply(client, &endpoint_objects::service(of)).await?;
    if let Some(with_one) = endpoint_objects::with_one_node_port(of, &service) {
        service = apply(client, &with_one).await?;
    }
    let deployment = apply(client, &endpoint_objects::deployment(of)).await?;
    Ok(Applied { deployment, service })
}

/// Returns the API server's objection to an object; `None` if the error has another cause, such as an outage.
fn refusal(error: &ApplyError) -> Option<Fault> {
    let ApplyError::Apply { kind, name, source: kube::Error::Api(answer) } = error else { return None };
    let words = sentence(&clipped(&answer.message, MAX_WORDS_BYTES));
    let message = format!(
        "The API server refuses the {kind} {name}: {words} Correct spec.service or spec.pods if that is what it names, else the \
         quota, the admission policy or the operator's rights that stand in the way."
    );
    REFUSALS.contains(&answer.code).then(|| Fault::new(Reason::ChildRefused, message))
}

/// Returns the node that the endpoint's pod has to run on, because another pod uses the claim there, or did when the
/// pod was made: what others do does not restart it.
async fn pinned(
    context: &Context,
    endpoint: &SyncEndpoint,
    claim: Option<&PersistentVolumeClaim>,
    before: Option<&Deployment>,
) -> Result<Option<Placement>, EndpointError> {
    let Some(claim) = claim.filter(|claim| access_modes::ties(claim)) else { return Ok(None) };
    let at = |node: String| Placement { node, tolerations: Vec::new(), is_required: true };
    let template = before.and_then(|before| before.spec.as_ref()?.template.metadata.as_ref());
    let noted = template.and_then(|it| it.annotations.as_ref()?.get(names::ANNOTATION_NODE).cloned());
    if before.is_some_and(is_available) {
        return Ok(noted.map(at));
    }
    let all = pods(context, endpoint).list(&ListParams::default()).await.map_err(reading("pods"))?.items;
    let own = names::label_value(&endpoint.name_any());
    let is_own = |pod: &Pod| pod.labels().get(names::LABEL_SYNCENDPOINT) == Some(&own);
    let (own, others): (Vec<Pod>, Vec<Pod>) = all.into_iter().partition(is_own);
    let users: Vec<Pod> = others.into_iter().filter_map(placement::user).collect();
    let of_others = placement::placement(claim, &users).map(|it| it.node);
    Ok(of_others.or_else(|| noted.filter(|node| endpoint_standing::runs_on(&own, node))).map(at))
}

async fn own_pods(context: &Context, endpoint: &SyncEndpoint) -> Result<Vec<Pod>, EndpointError> {
    let needs = endpoint.spec.service.service_type == ServiceType::NodePort
        && endpoint.spec.service.host_name.is_none();
    let name = endpoint.name_any();
    let known = names::endpoint(&name, &endpoint.uid().unwrap_or_default());
    let deployment = context.endpoints.deployments.get(&endpoint.namespace().unwrap_or_default(), &known);
    // The known Deployment may be the one before the suspension, whose pod still serves.
    let is_served = !endpoint.spec.suspend && deployment.is_some_and(|it| is_available(&it));
    if !needs && is_served {
        return Ok(Vec::new());
    }
    let own =
        ListParams::default().labels(&format!("{}={}", names::LABEL_SYNCENDPOINT, names::label_value(&name)));
    Ok(pods(context, endpoint).list(&own).await.map_err(reading("pods"))?.items)
}

fn pods(context: &Context, endpoint: &SyncEndpoint) -> Api<Pod> {
    Api::namespaced(context.client.clone(), &endpoint.namespace().unwrap_or_default())
}

/// Writes the operator's part of the status, if it differs. What the pod writes stays, but for a key that is none.
async fn report_standing(
    context: &Context,
    endpoint: &SyncEndpoint,
    standing: &ServiceStanding,
    address: Option<String>,
) -> Result<(), EndpointError> {
    let before = endpoint.status.clone().unwrap_or_default();
    let mut status = SyncEndpointStatus { address, ..before.clone() };
    status.public_key = endpoint_standing::public_key(endpoint).map(|key| key.to_string());
    standing.write(&mut status, endpoint.metadata.generation.unwrap_or(0), Timestamp::now());
    if status == before {
        return Ok(());
    }
    let mut told = json!({
        "observedGeneration": status.observed_generation,
        "address": status.address,
        "conditions": status.conditions,
    });
    if status.public_key != before.public_key {
        told["publicKey"] = json!(status.public_key);
    }
    let patch = Patch::Merge(json!({"metadata": {"uid": endpoint.uid()}, "status": told}));
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.into()), ..PatchParams::default() };
    let api =
        Api::<GuardedEndpoint>::namespaced(context.client.clone(), &endpoint.namespace().unwrap_or_default());
    match api.patch_status(&endpoint.name_any(), &params, &patch).await {
        Ok(written) => context.endpoints.endpoints.wrote(&written),
        // It is gone, or another one has its name.
        Err(kube::Error::Api(answer)) if answer.is_not_found() || answer.is_conflict() => {}
        Err(error) => return Err(EndpointError::Status(error)),
    }
    let stalled = conditions::is_true(&status.conditions, conditions::STALLED);
    if stalled && !conditions::is_true(&before.conditions, conditions::STALLED) {
        let (namespace, name) = (endpoint.namespace().unwrap_or_default(), endpoint.name_any());
        tracing::warn!(namespace, name, ?standing, "a SyncEndpoint needs a person");
    }
    Ok(())
}
