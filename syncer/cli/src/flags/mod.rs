//! The flags as they are typed. A value that can be checked separately is checked here, by its parser; a value that
//! depends on other flags, on the machine or on the engine is checked in [`config`](super::config).

pub(crate) mod bandwidth_rate;
mod command_flags;
pub(crate) mod dashed_paths;
mod deferred;
pub(crate) mod end_flags;
mod flag_values;
mod owner_names;
mod param_flags;
mod peer_flags;
pub(crate) mod rsync_flags;
mod take_flags;

use clap::{Parser, Subcommand};

pub(crate) use command_flags::{
    BenchFlags, DoctorFlags, GenerateFlags, KeygenFlags, ReceiveFlags, ReportFlags, SendFlags, ServeFlags,
    SnapshotFlags, SyncFlags,
};
use deferred::Deferred;
pub(crate) use end_flags::{
    BackupFlags, CONNECT_TIMEOUT, LinkFlags, LogFormat, OutputFlags, ProgressFlag, RemoteFlags, ShellFlags,
};
pub(crate) use flag_values::{folder_below, listen_address, seconds};
pub(crate) use param_flags::{DemandFlags, ParamFlags};
pub(crate) use peer_flags::{
    AddPeerFlags, EnrollAccess, EnrollFlags, PeersCommand, PeersFlags, RevokePeerFlags,
};
pub(crate) use take_flags::TakeFlags;

const EXAMPLES: &str = "\
Examples:
  Two folders of one machine:
    volferry sync --delete /srv/data /mnt/backup/data

  Two machines, by ssh:
    volferry sync --delete /srv/data nas.example.org:/srv/copy

  A folder of a service (`volferry serve`), with a key that it knows:
    volferry sync --delete /srv/data nas.example.org::photos

  Two machines without ssh. Make the identities once, and bring each machine its own file:
    volferry keygen --out keys
    volferry receive /srv/copy --listen 0.0.0.0:7400 --identity sink
    volferry send /srv/data --connect copy.example.org:7400 --identity source --delete";

const EXIT_CODES: &str = "\
Exit codes:
  0  done: DST has all of SRC that takes part, and with --delete nothing else that does
  1  failed or stopped. Every file is wholly old or wholly new, and the next run continues. A block
     device may be partly old and partly new, until the next run
  2  the command line is wrong, or names an identity file that is not there, or one end is a folder
     and the other a block device or an image
  3  done, but some files failed, or differ by --verify. The first of them are named
  4  a guard refused the run, and nothing was changed. See --delete-limit, --expect-volume and
     --force
  5  the peer or the network was lost. The next run continues
  6  an identity was refused, before anything was read
  130  a second Ctrl-C stopped it at once (143: a second SIGTERM). The next run continues";

const REPORT_EXAMPLES: &str = "\
Examples:
  volferry sync /srv/data /mnt/backup/data --report runs/$(date +%s).json
  volferry report runs/*.json
  volferry report runs/*.json --html runs.html";

const BENCH_EXAMPLES: &str = "\
Examples:
  volferry bench /mnt/fast /mnt/slow
  volferry bench /mnt/a /mnt/b --tree small --rounds 5 --report bench.json
  volferry report bench.json --html bench.html

  Two machines:
    volferry bench --end sink /mnt/b --listen 0.0.0.0:7400 --identity sink
    volferry bench --end source /mnt/a --connect b.example.org:7400 --identity source";

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
  volferry sync --delete /srv/data backup@nas.example.org:/srv/copy
  volferry sync -e 'ssh -p 2222' nas:photos photos
  volferry sync --image /dev/vg0/data-snapshot /mnt/backup/data.img";

/// Keeps one folder's files in step with another's, on this machine or over an encrypted link.
#[derive(Debug, Parser)]
#[command(name = "volferry", version, max_term_width = 100)]
#[command(after_help = EXAMPLES, after_long_help = format!("{EXAMPLES}\n\n{EXIT_CODES}"))]
pub(crate) struct Flags {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Bring one folder in step with another, on this machine or another
    ///
    /// One of SRC and DST may be on another machine, as `[USER@]HOST:PATH`. This starts `volferry` there by ssh, with
    /// the user's own settings of ssh; no key files and no open port are needed. A relative PATH begins in the home
    /// folder. The run goes over UDP to the machine directly if that is answered, and else over ssh. Or it is a folder
    /// of a `volferry serve`, as `HOST[:PORT]::FOLDER[/PATH]`, which knows this user by a key.
    ///
    /// Where SRC is a file, it goes into DST if that is a folder or ends with a slash, else it becomes the file DST,
    /// with its owner, mode and times, as a file of a folder would. A symbolic link to a file at DST is replaced.
    ///
    /// SRC and DST may also be block devices, or with --image files that are images of them. Each run compares all of
    /// their content, and writes only the differences, in place. So an interrupted run leaves a mixture of old and new
    /// content, which the next run repairs; where that matters, take a snapshot of DST first. Let SRC be a snapshot,
    /// too, because a run cannot see that a device changed while it was read. DST must not be mounted or otherwise in
    /// use, and not smaller than SRC; the content of a larger device behind SRC's end stays. An image gets SRC's
    /// length.
    #[command(after_help = SYNC_EXAMPLES, after_long_help = format!("{SYNC_EXAMPLES}\n\n{EXIT_CODES}"))]
    Sync(Deferred<SyncFlags>),

    /// Take, browse, restore, keep and check snapshots of a mounted volume
    ///
    /// Snapshots lie in DIR/.volferry/snapshots on the volume itself, share all unchanged content, and can be used
    /// without a cluster. `volferry snapshot create` takes one, `volferry snapshot restore` brings one back.
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Snapshot(Deferred<SnapshotFlags>),

    /// Send a folder's files to a `volferry receive`: one run
    ///
    /// SRC may also be one file, a block device, or with --image the image of a disk. If it is a device or an image,
    /// DST must be one, too. See `volferry help sync`.
    #[command(override_usage = "volferry send [OPTIONS] --identity <FILE> \
                                (--listen <IP:PORT> | --connect <HOST:PORT>) <SRC>")]
    #[command(after_help = SEND_EXAMPLES, after_long_help = format!("{SEND_EXAMPLES}\n\n{EXIT_CODES}"))]
    Send(Deferred<SendFlags>),

    /// Receive files into a folder, run after run
    ///
    /// Serves runs until it is told to stop by SIGINT or SIGTERM, or one run with --once. An end that listens
    /// prints one line of JSON with its real address on standard output once it does.
    ///
    /// Where SRC is a file, it goes into DST if that is a folder or ends with a slash, else it becomes the file
    /// DST. DST may also be a block device that is not in use, or with --image a file for the image of one, which is
    /// made if it does not exist; SRC is then a block device or an image, too. See `volferry help sync`.
    #[command(override_usage = "volferry receive [OPTIONS] --identity <FILE> \
                                (--listen <IP:PORT> | --connect <HOST:PORT>) <DST>")]
    #[command(after_help = RECEIVE_EXAMPLES, after_long_help = format!("{RECEIVE_EXAMPLES}\n\n{EXIT_CODES}"))]
    Receive(Deferred<ReceiveFlags>),

    /// Serve folders to many peers at one port, as a configuration says
    ///
    /// Peers are known by their keys, which the file of authorized keys lists. `volferry sync SRC HOST::FOLDER` sends
    /// files into a folder, and `volferry sync HOST::FOLDER DST` gets a folder's files. Runs of different folders go on
    /// at the same time; peers of one folder wait for their turn. SIGHUP reads the files again.
    Serve(Deferred<ServeFlags>),

    /// Have the service of another machine know this user, by ssh, once
    ///
    /// Makes a key in ~/.config/volferry, adds its public half to the service's file of authorized keys, notes the
    /// service's own key, and prints the line of `volferry sync` that works from then on. ssh is not needed afterwards.
    Enroll(Deferred<EnrollFlags>),

    /// Show, add or revoke the keys that a service of this machine accepts
    #[command(subcommand_required = true, arg_required_else_help = true)]
    Peers(Deferred<PeersFlags>),

    /// Make the identities by which the two ends of a link know each other
    ///
    /// Writes DIR/source for `volferry send` and DIR/sink for `volferry receive`. Each holds its own private
    /// key and the fingerprint of the other's, so each end accepts exactly one peer. A key is never
    /// overwritten.
    Keygen(Deferred<KeygenFlags>),

    /// Check two folders, or the connection to a `volferry receive`, for problems that a run would have
    ///
    /// Tests in a temporary folder which properties DST keeps (names, attributes, links, times, owners, shared blocks),
    /// checks space, clock and mounts, and makes a dry run. With --connect, dials the other end and makes a dry run of
    /// an empty folder. Each finding that is not `ok` has a line `hint: ` with the remedy. Exits with 0, with 3 if a
    /// run would leave something out, and with 1 if a run would fail.
    Doctor(Deferred<DoctorFlags>),

    /// Show from the reports of earlier runs how long they took, and whether they have become slower
    ///
    /// FILE has one or several reports, one after the other, as --report or `volferry bench` writes them. Runs count as
    /// slower when the last three comparable ones all took longer than usual. Comparable are runs of the same kind
    /// (first, changed, unchanged), within a fifth of the same size.
    #[command(after_help = REPORT_EXAMPLES)]
    Report(Deferred<ReportFlags>),

    /// Measure the speed of runs from one volume to another, and find their bottleneck
    ///
    /// Makes a tree in a new folder in SRC, and syncs it to a new folder in DST three times in each round: the whole
    /// tree, the unchanged tree, and the tree after some changes. Before each run the content is written to the volume
    /// and dropped from the machine's memory. Both folders (.volferry-bench-…) are removed at the end, also of a bench
    /// that was stopped or failed; the next bench removes those of a killed one. Nothing else is read or written, and
    /// the roots of both volumes get their times back.
    ///
    /// TREE is small (5,000 files of 4 KiB), large (one of 256 MiB), mixed (2,000 of 4 KiB, 100 of 256 KiB and 4 of
    /// 16 MiB), or a file of YAML or JSON that describes one:
    /// {"files": [{"count": 100, "bytes": 4096, "folders": 10}], "changePercent": 5}.
    ///
    /// With --end, the volumes are on two machines, and the runs go over QUIC as those of `volferry send` and `volferry
    /// receive` do: the source makes the tree, the sink gets the copies and prints the result.
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(Deferred<BenchFlags>),

    /// Show the defaults of flags, and where they are set
    ///
    /// A flag of `sync`, `send` and `receive` gets its default from a variable, such as VOLFERRY_BANDWIDTH_LIMIT for
    /// --bandwidth-limit, or from ~/.config/volferry/config.toml: `bandwidth-limit = "20M"`. Lines below `[sync]`,
    /// `[send]` or `[receive]` count for that command. VOLFERRY_CONFIG names another file; `none` leaves all out. The
    /// output is such a file.
    Config,

    /// Print the completions of a shell, or write the manual pages
    ///
    /// Completions know files, the hosts of ssh's configuration, and the ids and tags of snapshots.
    /// Where to put completions: /usr/share/bash-completion/completions/volferry for bash,
    /// /usr/local/share/zsh/site-functions/_volferry for zsh, ~/.config/fish/completions/volferry.fish for fish.
    #[command(arg_required_else_help = true)]
    Generate(Deferred<GenerateFlags>),

    /// Be the other end of a `volferry sync` that another machine started by ssh. For programs
    Remote,
}

impl Command {
    /// Returns the command's name, as it is typed.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Keygen(_) => "keygen",
            Self::Report(_) => "report",
            Self::Doctor(_) => "doctor",
            Self::Bench(_) => "bench",
            Self::Generate(_) => "generate",
            Self::Receive(_) => "receive",
            Self::Send(_) => "send",
            Self::Serve(_) => "serve",
            Self::Enroll(_) => "enroll",
            Self::Peers(_) => "peers",
            Self::Sync(_) => "sync",
            Self::Config => "config",
            Self::Remote => "remote",
            Self::Snapshot(_) => "snapshot",
        }
    }
}

#[cfg(test)]
mod flags_test;
