//! Finds the folders that stand for the claims of a manifest, and refuses those that overlap or stand for none.

use std::{
    os::unix::fs::FileTypeExt as _,
    path::{Path, PathBuf},
};

use super::{
    args::{LocalArgs, LocalError},
    manifest::Manifest,
};
use crate::{ends::end_kind::EndKind, engine::Folder, spec::validate::ValidatedSyncJob};

/// Refuses a folder that stands for no claim: its name is probably misspelt.
pub(super) fn refuse_unknown_claims(
    jobs: &[Manifest],
    volumes: &[(String, String)],
) -> Result<(), LocalError> {
    let ends = || jobs.iter().flat_map(|it| [&it.job.ends.source, &it.job.ends.sink]);
    let is_known = |claim: &str| ends().filter_map(EndKind::mounted).any(|of| of.claim.name == claim);
    let unknown = volumes.iter().find(|(claim, _)| !is_known(claim));
    unknown.map_or(Ok(()), |(claim, _)| Err(LocalError::NoClaim(claim.clone())))
}

/// The folders of the two ends of a job.
pub(super) struct Folders {
    pub(super) source: Folder,
    pub(super) destination: Folder,
}

impl Folders {
    pub(super) fn of(job: &ValidatedSyncJob, args: &LocalArgs) -> Result<Self, LocalError> {
        let folder = |of: &EndKind| {
            let of = of.mounted().ok_or_else(|| LocalError::Endpoint(job.name.clone()))?;
            let claim = &of.claim.name;
            let named = args.volumes.iter().find(|(name, _)| name == claim);
            let (_, dir) = named.ok_or_else(|| LocalError::NoVolume(claim.clone()))?;
            Ok::<_, LocalError>(Folder { volume: dir.clone(), path: of.folder.as_str().into() })
        };
        let folders = Self { source: folder(&job.ends.source)?, destination: folder(&job.ends.sink)? };
        folders.refuse_overlap(job).map(|()| folders)
    }

    /// Fails if one folder contains the other, since the copy would nest one level deeper in each run. For a folder
    /// that does not exist yet, its nearest existing ancestor is checked.
    fn refuse_overlap(&self, job: &ValidatedSyncJob) -> Result<(), LocalError> {
        let (Some(source), Some(destination)) = (real_path(&self.source), real_path(&self.destination))
        else {
            return Ok(());
        };
        if source.starts_with(&destination) || destination.starts_with(&source) {
            Err(LocalError::SameFolder {
                job: job.name.clone(),
                source_dir: source,
                destination_dir: destination,
            })
        } else {
            Ok(())
        }
    }

    /// Returns whether an end is a block device, so that a file at the other end is a disk image.
    pub(super) fn has_device(&self) -> bool {
        let is_device = |folder: &Folder| {
            std::fs::metadata(&folder.volume).is_ok_and(|found| found.file_type().is_block_device())
        };
        is_device(&self.source) || is_device(&self.destination)
    }
}

/// Returns the path of a folder with the symbolic links of its existing part resolved.
fn real_path(folder: &Folder) -> Option<PathBuf> {
    let path = Path::new(&folder.volume).join(folder.path.trim_start_matches('/'));
    let there = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    let (above, real) = there?;
    Some(real.join(path.strip_prefix(above).ok()?))
}
