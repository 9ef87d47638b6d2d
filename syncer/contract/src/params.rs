use std::{fmt, path::PathBuf};

use crate::{
    history::History,
    param_types::{
        Compare, Compression, DeleteLimit, DeleteTiming, OtherSource, Ownership, Preserve, Shard, WriteMode,
    },
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

    /// Returns the flags of `volferry receive` that express these demands.
    pub fn to_args(&self) -> Vec<String> {
        let mut args = Vec::new();
        let mut flag = |on: bool, name: &str| on.then(|| args.push(name.to_string()));
        flag(self.dry_run, "--dry-run");
        flag(self.no_delete, "--no-delete");
        flag(self.image, "--image");
        let mut value = |name: &str, value: &dyn fmt::Display| args.push(format!("{name}={value}"));
        if !self.run.is_empty() {
            value("--run", &self.run);
        }
        if let Some(DeleteLimit(percent)) = self.delete_limit {
            value("--delete-limit", &percent);
        }
        self.exclude.iter().for_each(|pattern| value("--exclude", pattern));
        if let Some(volume) = self.expect_volume {
            value("--expect-volume", &volume);
        }
        if let Some(dir) = &self.backup_dir {
            value("--backup-dir", &dir.display());
        }
        if let Some(rule) = self.other_source {
            value("--other-source", &rule);
        }
        if self.history != History::None {
            value("--history", &self.history);
        }
        args.extend(self.snapshot.iter().flat_map(SnapshotParams::to_args));
        args
    }

    /// Returns the flags among these demands that do not apply to a block device, or to an image of one.
    pub fn flags_of_trees(&self) -> impl Iterator<Item = &'static str> {
        let asked = [
            (self.delete_limit.is_some(), "--delete-limit"),
            (!self.exclude.is_empty(), "--exclude"),
            (self.expect_volume.is_some(), "--expect-volume"),
            (self.snapshot.is_some(), "--snapshot"),
            (self.backup_dir.is_some(), "--backup-dir"),
            (self.other_source.is_some(), "--other-source"),
            (self.history != History::None, "--history"),
        ];
        asked.into_iter().filter(|(asked, _)| *asked).map(|(_, flag)| flag)
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

/// A flag for files, folders or metadata, which a block device does not have.
type OfTrees = (&'static str, fn(&RunParams) -> bool);

const OF_TREES: [OfTrees; 33] = [
    ("--delete", |params| params.delete),
    ("--adopt", |params| params.adopt),
    ("--delete-anyway", |params| params.delete_anyway),
    ("--delete-limit", |params| params.delete_limit != DeleteLimit::default()),
    ("--max-delete", |params| params.max_delete.is_some()),
    ("--force", |params| params.force),
    ("--include", |params| !params.include.is_empty()),
    ("--exclude", |params| !params.exclude.is_empty()),
    ("--filter", |params| !params.filter.is_empty()),
    ("--ignore-files", |params| params.ignore_files),
    ("--min-size", |params| params.min_size.is_some()),
    ("--max-size", |params| params.max_size.is_some()),
    ("--update", |params| params.update),
    ("--existing", |params| params.existing),
    ("--ignore-existing", |params| params.ignore_existing),
    ("--compare=size", |params| params.compare == Compare::Size),
    ("--remove-source-files", |params| params.remove_source_files),
    ("--chmod", |params| params.chmod.is_some()),
    ("--chown", |params| params.chown.is_some()),
    ("--files-from", |params| params.files_from.is_some()),
    ("--one-file-system", |params| params.one_file_system),
    ("--cross-mounts", |params| params.cross_mounts),
    ("--ownership", |params| params.preserve.ownership != Ownership::Auto),
    ("--no-permissions", |params| !params.preserve.permissions),
    ("--no-times", |params| !params.preserve.times),
    ("--no-xattrs", |params| !params.preserve.xattrs),
    ("--no-acls", |params| !params.preserve.acls),
    ("--no-hard-links", |params| !params.preserve.hard_links),
    ("--no-specials", |params| !params.preserve.specials),
    ("--shard", |params| params.shard.is_some_and(|shard| shard.count > 1)),
    ("--expect-volume", |params| params.expect_volume.is_some()),
    ("--source-snapshot", |params| params.source_snapshot.is_some()),
    ("--history", |params| params.history != History::None),
];

impl RunParams {
    /// Returns whether failures keep no deletes back. What is damaged in a snapshot says nothing about what it lacks.
    pub fn deletes_anyway(&self) -> bool {
        self.delete_anyway || self.keep_going
    }

    /// Returns the flags of these parameters that a run of block devices, or of images of them, refuses.
    pub fn flags_of_trees(&self) -> impl Iterator<Item = &'static str> {
        OF_TREES.iter().filter(|(_, asked)| asked(self)).map(|(flag, _)| *flag)
    }

    /// Returns the flags of these parameters that a run of a single file refuses, because they choose among the entries
    /// of a folder.
    pub fn flags_of_folders(&self) -> impl Iterator<Item = &'static str> {
        const OF_FOLDERS: [&str; 16] = [
            "--delete",
            "--max-delete",
            "--delete-limit",
            "--include",
            "--exclude",
            "--filter",
            "--ignore-files",
            "--min-size",
            "--max-size",
            "--files-from",
            "--one-file-system",
            "--cross-mounts",
            "--no-hard-links",
            "--no-specials",
            "--shard",
            "--history",
        ];
        self.flags_of_trees().filter(|flag| OF_FOLDERS.contains(flag))
    }

    /// Returns the flags of these parameters that a run with history refuses, because snapshots are copied as a whole.
    pub fn flags_without_history(&self) -> impl Iterator<Item = &'static str> {
        let others = self.flags_of_live_sources();
        others
            .filter(|flag| *flag != "--history")
            .chain(self.source_snapshot.iter().map(|_| "--source-snapshot"))
    }

    /// Returns the flags of these parameters that a run from a snapshot refuses, because it copies all of the snapshot.
    pub fn flags_of_live_sources(&self) -> impl Iterator<Item = &'static str> {
        const OF_LIVE: [&str; 15] = [
            "--include",
            "--exclude",
            "--filter",
            "--ignore-files",
            "--min-size",
            "--max-size",
            "--existing",
            "--ignore-existing",
            "--remove-source-files",
            "--chmod",
            "--chown",
            "--files-from",
            "--one-file-system",
            "--shard",
            "--history",
        ];
        self.flags_of_trees().filter(|flag| OF_LIVE.contains(flag))
    }

    /// Returns the flags of `volferry send` and `sync` that express these parameters. Values are joined with `=`, so
    /// that a pattern may begin with a dash.
    pub fn to_args(&self) -> Vec<String> {
        let defaults = Self::default();
        let mut args = Vec::new();
        let mut flag = |on: bool, name: &str| on.then(|| args.push(name.to_string()));
        flag(self.dry_run, "--dry-run");
        flag(self.verify, "--verify");
        flag(self.image, "--image");
        let before = self.delete_timing == DeleteTiming::Before;
        flag(self.delete && !before, "--delete");
        flag(self.delete && before, "--delete=before");
        flag(self.adopt, "--adopt");
        flag(self.delete_anyway, "--delete-anyway");
        flag(self.force, "--force");
        flag(self.ignore_files, "--ignore-files");
        flag(self.update, "--update");
        flag(self.existing, "--existing");
        flag(self.ignore_existing, "--ignore-existing");
        flag(self.remove_source_files, "--remove-source-files");
        flag(self.one_file_system, "--one-file-system");
        flag(self.trust_store, "--trust-store");
        flag(self.keep_going, "--keep-going");
        flag(self.cross_mounts, "--cross-mounts");
        flag(self.files_from.as_ref().is_some_and(|list| list.from0), "--from0");
        flag(!self.preserve.permissions, "--no-permissions");
        flag(!self.preserve.times, "--no-times");
        flag(!self.preserve.xattrs, "--no-xattrs");
        flag(!self.preserve.acls, "--no-acls");
        flag(!self.preserve.hard_links, "--no-hard-links");
        flag(!self.preserve.sparse, "--no-sparse");
        flag(!self.preserve.specials, "--no-specials");
        let mut value = |on: bool, name: &str, value: &dyn fmt::Display| {
            on.then(|| args.push(format!("{name}={value}")));
        };
        value(!self.run.is_empty(), "--run", &self.run);
        value(self.delete_limit != defaults.delete_limit, "--delete-limit", &self.delete_limit.0);
        self.include.iter().for_each(|pattern| value(true, "--include", pattern));
        self.exclude.iter().for_each(|pattern| value(true, "--exclude", pattern));
        self.filter.iter().for_each(|rule| value(true, "--filter", rule));
        if let Some(list) = &self.files_from {
            value(true, "--files-from", &list.file);
        }
        if let Some(most) = self.max_delete {
            value(true, "--max-delete", &most);
        }
        if let Some(size) = self.min_size {
            value(true, "--min-size", &size);
        }
        if let Some(size) = self.max_size {
            value(true, "--max-size", &size);
        }
        value(self.history != defaults.history, "--history", &self.history);
        value(self.compare != defaults.compare, "--compare", &self.compare);
        if let Some(chmod) = &self.chmod {
            value(true, "--chmod", chmod);
        }
        if let Some(chown) = &self.chown {
            value(true, "--chown", chown);
        }
        value(self.preserve.ownership != Ownership::Auto, "--ownership", &self.preserve.ownership);
        value(self.write != defaults.write, "--write", &self.write);
        value(self.compression != defaults.compression, "--compression", &self.compression);
        if let Some(limit) = self.bandwidth_limit {
            value(true, "--bandwidth-limit", &limit);
        }
        if let Some(shard) = self.shard {
            value(true, "--shard", &shard);
        }
        if let Some(volume) = self.expect_volume {
            value(true, "--expect-volume", &volume);
        }
        if let Some(snapshot) = &self.source_snapshot {
            value(true, "--source-snapshot", snapshot);
        }
        if let Some(tag) = &self.snapshot_before {
            value(true, "--snapshot-before", tag);
        }
        self.restore_paths.iter().for_each(|path| value(true, "--restore-path", path));
        args
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_parameters_need_no_flags() {
        assert!(RunParams::default().to_args().is_empty());
    }

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

    #[test]
    fn each_flag_that_is_for_trees_only_is_known_by_its_name() {
        let preserve = |change: fn(&mut Preserve)| {
            let mut preserve = Preserve::default();
            change(&mut preserve);
            RunParams { preserve, ..RunParams::default() }
        };
        let asking = [
            RunParams { delete: true, ..RunParams::default() },
            RunParams { adopt: true, ..RunParams::default() },
            RunParams { delete_anyway: true, ..RunParams::default() },
            RunParams { delete_limit: DeleteLimit(1), ..RunParams::default() },
            RunParams { max_delete: Some(1), ..RunParams::default() },
            RunParams { force: true, ..RunParams::default() },
            RunParams { include: vec!["a".into()], ..RunParams::default() },
            RunParams { exclude: vec!["a".into()], ..RunParams::default() },
            RunParams { filter: vec!["- a".into()], ..RunParams::default() },
            RunParams { ignore_files: true, ..RunParams::default() },
            RunParams { min_size: Some(1), ..RunParams::default() },
            RunParams { max_size: Some(1), ..RunParams::default() },
            RunParams { update: true, ..RunParams::default() },
            RunParams { existing: true, ..RunParams::default() },
            RunParams { ignore_existing: true, ..RunParams::default() },
            RunParams { compare: Compare::Size, ..RunParams::default() },
            RunParams { remove_source_files: true, ..RunParams::default() },
            RunParams { chmod: Some("u+w".parse().unwrap()), ..RunParams::default() },
            RunParams { chown: Some(Chown { uid: Some(1), gid: None }), ..RunParams::default() },
            RunParams { files_from: Some(FilesFrom::default()), ..RunParams::default() },
            RunParams { one_file_system: true, ..RunParams::default() },
            RunParams { cross_mounts: true, ..RunParams::default() },
            preserve(|preserve| preserve.ownership = Ownership::Always),
            preserve(|preserve| preserve.permissions = false),
            preserve(|preserve| preserve.times = false),
            preserve(|preserve| preserve.xattrs = false),
            preserve(|preserve| preserve.acls = false),
            preserve(|preserve| preserve.hard_links = false),
            preserve(|preserve| preserve.specials = false),
            RunParams { shard: Some(Shard { index: 0, count: 2 }), ..RunParams::default() },
            RunParams { expect_volume: Some(VolumeId::new([1; 16])), ..RunParams::default() },
            RunParams { source_snapshot: Some("latest".into()), ..RunParams::default() },
            RunParams { history: History::Kept, ..RunParams::default() },
        ];
        assert_eq!(asking.len(), OF_TREES.len(), "a flag has no parameters here");
        for (params, (flag, _)) in asking.iter().zip(OF_TREES) {
            assert_eq!(params.flags_of_trees().collect::<Vec<_>>(), [flag]);
            let args = params.to_args();
            assert!(args[0] == flag || args[0].starts_with(&format!("{flag}=")), "{args:?}");
        }
        let of_devices = RunParams {
            verify: true,
            dry_run: true,
            compare: Compare::Content,
            write: WriteMode::InPlace,
            compression: Compression::None,
            bandwidth_limit: Some(1),
            ..preserve(|preserve| preserve.sparse = false)
        };
        assert_eq!(of_devices.flags_of_trees().count(), 0);
    }

    #[test]
    fn a_pattern_that_begins_with_a_dash_stays_one_argument() {
        let params = RunParams { exclude: vec!["-x".into()], ..RunParams::default() };
        assert_eq!(params.to_args(), ["--exclude=-x"]);
    }
}
