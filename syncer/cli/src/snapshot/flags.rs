//! The flags of `volferry snapshot`, as typed.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use contract::{Compare, SnapshotEngine};

use syncer::{
    path::{PathError, RelPath},
    snapshot::scrub::StoreShare,
};

/// The subcommands of `volferry snapshot`.
#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotCommand {
    /// Take a snapshot, and print its id
    ///
    /// The exit code is 3 when some entries could not be read: they are named, and missing from the snapshot.
    Create(CreateFlags),

    /// List the snapshots, the oldest first, and say why each is kept and until when
    ///
    /// The rules are those that the snapshot's job applied after its last run; `prune -n` shows the effect of others.
    List(ListFlags),

    /// Show what is known of one snapshot
    Show(OneFlags),

    /// List a folder of a snapshot
    Ls(LsFlags),

    /// Write a file of a snapshot to standard output
    Cat(CatFlags),

    /// Say what differs between two snapshots, one line for each path
    ///
    /// A line begins with `+` where only B has the path, with `-` where only A has it, with `M` where content or
    /// kind differs, and with `m` where only mode, owner, time or attributes do.
    Diff(DiffFlags),

    /// Show the versions that a path has had
    History(HistoryFlags),

    /// Give a snapshot tags
    Tag(TagFlags),

    /// Take tags from a snapshot
    Untag(TagFlags),

    /// Keep a snapshot whatever a policy says
    Pin(OneFlags),

    /// Let policies decide over a snapshot again
    Unpin(OneFlags),

    /// Forget snapshots; until the next prune they can be brought back with --undo
    Forget(ForgetFlags),

    /// Forget what a policy does not keep, and give back the room of everything that is forgotten
    ///
    /// A snapshot is kept when one rule keeps it. Each rule for a period keeps the last snapshot of each of the newest
    /// N periods that have any. Pinned snapshots, those with a time in the future, and the newest complete one stay.
    /// The snapshots of each SyncJob are judged separately.
    Prune(PruneFlags),

    /// Check every object, name the files of damaged ones, and put right what can be
    ///
    /// The exit code is 3 when something is damaged, even if it could be repaired: run the command again to see.
    Verify(VerifyFlags),

    /// Show who did what to the snapshots
    Log(LogFlags),

    /// Print the JSON schema of what the commands print with --json
    Schema,

    /// Bring the volume, a path of it or another volume back to what a snapshot has
    ///
    /// Entries that differ are written, and entries that the snapshot does not have are removed. All objects that are
    /// needed are checked before anything changes. The state before is kept in a pinned snapshot, unless --no-safety is
    /// given.
    Restore(RestoreFlags),
}

/// The volume that a command is about.
#[derive(Debug, Args)]
pub(crate) struct VolumeFlags {
    /// The folder where the volume is mounted
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// Print JSON on standard output; `volferry snapshot schema` describes it
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CreateFlags {
    #[command(flatten)]
    pub(crate) volume: VolumeFlags,

    /// Give it this tag; may be repeated
    #[arg(long = "tag", value_name = "TAG")]
    pub(crate) tags: Vec<String>,

    /// Say something about it
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub(crate) note: String,

    /// Keep it whatever a policy says, until it is unpinned
    #[arg(long)]
    pub(crate) pin: bool,

    /// How content gets into the store: by clones where the file system has them, or by copies
    #[arg(long, value_name = "auto|clone|copy", default_value_t)]
    pub(crate) engine: SnapshotEngine,
}

#[derive(Debug, Args)]
pub(crate) struct ListFlags {
    #[command(flatten)]
    pub(crate) volume: VolumeFlags,

    /// Only those with this tag
    #[arg(long, value_name = "TAG")]
    pub(crate) tag: Option<String>,

    /// Only those of this job: NAMESPACE/NAME of a SyncJob
    #[arg(long, value_name = "JOB")]
    pub(crate) job: Option<String>,

    /// Also those that were forgotten and not yet collected
    #[arg(long)]
    pub(crate) all: bool,
}

/// A volume and a snapshot.
#[derive(Debug, Args)]
pub(crate) struct OneFlags {
    #[command(flatten)]
    pub(crate) volume: VolumeFlags,

    /// An id or its first digits, a tag, of which the newest counts, `latest`, or `as-of:TIME`
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}

#[derive(Debug, Args)]
pub(crate) struct LsFlags {
    #[command(flatten)]
    pub(crate) volume: VolumeFlags,

    /// An id or its first digits, a tag, of which the newest counts, `latest`, or `as-of:TIME`
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    /// The folder in the snapshot
    #[arg(value_name = "PATH", default_value = ".", value_parser = path_in_snapshot)]
    pub(crate) path: RelPath,

    /// Also what is in the folders below
    #[arg(short = 'R', long)]
    pub(crate) recursive: bool,
}

#[derive(Debug, Args)]
pub(crate) struct CatFlags {
    /// The folder where the volume is mounted
    #[arg(value_name = "DIR")]
    pub(crate) dir: PathBuf,

    /// An id or its first digits, a tag, of which the newest counts, `latest`, or `as-of:TIME`
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    /// The file in the snapshot
    #[arg(value_name = "PATH", value_parser = path_in_snapshot)]
    pub(crate) path: RelPath,
}

#[derive(Debug, Args)]
pub(crate) struct DiffFlags {
    #[command(flatten)]
    pub(crate) volume: VolumeFlags,

    /// The snapshot that B is compared with
    #[arg(value_name = "A")]
    pub(crate) one: String,

    /// The snapshot whose differences from A are shown
    #[arg(value_name = "B")]
    pub(crate) other: String,

    /// Only this path
    #[arg(value_name = "PATH", default_value = ".", value_parser = path_in_snapshot)]
    pub(crate) path: RelPath,
}

#[derive(Debug, Args)]
pub(crate) struct HistoryFlags {
    #[command(flatten)]
    pub(crate) volume: VolumeFlags,

    /// The path in the snapshots
    #[arg(value_name = "PATH", value_parser = path_in_snapshot)]
    pub(crate) path: RelPath,
}

#[derive(Debug, Args)]
pub(crate) struct TagFlags {
    #[command(flatten)]
    pub(crate) volume: VolumeFlags,

    /// An id or its first digits, a tag, of which the newest counts, `latest`, or `as-of:TIME`
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    /// The tags
    #[arg(value_name = "TAG", required = true)]
    pub(crate) tags: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ForgetFlags {
    #[command(flatten)]
    pub(crate) volume: VolumeFlags,

    /// Ids or their first digits; with --undo whole ids
    #[arg(value_name = "ID", required = true)]
    pub(crate) ids: Vec<String>,

    /// Bring them back
    #[arg(long)]
    pub(crate) undo: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PruneFlags {
    #[command(flatten)]
    pub(crate) volume: VolumeFlags,

    /// Keep the newest N
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true)]
    pub(crate) keep_last: u32,

    /// Keep the last one of each of N hours
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true)]
    pub(crate) keep_hourly: u32,

    /// Keep the last one of each of N days
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true)]
    pub(crate) keep_daily: u32,

    /// Keep the last one of each of N weeks
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true)]
    pub(crate) keep_weekly: u32,

    /// Keep the last one of each of N months
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true)]
    pub(crate) keep_monthly: u32,

    /// Keep the last one of each of N years
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true)]
    pub(crate) keep_yearly: u32,

    /// Keep all that were taken at most this time before the newest one, such as 48h or 2d12h
    #[arg(long, value_name = "TIME", value_parser = super::time::span_seconds)]
    pub(crate) keep_within: Option<u64>,

    /// Keep all with this tag; may be repeated
    #[arg(long, value_name = "TAG")]
    pub(crate) keep_tag: Vec<String>,

    /// Drop the oldest of the kept ones until the rest takes at most this, such as 10G
    #[arg(long, value_name = "BYTES", value_parser = contract::parse_bytes)]
    pub(crate) max_bytes: Option<u64>,

    /// Apply no policy: only collect what was forgotten
    #[arg(long)]
    pub(crate) forgotten: bool,

    /// Only judge the snapshots of this job: NAMESPACE/NAME of a SyncJob
    #[arg(long, value_name = "JOB")]
    pub(crate) job: Option<String>,

    /// The time zone of days, weeks, months and years, such as Europe/Berlin [default: this machine's]
    #[arg(long, value_name = "ZONE", value_parser = super::time::zone)]
    pub(crate) time_zone: Option<jiff::tz::TimeZone>,

    /// Remove at most this many files per second
    #[arg(long, value_name = "FILES")]
    pub(crate) rate: Option<u32>,

    /// Say what would go and what it would free, and change nothing
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Args)]
pub(crate) struct VerifyFlags {
    #[command(flatten)]
    pub(crate) volume: VolumeFlags,

    /// Read the contents of the Nth of M parts only; M runs read all
    #[arg(long, value_name = "N/M", value_parser = part)]
    pub(crate) part: Option<StoreShare>,

    /// Read the contents of the next of M parts: M calls read all. A call that is cut off leaves its part to the next
    #[arg(long, value_name = "M", conflicts_with = "part", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) in_turn: Option<u64>,

    /// Read at most this many bytes per second, such as 100Mi [default: no limit]
    #[arg(long, visible_alias = "bwlimit", value_name = "BYTES", value_parser = contract::parse_bytes)]
    pub(crate) bandwidth_limit: Option<u64>,

    /// Only check, and put nothing right
    #[arg(long)]
    pub(crate) no_heal: bool,
}

#[derive(Debug, Args)]
pub(crate) struct LogFlags {
    #[command(flatten)]
    pub(crate) volume: VolumeFlags,
}

#[derive(Debug, Args)]
pub(crate) struct RestoreFlags {
    #[command(flatten)]
    pub(crate) volume: VolumeFlags,

    /// An id or its first digits, a tag, of which the newest counts, `latest`, or `as-of:TIME`
    #[arg(value_name = "ID")]
    pub(crate) id: String,

    /// Only this file or folder of the snapshot; all else stays as it is
    #[arg(long, value_name = "PATH", value_parser = path_in_snapshot)]
    pub(crate) path: Option<RelPath>,

    /// Restore to this folder instead; its last name is made if it does not exist
    #[arg(long, value_name = "OTHER")]
    pub(crate) to: Option<PathBuf>,

    /// Print the actions, one line for each on standard output, and change nothing
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,

    /// Do not keep the state before in a pinned snapshot
    #[arg(long)]
    pub(crate) no_safety: bool,

    /// What decides that a file is as the snapshot has it: size and modification time, or its content's hash
    #[arg(long, value_name = "metadata|content", default_value = "metadata")]
    pub(crate) compare: Compare,
}

/// Parses a path in a snapshot: `.` and `/` are its root, and slashes at the start or the end are ignored.
fn path_in_snapshot(text: &str) -> Result<RelPath, PathError> {
    match text.trim_matches('/') {
        "" | "." => Ok(RelPath::root()),
        path => RelPath::parse(path.trim_start_matches("./").as_bytes()),
    }
}

fn part(text: &str) -> Result<StoreShare, String> {
    StoreShare::parse(text).ok_or_else(|| "write it as N/M, N from 1 to M".into())
}
