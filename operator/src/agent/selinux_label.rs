//! Explains refusals of the kernel by the SELinux label that the syncer has, which only its own pod knows.

use contract::Report;

use crate::{human::sentence, pods::security};

/// Where a process finds the label that Linux' security module gives it.
pub(super) const OWN_LABEL: &str = "/proc/self/attr/current";

/// Adds what to do about the label of the files, if a try failed for lack of a permission in a pod that SELinux
/// confines.
#[must_use]
pub(super) fn explained(mut report: Report, label: Option<&str>) -> Report {
    let label = label.map(|it| it.trim_end_matches(['\0', '\n'])).filter(|it| is_of_selinux(it));
    let Some(label) = label.filter(|_| security::is_for_lack_of_root(&report)) else { return report };
    report.message = format!(
        "{} The syncer has the SELinux label {label}. If the label of the files ends otherwise (`ls -Z`), give the syncers \
         that end: spec.pods.securityContext.seLinuxOptions.level.",
        sentence(&report.message)
    );
    report
}

/// Returns whether a label is one of SELinux (user, role, type, level), and not a profile of `AppArmor`.
fn is_of_selinux(label: &str) -> bool {
    label.split(':').count() >= 4 && label.split(':').all(|part| !part.is_empty())
}

#[cfg(test)]
mod tests {
    use contract::RunResult;

    use super::*;

    #[test]
    fn a_refusal_names_the_label_where_there_is_one() {
        let said = |error: &str, label: Option<&str>| {
            let message = format!("cannot read /volume/a: {error}");
            let report = Report { result: RunResult::Failed, message, ..Report::default() };
            explained(report, label).message
        };
        let label = "system_u:system_r:container_t:s0:c1,c2\0";
        let message = said("Permission denied (os error 13)", Some(label));
        assert!(message.contains("SELinux label system_u:system_r:container_t:s0:c1,c2. If"), "{message}");
        for (error, label) in [
            ("No space left on device (os error 28)", Some(label)),
            ("Permission denied (os error 13)", Some("cri-containerd.apparmor.d (enforce)\n")),
            ("Permission denied (os error 13)", None),
        ] {
            assert!(!said(error, label).contains("SELinux"), "{error} {label:?}");
        }
    }
}
