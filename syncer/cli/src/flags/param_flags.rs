//! The flags of a run's parameters, as [`RunParams`] and [`Demands`] spell them.

use std::path::PathBuf;

use clap::Args;
use contract::{
    ChangedBlocks, Chmod, Chown, Compare, Compression, DeleteLimit, DeleteTiming, Demands, FilesFrom,
    History, Ownership, Preserve, RunParams, Shard, VolumeId, WriteMode,
};

use super::owner_names::owner;

/// The flags of [`RunParams::to_args`], without [`WireFlags`].
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Files")]
pub(crate) struct ParamFlags {
    /// Print the actions of the run, one line for each on standard output, and change nothing
    ///
    /// With --progress json the lines are JSON. The guards judge the run as they would judge a real one. A file of SRC
    /// that cannot be read shows in the real one only.
    #[arg(short = 'n', long)]
    dry_run: bool,

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

    /// Let the first run with --delete remove what DST has already and SRC does not have
    ///
    /// Without it, such a run is refused with a list of what it would remove. DST counts as known from its first run
    /// on, or once it has a snapshot.
    #[arg(long, requires = "delete")]
    adopt: bool,

    /// Delete also if something could not be read, listed or written, which otherwise keeps all deletes back
    #[arg(long, requires = "delete")]
    delete_anyway: bool,

    /// Refuse a run that would remove more than this share of the destination's entries
    #[arg(long, value_name = "PERCENT", default_value = "50")]
    delete_limit: DeleteLimit,

    /// Refuse a run that would remove more than this number of entries
    #[arg(long, value_name = "NUM", requires = "delete")]
    max_delete: Option<u64>,

    /// Refuse any destination but the one with this id: the `volume` in an earlier run's report
    #[arg(long, value_name = "ID")]
    pub(crate) expect_volume: Option<VolumeId>,

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

    /// Decide by this rule of rsync which entries take part: the first rule that matches counts; may be repeated
    ///
    /// `+ PATTERN` includes, `- PATTERN` excludes, `. FILE` reads rules from a file, `: NAME` from the file of this
    /// name in each folder of SRC, and `!` forgets the rules before it. Patterns are rsync's, not gitignore's: they
    /// begin at SRC with a slash, else anywhere; ** crosses slashes, and DIR/*** is a folder with its content. An entry
    /// that --exclude or --include leaves out stays out.
    #[arg(
        short = 'f',
        long,
        value_name = "RULE",
        allow_hyphen_values = true,
        conflicts_with = "ignore_files"
    )]
    filter: Vec<String>,

    /// Read filter rules from this file, before those of --filter; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "ignore_files")]
    pub(crate) filter_from: Vec<PathBuf>,

    /// Sync only the paths in this file, with everything below them; - is standard input
    ///
    /// Paths are relative to SRC, one on each line; lines that begin with # or ; are comments. The folders above a
    /// path are made with their metadata, and nothing in them is deleted. A path that SRC does not have counts as
    /// failed, and so does a path behind a symbolic link.
    #[arg(long, value_name = "FILE")]
    pub(crate) files_from: Option<String>,

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

    /// Copy the snapshots of SRC into the store of DST once the files have arrived: none, kept or all
    ///
    /// `kept` copies those that the rules --snapshot-keep-... of DST keep, and drops copies that they do not keep any
    /// more. Snapshots that were forgotten at DST stay away. They are copied as a whole, so no flag may leave files
    /// out.
    #[arg(long, value_name = "none|kept|all", default_value = "none", hide_default_value = true)]
    pub(crate) history: History,

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
    /// The flag does not protect a file from --delete, nor from a source's entry that is not a file. Names of one file
    /// are copied as files of their own, since one of them may be newer.
    #[arg(short, long)]
    update: bool,

    /// Make nothing that DST does not have: only update files and folders there
    ///
    /// Names of a hard-linked file are copied separately, with this flag and with --ignore-existing.
    #[arg(long)]
    existing: bool,

    /// Leave everything alone that DST has, apart from folders: only add new entries
    #[arg(long)]
    ignore_existing: bool,

    /// Move: remove files and other entries of SRC, apart from folders, once DST has them on the disk
    ///
    /// After the run, all of DST is read back and compared with SRC. What is equal is removed from SRC, unless it has
    /// changed since the run began, or has attributes that DST does not take. A run that also deletes is refused,
    /// because the next one would delete what this one moved.
    #[arg(long, conflicts_with = "delete")]
    remove_source_files: bool,

    /// Leave out entries on other file systems than SRC, and delete nothing on other file systems than DST
    ///
    /// A folder of SRC where a file system is mounted is made in DST, and the entries that DST has in it stay.
    /// Subvolumes of btrfs count as file systems, too.
    #[arg(short = 'x', long)]
    one_file_system: bool,

    /// Delete also in what is mounted inside DST, such as another volume or a folder that is bound there
    ///
    /// Without the flag, entries in other mounts than the one of DST are written and never deleted.
    #[arg(long, requires = "delete", conflicts_with = "one_file_system")]
    cross_mounts: bool,

    /// Compare files by size and modification time, by the hashes of their contents, or by size alone
    #[arg(long, value_name = "metadata|content|size", default_value = "metadata")]
    compare: Compare,

    /// Compare files by the hashes of their contents; the same as --compare content
    #[arg(short, long, conflicts_with = "compare")]
    checksum: bool,

    /// Take files of the same size for the same, and give them the times of SRC; the same as --compare size
    #[arg(long, conflicts_with_all = ["compare", "checksum"])]
    size_only: bool,

    /// Replace a file by renaming a new one over it, or write changes into the old one (from 1 MiB on)
    #[arg(long, value_name = "atomic|in-place", default_value = "atomic")]
    write: WriteMode,

    /// After the run, read the whole destination back and compare it with the source
    ///
    /// Differences are counted and named as failed, and the exit code is 3. With --dry-run the comparison takes the
    /// place of a run. Files that change at the source meanwhile are left out.
    #[arg(long)]
    verify: bool,

    /// Take a regular file for the image of a disk, and write only differences, in place
    #[arg(long)]
    pub(crate) image: bool,

    /// After a run of a device, report the BLAKE3 hash of what was written, as the base of --changed-blocks later
    #[arg(long, help_heading = "Devices")]
    content_hash: bool,

    /// Read only the blocks of the device SRC that this file lists, if DST has the content that they were changed from
    ///
    /// The first line is `base HASH`, with `content.hash` of the report of the run before. Each other line is `OFFSET
    /// LENGTH` in bytes, in order. DST is read and hashed first: if it has another content than the base, everything
    /// is compared, and the report says so. Nothing shows that blocks changed that are not listed, except --verify. The
    /// hash of what was written is reported, as with --content-hash.
    #[arg(long, value_name = "FILE", help_heading = "Devices")]
    pub(crate) changed_blocks: Option<String>,

    /// Keep owner and group: if this process may, always (or fail), or never
    #[arg(long, value_name = "auto|always|never", default_value = "auto", help_heading = "Attributes")]
    ownership: Ownership,

    /// Change permission bits on the way, such as D755,F644 or go=rX: D is for folders, F for files
    ///
    /// The list is that of chmod and rsync, and each change names u, g, o or a. Entries with an access control list
    /// keep their permissions.
    #[arg(long, value_name = "CHANGES", conflicts_with = "no_permissions", help_heading = "Attributes")]
    chmod: Option<Chmod>,

    /// Give all entries this owner: USER, USER:GROUP or :GROUP, as numbers or as names of this machine
    ///
    /// The run fails if the process that writes may not change owners.
    #[arg(long, value_name = "USER:GROUP", value_parser = owner, help_heading = "Attributes")]
    chown: Option<Chown>,

    /// Do not keep permission bits
    ///
    /// New files get 644 and new folders 755, less the umask, also where the source's are private.
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
    /// Files whose blocks are shared with SRC (reflinks) are not copied, and so not limited. --bwlimit is the same in
    /// the units of rsync, where a bare number counts KiB.
    #[arg(
        long,
        value_name = "BYTES",
        value_parser = contract::parse_bytes,
        help_heading = "Transfer"
    )]
    bandwidth_limit: Option<u64>,

    /// Sync one of several shards of a tree, counted from 0; start all at once, with the same --run
    #[arg(long, value_name = "I/N", help_heading = "Transfer")]
    pub(crate) shard: Option<Shard>,

    /// The run's name in its report
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true, help_heading = "Output")]
    run: String,
}

impl ParamFlags {
    /// Returns whether a list of the run is on standard input.
    pub(crate) fn reads_input(&self) -> bool {
        let lists = [&self.include_from, &self.exclude_from, &self.filter_from];
        lists.into_iter().flatten().any(|path| path == "-")
            || self.reads_paths_from_input()
            || self.reads_blocks_from_input()
    }

    /// Returns whether the changed blocks of the run are on standard input.
    pub(crate) fn reads_blocks_from_input(&self) -> bool {
        self.changed_blocks.as_deref() == Some("-")
    }

    /// Returns whether the paths of the run are on standard input.
    pub(crate) fn reads_paths_from_input(&self) -> bool {
        self.files_from.as_deref() == Some("-")
    }
}

impl ParamFlags {
    fn preserve(&self) -> Preserve {
        Preserve {
            // An owner that was asked for and is not kept is a failure.
            ownership: match self.ownership {
                Ownership::Auto if self.chown.is_some() => Ownership::Always,
                ownership => ownership,
            },
            permissions: !self.no_permissions,
            times: !self.no_times,
            xattrs: !self.no_xattrs,
            acls: !self.no_acls,
            hard_links: !self.no_hard_links,
            sparse: !self.no_sparse,
            specials: !self.no_specials,
        }
    }
}

impl From<ParamFlags> for RunParams {
    fn from(flags: ParamFlags) -> Self {
        Self {
            preserve: flags.preserve(),
            run: flags.run,
            dry_run: flags.dry_run,
            verify: flags.verify,
            image: flags.image,
            content_hash: flags.content_hash,
            changed_blocks: flags
                .changed_blocks
                .map(|file| ChangedBlocks { file, ..ChangedBlocks::default() }),
            delete: flags.delete.is_some(),
            delete_timing: flags.delete.unwrap_or_default(),
            adopt: flags.adopt,
            delete_anyway: flags.delete_anyway,
            delete_limit: flags.delete_limit,
            max_delete: flags.max_delete,
            force: flags.force,
            include: flags.include,
            exclude: flags.exclude,
            filter: flags.filter,
            remove_source_files: flags.remove_source_files,
            ignore_files: flags.ignore_files,
            min_size: flags.min_size,
            max_size: flags.max_size,
            update: flags.update,
            existing: flags.existing,
            ignore_existing: flags.ignore_existing,
            history: flags.history,
            chmod: flags.chmod,
            chown: flags.chown,
            files_from: flags.files_from.map(|file| FilesFrom {
                file,
                from0: flags.from0,
                paths: Vec::new(),
            }),
            one_file_system: flags.one_file_system,
            cross_mounts: flags.cross_mounts,
            compare: match (flags.checksum, flags.size_only) {
                (true, _) => Compare::Content,
                (_, true) => Compare::Size,
                _ => flags.compare,
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
#[derive(Debug, Clone, Args)]
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
#[derive(Debug, Clone, Args)]
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

    /// Take the snapshots of the source, if the sending end has --history: none, kept or all
    ///
    /// `kept` takes those that the rules --snapshot-keep-... keep, and drops copies that they do not keep any more.
    #[arg(
        long,
        value_name = "none|kept|all",
        default_value = "none",
        hide_default_value = true,
        help_heading = "Snapshots"
    )]
    history: History,

    /// The run's name in its report if it fails before the sending end has sent its name
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true, help_heading = "Output")]
    run: String,
}

impl From<DemandFlags> for Demands {
    fn from(flags: DemandFlags) -> Self {
        let DemandFlags { dry_run, no_delete, delete_limit, expect_volume, exclude, history, image, run } =
            flags;
        let others = Self::default();
        Self { run, dry_run, no_delete, delete_limit, exclude, expect_volume, history, image, ..others }
    }
}
