//! Flags that several commands take, and that are not parameters of a run.

use std::{ffi::OsString, net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};
use contract::{Compression, Demands, OtherSource, PublicKey, RunParams};
use syncer::session::LinkMode;

use super::flag_values::{job_name, listen_address, peer_address, seconds};

/// The place for old versions, and the source that the copy is of.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Old versions")]
pub(crate) struct BackupFlags {
    /// Keep entries that a run replaces or deletes in DIR, at their paths in DST; a relative DIR is a folder below DST
    ///
    /// So a run in the wrong direction can be undone: sync DIR onto DST. Give each run a DIR of its own, since later
    /// old versions replace earlier ones of the same path. Only this user can read DIR (mode 0700). A DIR in DST is
    /// left out of the run. Changes of metadata alone are not kept. Folders that moved are copied and deleted.
    #[arg(long, value_name = "DIR")]
    pub(crate) backup_dir: Option<PathBuf>,

    /// Remember in DST which source the copy is of, and refuse or accept a run from another one, or accept that of ID
    ///
    /// A source is known by the number and the birth time of its volume's top folder, where the file system keeps one.
    /// So a volume that was made anew, or that is not mounted, does not replace its own copy. Without this flag, no run
    /// looks at its source or remembers it.
    #[arg(long, value_name = "refuse|accept|ID")]
    pub(crate) other_source: Option<OtherSource>,
}

impl BackupFlags {
    /// Adds these flags to `demands`.
    pub(crate) fn add_to(self, demands: Demands) -> Demands {
        let Self { backup_dir, other_source } = self;
        Demands { backup_dir, other_source, ..demands }
    }
}

/// A snapshot of the source, in place of its files.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Snapshot of SRC")]
pub(crate) struct SourceSnapshotFlags {
    /// Copy a snapshot of SRC in place of its files: an id or its first digits, a tag, of which the newest counts,
    /// `latest`, or `as-of:TIME`, the newest of that time or before, such as as-of:2026-11-22T18:00Z
    #[arg(long, value_name = "ID", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub(crate) source_snapshot: Option<String>,

    /// Believe owners, set-id bits, capabilities and devices of the snapshot although other users could write to the
    /// store that has it
    #[arg(long, requires = "source_snapshot")]
    trust_store: bool,

    /// Copy all that is whole although some of the snapshot is damaged: it is named, and the exit code is 3
    ///
    /// Files whose content is damaged stay as DST has them. Nothing is deleted in a folder that cannot be read.
    #[arg(long, requires = "source_snapshot")]
    keep_going: bool,
}

impl SourceSnapshotFlags {
    /// Adds these flags to `params`.
    pub(crate) fn add_to(self, params: RunParams) -> RunParams {
        let Self { source_snapshot, trust_store, keep_going } = self;
        RunParams { source_snapshot, trust_store, keep_going, ..params }
    }
}

/// How long an end tries to reach the other one, unless the user sets another time.
pub(crate) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The address of the other end, and the identity of this one.
#[derive(Debug, Default, Clone, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct LinkFlags {
    /// Wait for the other end on this address, over UDP and TCP; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT", value_parser = listen_address)]
    pub(crate) listen: Option<SocketAddr>,

    /// Dial the other end, which listens there
    #[arg(long, value_name = "HOST:PORT", value_parser = peer_address)]
    pub(crate) connect: Option<String>,

    /// What carries the connection: UDP, and TCP if nothing answers there; or only one of them
    #[arg(long, value_name = "WAY", value_enum)]
    pub(crate) link: Option<LinkFlag>,

    /// This end's file as `volferry keygen` wrote it: `source` to send, `sink` to receive. With --listen it may be
    /// repeated, with a file for each peer
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Vec<PathBuf>,

    /// In place of --identity and --connect: make a key for this run in memory, print its fingerprint and the address
    /// of --listen as a line of JSON (`"event":"contact"`), and read the other end's line on standard input. Both
    /// ends give the same JOB. For programs that start both ends and pass the lines on
    #[arg(long, value_name = "JOB", conflicts_with_all = ["identity", "connect"], value_parser = job_name)]
    pub(crate) exchange: Option<String>,

    /// The time after which this end stops trying to reach the other end, with --connect [default: 10]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) connect_timeout: Option<Duration>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LinkFlag {
    /// UDP, and beside it TCP if there is no answer within 300 ms. The end that listens offers both (default)
    Auto,
    /// UDP only
    Udp,
    /// TCP only
    Tcp,
}

impl From<LinkFlag> for LinkMode {
    fn from(flag: LinkFlag) -> Self {
        match flag {
            LinkFlag::Auto => Self::Auto,
            LinkFlag::Udp => Self::Udp,
            LinkFlag::Tcp => Self::Tcp,
        }
    }
}

/// The way to the machine of a place `HOST:PATH`.
#[derive(Debug, Default, Clone, Args)]
#[command(next_help_heading = "Another machine")]
pub(crate) struct ShellFlags {
    /// Reach HOST by this command, to which the host and a command are added [default: ssh -T]
    ///
    /// With -, standard input and output lead to a `volferry remote`, for programs that join the two ends. What would
    /// be printed on standard output goes to standard error.
    #[arg(short = 'e', long, value_name = "COMMAND")]
    pub(crate) rsh: Option<OsString>,

    /// Run this program at HOST, as its shell reads it, such as 'sudo volferry' [default: volferry]
    #[arg(long, value_name = "PROGRAM", conflicts_with = "bootstrap")]
    pub(crate) remote_program: Option<String>,

    /// Copy this program into the cache at HOST if it is not there, check its hash, and run it
    ///
    /// The copy is ~/.cache/volferry/volferry-HASH. It needs the same system and processor there; a program of `make
    /// dist` runs on any Linux. Copies that were not used for a month are removed.
    #[arg(long)]
    pub(crate) bootstrap: bool,

    /// The time after which this end stops trying to reach HOST [default: as long as ssh tries, and 10 for the link]
    ///
    /// It counts until the other end answers over ssh, and anew for the link. It includes the time to type a password.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) connect_timeout: Option<Duration>,
}

/// The way to the machine of a place `HOST:PATH` or `HOST::FOLDER`, and what carries a run.
#[derive(Debug, Default, Clone, Args)]
#[command(next_help_heading = "Another machine")]
pub(crate) struct RemoteFlags {
    #[command(flatten)]
    pub(crate) shell: ShellFlags,

    /// What carries the run, once ssh has started the other end, or to a service
    #[arg(long, value_name = "WAY", value_enum)]
    pub(crate) link: Option<RemoteLinkFlag>,

    /// With HOST::FOLDER, the file of the key by which the service knows this user [default: as
    /// `volferry enroll` made it]
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,

    /// With HOST::FOLDER, the public key of the service [default: as `volferry enroll` noted it]
    #[arg(long, value_name = "KEY")]
    pub(crate) service_key: Option<PublicKey>,

    /// Compression on the wire: by data and link (auto, the default), none, or zstd at a level from 1 to 19
    #[arg(long, value_name = "auto|none|LEVEL")]
    pub(crate) compression: Option<Compression>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RemoteLinkFlag {
    /// UDP to a free port of the other machine, or ssh if there is no answer within 300 ms (default)
    Auto,
    /// UDP to a free port of the other machine
    Udp,
    /// TCP to a free port of the other machine
    Tcp,
    /// The connection of ssh
    Ssh,
}

impl From<RemoteLinkFlag> for LinkMode {
    fn from(flag: RemoteLinkFlag) -> Self {
        match flag {
            RemoteLinkFlag::Auto => Self::Auto,
            RemoteLinkFlag::Udp => Self::Udp,
            RemoteLinkFlag::Tcp => Self::Tcp,
            RemoteLinkFlag::Ssh => Self::Ssh,
        }
    }
}

/// The output about a run, and its place.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputFlags {
    /// Write the run's report, with the time of each phase, to this file as JSON; - is standard output
    ///
    /// With several sources, the file has one report after the other.
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,

    /// Only check that no other run writes to this command's folders, and end with exit code 1 if one does
    ///
    /// For programs that hold an application still while a run goes on: they need not begin as long as it could not.
    #[arg(long)]
    pub(crate) check_free: bool,

    /// A live bar on a terminal, lines of JSON on standard output, or nothing
    #[arg(long, value_name = "WHEN", value_enum, default_value_t)]
    pub(crate) progress: ProgressFlag,

    /// Print only warnings and errors: no summary, no line for each run, no bar
    #[arg(short, long, conflicts_with = "verbose")]
    pub(crate) quiet: bool,

    /// Print one line for each change on standard output, and say more on standard error; -vv and -vvv say more still
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,

    /// Print one line for each change on standard output, in rsync's letters
    ///
    /// Each line is a change that the run is about to make, as `>f.st...... path`: < sent or > received, c made here, h
    /// a hard link, . only metadata; f file, d folder, L link, D device, S FIFO; then the differences: c content, s
    /// size, t time, p permissions, o owner, g group, a access control lists, x other attributes; or + for a new entry.
    #[arg(short, long)]
    pub(crate) itemize_changes: bool,

    /// Also add the log to this file: each run with its counts, each file that failed, and what -v and -i show
    #[arg(long, value_name = "FILE")]
    pub(crate) log_file: Option<PathBuf>,

    /// The form of the log on standard error and in --log-file
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub(crate) log_format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum ProgressFlag {
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
pub(crate) enum LogFormat {
    /// Lines for people
    #[default]
    Text,
    /// A JSON object a line
    Json,
}
