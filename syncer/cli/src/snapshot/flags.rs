//! The flags of `volferry snapshot`, as typed.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use contract::{Compare, PublicKey, SnapshotEngine};

use super::{
    archive_flags::{ExportFlags, ImportFlags},
    damage_flags::{RepairFlags, VerifyFlags},
    key_flags::{KeyFlags, NewKeyFlags},
    look_flags::{
        CatFlags, DiffFlags, FindFlags, HistoryFlags, LsFlags, MountFlags, StatsFlags, StatusFlags,
    },
    volume_flags::{VolumeFlags, path_in_snapshot},
};
use crate::flags::end_flags::ShellFlags;
use syncer::{path::RelPath, session::PlanId};

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
    /// kind differs, and with `m` where only mode, owner, time or attributes do. With --content, the lines of text
    /// files that differ follow.
    Diff(DiffFlags),

    /// Say what differs between the volume's files and a snapshot, one line for each path
    ///
    /// Lines are those of `diff`, from the snapshot to the files. A file counts as unchanged by its size and time.
    Status(StatusFlags),

    /// Show the versions that a path has had
    History(HistoryFlags),

    /// Find the paths that match a pattern, in all snapshots
    ///
    /// Each path is followed by its versions: the snapshots that have it so, and what it is there.
    Find(FindFlags),

    /// Say what each snapshot takes, what of that only it needs, and what all take together
    Stats(StatsFlags),

    /// Mount all snapshots read-only, until a signal comes or somebody unmounts them
    ///
    /// They are in `by-id`, `by-tag` and `by-time`, and the newest is `latest`, with owners, modes, times, attributes,
    /// links and holes. Set-id bits and devices have no effect there. Needs root, or `fusermount3` of FUSE. As long as
    /// they are mounted, a prune frees nothing.
    Mount(MountFlags),

    /// Give a snapshot tags
    Tag(TagFlags),

    /// Take tags from a snapshot
    Untag(TagFlags),

    /// Keep a snapshot whatever a policy says
    Pin(PinFlags),

    /// Let policies decide over a snapshot again
    Unpin(PinFlags),

    /// Forget snapshots; until the next prune they can be brought back with --undo
    Forget(ForgetFlags),

    /// Forget what a policy does not keep, and give back the room of everything that is forgotten
    ///
    /// A snapshot is kept when one rule keeps it. Each rule for a period keeps the last snapshot of each of the newest
    /// N periods that have any. Pinned snapshots, those with a time in the future, and the newest complete one stay.
    /// The snapshots of each SyncJob, and of each volume that some were copied from, are judged separately.
    Prune(PruneFlags),

    /// Check every object, name the files of damaged ones, and put right what can be
    ///
    /// The exit code is 3 when something is damaged, even if it could be repaired: run the command again to see.
    Verify(VerifyFlags),

    /// Show what can be brought back of a damaged list or log of snapshots, and with --apply bring it back
    ///
    /// Without --apply nothing is changed, and the exit code is 3 when there is something to repair. Snapshots come
    /// back from the copy of the list and from the records in their packs; what nothing has is named and forgotten. The
    /// damaged list is kept as `roots.before-repair`, and a damaged log beside the new one. In object storage, an older
    /// list takes the place of a damaged one, or an empty one that of a missing one, and new indexes that of lost ones.
    Repair(RepairFlags),

    /// Copy snapshots to the store of another volume, each with its id, times, tags, note and job
    ///
    /// Only what TO lacks crosses, and is checked before a snapshot becomes visible there. TO needs no files of its
    /// own, and those that it has stay as they are. A snapshot that was forgotten at TO stays away, unless it is named.
    /// Where a check has found damage at TO that it could not heal, the objects of snapshots that both have are brought
    /// again. The exit code is 3 when a snapshot cannot be copied because it is damaged.
    Copy(CopyFlags),

    /// Make the key by which snapshots in object storage are encrypted, in a new file that only this user reads
    ///
    /// It never goes to the store. Keep a copy apart: what is encrypted by it is lost without it.
    Key(NewKeyFlags),

    /// Write a snapshot as a tar archive: the same bytes whenever it is exported, and wherever it was copied to
    ///
    /// The archive is of the pax format, with extended attributes, access control lists, sparse files, hard links,
    /// owners by number and nanoseconds. GNU tar unpacks it with --xattrs --xattrs-include='*' --acls.
    Export(ExportFlags),

    /// Make a snapshot of a tar archive; the volume's files stay as they are
    ///
    /// Archives of GNU tar and of pax programs are read, and owners by number only. One with a path or a hard link that
    /// leads out of it, or with a name twice, is refused, and nothing is changed. A restore leaves out what gives
    /// rights, unless --trust-store is given.
    Import(ImportFlags),

    /// Show who did what to the snapshots
    Log(LogFlags),

    /// Print the JSON schema of what the commands print with --json
    Schema,

    /// Bring the volume, a path of it or another volume back to what a snapshot has
    ///
    /// Entries that differ are written, and entries that the snapshot does not have are removed, except for sockets and
    /// for folders that hold a folder .volferry. With --to, nothing is removed unless --delete is given, and the guards
    /// of a run apply. All objects that are needed are checked before anything changes. A restore that changes anything
    /// first keeps the state before in a snapshot, unless --no-safety is given: `list` shows the last three.
    Restore(RestoreFlags),
}

impl SnapshotCommand {
    /// Returns whether it prints JSON.
    pub(super) fn is_json(&self) -> bool {
        match self {
            Self::Copy(flags) => flags.json,
            other => other.common().is_some_and(|volume| volume.json),
        }
    }

    /// Returns how many seconds it waits for the lock of its volume. A copy waits itself, and so does `create`, which
    /// first looks for room.
    pub(super) fn wait_seconds(&self) -> u64 {
        match self {
            Self::Create(_) => 0,
            other => other.common().map_or(0, |volume| volume.wait_lock),
        }
    }

    /// Returns the place that the command is about, if it is about one.
    pub(super) fn dir(&self) -> Option<&Path> {
        Some(match self {
            Self::Cat(flags) => &flags.dir,
            Self::Export(flags) => &flags.dir,
            Self::Mount(flags) => &flags.dir,
            others => &others.common()?.dir,
        })
    }

    /// Returns the flags that all commands on a volume have.
    pub(super) fn common(&self) -> Option<&VolumeFlags> {
        Some(match self {
            Self::Create(flags) => &flags.volume,
            Self::List(flags) => &flags.volume,
            Self::Show(flags) => &flags.volume,
            Self::Pin(flags) | Self::Unpin(flags) => &flags.of.volume,
            Self::Ls(flags) => &flags.volume,
            Self::Diff(flags) => &flags.volume,
            Self::History(flags) => &flags.volume,
            Self::Status(flags) => &flags.volume,
            Self::Find(flags) => &flags.volume,
            Self::Stats(flags) => &flags.volume,
            Self::Tag(flags) | Self::Untag(flags) => &flags.volume,
            Self::Forget(flags) => &flags.volume,
            Self::Prune(flags) => &flags.volume,
            Self::Verify(flags) => &flags.volume,
            Self::Repair(flags) => &flags.volume,
            Self::Log(flags) => &flags.volume,
            Self::Restore(flags) => &flags.volume,
            Self::Import(flags) => &flags.volume,
            Self::Cat(_) | Self::Copy(_) | Self::Export(_) | Self::Key(_) | Self::Mount(_) | Self::Schema => {
                return None;
            }
        })
    }
}

#[derive(Debug, Clone, Args)]
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

    /// Leave out what matches this gitignore pattern; a restore deletes nothing in the folders of such entries
    #[arg(long, value_name = "PATTERN")]
    pub(crate) exclude: Vec<String>,

    /// How content gets into the store: by clones where the file system has them, or by copies
    #[arg(long, value_name = "auto|clone|copy", default_value_t)]
    pub(crate) engine: SnapshotEngine,
}

#[derive(Debug, Args)]
pub(crate) struct ListFlags {
    #[command(flatten)]
    pub(crate) volume: VolumeFlags,

    #[command(flatten)]
    pub(crate) key: KeyFlags,

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

    #[command(flatten)]
    pub(crate) key: KeyFlags,

    /// An id or its first digits, a tag, of which the newest counts, `latest`, or `as-of:TIME`
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}

#[derive(Debug, Args)]
pub(crate) struct PinFlags {
    #[command(flatten)]
    pub(crate) of: OneFlags,
}

#[derive(Debug, Args)]
pub(crate) struct TagFlags {
    #[command(flatten)]
    pub(crate) volume: VolumeFlags,

    #[command(flatten)]
    pub(crate) key: KeyFlags,

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

    #[command(flatten)]
    pub(crate) key: KeyFlags,

    /// Ids or their first digits, tags, `latest` or `as-of:TIME`; with --undo ids or first digits of forgotten ones
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

    #[command(flatten)]
    pub(crate) key: KeyFlags,

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
    #[arg(long, conflicts_with_all = [
        "keep_last", "keep_hourly", "keep_daily", "keep_weekly", "keep_monthly", "keep_yearly", "keep_within", "keep_tag",
        "max_bytes", "job",
    ])]
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
pub(crate) struct CopyFlags {
    /// The folder where the volume with the snapshots is mounted, HOST:PATH, HOST::FOLDER of a service, or
    /// s3://BUCKET/PREFIX
    #[arg(value_name = "FROM")]
    pub(crate) from: PathBuf,

    /// The folder where the volume that gets them is mounted, HOST:PATH, HOST::FOLDER of a service, or
    /// s3://BUCKET/PREFIX; its last name is made if it does not exist
    #[arg(value_name = "TO")]
    pub(crate) to: PathBuf,

    /// An id or its first digits, a tag, of which the newest counts, `latest`, or `as-of:TIME`
    #[arg(value_name = "ID")]
    pub(crate) ids: Vec<String>,

    /// All snapshots of FROM, without those from before restores
    #[arg(long, conflicts_with_all = ["ids", "since"])]
    pub(crate) all: bool,

    /// All snapshots of FROM after this one, without those from before restores
    #[arg(long, value_name = "ID", conflicts_with = "ids")]
    pub(crate) since: Option<String>,

    /// Print JSON on standard output; `volferry snapshot schema` describes it
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) shell: ShellFlags,

    #[command(flatten)]
    pub(crate) key: KeyFlags,

    /// With HOST::FOLDER, the file of the key by which the service knows this user [default: as
    /// `volferry enroll` made it]
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,

    /// With HOST::FOLDER, the public key of the service [default: as `volferry enroll` noted it]
    #[arg(long, value_name = "KEY")]
    pub(crate) service_key: Option<PublicKey>,

    /// If another run or command holds TO, wait for it at most this long, such as 30s or 5m
    #[arg(long, value_name = "TIME", value_parser = super::time::span_seconds, default_value = "0s", hide_default_value = true)]
    pub(crate) wait_lock: u64,
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

    /// Only this file or folder of the snapshot; all else stays as it is. May be repeated
    #[arg(long = "path", value_name = "PATH", value_parser = path_in_snapshot)]
    pub(crate) paths: Vec<RelPath>,

    /// Do what `-n` has shown with this plan, or nothing: the plan is compared under the volume's lock
    #[arg(long, value_name = "PLAN", conflicts_with = "dry_run")]
    pub(crate) plan: Option<PlanId>,

    /// Restore to this folder instead, beside what it has; its last name is made if it does not exist
    #[arg(long, value_name = "OTHER")]
    pub(crate) to: Option<PathBuf>,

    /// Remove what OTHER has and the snapshot does not; a restore in place always does
    #[arg(long, requires = "to")]
    pub(crate) delete: bool,

    /// Go on where a guard would refuse the restore to OTHER
    #[arg(long, requires = "to")]
    pub(crate) force: bool,

    /// Print the actions, one line for each on standard output, and change nothing
    #[arg(short = 'n', long)]
    pub(crate) dry_run: bool,

    /// Do not keep the state before in a snapshot
    #[arg(long)]
    pub(crate) no_safety: bool,

    /// Restore all that is whole although some of the snapshot is damaged: it is named, and the exit code is 3
    #[arg(long)]
    pub(crate) keep_going: bool,

    /// Believe owners, set-id bits, capabilities and devices of the snapshot although other users could write to the
    /// store
    #[arg(long)]
    pub(crate) trust_store: bool,

    /// Compare contents, as --compare content does: this also replaces files that went bad without a new time
    #[arg(short, long, conflicts_with = "compare")]
    pub(crate) checksum: bool,

    /// What decides that a file is as the snapshot has it: size and modification time, or its content's hash
    #[arg(long, value_name = "metadata|content", default_value = "metadata")]
    pub(crate) compare: Compare,
}
