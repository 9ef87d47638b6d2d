//! The first step: gathers everything that a job refers to and has created, most of it from the watches' stores.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use contract::Side;
use futures::future::try_join_all;
use jiff::Timestamp;
use k8s_openapi::{
    api::{core::v1::PersistentVolumeClaim, storage::v1::StorageClass},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{Api, Client, ResourceExt};

use super::{
    lookups::{LatePods, Sources},
    read::{Guarded, Result, api, is_forbidden, reading},
    recently_read::Recent,
    stores::{Known, Watched},
};
use crate::{
    api::{ActiveRun, ClaimReference, FsGroups, SyncJob, SyncRun},
    ends::{
        end_namespaces::{EndNamespace, Places},
        permission, shared_destination,
        source_and_sink::Ends,
        source_identity,
    },
    grants::{find_grant::Granted, namespace_annotations::NamespaceUsers, read_namespace::Reading},
    names::{self, LABEL_TRY, TryNames},
    pods::{
        children::Children, kept_for_logs, neighbours, placement::Placements, pod_state,
        pod_warnings::Warnings, read_warnings::warnings, stored_fields::Job,
    },
    queue::{
        runs_to_wait_for::Rivals,
        turns::{self, Limits, Line, SetLimits},
    },
    run::{
        record::{self, Record},
        restore,
        stages::situation::{Facts, USUAL_START},
    },
    snapshots::storage_progress,
    volumes::{
        claim_growth,
        claims::{self, Claim, Class, LostClaim},
        node_watches::Volumes,
    },
};

/// How long a watch may take to report a deletion.
const REMOVED_AGE: Duration = Duration::from_secs(60);
/// How long the causes found for pods that do not start are reused.
const LATE_AGE: Duration = Duration::from_secs(5);
/// How long a namespace's annotation that was read for another reconciliation is reused.
const CONSENT_AGE: Duration = Duration::from_secs(60);

/// Everything that a job refers to and has created.
#[derive(Debug, Default)]
pub struct Dereferenced {
    /// The claims that the spec names, source first.
    pub claims: Vec<Claim>,
    /// What decides as it was read.
    pub facts: Facts,
    /// The annotations of the job's namespace about its SyncJobs.
    pub users: NamespaceUsers,
    /// Whether the annotations of all namespaces were read just now.
    pub are_users_fresh: bool,
    /// The two ends: the namespaces of their pods, and who consents to the use of the claims.
    pub ends: Ends<EndNamespace>,
    /// The grants by which the run under way uses claims, which need not be those of the spec.
    pub granted: Vec<Granted>,
    /// Whether a run has been started and is not over.
    pub is_started: bool,
    /// Whether the source's claim was made from the destination's.
    pub is_source_a_copy: bool,
    /// The Jobs and pods of the job's runs, without the ones of ended runs that are kept for readers of logs.
    pub children: Children,
    /// The Jobs and pods that are kept for readers of logs until the next run gets its turn.
    pub outgoing: Children,
    /// Warnings about children that do not start.
    pub warnings: Warnings,
    /// Where the pods of the current try have to run; only while they do not run yet.
    pub placements: Placements,
    /// The groups of the workloads that use the claims, if the spec asks for them and pods are about to be created.
    pub fs_groups: Option<FsGroups>,
    /// The other users of the namespace's claims; only while no run under way has pods.
    pub rivals: Option<Rivals>,
    /// A note about other SyncJobs that write to the same destination.
    pub shared: Option<String>,
    /// The other runs that count for the limits on runs.
    pub line: Option<Line>,
    /// The number of the service account for the pods of the run under way.
    pub account: u32,
    /// The job's SyncRuns in the watch's store.
    pub runs: Vec<Arc<SyncRun>>,
    /// The SyncRun of the run under way, in its current state.
    pub run: Option<SyncRun>,
    /// The SyncRun of the run under way as it was when its hooks began, if it still has to run `after`.
    pub owing: Option<SyncRun>,
    /// The earlier captures of which nothing is left.
    pub gone_captures: Vec<String>,
}

impl Dereferenced {
    /// Returns a claim that may not be used, is missing, unusable or being deleted; the destination's comes first.
    pub fn lost(&self) -> Option<LostClaim> {
        let lost = |claim: &Claim| Some(LostClaim { side: claim.side, fault: claims::loss(claim)? });
        self.ends.refusal().or_else(|| self.claims.iter().rev().find_map(lost))
    }

    /// Judges the SyncRun of the run under way, and forgets it unless it is the run's.
    pub fn judge_record(&mut self, job: &SyncJob, run: &ActiveRun) {
        let (name, uid) = (job.name_any(), job.uid().unwrap_or_default());
        let has_children = self.children.has_jobs(&try_names(job, run));
        let owner = record::Owner { job: &name, uid: &uid, has_children };
        self.facts.record = record::judge(run, owner, self.run.as_ref());
        self.run.take_if(|_| !matches!(self.facts.record, Record::Kept | Record::Asked));
    }

    /// Returns a sentence about the pods that probably use the volume of that end; empty if nobody looked for them.
    pub fn suspects(&self, run: Option<&ActiveRun>, side: Option<Side>) -> String {
        let known = self.rivals.as_ref().zip(run).zip(side);
        known.map(|((rivals, run), side)| rivals.suspects(run, side)).unwrap_or_default()
    }

    /// Returns the UID of the destination's claim, if the claim exists.
    pub fn destination_uid(&self) -> Option<&str> {
        let claim = self.claims.iter().find(|claim| claim.side == Side::Sink)?;
        claim.found.as_ref()?.metadata.uid.as_deref()
    }
}

/// Reads the job's current state from the API server; `None` if the job is gone. Fails if the API server does not
/// answer.
pub async fn fresh(client: &Client, job: &SyncJob) -> Result<Option<Guarded>> {
    let api = api::<Guarded>(client, job);
    api.get_opt(&job.name_any()).await.map_err(reading("status"))
}

/// Gathers everything that `job` refers to and has created. Fails if the API server does not answer a read.
pub async fn dereference(sources: Sources<'_>, job: &SyncJob) -> Result<Dereferenced> {
    let Sources { client, known, .. } = sources;
    let asked = asked(client, &known.runs, job).await?;
    let wished = restore::wished(job, asked.as_ref());
    let runs = runs_of(&known.runs, job);
    let mut children = children(known, &Places::of_job(job, runs.iter().map(|it| &**it)), &job.name_any());
    mark_removed(sources.removed, &mut children);
    let account = account(job, &children);
    let run = own_run(client, known, job, &children).await?;
    let is_launching = launching(job, &children);
    let mut claims = claims(client, Some(&known.claims), &wished).await?;
    add_class_to_grow(client, &wished, &mut claims).await?;
    let run_under_way = job.status.as_ref().and_then(|status| status.active_run.as_ref());
    let is_started = run_under_way.is_some_and(ActiveRun::is_started);
    let age = consent_age(job, is_launching, is_started);
    let Reading { users, is_fresh } =
        permission::users(sources, &job.namespace().unwrap_or_default(), age).await?;
    let applicant = permission::Applying { job, wished: &wished, asked: asked.as_ref(), users: &users };
    let ends = permission::judge(sources, applicant, &mut claims, age).await?;
    let of_run = permission::of_run(known, applicant, &children);
    // Read after the job, so that it includes all that the watch reported before this job's run started.
    let jobs = known.jobs.state();
    let others = jobs.iter().filter_map(|job| job.0.as_ref().ok());
    let is_source_a_copy = source_identity::is_copy(job, &claims, others);
    let line = line(&jobs, job, sources.limits, &known.set_limits());
    let shared = shared_destination::shared(job, jobs.iter().filter_map(|job| job.0.as_ref().ok()));
    let round = line.as_ref().map_or(0, |line| line.next_round(&job.namespace().unwrap_or_default()));
    let nodes = match sources.limits.node {
        0 => Vec::new(),
        _ => nodes(sources.volumes, job, &claims, &children),
    };
    let ended = runs.iter().filter(|run| run.has_ended()).map(|run| run.name_any()).collect();
    let last_number = runs.iter().filter(|run| run.has_ended()).filter_map(|run| run.spec.number).max();
    let found = Dereferenced {
        claims,
        granted: of_run.clone().unwrap_or_default(),
        facts: Facts {
            withdrawn: of_run.err(),
            round,
            nodes,
            asked,
            ended,
            last_number: last_number.unwrap_or(0),
            ..Facts::default()
        },
        users,
        are_users_fresh: is_fresh,
        ends,
        is_started,
        is_source_a_copy,
        children,
        runs,
        run,
        shared,
        line,
        account,
        ..Dereferenced::default()
    };
    Box::pin(with_run(sources, job, &jobs, found, is_launching)).await
}

/// Adds what matters only while a run is under way.
async fn with_run(
    sources: Sources<'_>,
    job: &SyncJob,
    jobs: &[Arc<Guarded>],
    mut found: Dereferenced,
    is_launching: bool,
) -> Result<Dereferenced> {
    let status = job.status.as_ref();
    found.outgoing = kept_for_logs::take(&mut found.children, job, &found.claims);
    found.gone_captures = storage_progress::gone(sources.client, job).await?;
    let Some(run) = status.and_then(|status| status.active_run.as_ref()) else {
        found.rivals = Some(rivals(sources.known, jobs, job));
        return Ok(found);
    };
    if is_launching {
        found.placements = neighbours::placements(sources, &found.claims).await?;
        found.fs_groups = neighbours::fs_groups(sources, job, &found.claims).await?;
    }
    let names = try_names(job, run);
    let are_all_running = found.children.ran_since(&names, run.pod_count()).is_some();
    if !are_all_running && is_late(run, Timestamp::now()) {
        let late = of_late_pods(sources, job, run, &found).await?;
        (found.warnings, found.placements) = (late.warnings, late.placements);
    }
    if !found.children.has_live_pods(&names) {
        found.rivals = Some(rivals(sources.known, jobs, job));
        // One that waits in the queue is looked at before it gets there, and once it has its turn.
        if run.is_started() || run.queue_time.is_none() {
            found.facts.captured = storage_progress::read_progress(sources, job, run, &found.claims).await?;
        }
    }
    found.facts.imaged = storage_progress::inspect_image(sources.client, job, run).await?;
    if run.capture.is_some() {
        // The temporary claim need not be where the source's is.
        found.placements.source = None;
    }
    Ok(found)
}

/// Looks for the causes that keep a run's pods from starting, unless that was done a moment ago.
async fn of_late_pods(
    sources: Sources<'_>,
    job: &SyncJob,
    run: &ActiveRun,
    found: &Dereferenced,
) -> Result<LatePods> {
    let uid = job.uid().unwrap_or_default();
    if let Some(known) = sources.late.get(&uid, LATE_AGE) {
        return Ok(known);
    }
    let warnings = warnings(sources.client, job, run, &found.children, &found.ends).await?;
    let placements = neighbours::placements(sources, &found.claims).await?;
    let late = LatePods { warnings, placements };
    sources.late.put(&uid, late.clone());
    Ok(late)
}

/// Marks Jobs as deleted if this operator has deleted them and the watch has not reported it yet.
fn mark_removed(removed: &Recent<()>, children: &mut Children) {
    let is_removed = |job: &&mut Job| job.uid().is_some_and(|uid| removed.get(&uid, REMOVED_AGE).is_some());
    for job in children.jobs.iter_mut().filter(is_removed) {
        job.metadata.deletion_timestamp.get_or_insert_with(|| Time(Timestamp::now()));
    }
}

fn account(job: &SyncJob, children: &Children) -> u32 {
    let run = job.status.as_ref().and_then(|status| status.active_run.as_ref());
    let (name, uid) = (job.name_any(), job.uid().unwrap_or_default());
    run.map_or(0, |run| children.account(&try_names(job, run), &name, &uid))
}

fn try_names(job: &SyncJob, run: &ActiveRun) -> TryNames {
    TryNames::new(&job.name_any(), &job.uid().unwrap_or_default(), run.number, run.past_tries())
}

/// Returns whether the pods of a run are about to be created.
fn launching(job: &SyncJob, children: &Children) -> bool {
    let run =
        job.status.as_ref().and_then(|status| status.active_run.as_ref()).filter(|run| run.is_started());
    run.is_some_and(|run| {
        let names = try_names(job, run);
        run.sides().iter().any(|side| children.job_of(&names, *side).is_none())
    })
}

/// Returns whether the pods of a try should run by now, but were never seen ready.
fn is_late(run: &ActiveRun, now: Timestamp) -> bool {
    let tried = run.try_time.as_ref().filter(|_| run.pods_ready_time.is_none());
    tried.is_some_and(|tried| now.duration_since(tried.0) >= USUAL_START)
}

/// Returns how old the reading of a namespace's annotations may be.
fn consent_age(job: &SyncJob, is_launching: bool, is_started: bool) -> Duration {
    let is_at_home = permission::namespaces(job).all(|it| Some(it) == job.metadata.namespace.as_deref());
    match (is_launching, is_at_home) {
        (true, _) => Duration::ZERO,
        (false, false) if is_started => permission::LABELS_AGE,
        (false, _) => CONSENT_AGE,
    }
}

/// Returns the queue of all known jobs except `job`; `None` if runs are not limited.
fn line(jobs: &[Arc<Guarded>], job: &SyncJob, limits: Limits, sets: &SetLimits) -> Option<Line> {
    let jobs = jobs.iter().filter_map(|job| job.0.as_ref().ok());
    turns::is_limited(job, limits, sets)
        .then(|| Line::new(&job.uid().unwrap_or_default(), jobs, limits, sets))
}

/// Returns the nodes of a job's volumes and of its run's pods, sorted.
fn nodes(volumes: &Volumes, job: &SyncJob, claims: &[Claim], children: &Children) -> Vec<String> {
    let of_claims = claims.iter().filter_map(|claim| volumes.node_of(claim.found.as_ref()?));
    let names = job.status.as_ref().and_then(|status| Some(try_names(job, status.active_run.as_ref()?)));
    let pods = names.iter().flat_map(|names| children.pods_of_try(names));
    let of_pods = pods.filter_map(|pod| pod.spec.as_ref()?.node_name.clone());
    let nodes: BTreeSet<String> = of_claims.chain(of_pods).collect();
    nodes.into_iter().collect()
}

/// Returns the SyncRuns in the watch's store that a job owns.
pub fn runs_of(known: &Watched<SyncRun>, job: &SyncJob) -> Vec<Arc<SyncRun>> {
    let uid = job.uid().unwrap_or_default();
    let mut runs = known.of(&job.namespace().unwrap_or_default(), &job.name_any());
    runs.retain(|run| run.is_of(&uid));
    runs
}

/// Returns the SyncRun of the run under way. It is read from the API server if the watched one does not suffice: it
/// lacks the report of an end that has ended, is not the run's, or is missing although the run's Jobs exist.
async fn own_run(
    client: &Client,
    known: &Known,
    job: &SyncJob,
    children: &Children,
) -> Result<Option<SyncRun>> {
    let active = job.status.as_ref().and_then(|status| status.active_run.as_ref());
    let Some(run) = active else { return Ok(None) };
    let heard_of = known.runs.get(&job.namespace().unwrap_or_default(), &run.id).map(|run| (*run).clone());
    let (uid, name) = (job.uid().unwrap_or_default(), job.name_any());
    let names = try_names(job, run);
    let owner = record::Owner { job: &name, uid: &uid, has_children: children.has_jobs(&names) };
    let is_enough = match record::judge(run, owner, heard_of.as_ref()) {
        Record::Kept => {
            let ends = heard_of.as_ref().and_then(|run| run.status.as_ref()?.ends.as_ref());
            !children.lacks_reports(&names, &names::try_id(&run.id, run.past_tries()), ends)
        }
        Record::Missing | Record::Asked => true,
        _ => false,
    };
    if is_enough {
        return Ok(heard_of);
    }
    let now = api::<SyncRun>(client, job).get_opt(&run.id).await.map_err(reading("SyncRun"))?;
    now.iter().for_each(|now| known.runs.wrote(now));
    Ok(now)
}

/// Returns the SyncRun by which a person asks for the next run: the oldest one of a restore, else the oldest. While a
/// run is under way, only a restore counts. A watched SyncRun is read again, since a stale one would be run twice.
async fn asked(client: &Client, known: &Watched<SyncRun>, job: &SyncJob) -> Result<Option<SyncRun>> {
    let status = restore::released(job);
    let (namespace, name) = (job.namespace().unwrap_or_default(), job.name_any());
    let is_for = |run: &SyncRun| {
        run.spec.sync_job.name == name && run.is_asked_for() && restore::lets_in(&status, run)
    };
    let mut heard_of = known.of(&namespace, &name);
    heard_of.retain(|run| is_for(run));
    heard_of.sort_by_key(|run| (run.spec.restore.is_none(), run.created(), run.name_any()));
    for run in heard_of {
        let now = api::<SyncRun>(client, job).get_opt(&run.name_any()).await.map_err(reading("SyncRun"))?;
        if let Some(now) = now.filter(is_for) {
            return Ok(Some(now));
        }
    }
    Ok(None)
}

/// Returns the other users of the claims of `job`.
fn rivals(known: &Known, jobs: &[Arc<Guarded>], job: &SyncJob) -> Rivals {
    let jobs = jobs.iter().filter_map(|job| job.0.as_ref().ok());
    let namespaces: BTreeSet<&str> = permission::namespaces(job).collect();
    let pods = namespaces.into_iter().flat_map(|namespace| known.pods.in_namespace(namespace));
    let pods = pods.filter(|pod| pod_state::is_alive(pod));
    let own = job.namespace().unwrap_or_default();
    Rivals::new(&own, &job.name_any(), jobs, pods.map(|pod| (*pod).clone()).collect())
}

/// Returns the known Jobs and pods of the runs of the job of that name, in these places.
pub fn children(known: &Known, places: &Places, job: &str) -> Children {
    let label = names::label_value(job);
    Children { jobs: labelled(&known.batch, places, &label), pods: labelled(&known.pods, places, &label) }
}

fn labelled<K>(known: &Watched<K>, places: &Places, job: &str) -> Vec<K>
where
    K: kube::Resource<DynamicType = ()> + Clone + 'static,
{
    let namespaces = places.abroad().into_iter().map(String::as_str).chain([places.own()]);
    let labelled = namespaces.flat_map(|namespace| known.of(namespace, job));
    let own = labelled.filter(|child| child.labels().contains_key(LABEL_TRY) && places.have(&**child));
    own.map(Arc::unwrap_or_clone).collect()
}

/// Returns the claims of the ends that have one, the source's first, with the storage classes of unbound claims. A
/// claim in `known` is not read again. Fails if the API server does not answer a read.
pub async fn claims(
    client: &Client,
    known: Option<&Watched<PersistentVolumeClaim>>,
    job: &SyncJob,
) -> Result<Vec<Claim>> {
    try_join_all(job.spec.claims().map(|(side, named)| claim(client, known, job, side, named))).await
}

/// Returns one end's claim. A claim unknown to the watch is read, since that watch may lag behind the one of SyncJobs.
async fn claim(
    client: &Client,
    known: Option<&Watched<PersistentVolumeClaim>>,
    job: &SyncJob,
    side: Side,
    named: &ClaimReference,
) -> Result<Claim> {
    let namespace = named.namespace.clone().or_else(|| job.namespace()).unwrap_or_default();
    let heard_of = known.and_then(|known| known.get(&namespace, &named.claim_name));
    let found = match heard_of {
        Some(claim) => Some((*claim).clone()),
        None if known.is_some_and(|known| !known.watches(&namespace)) => None,
        None => {
            let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), &namespace);
            claims.get_opt(&named.claim_name).await.map_err(reading("PersistentVolumeClaims"))?
        }
    };
    let class = match &found {
        Some(claim) if !is_bound(claim) => class(client, claim).await?,
        _ => Class::Unknown,
    };
    let name = format!("{namespace}/{}", named.claim_name);
    Ok(Claim { side, name, found, class })
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
}

/// Reads the storage class of a destination's claim that is to grow, since the class says whether it can.
async fn add_class_to_grow(client: &Client, job: &SyncJob, claims: &mut [Claim]) -> Result<()> {
    let growing = claim_growth::wanted(job.spec.destination.create.as_ref(), claims);
    let sink = claims.iter_mut().find(|claim| claim.side == Side::Sink);
    if let Some((growing, sink)) = growing.zip(sink) {
        sink.class = class(client, &growing.claim).await?;
    }
    Ok(())
}

/// Returns the storage class of a claim. An operator that is confined to namespaces may not read it; the class is
/// unknown then.
async fn class(client: &Client, claim: &PersistentVolumeClaim) -> Result<Class> {
    let Some(name) = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()) else {
        return Ok(Class::Unknown);
    };
    // The empty name requests a volume without a class.
    if name.is_empty() {
        return Ok(Class::Unknown);
    }
    match Api::<StorageClass>::all(client.clone()).get_opt(name).await {
        Ok(Some(class)) => Ok(Class::Found(Box::new(class))),
        Ok(None) => Ok(Class::Missing(name.into())),
        Err(error) if is_forbidden(&error) => Ok(Class::Unknown),
        Err(error) => Err(reading("storage class")(error)),
    }
}
