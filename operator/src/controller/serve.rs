//! Implements `volferry-operator controller`: watches, leader election and probes, until the process is told to stop.

use std::{collections::BTreeSet, net::SocketAddr, path::PathBuf, pin::pin, sync::Arc, time::Duration};

use clap::Args;
use contract::chain;
use futures::{FutureExt as _, StreamExt as _};
use kube::{
    Client, Config, ResourceExt as _,
    client::ClientBuilder,
    runtime::{
        controller::{self, Action},
        reflector::ObjectRef,
        watcher,
    },
};
use serde_json::{Value, json};
use thiserror::Error;
use tokio::{sync::Semaphore, time::timeout};

use super::{
    context::Context,
    error::Error as ReconcileError,
    last_heard_on_watch::Hearing,
    owner_index,
    read::Guarded,
    recently_read::Recent,
    reconcile::{on_error, reconcile},
    reconcile_timeout::TIMEOUT,
    stores::{Known, WatchError, watched, watched_by},
    watches::{Controllers, Feeds, Watches, await_api, controllers},
};
use crate::{
    api::CommonPodSettings,
    endpoints::{
        endpoint_watches::{self, EndpointFeeds},
        reconcile_endpoint,
    },
    grants::remove_abroad,
    hooks::{hook_tasks::HookTasks, run_hooks},
    leases::{
        election::{Election, LeaseError},
        held_namespaces::{Namespaces, RENEWAL},
    },
    pods::{Image, Settings, accounts::Accounts},
    queue::turns::Limits,
    run::stray_runs,
    sets::reconcile_set,
    signals::Stops,
    telemetry::{
        LogFormat,
        events::Events,
        probes::{self, Health, PULSE},
        traces::{self, Traces},
    },
    volumes::node_watches::volumes,
};

/// The maximum number of missing SyncJobs that are seen to at a time.
const GONE_AT_ONCE: usize = 16;

/// The time after which it is asked again whether the stores have what missing SyncJobs have left.
const LEFT_PAUSE: Duration = Duration::from_secs(2);

/// The flags of `volferry-operator controller`.
#[derive(Debug, Clone, Args)]
pub struct ControllerArgs {
    /// The image of syncer pods; usually the controller's own.
    #[arg(long, env = "VOLFERRY_IMAGE")]
    pub image: String,
    /// When a kubelet pulls that image: Always, IfNotPresent or Never.
    #[arg(long, env = "VOLFERRY_IMAGE_PULL_POLICY", value_parser = ["Always", "IfNotPresent", "Never"])]
    pub image_pull_policy: Option<String>,
    /// Settings of the syncer pods of all SyncJobs, as JSON in the form of `spec.pods`, which outranks them; no users,
    /// groups or accounts.
    #[arg(long, env = "VOLFERRY_SYNCER_PODS", value_name = "JSON", default_value = "{}", value_parser = syncer_pods)]
    pub syncer_pods: CommonPodSettings,
    /// Watch these namespaces only, with rights in no other; separated by commas. Absent or empty: all namespaces.
    #[arg(long, env = "VOLFERRY_WATCH_NAMESPACES", value_name = "NAMESPACE", value_delimiter = ',')]
    pub watch_namespaces: Vec<String>,
    /// Where /healthz, /readyz and /metrics are served. `[::]` is every address, also where there is no IPv6.
    #[arg(long, default_value = "[::]:8080")]
    pub listen: SocketAddr,
    /// The file with a token that readers of /metrics have to show as `Authorization: Bearer TOKEN`. Absent: none.
    #[arg(long, env = "VOLFERRY_METRICS_TOKEN_FILE", value_name = "FILE")]
    pub metrics_token_file: Option<PathBuf>,
    /// Work only while holding a Lease, so that several replicas can wait for each other.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set)]
    pub leader_elect: bool,
    /// The Lease's name.
    #[arg(long, default_value = "volferry-operator")]
    pub lease_name: String,
    /// The Lease's namespace. Absent: the one that the controller runs in.
    #[arg(long, env = "POD_NAMESPACE")]
    pub lease_namespace: Option<String>,
    /// What this replica is called in the Lease and in events. Absent: the host's name, which is the pod's.
    #[arg(long, env = "POD_NAME")]
    pub identity: Option<String>,
    /// The most runs that are under way at a time, in all namespaces together; 0: no limit.
    #[arg(long, env = "VOLFERRY_MAX_RUNS", default_value_t = 0)]
    pub max_runs: u32,
    /// The most runs that are under way at a time in each namespace; 0: no limit.
    #[arg(long, env = "VOLFERRY_MAX_RUNS_PER_NAMESPACE", default_value_t = 0)]
    pub max_runs_per_namespace: u32,
    /// The most runs that are under way at a time on each node, as far as it is known where volumes are; 0: no limit.
    #[arg(long, env = "VOLFERRY_MAX_RUNS_PER_NODE", default_value_t = 0)]
    pub max_runs_per_node: u32,
    /// The most runs with `source.pointInTime` that are under way at a time in each namespace with each class: as many
    /// snapshots and clones does the storage hold for them; 0: no limit.
    #[arg(long, env = "VOLFERRY_MAX_SNAPSHOTS", default_value_t = 0)]
    pub max_snapshots: u32,
}

impl ControllerArgs {
    fn limits(&self) -> Limits {
        Limits {
            all: self.max_runs,
            namespace: self.max_runs_per_namespace,
            node: self.max_runs_per_node,
            captures: self.max_snapshots,
        }
    }

    fn lease_namespace(&self, client: &Client) -> String {
        self.lease_namespace.clone().unwrap_or_else(|| client.default_namespace().into())
    }
}

/// Parses the settings of the syncer pods of all SyncJobs.
///
/// # Errors
/// If the text is no JSON of that form. An unknown field is named, however deep it is.
fn syncer_pods(json: &str) -> Result<CommonPodSettings, String> {
    let given: Value = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let pods: CommonPodSettings = serde_json::from_value(given.clone()).map_err(|error| error.to_string())?;
    let known = serde_json::to_value(&pods).map_err(|error| error.to_string())?;
    match not_understood(&given, &known, "") {
        Some(field) => Err(format!("the pods of all SyncJobs have no setting {field}")),
        None => Ok(pods),
    }
}

/// Returns the path of a field in `given`, which is at `path`, that is not in what was understood of it. Fields without
/// a value change nothing, and may be left out there.
fn not_understood(given: &Value, known: &Value, path: &str) -> Option<String> {
    let is_empty = |value: &Value| [json!(null), json!([]), json!({})].contains(value);
    let look = |value: &Value, known: Option<&Value>, path: String| match known {
        _ if is_empty(value) => None,
        Some(known) => not_understood(value, known, &path),
        None => Some(path),
    };
    match given {
        Value::Object(fields) => fields.iter().find_map(|(name, value)| {
            let below = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            look(value, known.get(name), below)
        }),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .find_map(|(at, value)| look(value, known.get(at), format!("{path}[{at}]"))),
        _ => None,
    }
}

/// The reasons why the controller, or the populator, ended without being told to stop.
#[derive(Debug, Error)]
pub enum ServeError {
    /// No API server is configured.
    #[error("no API server is configured")]
    Client(#[source] kube::Error),
    /// The address for probes and metrics cannot be used.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// Signals cannot be received.
    #[error("cannot listen for signals")]
    Signals(#[source] std::io::Error),
    /// The Lease is lost, so that another replica may be at work from now on.
    #[error("leadership is lost")]
    Lease(#[from] LeaseError),
    /// The watches have ended, although nothing stopped them.
    #[error("the controller's watches have ended")]
    Ended,
}

/// Runs the controller until SIGTERM or SIGINT, or until leadership is lost.
pub async fn serve(mut args: ControllerArgs, log_format: LogFormat) -> Result<(), ServeError> {
    args.watch_namespaces.retain(|namespace| !namespace.is_empty());
    let mut stops = Stops::new().map_err(ServeError::Signals)?;
    let mut stop = pin!(stops.next());
    let health = Arc::new(Health::default().asking_for_token(args.metrics_token_file.clone()));
    let client = connect(&health).await.map_err(ServeError::Client)?;
    let address = args.listen;
    probes::serve(address, health.clone()).await.map_err(|source| ServeError::Listen { address, source })?;
    let identity = args.identity.clone().unwrap_or_else(host_name);
    tracing::info!(version = env!("CARGO_PKG_VERSION"), identity, image = args.image, "starting");

    tokio::select! {
        () = await_api(&client, &args.watch_namespaces) => health.set_ready(),
        () = &mut stop => return Ok(()),
    }
    let prepared = tokio::select! {
        prepared = prepare(&args, log_format, &client, &identity, health) => prepared,
        () = &mut stop => return Ok(()),
    };
    if !args.leader_elect {
        return work(prepared, stop).await;
    }
    let namespace = args.lease_namespace(&client);
    let election = Election::new(client, &namespace, &args.lease_name, &identity);
    let mut leadership = tokio::select! {
        leadership = election.acquire() => leadership,
        () = &mut stop => return Ok(()),
    };
    tracing::info!(lease = args.lease_name, namespace, "leading");
    let ended = tokio::select! {
        // A lost lease ends the process at once: another replica may be at work.
        lost = leadership.hold() => return Err(lost.into()),
        ended = work(prepared, stop) => ended,
    };
    leadership.release().await;
    ended
}

/// Makes the client of the API server, which notes what it hears on watches.
async fn connect(health: &Arc<Health>) -> Result<Client, kube::Error> {
    let config = Config::infer().await.map_err(kube::Error::InferConfig)?;
    Ok(ClientBuilder::try_from(config)?.with_layer(&Hearing(health.clone())).build())
}

/// What reconciliations share, and the feeds that keep its stores up to date.
struct Prepared {
    context: Arc<Context>,
    feeds: Feeds,
    endpoint_feeds: EndpointFeeds,
}

async fn prepare(
    args: &ControllerArgs,
    log_format: LogFormat,
    client: &Client,
    identity: &str,
    health: Arc<Health>,
) -> Prepared {
    let namespaces = &args.watch_namespaces;
    let (jobs, job_feed) = watched(namespaces);
    let (runs, run_feed) = watched_by(namespaces, owner_index::of_run);
    let ((batch, batch_feed), (pods, pod_feed)) = (watched(namespaces), watched(namespaces));
    let ((claims, claim_feed), (grants, grant_feed)) = (watched(namespaces), watched(namespaces));
    let (sets, set_feed) = watched(namespaces);
    let (claims_changed, changed_claims) = futures::channel::mpsc::unbounded();
    let (endpoints, endpoint_feeds) = endpoint_watches::watched_endpoints(namespaces, changed_claims);
    let image = Image { name: args.image.clone(), pull_policy: args.image_pull_policy.clone() };
    let limits = args.limits();
    let (volumes, volume_feeds) = volumes(client, !namespaces.is_empty(), limits).await;
    let release = format!("{}/{}", args.lease_namespace(client), args.lease_name);
    let (hook_ended, hooks_ended) = futures::channel::mpsc::unbounded();
    let context = Context {
        settings: Settings {
            image,
            log_format,
            pods: args.syncer_pods.clone(),
            trace_env: traces::passed_on(),
        },
        events: Events::new(client.clone(), identity),
        client: client.clone(),
        namespaces: Namespaces::new(client.clone(), health.clone(), release),
        health,
        known: Known { jobs, runs, batch, pods, claims, grants, sets },
        endpoints,
        volumes,
        consents: Recent::default(),
        accounts: Accounts::default(),
        late: Recent::default(),
        positions: Recent::default(),
        users: Recent::default(),
        removed: Recent::default(),
        failures: Recent::default(),
        told_sets: Recent::default(),
        limits,
        hooks: HookTasks::new(hook_ended),
        traces: Traces::from_env("volferry-operator"),
    };
    let feeds = Feeds {
        jobs: job_feed,
        runs: run_feed,
        batch: batch_feed,
        pods: pod_feed,
        claims: claim_feed,
        grants: grant_feed,
        sets: set_feed,
        volumes: volume_feeds,
        hooks_ended,
        claims_changed,
    };
    Prepared { context: Arc::new(context), feeds, endpoint_feeds }
}

/// Reconciles SyncJobs until `stop`, and then waits for the reconciliations under way.
async fn work(prepared: Prepared, stop: impl Future<Output = ()>) -> Result<(), ServeError> {
    let Prepared { context, mut feeds, endpoint_feeds } = prepared;
    let (stopped, stopping) = tokio::sync::oneshot::channel::<()>();
    let stopping = stopping.map(drop).shared();
    let mut watches = Watches::default();
    for changes in std::mem::take(&mut feeds.volumes).changes(&context.client, &context.health) {
        drop(watches.follow(changes));
    }
    context.volumes.await_first().await;
    let Controllers { jobs, sets } = controllers(&context, feeds, &mut watches, &stopping);
    let endpoints = endpoint_watches::controller(&context, endpoint_feeds, &mut watches, stopping.clone());
    // Without their CRD, no list of sets or endpoints ever comes, and their controllers would not even stop.
    let mut setting = pin!(async {
        tokio::select! {
            _ = context.known.sets.store().wait_until_ready() => {}
            () = stopping.clone() => return,
        }
        sets.run(reconcile_set::reconcile, reconcile_set::on_error, context.clone())
            .for_each(async |_| {})
            .await;
    });
    let mut serving = pin!(async {
        tokio::select! {
            _ = context.endpoints.endpoints.store().wait_until_ready() => {}
            () = stopping.clone() => return,
        }
        endpoints
            .run(reconcile_endpoint::reconcile, reconcile_endpoint::on_error, context.clone())
            .for_each(async |_| {})
            .await;
    });
    // Without a limit, as nothing is reconciled while the limit is reached.
    let reconciled = jobs.run(reconcile, on_error, context.clone());
    let room = Arc::new(Semaphore::new(GONE_AT_ONCE));
    let mut reconciling = pin!(reconciled.for_each(async |done| see_to_missing(&context, &room, done)));
    context.health.metrics.leads(true);
    let mut pulse = tokio::time::interval(PULSE);
    let (mut stop, mut renewing) = (pin!(stop), pin!(renew(&context)));
    loop {
        tokio::select! {
            () = &mut reconciling => return Err(ServeError::Ended),
            () = &mut setting => return Err(ServeError::Ended),
            () = &mut serving => return Err(ServeError::Ended),
            () = &mut stop => break,
            () = &mut renewing => {}
            _ = pulse.tick() => context.health.beat(),
        }
    }
    tracing::info!("stopping");
    drop(stopped);
    tokio::join!(reconciling, setting, serving);
    Ok(())
}

/// Forgets the SyncJob of a reconciliation if it was not there, and removes what it has left.
fn see_to_missing(
    context: &Arc<Context>,
    room: &Arc<Semaphore>,
    done: Result<(ObjectRef<Guarded>, Action), controller::Error<ReconcileError, watcher::Error>>,
) {
    let Err(controller::Error::ObjectNotFound(job)) = done else { return };
    let (namespace, name) = (job.namespace.unwrap_or_default(), job.name);
    context.forget(&namespace, &name);
    // A Job of a watched namespace may name any other one, whose Lease is none of this operator's business.
    if context.known.jobs.watches(&namespace) {
        let key = format!("{namespace}/{name} orphans");
        context.hooks.spawn_once(key, end_orphans(context.clone(), namespace.clone(), name.clone()));
        let key = format!("{namespace}/{name} leftovers");
        context.hooks.spawn_once(key, let_go(context.clone(), room.clone(), namespace, name));
    }
}

/// Ends the runs of a SyncJob that is gone whose hook `after` has yet to run.
async fn end_orphans(context: Arc<Context>, namespace: String, name: String) {
    if is_held_and_seen(&context, &namespace, Kinds::Runs).await {
        run_hooks::end_orphans(&context, &namespace, &name, None);
    }
}

/// Removes what a SyncJob that is gone has left.
async fn let_go(context: Arc<Context>, room: Arc<Semaphore>, namespace: String, name: String) {
    if !is_held_and_seen(&context, &namespace, Kinds::All).await {
        return;
    }
    remove_abroad::clear(&context, &namespace, &name, None);
    // The semaphore is never closed.
    let _slot = room.acquire().await.ok();
    if timeout(TIMEOUT, stray_runs::report(&context, &namespace, &name)).await.is_err() {
        tracing::warn!(namespace, name, "what a SyncJob has left was not seen to in time");
    }
}

/// What a SyncJob may have left.
#[derive(Clone, Copy)]
enum Kinds {
    Runs,
    All,
}

/// Waits until the stores have what a SyncJob may have left, since nothing asks for it a second time: the first list of
/// one kind comes before that of another. Returns whether the namespace is this release's.
async fn is_held_and_seen(context: &Context, namespace: &str, kinds: Kinds) -> bool {
    loop {
        let error = match context.namespaces.holds(namespace).await {
            Ok(false) => return false,
            Ok(true) => match caught_up(&context.known, namespace, kinds).await {
                Ok(()) => return true,
                Err(error) => chain(&error),
            },
            Err(error) => chain(&error),
        };
        tracing::debug!(namespace, error, "what a SyncJob has left is seen to later");
        tokio::time::sleep(LEFT_PAUSE).await;
    }
}

async fn caught_up(known: &Known, namespace: &str, kinds: Kinds) -> Result<(), WatchError> {
    match kinds {
        Kinds::Runs => known.runs.catch_up(namespace).await,
        Kinds::All => tokio::try_join!(known.catch_up(namespace), known.grants.catch_up(namespace)).map(drop),
    }
}

/// Renews the Leases of the namespaces that have SyncJobs, SyncJobSets or SyncEndpoints, without end.
async fn renew(context: &Context) {
    loop {
        tokio::time::sleep(RENEWAL).await;
        let (jobs, sets) = (context.known.jobs.state(), context.known.sets.state());
        let endpoints = context.endpoints.endpoints.state();
        let of_jobs = jobs.iter().filter_map(|job| job.namespace());
        let of_sets = sets.iter().filter_map(|set| set.namespace());
        let of_endpoints = endpoints.iter().filter_map(|endpoint| endpoint.namespace());
        let namespaces: BTreeSet<_> = of_jobs.chain(of_sets).chain(of_endpoints).collect();
        context.namespaces.renew(&namespaces).await;
    }
}

/// Returns a name for this process that no other replica has.
pub(crate) fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    format!("{name}-{}", std::process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_all_syncer_pods_name_no_user_and_no_unknown_field() {
        let pods = syncer_pods(r#"{"resources": {"limits": {"memory": "1Gi"}}, "labels": {}}"#).unwrap();
        assert!(pods.settings.resources.is_some());
        for field in ["securityContext", "serviceAccountName", "resource"] {
            let said = syncer_pods(&format!(r#"{{"{field}": {{"runAsUser": 0}}}}"#)).unwrap_err();
            assert!(said.contains(field), "{said}");
        }
        for (given, path) in [
            (r#"{"resources": {"limit": {"memory": "1Gi"}}}"#, "resources.limit"),
            (r#"{"tolerations": [{"key": "a"}, {"keys": "b"}]}"#, "tolerations[1].keys"),
            (r#"{"imagePullSecrets": [{"nam": "a", "name": "b"}]}"#, "imagePullSecrets[0].nam"),
        ] {
            let said = syncer_pods(given).unwrap_err();
            assert!(said.ends_with(&format!("no setting {path}")), "{said}");
        }
        let nested = r#"{"affinity": {"nodeAffinity": null, "podAffinity": {}}, "labels": {"a.b/c": "d"},
            "tolerations": [{"key": "a", "operator": "Exists", "tolerationSeconds": 3}]}"#;
        assert_eq!(syncer_pods(nested).unwrap().settings.tolerations.len(), 1);
        assert!(syncer_pods("{").is_err());
    }
}
