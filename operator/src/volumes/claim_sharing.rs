//! Checks whether as many pods as a run has can use its claims at once, by the claims' access modes. Pure.

use contract::Reason;

use super::{
    access_modes::{self, Sharing},
    claims::{Blocked, Claim, described, field, is_one},
};
use crate::fault::Fault;

/// Checks that this number of pods of one side can use the claim at once.
pub fn check_sharing(claim: &Claim, pods: u32) -> Result<(), Blocked> {
    let sharing = claim.found.as_ref().map(|found| access_modes::sharing(found, claim.side));
    match sharing {
        Some(Sharing::OnePod) if pods > 1 => Err(Blocked::Stalled(not_shared(claim, pods))),
        _ => Ok(()),
    }
}

/// Checks that two pods can use one claim at once, if it serves both ends and each has its own pod.
pub fn check_both_ends(claims: &[Claim], is_local: bool) -> Result<(), Blocked> {
    let Some(claim) = claims.last().filter(|_| is_one(claims) && !is_local) else { return Ok(()) };
    let sharing = claim.found.as_ref().map(|found| access_modes::sharing(found, claim.side));
    match sharing {
        Some(Sharing::OnePod) => Err(Blocked::Stalled(not_for_both_ends(claim))),
        _ => Ok(()),
    }
}

fn not_shared(claim: &Claim, pods: u32) -> Fault {
    let side = field(claim.side);
    Fault::new(
        Reason::ClaimNotShareable,
        format!(
            "{} has the access mode ReadWriteOncePod, which lets one pod use it, and spec.parallelism asks for {pods}. \
             Set spec.parallelism to 1, or name a claim in spec.{side}.persistentVolumeClaim that has ReadWriteMany, or \
             ReadWriteOnce, with which all pods run on one node.",
            described(claim)
        ),
    )
}

fn not_for_both_ends(claim: &Claim) -> Fault {
    Fault::new(
        Reason::ClaimNotShareable,
        format!(
            "The claim {} has the access mode ReadWriteOncePod, which lets one pod use it, and is both source and \
             destination, each of which has a pod of its own here. Set spec.transfer.placement to Local, or to Auto \
             without spec.transfer.bandwidthLimit, so that one pod does both; or name another claim.",
            claim.name
        ),
    )
}

#[cfg(test)]
mod tests {
    use contract::Side;
    use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec};

    use super::*;
    use crate::volumes::claims::Class;

    fn claim(side: Side, name: &str, mode: &str) -> Claim {
        let access_modes = Some(vec![mode.to_string()]);
        let spec = Some(PersistentVolumeClaimSpec { access_modes, ..Default::default() });
        let found = Some(PersistentVolumeClaim { spec, ..Default::default() });
        Claim { side, name: name.into(), found, class: Class::Unknown }
    }

    fn stalled(blocked: Blocked) -> Fault {
        match blocked {
            Blocked::Stalled(fault) => fault,
            Blocked::Waiting(fault) => panic!("{fault:?} waits"),
        }
    }

    #[test]
    fn a_claim_for_one_pod_is_refused_for_several_with_the_field_to_change() {
        let copy = |mode| claim(Side::Sink, "prod/copy", mode);
        assert_eq!(check_sharing(&copy("ReadWriteOncePod"), 1), Ok(()));
        let refused = stalled(check_sharing(&copy("ReadWriteOncePod"), 3).unwrap_err());
        assert_eq!(refused.reason, "ClaimNotShareable");
        assert!(refused.message.contains("prod/copy") && refused.message.contains("spec.parallelism"));
        for mode in ["ReadWriteOnce", "ReadWriteMany"] {
            assert_eq!(check_sharing(&copy(mode), 3), Ok(()));
        }
    }

    #[test]
    fn a_claim_for_one_pod_is_not_for_two_ends_with_a_pod_each() {
        let claims = |source: &str, mode: &str| {
            [claim(Side::Source, source, mode), claim(Side::Sink, "prod/copy", mode)]
        };
        let one = claims("prod/copy", "ReadWriteOncePod");
        let refused = stalled(check_both_ends(&one, false).unwrap_err());
        assert_eq!(refused.reason, "ClaimNotShareable");
        assert!(refused.message.contains("prod/copy") && refused.message.contains("spec.transfer.placement"));
        assert_eq!(check_both_ends(&one, true), Ok(()), "one pod has both");
        assert_eq!(check_both_ends(&one[1..], false), Ok(()), "the other is not known");
        for other in [claims("prod/copy", "ReadWriteOnce"), claims("prod/data", "ReadWriteOncePod")] {
            assert_eq!(check_both_ends(&other, false), Ok(()));
        }
    }
}
