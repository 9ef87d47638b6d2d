//! The flags of a run's parameters, as [`RunParams`] and [`Demands`] spell them.

use std::path::PathBuf;

use clap::Args;
use contract::{
    Compare, Compression, DeleteLimit, DeleteTiming, Demands, FilesFrom, Ownership, Preserve, RunParams,
    Shard, VolumeId, WriteMode,
};

/// The flags of [`RunParams::to_args`], without [`WireFlags`].
#[derive(Debug, Args)]
#[command(next_help_heading = "Files")]
pub(crate) struct ParamFlags {
    /// Print the actions of the run, one line for each on standard output, and change nothing
    ///
    /// With --progress json the lines are JSON. The guards judge the run as they would judge a real one.
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// After the run, read the whole destination back and compare it with the source
    ///
    /// Differences are counted and named as failed, and the exit code is 3. With --dry-run the comparison takes the
    /// place of a run. Files that change at the source meanwhile are left out.
    #[arg(long)]
    verify: bool,

    /// Take a regular file for the image of a disk, and write only differences, in place
    #[arg(long)]
    image: bool,

    /// Remove entries that the source does not have, after all else has arrived, or `before`, to make room
    ///
    /// A folder that another entry replaces stays until that entry has arrived, in either case.
    #[arg(
        long,
        value_name = "before|after",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "after"
    )]
    delete: Option<DeleteTiming>,

    /// Delete also if something could not be read, listed or written, which otherwise keeps all deletes back
    #[arg(long, requires = "delete")]
    delete_anyway: bool,

    /// Refuse a run that would remove more than this share of the destination's entries
    #[arg(long, value_name = "PERCENT", default_value = "50")]
    delete_limit: DeleteLimit,

    /// Refuse any destination but the one with this id: the `volume` in an earlier run's report
    #[arg(long, value_name = "ID")]
    expect_volume: Option<VolumeId>,

    /// Override the guards: an emptied source, too many deletes, another destination than expected, no room
    #[arg(long)]
    force: bool,

    /// Sync only matches of this gitignore pattern; may be repeated
    #[arg(long, value_name = "PATTERN")]
    include: Vec<String>,

    /// Read patterns for --include from this file, one on each line, as in .gitignore; - is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) include_from: Vec<PathBuf>,

    /// Neither send, change nor delete matches of this gitignore pattern; may be repeated
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,

    /// Read patterns for --exclude from this file, one on each line, as in .gitignore; - is standard input
    ///
    /// They come before the patterns of --exclude, so an --exclude '!keep' takes a match back.
    #[arg(long, value_name = "FILE")]
    pub(crate) exclude_from: Vec<PathBuf>,

    /// Sync only the paths in this file, with everything below them; - is standard input
    ///
    /// Paths are relative to SRC, one on each line; lines that begin with # or ; are comments. The folders above a
    /// path are made with their metadata, and nothing in them is deleted. A path that SRC does not have counts as
    /// failed, and so does a path behind a symbolic link.
    #[arg(long, value_name = "FILE")]
    files_from: Option<String>,

    /// Each path of --files-from ends with a NUL, as `find -print0` prints it
    #[arg(short = '0', long, requires = "files_from")]
    from0: bool,

    /// Also leave out matches of the source's .gitignore and .volferryignore files
    ///
    /// Each file counts for its folder and everything below, as in git; in one folder, .volferryignore overrides
    /// .gitignore. They are read at the source only. Matching entries at the destination are neither changed nor
    /// deleted.
    #[arg(long)]
    ignore_files: bool,

    /// Leave files of fewer bytes alone: neither send, change nor delete them; such as 1k or 64Ki
    #[arg(long, value_name = "BYTES", value_parser = contract::parse_bytes)]
    min_size: Option<u64>,

    /// Leave files of more bytes alone: neither send, change nor delete them; such as 100M or 2Gi
    ///
    /// Wherever bytes are given, k, M, G and T stand for powers of 1000, and Ki, Mi, Gi and Ti for powers of 1024. K is
    /// k, and a B may follow: 1k, 1K, 1kB and 1KB are 1000 bytes, 1Ki and 1KiB are 1024.
    #[arg(long, value_name = "BYTES", value_parser = contract::parse_bytes)]
    max_size: Option<u64>,

    /// Leave files alone that have a later modification time at the destination
    ///
    /// The flag does not protect a file from --delete, nor from a source's entry that is not a file.
    #[arg(short, long)]
    update: bool,

    /// Leave out entries on other file systems than SRC, and delete nothing on other file systems than DST
    ///
    /// A folder of SRC where a file system is mounted is made in DST, and the entries that DST has in it stay.
    /// Subvolumes of btrfs count as file systems, too.
    #[arg(short = 'x', long)]
    one_file_system: bool,

    /// Compare files by size and modification time, or by the hashes of their contents
    #[arg(long, value_name = "metadata|content", default_value = "metadata")]
    compare: Compare,

    /// Compare files by the hashes of their contents; the same as --compare content
    #[arg(short, long, conflicts_with = "compare")]
    checksum: bool,

    /// Replace a file by renaming a new one over it, or write changes into the old one (from 1 MiB on)
    #[arg(long, value_name = "atomic|in-place", default_value = "atomic")]
    write: WriteMode,

    /// Keep owner and group: if this process may, always (or fail), or never
    #[arg(long, value_name = "auto|always|never", default_value = "auto", help_heading = "Attributes")]
    ownership: Ownership,

    /// Do not keep permission bits
    #[arg(long, help_heading = "Attributes")]
    no_permissions: bool,

    /// Do not keep modification times
    #[arg(long, help_heading = "Attributes")]
    no_times: bool,

    /// Do not keep extended attributes
    #[arg(long, help_heading = "Attributes")]
    no_xattrs: bool,

    /// Do not keep POSIX access control lists
    #[arg(long, help_heading = "Attributes")]
    no_acls: bool,

    /// Copy each name of a hard-linked file separately
    #[arg(long, help_heading = "Attributes")]
    no_hard_links: bool,

    /// Write the holes of sparse files as zeros
    #[arg(long, help_heading = "Attributes")]
    no_sparse: bool,

    /// Leave out FIFOs and device nodes
    #[arg(long, help_heading = "Attributes")]
    no_specials: bool,

    /// Bytes per second on the wire, such as 100Mi or 2G; with `sync`, bytes copied [default: no limit]
    ///
    /// Files whose blocks are shared with SRC (reflinks) are not copied, and so not limited.
    #[arg(
        long,
        visible_alias = "bwlimit",
        value_name = "BYTES",
        value_parser = contract::parse_bytes,
        help_heading = "Transfer"
    )]
    bandwidth_limit: Option<u64>,

    /// Sync one of several shards of a tree, counted from 0; start all at once, with the same --run
    #[arg(long, value_name = "I/N", help_heading = "Transfer")]
    shard: Option<Shard>,

    /// The run's name in its report
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true, help_heading = "Output")]
    run: String,
}

impl ParamFlags {
    /// Returns whether the paths of the run are on standard input.
    pub(crate) fn reads_paths_from_input(&self) -> bool {
        self.files_from.as_deref() == Some("-")
    }
}

impl From<ParamFlags> for RunParams {
    fn from(flags: ParamFlags) -> Self {
        Self {
            run: flags.run,
            dry_run: flags.dry_run,
            verify: flags.verify,
            image: flags.image,
            delete: flags.delete.is_some(),
            delete_timing: flags.delete.unwrap_or_default(),
            delete_anyway: flags.delete_anyway,
            delete_limit: flags.delete_limit,
            force: flags.force,
            include: flags.include,
            exclude: flags.exclude,
            ignore_files: flags.ignore_files,
            min_size: flags.min_size,
            max_size: flags.max_size,
            update: flags.update,
            files_from: flags.files_from.map(|file| FilesFrom {
                file,
                from0: flags.from0,
                paths: Vec::new(),
            }),
            one_file_system: flags.one_file_system,
            compare: if flags.checksum { Compare::Content } else { flags.compare },
            preserve: Preserve {
                ownership: flags.ownership,
                permissions: !flags.no_permissions,
                times: !flags.no_times,
                xattrs: !flags.no_xattrs,
                acls: !flags.no_acls,
                hard_links: !flags.no_hard_links,
                sparse: !flags.no_sparse,
                specials: !flags.no_specials,
            },
            write: flags.write,
            bandwidth_limit: flags.bandwidth_limit,
            shard: flags.shard,
            expect_volume: flags.expect_volume,
            ..Self::default()
        }
    }
}

/// The flags for sending content, which the sending end chooses.
#[derive(Debug, Args)]
#[command(next_help_heading = "Transfer")]
pub(crate) struct WireFlags {
    /// Compression on the wire: by data and link, none, or zstd at a level from 1 to 19
    #[arg(long, value_name = "auto|none|LEVEL", default_value = "auto")]
    compression: Compression,
}

impl WireFlags {
    /// Adds these flags to `params`.
    pub(crate) fn add_to(self, params: RunParams) -> RunParams {
        RunParams { compression: self.compression, ..params }
    }
}

/// The flags of [`Demands::to_args`]: the demands of DST's owner on every run, whatever the sending end asks for.
#[derive(Debug, Args)]
#[command(next_help_heading = "Demands on every run, also on one with --force")]
pub(crate) struct DemandFlags {
    /// Change nothing, and print the actions of the run, one line for each on standard output
    #[arg(short = 'n', long)]
    dry_run: bool,

    /// Delete nothing
    #[arg(long)]
    no_delete: bool,

    /// Take DST for the image of a disk if it is a regular file or missing
    #[arg(long, help_heading = "Files")]
    image: bool,

    /// Refuse a run that would remove more than this share of DST's entries
    #[arg(long, value_name = "PERCENT")]
    delete_limit: Option<DeleteLimit>,

    /// Refuse every run unless DST has this id: the `volume` in an earlier run's report
    #[arg(long, value_name = "ID")]
    expect_volume: Option<VolumeId>,

    /// Neither write nor delete matches of this gitignore pattern; may be repeated
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,

    /// The run's name in its report if it fails before the sending end has sent its name
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true, help_heading = "Output")]
    run: String,
}

impl From<DemandFlags> for Demands {
    fn from(flags: DemandFlags) -> Self {
        let DemandFlags { dry_run, no_delete, delete_limit, expect_volume, exclude, image, run } = flags;
        Self { run, dry_run, no_delete, delete_limit, exclude, expect_volume, image, ..Self::default() }
    }
}
