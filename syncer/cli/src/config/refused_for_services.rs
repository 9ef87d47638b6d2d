//! Decides which flags and lists of paths a run with a folder of a service cannot have. Pure.

use contract::{FolderAccess, FolderRequest, RunParams};
use syncer::session::LinkMode;

use super::config_error::ConfigError;
use crate::flags::RemoteFlags;

/// What to do with a list that no service takes.
const TOO_MANY_PATHS: &str = "its list has more than 131,072 paths, so divide it among several runs";

/// Refuses flags that a run with a folder of a service cannot have.
pub(super) fn check_for_service(
    remote: &RemoteFlags,
    params: &RunParams,
    access: FolderAccess,
) -> Result<(), ConfigError> {
    const OWNERS: &str = "its owner decides that, in the service's configuration, so leave it out";
    const NO_READERS: &str = "a service does not do that for one who reads: leave it out, or reach the folder over ssh, as HOST:PATH";
    const BY_SSH: &str = "it is reached without ssh, so leave it out";
    const ALONE: &str =
        "it is for two folders of one machine, or for a pair of `send` and `receive`, so leave it out";
    let writes = access == FolderAccess::Write;
    let given = [
        ("--rsh", remote.shell.rsh.is_some(), BY_SSH),
        ("--remote-program", remote.shell.remote_program.is_some(), BY_SSH),
        ("--bootstrap", remote.shell.bootstrap, BY_SSH),
        ("--link ssh", remote.link.map(LinkMode::from) == Some(LinkMode::Ssh), BY_SSH),
        ("--snapshot-before", params.snapshot_before.is_some(), ALONE),
        ("--restore-path", !params.restore_paths.is_empty(), ALONE),
        ("--shard", params.shard.is_some_and(|shard| shard.count > 1), ALONE),
        ("--remove-source-files", params.remove_source_files && !writes, NO_READERS),
        ("--changed-blocks", params.changed_blocks.is_some() && !writes, NO_READERS),
        ("--chmod", params.chmod.is_some() && !writes, NO_READERS),
        ("--chown", params.chown.is_some() && !writes, NO_READERS),
        ("--trust-store", params.trust_store && !writes, NO_READERS),
        ("--snapshot", params.demands.snapshot.is_some() && writes, OWNERS),
        ("--backup-dir", params.demands.backup_dir.is_some() && writes, OWNERS),
        ("--other-source", params.demands.other_source.is_some() && writes, OWNERS),
    ];
    match given.into_iter().find(|(_, is_given, _)| *is_given) {
        Some((flag, _, why)) => Err(ConfigError::NotForService(flag, why)),
        None => Ok(()),
    }
}

/// Refuses a list of more paths than a service takes.
pub(super) fn check_paths(paths: &[Vec<u8>]) -> Result<(), ConfigError> {
    if paths.len() > FolderRequest::MAX_PATHS {
        return Err(ConfigError::NotForService("--files-from", TOO_MANY_PATHS));
    }
    Ok(())
}
