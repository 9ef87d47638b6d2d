//! The flags as they are typed. A value that can be judged alone is judged here, by its parser; what depends
//! on other flags, on the machine or on what the engine can do is judged in [`config`](super::config).

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{ArgMatches, Args, FromArgMatches, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use contract::{
    Compare, Compression, DeleteLimit, DeleteTiming, Demands, FilesFrom, Ownership, Preserve, RunParams,
    Shard, VolumeId, WriteMode,
};

use super::{snapshot::flags::SnapshotCommand, take_flags::TakeFlags};
use syncer::path::{OWN_DIR, RelPath};

const EXAMPLES: &str = "\
Examples:
  Two folders of one machine:
    volferry sync --delete /srv/data /mnt/backup/data

  Two machines. Make the identities once, and bring each machine its own file:
    volferry keygen --out keys
    volferry receive /srv/copy --listen 0.0.0.0:7400 --identity sink
    volferry send /srv/data --connect copy.example.org:7400 --identity source --delete";

const EXIT_CODES: &str = "\
Exit codes:
  0  done: the destination equals the source
  1  failed or stopped; every file is wholly old or wholly new, and the next run goes on from the files that
     are there and, over the network, from the parts of large ones that had arrived; a block device may be
     partly old and partly new, until the next run
  2  the command line is wrong, or names an identity file that is not there; or one end is a folder and the other a block device or an image
  3  done, but some files failed, or differ by --verify; the first of them are named
  4  a guard refused the run, and nothing was changed: see --delete-limit, --expect-volume and --force
  5  the peer or the network was lost; the next run goes on as after 1
  6  an identity was refused, before anything was read";

const REPORT_EXAMPLES: &str = "\
Examples:
  volferry sync /srv/data /mnt/backup/data --report runs/$(date +%s).json
  volferry report runs/*.json
  volferry report runs/*.json --html runs.html";

const SEND_EXAMPLES: &str = "\
Examples:
  volferry send /srv/data --connect copy.example.org:7400 --identity source
  volferry send /srv/data --connect '[2001:db8::7]:7400' --identity source --delete
  volferry send /srv/data --listen 0.0.0.0:7400 --identity source --report run.json";

const RECEIVE_EXAMPLES: &str = "\
Examples:
  volferry receive /srv/copy --listen 0.0.0.0:7400 --identity sink
  volferry receive /srv/copy --listen '[::1]:0' --identity sink --once --progress json
  volferry receive /dev/vg0/copy --listen 0.0.0.0:7400 --identity sink --once
  volferry receive /srv/copy --connect data.example.org:7400 --identity sink --once";

const SYNC_EXAMPLES: &str = "\
Examples:
  volferry sync /srv/data /mnt/backup/data
  volferry sync --delete --delete-limit 10 --exclude /cache/ /srv/data /mnt/backup/data
  volferry sync notes.txt /mnt/backup/
  volferry sync --image /dev/vg0/data-snapshot /mnt/backup/data.img";

/// Keeps one folder's files in step with another's, on this machine or over an encrypted link.
#[derive(Debug, Parser)]
#[command(name = "volferry", version, max_term_width = 100)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(super) struct Flags {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Make the identities by which the two ends of a link know each other
    ///
    /// Writes DIR/source for `volferry send` and DIR/sink for `volferry receive`. Each holds its own private
    /// key and the fingerprint of the other's, so each end accepts exactly one peer. A key is never
    /// overwritten.
    Keygen(KeygenFlags),

    /// Say from the reports of earlier runs how long they took, and whether they have become slower
    ///
    /// FILE is a report as --report writes them, or several, one after the other. Runs count as slower when the last
    /// three that can be compared all took longer than is usual: runs of the same kind (first, changed, unchanged),
    /// within a fifth of the same size.
    #[command(after_help = REPORT_EXAMPLES)]
    Report(ReportFlags),

    /// Receive files into a folder, run after run
    ///
    /// Serves runs until it is told to stop by SIGINT or SIGTERM, or one run with --once. An end that listens
    /// prints one line of JSON with its real address on standard output once it does.
    ///
    /// Where SRC is a file, it goes into DST if that is a folder or ends with a slash, else it becomes the file
    /// DST. DST may also be a block device that is not in use, or with --image a file for the image of one, which is
    /// made if it is not there; SRC is then a block device or an image, too. See `volferry help sync`.
    #[command(override_usage = "volferry receive [OPTIONS] --identity <FILE> \
                                (--listen <IP:PORT> | --connect <HOST:PORT>) <DST>")]
    #[command(after_help = RECEIVE_EXAMPLES, after_long_help = format!("{RECEIVE_EXAMPLES}\n\n{EXIT_CODES}"))]
    Receive(Box<ReceiveFlags>),

    /// Send a folder's files to a `volferry receive`: one run
    ///
    /// SRC may also be one file, a block device, or with --image the image of a disk. If it is a device or an image,
    /// DST must be one, too. See `volferry help sync`.
    #[command(override_usage = "volferry send [OPTIONS] --identity <FILE> \
                                (--listen <IP:PORT> | --connect <HOST:PORT>) <SRC>")]
    #[command(after_help = SEND_EXAMPLES, after_long_help = format!("{SEND_EXAMPLES}\n\n{EXIT_CODES}"))]
    Send(Box<SendFlags>),

    /// Bring one folder of this machine in step with another, with no network
    ///
    /// Where SRC is a file, it goes into DST if that is a folder or ends with a slash, else it becomes the file DST,
    /// with its owner, mode and times, as a file of a folder would. A symbolic link to a file at DST is replaced.
    ///
    /// Or a block device, or with --image the image of one in a file, with another: of those all content is compared in
    /// every run, and only what differs is written, in place. So a run that is cut off leaves a mixture of old
    /// and new, which the next run puts right: where that matters, take a snapshot of DST first, and let SRC be
    /// one, as nothing tells that a device changed while it was read. DST must not be mounted or otherwise in
    /// use, and not smaller than SRC; what a larger device has behind SRC's end stays. An image gets SRC's
    /// length.
    #[command(after_help = SYNC_EXAMPLES, after_long_help = format!("{SYNC_EXAMPLES}\n\n{EXIT_CODES}"))]
    Sync(Box<SyncFlags>),

    /// Print the completions of a shell, or write the manual pages
    ///
    /// Where to put completions: /usr/share/bash-completion/completions/volferry for bash,
    /// /usr/local/share/zsh/site-functions/_volferry for zsh, ~/.config/fish/completions/volferry.fish for fish.
    #[command(arg_required_else_help = true)]
    Generate(GenerateFlags),

    /// Check two folders, or the way to a `volferry receive`, and say what a run would run into
    ///
    /// Tries out what DST keeps (names, attributes, links, times, owners, shared blocks) in a folder that is gone
    /// afterwards, looks at room, clock and mounts, and makes a dry run. With --connect, dials the other end and makes
    /// a dry run of an empty folder. Each finding that is not `ok` has a line `hint: ` with what to do. Exits with 0,
    /// with 3 if something would be left out, and with 1 if a run would fail.
    Doctor(DoctorFlags),

    /// Take, browse, restore, keep and check snapshots of a mounted volume
    ///
    /// They lie in DIR/.volferry/snapshots on the volume itself, share all that has not changed, and are of use
    /// without a cluster. `volferry snapshot create` takes one, `volferry snapshot restore` brings one back.
    Snapshot(SnapshotFlags),
}

impl Command {
    /// As it is typed.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Keygen(_) => "keygen",
            Self::Report(_) => "report",
            Self::Doctor(_) => "doctor",
            Self::Generate(_) => "generate",
            Self::Receive(_) => "receive",
            Self::Send(_) => "send",
            Self::Sync(_) => "sync",
            Self::Snapshot(_) => "snapshot",
        }
    }
}

/// The command below `volferry snapshot`. Its flags are built when it is typed, which takes as long as all others'.
#[derive(Debug)]
pub(super) struct SnapshotFlags(pub(super) Box<SnapshotCommand>);

impl Args for SnapshotFlags {
    fn augment_args(command: clap::Command) -> clap::Command {
        let command = command.subcommand_required(true).arg_required_else_help(true);
        command.defer(SnapshotCommand::augment_subcommands)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SnapshotFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        SnapshotCommand::from_arg_matches(matches).map(|command| Self(Box::new(command)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0.update_from_arg_matches(matches)
    }
}

/// What `volferry generate` makes from the flags of this program.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(super) struct GenerateFlags {
    /// Print the completions of this shell
    #[arg(long, value_name = "SHELL", value_enum)]
    pub(super) completions: Option<Shell>,
    /// Write volferry.1 and a page for each subcommand into this folder, which is made if it is not there
    #[arg(long, value_name = "DIR")]
    pub(super) man: Option<PathBuf>,
}

/// The forms that `volferry report` has; without one, it prints a table.
#[derive(Debug, Args)]
pub(super) struct ReportFlags {
    /// The reports
    #[arg(value_name = "FILE", required_unless_present = "schema")]
    pub(super) files: Vec<PathBuf>,
    /// Print JSON
    #[arg(long, conflicts_with_all = ["csv", "html"])]
    pub(super) json: bool,
    /// Print comma-separated values, a line a run
    #[arg(long, conflicts_with = "html")]
    pub(super) csv: bool,
    /// Write one page for a browser, which needs nothing else
    #[arg(long, value_name = "OUT")]
    pub(super) html: Option<PathBuf>,
    /// Print the schema of --json
    #[arg(long, conflicts_with_all = ["json", "csv", "html"])]
    pub(super) schema: bool,
    /// Take this many runs for what is usual
    #[arg(long, value_name = "RUNS", default_value_t = 10, value_parser = clap::value_parser!(u8).range(3..=50))]
    pub(super) window: u8,
    /// Find runs that take this many times what is usual
    #[arg(long, value_name = "FACTOR", default_value_t = 1.5, value_parser = slowdown)]
    pub(super) threshold: f64,
}

/// The places that `volferry doctor` checks.
#[derive(Debug, Args)]
pub(super) struct DoctorFlags {
    /// The folder that has the files
    #[arg(value_name = "SRC", required_unless_present_any = ["connect", "schema"], conflicts_with = "connect")]
    pub(super) source: Option<PathBuf>,
    /// The folder that the files go to
    #[arg(value_name = "DST", required_unless_present_any = ["connect", "schema"], conflicts_with = "connect")]
    pub(super) destination: Option<PathBuf>,
    /// Check the way to a `volferry receive` that listens there; one with --once ends after it
    #[arg(long, value_name = "HOST:PORT", value_parser = peer_address, requires = "identity")]
    pub(super) connect: Option<String>,
    /// The sending end's file as `volferry keygen` wrote it
    #[arg(long, value_name = "FILE", requires = "connect")]
    pub(super) identity: Option<PathBuf>,
    /// How long to go on trying to reach the other end [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, requires = "connect")]
    pub(super) connect_timeout: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
    /// Print the schema of --json
    #[arg(long)]
    pub(super) schema: bool,
}

/// Parses a factor above 1.
fn slowdown(typed: &str) -> Result<f64, String> {
    let factor = typed.parse().ok().filter(|factor: &f64| *factor >= 1.1 && *factor <= 100.0);
    factor.ok_or_else(|| "a factor from 1.1 to 100, such as 1.5".into())
}

#[derive(Debug, Args)]
pub(super) struct KeygenFlags {
    /// The folder for the two files; it is made if it is not there
    #[arg(long, value_name = "DIR")]
    pub(super) out: PathBuf,
}

#[derive(Debug, Args)]
pub(super) struct ReceiveFlags {
    /// The folder that the files go to; its last name is made if it is not there. Or a block device or an image
    #[arg(value_name = "DST")]
    pub(super) destination: PathBuf,

    /// Use this folder (or image) below DST, and make it if it is not there; symbolic links are refused
    #[arg(long, value_name = "PATH", value_parser = folder_below)]
    pub(super) destination_path: Option<RelPath>,

    #[command(flatten)]
    pub(super) link: LinkFlags,

    /// End after one run, with its exit code
    #[arg(long, help_heading = "Connection")]
    pub(super) once: bool,

    #[command(flatten)]
    pub(super) demands: DemandFlags,

    #[command(flatten)]
    pub(super) backup: BackupFlags,

    #[command(flatten)]
    pub(super) snapshot: TakeFlags,

    #[command(flatten)]
    pub(super) output: OutputFlags,
}

#[derive(Debug, Args)]
pub(super) struct SendFlags {
    /// The folder that has the files; or a block device or an image
    #[arg(value_name = "SRC")]
    pub(super) source: PathBuf,

    /// Send this folder (or image) below SRC; symbolic links on the way are refused
    #[arg(long, value_name = "PATH", value_parser = folder_below)]
    pub(super) source_path: Option<RelPath>,

    #[command(flatten)]
    pub(super) link: LinkFlags,

    #[command(flatten)]
    pub(super) params: ParamFlags,

    #[command(flatten)]
    pub(super) wire: WireFlags,

    #[command(flatten)]
    pub(super) output: OutputFlags,
}

#[derive(Debug, Args)]
pub(super) struct SyncFlags {
    /// The folder that has the files, or a single file; or a block device or an image
    #[arg(value_name = "SRC")]
    pub(super) source: PathBuf,

    /// The folder that the files go to; its last name is made if it is not there. Or a block device or an image
    ///
    /// A single file goes into DST if that is a folder or ends with a slash. Otherwise it becomes DST. What
    /// is there with another name than SRC's is replaced only with --force.
    #[arg(value_name = "DST")]
    pub(super) destination: PathBuf,

    /// Read this folder (or image) below SRC; symbolic links on the way are refused
    #[arg(long, value_name = "PATH", value_parser = folder_below)]
    pub(super) source_path: Option<RelPath>,

    /// Use this folder (or image) below DST, and make it if it is not there; symbolic links are refused
    #[arg(long, value_name = "PATH", value_parser = folder_below)]
    pub(super) destination_path: Option<RelPath>,

    /// Copy a snapshot of SRC in place of its files: an id or its first digits, a tag, of which the newest counts,
    /// `latest`, or `as-of:TIME`, the newest of that time or before, such as as-of:2026-11-22T18:00Z
    #[arg(long, value_name = "ID", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(super) source_snapshot: Option<String>,

    #[command(flatten)]
    pub(super) params: ParamFlags,

    #[command(flatten)]
    pub(super) backup: BackupFlags,

    #[command(flatten)]
    pub(super) snapshot: TakeFlags,

    #[command(flatten)]
    pub(super) output: OutputFlags,
}

/// Where old versions go.
#[derive(Debug, Args)]
pub(super) struct BackupFlags {
    /// Keep what a run replaces or deletes in DIR, below its path in DST; a relative DIR is a folder below DST
    ///
    /// So a run in the wrong direction can be undone: sync DIR onto DST. Give each run a DIR of its own, since later
    /// old versions replace earlier ones of the same path. DIR belongs to this user alone (mode 0700). One that is in
    /// DST is left out of the run. Changes of metadata alone are not kept. Folders that moved are copied and deleted.
    #[arg(long, value_name = "DIR")]
    pub(super) backup_dir: Option<PathBuf>,
}

/// Where the other end is, and who this end is.
#[derive(Debug, Args)]
#[command(next_help_heading = "Connection")]
pub(super) struct LinkFlags {
    /// Wait for the other end on this UDP address; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT", value_parser = listen_address)]
    pub(super) listen: Option<SocketAddr>,

    /// Dial the other end, which listens there
    #[arg(long, value_name = "HOST:PORT", value_parser = peer_address)]
    pub(super) connect: Option<String>,

    /// This end's file as `volferry keygen` wrote it: `source` to send, `sink` to receive
    #[arg(long, value_name = "FILE", required_unless_present = "exchange")]
    pub(super) identity: Option<PathBuf>,

    /// In place of --identity and --connect: make a key for this run in memory, print its fingerprint and the address
    /// of --listen as a line of JSON (`"event":"contact"`), and read the other end's line on standard input. Both
    /// ends give the same JOB. For programs that start both ends and pass the lines on
    #[arg(long, value_name = "JOB", conflicts_with_all = ["identity", "connect"], value_parser = job_name)]
    pub(super) exchange: Option<String>,

    /// How long to go on trying to reach the other end, with --connect [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(super) connect_timeout: Option<Duration>,
}

/// What [`RunParams::to_args`] spells, but for [`WireFlags`].
#[derive(Debug, Args)]
#[command(next_help_heading = "Files")]
pub(super) struct ParamFlags {
    /// Print what would be done, one line for each action on standard output, and change nothing
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
    pub(super) include_from: Vec<PathBuf>,

    /// Neither send, change nor delete matches of this gitignore pattern; may be repeated
    #[arg(long, value_name = "PATTERN")]
    exclude: Vec<String>,

    /// Read patterns for --exclude from this file, one on each line, as in .gitignore; - is standard input
    ///
    /// They come before those of --exclude, so that an --exclude '!keep' takes one back.
    #[arg(long, value_name = "FILE")]
    pub(super) exclude_from: Vec<PathBuf>,

    /// Sync only the paths in this file, with everything below them; - is standard input
    ///
    /// Paths are relative to SRC, one on each line; lines that begin with # or ; are comments. The folders above a
    /// path are made with their metadata, and nothing in them is deleted. A path that SRC does not have has failed, and
    /// so has one behind a symbolic link.
    #[arg(long, value_name = "FILE")]
    files_from: Option<String>,

    /// The paths of --files-from end with a NUL each, as `find -print0` prints them
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
    /// It does not protect a file from --delete, nor where the source has something else than a file.
    #[arg(short, long)]
    update: bool,

    /// Leave out what is on other file systems than SRC, and delete nothing on other file systems than DST
    ///
    /// A folder of SRC where a file system is mounted is made in DST, and what DST has in it stays. Subvolumes of btrfs
    /// count as file systems, too.
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
    /// Whether the paths of the run are on standard input.
    pub(super) fn reads_paths_from_input(&self) -> bool {
        self.files_from.as_deref() == Some("-")
    }
}

/// How content crosses, which the sending end decides.
#[derive(Debug, Args)]
#[command(next_help_heading = "Transfer")]
pub(super) struct WireFlags {
    /// Compression on the wire: by data and link, none, or zstd at a level from 1 to 19
    #[arg(long, value_name = "auto|none|LEVEL", default_value = "auto")]
    compression: Compression,

    /// QUIC connections of a run with much to send, at most 8; 0 is one for each four cores of the dialling end, at
    /// most 4
    #[arg(
        long,
        value_name = "N",
        default_value = "0",
        value_parser = clap::value_parser!(u32).range(..=i64::from(contract::MAX_CONNECTIONS))
    )]
    connections: u32,
}

impl WireFlags {
    /// Adds to `params` how content crosses.
    pub(super) fn add_to(self, params: RunParams) -> RunParams {
        let Self { compression, connections } = self;
        RunParams { compression, connections, ..params }
    }
}

/// Everything that [`Demands::to_args`] spells: what the owner of DST demands of every run, whatever the sending end
/// asks for.
#[derive(Debug, Args)]
#[command(next_help_heading = "Demands on every run, also on one with --force")]
pub(super) struct DemandFlags {
    /// Change nothing, and print what would be done, one line for each action on standard output
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

/// What is said of a run, and where.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(super) struct OutputFlags {
    /// Write what the run did, and how long each phase took, to this file as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(super) report: Option<PathBuf>,

    /// A live bar on a terminal, lines of JSON on standard output, or nothing
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub(super) progress: ProgressFlag,

    /// Print only warnings and errors: no summary, no line for each run, no bar
    #[arg(short, long, conflicts_with = "verbose")]
    pub(super) quiet: bool,

    /// Print one line for each change on standard output, and say more on standard error; -vv and -vvv say more still
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(super) verbose: u8,

    /// Print one line for each change on standard output, in rsync's letters
    ///
    /// Each line is a change that the run is about to make, as `>f.st...... path`: < sent or > received, c made here, h
    /// a hard link, . only metadata; f file, d folder, L link, D device, S FIFO; then what differs: c content, s size,
    /// t time, p permissions, o owner, g group, a access control lists, x other attributes; or + for a new entry.
    #[arg(short, long)]
    pub(super) itemize_changes: bool,

    /// The form of what is logged on standard error
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub(super) log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum ProgressFlag {
    /// A bar where standard error is a terminal, else nothing
    #[default]
    Auto,
    /// A bar; nothing in a pipe
    Bar,
    /// JSON lines on standard output, a few a second, and the report as the last
    Json,
    /// Nothing
    None,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum LogFormat {
    /// Lines for people
    #[default]
    Text,
    /// A JSON object a line
    Json,
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

/// A folder below another, as a SyncJob's `path` is written: with a leading slash or without.
fn folder_below(s: &str) -> Result<RelPath, String> {
    let path = s.strip_prefix('/').unwrap_or(s);
    if path.is_empty() {
        return Ok(RelPath::root());
    }
    let step = |at: RelPath, name: &str| match name.as_bytes() == OWN_DIR {
        true => Err(".volferry is Volferry's own folder".to_string()),
        false => at.join(name.as_bytes()).map_err(|error| error.to_string()),
    };
    let below = path.split('/').try_fold(RelPath::root(), step);
    below.map_err(|problem| format!("{problem}: write a folder below it, such as /data/uploads"))
}

fn job_name(s: &str) -> Result<String, String> {
    match s.len() {
        1..=contract::MAX_JOB_BYTES => Ok(s.into()),
        _ => Err(format!("a job's name has 1 to {} bytes", contract::MAX_JOB_BYTES)),
    }
}

fn listen_address(s: &str) -> Result<SocketAddr, String> {
    s.parse()
        .map_err(|_| "write an IP address and a port, such as 0.0.0.0:7400, [::]:7400 or 127.0.0.1:0".into())
}

/// Accepts `host:port` without looking the host up: that is the engine's to do, and to repeat.
fn peer_address(s: &str) -> Result<String, String> {
    let split = s.rsplit_once(':').filter(|(host, _)| is_host(host));
    match split.map(|(_, port)| port.parse::<u16>()) {
        Some(Ok(1..)) => Ok(s.into()),
        _ => {
            Err("write a host and a port, such as copy.example.org:7400, 10.0.0.7:7400 or [2001:db8::7]:7400"
                .into())
        }
    }
}

fn is_host(host: &str) -> bool {
    let bracketed = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match bracketed {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !host.is_empty() && !host.contains([':', '[', ']', '/']) && !host.contains(char::is_whitespace)
        }
    }
}

fn seconds(s: &str) -> Result<Duration, String> {
    match s.parse() {
        Ok(seconds @ 1..) => Ok(Duration::from_secs(seconds)),
        _ => Err("write a whole number of seconds, 1 or more".into()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use contract::{Keep, SnapshotParams};
    use proptest::prelude::*;

    use super::*;

    fn parse(args: &[String]) -> Result<RunParams, clap::Error> {
        let line = ["volferry", "send", "--identity=i", "a"].into_iter().map(String::from);
        match Flags::try_parse_from(line.chain(args.iter().cloned()))?.command {
            Command::Send(send) => Ok(send.wire.add_to(send.params.into())),
            other => panic!("`send` was read as {other:?}"),
        }
    }

    fn parse_demands(args: &[String]) -> Result<Demands, clap::Error> {
        let line = ["volferry", "receive", "--identity=i", "a"].into_iter().map(String::from);
        match Flags::try_parse_from(line.chain(args.iter().cloned()))?.command {
            Command::Receive(receive) => {
                let (snapshot, backup_dir) = (receive.snapshot.into(), receive.backup.backup_dir);
                Ok(Demands { snapshot, backup_dir, ..receive.demands.into() })
            }
            other => panic!("`receive` was read as {other:?}"),
        }
    }

    fn any_preserve() -> impl Strategy<Value = Preserve> {
        let ownership = prop::sample::select(vec![Ownership::Auto, Ownership::Always, Ownership::Never]);
        (ownership, any::<[bool; 7]>()).prop_map(|(ownership, on)| Preserve {
            ownership,
            permissions: on[0],
            times: on[1],
            xattrs: on[2],
            acls: on[3],
            hard_links: on[4],
            sparse: on[5],
            specials: on[6],
        })
    }

    fn any_compression() -> impl Strategy<Value = Compression> {
        prop_oneof![Just(Compression::Auto), Just(Compression::None), (1..=19u8).prop_map(Compression::Level)]
    }

    fn any_shard() -> impl Strategy<Value = Shard> {
        (1..=Shard::MAX_COUNT)
            .prop_flat_map(|count| (0..count, Just(count)))
            .prop_map(|(index, count)| Shard { index, count })
    }

    /// Patterns of every character, with more of those that a command line could take for something else.
    fn any_patterns() -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec(prop_oneof![".*", "-{0,2}[a-z=, ]*", "[\\s\"'\\\\*!#/]*"], 0..4)
    }

    prop_compose! {
        fn any_params()(
            (run, delete, force, delete_limit) in (".*", any::<bool>(), any::<bool>(), 0..=100u8),
            (dry_run, verify, image, delete_anyway, before) in any::<(bool, bool, bool, bool, bool)>(),
            (include, exclude, preserve) in (any_patterns(), any_patterns(), any_preserve()),
            (ignore_files, update, one_file_system) in any::<(bool, bool, bool)>(),
            (min_size, max_size) in any::<(Option<u64>, Option<u64>)>(),
            (content, in_place, compression) in (any::<bool>(), any::<bool>(), any_compression()),
            (bandwidth_limit, connections) in (any::<Option<u64>>(), 0..=contract::MAX_CONNECTIONS),
            shard in prop::option::of(any_shard()),
            volume in any::<Option<[u8; 16]>>(),
            list in prop::option::of((".+", any::<bool>())),
            (snapshot, backup_dir) in (prop::option::of(any_snapshot()), prop::option::of("[ =a-z/-]{1,9}")),
        ) -> RunParams {
            RunParams {
                run,
                dry_run,
                verify,
                image,
                delete,
                delete_timing: if delete && before { DeleteTiming::Before } else { DeleteTiming::After },
                delete_anyway: delete && delete_anyway,
                delete_limit: DeleteLimit(delete_limit),
                force,
                include,
                exclude,
                ignore_files,
                min_size,
                max_size,
                update,
                files_from: list.map(|(file, from0)| FilesFrom { file, from0, paths: Vec::new() }),
                one_file_system,
                compare: if content { Compare::Content } else { Compare::Metadata },
                preserve,
                write: if in_place { WriteMode::InPlace } else { WriteMode::Atomic },
                compression,
                bandwidth_limit,
                connections,
                shard,
                expect_volume: volume.map(VolumeId::new),
                itemize_changes: false,
                source_snapshot: None,
                demands: Demands { snapshot, backup_dir: backup_dir.map(PathBuf::from), ..Demands::default() },
            }
        }
    }

    prop_compose! {
        fn any_snapshot()(
            tags in prop::collection::vec("[a-z=-]{1,5}", 0..3),
            job in "[a-z/-]{0,5}",
            [last, hourly, daily, weekly, monthly, yearly] in any::<[u32; 6]>(),
            within_seconds in prop::option::of(0..u64::from(u32::MAX)),
            kept in prop::collection::vec("[a-z=-]{1,5}", 0..3),
            max_bytes in any::<Option<u64>>(),
        ) -> SnapshotParams {
            let keep =
                Keep { last, hourly, daily, weekly, monthly, yearly, within_seconds, tags: kept, max_bytes };
            SnapshotParams { tags, job, keep }
        }
    }

    proptest! {
        #[test]
        fn any_parameters_survive_the_command_line(params in any_params()) {
            let demands = Demands::of(&params);
            prop_assert_eq!(parse_demands(&demands.to_args()).unwrap(), demands);
            let params = RunParams { demands: Demands::default(), ..params };
            prop_assert_eq!(parse(&params.to_args()).unwrap(), params);
        }
    }

    #[test]
    fn no_flags_mean_the_default_parameters() {
        assert_eq!(parse(&[]).unwrap(), RunParams::default());
    }

    /// Which commands take which flags. A flag that could have no effect is taken by none.
    #[test]
    fn each_command_takes_the_flags_that_have_an_effect_there() {
        const KEYGEN: &str = "help out";
        const PLACES: [&str; 2] = ["source_path", "destination_path"];
        const OUTPUT: &str = "help itemize_changes log_format progress quiet report run verbose";
        const LINK: &str = "connect connect_timeout exchange identity listen";
        const WIRE: &str = "compression connections";
        const DEMANDS: &str = "delete_limit dry_run exclude expect_volume image no_delete once";
        const SNAPSHOT: &str = "snapshot snapshot_job snapshot_keep_daily snapshot_keep_hourly snapshot_keep_last \
                                snapshot_keep_monthly snapshot_keep_tag snapshot_keep_weekly snapshot_keep_within \
                                snapshot_keep_yearly snapshot_max_bytes snapshot_tag";
        const PARAMS: &str = "bandwidth_limit checksum compare delete delete_anyway delete_limit dry_run exclude \
                              exclude_from expect_volume files_from force from0 ignore_files image include include_from \
                              max_size min_size no_acls no_hard_links no_permissions no_sparse no_specials no_times \
                              no_xattrs one_file_system ownership shard update verify write";
        for (command, flags) in [
            ("keygen", vec![KEYGEN]),
            ("send", vec![OUTPUT, LINK, WIRE, PARAMS, PLACES[0]]),
            ("receive", vec![OUTPUT, LINK, DEMANDS, SNAPSHOT, "backup_dir", PLACES[1]]),
            ("sync", vec![OUTPUT, PARAMS, SNAPSHOT, "backup_dir", "source_snapshot", PLACES[0], PLACES[1]]),
        ] {
            let mut all = Flags::command();
            all.build();
            let command = all.find_subcommand(command).unwrap();
            let mut taken: Vec<_> = command
                .get_arguments()
                .filter(|arg| !arg.is_positional())
                .map(|arg| arg.get_id().as_str())
                .collect();
            let mut expected: Vec<_> = flags.iter().flat_map(|flags| flags.split_whitespace()).collect();
            taken.push("help");
            taken.sort_unstable();
            taken.dedup();
            expected.sort_unstable();
            assert_eq!(taken, expected, "{}", command.get_name());
        }
    }

    #[test]
    fn deletes_in_spite_of_failures_are_deletes() {
        let parse = |args: &[&str]| parse(&args.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert!(parse(&["--delete=before", "--delete-anyway"]).unwrap().delete_anyway);
        let refused = parse(&["--delete-anyway"]).unwrap_err();
        assert_eq!(refused.kind(), clap::error::ErrorKind::MissingRequiredArgument);
        assert!(refused.to_string().contains("--delete"), "{refused}");
    }

    #[test]
    fn the_flags_are_consistent() {
        Flags::command().debug_assert();
    }

    #[test]
    fn every_flag_is_shown_and_explained() {
        for command in Flags::command().get_subcommands() {
            for arg in command.get_arguments() {
                assert!(!arg.is_hide_set(), "{} {} is hidden", command.get_name(), arg.get_id());
                assert!(arg.get_help().is_some(), "{} {} has no help", command.get_name(), arg.get_id());
            }
        }
    }

    #[test]
    fn a_peer_is_a_host_and_a_port() {
        for good in ["host:1", "10.0.0.7:7400", "[2001:db8::7]:65535", "a-b.example.org:7400"] {
            assert_eq!(peer_address(good).as_deref(), Ok(good));
        }
        for bad in [
            "",
            "host",
            "host:",
            ":7400",
            "host:0",
            "host:65536",
            "2001:db8::7:7400",
            "[host]:1",
            "http://h:1",
            "a b:1",
        ] {
            assert!(peer_address(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_listening_address_is_an_ip_and_a_port() {
        assert_eq!(listen_address("[::1]:0"), Ok("[::1]:0".parse().unwrap()));
        for bad in ["", "localhost:0", "127.0.0.1", ":7400", "::1:0"] {
            assert!(listen_address(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_folder_below_never_leads_out() {
        for (text, path) in [("", ""), ("/", ""), ("/a/b", "a/b"), ("a/..b", "a/..b")] {
            assert_eq!(folder_below(text).unwrap().as_bytes(), path.as_bytes(), "{text:?}");
        }
        for bad in ["..", "/a/../b", "//a", "/a/", "a//b", ".", "/.volferry", "a/.volferry/x", "a\0"] {
            assert!(folder_below(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_timeout_is_at_least_a_second() {
        assert_eq!(seconds("1"), Ok(Duration::from_secs(1)));
        for bad in ["0", "-1", "1.5", "", "1s"] {
            assert!(seconds(bad).is_err(), "{bad:?}");
        }
    }
}
