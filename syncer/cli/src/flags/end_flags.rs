//! Flags that several commands take, and that are not parameters of a run.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Args, ValueEnum};

use super::flag_values::{job_name, listen_address, peer_address, seconds};

/// The place for old versions.
#[derive(Debug, Args)]
pub(crate) struct BackupFlags {
    /// Keep entries that a run replaces or deletes in DIR, at their paths in DST; a relative DIR is a folder below DST
    ///
    /// So a run in the wrong direction can be undone: sync DIR onto DST. Give each run a DIR of its own, since later
    /// old versions replace earlier ones of the same path. Only this user can read DIR (mode 0700). A DIR in DST is
    /// left out of the run. Changes of metadata alone are not kept. Folders that moved are copied and deleted.
    #[arg(long, value_name = "DIR")]
    pub(crate) backup_dir: Option<PathBuf>,
}

/// The address of the other end, and the identity of this one.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct LinkFlags {
    /// Wait for the other end on this UDP address; port 0 takes a free one
    #[arg(long, value_name = "IP:PORT", value_parser = listen_address)]
    pub(crate) listen: Option<SocketAddr>,

    /// Dial the other end, which listens there
    #[arg(long, value_name = "HOST:PORT", value_parser = peer_address)]
    pub(crate) connect: Option<String>,

    /// This end's file as `volferry keygen` wrote it: `source` to send, `sink` to receive
    #[arg(long, value_name = "FILE")]
    pub(crate) identity: Option<PathBuf>,

    /// In place of --identity and --connect: make a key for this run in memory, print its fingerprint and the address
    /// of --listen as a line of JSON (`"event":"contact"`), and read the other end's line on standard input. Both
    /// ends give the same JOB. For programs that start both ends and pass the lines on
    #[arg(long, value_name = "JOB", conflicts_with_all = ["identity", "connect"], value_parser = job_name)]
    pub(crate) exchange: Option<String>,

    /// The time after which this end stops trying to reach the other end, with --connect [default: 60]
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) connect_timeout: Option<Duration>,
}

/// The output about a run, and its place.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct OutputFlags {
    /// Write the run's report, with the time of each phase, to this file as JSON; - is standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) report: Option<PathBuf>,

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

    /// The form of the log on standard error
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
