//! Chooses the user, groups and capabilities of syncers.
//!
//! By default, a pod meets the restricted Pod Security Standard. If the namespace's owner allows syncers to run as
//! root, a sink may set foreign owners, and a source may read files that it does not own; the capabilities for that are
//! all within the baseline standard.

use contract::{Ownership, Reason, Report, RunResult, Side};
use k8s_openapi::api::core::v1::{Capabilities, PodSecurityContext, SeccompProfile, SecurityContext};

use crate::{api::PodSecurity, fault::Fault, names::ANNOTATION_PRIVILEGED};

/// The user and group of distroless images' `nonroot`, which nobody on the node has.
pub const NONROOT: i64 = 65_532;
/// The texts by which the kernel refuses what only root may do: `EACCES` and `EPERM`, without their first letters.
const REFUSALS: [&str; 2] = ["ermission denied", "peration not permitted"];

/// Returns whether the pods run as root: the namespace allows it, and the spec names no other user.
pub fn is_root(privileged: bool, wanted: &PodSecurity) -> bool {
    privileged && wanted.run_as_user.unwrap_or(0) == 0
}

/// Checks that pods with these settings are allowed, and can preserve owners if the spec requires that.
pub fn check(
    privileged: bool,
    wanted: &PodSecurity,
    ownership: Ownership,
    namespace: &str,
) -> Result<(), Fault> {
    let annotate = format!("annotate it with `{ANNOTATION_PRIVILEGED}: \"true\"`");
    let message = match (privileged, wanted.run_as_user) {
        (false, Some(0)) => format!(
            "spec.pods.securityContext.runAsUser is 0, and the namespace {namespace} does not let syncers run as root: {annotate}, or \
             name another user."
        ),
        (false, _) if ownership == Ownership::Always => format!(
            "spec.files.preserve.ownership is Always, which takes root, and the namespace {namespace} does not let syncers run as root: \
             {annotate}, or write Auto."
        ),
        (true, Some(1..)) if ownership == Ownership::Always => {
            "spec.files.preserve.ownership is Always, which takes root, and spec.pods.securityContext.runAsUser names another \
             user: remove runAsUser, or write Auto."
                .to_string()
        }
        _ => return Ok(()),
    };
    Err(Fault::new(Reason::RootNotAllowed, message))
}

/// Returns whether a try failed, or left files out, for lack of a permission that root has.
pub fn is_for_lack_of_root(report: &Report) -> bool {
    let errors = report.failures.iter().map(|failure| &failure.error).chain([&report.message]);
    let refused = |error: &String| REFUSALS.iter().any(|words| error.contains(words));
    report.result != RunResult::Succeeded && errors.into_iter().any(refused)
}

/// Returns the remedy for that, as a sentence. `namespaces` do not let syncers run as root.
pub fn remedy(namespaces: &[&str]) -> String {
    let which = namespaces.join(" and namespace ");
    format!(
        "The syncers do not run as root: to read and keep files of any owner, annotate the namespace {which} with \
         `{ANNOTATION_PRIVILEGED}: \"true\"`."
    )
}

/// The kind of user that a pod runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodUser {
    /// Root, with a few capabilities.
    Root,
    /// The user of the spec, or 65532.
    Fixed,
    /// The user of the spec, or else the one that the cluster's admission assigns.
    Assigned,
}

impl PodUser {
    /// Returns who a pod runs as in a namespace that allows root or not, and whose users the cluster assigns or not.
    pub fn of(privileged: bool, is_assigned: bool, wanted: &PodSecurity) -> Self {
        if is_root(privileged, wanted) {
            Self::Root
        } else if is_assigned {
            Self::Assigned
        } else {
            Self::Fixed
        }
    }
}

/// Returns the security context of the pod.
///
/// Without root, `fsGroup` makes new volumes writable. With root, it is not needed, and leaving it out keeps the
/// kubelet from changing the group of the destination's files. Where the cluster assigns users, only what the spec
/// names is set: admission would refuse users out of its range.
pub fn pod(user: PodUser, wanted: &PodSecurity) -> PodSecurityContext {
    let root = user == PodUser::Root;
    let default_group = (user == PodUser::Fixed).then_some(NONROOT);
    let run_as_user = if root { Some(0) } else { wanted.run_as_user.or(default_group) };
    let fs_group = wanted.fs_group.or(default_group);
    let supplemental = (!wanted.supplemental_groups.is_empty()).then(|| wanted.supplemental_groups.clone());
    PodSecurityContext {
        run_as_user,
        run_as_group: wanted.run_as_group.or(default_group),
        run_as_non_root: Some(!root),
        fs_group,
        fs_group_change_policy: fs_group.map(|_| "OnRootMismatch".into()),
        supplemental_groups: supplemental,
        se_linux_options: wanted.se_linux_options.clone(),
        seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".into(), ..SeccompProfile::default() }),
        ..PodSecurityContext::default()
    }
}

/// Replaces `fsGroup` by a supplemental group of the process, so that the kubelet changes no volume's ownership.
pub fn without_fs_group(mut pod: PodSecurityContext) -> PodSecurityContext {
    if let Some(group) = pod.fs_group.take() {
        let groups = pod.supplemental_groups.get_or_insert_default();
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    pod.fs_group_change_policy = None;
    pod
}

/// Returns the security context of the container.
pub fn container(root: bool, side: Side) -> SecurityContext {
    let needed: &[&str] = match (root, side) {
        (false, _) => &[],
        (true, Side::Source) => &["DAC_OVERRIDE"],
        (true, Side::Sink) => &["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "MKNOD", "SETFCAP"],
    };
    let add = (!needed.is_empty()).then(|| needed.iter().map(|name| (*name).to_string()).collect());
    SecurityContext {
        allow_privilege_escalation: Some(false),
        read_only_root_filesystem: Some(true),
        capabilities: Some(Capabilities { drop: Some(vec!["ALL".into()]), add }),
        ..SecurityContext::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(user: Option<i64>) -> PodSecurity {
        PodSecurity { run_as_user: user, ..PodSecurity::default() }
    }

    #[test]
    fn root_needs_the_namespaces_consent() {
        assert!(!is_root(false, &wanted(None)));
        assert!(!is_root(false, &wanted(Some(0))));
        assert!(is_root(true, &wanted(None)));
        assert!(!is_root(true, &wanted(Some(1000))));
        assert_eq!(
            check(false, &wanted(Some(0)), Ownership::Auto, "prod").unwrap_err().reason,
            "RootNotAllowed"
        );
        for (privileged, user) in [(true, Some(0)), (false, Some(1000)), (false, None)] {
            assert_eq!(check(privileged, &wanted(user), Ownership::Auto, "prod"), Ok(()));
        }
    }

    #[test]
    fn owners_that_have_to_be_kept_take_root_and_the_message_names_the_annotation() {
        assert_eq!(check(true, &wanted(None), Ownership::Always, "prod"), Ok(()));
        for user in [None, Some(1000)] {
            let fault = check(false, &wanted(user), Ownership::Always, "prod").unwrap_err();
            assert!(fault.message.contains("volferry.dev/privileged-syncers: \"true\""), "{}", fault.message);
            assert!(!fault.message.contains("--"), "{}", fault.message);
        }
        let fault = check(true, &wanted(Some(1000)), Ownership::Always, "prod").unwrap_err();
        assert!(fault.message.contains("remove runAsUser"), "{}", fault.message);
    }

    #[test]
    fn a_named_user_keeps_the_group_that_makes_the_identity_readable() {
        let pod = pod(PodUser::Fixed, &wanted(Some(1000)));
        assert_eq!(
            (pod.run_as_user, pod.fs_group, pod.run_as_non_root),
            (Some(1000), Some(NONROOT), Some(true))
        );
    }

    #[test]
    fn where_the_cluster_assigns_users_a_pod_names_only_those_of_the_spec() {
        let users = |privileged, wanted: &PodSecurity| {
            let pod = pod(PodUser::of(privileged, true, wanted), wanted);
            (pod.run_as_user, pod.run_as_group, pod.fs_group, pod.run_as_non_root)
        };
        assert_eq!(users(false, &wanted(None)), (None, None, None, Some(true)));
        let named = PodSecurity { run_as_group: Some(7), fs_group: Some(8), ..wanted(Some(1000)) };
        assert_eq!(users(false, &named), (Some(1000), Some(7), Some(8), Some(true)));
        assert_eq!(users(true, &wanted(None)), (Some(0), None, None, Some(false)));
    }

    #[test]
    fn root_leaves_the_volumes_group_alone() {
        let pod = pod(PodUser::Root, &wanted(None));
        assert_eq!((pod.run_as_user, pod.fs_group, pod.fs_group_change_policy), (Some(0), None, None));
    }

    #[test]
    fn a_source_that_runs_as_root_may_read_and_nothing_else() {
        let add = |side| container(true, side).capabilities.unwrap().add.unwrap();
        assert_eq!(add(Side::Source), ["DAC_OVERRIDE"]);
        assert!(add(Side::Sink).contains(&"CHOWN".to_string()));
        assert_eq!(container(false, Side::Sink).capabilities.unwrap().add, None);
    }
}
