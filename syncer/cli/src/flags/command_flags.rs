//! The flags of each command.

use std::{path::PathBuf, time::Duration};

use clap::{
    Args, ValueEnum,
    builder::{PathBufValueParser, TypedValueParser as _},
};
use clap_complete::Shell;
use contract::Side;
use syncer::path::RelPath;
use trend::FormFlags;

use super::{
    end_flags::{BackupFlags, LinkFlags, LogFormat, OutputFlags, RemoteFlags, SourceSnapshotFlags},
    flag_values::{folder_below, peer_address, seconds},
    param_flags::{DemandFlags, ParamFlags, WireFlags},
    take_flags::TakeFlags,
};
use crate::{
    remote::place::here,
    snapshot::{flags::SnapshotCommand, key_flags::KeyFlags},
};

/// The subcommand of `volferry snapshot`.
#[derive(Debug, Args)]
pub(crate) struct SnapshotFlags {
    #[command(subcommand)]
    pub(crate) command: SnapshotCommand,
}

/// The configuration of `volferry serve`.
#[derive(Debug, Args)]
pub(crate) struct ServeFlags {
    /// The file that names the folders, who may read or write them, and the owner's demands
    #[arg(value_name = "CONFIG")]
    pub(crate) config: PathBuf,
    /// Only check the files, and end
    #[arg(long)]
    pub(crate) check: bool,
    /// Print a line of JSON for each run on standard output, with its peer, folder and report
    #[arg(long)]
    pub(crate) events: bool,
    /// Say more on standard error; -vv and -vvv say more still
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// The form of the log on standard error
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub(crate) log_format: LogFormat,
}

#[derive(Debug, Args)]
pub(crate) struct KeygenFlags {
    /// The folder for the two files; it is made if it does not exist
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
}

/// The output of `volferry generate`.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct GenerateFlags {
    /// Print the completions of this shell
    #[arg(long, value_name = "SHELL", value_enum)]
    pub(crate) completions: Option<Shell>,
    /// Print how flags of rsync are taken, as a table in Markdown
    #[arg(long)]
    pub(crate) rsync_flags: bool,
    /// Write volferry.1 and a page for each subcommand into this folder, which is made if it does not exist
    #[arg(long, value_name = "DIR")]
    pub(crate) man: Option<PathBuf>,
}

/// The input and the output form of `volferry report`.
#[derive(Debug, Args)]
pub(crate) struct ReportFlags {
    /// The reports
    #[arg(value_name = "FILE", required_unless_present = "schema")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) form: FormFlags,
}

/// The volumes and the parameters of `volferry bench`.
#[derive(Debug, Args)]
pub(crate) struct BenchFlags {
    /// A folder of the volume to read from; with --end sink, of the volume to write to
    #[arg(value_name = "SRC", required_unless_present = "schema")]
    pub(crate) source: Option<PathBuf>,
    /// A folder of the volume to write to
    #[arg(value_name = "DST", required_unless_present_any = ["schema", "end"], conflicts_with = "end")]
    pub(crate) destination: Option<PathBuf>,
    /// The tree to make: small, large, mixed, or a file that describes one, or the description itself in braces
    #[arg(long, value_name = "TREE", default_value = "mixed")]
    pub(crate) tree: PathBuf,
    /// Run each step this many times
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) rounds: u32,
    /// Be one end of a bench between two machines. Both give the same --tree and --rounds; the sink prints the result
    #[arg(long, value_name = "END", value_enum, conflicts_with = "schema")]
    pub(crate) end: Option<BenchEnd>,
    #[command(flatten)]
    pub(crate) link: LinkFlags,
    /// With --end source: send at most this many bytes a second, such as 10MB
    #[arg(long, value_name = "BYTES", value_parser = contract::parse_bytes, help_heading = "Connection")]
    pub(crate) bandwidth_limit: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Also write the JSON to this file, which `volferry report` reads
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,
    /// Make --report the report of a run of this name, with the result in it, and print progress and report as lines of
    /// JSON. For programs
    #[arg(long, value_name = "NAME", requires = "report", conflicts_with = "json")]
    pub(crate) run: Option<String>,
    /// Print the schema of --json
    #[arg(long, conflicts_with_all = ["source", "json", "report"])]
    pub(crate) schema: bool,
}

/// An end of a bench between two machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchEnd {
    /// The end that makes the tree
    Source,
    /// The end that gets the copy
    Sink,
}

impl From<BenchEnd> for Side {
    fn from(end: BenchEnd) -> Self {
        match end {
            BenchEnd::Source => Self::Source,
            BenchEnd::Sink => Self::Sink,
        }
    }
}

/// The folders, or the other end, that `volferry doctor` checks.
#[derive(Debug, Args)]
pub(crate) struct DoctorFlags {
    /// The folder that has the files
    #[arg(value_name = "SRC", required_unless_present_any = ["connect", "schema"], conflicts_with = "connect")]
    #[arg(value_parser = PathBufValueParser::new().try_map(here))]
    pub(crate) source: Option<PathBuf>,
    /// The folder that the files go to
    #[arg(value_name = "DST", required_unless_present_any = ["connect", "schema"], conflicts_with = "connect")]
    #[arg(value_parser = PathBufValueParser::new().try_map(here))]
    pub(crate) destination: Option<PathBuf>,
    /// Check the connection to a `volferry receive` that listens there; a receive with --once ends afterwards
    #[arg(long, value_name = "HOST:PORT", value_parser = peer_address, requires = "identity")]
    pub(crate) connect: Option<String>,
    /// The sending end's file as `volferry keygen` wrote it
    #[arg(long, value_name = "FILE", requires = "connect")]
    pub(crate) identity: Option<PathBuf>,
    /// The time after which this end stops trying to reach the other end [default: 10]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, requires = "connect")]
    pub(crate) connect_timeout: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the schema of --json
    #[arg(long)]
    pub(crate) schema: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ReceiveFlags {
    /// The folder that the files go to; its last name is made if it does not exist. Or a block device or an image
    #[arg(value_name = "DST")]
    pub(crate) destination: PathBuf,

    /// Use this folder (or image) below DST, and make it if it does not exist; symbolic links are refused
    #[arg(long, value_name = "PATH", value_parser = folder_below)]
    pub(crate) destination_path: Option<RelPath>,

    #[command(flatten)]
    pub(crate) link: LinkFlags,

    /// End after one run, with its exit code
    #[arg(long, help_heading = "Connection")]
    pub(crate) once: bool,

    #[command(flatten)]
    pub(crate) demands: DemandFlags,

    #[command(flatten)]
    pub(crate) backup: BackupFlags,

    #[command(flatten)]
    pub(crate) snapshot: TakeFlags,

    #[command(flatten)]
    pub(crate) output: OutputFlags,
}

#[derive(Debug, Args)]
pub(crate) struct SendFlags {
    /// The folder that has the files; or a block device or an image
    #[arg(value_name = "SRC")]
    pub(crate) source: PathBuf,

    /// Send this folder (or image) below SRC; symbolic links on the way are refused
    #[arg(long, value_name = "PATH", value_parser = folder_below)]
    pub(crate) source_path: Option<RelPath>,

    #[command(flatten)]
    pub(crate) source_snapshot: SourceSnapshotFlags,

    #[command(flatten)]
    pub(crate) link: LinkFlags,

    /// With --listen: end after one run, with its exit code, in place of one run after the other
    #[arg(long, help_heading = "Connection", requires = "listen")]
    pub(crate) once: bool,

    #[command(flatten)]
    pub(crate) params: ParamFlags,

    #[command(flatten)]
    pub(crate) wire: WireFlags,

    #[command(flatten)]
    pub(crate) output: OutputFlags,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct SyncFlags {
    /// The folder that has the files, or a single file; or a block device or an image. On another machine: HOST:PATH;
    /// of a service: HOST::FOLDER
    ///
    /// Several sources go to DST one after the other, each under its own name: `sync a b DST` fills DST/a and DST/b.
    #[arg(value_name = "SRC", required = true, num_args = 1..)]
    pub(crate) source: Vec<PathBuf>,

    /// The folder that the files go to; its last name is made if it does not exist. Or a block device or an image. On
    /// another machine: HOST:PATH; of a service: HOST::FOLDER; in object storage: s3://BUCKET/PREFIX
    ///
    /// A single file goes into DST if that is a folder or ends with a slash. Otherwise it becomes DST. An entry at DST
    /// with another name than SRC's is replaced only with --force. Object storage gets an encrypted snapshot of SRC, of
    /// which only what the last one there lacks is read and sent.
    #[arg(value_name = "DST")]
    pub(crate) destination: PathBuf,

    #[command(flatten)]
    pub(crate) params: ParamFlags,

    /// With --source-snapshot: copy only this file or folder of the snapshot; all else stays as it is. May be repeated
    #[arg(long = "restore-path", value_name = "PATH", requires = "source_snapshot")]
    pub(crate) restore_paths: Vec<String>,

    #[command(flatten)]
    pub(crate) remote: RemoteFlags,

    #[command(flatten)]
    pub(crate) output: OutputFlags,

    #[command(flatten)]
    pub(crate) backup: BackupFlags,

    #[command(flatten)]
    pub(crate) snapshot: TakeFlags,

    #[command(flatten)]
    pub(crate) key: KeyFlags,

    #[command(flatten)]
    pub(crate) source_snapshot: SourceSnapshotFlags,

    /// With --source-snapshot of DST itself: keep the state before in a snapshot with this tag, if none has it and the
    /// run is about to change anything
    #[arg(long, value_name = "TAG", requires = "source_snapshot", value_parser = super::take_flags::tag, help_heading = "Snapshot of SRC")]
    pub(crate) snapshot_before: Option<String>,

    /// Read this folder (or image) below SRC; symbolic links on the way are refused
    #[arg(long, value_name = "PATH", value_parser = folder_below, help_heading = "Folders below SRC and DST")]
    pub(crate) source_path: Option<RelPath>,

    /// Use this folder (or image) below DST, and make it if it does not exist; symbolic links are refused
    #[arg(long, value_name = "PATH", value_parser = folder_below, help_heading = "Folders below SRC and DST")]
    pub(crate) destination_path: Option<RelPath>,
}
