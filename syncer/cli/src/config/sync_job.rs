//! The runs of `volferry sync`, whose ends are on this machine, or one of them on another.

use std::path::PathBuf;

use contract::{Demands, FolderAccess, RunParams, Side};
use syncer::{path::RelPath, root::TreeLocation, session::LinkMode};

use super::{
    config_error::ConfigError,
    job::Job,
    run_params::{check_params, params},
    service_link::ask,
};
use crate::{
    flags::{CONNECT_TIMEOUT, RemoteFlags, ShellFlags, SyncFlags},
    remote::{
        near_end::{self, FarEnd},
        place::{Place, RemotePlace},
    },
};

/// Resolves the flags of `volferry sync`, whose ends are on this machine, or one of them on another.
pub(super) fn sync_job(source: PathBuf, sync: SyncFlags) -> Result<Job, ConfigError> {
    if sync.key.key_file.is_some() {
        return Err(ConfigError::KeyOfNoBucket);
    }
    let (source, destination) = (Place::read(source)?, Place::read(sync.destination)?);
    let history = sync.params.history;
    let demands = Demands { snapshot: sync.snapshot.into(), history, ..Demands::default() };
    let demands = sync.backup.add_to(demands);
    let (snapshot_before, restore_paths) = (sync.snapshot_before, sync.restore_paths);
    let params = sync.source_snapshot.add_to(params(sync.params)?);
    let compression = sync.remote.compression.unwrap_or_default();
    let params = RunParams { demands, snapshot_before, restore_paths, compression, ..params };
    let mut params = check_params(params)?;
    let (from, to, remote) = (sync.source_path, sync.destination_path, sync.remote);
    Ok(match (source, destination) {
        (Place::Here(source), Place::Here(destination)) => {
            check_no_remote(&remote)?;
            Job::Sync { source: place(source, from), destination: place(destination, to), params }
        }
        (Place::Here(source), Place::There(there)) => {
            push(place(source, from), there, to.as_ref(), params, remote)?
        }
        (Place::There(there), Place::Here(destination)) => {
            pull(there, from.as_ref(), place(destination, to), params, remote)?
        }
        (Place::Here(source), Place::Service(place)) => {
            let link = ask(place, to, FolderAccess::Write, &mut params, remote)?;
            Job::Send { source: self::place(source, from), link, params, once: true }
        }
        (Place::Service(place), Place::Here(destination)) => {
            if params.changed_blocks.is_some() {
                return Err(ConfigError::NotForRemoteSource("--changed-blocks"));
            }
            let demands = Demands::asking(&params);
            params.dry_run = false;
            let link = ask(place, from, FolderAccess::Read, &mut params, remote)?;
            Job::Receive { destination: self::place(destination, to), link, once: true, demands }
        }
        _ => return Err(ConfigError::BothRemote),
    })
}

/// Makes a run whose destination is on another machine.
fn push(
    source: TreeLocation,
    there: RemotePlace,
    below: Option<&RelPath>,
    mut params: RunParams,
    remote: RemoteFlags,
) -> Result<Job, ConfigError> {
    let demands = Demands { image: params.image, ..std::mem::take(&mut params.demands) };
    let mut args = vec!["receive".into(), "--once".into()];
    args.extend(demands.to_args());
    args.extend(
        below.iter().map(|below| format!("--destination-path={}", String::from_utf8_lossy(below.as_bytes()))),
    );
    let far = far_end(there, Side::Source, args, &params, remote)?;
    Ok(Job::Push { source, far: Box::new(far), params })
}

/// Makes a run whose source is on another machine. This end shows a dry run, and so demands it.
fn pull(
    there: RemotePlace,
    below: Option<&RelPath>,
    destination: TreeLocation,
    mut params: RunParams,
    remote: RemoteFlags,
) -> Result<Job, ConfigError> {
    let demands = Demands::asking(&params);
    params.dry_run = false;
    let list = params.files_from.take();
    let mut args = vec!["send".into()];
    args.extend(params.to_args());
    args.extend(
        below.iter().map(|below| format!("--source-path={}", String::from_utf8_lossy(below.as_bytes()))),
    );
    let mut far = far_end(there, Side::Sink, args, &params, remote)?;
    far.paths = list.map(|list| list.paths);
    Ok(Job::Pull { far: Box::new(far), destination, demands })
}

fn far_end(
    place: RemotePlace,
    side: Side,
    mut args: Vec<String>,
    params: &RunParams,
    remote: RemoteFlags,
) -> Result<FarEnd, ConfigError> {
    if params.snapshot_before.is_some() {
        return Err(ConfigError::NotForRemote("--snapshot-before"));
    }
    if !params.restore_paths.is_empty() {
        return Err(ConfigError::NotForRemote("--restore-path"));
    }
    if remote.identity.is_some() || remote.service_key.is_some() {
        return Err(ConfigError::KeyOfNoService);
    }
    let rsh = near_end::shell(remote.shell.rsh.as_deref());
    if rsh.is_empty() {
        return Err(ConfigError::NoShell);
    }
    let mode = remote.link.map_or(LinkMode::Auto, LinkMode::from);
    args.push(if mode == LinkMode::Tcp { "--link=tcp".into() } else { "--link=udp".into() });
    let (program, bootstrap) = (near_end::program(remote.shell.remote_program), remote.shell.bootstrap);
    let (paths, answer_timeout) = (None, remote.shell.connect_timeout);
    let connect_timeout = answer_timeout.unwrap_or(CONNECT_TIMEOUT);
    Ok(FarEnd { place, rsh, program, bootstrap, mode, side, args, paths, answer_timeout, connect_timeout })
}

/// Refuses the flags for another machine where there is none.
pub(super) fn check_no_remote(remote: &RemoteFlags) -> Result<(), ConfigError> {
    let RemoteFlags { shell, link, identity, service_key, compression } = remote;
    let ShellFlags { rsh, remote_program, bootstrap, connect_timeout } = shell;
    let given = [
        ("--rsh", rsh.is_some()),
        ("--remote-program", remote_program.is_some()),
        ("--bootstrap", *bootstrap),
        ("--connect-timeout", connect_timeout.is_some()),
        ("--link", link.is_some()),
        ("--identity", identity.is_some()),
        ("--service-key", service_key.is_some()),
        ("--compression", compression.is_some()),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => Err(ConfigError::RemoteFlagHere(flag)),
        None => Ok(()),
    }
}

pub(super) fn place(trusted: PathBuf, below: Option<RelPath>) -> TreeLocation {
    TreeLocation { trusted, below: below.unwrap_or_default() }
}
