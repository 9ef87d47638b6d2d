//! The table of the flags of a run: how each is spelled, which runs refuse it, and which field of a SyncJob sets it.

use std::fmt::Display;

use crate::{
    param_types::{Compare, DeleteTiming},
    params::{Demands, RunParams},
    snapshots::SnapshotParams,
};

use Applies::{Always, Devices, Files, Folders, LiveFiles, LiveFolders};

/// A flag of `volferry send`, `sync` or `receive`.
#[derive(Debug, PartialEq, Eq)]
pub struct Flag {
    /// The flag, as it is typed.
    pub name: &'static str,
    /// The field of a SyncJob's spec that sets it; empty if none does.
    pub field: &'static str,
    applies: Applies,
}

/// What a flag applies to. Every flag but those of devices applies to the files of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Applies {
    /// Devices, too.
    Always,
    /// Only devices.
    Devices,
    /// Also a single file, and the files of a snapshot.
    Files,
    /// Also the files of a snapshot.
    Folders,
    /// Also a single file.
    LiveFiles,
    /// Nothing else.
    LiveFolders,
}

/// What a run copies in the place of a folder's files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Instead {
    /// The content of a block device, or of an image of one.
    Device,
    /// A single file.
    File,
    /// A snapshot of the source's volume, as a whole.
    Snapshot,
}

impl Flag {
    /// Returns the field that sets the flag, or else the flag.
    pub fn field_or_name(&self) -> &'static str {
        if self.field.is_empty() { self.name } else { self.field }
    }

    fn is_refused_with(&self, instead: Instead) -> bool {
        match instead {
            Instead::Device => !matches!(self.applies, Always | Devices),
            Instead::File => matches!(self.applies, Devices | Folders | LiveFolders),
            Instead::Snapshot => matches!(self.applies, Devices | LiveFiles | LiveFolders),
        }
    }
}

/// A row of the table: a flag, and what follows its name in each of its arguments. Without arguments it is not given.
struct Row<P> {
    flag: Flag,
    arguments: fn(&P) -> Vec<String>,
}

const fn row<P>(
    name: &'static str,
    field: &'static str,
    applies: Applies,
    arguments: fn(&P) -> Vec<String>,
) -> Row<P> {
    Row { flag: Flag { name, field, applies }, arguments }
}

fn alone(is_asked: bool) -> Vec<String> {
    is_asked.then(String::new).into_iter().collect()
}

/// Joins a value with `=`, so that a pattern may begin with a dash.
fn with(value: Option<impl Display>) -> Vec<String> {
    value.map(|value| format!("={value}")).into_iter().collect()
}

fn each(values: &[String]) -> Vec<String> {
    values.iter().flat_map(|value| with(Some(value))).collect()
}

/// Returns a value that is not the default.
fn changed<T: Default + PartialEq>(value: T) -> Option<T> {
    (value != T::default()).then_some(value)
}

const OF_RUNS: &[Row<RunParams>] = &[
    row("--run", "", Always, |params| with(changed(&*params.run))),
    row("--dry-run", "", Always, |params| alone(params.dry_run)),
    row("--verify", "", Always, |params| alone(params.verify)),
    row("--image", "", Always, |params| alone(params.image)),
    row("--content-hash", "", Devices, |params| alone(params.content_hash)),
    row("--changed-blocks", "", Devices, |params| {
        with(params.changed_blocks.as_ref().map(|list| &list.file))
    }),
    row("--delete", "files.delete", Folders, |params| match params.delete_timing {
        DeleteTiming::Before if params.delete => with(Some(DeleteTiming::Before)),
        _ => alone(params.delete),
    }),
    row("--adopt", "files.delete", Files, |params| alone(params.adopt)),
    row("--delete-anyway", "files.deleteAnyway", Files, |params| alone(params.delete_anyway)),
    row("--delete-limit", "files.deleteLimit", Folders, |params| {
        with(changed(params.delete_limit).map(|limit| limit.0))
    }),
    row("--max-delete", "", Folders, |params| with(params.max_delete)),
    row("--force", "", Files, |params| alone(params.force)),
    row("--include", "files.include", LiveFolders, |params| each(&params.include)),
    row("--exclude", "files.exclude", LiveFolders, |params| each(&params.exclude)),
    row("--filter", "", LiveFolders, |params| each(&params.filter)),
    row("--ignore-files", "files.ignoreFiles", LiveFolders, |params| alone(params.ignore_files)),
    row("--min-size", "files.minSize", LiveFolders, |params| with(params.min_size)),
    row("--max-size", "files.maxSize", LiveFolders, |params| with(params.max_size)),
    row("--update", "", Files, |params| alone(params.update)),
    row("--existing", "", LiveFiles, |params| alone(params.existing)),
    row("--ignore-existing", "", LiveFiles, |params| alone(params.ignore_existing)),
    row("--compare", "", Always, |params| with(changed(params.compare).filter(|by| *by != Compare::Size))),
    row("--compare=size", "files.compare", Files, |params| alone(params.compare == Compare::Size)),
    row("--remove-source-files", "", LiveFiles, |params| alone(params.remove_source_files)),
    row("--chmod", "", LiveFiles, |params| with(params.chmod.as_ref())),
    row("--chown", "", LiveFiles, |params| with(params.chown.as_ref())),
    row("--files-from", "", LiveFolders, |params| with(params.files_from.as_ref().map(|list| &list.file))),
    row("--from0", "", Always, |params| alone(params.files_from.as_ref().is_some_and(|list| list.from0))),
    row("--one-file-system", "", LiveFolders, |params| alone(params.one_file_system)),
    row("--cross-mounts", "", Folders, |params| alone(params.cross_mounts)),
    row("--ownership", "files.preserve.ownership", Files, |params| with(changed(params.preserve.ownership))),
    row("--no-permissions", "files.preserve.permissions", Files, |params| {
        alone(!params.preserve.permissions)
    }),
    row("--no-times", "files.preserve.times", Files, |params| alone(!params.preserve.times)),
    row("--no-xattrs", "files.preserve.xattrs", Files, |params| alone(!params.preserve.xattrs)),
    row("--no-acls", "files.preserve.acls", Files, |params| alone(!params.preserve.acls)),
    row("--no-hard-links", "files.preserve.hardLinks", Folders, |params| alone(!params.preserve.hard_links)),
    row("--no-sparse", "files.preserve.sparse", Always, |params| alone(!params.preserve.sparse)),
    row("--no-specials", "files.preserve.specials", Folders, |params| alone(!params.preserve.specials)),
    row("--write", "files.write", Always, |params| with(changed(params.write))),
    row("--compression", "transfer.compression", Always, |params| with(changed(params.compression))),
    row("--bandwidth-limit", "", Always, |params| with(params.bandwidth_limit)),
    row("--shard", "", Always, |params| with(params.shard.filter(|shard| shard.count <= 1))),
    row("--shard", "", LiveFolders, |params| with(params.shard.filter(|shard| shard.count > 1))),
    row("--expect-volume", "", Files, |params| with(params.expect_volume)),
    row("--source-snapshot", "source.snapshot", Files, |params| with(params.source_snapshot.as_ref())),
    row("--trust-store", "source.trustStore", Always, |params| alone(params.trust_store)),
    row("--keep-going", "source.keepGoing", Always, |params| alone(params.keep_going)),
    row("--snapshot-before", "", Always, |params| with(params.snapshot_before.as_ref())),
    row("--restore-path", "", Always, |params| each(&params.restore_paths)),
    row("--history", "source.history", LiveFolders, |params| with(changed(params.history))),
];

const OF_DEMANDS: &[Row<Demands>] = &[
    row("--dry-run", "", Always, |demands| alone(demands.dry_run)),
    row("--no-delete", "", Always, |demands| alone(demands.no_delete)),
    row("--image", "", Always, |demands| alone(demands.image)),
    row("--run", "", Always, |demands| with(changed(&*demands.run))),
    row("--delete-limit", "files.deleteLimit", Folders, |demands| {
        with(demands.delete_limit.map(|limit| limit.0))
    }),
    row("--exclude", "files.exclude", LiveFolders, |demands| each(&demands.exclude)),
    row("--expect-volume", "", Files, |demands| with(demands.expect_volume)),
    row("--backup-dir", "", Files, |demands| with(demands.backup_dir.as_ref().map(|dir| dir.display()))),
    row("--other-source", "", Files, |demands| with(demands.other_source)),
    row("--history", "source.history", Files, |demands| with(changed(demands.history))),
    row("--snapshot", "snapshots", Files, |demands| alone(demands.snapshot.is_some())),
];

fn arguments<P>(rows: &[Row<P>], params: &P) -> Vec<String> {
    let of_row = |row: &Row<P>| {
        let name = row.flag.name;
        (row.arguments)(params).into_iter().map(move |rest| format!("{name}{rest}"))
    };
    rows.iter().flat_map(of_row).collect()
}

fn refused<P>(rows: &'static [Row<P>], params: &P, instead: Instead) -> impl Iterator<Item = &'static Flag> {
    let is_refused =
        move |row: &&Row<P>| row.flag.is_refused_with(instead) && !(row.arguments)(params).is_empty();
    rows.iter().filter(is_refused).map(|row| &row.flag)
}

impl RunParams {
    /// Returns the flags of `volferry send` and `sync` that express these parameters.
    pub fn to_args(&self) -> Vec<String> {
        arguments(OF_RUNS, self)
    }

    /// Returns the flags of these parameters that a run of block devices, or of images of them, refuses.
    pub fn flags_of_trees(&self) -> impl Iterator<Item = &'static Flag> {
        refused(OF_RUNS, self, Instead::Device)
    }

    /// Returns the flags of these parameters that do not go with a snapshot in object storage.
    pub fn flags_without_bucket(&self) -> impl Iterator<Item = &'static Flag> {
        let rest = Self {
            run: String::new(),
            include: Vec::new(),
            exclude: Vec::new(),
            filter: Vec::new(),
            ignore_files: false,
            one_file_system: false,
            compare: if self.compare == Compare::Content { Compare::default() } else { self.compare },
            bandwidth_limit: None,
            force: false,
            ..self.clone()
        };
        let is_given = move |row: &&Row<Self>| !(row.arguments)(&rest).is_empty();
        OF_RUNS.iter().filter(is_given).map(|row| &row.flag)
    }

    /// Returns the flags of these parameters that a run of a single file refuses, because they choose among the entries
    /// of a folder.
    pub fn flags_of_folders(&self) -> impl Iterator<Item = &'static Flag> {
        refused(OF_RUNS, self, Instead::File)
    }

    /// Returns the flags of these parameters that a run from a snapshot refuses, because it copies all of the snapshot.
    pub fn flags_of_live_sources(&self) -> impl Iterator<Item = &'static Flag> {
        refused(OF_RUNS, self, Instead::Snapshot)
    }

    /// Returns the flags of these parameters that a run with history refuses, because snapshots are copied as a whole.
    pub fn flags_without_history(&self) -> impl Iterator<Item = &'static Flag> {
        let is_other = |flag: &&Flag| flag.name != "--history";
        let snapshot = self.flags_of_trees().filter(|flag| flag.name == "--source-snapshot");
        self.flags_of_live_sources().filter(is_other).chain(snapshot)
    }
}

impl Demands {
    /// Returns the flags of `volferry receive` that express these demands.
    pub fn to_args(&self) -> Vec<String> {
        let snapshot = self.snapshot.iter().flat_map(SnapshotParams::to_args);
        arguments(OF_DEMANDS, self).into_iter().chain(snapshot).collect()
    }

    /// Returns the flags among these demands that do not apply to a block device, or to an image of one.
    pub fn flags_of_trees(&self) -> impl Iterator<Item = &'static Flag> {
        refused(OF_DEMANDS, self, Instead::Device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::History;
    use crate::param_types::{Compression, DeleteLimit, Preserve, Shard, WriteMode};

    #[test]
    fn default_parameters_need_no_flags() {
        assert!(RunParams::default().to_args().is_empty());
    }

    #[test]
    fn a_pattern_that_begins_with_a_dash_stays_one_argument() {
        let params = RunParams { exclude: vec!["-x".into()], ..RunParams::default() };
        assert_eq!(params.to_args(), ["--exclude=-x"]);
    }

    #[test]
    fn each_flag_is_refused_where_it_does_not_apply() {
        let refused_with = |instead: Instead| {
            let refused = OF_RUNS.iter().map(|row| &row.flag).filter(|flag| flag.is_refused_with(instead));
            refused.map(|flag| flag.name.trim_start_matches("--")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            refused_with(Instead::Device),
            "delete adopt delete-anyway delete-limit max-delete force include exclude filter ignore-files min-size \
             max-size update existing ignore-existing compare=size remove-source-files chmod chown files-from \
             one-file-system cross-mounts ownership no-permissions no-times no-xattrs no-acls no-hard-links \
             no-specials shard expect-volume source-snapshot history"
        );
        assert_eq!(
            refused_with(Instead::File),
            "content-hash changed-blocks delete delete-limit max-delete include exclude filter ignore-files min-size \
             max-size files-from one-file-system cross-mounts no-hard-links no-specials shard history"
        );
        assert_eq!(
            refused_with(Instead::Snapshot),
            "content-hash changed-blocks include exclude filter ignore-files min-size max-size existing \
             ignore-existing remove-source-files chmod chown files-from one-file-system shard history"
        );
    }

    #[test]
    fn a_device_a_file_and_a_snapshot_refuse_what_does_not_apply_to_them() {
        let names =
            |flags: &mut dyn Iterator<Item = &'static Flag>| flags.map(|flag| flag.name).collect::<Vec<_>>();
        let of_devices = RunParams {
            verify: true,
            dry_run: true,
            compare: Compare::Content,
            write: WriteMode::InPlace,
            compression: Compression::None,
            bandwidth_limit: Some(1),
            shard: Some(Shard { index: 0, count: 1 }),
            preserve: Preserve { sparse: false, ..Preserve::default() },
            ..RunParams::default()
        };
        assert_eq!(names(&mut of_devices.flags_of_trees()), [""; 0]);
        let asked = RunParams {
            delete: true,
            delete_limit: DeleteLimit(1),
            update: true,
            existing: true,
            compare: Compare::Size,
            shard: Some(Shard { index: 0, count: 2 }),
            source_snapshot: Some("latest".into()),
            history: History::Kept,
            ..of_devices
        };
        assert_eq!(
            names(&mut asked.flags_of_trees()),
            [
                "--delete",
                "--delete-limit",
                "--update",
                "--existing",
                "--compare=size",
                "--shard",
                "--source-snapshot",
                "--history"
            ]
        );
        assert_eq!(
            names(&mut asked.flags_of_folders()),
            ["--delete", "--delete-limit", "--shard", "--history"]
        );
        assert_eq!(names(&mut asked.flags_of_live_sources()), ["--existing", "--shard", "--history"]);
        assert_eq!(names(&mut asked.flags_without_history()), ["--existing", "--shard", "--source-snapshot"]);
    }
}
