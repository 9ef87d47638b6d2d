//! Checks whether a claim of a job can be mounted, and says what to do if not. Pure.

use contract::{Reason, Side};
use k8s_openapi::api::{core::v1::PersistentVolumeClaim, storage::v1::StorageClass};

use crate::{api::GROUP, fault::Fault};

/// A claim that a job names, and its object if it exists.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The end that uses it.
    pub side: Side,
    /// `namespace/name`.
    pub name: String,
    /// The object; `None` if it does not exist.
    pub found: Option<PersistentVolumeClaim>,
    /// The storage class; only of a claim that is unbound or is to grow.
    pub class: Class,
}

/// The state of a claim's storage class.
#[derive(Debug, Clone, Default)]
pub enum Class {
    /// Not read, because it is not needed or not readable.
    #[default]
    Unknown,
    /// The claim names a class that does not exist.
    Missing(String),
    /// The class.
    Found(Box<StorageClass>),
}

/// The reason why no run can start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blocked {
    /// Probably resolves by itself.
    Waiting(Fault),
    /// Needs a person to act.
    Stalled(Fault),
}

/// Returns whether a claim is for a raw block device instead of a file system; `None` if the claim does not exist.
pub fn is_block(claim: &Claim) -> Option<bool> {
    let mode = claim.found.as_ref()?.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref());
    Some(mode == Some("Block"))
}

/// Returns whether source and destination are folders of one claim.
pub fn is_one(claims: &[Claim]) -> bool {
    matches!(claims, [source, sink] if source.name == sink.name)
}

/// Checks that a pod can be created with this claim. A claim that waits for its first consumer passes, since the pod is
/// that consumer.
pub fn check(claim: &Claim) -> Result<(), Blocked> {
    match loss(claim) {
        Some(fault) => Err(Blocked::Stalled(fault)),
        None if phase(claim) == Some("Bound") => Ok(()),
        None => unbound(claim),
    }
}

/// A claim that runs cannot use, and why, until a person acts.
#[derive(Debug, Clone, PartialEq)]
pub struct LostClaim {
    /// The end that would use it.
    pub side: Side,
    /// The reason.
    pub fault: Fault,
}

/// Returns the fault of a claim that is missing, terminating or lost, which only a person can repair.
pub fn loss(claim: &Claim) -> Option<Fault> {
    let Some(found) = &claim.found else { return Some(missing(claim)) };
    if found.metadata.deletion_timestamp.is_some() {
        return Some(terminating(claim));
    }
    (phase(claim) == Some("Lost")).then(|| lost(claim))
}

fn phase(claim: &Claim) -> Option<&str> {
    claim.found.as_ref()?.status.as_ref()?.phase.as_deref()
}

fn unbound(claim: &Claim) -> Result<(), Blocked> {
    let name = described(claim);
    match &claim.class {
        // Its copy may be what this run would write to, so a pod that waits for it would wait for ever.
        _ if is_to_be_populated(claim) => Err(Blocked::Waiting(Fault::new(
            Reason::ClaimNotBound,
            format!(
                "{name} is to come up with a copy, and has not yet. If this lasts, `kubectl describe pvc` says why; a \
                 class with WaitForFirstConsumer needs a pod that uses the claim first."
            ),
        ))),
        Class::Missing(class) => Err(Blocked::Stalled(Fault::new(
            Reason::ClaimNotBound,
            format!(
                "{name} is not bound: its storage class {class} does not exist. Create the class, or make the claim \
                 anew with one that `kubectl get storageclass` lists."
            ),
        ))),
        Class::Found(class) if class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer") => Ok(()),
        // If the class could not be read, the pod is created; the scheduler then reports a claim that cannot be bound.
        Class::Unknown => Ok(()),
        Class::Found(class) => Err(Blocked::Waiting(Fault::new(
            Reason::ClaimNotBound,
            format!(
                "{name} is not bound yet; the provisioner {} of its storage class has not made a volume. If this \
                 lasts, `kubectl describe pvc` says why.",
                class.provisioner
            ),
        ))),
    }
}

/// Returns whether a claim names a SyncJob with whose copy the populator fills it.
fn is_to_be_populated(claim: &Claim) -> bool {
    let spec = claim.found.as_ref().and_then(|found| found.spec.as_ref());
    let origin = spec.and_then(|spec| spec.data_source_ref.as_ref());
    origin.is_some_and(|it| it.api_group.as_deref() == Some(GROUP))
}

fn missing(claim: &Claim) -> Fault {
    let side = field(claim.side);
    Fault::new(
        Reason::ClaimNotFound,
        format!(
            "{} does not exist. Create it, or correct spec.{side}.persistentVolumeClaim.claimName; the job goes on \
             as soon as the claim is there.",
            described(claim)
        ),
    )
}

fn terminating(claim: &Claim) -> Fault {
    Fault::new(
        Reason::ClaimTerminating,
        format!("{} is being deleted. Create it anew when it is gone, or name another.", described(claim)),
    )
}

fn lost(claim: &Claim) -> Fault {
    Fault::new(
        Reason::ClaimLost,
        format!("{} has lost its volume. Bring the volume back, or make the claim anew.", described(claim)),
    )
}

pub(super) fn described(claim: &Claim) -> String {
    format!("The {} claim {}", field(claim.side), claim.name)
}

/// Returns the field of the spec that describes an end.
pub(crate) fn field(side: Side) -> &'static str {
    match side {
        Side::Source => "source",
        Side::Sink => "destination",
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{PersistentVolumeClaimSpec, PersistentVolumeClaimStatus};

    use super::*;

    fn claim(phase: &str, class: Class) -> Claim {
        let status = PersistentVolumeClaimStatus { phase: Some(phase.into()), ..Default::default() };
        let found = PersistentVolumeClaim { status: Some(status), ..Default::default() };
        Claim { side: Side::Sink, name: "prod/copy".into(), found: Some(found), class }
    }

    fn class(mode: &str) -> Class {
        Class::Found(Box::new(StorageClass {
            volume_binding_mode: Some(mode.into()),
            provisioner: "example.com/p".into(),
            ..StorageClass::default()
        }))
    }

    fn fault(blocked: Blocked) -> (bool, Fault) {
        match blocked {
            Blocked::Stalled(fault) => (true, fault),
            Blocked::Waiting(fault) => (false, fault),
        }
    }

    #[test]
    fn a_bound_claim_is_fine_and_so_is_one_that_waits_for_a_pod() {
        assert_eq!(check(&claim("Bound", Class::Unknown)), Ok(()));
        assert_eq!(check(&claim("Pending", class("WaitForFirstConsumer"))), Ok(()));
        assert_eq!(check(&claim("Pending", Class::Unknown)), Ok(()));
    }

    #[test]
    fn a_missing_claim_is_named_with_the_field_to_correct() {
        let absent = Claim { found: None, ..claim("", Class::Unknown) };
        let (stalled, fault) = fault(check(&absent).unwrap_err());
        assert!(stalled);
        assert_eq!(fault.reason, "ClaimNotFound");
        assert!(fault.message.starts_with("The destination claim prod/copy does not exist."));
        assert!(fault.message.contains("spec.destination.persistentVolumeClaim.claimName"));
    }

    #[test]
    fn an_unbound_claim_waits_if_its_class_binds_at_once_and_stalls_if_there_is_no_such_class() {
        let (stalled, waiting) = fault(check(&claim("Pending", class("Immediate"))).unwrap_err());
        assert_eq!((stalled, waiting.reason.as_str()), (false, "ClaimNotBound"));
        assert!(waiting.message.contains("example.com/p"));
        let (stalled, missing) = fault(check(&claim("Pending", Class::Missing("fast".into()))).unwrap_err());
        assert_eq!((stalled, missing.reason.as_str()), (true, "ClaimNotBound"));
        assert!(missing.message.contains("storage class fast does not exist"));
    }

    #[test]
    fn a_claim_says_whether_it_is_for_a_device() {
        let mut block = claim("Bound", Class::Unknown);
        assert_eq!(is_block(&block), Some(false));
        let spec = PersistentVolumeClaimSpec { volume_mode: Some("Block".into()), ..Default::default() };
        block.found.as_mut().unwrap().spec = Some(spec);
        assert_eq!((is_block(&block), check(&block)), (Some(true), Ok(())));
        assert_eq!(is_block(&Claim { found: None, ..block }), None);
    }

    #[test]
    fn lost_and_terminating_claims_stall() {
        let mut deleted = claim("Bound", Class::Unknown);
        let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH);
        deleted.found.as_mut().unwrap().metadata.deletion_timestamp = Some(now);
        let cases = [(deleted, "ClaimTerminating"), (claim("Lost", Class::Unknown), "ClaimLost")];
        for (claim, reason) in cases {
            let (stalled, fault) = fault(check(&claim).unwrap_err());
            assert_eq!((stalled, fault.reason.as_str()), (true, reason));
        }
    }
}
