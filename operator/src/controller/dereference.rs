//! The first step: gather all that a job refers to and has made, most of it from what the watches have brought.

use std::{sync::Arc, time::Duration};

use contract::Side;
use futures::future::try_join_all;
use jiff::Timestamp;
use k8s_openapi::api::{
    core::v1::{PersistentVolumeClaim, Pod},
    storage::v1::StorageClass,
};
use kube::{Api, Client, ResourceExt, api::ListParams};

use super::{
    consent,
    read::{Guarded, Result, api, is_forbidden, reading},
    recent::Recent,
    warnings::warnings,
    watched::{Known, Watched},
};
use crate::{
    api::{ActiveRun, ClaimReference, SyncJob, SyncRun},
    fault::Fault,
    model::{
        children::Children,
        claims::{self, Claim, Class},
        observe,
        placement::{self, Placements},
        queue::{Limits, Line},
        readers,
        record::{self, Record},
        restore,
        rivals::Rivals,
        security,
        warnings::Warnings,
    },
    names::{self, LABEL_TRY, TryNames},
    stages::situation::USUAL_START,
};

/// For how long it is known what keeps pods from starting.
const LATE_AGE: Duration = Duration::from_secs(5);
/// For how long the annotation of a namespace is believed that was read for another reconciliation.
const CONSENT_AGE: Duration = Duration::from_secs(60);
/// Selects the pods whose processes may run, as the scheduler does. Others stay for their logs.
const NOT_ENDED: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// All that a job refers to and has made.
#[derive(Debug, Default)]
pub struct Found {
    /// The claims that the spec names, source first.
    pub claims: Vec<Claim>,
    /// What the namespace's annotation says of syncers that run as root.
    pub consent: Option<String>,
    /// Whether that was read just now.
    pub is_consent_fresh: bool,
    /// What there is of the job's runs, without what stays of runs that have ended for readers of logs.
    pub children: Children,
    /// What stays for them until the next run has its turn.
    pub outgoing: Children,
    /// Warnings about children that do not start.
    pub warnings: Warnings,
    /// Where the pods of the try under way have to run, as long as they do not run.
    pub placements: Placements,
    /// The other users of the namespace's claims; only while no run under way has pods.
    pub rivals: Option<Rivals>,
    /// The other runs, as far as they count for the limits on runs.
    pub line: Option<Line>,
    /// The round of the queue for a run that takes a place now.
    pub round: i64,
    /// The job's SyncRuns, as far as they have been heard of.
    pub runs: Vec<Arc<SyncRun>>,
    /// The SyncRun of the run under way, as it is now.
    pub run: Option<SyncRun>,
    /// Where that one is.
    pub record: Record,
    /// The SyncRun by which a person asks for a run; looked for only between runs.
    pub asked: Option<SyncRun>,
}

impl Found {
    /// Whether the namespace lets syncers run as root; not if what it says cannot be understood.
    pub fn privileged(&self) -> bool {
        security::consent(self.consent.as_deref()).unwrap_or(false)
    }

    /// What became of a claim that is not there to be used any more, or is about to go, and whose it is; the
    /// destination's first.
    pub fn lost(&self) -> Option<(Side, Fault)> {
        self.claims.iter().rev().find_map(|claim| Some((claim.side, claims::loss(claim)?)))
    }

    /// Who probably uses the volume of that end of a run, as a sentence; empty if nobody looked.
    pub fn suspects(&self, run: Option<&ActiveRun>, side: Option<Side>) -> String {
        let known = self.rivals.as_ref().zip(run).zip(side);
        known.map(|((rivals, run), side)| rivals.suspects(run, side)).unwrap_or_default()
    }

    /// The UID of the claim that is written to, if it is there.
    pub fn destination_uid(&self) -> Option<&str> {
        let claim = self.claims.iter().find(|claim| claim.side == Side::Sink)?;
        claim.found.as_ref()?.metadata.uid.as_deref()
    }
}

/// The job as it is now; `None` if it is gone.
pub async fn fresh(client: &Client, job: &SyncJob) -> Result<Option<Guarded>> {
    let api = api::<Guarded>(client, job);
    api.get_opt(&job.name_any()).await.map_err(reading("status"))
}

/// Where all that comes from.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    /// The API server.
    pub client: &'a Client,
    /// What the watches have brought.
    pub known: &'a Known,
    /// How many runs may be under way at a time.
    pub limits: Limits,
    /// What namespaces said of syncers that run as root.
    pub consents: &'a Recent<Option<String>>,
    /// What was found of pods that are late, by the UIDs of their jobs.
    pub late: &'a Recent<(Warnings, Placements)>,
}

/// Gathers what `job` refers to and has made.
pub async fn dereference(sources: Sources<'_>, job: &SyncJob) -> Result<Found> {
    let Sources { client, known, .. } = sources;
    let asked = asked(client, &known.runs, job).await?;
    let wished = restore::wished(job, asked.as_ref());
    let children = children(known, &job.namespace().unwrap_or_default(), &job.name_any());
    let run = own_run(client, known, job, &children).await?;
    let is_launching = launching(job, &children);
    let claims = claims(client, Some(&known.claims), &wished).await?;
    let age = if is_launching { Duration::ZERO } else { CONSENT_AGE };
    let (consent, is_consent_fresh) = consent::of(client, sources.consents, job, age).await?;
    let runs = runs_of(&known.runs, job);
    // After the job: what the watch brought before the start of this one's run is among it.
    let jobs = known.jobs.state();
    let line = line(&jobs, job, sources.limits);
    let round = line.as_ref().map_or(0, |line| line.next_round(&job.namespace().unwrap_or_default()));
    let found = Found {
        claims,
        consent,
        is_consent_fresh,
        children,
        runs,
        run,
        line,
        round,
        asked,
        ..Found::default()
    };
    with_run(sources, job, &jobs, found, is_launching).await
}

/// Adds what only counts while a run is under way.
async fn with_run(
    sources: Sources<'_>,
    job: &SyncJob,
    jobs: &[Arc<Guarded>],
    mut found: Found,
    is_launching: bool,
) -> Result<Found> {
    let status = job.status.as_ref();
    found.outgoing = readers::take(&mut found.children, job, &found.claims);
    let Some(run) = status.and_then(|status| status.active_run.as_ref()) else {
        found.rivals = Some(rivals(sources.known, jobs, job));
        return Ok(found);
    };
    if is_launching {
        found.placements = placements(sources.client, job, &found.claims).await?;
    }
    if is_late(run, Timestamp::now()) {
        (found.warnings, found.placements) = of_late_pods(sources, job, run, &found).await?;
    }
    let names = try_names(job, run);
    if run.reported.is_none() && !found.children.has_live_pods(&names) {
        found.rivals = Some(rivals(sources.known, jobs, job));
    }
    Ok(found)
}

/// Looks for what keeps the pods of a run from starting, unless somebody looked a moment ago.
async fn of_late_pods(
    sources: Sources<'_>,
    job: &SyncJob,
    run: &ActiveRun,
    found: &Found,
) -> Result<(Warnings, Placements)> {
    let uid = job.uid().unwrap_or_default();
    if let Some(known) = sources.late.get(&uid, LATE_AGE) {
        return Ok(known);
    }
    let warnings = warnings(sources.client, job, run, &found.children).await?;
    let placements = placements(sources.client, job, &found.claims).await?;
    sources.late.put(&uid, (warnings.clone(), placements.clone()));
    Ok((warnings, placements))
}

fn try_names(job: &SyncJob, run: &ActiveRun) -> TryNames {
    TryNames::new(&job.name_any(), &job.uid().unwrap_or_default(), run.number, run.past_tries())
}

/// Whether the pods of a run are about to be made.
fn launching(job: &SyncJob, children: &Children) -> bool {
    let run =
        job.status.as_ref().and_then(|status| status.active_run.as_ref()).filter(|run| run.is_started());
    run.is_some_and(|run| {
        let (names, sides) = (try_names(job, run), [Side::Sink, Side::Source]);
        let made = if run.local { &sides[..1] } else { &sides[..] };
        made.iter().any(|side| children.job_of(&names, *side).is_none())
    })
}

/// Whether the pods of a try should run by now, and have not been seen to.
fn is_late(run: &ActiveRun, now: Timestamp) -> bool {
    let tried = run.try_time.as_ref().filter(|_| run.pods_ready_time.is_none());
    tried.is_some_and(|tried| now.duration_since(tried.0) >= USUAL_START)
}

/// The line of all jobs but `job`, as far as they have been heard of; `None` without a limit on runs.
fn line(jobs: &[Arc<Guarded>], job: &SyncJob, limits: Limits) -> Option<Line> {
    let jobs = jobs.iter().filter_map(|job| job.0.as_ref().ok());
    limits.any().then(|| Line::new(&job.uid().unwrap_or_default(), jobs, limits))
}

/// The SyncRuns that a job owns, as far as they have been heard of.
pub fn runs_of(known: &Watched<SyncRun>, job: &SyncJob) -> Vec<Arc<SyncRun>> {
    let uid = job.uid().unwrap_or_default();
    let mut runs = known.state();
    runs.retain(|run| run.metadata.namespace == job.metadata.namespace && run.is_of(&uid));
    runs
}

/// The SyncRun of the run under way. It is read if what the watch has brought lacks the report of an end that has
/// ended, which writes it before, or says that the SyncRun is not the run's.
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
    let is_enough = match record::judge(run, &name, &uid, heard_of.as_ref()) {
        Record::Kept if run.reported.is_none() => {
            let ends = heard_of.as_ref().and_then(|run| run.status.as_ref()?.ends.as_ref());
            !children.lacks_reports(&try_names(job, run), &names::try_id(&run.id, run.past_tries()), ends)
        }
        Record::Kept | Record::Missing => true,
        _ => false,
    };
    if is_enough {
        return Ok(heard_of);
    }
    let now = api::<SyncRun>(client, job).get_opt(&run.id).await.map_err(reading("SyncRun"))?;
    now.iter().for_each(|now| known.runs.wrote(now));
    Ok(now)
}

/// The first SyncRun by which a person asks for a run; none while a run is under way. One that was heard of is read
/// anew, or it would be run twice.
async fn asked(client: &Client, known: &Watched<SyncRun>, job: &SyncJob) -> Result<Option<SyncRun>> {
    if job.status.as_ref().is_some_and(|status| status.active_run.is_some()) {
        return Ok(None);
    }
    let is_for = |run: &SyncRun| {
        run.metadata.namespace == job.metadata.namespace
            && run.spec.sync_job.name == job.name_any()
            && run.is_asked_for()
    };
    let mut heard_of: Vec<_> = known.state().into_iter().filter(|run| is_for(run)).collect();
    heard_of.sort_by_key(|run| (run.created(), run.name_any()));
    let Some(first) = heard_of.first() else { return Ok(None) };
    let now = api::<SyncRun>(client, job).get_opt(&first.name_any()).await.map_err(reading("SyncRun"))?;
    Ok(now.filter(is_for))
}

/// The other users of the claims of the namespace of `job`.
fn rivals(known: &Known, jobs: &[Arc<Guarded>], job: &SyncJob) -> Rivals {
    let jobs = jobs.iter().filter_map(|job| job.0.as_ref().ok());
    let of_namespace = jobs.filter(|it| it.metadata.namespace == job.metadata.namespace);
    let is_here = |pod: &Arc<Pod>| pod.metadata.namespace == job.metadata.namespace && observe::is_alive(pod);
    let pods = known.pods.state().into_iter().filter(is_here);
    Rivals::new(&job.name_any(), of_namespace, pods.map(|pod| (*pod).clone()).collect())
}

/// What there is of the runs of the job of that name.
pub fn children(known: &Known, namespace: &str, job: &str) -> Children {
    let label = names::label_value(job);
    Children {
        jobs: labelled(&known.batch, namespace, &label),
        pods: labelled(&known.pods, namespace, &label),
    }
}

fn labelled<K>(known: &Watched<K>, namespace: &str, job: &str) -> Vec<K>
where
    K: kube::Resource<DynamicType = ()> + Clone + 'static,
{
    let is_of = |child: &K| {
        child.namespace().as_deref() == Some(namespace)
            && child.labels().get(names::LABEL_SYNCJOB).is_some_and(|it| it == job)
            && child.labels().contains_key(LABEL_TRY)
    };
    known.state().into_iter().filter(|child| is_of(child)).map(|child| (*child).clone()).collect()
}

/// The claims of both ends, the source's first, with the classes of those that are not bound; `known` are those that
/// have been heard of.
pub async fn claims(
    client: &Client,
    known: Option<&Watched<PersistentVolumeClaim>>,
    job: &SyncJob,
) -> Result<Vec<Claim>> {
    let named = [
        (Side::Source, &job.spec.source.persistent_volume_claim),
        (Side::Sink, &job.spec.destination.persistent_volume_claim),
    ];
    try_join_all(named.map(|(side, named)| claim(client, known, job, side, named))).await
}

/// A claim that has not been heard of is asked for, since its watch may be slower than that of SyncJobs.
async fn claim(
    client: &Client,
    known: Option<&Watched<PersistentVolumeClaim>>,
    job: &SyncJob,
    side: Side,
    named: &ClaimReference,
) -> Result<Claim> {
    let heard_of = known.and_then(|known| known.get(&job.namespace().unwrap_or_default(), &named.claim_name));
    let found = match heard_of {
        Some(claim) => Some((*claim).clone()),
        None => {
            let claims: Api<PersistentVolumeClaim> = api(client, job);
            claims.get_opt(&named.claim_name).await.map_err(reading("PersistentVolumeClaims"))?
        }
    };
    let class = match &found {
        Some(claim) if !is_bound(claim) => class(client, claim).await?,
        _ => Class::Unknown,
    };
    let name = format!("{}/{}", job.namespace().unwrap_or_default(), named.claim_name);
    Ok(Claim { side, name, found, class })
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound")
}

/// The storage class of a claim. An operator that is confined to namespaces may not read it; then it is not
/// known.
async fn class(client: &Client, claim: &PersistentVolumeClaim) -> Result<Class> {
    let Some(name) = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()) else {
        return Ok(Class::Unknown);
    };
    // The empty name asks for a volume without a class.
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

/// The pods of the whole namespace are looked at only where a claim ties to a node: when pods are about to be made, and
/// while they are late.
async fn placements(client: &Client, job: &SyncJob, claims: &[Claim]) -> Result<Placements> {
    let found = |side| claims.iter().find(|claim| claim.side == side)?.found.as_ref();
    let on_one_node = |side| {
        found(side).is_some_and(|claim| placement::sharing(claim, side) == placement::Sharing::OneNode)
    };
    let sink_on_one_node = on_one_node(Side::Sink);
    let source_on_one_node = on_one_node(Side::Source) || (sink_on_one_node && claims::is_one(claims));
    let anywhere = Placements { source_on_one_node, sink_on_one_node, ..Placements::default() };
    if !claims.iter().filter_map(|claim| claim.found.as_ref()).any(placement::ties) {
        return Ok(anywhere);
    }
    let not_ended = ListParams::default().fields(NOT_ENDED);
    let pods = api::<Pod>(client, job).list(&not_ended).await.map_err(reading("namespace's pods"))?;
    let of = |side| found(side).and_then(|claim| placement::placement(claim, &pods.items));
    Ok(Placements { source: of(Side::Source), sink: of(Side::Sink), ..anywhere })
}
