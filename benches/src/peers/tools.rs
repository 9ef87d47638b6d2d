//! The tools of today: a row of commands each.

use contract::Report;
use testkit::compare::Fidelity;

use super::install::Origin;

/// A tool and its commands. `setup`, `before`, `after` and `end` are shell scripts that are not measured. `serve` and
/// `run` are started without a shell; their words may hold `{program}`, `{folder}` (where the program is), `{source}`,
/// `{destination}`, `{scratch}` (which all commands start in) and `{port}`, which scripts have as variables.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tool {
    /// The name in tables.
    pub(crate) name: &'static str,
    pub(crate) program: &'static str,
    pub(crate) origin: Origin,
    pub(crate) version_flag: &'static str,
    /// The fidelity that its result must have.
    pub(crate) fidelity: Fidelity,
    pub(crate) leaves_out: &'static str,
    /// The entries that it keeps for itself in the root of the destination.
    pub(crate) own: &'static [&'static str],
    /// Whether it copies without comparing, and so takes part only in the first step.
    pub(crate) only_copies: bool,
    /// Runs before each round.
    pub(crate) setup: &'static str,
    /// What waits at the destination, if anything does.
    pub(crate) serve: &'static str,
    pub(crate) server: Server,
    /// Runs before each run.
    pub(crate) before: &'static str,
    /// The command that is measured.
    pub(crate) run: &'static str,
    /// Runs after each run.
    pub(crate) after: &'static str,
    /// Runs after each round.
    pub(crate) end: &'static str,
    /// Reads the bytes on the wire from the output; those over ssh are counted before its encryption.
    pub(crate) wire_bytes: fn(&str) -> Option<u64>,
}

/// What waits at the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    None,
    /// `serve`, at a TCP port.
    Tcp,
    /// `serve`, at a UDP port. It is stopped between runs, because it polls while it is idle.
    PollingUdp,
    /// An sshd, which the command `ssh` reaches as `far`.
    Ssh,
}

/// All tools for two trees on one machine, in the order of the columns.
pub(super) const LOCAL: [Tool; 9] = [RSYNC, CP, XCP, CPZ, SY, SPARSYNC, RCLONE, FPSYNC, UNISON];

/// The command of Volferry over a kind of link.
macro_rules! over {
    ($link:literal) => {
        concat!(
            "{program} sync --delete --delete-limit=100 --quiet --report=- --link=",
            $link,
            " --remote-program={program} {source} far:{destination}"
        )
    };
}

/// Volferry between ends that ssh starts, over each kind of link.
pub(super) const LINKS: [Tool; 3] = [
    VOLFERRY,
    Tool { name: "volferry tcp", run: over!("tcp"), ..VOLFERRY },
    Tool { name: "volferry ssh", run: over!("ssh"), ..VOLFERRY },
];

const VOLFERRY: Tool = Tool {
    name: "volferry udp",
    program: "volferry",
    origin: Origin::Workspace,
    fidelity: Fidelity::Full,
    leaves_out: "",
    server: Server::Ssh,
    run: over!("udp"),
    wire_bytes: |said| Some(serde_json::from_str::<Report>(said).ok()?.work.bytes_on_wire),
    ..RSYNC
};

/// rsync 3.5 sets folders' times too; but after a folder of the root was renamed, its daemon leaves the root with the
/// time of its own last write.
const RSYNC: Tool = Tool {
    name: "rsync -a",
    program: "rsync",
    origin: Origin::Debian("rsync"),
    version_flag: "--version",
    fidelity: Fidelity::Files,
    leaves_out: "deletes, checks, durability, hard links, holes, attributes",
    own: &[],
    only_copies: false,
    setup: "",
    serve: "",
    server: Server::None,
    before: "",
    run: "{program} -a {source}/ {destination}/",
    after: "",
    end: "",
    wire_bytes: |_| None,
};

/// A daemon of root would otherwise write as `nobody`; one of another user must not have an owner set.
pub(super) const RSYNC_DAEMON: Tool = Tool {
    name: "rsync daemon",
    leaves_out: "encryption, checks, durability, hard links, holes, attributes",
    setup: r#"owner=; [ "$(id -u)" != 0 ] || owner='uid = root\ngid = root\n'
        printf "use chroot = no\n[tree]\npath = $destination\nread only = no\n$owner" >rsyncd.conf"#,
    serve: "{program} --daemon --no-detach --address=127.0.0.1 --port={port} --config={scratch}/rsyncd.conf",
    server: Server::Tcp,
    run: "{program} -a --delete --stats {source}/ rsync://127.0.0.1:{port}/tree/",
    wire_bytes: rsync_bytes,
    ..RSYNC
};

pub(super) const RSYNC_SSH: Tool = Tool {
    name: "rsync ssh",
    leaves_out: "checks, durability, hard links, holes, attributes",
    server: Server::Ssh,
    run: "{program} -a --delete --stats {source}/ far:{destination}/",
    wire_bytes: rsync_bytes,
    ..RSYNC
};

/// `rcp` with its own TLS: it starts `rcpd` at both ends over ssh, and these exchange the files. Its own end is
/// `localhost`, which has to be the machine of the far one.
pub(super) const RCP: Tool = Tool {
    name: "rcp",
    program: "rcp",
    origin: Origin::Crate("rcp-tools-rcp", "0.41.0"),
    fidelity: Fidelity::Content,
    leaves_out: "delta, deletes, checks, durability, hard links, holes, attributes",
    server: Server::Ssh,
    run: "{program} --overwrite --preserve-settings=all --rcpd-path {folder}/rcpd {source} far:{destination}",
    ..RSYNC
};

const SPARSYNC: Tool = Tool {
    name: "sparsync",
    program: "sparsync",
    origin: Origin::Crate("sparsync", "0.1.12"),
    fidelity: Fidelity::Seconds,
    leaves_out: "deletes, durability, times below a second",
    run: "{program} sync -a {source} {destination}",
    ..RSYNC
};

/// `sparsync push` over QUIC to a waiting `sparsync serve`, with the flags of sparsync's own benchmark
/// (`scripts/bench_remote_rsync_vs_sparsync.sh` in its crate). With them, it preserves no metadata and cannot delete.
pub(super) const SPARSYNC_PUSH: Tool = Tool {
    fidelity: Fidelity::Content,
    leaves_out: "deletes, metadata, durability",
    own: &[".sparsync"],
    setup: r#""$program" gen-cert --cert cert --key key --name localhost"#,
    serve: "{program} serve --bind 127.0.0.1:{port} --destination {destination} --cert {scratch}/cert \
            --key {scratch}/key",
    server: Server::PollingUdp,
    run: "{program} push --server 127.0.0.1:{port} --server-name localhost --parallel-files 16 --connections 1 \
          --scan-workers 8 --hash-workers 16 --compression-level 0 --ca {scratch}/cert --source {source}",
    wire_bytes: |said| super::number_after(said, "bytes_sent="),
    ..SPARSYNC
};

pub(crate) const CP: Tool = Tool {
    name: "cp -a",
    program: "cp",
    origin: Origin::Debian("coreutils"),
    fidelity: Fidelity::Full,
    leaves_out: "comparison, deletes, checks, durability",
    only_copies: true,
    run: "{program} -a {source}/. {destination}",
    ..RSYNC
};

/// Copies in parallel.
const XCP: Tool = Tool {
    name: "xcp",
    program: "xcp",
    origin: Origin::Crate("xcp", "0.24.9"),
    fidelity: Fidelity::Content,
    leaves_out: "comparison, deletes, checks, durability, owners, folders' times",
    only_copies: true,
    run: "{program} -r -T --no-progress {source} {destination}",
    ..RSYNC
};

/// The fastest copier known to us.
const CPZ: Tool = Tool {
    name: "cpz",
    program: "cpz",
    origin: Origin::Crate("cpz", "3.2.1"),
    fidelity: Fidelity::Content,
    leaves_out: "comparison, deletes, checks, durability, times, owners, attributes",
    only_copies: true,
    run: "{program} --force {source} {destination}",
    ..RSYNC
};

/// Preserves files' times to the nanosecond, and folders' times not at all.
const SY: Tool = Tool {
    name: "sy",
    program: "sy",
    origin: Origin::Crate("sy", "0.4.0"),
    fidelity: Fidelity::Seconds,
    leaves_out: "deletes, checks, durability, folders' times",
    run: "{program} -a -q {source}/ {destination}",
    ..RSYNC
};

const RCLONE: Tool = Tool {
    name: "rclone",
    program: "rclone",
    origin: Origin::Debian("rclone"),
    fidelity: Fidelity::Content,
    leaves_out: "durability, hard links, holes, attributes, folders' modes and times",
    run: "{program} sync --quiet --links --metadata {source} {destination}",
    ..RSYNC
};

/// Two rsyncs at once.
const FPSYNC: Tool = Tool {
    name: "fpsync",
    program: "fpsync",
    origin: Origin::Debian("fpart"),
    version_flag: "-h",
    fidelity: Fidelity::Seconds,
    leaves_out: "deletes, checks, durability",
    run: "{program} -n 2 {source}/ {destination}/",
    ..RSYNC
};

/// Configured so that the source always wins.
const UNISON: Tool = Tool {
    name: "unison",
    program: "unison",
    origin: Origin::Debian("unison"),
    version_flag: "-version",
    fidelity: Fidelity::Content,
    leaves_out: "durability, hard links, holes, attributes, times below a second",
    run: "{program} -ui text -batch -auto -silent -times -owner -group -perms -1 -force {source} {source} {destination}",
    ..RSYNC
};

/// `btrfs send -p | btrfs receive`: the file system itself knows what has changed since the last snapshot. The clock
/// runs for the snapshot and both programs. Before that, the source is cloned into a subvolume; afterwards the snapshot
/// is shown at the destination. A folder with read-only subvolumes cannot be removed like others.
pub(super) const BTRFS_SEND: Tool = Tool {
    name: "btrfs send",
    program: "btrfs",
    origin: Origin::Debian("btrfs-progs"),
    leaves_out: "comparison (the file system knows what changed), filters, checks, durability, other file systems",
    setup: r#""$program" subvolume create live; mkdir sent received; echo 0 >step
        cat >send <<'END'
        set -eo pipefail
        read -r step <step; parent=; [ "$step" = 1 ] || parent="-p sent/$((step - 1))"
        btrfs subvolume snapshot -r live "sent/$step" >&2
        btrfs send -q $parent "sent/$step" | btrfs receive -q received
END"#,
    before: r#"step=$(($(cat step) + 1)); echo $step >step
        if [ $step = 1 ]; then cp -a --reflink=always "$source/." live
        else rsync -a --delete --inplace --no-whole-file "$source/" live/; fi"#,
    run: "bash {scratch}/send",
    after: r#"step=$(cat step)
        if [ $step = 1 ]; then rmdir "$destination"; else "$program" subvolume delete "$destination"; fi
        "$program" subvolume snapshot "received/$step" "$destination""#,
    end: r#"for path in sent/* received/* live "$destination"; do
        ! "$program" subvolume show "$path" >/dev/null 2>&1 || "$program" subvolume delete "$path"; done"#,
    ..RSYNC
};

/// Returns the bytes in both directions, as rsync's `--stats` counts them.
fn rsync_bytes(stats: &str) -> Option<u64> {
    let [sent, received] =
        ["sent", "received"].map(|way| super::number_after(stats, &format!("Total bytes {way}:")));
    Some(sent? + received?)
}
