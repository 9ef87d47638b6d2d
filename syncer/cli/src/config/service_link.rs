//! The link to a folder of a service.

use std::{ffi::OsString, os::unix::ffi::OsStringExt as _};

use contract::{FolderAccess, FolderRequest, RunParams, Side};
use syncer::{path::RelPath, session::LinkMode};

use super::{config_error::ConfigError, link_config::LinkConfig};
use crate::{
    flags::{CONNECT_TIMEOUT, RemoteFlags, folder_below},
    link_to_service::Asks,
    remote::place::{PlaceError, ServicePlace},
};

/// What to do with a list that no service takes.
const TOO_MANY_PATHS: &str = "its list has more than 131,072 paths, so divide it among several runs";

/// Makes the link to a folder of a service, which is asked for a run that reads or writes.
pub(super) fn ask(
    place: ServicePlace,
    below: Option<RelPath>,
    access: FolderAccess,
    params: &mut RunParams,
    remote: RemoteFlags,
) -> Result<LinkConfig, ConfigError> {
    check_for_service(&remote, params, access)?;
    let RemoteFlags { shell, link, identity, service_key, .. } = remote;
    let connect_timeout = shell.connect_timeout.unwrap_or(CONNECT_TIMEOUT);
    let reads = access == FolderAccess::Read;
    let below = below.map(|below| String::from_utf8(below.as_bytes().to_vec())).transpose();
    let below = below.map_err(|path| PlaceError::NotUtf8(OsString::from_vec(path.into_bytes()).into()))?;
    let path = [place.path.clone()].into_iter().chain(below).filter(|path| !path.is_empty());
    let mut path = path.collect::<Vec<_>>().join("/");
    // A file that is sent may be meant for a folder of this name, which the service does not make.
    if reads && path.len() > 1 && path.ends_with('/') {
        path.pop();
    }
    folder_below(&path).map_err(|why| place.wrong_path(&path, &why))?;
    let paths = params.files_from.take_if(|_| reads).map(|list| list.paths);
    if paths.as_ref().is_some_and(|paths| paths.len() > FolderRequest::MAX_PATHS) {
        return Err(ConfigError::NotForService("--files-from", TOO_MANY_PATHS));
    }
    let request = FolderRequest {
        folder: place.folder.clone(),
        path,
        access,
        source_snapshot: params.source_snapshot.take_if(|_| reads),
        params: if reads { params.clone() } else { RunParams::default() },
        paths,
        history: None,
    };
    let side = if reads { Side::Sink } else { Side::Source };
    let mode = link.map_or(LinkMode::Auto, LinkMode::from);
    Ok(LinkConfig::Asks(Box::new(Asks {
        place,
        mode,
        side,
        identity,
        service_key,
        connect_timeout,
        request,
    })))
}

/// Refuses flags that a run with a folder of a service cannot have.
fn check_for_service(
    remote: &RemoteFlags,
    params: &RunParams,
    access: FolderAccess,
) -> Result<(), ConfigError> {
    const OWNERS: &str = "its owner decides that, in the service's configuration, so leave it out";
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
        ("--remove-source-files", params.remove_source_files && !writes, OWNERS),
        ("--changed-blocks", params.changed_blocks.is_some() && !writes, OWNERS),
        ("--chmod", params.chmod.is_some() && !writes, OWNERS),
        ("--chown", params.chown.is_some() && !writes, OWNERS),
        ("--trust-store", params.trust_store && !writes, OWNERS),
        ("--snapshot", params.demands.snapshot.is_some() && writes, OWNERS),
        ("--backup-dir", params.demands.backup_dir.is_some() && writes, OWNERS),
        ("--other-source", params.demands.other_source.is_some() && writes, OWNERS),
    ];
    match given.into_iter().find(|(_, is_given, _)| *is_given) {
        Some((flag, _, why)) => Err(ConfigError::NotForService(flag, why)),
        None => Ok(()),
    }
}
