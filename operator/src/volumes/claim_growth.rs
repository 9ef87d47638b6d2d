//! Expands a destination's claim that is smaller than `spec.destination.create` asks for. Pure.

use contract::{Reason, Side};
use k8s_openapi::{
    api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimStatus},
    apimachinery::pkg::api::resource::Quantity,
};
use kube::ResourceExt as _;

use super::claims::{Blocked, Claim, Class};
use crate::{
    api::CreateClaim,
    fault::Fault,
    human::{clipped, sentence},
};

/// The maximum length of a volume resizer's message in a status, in bytes.
const MAX_WORDS_BYTES: usize = 1024;

/// A claim that has to grow.
#[derive(Debug, Clone, PartialEq)]
pub struct Growing {
    /// The current claim.
    pub claim: PersistentVolumeClaim,
    /// The size that it requests now.
    pub from: Quantity,
    /// The size that it has to request.
    pub to: Quantity,
}

/// What a destination's claim needs before a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Growth {
    /// Nothing: it is large enough, or may not grow.
    Unneeded,
    /// It has to request a larger size.
    Due(Box<Growing>),
    /// It requests enough, but the expansion is not complete; or it cannot grow.
    Blocked(Blocked),
}

/// Returns the destination's claim if it is bound and too small for the spec's size, or else for the size of the
/// source's claim.
pub fn wanted(create: Option<&CreateClaim>, claims: &[Claim]) -> Option<Growing> {
    let Growable { claim, size: to } = growable(create, claims)?;
    let from = requested(&claim)?;
    let is_smaller = bytes(&from)? < bytes(&to)? && capacity(&claim) < bytes(&to);
    is_smaller.then_some(Growing { claim, from, to })
}

/// Judges the destination's claim. If it has to grow, its storage class must have been read.
pub fn judge(create: Option<&CreateClaim>, claims: &[Claim]) -> Growth {
    if let Some(growing) = wanted(create, claims) {
        let class = claims.iter().find(|claim| claim.side == Side::Sink).map(|claim| &claim.class);
        return match class.and_then(obstacle) {
            Some(obstacle) => Growth::Blocked(Blocked::Stalled(refused(&growing, &obstacle))),
            None => Growth::Due(Box::new(growing)),
        };
    }
    let Some(Growable { claim, size }) = growable(create, claims) else { return Growth::Unneeded };
    let status = claim.status.clone().unwrap_or_default();
    if capacity(&claim) >= bytes(&size) || waits_for_pod(&status) {
        return Growth::Unneeded;
    }
    Growth::Blocked(under_way(&claim, &size, &status))
}

/// Returns the status message about the expansion.
pub fn announced(growing: &Growing) -> Fault {
    let Growing { claim, from, to } = growing;
    let message = format!("The destination claim {} grows from {} to {}.", claim.name_any(), from.0, to.0);
    Fault::new(Reason::ClaimGrows, message)
}

/// A claim that may grow, and the size that it should have.
struct Growable {
    claim: PersistentVolumeClaim,
    size: Quantity,
}

/// Returns the destination's claim, if the spec allows it to grow.
fn growable(create: Option<&CreateClaim>, claims: &[Claim]) -> Option<Growable> {
    let create = create.filter(|create| create.grow)?;
    let of = |side| claims.iter().find(|claim| claim.side == side)?.found.as_ref();
    let sink = of(Side::Sink).filter(|claim| is_bound(claim))?;
    let size = create.size.clone().map(Quantity).or_else(|| requested(of(Side::Source)?))?;
    Some(Growable { claim: sink.clone(), size })
}

fn is_bound(claim: &PersistentVolumeClaim) -> bool {
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    phase == Some("Bound") && claim.metadata.deletion_timestamp.is_none()
}

fn requested(claim: &PersistentVolumeClaim) -> Option<Quantity> {
    claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?.get("storage").cloned()
}

/// Returns the capacity of a volume in bytes. If the claim's status does not state it, the requested size is assumed.
fn capacity(claim: &PersistentVolumeClaim) -> Option<u128> {
    let said = claim.status.as_ref().and_then(|status| status.capacity.as_ref()?.get("storage").cloned());
    bytes(&said.or_else(|| requested(claim))?)
}

/// Returns why a storage class prevents the expansion; `None` if it does not.
fn obstacle(class: &Class) -> Option<String> {
    match class {
        Class::Found(class) if class.allow_volume_expansion != Some(true) => {
            let name = class.name_any();
            Some(format!("its storage class {name} does not allow that (allowVolumeExpansion)"))
        }
        Class::Missing(name) => Some(format!("its storage class {name} does not exist any more")),
        _ => None,
    }
}

fn refused(growing: &Growing, obstacle: &str) -> Fault {
    let Growing { claim, from, to } = growing;
    let name = claim.name_any();
    Fault::new(
        Reason::ClaimTooSmall,
        format!(
            "The destination claim {name} asks for {} and is to grow to {}, and {obstacle}. Set allowVolumeExpansion of the class \
             to true if its driver can expand volumes, name a larger claim in another SyncJob, or set \
             spec.destination.create.grow to false to go on with the claim as it is.",
            from.0, to.0
        ),
    )
}

/// Returns whether the expansion only lacks the step on the node, which needs a pod that mounts the volume.
fn waits_for_pod(status: &PersistentVolumeClaimStatus) -> bool {
    let conditions = status.conditions.iter().flatten();
    let is_told = conditions.filter(|it| it.status == "True").any(|it| it.type_ == "FileSystemResizePending");
    is_told || ["NodeResizePending", "NodeResizeInProgress"].contains(&resize_of(status))
}

fn resize_of(status: &PersistentVolumeClaimStatus) -> &str {
    let statuses = status.allocated_resource_statuses.as_ref();
    statuses.and_then(|statuses| statuses.get("storage")).map_or("", String::as_str)
}

/// Returns why a claim that requests enough has not been expanded yet.
fn under_way(
    claim: &PersistentVolumeClaim,
    wanted: &Quantity,
    status: &PersistentVolumeClaimStatus,
) -> Blocked {
    let name = claim.name_any();
    let failed = ["ControllerResizeError", "NodeResizeError"];
    let mut conditions = status.conditions.iter().flatten().filter(|it| it.status == "True");
    let words = conditions.find(|it| failed.contains(&&*it.type_)).and_then(|it| it.message.as_deref());
    let words =
        words.map(|words| format!(" {}", sentence(&clipped(words, MAX_WORDS_BYTES)))).unwrap_or_default();
    if resize_of(status).ends_with("Infeasible") {
        let message = format!(
            "The destination claim {name} cannot grow to {}: its driver says that this is infeasible.{words} Name a larger claim \
             in another SyncJob, or set spec.destination.create.grow to false to go on with the claim as it is.",
            wanted.0
        );
        return Blocked::Stalled(Fault::new(Reason::ClaimTooSmall, message));
    }
    let message = format!(
        "The destination claim {name} grows to {}; a run begins once the volume has that size.{words} If this lasts, `kubectl \
         describe pvc {name}` says why.",
        wanted.0
    );
    Blocked::Waiting(Fault::new(Reason::ClaimGrows, message))
}

/// Returns the larger of two sizes; the first if one cannot be read.
pub(crate) fn larger(a: Quantity, b: Quantity) -> Quantity {
    if bytes(&a).is_some() && bytes(&b) > bytes(&a) { b } else { a }
}

/// Parses a quantity of bytes, rounded up; `None` if it is not valid.
fn bytes(quantity: &Quantity) -> Option<u128> {
    const UNITS: [(&str, f64); 13] = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("Pi", 1_125_899_906_842_624.0),
        ("Ei", 1_152_921_504_606_846_976.0),
        ("m", 1e-3),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
        ("E", 1e18),
    ];
    let text = quantity.0.as_str();
    let unit = UNITS.iter().find_map(|(name, unit)| Some((text.strip_suffix(name)?, *unit)));
    let (number, unit) = unit.unwrap_or((text, 1.0));
    let bytes = (number.parse::<f64>().ok()? * unit).ceil();
    (bytes.is_finite() && bytes >= 0.0).then_some(bytes as u128)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn create(grow: bool, size: Option<&str>) -> CreateClaim {
        CreateClaim { grow, size: size.map(Into::into), ..CreateClaim::default() }
    }

    fn claim(side: Side, size: &str, status: &Value) -> Claim {
        let spec = json!({"resources": {"requests": {"storage": size}}});
        let found = json!({"metadata": {"name": "to"}, "spec": spec, "status": status});
        let found = serde_json::from_value(found).unwrap();
        Claim { side, name: "prod/to".into(), found: Some(found), class: Class::Unknown }
    }

    /// Returns a source of 5Gi, and a destination that requests `size` and has `capacity`.
    fn claims(size: &str, capacity: &str, more: &Value) -> [Claim; 2] {
        let mut status = json!({"phase": "Bound", "capacity": {"storage": capacity}});
        status.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap_or_default());
        [claim(Side::Source, "5Gi", &json!({"phase": "Bound"})), claim(Side::Sink, size, &status)]
    }

    fn class(expands: Option<bool>) -> Class {
        let class =
            json!({"metadata": {"name": "fast"}, "provisioner": "p", "allowVolumeExpansion": expands});
        Class::Found(Box::new(serde_json::from_value(class).unwrap()))
    }

    fn stalled(growth: Growth) -> Fault {
        let Growth::Blocked(Blocked::Stalled(fault)) = growth else { panic!("{growth:?}") };
        fault
    }

    #[test]
    fn a_claim_grows_to_the_size_in_the_spec_or_to_the_sources() {
        for (size, expected) in [(None, "5Gi"), (Some("3Gi"), "3Gi")] {
            let growth = judge(Some(&create(true, size)), &claims("1Gi", "1Gi", &json!({})));
            let Growth::Due(growing) = growth else { panic!("{growth:?}") };
            assert_eq!((growing.from.0.as_str(), growing.to.0.as_str()), ("1Gi", expected));
            let words = format!("The destination claim to grows from 1Gi to {expected}.");
            assert_eq!(announced(&growing).message, words);
        }
    }

    #[test]
    fn a_claim_is_left_alone_that_is_large_enough_or_not_to_grow_or_not_there() {
        let small = claims("1Gi", "1Gi", &json!({}));
        let unneeded = |create: Option<&CreateClaim>, claims: &[Claim]| {
            assert_eq!(judge(create, claims), Growth::Unneeded, "{create:?} {claims:?}");
        };
        unneeded(None, &small);
        unneeded(Some(&create(false, None)), &small);
        unneeded(Some(&create(true, None)), &claims("5120Mi", "5Gi", &json!({})));
        unneeded(Some(&create(true, None)), &claims("1Gi", "5Gi", &json!({})));
        unneeded(Some(&create(true, None)), &claims("1Gi", "1Gi", &json!({"phase": "Pending"})));
        let [source, sink] = small;
        unneeded(Some(&create(true, None)), &[source, Claim { found: None, ..sink }]);
    }

    #[test]
    fn a_class_that_does_not_allow_it_stalls_with_what_to_do() {
        let [source, mut sink] = claims("1Gi", "1Gi", &json!({}));
        for expands in [None, Some(false)] {
            sink.class = class(expands);
            let fault = stalled(judge(Some(&create(true, None)), &[source.clone(), sink.clone()]));
            assert_eq!(fault.reason, "ClaimTooSmall");
            for words in ["claim to asks for 1Gi", "class fast", "allowVolumeExpansion", "create.grow"] {
                assert!(fault.message.contains(words), "{words}: {}", fault.message);
            }
        }
        sink.class = class(Some(true));
        assert!(matches!(judge(Some(&create(true, None)), &[source, sink]), Growth::Due(_)));
    }

    #[test]
    fn a_run_waits_for_the_resizer_but_not_for_what_its_own_pod_does() {
        let judged = |more: Value| judge(Some(&create(true, None)), &claims("5Gi", "1Gi", &more));
        let failed = json!({"conditions": [{"type": "ControllerResizeError", "status": "True", "message": "no space"}]});
        for (more, words) in [(json!({}), "has that size. If"), (failed, "size. no space. If")] {
            let Growth::Blocked(Blocked::Waiting(fault)) = judged(more) else { panic!("{words}") };
            assert!(fault.reason == "ClaimGrows" && fault.message.contains(words), "{}", fault.message);
        }
        for more in [
            json!({"conditions": [{"type": "FileSystemResizePending", "status": "True"}]}),
            json!({"allocatedResourceStatuses": {"storage": "NodeResizePending"}}),
        ] {
            assert_eq!(judged(more.clone()), Growth::Unneeded, "{more}");
        }
        let fault =
            stalled(judged(json!({"allocatedResourceStatuses": {"storage": "ControllerResizeInfeasible"}})));
        assert!(fault.message.contains("infeasible"), "{}", fault.message);
    }

    #[test]
    fn sizes_are_compared_as_numbers() {
        let bytes = |text: &str| bytes(&Quantity(text.into()));
        for (text, expected) in [
            ("1024", Some(1024)),
            ("1Ki", Some(1024)),
            ("1.5Gi", Some(1_610_612_736)),
            ("2G", Some(2_000_000_000)),
            ("1e3", Some(1000)),
            ("1500m", Some(2)),
            ("", None),
            ("much", None),
            ("-1", None),
        ] {
            assert_eq!(bytes(text), expected, "{text}");
        }
        assert_eq!(bytes("0.1Gi"), bytes("107374182400m"));
    }
}
