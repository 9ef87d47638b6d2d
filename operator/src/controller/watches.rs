//! Watches what SyncJobs depend on, and finds the SyncJobs that a change concerns.

use std::{future::ready, sync::Arc, time::Duration};

use contract::{Side, chain};
use futures::{
    Stream, StreamExt as _, TryStreamExt as _,
    channel::mpsc::{UnboundedReceiver, UnboundedSender},
    future::select_all,
    stream,
};
use jiff::Timestamp;
use k8s_openapi::{
    NamespaceResourceScope, api::core::v1::PersistentVolumeClaim, apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client, Resource as _, ResourceExt as _,
    api::ListParams,
    runtime::{
        Config, Controller, WatchStreamExt as _,
        reflector::{ObjectRef, Store},
        watcher,
    },
};
use tokio::task::JoinSet;

use super::{
    context::Context,
    read::{Guarded, GuardedGrant, GuardedRun, GuardedSet},
    stores::{ClaimName, Feed, Known, Watchable, scopes, slim, slim_child, slim_grant, slim_run},
};
use crate::{
    api::{ActiveRun, RunFolder, SyncGrant, SyncJob, SyncRun},
    ends::{end_kind::EndKind, end_namespaces, permission},
    names,
    pods::stored_fields::{Job, Pod},
    queue::turns::{self, Limits},
    run::stray_runs,
    sets::{members, reconcile_set},
    telemetry::probes::Health,
    volumes::node_watches::VolumeFeeds,
};

/// The maximum number of jobs that are reconciled at a time. Reconciling mostly waits for the API server, not for the
/// processor.
const CONCURRENCY: u16 = 16;
/// The maximum number of sets that are reconciled at a time, each of which writes several SyncJobs at once.
const SETS_AT_A_TIME: u16 = 4;
/// The interval between checks at startup whether the API server answers and serves SyncJobs.
const STARTUP_PERIOD: Duration = Duration::from_secs(2);

/// The feeds that keep the stores up to date, and the SyncJobs whose hooks have ended.
pub(crate) struct Feeds {
    pub(crate) jobs: Feed<Guarded>,
    pub(crate) runs: Feed<SyncRun>,
    pub(crate) batch: Feed<Job>,
    pub(crate) pods: Feed<Pod>,
    pub(crate) claims: Feed<PersistentVolumeClaim>,
    pub(crate) grants: Feed<SyncGrant>,
    pub(crate) sets: Feed<GuardedSet>,
    pub(crate) volumes: VolumeFeeds,
    pub(crate) hooks_ended: UnboundedReceiver<ObjectRef<Guarded>>,
    /// Where each claim that has changed is told, for the SyncEndpoints.
    pub(crate) claims_changed: UnboundedSender<ClaimName>,
}

/// Waits until the API server answers and serves SyncJobs and SyncRuns, in one of the namespaces if there are several:
/// one that is gone holds up no other.
pub(crate) async fn await_api(client: &Client, namespaces: &[String]) {
    await_kind::<SyncJob>(client, namespaces).await;
    await_kind::<SyncRun>(client, namespaces).await;
}

/// Waits until the API server serves a kind in one of the namespaces.
pub(crate) async fn await_kind<K>(client: &Client, namespaces: &[String])
where
    K: Watchable + kube::Resource<Scope = NamespaceResourceScope>,
{
    let served = scopes(namespaces)
        .into_iter()
        .map(|scope| Box::pin(async move { await_kind_in::<K>(client, scope.as_deref()).await }));
    select_all(served).await;
}

async fn await_kind_in<K>(client: &Client, namespace: Option<&str>)
where
    K: Watchable + kube::Resource<Scope = NamespaceResourceScope>,
{
    let api = scoped::<K>(client, namespace);
    while let Err(error) = api.list_metadata(&ListParams::default().limit(1)).await {
        let hint = match &error {
            kube::Error::Api(status) if status.is_not_found() => "; install the CRDs: kubectl apply -f crds/",
            _ => "",
        };
        let kind = K::plural(&());
        tracing::warn!(namespace, error = chain(&error), "{kind} cannot be listed yet{hint}");
        tokio::time::sleep(STARTUP_PERIOD).await;
    }
}

/// The tasks that follow the watches, one for each; they end when this is dropped. In tasks of their own, watches
/// continue while reconciliations wait for their events: a controller that runs as many reconciliations as it may does
/// not poll its streams.
#[derive(Default)]
pub(crate) struct Watches {
    tasks: JoinSet<()>,
}

impl Watches {
    /// Reports to each of these SyncRuns, in a task, that it cannot be read.
    fn report_unreadable(
        &mut self,
        context: &Arc<Context>,
        runs: impl Stream<Item = SyncRun> + Send + 'static,
    ) {
        let context = context.clone();
        self.tasks.spawn(async move {
            let mut runs = std::pin::pin!(runs);
            while let Some(run) = runs.next().await {
                if matches!(context.namespaces.holds(&run.namespace().unwrap_or_default()).await, Ok(true)) {
                    stray_runs::report_unreadable(&context, &run).await;
                }
            }
        });
    }

    /// Follows the changes of a watch in a task, and returns them as a stream. Errors are logged.
    pub(crate) fn follow<T: Send + 'static>(
        &mut self,
        changes: impl Stream<Item = watcher::Result<T>> + Send + 'static,
    ) -> impl Stream<Item = T> + Send + 'static {
        let (sender, receiver) = futures::channel::mpsc::unbounded();
        self.tasks.spawn(changes.for_each(move |change| {
            match change {
                // Fails if nobody receives: while the controller stops, or if only the store needs the changes.
                Ok(change) => drop(sender.unbounded_send(change)),
                Err(error) => tracing::warn!(error = chain(&error), "a watch is interrupted and begins anew"),
            }
            ready(())
        }));
        receiver
    }
}

/// The controllers of SyncJobs and of SyncJobSets.
pub(crate) struct Controllers {
    pub(crate) jobs: Controller<Guarded>,
    pub(crate) sets: Controller<GuardedSet>,
}

/// Builds the controllers from the watches: their events determine which objects are reconciled.
pub(crate) fn controllers(
    context: &Arc<Context>,
    feeds: Feeds,
    watches: &mut Watches,
    stop: &(impl Future<Output = ()> + Clone + Send + Sync + 'static),
) -> Controllers {
    let (client, limits, store) = (&context.client, context.limits, context.known.jobs.store().clone());
    let (freeing, freed) = futures::channel::mpsc::unbounded();
    let (reading, unreadable) = futures::channel::mpsc::unbounded();
    let (touching, touched) = futures::channel::mpsc::unbounded();
    watches.report_unreadable(context, unreadable);
    let health = &context.health;
    let sets = context.known.sets.store().clone();
    let jobs = watches.follow(syncjobs(client, health, feeds.jobs, freeing, sets.clone(), touching.clone()));
    let runs = watches.follow(syncruns(client, health, feeds.runs, reading).map_ok(|run| job_of_run(&run)));
    let of_runs = format!("{},{}", names::LABEL_SYNCJOB, names::LABEL_TRY);
    let batch = changes(client, health, feeds.batch, &of_runs, slim_child);
    let batch = watches.follow(batch.map_ok(|job| job_of_child(&job)));
    let pods = changes(client, health, feeds.pods, &of_runs, slim_child);
    let pods = watches.follow(pods.map_ok(|pod| job_of_child(&pod)));
    let claims = changes(client, health, feeds.claims, "", slim);
    let claims = watches.follow(claims.inspect_ok(move |claim| {
        // Fails only while the controller stops, as nobody receives any more.
        reconcile_set::of_claim(&sets, claim).into_iter().for_each(|set| drop(touching.unbounded_send(set)));
    }));
    let grants = watches.follow(
        feeds
            .grants
            .follow(|namespace| scoped::<GuardedGrant>(client, namespace), "", slim_grant, health)
            .touched_objects(),
    );
    let (changing, changed) = futures::channel::mpsc::unbounded();
    let sets = watches.follow(syncjobsets(client, health, feeds.sets, changing));
    let (referring, waiting, granted, queued) = (store.clone(), store.clone(), store.clone(), store.clone());
    let claims_changed = feeds.claims_changed;
    let claims = claims.inspect(move |claim| {
        // Fails only while the controller stops, as nobody receives any more.
        let _ = claims_changed.unbounded_send((claim.namespace().unwrap_or_default(), claim.name_any()));
    });
    let of_claims = claims.flat_map(move |claim| stream::iter(jobs_of_claim(&referring, &claim)));
    let known = context.known.clone();
    let woken = move |job: Guarded| stream::iter(jobs_waiting_for(&waiting, &job, limits, &known));
    let jobs = Controller::for_stream(jobs.map(Ok), store)
        .with_config(Config::default().concurrency(CONCURRENCY))
        .reconcile_on(stream::select(batch, pods).filter_map(ready))
        .reconcile_on(runs.filter_map(ready))
        .reconcile_on(of_claims)
        .reconcile_on(grants.flat_map(move |grant| stream::iter(jobs_of_grant(&granted, &grant))))
        .reconcile_on(freed.flat_map(woken))
        .reconcile_on(changed.flat_map(move |set| stream::iter(jobs_queued_in(&queued, &set))))
        .reconcile_on(feeds.hooks_ended)
        .graceful_shutdown_on(stop.clone());
    let sets = Controller::for_stream(sets.map(Ok), context.known.sets.store().clone())
        .with_config(Config::default().concurrency(SETS_AT_A_TIME))
        .reconcile_on(touched)
        .graceful_shutdown_on(stop.clone());
    Controllers { jobs, sets }
}

/// Watches the objects with these labels, and returns each that has changed.
fn changes<K>(
    client: &Client,
    health: &Arc<Health>,
    feed: Feed<K>,
    labels: &str,
    slim: fn(K) -> K,
) -> impl Stream<Item = watcher::Result<K>> + Send + 'static
where
    K: Watchable + kube::Resource<Scope = NamespaceResourceScope>,
{
    feed.follow(|namespace| scoped(client, namespace), labels, slim, health).touched_objects()
}

/// Watches SyncJobs, and returns each with a change that matters to the controller. SyncJobs without a started run are
/// also sent to `freeing`, because other runs may have waited for theirs; the sets that a SyncJob concerns are sent to
/// `touching`.
fn syncjobs(
    client: &Client,
    health: &Arc<Health>,
    feed: Feed<Guarded>,
    freeing: UnboundedSender<Guarded>,
    sets: Store<GuardedSet>,
    touching: UnboundedSender<ObjectRef<GuardedSet>>,
) -> impl Stream<Item = Result<Guarded, watcher::Error>> + Send + 'static {
    feed.follow(|namespace| scoped(client, namespace), "", slim, health)
        .map_ok(marked)
        .touched_objects()
        .inspect_ok(move |job| {
            // Both fail only while the controller stops, as nobody receives any more.
            if !has_started_run(job) {
                let _ = freeing.unbounded_send(job.clone());
            }
            reconcile_set::of_job(&sets, job).into_iter().for_each(|set| drop(touching.unbounded_send(set)));
        })
        .predicate_filter(interest, Default::default())
}

/// Marks the SyncJob of a delete event as deleted now: otherwise, its last state could have the same hash as the one
/// before, also where it was being deleted for a while, and the event would be filtered out.
fn marked(event: watcher::Event<Guarded>) -> watcher::Event<Guarded> {
    let watcher::Event::Delete(mut job) = event else { return event };
    job.meta_mut().deletion_timestamp = Some(Time(Timestamp::now()));
    watcher::Event::Delete(job)
}

/// Watches SyncRuns, and returns each with a change that matters to the controller. Those that cannot be read are also
/// sent to `reading`.
fn syncruns(
    client: &Client,
    health: &Arc<Health>,
    feed: Feed<SyncRun>,
    reading: UnboundedSender<SyncRun>,
) -> impl Stream<Item = Result<SyncRun, watcher::Error>> + Send + 'static {
    feed.follow(|namespace| scoped::<GuardedRun>(client, namespace), "", slim_run, health)
        .touched_objects()
        .predicate_filter(interest_in_run, Default::default())
        .inspect_ok(move |run| {
            if run.annotations().contains_key(names::ANNOTATION_UNREADABLE) {
                // Fails only while the controller stops, as nobody receives any more.
                let _ = reading.unbounded_send(run.clone());
            }
        })
}

/// Watches SyncJobSets, and returns each with a change that matters to the controller, also to `changing`.
fn syncjobsets(
    client: &Client,
    health: &Arc<Health>,
    feed: Feed<GuardedSet>,
    changing: UnboundedSender<GuardedSet>,
) -> impl Stream<Item = Result<GuardedSet, watcher::Error>> + Send + 'static {
    let interest = |set: &GuardedSet| {
        use std::hash::{DefaultHasher, Hash as _, Hasher as _};
        let (metadata, mut hasher) = (set.meta(), DefaultHasher::new());
        let is_going = metadata.deletion_timestamp.is_some();
        (&metadata.uid, metadata.generation, is_going).hash(&mut hasher);
        Some(hasher.finish())
    };
    feed.follow(|namespace| scoped(client, namespace), "", slim, health)
        .touched_objects()
        .predicate_filter(interest, Default::default())
        .inspect_ok(move |set| {
            // Fails only while the controller stops, as nobody receives any more.
            let _ = changing.unbounded_send(set.clone());
        })
}

/// Returns a hash of the fields of a SyncRun that matter to the controller. These are all fields but the contacts,
/// which the run's pods write for each other, and the progress and its summary, which they write as often as every
/// second.
fn interest_in_run(run: &SyncRun) -> Option<u64> {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    run.metadata.uid.hash(&mut hasher);
    run.metadata.generation.hash(&mut hasher);
    run.metadata.deletion_timestamp.is_some().hash(&mut hasher);
    run.is_held().hash(&mut hasher);
    run.annotations().get(names::ANNOTATION_UNREADABLE).hash(&mut hasher);
    let mut status = run.status.clone().unwrap_or_default();
    status.progress.take().and_then(|progress| progress.waiting).hash(&mut hasher);
    status.summary = None;
    status.contacts = None;
    serde_json::to_string(&status).ok()?.hash(&mut hasher);
    Some(hasher.finish())
}

/// Returns a hash of the fields of a SyncJob that matter to the controller.
fn interest(job: &Guarded) -> Option<u64> {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    let metadata = job.meta();
    metadata.uid.hash(&mut hasher);
    metadata.generation.hash(&mut hasher);
    metadata.deletion_timestamp.as_ref().map(|time| time.0.as_nanosecond()).hash(&mut hasher);
    let ours = [
        names::ANNOTATION_RESUME,
        names::ANNOTATION_CANCEL,
        names::ANNOTATION_ACCEPT_VOLUME,
        names::ANNOTATION_ACCEPT_SOURCE,
    ];
    for name in ours {
        job.annotations().get(name).hash(&mut hasher);
    }
    if let Ok(job) = &job.0 {
        serde_json::to_string(&job.status).ok()?.hash(&mut hasher);
    }
    Some(hasher.finish())
}

fn job_of_child(child: &impl kube::ResourceExt) -> Option<ObjectRef<Guarded>> {
    let name = child.annotations().get(names::ANNOTATION_SYNCJOB)?;
    Some(ObjectRef::new(name).within(&end_namespaces::job_namespace(child)?))
}

/// Returns the jobs of other namespaces that name a claim of the grant's.
fn jobs_of_grant(jobs: &Store<Guarded>, grant: &SyncGrant) -> Vec<ObjectRef<Guarded>> {
    let refers = |job: &Guarded| {
        let Ok(job) = &job.0 else { return false };
        job.metadata.namespace != grant.metadata.namespace
            && permission::namespaces(job).any(|it| Some(it) == grant.metadata.namespace.as_deref())
    };
    jobs.state().iter().filter(|job| refers(job)).map(|job| ObjectRef::from_obj(&**job)).collect()
}

/// Returns the SyncJob of a SyncRun; `None` if it cannot be read, and so names none.
fn job_of_run(run: &SyncRun) -> Option<ObjectRef<Guarded>> {
    let name = Some(&run.spec.sync_job.name).filter(|name| !name.is_empty())?;
    Some(ObjectRef::new(name).within(&run.namespace()?))
}

/// Returns the jobs whose spec, or whose run under way, uses a claim.
fn jobs_of_claim(jobs: &Store<Guarded>, claim: &PersistentVolumeClaim) -> Vec<ObjectRef<Guarded>> {
    let refers = |job: &Guarded| {
        let Ok(job) = &job.0 else { return false };
        let is_it = |name: &String, namespace: Option<&String>| {
            Some(name) == claim.metadata.name.as_ref()
                && namespace.or(job.metadata.namespace.as_ref()) == claim.metadata.namespace.as_ref()
        };
        let run = job.status.as_ref().and_then(|status| status.active_run.as_ref());
        job.spec.claims().any(|(_, it)| is_it(&it.claim_name, it.namespace.as_ref()))
            || run.is_some_and(|run| run.folders().any(|it| is_it(&it.claim_name, it.namespace.as_ref())))
    };
    jobs.state().iter().filter(|job| refers(job)).map(|job| ObjectRef::from_obj(&**job)).collect()
}

/// Returns whether a job has a started run. A job that is being deleted counts as having none, so that others need not
/// wait for it.
fn has_started_run(job: &Guarded) -> bool {
    let run = job.0.as_ref().ok().and_then(|job| job.status.as_ref()?.active_run.as_ref());
    run.is_some_and(ActiveRun::is_started) && job.meta().deletion_timestamp.is_none()
}

/// Returns the jobs to reconcile because `freed` has no started run: those with a run that waits and uses a claim of
/// `freed`, and those that are next in the queue.
fn jobs_waiting_for(
    jobs: &Store<Guarded>,
    freed: &Guarded,
    limits: Limits,
    known: &Known,
) -> Vec<ObjectRef<Guarded>> {
    let mut woken = jobs_waiting_for_claims(jobs, freed);
    let sets = known.set_limits();
    if limits.any() || sets.values().any(|limit| *limit > 0) {
        let known = jobs.state();
        let known = known.iter().filter_map(|job| job.0.as_ref().ok());
        woken.extend(turns::next_in_line(known, limits, &sets).into_iter().map(job_ref));
    }
    woken
}

/// Returns the jobs of a set whose runs wait, since the set's limit may have changed.
fn jobs_queued_in(jobs: &Store<Guarded>, set: &GuardedSet) -> Vec<ObjectRef<Guarded>> {
    let waits = |job: &SyncJob| {
        let run = job.status.as_ref().and_then(|status| status.active_run.as_ref());
        let is_of_set = members::owner(job).is_some_and(|owner| Some(&owner.uid) == set.meta().uid.as_ref());
        is_of_set && run.is_some_and(|run| !run.is_started())
    };
    jobs.state().iter().filter_map(|job| job.0.as_ref().ok()).filter(|job| waits(job)).map(job_ref).collect()
}

fn job_ref(job: &SyncJob) -> ObjectRef<Guarded> {
    ObjectRef::new(&job.name_any()).within(&job.namespace().unwrap_or_default())
}

fn jobs_waiting_for_claims(jobs: &Store<Guarded>, freed: &Guarded) -> Vec<ObjectRef<Guarded>> {
    let Ok(spec) = freed.0.as_ref().map(|job| &job.spec) else { return Vec::new() };
    let own = freed.namespace().unwrap_or_default();
    let ends = [Side::Source, Side::Sink].into_iter().flat_map(|side| EndKind::parse(spec, side, &own));
    let claims: Vec<RunFolder> = ends.map(|end| end.run_folder(&own).seen_from(&own)).collect();
    let waits = |job: &Guarded| {
        let run = job.0.as_ref().ok().and_then(|job| job.status.as_ref()?.active_run.as_ref());
        let Some(run) = run.filter(|run| !run.is_started()) else { return false };
        let namespace = job.namespace().unwrap_or_default();
        let mut folders = run.folders();
        (job.name_any(), &namespace) != (freed.name_any(), &own)
            && folders.any(|it| claims.iter().any(|claim| claim.is_of_same_claim(&it.seen_from(&namespace))))
    };
    jobs.state().iter().filter(|job| waits(job)).map(|job| ObjectRef::from_obj(&**job)).collect()
}

pub(crate) fn scoped<K>(client: &Client, namespace: Option<&str>) -> Api<K>
where
    K: kube::Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    }
}

#[cfg(test)]
mod tests;
