//! Finds out in which namespaces the two ends of a job run, and by which grants they may.

use std::time::Duration;

use contract::Side;
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{
    claim_end::NamespacedClaim,
    end_namespaces::{self, Consent, EndNamespace},
    source_and_sink::Ends,
};
use crate::{
    api::{ActiveRun, ClaimReference, GrantAccess, SyncJob, SyncRun},
    controller::{lookups::Sources, read::Result, stores::Known},
    fault::Fault,
    grants::{
        find_grant::{self, Applicant, Granted, Request},
        namespace_annotations::NamespaceUsers,
        read_namespace::{self, Reading},
    },
    names::{self, TryNames},
    pods::{children::Children, job::GRANTED_GRACE_S, stored_fields::Job},
    volumes::claims,
};

/// How long after a look the labels of the namespace are looked at again while a run goes on by a grant that depends on
/// them, and how old a reading may be by then. A change of them is noticed within the sum of both.
pub(crate) const LABELS_AGE: Duration = Duration::from_secs(1);
// A second is left for the deletion itself.
const _: () = assert!(2 * LABELS_AGE.as_secs() + (GRANTED_GRACE_S as u64) < 10);

/// A job that asks for the claims of its ends.
#[derive(Clone, Copy)]
pub(crate) struct Applying<'a> {
    /// The job.
    pub(crate) job: &'a SyncJob,
    /// The job as the run that is under way or asked for changes it.
    pub(crate) wished: &'a SyncJob,
    /// The SyncRun by which a person asks for the next run.
    pub(crate) asked: Option<&'a SyncRun>,
    /// What is known of the job's namespace.
    pub(crate) users: &'a NamespaceUsers,
}

impl Applying<'_> {
    fn namespace(&self) -> String {
        self.job.namespace().unwrap_or_default()
    }

    /// Returns what a run does with the claim of an end. A benchmark writes to both.
    fn access(&self, side: Side) -> GrantAccess {
        let run = self.job.status.as_ref().and_then(|status| status.active_run.as_ref());
        let is_benchmark = run.is_some_and(|run| run.benchmark.is_some())
            || self.asked.is_some_and(|run| run.spec.benchmark.is_some());
        if side == Side::Sink || is_benchmark { GrantAccess::Write } else { GrantAccess::Read }
    }

    fn find(
        &self,
        known: &Known,
        side: Side,
        claim: &NamespacedClaim,
        access: GrantAccess,
        used: Option<&str>,
    ) -> std::result::Result<Granted, Fault> {
        if !known.grants.watches(&claim.namespace) {
            return Err(find_grant::not_watched(side, claim));
        }
        let found = known.claims.get(&claim.namespace, &claim.name);
        let namespace = self.namespace();
        let from =
            Applicant { namespace: &namespace, uid: self.users.uid.as_deref(), labels: &self.users.labels };
        let labels = found.as_ref().map(|claim| claim.labels());
        let request = Request { side, claim, labels, access, from: &from, now: Timestamp::now() };
        let all = known.grants.in_namespace(&claim.namespace);
        find_grant::find(all.iter().map(|grant| &**grant), request, used)
    }
}

/// Returns the namespaces of a job's claims and of those of its run under way, its own first.
pub(crate) fn namespaces(job: &SyncJob) -> impl Iterator<Item = &str> {
    let run = job.status.as_ref().and_then(|status| status.active_run.as_ref());
    let folders = run.into_iter().flat_map(ActiveRun::folders);
    let folders = folders.filter_map(|folder| folder.namespace.as_deref());
    let own = job.metadata.namespace.as_deref();
    own.into_iter()
        .chain(job.spec.claims().filter_map(|(_, claim)| claim.namespace.as_deref()))
        .chain(folders)
}

/// Returns the annotations and labels of a namespace.
pub(crate) async fn users(sources: Sources<'_>, namespace: &str, age: Duration) -> Result<Reading> {
    read_namespace::of(sources.client, sources.consents, namespace, age).await
}

/// Judges both ends of a job. Of a claim that may not be used, nothing stays in `claims`, so that nobody learns of it.
pub(crate) async fn judge(
    sources: Sources<'_>,
    of: Applying<'_>,
    claims: &mut [claims::Claim],
    age: Duration,
) -> Result<Ends<EndNamespace>> {
    let spec = &of.wished.spec;
    let source = spec.source.persistent_volume_claim.as_ref();
    let sink = spec.destination.persistent_volume_claim.as_ref();
    Ok(Ends {
        source: one(sources, of, Side::Source, source, claims, age).await?,
        sink: one(sources, of, Side::Sink, sink, claims, age).await?,
    })
}

async fn one(
    sources: Sources<'_>,
    of: Applying<'_>,
    side: Side,
    named: Option<&ClaimReference>,
    claims: &mut [claims::Claim],
    age: Duration,
) -> Result<EndNamespace> {
    let own = of.namespace();
    let Some(named) = named else {
        return Ok(EndNamespace { namespace: own, users: of.users.clone(), consent: Consent::Remote });
    };
    let namespace = named.namespace.clone().unwrap_or_else(|| own.clone());
    if namespace == own {
        return Ok(EndNamespace { namespace, users: of.users.clone(), consent: Consent::Own });
    }
    let claim = NamespacedClaim { namespace: namespace.clone(), name: named.claim_name.clone() };
    match of.find(sources.known, side, &claim, of.access(side), None) {
        Ok(granted) => {
            let users = users(sources, &namespace, age).await?.users;
            Ok(EndNamespace { namespace, users, consent: Consent::Granted(granted) })
        }
        Err(fault) => {
            let own_claim = claims.iter_mut().filter(|it| it.side == side);
            own_claim.for_each(|it| it.found = None);
            Ok(EndNamespace { namespace, users: NamespaceUsers::default(), consent: Consent::Refused(fault) })
        }
    }
}

/// Returns the grants by which the run under way uses claims of other namespaces, or why it may no longer use one: by
/// what it recorded, and by what its Jobs mount in fact. The spec may have changed since it began.
pub(crate) fn of_run(
    known: &Known,
    of: Applying<'_>,
    children: &Children,
) -> std::result::Result<Vec<Granted>, Fault> {
    let run = of.job.status.as_ref().and_then(|status| status.active_run.as_ref());
    let Some(run) = run.filter(|run| run.is_started()) else { return Ok(Vec::new()) };
    let own = of.namespace();
    let recorded = [Side::Source, Side::Sink].into_iter().filter_map(|side| {
        let folder = run.folder(side).filter(|folder| folder.address.is_none())?;
        let namespace = folder.namespace.clone().filter(|it| *it != own)?;
        let claim = NamespacedClaim { namespace, name: folder.claim_name.clone() };
        Some(of.find(known, side, &claim, of.access(side), folder.grant.as_deref()))
    });
    let names =
        TryNames::new(&of.job.name_any(), &of.job.uid().unwrap_or_default(), run.number, run.past_tries());
    let label = names.label();
    let is_of_try = |job: &&Job| job.labels().get(names::LABEL_TRY) == Some(&label);
    let abroad = children.jobs.iter().filter(is_of_try).filter(|job| job.namespace().as_ref() != Some(&own));
    recorded.chain(abroad.flat_map(|job| mounted(known, of, job))).collect()
}

/// Returns the grant for each claim that the pods of a Job in another namespace mount, or why they may not.
fn mounted(known: &Known, of: Applying<'_>, job: &Job) -> Vec<std::result::Result<Granted, Fault>> {
    let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let volumes = pod.into_iter().flat_map(|pod| pod.volumes.iter().flatten());
    let claims = volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref());
    let judged = claims.filter_map(|it| {
        let claim = NamespacedClaim { namespace: job.namespace()?, name: it.claim_name.clone() };
        let (side, access) = match it.read_only {
            Some(true) => (Side::Source, GrantAccess::Read),
            _ => (Side::Sink, GrantAccess::Write),
        };
        Some(of.find(known, side, &claim, access, end_namespaces::grant_of(job)))
    });
    judged.collect()
}
