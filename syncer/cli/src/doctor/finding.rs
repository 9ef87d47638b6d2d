//! The findings of a diagnosis, for people and for programs.

use contract::ExitCode;
use schemars::JsonSchema;
use serde::Serialize;

/// The importance of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum Severity {
    /// All is as it should be.
    Ok,
    /// Information.
    Note,
    /// A run works, but leaves something out or may fail later.
    Warning,
    /// A run fails.
    Error,
}

/// The subject of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum Check {
    /// The file system, and the ones that are mounted in it.
    Volume,
    /// Reading or writing.
    Access,
    /// Room for files.
    FreeSpace,
    /// The clock of the file system.
    Clock,
    /// Whether names that differ only in case are different.
    CaseFolding,
    /// Extended attributes.
    Xattrs,
    /// Access control lists.
    Acls,
    /// Hard links.
    HardLinks,
    /// Modification times.
    Times,
    /// Permission bits.
    Permissions,
    /// Owners and groups.
    Ownership,
    /// Files that share blocks (reflinks).
    Reflinks,
    /// Volferry's own folder at the destination.
    OwnFolder,
    /// The list of the snapshots at the destination.
    Snapshots,
    /// Other file systems inside a folder.
    Mounts,
    /// The buffers of UDP sockets.
    UdpBuffers,
    /// The connection to the other end.
    Link,
    /// A dry run.
    DryRun,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Finding {
    /// The subject of the check.
    pub(super) check: Check,
    /// Its importance.
    pub(super) severity: Severity,
    /// The finding, for people.
    pub(super) message: String,
    /// The next step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hint: Option<String>,
}

impl Finding {
    /// Makes a finding that is as it should be.
    pub(super) fn ok(check: Check, message: String) -> Self {
        Self { check, severity: Severity::Ok, message, hint: None }
    }

    /// Makes a finding that the user has to know, with the next step.
    pub(super) fn new(check: Check, severity: Severity, message: String, hint: &str) -> Self {
        Self { check, severity, message, hint: Some(hint.into()) }
    }
}

/// All findings.
#[derive(Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Diagnosis {
    /// In the order of the checks.
    pub(super) findings: Vec<Finding>,
}

impl Diagnosis {
    /// Returns 0 if a run would keep everything, 3 if it would leave something out, 1 if it would fail.
    pub(super) fn exit(&self) -> ExitCode {
        match self.findings.iter().map(|finding| finding.severity).max() {
            Some(Severity::Error) => ExitCode::Failed,
            Some(Severity::Warning) => ExitCode::Partial,
            Some(Severity::Note | Severity::Ok) | None => ExitCode::Done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_finding_decides_the_exit_code() {
        let of = |severities: &[Severity]| {
            let finding = |severity: &Severity| Finding::new(Check::Volume, *severity, "m".into(), "h");
            Diagnosis { findings: severities.iter().map(finding).collect() }.exit()
        };
        assert_eq!(of(&[]), ExitCode::Done);
        assert_eq!(of(&[Severity::Ok, Severity::Note]), ExitCode::Done);
        assert_eq!(of(&[Severity::Warning, Severity::Note]), ExitCode::Partial);
        assert_eq!(of(&[Severity::Warning, Severity::Error, Severity::Ok]), ExitCode::Failed);
    }
}
