//! A run of `volferry sync` whose destination is object storage.

use std::path::{Path, PathBuf};

use bucket::BucketError;
use contract::{BucketUrl, Demands, RunParams, SnapshotParams};
use rustix::system::uname;

use super::{
    config_error::ConfigError,
    job::Job,
    run_params::{check_params, params},
    sync_job::{check_no_remote, place},
};
use crate::flags::SyncFlags;

/// Reads a destination in object storage; `None` if it is another one.
pub(super) fn bucket_of(destination: &Path) -> Option<Result<BucketUrl, ConfigError>> {
    let typed = destination.to_str().filter(|typed| typed.starts_with(BucketUrl::SCHEME))?;
    let read = |source| BucketError::Url { typed: typed.into(), source }.into();
    Some(typed.parse().map_err(read))
}

/// Resolves the flags of a run that takes a snapshot into object storage.
pub(super) fn offsite_job(source: PathBuf, url: BucketUrl, sync: SyncFlags) -> Result<Job, ConfigError> {
    check_no_remote(&sync.remote)?;
    let asked: Option<SnapshotParams> = sync.snapshot.into();
    let mut asked = asked.unwrap_or_default();
    if asked.job.is_empty() {
        asked.job = job_of(&source);
    }
    check_snapshot(&asked)?;
    let history = sync.params.history;
    let demands = sync.backup.add_to(Demands { history, ..Demands::default() });
    let (snapshot_before, restore_paths) = (sync.snapshot_before, sync.restore_paths);
    let params = sync.source_snapshot.add_to(params(sync.params)?);
    let params = check_params(RunParams { demands, snapshot_before, restore_paths, ..params })?;
    let of_demands = || params.demands.to_args().into_iter().next();
    let refused = params.flags_without_bucket().next().map(|flag| flag.name.to_owned()).or_else(of_demands);
    let refused = refused.or_else(|| sync.destination_path.map(|_| "--destination-path".into()));
    if let Some(flag) = refused {
        return Err(ConfigError::NotForBucket(flag));
    }
    let params = RunParams { demands: Demands { snapshot: Some(asked), ..Demands::default() }, ..params };
    Ok(Job::Offsite { source: place(source, sync.source_path), url, key: sync.key, params })
}

/// Refuses what a store in object storage does not do with a snapshot.
fn check_snapshot(asked: &SnapshotParams) -> Result<(), ConfigError> {
    let SnapshotParams { tags, job, keep, verify, engine: _, min_keep: _ } = asked.clone();
    let can_do = SnapshotParams { tags, job, keep, verify, ..SnapshotParams::default() };
    let known = can_do.to_args();
    match asked.to_args().into_iter().find(|arg| !known.contains(arg)) {
        Some(flag) => Err(ConfigError::NotForBucket(flag)),
        None => Ok(()),
    }
}

/// Returns the job of a run that names none: this machine and its folder. The files are compared with the job's last
/// snapshot, and the rules judge its snapshots.
fn job_of(source: &Path) -> String {
    let path = source.canonicalize().unwrap_or_else(|_| source.into());
    format!("{}:{}", uname().nodename().to_string_lossy(), path.display())
}
