use std::{fmt, path::PathBuf, str::FromStr};

use crate::{
    parse_error::{ParseParamError, bad},
    snapshots::{SnapshotEngine, SnapshotParams},
    volume::VolumeId,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How files at both ends are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum Compare {
    /// Size and modification time.
    #[default]
    Metadata,
    /// The content's hash, computed at both ends.
    Content,
}

/// Whether owner and group are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum Ownership {
    /// Kept where the sink's process may change owners, left alone where it may not.
    #[default]
    Auto,
    /// Kept; the run fails if the sink's process may not change owners.
    Always,
    /// Ignored.
    Never,
}

/// How an existing file's content is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum WriteMode {
    /// A staged file is renamed over the old one.
    #[default]
    Atomic,
    /// Changes are written into the old file, by way of a journal; only for files of 1 MiB and more.
    InPlace,
}

/// The time of deletes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum DeleteTiming {
    /// After all content has arrived.
    #[default]
    After,
    /// Before any content is written, which makes room for it.
    Before,
}

/// How data is compressed on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Compression {
    /// Chosen per stream, from the data and the speed of the link.
    #[default]
    Auto,
    /// Never.
    None,
    /// zstd at this level, 1 to 19.
    Level(u8),
}

/// The kinds of metadata that are compared and set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // each is the attribute of its name
pub struct Preserve {
    pub ownership: Ownership,
    pub permissions: bool,
    pub times: bool,
    pub xattrs: bool,
    pub acls: bool,
    pub hard_links: bool,
    pub sparse: bool,
    pub specials: bool,
}

impl Default for Preserve {
    fn default() -> Self {
        Self {
            ownership: Ownership::Auto,
            permissions: true,
            times: true,
            xattrs: true,
            acls: true,
            hard_links: true,
            sparse: true,
            specials: true,
        }
    }
}

/// The largest share of the destination's entries that a run may delete, in percent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeleteLimit(pub u8);

impl Default for DeleteLimit {
    fn default() -> Self {
        Self(50)
    }
}

/// One of several shares of a tree, each of which a pair of processes syncs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// Its number, 0 to `count - 1`.
    pub index: u32,
    /// The number of shards, at least 1.
    pub count: u32,
}

impl Shard {
    /// The largest number of shards of a tree.
    pub const MAX_COUNT: u32 = 256;

    /// Returns whether the index is below the count, and the count is not too large.
    pub fn is_valid(self) -> bool {
        self.index < self.count && self.count <= Self::MAX_COUNT
    }
}

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
    /// Show each change before it is made. The process that shows changes sets it, so no flag spells it.
    pub itemize_changes: bool,
}

impl Demands {
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
            itemize_changes: false,
            snapshot: params.demands.snapshot.clone(),
            backup_dir: params.demands.backup_dir.clone(),
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
    /// Delete even if an entry could not be read, listed or written.
    #[serde(default)]
    pub delete_anyway: bool,
    /// The limit on deletes.
    pub delete_limit: DeleteLimit,
    /// Override the guards.
    pub force: bool,
    /// gitignore patterns; if there are any, only matching entries are synced.
    pub include: Vec<String>,
    /// gitignore patterns of entries that are neither sent, changed nor deleted.
    pub exclude: Vec<String>,
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
    /// Only these paths take part, with everything below them.
    #[serde(default)]
    pub files_from: Option<FilesFrom>,
    /// Leave entries alone, at both ends, that are on other file systems than the root of the tree.
    #[serde(default)]
    pub one_file_system: bool,
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
    /// The tag of the pinned snapshot that keeps the destination's state before a restore of one of its own snapshots.
    /// If a snapshot has this tag already, none is taken, so that a run that is tried again keeps the state only once.
    #[serde(skip)]
    pub snapshot_before: Option<String>,
    /// The demands of the destination's owner. No peer can send them, and the source has none.
    #[serde(skip)]
    pub demands: Demands,
}

/// A flag for files, folders or metadata, which a block device does not have.
type OfTrees = (&'static str, fn(&RunParams) -> bool);

const OF_TREES: [OfTrees; 22] = [
    ("--delete", |params| params.delete),
    ("--delete-anyway", |params| params.delete_anyway),
    ("--delete-limit", |params| params.delete_limit != DeleteLimit::default()),
    ("--force", |params| params.force),
    ("--include", |params| !params.include.is_empty()),
    ("--exclude", |params| !params.exclude.is_empty()),
    ("--ignore-files", |params| params.ignore_files),
    ("--min-size", |params| params.min_size.is_some()),
    ("--max-size", |params| params.max_size.is_some()),
    ("--update", |params| params.update),
    ("--files-from", |params| params.files_from.is_some()),
    ("--one-file-system", |params| params.one_file_system),
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
];

impl RunParams {
    /// Returns the flags of these parameters that a run of block devices, or of images of them, refuses.
    pub fn flags_of_trees(&self) -> impl Iterator<Item = &'static str> {
        OF_TREES.iter().filter(|(_, asked)| asked(self)).map(|(flag, _)| *flag)
    }

    /// Returns the flags of these parameters that a run of a single file refuses, because they choose among the entries
    /// of a folder.
    pub fn flags_of_folders(&self) -> impl Iterator<Item = &'static str> {
        const OF_FOLDERS: [&str; 12] = [
            "--delete",
            "--delete-limit",
            "--include",
            "--exclude",
            "--ignore-files",
            "--min-size",
            "--max-size",
            "--files-from",
            "--one-file-system",
            "--no-hard-links",
            "--no-specials",
            "--shard",
        ];
        self.flags_of_trees().filter(|flag| OF_FOLDERS.contains(flag))
    }

    /// Returns the flags of these parameters that a run from a snapshot refuses, because it copies all of the snapshot.
    pub fn flags_of_live_sources(&self) -> impl Iterator<Item = &'static str> {
        const OF_LIVE: [&str; 8] = [
            "--include",
            "--exclude",
            "--ignore-files",
            "--min-size",
            "--max-size",
            "--files-from",
            "--one-file-system",
            "--shard",
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
        flag(self.delete_anyway, "--delete-anyway");
        flag(self.force, "--force");
        flag(self.ignore_files, "--ignore-files");
        flag(self.update, "--update");
        flag(self.one_file_system, "--one-file-system");
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
        if let Some(list) = &self.files_from {
            value(true, "--files-from", &list.file);
        }
        if let Some(size) = self.min_size {
            value(true, "--min-size", &size);
        }
        if let Some(size) = self.max_size {
            value(true, "--max-size", &size);
        }
        value(self.compare != defaults.compare, "--compare", &self.compare);
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
        args
    }
}

/// Implements a flag value that is one word of a fixed list.
macro_rules! words {
    ($type:ident, $expected:literal, $($word:literal => $variant:ident),+) => {
        impl FromStr for $type {
            type Err = ParseParamError;
            fn from_str(s: &str) -> Result<Self, Self::Err> {
                match s {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(bad(s, $expected)),
                }
            }
        }
        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $word,)+ })
            }
        }
    };
}

words!(DeleteTiming, "`before` or `after`", "before" => Before, "after" => After);
words!(Compare, "`metadata` or `content`", "metadata" => Metadata, "content" => Content);
words!(Ownership, "`auto`, `always` or `never`", "auto" => Auto, "always" => Always, "never" => Never);
words!(SnapshotEngine, "`auto`, `clone` or `copy`", "auto" => Auto, "clone" => Clone, "copy" => Copy);
words!(WriteMode, "`atomic` or `in-place`", "atomic" => Atomic, "in-place" => InPlace);

impl FromStr for Compression {
    type Err = ParseParamError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        match s {
            "auto" => Ok(Self::Auto),
            "none" => Ok(Self::None),
            _ => match s.parse() {
                Ok(level @ 1..=19) => Ok(Self::Level(level)),
                _ => Err(bad(s, "`auto`, `none` or a zstd level from 1 to 19")),
            },
        }
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::None => f.write_str("none"),
            Self::Level(level) => write!(f, "{level}"),
        }
    }
}

impl FromStr for DeleteLimit {
    type Err = ParseParamError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        match s.trim_end_matches('%').parse() {
            Ok(percent @ 0..=100) => Ok(Self(percent)),
            _ => Err(bad(s, "a percentage from 0 to 100")),
        }
    }
}

impl FromStr for Shard {
    type Err = ParseParamError;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let parsed = s.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match parsed.map(|(index, count)| Self { index, count }) {
            Some(shard) if shard.is_valid() => Ok(shard),
            _ => Err(bad(s, "a shard `i/n` with i from 0 to n - 1, and n at most 256")),
        }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

/// The suffixes of numbers of bytes and their factors, so that the rules of the CRDs accept the same as
/// [`parse_bytes`]. A `B` may follow each.
pub const BYTE_UNITS: [(&str, u64); 9] = [
    ("k", 1_000),
    ("K", 1_000),
    ("M", 1_000_000),
    ("G", 1_000_000_000),
    ("T", 1_000_000_000_000),
    ("Ki", 1 << 10),
    ("Mi", 1 << 20),
    ("Gi", 1 << 30),
    ("Ti", 1 << 40),
];

/// Parses a number of bytes with an optional suffix: `k K kB KB`, `M MB`, `G GB` and `T TB` are powers of 1000, `Ki
/// KiB` and so on powers of 1024. Fractions and signs are not accepted.
pub fn parse_bytes(s: &str) -> Result<u64, ParseParamError> {
    let digits = s.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let suffix = &s[digits.len()..];
    let unit = match suffix.strip_suffix('B').filter(|unit| !unit.is_empty()).unwrap_or(suffix) {
        "" => Some(1),
        name => BYTE_UNITS.iter().find(|(unit, _)| *unit == name).map(|(_, bytes)| *bytes),
    };
    let number = digits.bytes().all(|c| c.is_ascii_digit()).then(|| digits.parse::<u64>().ok()).flatten();
    let bytes = number.zip(unit).and_then(|(number, unit)| number.checked_mul(unit));
    bytes.ok_or_else(|| bad(s, "a number of bytes such as 1048576, 100Mi or 2G"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_counts_take_kubernetes_suffixes() {
        assert_eq!(parse_bytes("100Mi"), Ok(100 << 20));
        assert_eq!(parse_bytes("2G"), Ok(2_000_000_000));
        assert_eq!(parse_bytes("17"), Ok(17));
        for thousand in ["1k", "1K", "1kB", "1KB", "1000"] {
            assert_eq!(parse_bytes(thousand), Ok(1000), "{thousand}");
        }
        assert_eq!((parse_bytes("1Ki"), parse_bytes("3MiB")), (Ok(1024), Ok(3 << 20)));
        for bad in ["99999999Ti", "", "k", "1B", "1KBB", "1kk", "1 k", "-1k", "+1k", "1.5k", "1ki"] {
            assert!(parse_bytes(bad).is_err(), "{bad}");
        }
    }

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
            RunParams { delete_anyway: true, ..RunParams::default() },
            RunParams { delete_limit: DeleteLimit(1), ..RunParams::default() },
            RunParams { force: true, ..RunParams::default() },
            RunParams { include: vec!["a".into()], ..RunParams::default() },
            RunParams { exclude: vec!["a".into()], ..RunParams::default() },
            RunParams { ignore_files: true, ..RunParams::default() },
            RunParams { min_size: Some(1), ..RunParams::default() },
            RunParams { max_size: Some(1), ..RunParams::default() },
            RunParams { update: true, ..RunParams::default() },
            RunParams { files_from: Some(FilesFrom::default()), ..RunParams::default() },
            RunParams { one_file_system: true, ..RunParams::default() },
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
