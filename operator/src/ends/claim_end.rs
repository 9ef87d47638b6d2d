//! The end of a job that is a folder of a claim, which the pods of the run mount. Pure.

use std::fmt;

use crate::{
    api::{ClaimReference, RunFolder},
    spec::{
        fields::{ValidationError, invalid},
        inner_folder::InnerFolder,
    },
};

/// A folder of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimEnd {
    /// The claim.
    pub claim: NamespacedClaim,
    /// The folder inside its volume.
    pub folder: InnerFolder,
    /// Whether the claim is for a raw block device, which has no folders. The spec does not say;
    /// [`block_volumes`](crate::volumes::block_volumes) asks the claim.
    pub is_block: bool,
}

/// A PersistentVolumeClaim in any namespace.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamespacedClaim {
    /// The claim's namespace.
    pub namespace: String,
    /// The claim's name.
    pub name: String,
}

impl ClaimEnd {
    /// Returns the folder of a claim that the spec of a SyncJob in the namespace `own` names in `field`.
    ///
    /// # Errors
    /// The path is no folder.
    pub fn parse(
        field: &str,
        claim: &ClaimReference,
        path: &str,
        own: &str,
    ) -> Result<Self, ValidationError> {
        let folder = InnerFolder::new(path).ok_or_else(|| {
            let problem = format!("`{path}` is not a folder inside the volume; write / or /data/uploads");
            invalid(format!("{field}.path"), problem)
        })?;
        let namespace = claim.namespace.clone().unwrap_or_else(|| own.into());
        let claim = NamespacedClaim { namespace, name: claim.claim_name.clone() };
        Ok(Self { claim, folder, is_block: false })
    }

    /// Returns whether a file can be in both folders.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.claim == other.claim && (self.folder.holds(&other.folder) || other.folder.holds(&self.folder))
    }

    /// Returns the folder as runs and statuses record it, given the namespace of the SyncJob.
    pub fn run_folder(&self, own: &str) -> RunFolder {
        RunFolder {
            claim_name: self.claim.name.clone(),
            namespace: self.claim.namespace_from(own),
            path: self.folder.as_str().into(),
            ..RunFolder::default()
        }
    }
}

impl NamespacedClaim {
    /// Returns the claim's namespace, unless it is that of its job.
    pub fn namespace_from(&self, job: &str) -> Option<String> {
        (self.namespace != job).then(|| self.namespace.clone())
    }
}

impl fmt::Display for NamespacedClaim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
