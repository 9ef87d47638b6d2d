//! What the access modes of a claim allow: whether several pods may use it at once, and on which nodes. Pure.

use contract::Side;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;

/// How several pods may use a claim at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// On any nodes.
    Anywhere,
    /// All on one node, whichever that is.
    OneNode,
    /// Not at all.
    OnePod,
}

/// Returns how the pods of that side may share the claim. Unknown access modes are left to Kubernetes to enforce.
pub fn sharing(claim: &PersistentVolumeClaim, side: Side) -> Sharing {
    let has = |mode: &str| modes(claim).iter().any(|it| it == mode);
    if is_for_many_nodes(claim, side) {
        Sharing::Anywhere
    } else if has("ReadWriteOnce") {
        Sharing::OneNode
    } else if has("ReadWriteOncePod") {
        Sharing::OnePod
    } else {
        Sharing::Anywhere
    }
}

/// Returns whether pods on any nodes may use the claim for that side at once.
pub fn is_for_many_nodes(claim: &PersistentVolumeClaim, side: Side) -> bool {
    let has = |mode: &str| modes(claim).iter().any(|it| it == mode);
    has("ReadWriteMany") || (side == Side::Source && has("ReadOnlyMany"))
}

/// Returns whether the claim may be used by several pods, but only on one node.
pub fn ties(claim: &PersistentVolumeClaim) -> bool {
    let modes = modes(claim);
    !modes.is_empty() && modes.iter().all(|mode| mode == "ReadWriteOnce")
}

fn modes(claim: &PersistentVolumeClaim) -> &[String] {
    let granted = claim.status.as_ref().and_then(|status| status.access_modes.as_deref());
    let wanted = || claim.spec.as_ref().and_then(|spec| spec.access_modes.as_deref());
    granted.or_else(wanted).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn claim(modes: &[&str]) -> PersistentVolumeClaim {
        serde_json::from_value(json!({"metadata": {"name": "data"}, "spec": {"accessModes": modes}})).unwrap()
    }

    #[test]
    fn a_claim_ties_its_pods_to_one_node_only_if_no_mode_is_for_many_nodes_or_one_pod() {
        assert!(ties(&claim(&["ReadWriteOnce"])));
        for modes in [&["ReadWriteMany"][..], &["ReadWriteOnce", "ReadOnlyMany"], &["ReadWriteOncePod"], &[]]
        {
            assert!(!ties(&claim(modes)), "{modes:?}");
        }
    }

    #[test]
    fn pods_share_a_claim_as_its_modes_allow() {
        let cases = [
            (&["ReadWriteMany"][..], Side::Sink, Sharing::Anywhere),
            (&["ReadWriteOnce", "ReadWriteMany"], Side::Sink, Sharing::Anywhere),
            (&["ReadWriteOnce"], Side::Sink, Sharing::OneNode),
            (&["ReadWriteOnce", "ReadOnlyMany"], Side::Sink, Sharing::OneNode),
            (&["ReadWriteOnce", "ReadOnlyMany"], Side::Source, Sharing::Anywhere),
            (&["ReadOnlyMany"], Side::Source, Sharing::Anywhere),
            (&["ReadWriteOncePod"], Side::Source, Sharing::OnePod),
            (&["ReadWriteOncePod"], Side::Sink, Sharing::OnePod),
        ];
        for (modes, side, expected) in cases {
            assert_eq!(sharing(&claim(modes), side), expected, "{modes:?} {side}");
        }
    }
}
