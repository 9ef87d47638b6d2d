//! Decides what a claim comes up with: a snapshot of a SyncJob's copy, its files, a VolumeSnapshot, what the SyncJob
//! reads at an endpoint, or nothing. Pure.

use contract::Reason;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, TypedLocalObjectReference};
use kube::{Resource as _, ResourceExt as _};

use crate::{
    api::{GROUP, SyncJob},
    fault::Fault,
};

/// Annotation of a claim: which snapshot of the copy it comes up with.
pub const ANNOTATION_SNAPSHOT: &str = "volferry.dev/snapshot";
/// Annotation of a claim: `Fail` or `Empty`, for a SyncJob that has no copy.
pub const ANNOTATION_IF_NONE: &str = "volferry.dev/if-none";
/// Value of [`ANNOTATION_SNAPSHOT`] for the VolumeSnapshot in `status.latestImage`.
pub const LATEST_IMAGE: &str = "latest-image";
/// Name of the newest snapshot of a volume.
const LATEST: &str = "latest";

/// The content that a claim comes up with.
#[derive(Debug, Clone, PartialEq)]
pub enum Content<'a> {
    /// The copy of a SyncJob, which another SyncJob restores.
    Copy {
        /// The SyncJob.
        job: &'a SyncJob,
        /// The snapshot; `None` for the files as they are.
        snapshot: Option<String>,
        /// Whether the volume itself has to tell that there is a snapshot, because the SyncJob's status does not.
        is_guess: bool,
    },
    /// What a SyncJob reads at an endpoint, for a claim that it writes to itself.
    Endpoint(&'a SyncJob),
    /// A VolumeSnapshot, which the storage restores.
    Image(&'a TypedLocalObjectReference),
    /// Nothing, because there is no copy and the claim says that it may come up empty.
    Nothing,
}

/// Returns the name of the SyncJob that a claim is to come up with the copy of; `None` if it names none.
pub fn source(claim: &PersistentVolumeClaim) -> Option<&str> {
    let source = claim.spec.as_ref()?.data_source_ref.as_ref()?;
    let is_job = source.api_group.as_deref() == Some(GROUP) && source.kind == SyncJob::kind(&());
    is_job.then_some(source.name.as_str())
}

/// Returns what a claim comes up with. `copy` is the claim that the SyncJob writes to.
///
/// # Errors
/// Says why the claim has to wait, and for whom.
pub fn choose<'a>(
    claim: &PersistentVolumeClaim,
    job: Option<&'a SyncJob>,
    copy: Option<&PersistentVolumeClaim>,
) -> Result<Content<'a>, Fault> {
    check_annotation(claim)?;
    let job = named(claim, job)?;
    let wished = claim.annotations().get(ANNOTATION_SNAPSHOT).map(String::as_str);
    if writes_to(job, claim) && job.spec.source.endpoint.is_some() {
        return endpoint(job, wished);
    }
    let is_known = is_known(job, copy);
    let image = image(job).filter(|_| is_known);
    if wished == Some(LATEST_IMAGE) {
        return image.map_or_else(|| nothing(claim), |image| Ok(Content::Image(image)));
    }
    let newest = job.status.as_ref().and_then(|status| status.snapshots.as_ref()?.latest.clone());
    let wished = wished.filter(|wished| *wished != LATEST).map(String::from);
    if is_known {
        let snapshot = wished.or(newest);
        return Ok(match (snapshot, image) {
            (None, Some(image)) => Content::Image(image),
            (snapshot, _) => Content::Copy { job, snapshot, is_guess: false },
        });
    }
    // A SyncJob that was made anew, as in another cluster, knows nothing of its copy. Its volume does.
    let has_snapshots = job.spec.snapshots.is_some() || claim.annotations().contains_key(ANNOTATION_SNAPSHOT);
    match copy {
        Some(_) if has_snapshots => {
            let snapshot = Some(wished.unwrap_or_else(|| LATEST.into()));
            Ok(Content::Copy { job, snapshot, is_guess: true })
        }
        None if job.spec.destination.create.is_none() => Err(no_claim(job)),
        _ => nothing(claim),
    }
}

/// Returns whether a SyncJob writes to the claim itself, so that there is no other copy.
fn writes_to(job: &SyncJob, claim: &PersistentVolumeClaim) -> bool {
    let to = job.spec.destination.persistent_volume_claim.as_ref();
    to.is_some_and(|to| Some(&to.claim_name) == claim.metadata.name.as_ref())
}

/// Returns [`Content::Endpoint`]. The SyncJob that fills the claim has no pods of its own before, and so no key that
/// the endpoint could know, unless a person has made one.
fn endpoint<'a>(job: &'a SyncJob, wished: Option<&str>) -> Result<Content<'a>, Fault> {
    if wished.is_some_and(|wished| wished != LATEST) {
        let message = format!(
            "An endpoint gives its files as they are: remove the annotation {ANNOTATION_SNAPSHOT}, or read a copy in this \
             cluster."
        );
        return Err(Fault::new(Reason::InvalidAnnotation, message));
    }
    if job.spec.source.endpoint.as_ref().is_some_and(|endpoint| endpoint.identity.is_none()) {
        let message = format!(
            "The SyncJob {} reads an endpoint, which has to know the key of who fills the claim: make one with `volferry \
             enroll`, list it among the endpoint's peers, and name its Secret in source.endpoint.identity.",
            job.name_any()
        );
        return Err(Fault::new(Reason::InvalidSpec, message));
    }
    Ok(Content::Endpoint(job))
}

/// Returns [`Content::Nothing`] if the claim says that it may come up empty.
///
/// # Errors
/// Says that there is no copy.
pub fn nothing(claim: &PersistentVolumeClaim) -> Result<Content<'static>, Fault> {
    if if_none(claim) == "Empty" {
        return Ok(Content::Nothing);
    }
    let message = format!(
        "The SyncJob {} has no copy yet, and a claim does not come up empty by mistake. It comes up once there is a \
         copy. For one that may come up empty, make it anew with the annotation {ANNOTATION_IF_NONE}: Empty.",
        source(claim).unwrap_or_default()
    );
    Err(Fault::new(Reason::NoCopyYet, message))
}

/// Returns whether a claim that finds no snapshot may be one without a copy: not if it names the snapshot.
pub fn takes_any(claim: &PersistentVolumeClaim) -> bool {
    claim.annotations().get(ANNOTATION_SNAPSHOT).is_none_or(|wished| wished == LATEST)
}

fn if_none(claim: &PersistentVolumeClaim) -> &str {
    claim.annotations().get(ANNOTATION_IF_NONE).map_or("Fail", String::as_str)
}

fn check_annotation(claim: &PersistentVolumeClaim) -> Result<(), Fault> {
    let if_none = if_none(claim);
    if ["Fail", "Empty"].contains(&if_none) {
        return Ok(());
    }
    let message =
        format!("The annotation {ANNOTATION_IF_NONE}: {if_none} means nothing; write Fail or Empty.");
    Err(Fault::new(Reason::InvalidAnnotation, message))
}

/// Returns the SyncJob that a claim names, if its copy is in the claim's namespace.
fn named<'a>(claim: &PersistentVolumeClaim, job: Option<&'a SyncJob>) -> Result<&'a SyncJob, Fault> {
    let (own, name) = (claim.namespace().unwrap_or_default(), source(claim).unwrap_or_default());
    let asked = claim.spec.as_ref().and_then(|spec| spec.data_source_ref.as_ref()?.namespace.as_deref());
    if asked.is_some_and(|namespace| namespace != own) {
        let message =
            "The claim names a SyncJob of another namespace. Name one of its own namespace in dataSourceRef.";
        return Err(Fault::new(Reason::InvalidSpec, message));
    }
    let job = job.ok_or_else(|| {
        let message = format!("The claim names the SyncJob {name}, which does not exist: create it.");
        Fault::new(Reason::JobNotFound, message)
    })?;
    let Some(copy) = &job.spec.destination.persistent_volume_claim else {
        let message =
            format!("The copy of the SyncJob {name} is elsewhere, and not on a claim of this cluster.");
        return Err(Fault::new(Reason::InvalidSpec, message));
    };
    if copy.namespace.as_ref().is_some_and(|it| *it != own) {
        let message = format!(
            "The copy of the SyncJob {name} is in another namespace, whose claims no pod here can mount."
        );
        return Err(Fault::new(Reason::InvalidSpec, message));
    }
    Ok(job)
}

/// Returns whether the SyncJob has succeeded with the claim that is its destination now.
fn is_known(job: &SyncJob, copy: Option<&PersistentVolumeClaim>) -> bool {
    let (Some(status), Some(copy)) = (&job.status, copy) else { return false };
    let Some(success) = &status.last_success_time else { return false };
    let to = &job.spec.destination;
    match &status.destination {
        Some(known) => {
            to.persistent_volume_claim.as_ref().is_some_and(|to| known.claim_name == to.claim_name)
                && known.path == to.path
                && known.claim_uid == copy.uid()
        }
        // A device has no id that a run could remember.
        None => copy.creation_timestamp().is_none_or(|made| made.0 <= success.0),
    }
}

/// Returns the newest VolumeSnapshot of a SyncJob's copy, if the copy is all that its volume holds.
fn image(job: &SyncJob) -> Option<&TypedLocalObjectReference> {
    let is_whole = job.spec.destination.path == "/";
    job.status.as_ref()?.latest_image.as_ref().filter(|_| is_whole)
}

fn no_claim(job: &SyncJob) -> Fault {
    let message = format!(
        "The SyncJob {} has its copy on the claim {}, which does not exist: create it.",
        job.name_any(),
        job.spec.destination.persistent_volume_claim.as_ref().map_or("", |claim| &claim.claim_name)
    );
    Fault::new(Reason::ClaimNotFound, message)
}
