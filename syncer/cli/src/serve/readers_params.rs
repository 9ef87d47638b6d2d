//! Decides which parameters of its run a peer that reads from a service may set, and how far.

use contract::{Demands, FilesFrom, FolderRequest, RunParams};

use super::{service_config::ServedFolder, service_state::shown};

/// Returns the parameters of a run that reads: those of the peer that concern only what is sent and its own copy,
/// limited by the folder's owner. A parameter that is not named here stays at its default.
pub(super) fn readers_params(request: FolderRequest, owner: &ServedFolder) -> RunParams {
    let FolderRequest { params: asked, source_snapshot, paths, .. } = request;
    let limits = [asked.bandwidth_limit, owner.bandwidth_limit];
    RunParams {
        run: shown(&asked.run),
        dry_run: asked.dry_run,
        verify: asked.verify,
        delete: asked.delete,
        delete_timing: asked.delete_timing,
        adopt: asked.adopt,
        delete_anyway: asked.delete_anyway,
        delete_limit: asked.delete_limit,
        max_delete: asked.max_delete,
        force: asked.force,
        include: asked.include,
        // The last pattern that matches counts, so a peer cannot take one of the owner's back.
        exclude: [asked.exclude, owner.demands.exclude.clone()].concat(),
        filter: asked.filter,
        ignore_files: asked.ignore_files,
        min_size: asked.min_size,
        max_size: asked.max_size,
        update: asked.update,
        existing: asked.existing,
        ignore_existing: asked.ignore_existing,
        files_from: paths.map(|paths| FilesFrom { paths, ..FilesFrom::default() }),
        one_file_system: asked.one_file_system,
        cross_mounts: asked.cross_mounts,
        compare: asked.compare,
        preserve: asked.preserve,
        write: asked.write,
        compression: asked.compression,
        bandwidth_limit: limits.into_iter().flatten().min(),
        expect_volume: asked.expect_volume,
        image: owner.demands.image,
        itemize_changes: asked.itemize_changes,
        source_snapshot,
        history: asked.history,
        demands: Demands { exclude: owner.demands.exclude.clone(), ..Demands::default() },
        ..RunParams::default()
    }
}
