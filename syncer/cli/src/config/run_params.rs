//! The parameters of a run, with the files that they name.

use std::path::Path;

use contract::{DeleteLimit, FilesFrom, History, Ownership, RunParams};

use super::config_error::ConfigError;
use crate::{
    changed_list, filter_files,
    flags::ParamFlags,
    path_list::{self, PathListError},
    pattern_file,
};

/// Returns the typed parameters, with the patterns of the files that they name.
pub(super) fn params(mut flags: ParamFlags) -> Result<RunParams, ConfigError> {
    let files = [&flags.include_from, &flags.exclude_from];
    let lists = files.into_iter().chain([&flags.filter_from]);
    let patterns = lists.flatten().filter(|path| *path == Path::new("-")).count();
    let others = [flags.reads_paths_from_input(), flags.reads_blocks_from_input()];
    if patterns + others.into_iter().filter(|reads| *reads).count() > 1 {
        return Err(ConfigError::InputTwice);
    }
    let [mut include, mut exclude] = [pattern_file::read_all(files[0])?, pattern_file::read_all(files[1])?];
    let filter_from = std::mem::take(&mut flags.filter_from);
    let typed = RunParams::from(flags);
    let filter = filter_files::read_all(&filter_from, &typed.filter)?;
    include.extend(typed.include);
    exclude.extend(typed.exclude);
    let files_from = typed.files_from.map(listed).transpose()?.flatten();
    let changed_blocks = typed.changed_blocks.map(|list| changed_list::read(list.file)).transpose()?;
    Ok(RunParams { include, exclude, filter, files_from, changed_blocks, ..typed })
}

/// Reads the paths of a list; `None` if it contains the root, and so the whole tree.
fn listed(list: FilesFrom) -> Result<Option<FilesFrom>, PathListError> {
    let paths = path_list::read(Path::new(&list.file), list.from0)?;
    Ok(paths.map(|paths| FilesFrom { paths, ..list }))
}

pub(super) fn check_params(params: RunParams) -> Result<RunParams, ConfigError> {
    let is_sharded = params.shard.is_some_and(|shard| shard.count > 1);
    if params.bandwidth_limit == Some(0) {
        return Err(ConfigError::NoBandwidth);
    }
    if params.delete_limit != DeleteLimit::default() && !params.delete {
        return Err(ConfigError::LimitOfNoDelete);
    }
    if params.min_size.zip(params.max_size).is_some_and(|(min, max)| min > max) {
        return Err(ConfigError::NoSize);
    }
    if params.chown.is_some() && params.preserve.ownership == Ownership::Never {
        return Err(ConfigError::OwnerNotKept);
    }
    if params.existing && params.ignore_existing {
        return Err(ConfigError::NothingToDo);
    }
    if is_sharded && params.run.is_empty() {
        return Err(ConfigError::ShardOfNoRun);
    }
    if let Some(flag) = params.flags_of_live_sources().next().filter(|_| params.source_snapshot.is_some()) {
        return Err(ConfigError::NotForSnapshots(flag.name));
    }
    if let Some(flag) = params.flags_without_history().next().filter(|_| params.history != History::None) {
        return Err(ConfigError::NotForHistory(flag.name));
    }
    if is_sharded && params.demands.snapshot.is_some() {
        return Err(ConfigError::ShardedSnapshot);
    }
    if is_sharded && params.remove_source_files {
        return Err(ConfigError::ShardedMove);
    }
    if is_sharded && params.demands.backup_dir.is_some() {
        return Err(ConfigError::ShardedBackup);
    }
    Ok(params)
}
