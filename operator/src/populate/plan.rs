//! Decides the next step of a claim that is to come up filled with the copy of a SyncJob. Pure.
//!
//! A temporary claim is made beside it, and a SyncJob of its own restores the copy into that. Only then is the volume
//! given to the claim. Each step is recognised by what it left, so the populator may stop at any point.

use contract::{Reason, RunResult};
use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use kube::{Resource as _, ResourceExt as _};

use super::{
    choose_content::{self, Content, source},
    temporary_claim::{self, ANNOTATION_TOLD, is_of, selected_node},
};
use crate::{
    api::{SyncJob, conditions},
    fault::Fault,
    names::{
        ANNOTATION_POPULATED, ANNOTATION_POPULATED_CLAIM, ANNOTATION_SELECTED_NODE, POPULATED_EMPTY,
        populated_from,
    },
};

/// What is there.
#[derive(Debug, Clone, Copy)]
pub struct ClaimSituation<'a> {
    /// The claim.
    pub claim: &'a PersistentVolumeClaim,
    /// Whether its class waits for the first consumer.
    pub is_lazy: bool,
    /// The SyncJob that it names.
    pub job: Option<&'a SyncJob>,
    /// The claim that this SyncJob writes to.
    pub copy: Option<&'a PersistentVolumeClaim>,
    /// The temporary claim.
    pub temporary: Option<&'a PersistentVolumeClaim>,
    /// The latest warning about a temporary claim without a volume.
    pub warning: Option<&'a str>,
    /// The SyncJob that fills it.
    pub filler: Option<&'a SyncJob>,
    /// The volume of the temporary claim.
    pub volume: Option<&'a PersistentVolume>,
}

/// The annotations that a step sets, or removes where there is no value.
pub type Annotations = Vec<(&'static str, Option<String>)>;

/// The next step.
#[derive(Debug, Clone, PartialEq)]
pub enum FillStep {
    /// Nothing is left to do.
    Done,
    /// Something has to happen first.
    Wait,
    /// A person has to act.
    Tell(Fault),
    /// Make the temporary claim.
    MakeClaim(Box<PersistentVolumeClaim>),
    /// Annotate the temporary claim.
    Mark(Annotations),
    /// Annotate the claim itself.
    MarkClaim(Annotations),
    /// Make the SyncJob that fills it.
    MakeFiller(Box<SyncJob>),
    /// Delete that SyncJob, whose pods hold the temporary claim.
    DropFiller,
    /// Give the volume to the claim.
    Rebind(Box<ObjectReference>),
    /// Delete the temporary claim.
    DropClaim,
}

/// Decides the next step.
pub fn next(at: ClaimSituation<'_>) -> FillStep {
    let ClaimSituation { claim, temporary, filler, .. } = at;
    if claim.metadata.deletion_timestamp.is_some() || source(claim).is_none() {
        return FillStep::Done;
    }
    let others = temporary.is_some_and(|it| !is_of(it, claim)) || filler.is_some_and(|it| !is_of(it, claim));
    if others {
        let name = temporary_claim::name(claim);
        let message = format!("A claim or SyncJob {name} is there and not the populator's: delete it.");
        return report(Reason::NameTaken, message);
    }
    if volume_of(claim).is_some() {
        return match (filler, temporary) {
            (Some(filler), _) => unless_going(filler, FillStep::DropFiller),
            (None, Some(temporary)) => unless_going(temporary, FillStep::DropClaim),
            (None, None) if populated_from(claim).is_some() => FillStep::Done,
            (None, None) => not_filled(claim),
        };
    }
    match temporary {
        None => begin(at),
        Some(temporary) if temporary.metadata.deletion_timestamp.is_some() => FillStep::Wait,
        Some(temporary) if !temporary_claim::is_like(temporary, claim) => {
            let name = temporary_claim::name(claim);
            let message =
                format!("The claim {name} asks for another volume than the one to be filled: delete it.");
            report(Reason::NameTaken, message)
        }
        Some(temporary) => node(at, temporary).unwrap_or_else(|| go_on(at, temporary)),
    }
}

/// Says of a claim that is bound already that nobody has filled it.
fn not_filled(claim: &PersistentVolumeClaim) -> FillStep {
    let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref()).unwrap_or_default();
    let message = format!(
        "The claim was bound before it was filled, so its volume may be empty: the provisioner of the class \"{class}\" \
         does not look at dataSourceRef. Make the claim anew with a class of a CSI driver, or restore into this one with \
         a SyncJob."
    );
    report(Reason::NotFilled, message)
}

/// Begins, once it is known where the volume has to be and that there is a copy.
fn begin(at: ClaimSituation<'_>) -> FillStep {
    let ClaimSituation { claim, is_lazy, .. } = at;
    if claim.spec.as_ref().is_some_and(|spec| spec.storage_class_name.is_none()) {
        let message = "The claim names no storage class, and the cluster has no default one: make it anew with a class \
                       that `kubectl get storageclass` lists, or make one the default.";
        return report(Reason::ClaimNotBound, message.into());
    }
    if is_lazy && selected_node(claim).is_none() {
        return FillStep::Wait;
    }
    let image = match content_of(at) {
        Ok(Content::Image(image)) => Some(image),
        Ok(_) => None,
        Err(fault) => return FillStep::Tell(fault),
    };
    FillStep::MakeClaim(Box::new(temporary_claim::claim(claim, image)))
}

/// Keeps the temporary claim on the node that the scheduler chose, and has it choose again if the provisioner refuses.
fn node(at: ClaimSituation<'_>, temporary: &PersistentVolumeClaim) -> Option<FillStep> {
    if !at.is_lazy || volume_of(temporary).is_some() {
        return None;
    }
    let told = temporary.annotations().get(ANNOTATION_TOLD).map(String::as_str);
    match (selected_node(at.claim), told, selected_node(temporary)) {
        (Some(node), Some(told), None) if node == told => {
            Some(FillStep::MarkClaim(vec![(ANNOTATION_SELECTED_NODE, None)]))
        }
        (Some(node), told, _) if told != Some(node) => {
            let node = Some(String::from(node));
            Some(FillStep::Mark(vec![(ANNOTATION_SELECTED_NODE, node.clone()), (ANNOTATION_TOLD, node)]))
        }
        (None, Some(_), _) => Some(FillStep::Mark(vec![(ANNOTATION_TOLD, None)])),
        _ => None,
    }
}

/// Fills the temporary claim, and gives its volume away.
fn go_on(at: ClaimSituation<'_>, temporary: &PersistentVolumeClaim) -> FillStep {
    let ClaimSituation { claim, filler, warning, .. } = at;
    if let Some(from) = temporary.annotations().get(ANNOTATION_POPULATED) {
        return match filler {
            Some(filler) => unless_going(filler, FillStep::DropFiller),
            None if populated_from(claim) != Some(from) => FillStep::MarkClaim(vec![
                (ANNOTATION_POPULATED, Some(from.clone())),
                (ANNOTATION_POPULATED_CLAIM, claim.uid()),
            ]),
            None => rebind(at, temporary),
        };
    }
    if volume_of(temporary).is_none() {
        let told = |warning| report(Reason::ClaimNotBound, format!("The storage makes no volume: {warning}"));
        return warning.map_or(FillStep::Wait, told);
    }
    let image = temporary.spec.as_ref().and_then(|spec| spec.data_source.as_ref());
    if let Some(image) = image {
        return mark(&image.name);
    }
    match filler {
        Some(filler) if filler.metadata.deletion_timestamp.is_some() => FillStep::Wait,
        Some(filler) => filled(at, filler, temporary),
        None => match content_of(at) {
            Ok(Content::Copy { job, snapshot, .. }) => {
                FillStep::MakeFiller(Box::new(temporary_claim::filler(claim, job, snapshot)))
            }
            Ok(Content::Endpoint(job)) => {
                FillStep::MakeFiller(Box::new(temporary_claim::filler_from_source(claim, job)))
            }
            // The volume was made empty before there was one.
            Ok(Content::Image(_)) => FillStep::DropClaim,
            Ok(Content::Nothing) => mark(POPULATED_EMPTY),
            Err(fault) => FillStep::Tell(fault),
        },
    }
}

fn content_of<'a>(at: ClaimSituation<'a>) -> Result<Content<'a>, Fault> {
    choose_content::choose(at.claim, at.job, at.copy)
}

/// Judges the SyncJob that fills the temporary claim. One that is older than the claim wrote to another, which somebody
/// has deleted: it is made anew.
fn filled(at: ClaimSituation<'_>, filler: &SyncJob, temporary: &PersistentVolumeClaim) -> FillStep {
    let Some(status) = &filler.status else { return FillStep::Wait };
    let is_current = status.observed_generation == filler.metadata.generation;
    let succeeded = status.last_run.as_ref().filter(|run| run.result == RunResult::Succeeded);
    if let Some(run) = succeeded.filter(|_| is_current && status.active_run.is_none()) {
        // Both times are the API server's.
        let is_of_claim = temporary.creation_timestamp() <= filler.creation_timestamp();
        return if is_of_claim { mark(&run.id) } else { unless_going(filler, FillStep::DropFiller) };
    }
    match conditions::find(&status.conditions, conditions::STALLED) {
        Some(stalled) if is_current && stalled.reason == *Reason::SnapshotNotFound => {
            not_found(at, filler, &stalled.message)
        }
        Some(stalled) if is_current => failed(filler, stalled.reason.as_str(), &stalled.message),
        _ => FillStep::Wait,
    }
}

/// Decides what follows when the volume does not have the snapshot.
fn not_found(at: ClaimSituation<'_>, filler: &SyncJob, message: &str) -> FillStep {
    match content_of(at) {
        // The newest one was dropped while the restore waited, or there is one by now.
        Ok(Content::Copy { snapshot, .. }) if snapshot != filler.spec.source.snapshot => FillStep::DropFiller,
        Ok(Content::Image(_)) => FillStep::DropFiller,
        Ok(Content::Copy { is_guess: true, .. }) if choose_content::takes_any(at.claim) => {
            match choose_content::nothing(at.claim) {
                Ok(_) => mark(POPULATED_EMPTY),
                Err(fault) => FillStep::Tell(fault),
            }
        }
        _ => failed(filler, Reason::SnapshotNotFound, message),
    }
}

fn failed(filler: &SyncJob, reason: impl Into<Reason>, message: &str) -> FillStep {
    let name = filler.name_any();
    report(
        reason,
        format!(
            "The claim cannot be filled: {message} The SyncJob {name} fills it; once the cause is gone, delete that, \
             and it is made anew."
        ),
    )
}

/// Gives a filled volume to the claim, unless somebody else has it.
fn rebind(at: ClaimSituation<'_>, temporary: &PersistentVolumeClaim) -> FillStep {
    let ClaimSituation { claim, volume, .. } = at;
    let Some(volume) = volume.filter(|it| volume_of(temporary) == Some(&*it.name_any())) else {
        return FillStep::Wait;
    };
    let holder = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref()?.uid.clone());
    if holder == claim.uid() {
        return FillStep::Wait;
    }
    if holder != temporary.uid() {
        let message = format!(
            "The volume {}, which was filled for the claim, has gone to another one.",
            volume.name_any()
        );
        return report(Reason::Failed, message);
    }
    FillStep::Rebind(Box::new(claim.object_ref(&())))
}

/// Notes that the volume of the temporary claim may be given away, and what it came from.
fn mark(from: &str) -> FillStep {
    FillStep::Mark(vec![(ANNOTATION_POPULATED, Some(from.into()))])
}

fn report(reason: impl Into<Reason>, message: String) -> FillStep {
    FillStep::Tell(Fault::new(reason, message))
}

fn unless_going(object: &impl kube::ResourceExt, step: FillStep) -> FillStep {
    if object.meta().deletion_timestamp.is_some() { FillStep::Wait } else { step }
}

fn volume_of(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.volume_name.as_deref().filter(|name| !name.is_empty())
}
