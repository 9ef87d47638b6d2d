//! The first step: read the job anew, and all that it refers to and has made.

use std::sync::Arc;

use contract::Side;
use futures::{future::try_join_all, try_join};
use k8s_openapi::api::{
    batch::v1::Job,
    core::v1::{Namespace, PersistentVolumeClaim, Pod},
    storage::v1::StorageClass,
};
use kube::{Api, Client, ResourceExt, api::ListParams, runtime::reflector::Store};

use super::{
    read::{Guarded, Result, api, is_forbidden, reading},
    warnings::warnings,
};
use crate::{
    api::{ActiveRun, ClaimReference, SyncJob, SyncRun},
    fault::Fault,
    model::{
        children::Children,
        claims::{self, Claim, Class},
        place::Place,
        placement::{self, Placements},
        queue::{Limits, Line},
        record::{self, Record},
        restore,
        rivals::Rivals,
        security,
        warnings::Warnings,
    },
    names::{self, TryNames},
};

/// All that a job refers to and has made.
#[derive(Debug, Default)]
pub struct Found {
    /// The claims that the spec names, source first.
    pub claims: Vec<Claim>,
    /// What the namespace's annotation says of syncers that run as root.
    pub consent: Option<String>,
    /// What there is of the job's runs.
    pub children: Children,
    /// Warnings about children that do not start.
    pub warnings: Warnings,
    /// Where the pods of the try under way have to run, as long as they do not run.
    pub placements: Placements,
    /// The other users of the namespace's claims; read only while the run under way has no pods.
    pub rivals: Option<Rivals>,
    /// The other runs, as far as they count for the limits on runs; from the API server if `rivals` are, else from a
    /// watch.
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

/// What the watches have brought.
pub struct Known {
    /// The SyncJobs.
    pub jobs: Store<Guarded>,
    /// The SyncRuns.
    pub runs: Store<SyncRun>,
    /// The one namespace that is watched; `None`: all are.
    pub namespace: Option<String>,
}

impl Known {
    /// The line of all jobs but `job`, as far as they have been heard of; `None` without a limit on runs.
    fn line(&self, job: &SyncJob, limits: Limits) -> Option<Line> {
        if !limits.any() {
            return None;
        }
        let jobs = self.jobs.state();
        let jobs = jobs.iter().filter_map(|job| job.0.as_ref().ok());
        Some(Line::new(&job.uid().unwrap_or_default(), jobs, limits))
    }

    fn all_jobs(&self, client: &Client) -> Api<Guarded> {
        match &self.namespace {
            Some(namespace) => Api::namespaced(client.clone(), namespace),
            None => Api::all(client.clone()),
        }
    }
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
pub async fn fresh(client: &Client, job: &Guarded) -> Result<Option<Guarded>> {
    let api = Api::<Guarded>::namespaced(client.clone(), &job.namespace().unwrap_or_default());
    api.get_opt(&job.name_any()).await.map_err(reading("status"))
}

/// Reads what `job` refers to and has made.
pub async fn dereference(client: &Client, known: &Known, limits: Limits, job: &SyncJob) -> Result<Found> {
    let asked = asked(client, &known.runs, job).await?;
    let wished = restore::wished(job, asked.as_ref());
    let (claims, consent, children) =
        try_join!(claims(client, &wished), consent(client, job), children(client, job))?;
    // After the pods: an end writes its report before it ends, so the report of each end that has ended is in it.
    let run = own_run(client, job).await?;
    let runs = runs_of(&known.runs, job);
    let line = known.line(job, limits);
    let round = line.as_ref().map_or(0, |line| line.next_round(&job.namespace().unwrap_or_default()));
    let mut found = Found { claims, consent, children, runs, run, line, round, asked, ..Found::default() };
    let status = job.status.as_ref();
    if let Some(failed) = status.and_then(record::last_failed) {
        found.children.leave_to_readers(failed);
    }
    if let Some(run) = job.status.as_ref().and_then(|status| status.active_run.as_ref()) {
        found.warnings = warnings(client, job, run, &found.children).await?;
        if run.pods_ready_time.is_none() {
            found.placements = placements(client, job, &found.claims).await?;
        }
        let names =
            TryNames::new(&job.name_any(), &job.uid().unwrap_or_default(), run.number, run.past_tries());
        if run.reported.is_none() && !found.children.has_live_pods(&names) {
            let line = found.line.take();
            (found.line, found.rivals) = others(client, known, job, run, line).await?;
        }
    }
    Ok(found)
}

/// Reads which other runs are ahead of `run`. What the watch has brought is enough to have it wait for the limits on
/// runs; only what the API server says lets it start.
async fn others(
    client: &Client,
    known: &Known,
    job: &SyncJob,
    run: &ActiveRun,
    line: Option<Line>,
) -> Result<(Option<Line>, Option<Rivals>)> {
    let (namespace, uid) = (job.namespace().unwrap_or_default(), job.uid().unwrap_or_default());
    let place = Place::of(run, &job.name_any(), &uid).filter(|_| !run.is_started());
    let is_ahead = |line: &Line| place.is_some_and(|it| line.ahead_of(run, &namespace, &it).is_some());
    if line.as_ref().is_some_and(is_ahead) {
        return Ok((line, None));
    }
    let limits = line.map(|line| line.limits());
    let mut jobs = jobs(client, known, limits.unwrap_or_default(), job).await?;
    let line = limits.map(|limits| Line::new(&uid, &jobs, limits));
    jobs.retain(|it| it.metadata.namespace == job.metadata.namespace);
    Ok((line, Some(rivals(client, job, &jobs).await?)))
}

/// The SyncRuns that a job owns, as far as they have been heard of.
pub fn runs_of(known: &Store<SyncRun>, job: &SyncJob) -> Vec<Arc<SyncRun>> {
    let uid = job.uid().unwrap_or_default();
    let mut runs = known.state();
    runs.retain(|run| run.metadata.namespace == job.metadata.namespace && run.is_of(&uid));
    runs
}

async fn own_run(client: &Client, job: &SyncJob) -> Result<Option<SyncRun>> {
    let active = job.status.as_ref().and_then(|status| status.active_run.as_ref());
    let Some(run) = active else { return Ok(None) };
    api::<SyncRun>(client, job).get_opt(&run.id).await.map_err(reading("SyncRun"))
}

/// The first SyncRun by which a person asks for a run; none while a run is under way. One that was heard of is read
/// anew, or it would be run twice.
async fn asked(client: &Client, known: &Store<SyncRun>, job: &SyncJob) -> Result<Option<SyncRun>> {
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

/// Reads the jobs of the namespace, or all that the operator watches if those count; from the API server and not from a
/// watch: two runs that are recorded at a time would each miss the other in what a watch has brought so far.
async fn jobs(client: &Client, known: &Known, limits: Limits, job: &SyncJob) -> Result<Vec<SyncJob>> {
    let api = if limits.all > 0 { known.all_jobs(client) } else { api::<Guarded>(client, job) };
    let jobs = api.list(&ListParams::default()).await.map_err(reading("SyncJobs"))?;
    Ok(jobs.items.into_iter().filter_map(|job| job.0.ok()).collect())
}

/// Reads the syncer pods of the namespace, after its jobs.
async fn rivals(client: &Client, job: &SyncJob, jobs: &[SyncJob]) -> Result<Rivals> {
    let of_runs = ListParams::default().labels(names::LABEL_TRY);
    let pods = api::<Pod>(client, job).list(&of_runs).await.map_err(reading("namespace's syncer pods"))?;
    Ok(Rivals::new(&job.name_any(), jobs, pods.items))
}

/// What there is of the runs of `job`.
pub async fn children(client: &Client, job: &SyncJob) -> Result<Children> {
    let label = names::label_value(&job.name_any());
    let of_job =
        ListParams::default().labels(&format!("{}={label},{}", names::LABEL_SYNCJOB, names::LABEL_TRY));
    let (jobs, pods) = (api::<Job>(client, job), api::<Pod>(client, job));
    let (jobs, pods) = try_join!(async { jobs.list(&of_job).await.map_err(reading("Jobs")) }, async {
        pods.list(&of_job).await.map_err(reading("pods"))
    },)?;
    Ok(Children { jobs: jobs.items, pods: pods.items })
}

/// Reads the claims of both ends, the source's first, and the classes of those that are not bound.
pub async fn claims(client: &Client, job: &SyncJob) -> Result<Vec<Claim>> {
    let named = [
        (Side::Source, &job.spec.source.persistent_volume_claim),
        (Side::Sink, &job.spec.destination.persistent_volume_claim),
    ];
    try_join_all(named.map(|(side, named)| claim(client, job, side, named))).await
}

async fn claim(client: &Client, job: &SyncJob, side: Side, named: &ClaimReference) -> Result<Claim> {
    let claims: Api<PersistentVolumeClaim> = api(client, job);
    let found = claims.get_opt(&named.claim_name).await.map_err(reading("PersistentVolumeClaims"))?;
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

/// The pods of the whole namespace are looked at only where a claim ties to a node, and only until the run is under
/// way.
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
    let pods =
        api::<Pod>(client, job).list(&ListParams::default()).await.map_err(reading("namespace's pods"))?;
    let of = |side| found(side).and_then(|claim| placement::placement(claim, &pods.items));
    Ok(Placements { source: of(Side::Source), sink: of(Side::Sink), ..anywhere })
}

async fn consent(client: &Client, job: &SyncJob) -> Result<Option<String>> {
    let namespaces = Api::<Namespace>::all(client.clone());
    match namespaces.get_metadata_opt(&job.namespace().unwrap_or_default()).await {
        Ok(namespace) => {
            Ok(namespace.and_then(|it| it.annotations().get(names::ANNOTATION_PRIVILEGED).cloned()))
        }
        Err(error) if is_forbidden(&error) => Ok(None),
        Err(error) => Err(reading("namespace")(error)),
    }
}
