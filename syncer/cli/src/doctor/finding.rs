//! The words of a diagnosis, for people and for programs.

use contract::ExitCode;
use schemars::JsonSchema;
use serde::Serialize;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum Severity {
    /// As it should be.
    Ok,
    /// Good to know.
    Note,
    /// A run works, and leaves something out or may fail later.
    Warning,
    /// A run fails.
    Error,
}

/// What was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) enum Check {
    /// A file system, and what is mounted in it.
    Volume,
    /// Reading or writing.
    Access,
    /// Room for files.
    FreeSpace,
    /// The clock of the file system.
    Clock,
    /// Names that differ in case only.
    CaseFolding,
    /// Extended attributes.
    Xattrs,
    /// Access control lists.
    Acls,
    /// Several names of one file.
    HardLinks,
    /// Modification times.
    Times,
    /// Permission bits.
    Permissions,
    /// Owners and groups.
    Ownership,
    /// Files that share blocks.
    Reflinks,
    /// Volferry's own folder at the destination.
    OwnFolder,
    /// Other file systems inside of a folder.
    Mounts,
    /// The buffers of UDP sockets.
    UdpBuffers,
    /// The way to the other end.
    Link,
    /// A dry run.
    DryRun,
}

/// One thing that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub(super) struct Finding {
    /// What was looked at.
    pub(super) check: Check,
    /// How much it matters.
    pub(super) severity: Severity,
    /// What was found, for people.
    pub(super) message: String,
    /// What to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hint: Option<String>,
}

impl Finding {
    /// Something that is as it should be.
    pub(super) fn ok(check: Check, message: String) -> Self {
        Self { check, severity: Severity::Ok, message, hint: None }
    }

    /// Something that the user has to know, with what to do.
    pub(super) fn new(check: Check, severity: Severity, message: String, hint: &str) -> Self {
        Self { check, severity, message, hint: Some(hint.into()) }
    }
}

/// Everything that was found.
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
