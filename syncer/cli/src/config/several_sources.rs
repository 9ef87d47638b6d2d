//! The sources of one `volferry sync`, each of which gets its own name in the destination if there are several.

use std::{
    collections::HashSet,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use thiserror::Error;

use crate::{flags::SyncFlags, remote::place::Place};

/// Why several sources cannot be synced by one command.
#[derive(Debug, Error)]
pub(crate) enum SeveralError {
    #[error(
        "{} has no name that it could get in DST, which several sources share\nhint: leave out a slash at its end, or sync it alone",
        .0.display()
    )]
    NoName(PathBuf),
    #[error("{} has the name of another source, and would come to the same place in DST: sync it alone", .0.display())]
    SameName(PathBuf),
    #[error("{0} with several sources: it is for one, so leave it out, or sync each alone")]
    NotForSeveral(&'static str),
    #[error(
        "a list on standard input with several sources: it can be read once, so write it to a file, and name that"
    )]
    Input,
}

/// Returns each source with the flags of its run.
///
/// # Errors
/// If two of several would go to the same place, or a flag is for one.
pub(super) fn runs(mut sync: SyncFlags) -> Result<Vec<(PathBuf, SyncFlags)>, SeveralError> {
    let mut sources = std::mem::take(&mut sync.source);
    if sources.len() < 2 {
        return Ok(sources.pop().map(|source| (source, sync)).into_iter().collect());
    }
    if let Some(flag) = flag_of_one_source(&sync) {
        return Err(SeveralError::NotForSeveral(flag));
    }
    if sync.params.reads_input() {
        return Err(SeveralError::Input);
    }
    let mut names = HashSet::new();
    let run = |source: PathBuf| {
        let name = name_of(&source).ok_or_else(|| SeveralError::NoName(source.clone()))?;
        if !names.insert(name.clone()) {
            return Err(SeveralError::SameName(source));
        }
        let below = sync.destination_path.clone().unwrap_or_default();
        let below = below.join(&name).map_err(|_| SeveralError::NoName(source.clone()))?;
        Ok((source, SyncFlags { destination_path: Some(below), ..sync.clone() }))
    };
    sources.into_iter().map(run).collect()
}

/// Returns the last name of a source; `None` if it has none, or ends with a slash, by which rsync would take its
/// content only.
fn name_of(source: &Path) -> Option<Vec<u8>> {
    let text = source.as_os_str().as_bytes();
    let is_here = matches!(Place::read(source.into()), Ok(Place::Here(_)));
    let name = text.rsplit(|byte| *byte == b'/' || *byte == b':' && !is_here).next()?;
    (!matches!(name, b"" | b"." | b".." | b"~")).then(|| name.to_vec())
}

/// Returns the first flag that goes with one source only.
fn flag_of_one_source(sync: &SyncFlags) -> Option<&'static str> {
    let given = [
        ("--source-path", sync.source_path.is_some()),
        ("--source-snapshot", sync.source_snapshot.source_snapshot.is_some()),
        ("--files-from", sync.params.files_from.is_some()),
        ("--expect-volume", sync.params.expect_volume.is_some()),
        ("--shard", sync.params.shard.is_some()),
        ("--image", sync.params.image),
        ("--changed-blocks", sync.params.changed_blocks.is_some()),
        ("--snapshot", sync.snapshot.snapshot),
        ("--backup-dir", sync.backup.backup_dir.is_some()),
    ];
    given.into_iter().find(|(_, is_given)| *is_given).map(|(flag, _)| flag)
}
