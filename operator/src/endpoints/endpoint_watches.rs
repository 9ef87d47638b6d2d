//! Watches SyncEndpoints and their objects, and finds the SyncEndpoints that a change concerns.

use std::{future::ready, sync::Arc};

use futures::{StreamExt as _, channel::mpsc::UnboundedReceiver, stream};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service};
use kube::{
    Resource as _, ResourceExt as _,
    runtime::{
        Config, Controller, WatchStreamExt as _,
        reflector::{ObjectRef, Store},
    },
};

use crate::{
    api::SyncEndpoint,
    controller::{
        context::Context,
        read::GuardedEndpoint,
        stores::{ClaimName, Feed, KnownEndpoints, slim, watched},
        watches::{Watches, scoped},
    },
    names,
};

/// The maximum number of endpoints that are reconciled at a time.
const CONCURRENCY: u16 = 4;

/// The feeds that keep the stores up to date, and the claims that have changed.
pub(crate) struct EndpointFeeds {
    endpoints: Feed<GuardedEndpoint>,
    deployments: Feed<Deployment>,
    services: Feed<Service>,
    claims: UnboundedReceiver<ClaimName>,
}

/// Creates the stores for the objects of these namespaces, or of all if there are none, with their feeds. Changes of
/// claims come by `claims`.
pub(crate) fn watched_endpoints(
    namespaces: &[String],
    claims: UnboundedReceiver<ClaimName>,
) -> (KnownEndpoints, EndpointFeeds) {
    let (endpoints, endpoint_feed) = watched(namespaces);
    let (deployments, deployment_feed) = watched(namespaces);
    let (services, service_feed) = watched(namespaces);
    let feeds = EndpointFeeds {
        endpoints: endpoint_feed,
        deployments: deployment_feed,
        services: service_feed,
        claims,
    };
    (KnownEndpoints { endpoints, deployments, services }, feeds)
}

/// Builds the controller of SyncEndpoints from the watches.
pub(crate) fn controller(
    context: &Arc<Context>,
    feeds: EndpointFeeds,
    watches: &mut Watches,
    stop: impl Future<Output = ()> + Send + Sync + 'static,
) -> Controller<GuardedEndpoint> {
    let (client, health, store) =
        (&context.client, &context.health, context.endpoints.endpoints.store().clone());
    let labelled = names::LABEL_SYNCENDPOINT;
    let endpoints = feeds.endpoints.follow(|namespace| scoped(client, namespace), "", slim, health);
    let endpoints =
        watches.follow(endpoints.touched_objects().predicate_filter(interest, Default::default()));
    let deployments = feeds.deployments.follow(|namespace| scoped(client, namespace), labelled, slim, health);
    let deployments = watches.follow(deployments.touched_objects());
    let services = feeds.services.follow(|namespace| scoped(client, namespace), labelled, slim, health);
    let services = watches.follow(services.touched_objects());
    let serving = store.clone();
    let of_claims = feeds.claims.flat_map(move |claim| stream::iter(endpoints_of_claim(&serving, &claim)));
    Controller::for_stream(endpoints.map(Ok), store)
        .with_config(Config::default().concurrency(CONCURRENCY))
        .reconcile_on(deployments.filter_map(|it| ready(endpoint_of(&it))))
        .reconcile_on(services.filter_map(|it| ready(endpoint_of(&it))))
        .reconcile_on(of_claims)
        .graceful_shutdown_on(stop)
}

/// Returns the SyncEndpoint that owns an object.
fn endpoint_of(object: &impl kube::ResourceExt) -> Option<ObjectRef<GuardedEndpoint>> {
    let kind = <SyncEndpoint as kube::Resource>::kind(&());
    let owner = object.owner_references().iter().find(|owner| owner.kind == kind)?;
    Some(ObjectRef::new(&owner.name).within(&object.namespace()?))
}

fn endpoints_of_claim(
    endpoints: &Store<GuardedEndpoint>,
    (namespace, claim): &ClaimName,
) -> Vec<ObjectRef<GuardedEndpoint>> {
    let names = |endpoint: &GuardedEndpoint| {
        let Ok(endpoint) = &endpoint.0 else { return false };
        endpoint.spec.persistent_volume_claim.claim_name == *claim
            && endpoint.namespace().as_ref() == Some(namespace)
    };
    endpoints.state().iter().filter(|it| names(it)).map(|it| ObjectRef::from_obj(&**it)).collect()
}

/// Returns a hash of the fields of a SyncEndpoint that matter to the controller: all but the runs, which its pod writes
/// after each.
fn interest(endpoint: &GuardedEndpoint) -> Option<u64> {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    let metadata = endpoint.meta();
    metadata.uid.hash(&mut hasher);
    metadata.generation.hash(&mut hasher);
    metadata.deletion_timestamp.is_some().hash(&mut hasher);
    if let Ok(endpoint) = &endpoint.0 {
        let mut status = endpoint.status.clone().unwrap_or_default();
        status.last_run = None;
        status.history.clear();
        status.peers.clear();
        serde_json::to_string(&status).ok()?.hash(&mut hasher);
    }
    Some(hasher.finish())
}
