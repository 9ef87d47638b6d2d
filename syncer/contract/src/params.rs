use std::path::PathBuf;

use crate::{
    changed_blocks::ChangedBlocks,
    history::History,
    param_types::{Compare, Compression, DeleteLimit, DeleteTiming, OtherSource, Preserve, Shard, WriteMode},
    reshape::{Chmod, Chown},
    snapshots::SnapshotParams,
    volume::VolumeId,
};
use serde::{Deserialize, Serialize};

/// The demands of a destination's owner on every run onto it. Of a demand and the source's parameter, the stricter one
/// applies, and `force` does not override it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Demands {
    /// The run's name in the report of a run that fails before the source has sent a name.
    pub run: String,
    /// Change nothing.
    pub dry_run: bool,
    /// Delete nothing.
    pub no_delete: bool,
    /// A limit beside the source's own.
    pub delete_limit: Option<DeleteLimit>,
    /// gitignore patterns of entries that are neither written nor deleted.
    pub exclude: Vec<String>,
    /// The expected destination: any other is refused.
    pub expect_volume: Option<VolumeId>,
    /// Treat a regular file as the image of a disk.
    pub image: bool,
    /// The snapshot to take after each run that succeeds.
    pub snapshot: Option<SnapshotParams>,
    /// The folder for entries that a run replaces or deletes; a relative path is below the destination.
    pub backup_dir: Option<PathBuf>,
    /// What happens to a run from another source than the last one's, which the destination then remembers; `None`
    /// looks at no source and remembers none.
    pub other_source: Option<OtherSource>,
    /// Which snapshots of the source the destination takes.
    pub history: History,
    /// Show each change before it is made. The process that shows changes sets it, so no flag spells it.
    pub itemize_changes: bool,
    /// The run that this end asked the source for, and no other. No flag spells it.
    pub asked: Option<Box<RunParams>>,
}

impl Demands {
    /// Returns the demands of an end that asks the source for a run, so that the source cannot make it another one.
    pub fn asking(params: &RunParams) -> Self {
        let mut asked = RunParams { demands: Self::default(), ..params.clone() };
        if let Some(list) = &mut asked.files_from {
            list.paths.clear();
        }
        Self {
            run: params.run.clone(),
            dry_run: params.dry_run,
            exclude: params.exclude.clone(),
            image: params.image,
            history: params.history,
            asked: Some(Box::new(asked)),
            ..params.demands.clone()
        }
    }

    /// Returns the demands by which only the job's owner decides at the destination: all of the job's parameters that
    /// forbid something, without the guards if the job overrides them.
    pub fn of(params: &RunParams) -> Self {
        let guarded = !params.force;
        Self {
            run: params.run.clone(),
            dry_run: params.dry_run,
            no_delete: !params.delete,
            delete_limit: (params.delete && guarded).then_some(params.delete_limit),
            exclude: params.exclude.clone(),
            expect_volume: params.expect_volume.filter(|_| guarded),
            image: params.image,
            history: params.history,
            itemize_changes: false,
            asked: None,
            snapshot: params.demands.snapshot.clone(),
            backup_dir: params.demands.backup_dir.clone(),
            other_source: params.demands.other_source,
        }
    }
}

/// The paths that a run is limited to. Only the source knows them; the sink only learns that there is a list.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FilesFrom {
    /// The file that contains the list; `-` is standard input.
    #[serde(skip)]
    pub file: String,
    /// Whether a NUL ends each path in the file.
    #[serde(skip)]
    pub from0: bool,
    /// The paths, relative to the root of the source. The process that reads the file sets them.
    #[serde(skip)]
    pub paths: Vec<Vec<u8>>,
}

/// The parameters that decide what a run does. They do not say where it runs, or with which peer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct RunParams {
    /// The run's name in its report.
    pub run: String,
    /// Report the changes that would be made, and make none.
    #[serde(default)]
    pub dry_run: bool,
    /// Read the whole destination back and compare it with the source: after the run, or with `dry_run` instead of it.
    #[serde(default)]
    pub verify: bool,
    /// Delete entries that the source does not have.
    pub delete: bool,
    /// The time of deletes.
    #[serde(default)]
    pub delete_timing: DeleteTiming,
    /// Delete also in the first run onto a folder, where no run has put what is deleted.
    #[serde(default)]
    pub adopt: bool,
    /// Delete even if an entry could not be read, listed or written.
    #[serde(default)]
    pub delete_anyway: bool,
    /// The limit on deletes.
    pub delete_limit: DeleteLimit,
    /// The most entries that a run may delete: a run that would delete more is refused.
    #[serde(default)]
    pub max_delete: Option<u64>,
    /// Override the guards.
    pub force: bool,
    /// gitignore patterns; if there are any, only matching entries are synced.
    pub include: Vec<String>,
    /// gitignore patterns of entries that are neither sent, changed nor deleted.
    pub exclude: Vec<String>,
    /// Filter rules of rsync, without those that read a file once; they exclude entries as `exclude` does.
    #[serde(default)]
    pub filter: Vec<String>,
    /// Exclude the entries that match the source's `.gitignore` and `.volferryignore` files.
    #[serde(default)]
    pub ignore_files: bool,
    /// Files of fewer bytes are neither sent, changed nor deleted.
    #[serde(default)]
    pub min_size: Option<u64>,
    /// Files of more bytes are neither sent, changed nor deleted.
    #[serde(default)]
    pub max_size: Option<u64>,
    /// Leave files alone that are newer at the destination than at the source.
    #[serde(default)]
    pub update: bool,
    /// Make no new entries at the destination.
    #[serde(default)]
    pub existing: bool,
    /// Leave entries alone that the destination has, apart from folders.
    #[serde(default)]
    pub ignore_existing: bool,
    /// Only these paths take part, with everything below them.
    #[serde(default)]
    pub files_from: Option<FilesFrom>,
    /// Leave entries alone, at both ends, that are on other file systems than the root of the tree.
    #[serde(default)]
    pub one_file_system: bool,
    /// Delete also in what is mounted inside the destination.
    #[serde(default)]
    pub cross_mounts: bool,
    /// How files are compared.
    pub compare: Compare,
    /// The metadata to keep.
    pub preserve: Preserve,
    /// How the content of files is replaced.
    pub write: WriteMode,
    /// Compression on the wire.
    pub compression: Compression,
    /// The bandwidth limit, in bytes per second; `None` is unlimited.
    pub bandwidth_limit: Option<u64>,
    /// The shard that this pair of processes syncs.
    pub shard: Option<Shard>,
    /// The destination of the last run: another one is refused.
    #[serde(default)]
    pub expect_volume: Option<VolumeId>,
    /// Treat a regular file as the image of a disk, of which only changed ranges are written, in place.
    #[serde(default)]
    pub image: bool,
    /// Report the hash of a device's content when the run has written it.
    #[serde(default)]
    pub content_hash: bool,
    /// The only ranges in which the source, a device, differs from a content that the destination should have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_blocks: Option<ChangedBlocks>,
    /// Tell the source each change before it is made. The process that shows changes sets it, so no flag spells it.
    #[serde(default)]
    pub itemize_changes: bool,
    /// The snapshot of the source's volume that is copied instead of its files, by its id, a tag, or `latest`. Only the
    /// source needs it, so it does not cross the network.
    #[serde(skip)]
    pub source_snapshot: Option<String>,
    /// Believe the owners, set-id bits, capabilities and devices of a snapshot although other users could write to the
    /// list that has it. Only the source needs it.
    #[serde(skip)]
    pub trust_store: bool,
    /// Copy all that is whole of a damaged snapshot, and count the rest as failed.
    #[serde(default)]
    pub keep_going: bool,
    /// A change of all permission bits. The source lists its entries with these.
    #[serde(skip)]
    pub chmod: Option<Chmod>,
    /// The owner of all entries. The source lists its entries with it.
    #[serde(skip)]
    pub chown: Option<Chown>,
    /// Remove entries at the source, apart from folders, once the destination has them.
    #[serde(default)]
    pub remove_source_files: bool,
    /// The tag of the snapshot that keeps the destination's state before a restore of one of its own snapshots.
    /// If a snapshot has this tag already, none is taken, so that a run that is tried again keeps the state only once.
    #[serde(skip)]
    pub snapshot_before: Option<String>,
    /// The only files and folders that a restore brings back; all of the snapshot if there are none. All else stays.
    #[serde(skip)]
    pub restore_paths: Vec<String>,
    /// The snapshots of the source that travel along.
    #[serde(default)]
    pub history: History,
    /// The volume that the source is on, as its own process sees it, which sets this: no flag spells it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_id: Option<VolumeId>,
    /// The demands of the destination's owner. No peer can send them, and the source has none.
    #[serde(skip)]
    pub demands: Demands,
}

impl RunParams {
    /// Returns whether failures keep no deletes back. What is damaged in a snapshot says nothing about what it lacks.
    pub fn deletes_anyway(&self) -> bool {
        self.delete_anyway || self.keep_going
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forced_job_demands_no_guards_of_its_own_destination() {
        let params = RunParams {
            delete: true,
            delete_limit: DeleteLimit(7),
            expect_volume: Some(VolumeId::new([1; 16])),
            exclude: vec!["-x".into()],
            ..RunParams::default()
        };
        let volume = VolumeId::new([1; 16]);
        let expected = ["--delete-limit=7", "--exclude=-x", &format!("--expect-volume={volume}")];
        assert_eq!(Demands::of(&params).to_args(), expected);
        let forced = RunParams { force: true, ..params.clone() };
        assert_eq!(Demands::of(&forced).to_args(), ["--exclude=-x"]);
        let keeps = RunParams { delete: false, dry_run: true, run: "r".into(), ..RunParams::default() };
        assert_eq!(Demands::of(&keeps).to_args(), ["--dry-run", "--no-delete", "--run=r"]);
    }
}
