//! The link to a folder of a service.

use std::{ffi::OsString, os::unix::ffi::OsStringExt as _};

use contract::{FolderAccess, FolderRequest, RunParams, Side};
use syncer::{path::RelPath, session::LinkMode};

use super::{
    config_error::ConfigError,
    link_config::LinkConfig,
    refused_for_services::{check_for_service, check_paths},
};
use crate::{
    flags::{CONNECT_TIMEOUT, RemoteFlags, folder_below},
    link_to_service::Asks,
    remote::place::{PlaceError, ServicePlace},
};

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
    check_paths(paths.as_deref().unwrap_or_default())?;
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
