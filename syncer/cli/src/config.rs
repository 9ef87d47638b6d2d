//! The resolved configuration of a command line: no options conflict, and the engine supports all of them.

use std::{
    env, fs,
    io::{self, IsTerminal as _},
    path::{Path, PathBuf},
    time::Duration,
};

use contract::{DeleteLimit, Demands, FilesFrom, RunParams, Side};
use thiserror::Error;

use super::flags::{
    BenchFlags, Command, DoctorFlags, Flags, GenerateFlags, LinkFlags, LogFormat, OutputFlags, ParamFlags,
    ProgressFlag, ReportFlags,
};
use super::{
    path_list::{self, PathListError},
    pattern_file::{self, PatternFileError},
    snapshot::flags::SnapshotCommand,
};
use syncer::{
    path::RelPath,
    root::TreeLocation,
    session::{Endpoint, Exchange},
};

/// How long an end tries to reach the other one, unless the user sets another time.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// The reasons why a parsed command line cannot be carried out; the message says what to write instead.
#[derive(Debug, Error)]
pub(super) enum ConfigError {
    #[error("neither --listen nor --connect: one end waits with --listen, the other dials it with --connect")]
    NoEndpoint,
    #[error(
        "no --identity: name this end's file, as `volferry keygen` wrote it: `source` to send, `sink` to receive"
    )]
    NoIdentity,
    #[error(
        "{0} without --end: both volumes are on this machine, so leave it out, or add --end source or --end sink"
    )]
    LinkOfNoEnd(&'static str),
    #[error("both --listen and --connect: keep one here, and give the other to the other end")]
    TwoEndpoints,
    #[error("--bandwidth-limit 0 would never move anything: leave it out for no limit")]
    NoBandwidth,
    #[error(
        "--connect-timeout with --listen: an end that listens waits until it is told to stop, so leave it out"
    )]
    TimeoutOfListener,
    #[error("--delete-limit without --delete: nothing would be removed, so leave it out")]
    LimitOfNoDelete,
    #[error("--min-size is above --max-size, so no file would be synced: change one of them")]
    NoSize,
    #[error(
        "--shard without --run: give all shards of one run the same name with --run, and each run another"
    )]
    ShardOfNoRun,
    #[error(
        "--snapshot with --shard: a run of several shards cannot take a snapshot, so leave one of them out"
    )]
    ShardedSnapshot,
    #[error(
        "--backup-dir with --shard: a run of several shards cannot keep old versions, so leave one of them out"
    )]
    ShardedBackup,
    #[error("{0} with --source-snapshot: all of the snapshot is copied, so leave {0} out")]
    NotForSnapshots(&'static str),
    #[error(
        "--report {path}: the folder {folder} is not there: make it first, or choose another",
        path = .path.display(), folder = .folder.display()
    )]
    ReportFolder { path: PathBuf, folder: PathBuf },
    #[error(
        "{} names another machine, and SRC and DST are folders of this one\nhint: run `volferry receive` on the machine \
         that gets the copy, and `volferry send` on the one that has the files; write ./ before the name of a folder with a colon", .0.display()
    )]
    OtherMachine(PathBuf),
    #[error(
        "--report - with --progress json: the last line on standard output is the report, so leave --report out"
    )]
    ReportTwice,
    #[error(transparent)]
    PatternFile(#[from] PatternFileError),
    #[error(transparent)]
    PathList(#[from] PathListError),
    #[error("two lists are to be read from standard input: give one of them a file of its own")]
    InputTwice,
    #[error("--report {path}: it is a folder: name a file", path = .0.display())]
    ReportIsFolder(PathBuf),
}

/// A command that can be carried out.
#[derive(Debug)]
pub(super) enum Config {
    Keygen {
        out: PathBuf,
    },
    Report(ReportFlags),
    Doctor(DoctorFlags),
    /// A bench, with the link to the other end if this is one of two.
    Bench(Box<BenchFlags>, Option<LinkConfig>),
    Generate(GenerateFlags),
    Run(Box<Run>),
    Snapshot(Box<SnapshotCommand>),
}

/// One end of a run, or both.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) job: Job,
    pub(super) output: Output,
}

#[derive(Debug)]
pub(super) enum Job {
    Send { source: TreeLocation, link: LinkConfig, params: RunParams },
    Receive { destination: TreeLocation, link: LinkConfig, once: bool, demands: Demands },
    Sync { source: TreeLocation, destination: TreeLocation, params: RunParams },
}

impl Job {
    /// Sets whether each change is reported before it is made.
    fn tell_changes(&mut self, tells: bool) {
        match self {
            Self::Send { params, .. } | Self::Sync { params, .. } => params.itemize_changes = tells,
            Self::Receive { demands, .. } => demands.itemize_changes = tells,
        }
    }

    fn sends(&self) -> bool {
        matches!(self, Self::Send { .. })
    }

    /// Returns whether this end waits for the other one to dial.
    pub(super) fn listens(&self) -> bool {
        match self {
            Self::Send { link, .. } | Self::Receive { link, .. } => link.listens(),
            Self::Sync { .. } => false,
        }
    }
}

/// The way to reach the other end, and the keys by which the two recognise each other.
#[derive(Debug)]
pub(super) enum LinkConfig {
    /// By files. The identity is read later, because a failure to read it has an exit code of its own.
    Known { endpoint: Endpoint, side: Side, identity: PathBuf, connect_timeout: Duration },
    /// By contacts that another program passes on.
    Exchanged(Exchange),
}

#[derive(Debug, Clone)]
pub(super) struct Output {
    pub(super) report: Option<PathBuf>,
    pub(super) progress: ProgressMode,
    /// Whether successful runs are left out of the printed lines.
    pub(super) quiet: bool,
    pub(super) color: bool,
    pub(super) verbosity: u8,
    /// The form in which changes are printed.
    pub(super) changes: ChangeForm,
    pub(super) log_format: LogFormat,
}

/// The form of the lines for changes, on standard output or in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChangeForm {
    Words,
    /// The form of rsync; `sends` is whether this end sends the files.
    Letters {
        sends: bool,
    },
    /// An event on standard output.
    Event,
    /// A line of the log.
    Log,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ProgressMode {
    Bar,
    Json,
    None,
}

/// The properties of the process's environment that a configuration depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Surroundings {
    /// Whether standard error is a terminal.
    pub(super) terminal: bool,
    /// Whether the terminal can move its cursor.
    pub(super) cursor: bool,
    /// Whether colours may be used on a terminal (see <https://no-color.org>).
    pub(super) color: bool,
}

impl Surroundings {
    pub(super) fn here() -> Self {
        let filled = |name| env::var_os(name).filter(|value| !value.is_empty());
        Self {
            terminal: io::stderr().is_terminal(),
            cursor: filled("TERM").is_some_and(|term| term != "dumb"),
            color: filled("NO_COLOR").is_none(),
        }
    }
}

/// Refuses a path in the form in which rsync and scp write paths of other machines.
fn check_local(path: &Path) -> Result<(), ConfigError> {
    let text = path.to_string_lossy();
    let is_remote = match text.split_once(':') {
        Some((host, _)) => !host.is_empty() && !host.contains('/'),
        None => false,
    };
    let is_there = path.exists() || path.parent().is_some_and(Path::exists);
    match is_remote && !is_there {
        true => Err(ConfigError::OtherMachine(path.into())),
        false => Ok(()),
    }
}

impl Config {
    /// Resolves `flags`. Touches the file system only to check that a report can be written to its path, which would
    /// otherwise fail at the end of a run.
    pub(super) fn resolve(flags: Flags, surroundings: Surroundings) -> Result<Self, ConfigError> {
        Ok(match flags.command {
            Command::Keygen(keygen) => Self::Keygen { out: keygen.into_inner().out },
            Command::Report(report) => Self::Report(report.into_inner()),
            Command::Doctor(doctor) => Self::Doctor(doctor.into_inner()),
            Command::Bench(bench) => {
                let mut bench = bench.into_inner();
                [&bench.source, &bench.destination]
                    .into_iter()
                    .flatten()
                    .try_for_each(|path| check_local(path))?;
                let link = std::mem::take(&mut bench.link);
                let link = match bench.end {
                    Some(end) => Some(LinkConfig::resolve(link, end.into())?),
                    None => check_unlinked(&link, bench.bandwidth_limit).map(|()| None)?,
                };
                Self::Bench(Box::new(bench), link)
            }
            Command::Generate(generate) => Self::Generate(generate.into_inner()),
            Command::Snapshot(snapshot) => Self::Snapshot(Box::new(snapshot.into_inner().command)),
            Command::Send(send) => {
                let send = send.into_inner();
                check_local(&send.source)?;
                let source = place(send.source, send.source_path);
                let link = LinkConfig::resolve(send.link, Side::Source)?;
                let source_snapshot = send.source_snapshot;
                let params = RunParams { source_snapshot, ..params(send.params)? };
                let params = check_params(send.wire.add_to(params))?;
                Run::resolve(Job::Send { source, link, params }, send.output, surroundings)?
            }
            Command::Receive(receive) => {
                let receive = receive.into_inner();
                check_local(&receive.destination)?;
                let link = LinkConfig::resolve(receive.link, Side::Sink)?;
                let destination = place(receive.destination, receive.destination_path);
                let (snapshot, backup_dir) = (receive.snapshot.into(), receive.backup.backup_dir);
                let demands = Demands { snapshot, backup_dir, ..receive.demands.into() };
                let once = receive.once;
                let job = Job::Receive { destination, link, once, demands };
                Run::resolve(job, receive.output, surroundings)?
            }
            Command::Sync(sync) => {
                let sync = sync.into_inner();
                check_local(&sync.source)?;
                check_local(&sync.destination)?;
                let source = place(sync.source, sync.source_path);
                let destination = place(sync.destination, sync.destination_path);
                let (snapshot, backup_dir) = (sync.snapshot.into(), sync.backup.backup_dir);
                let demands = Demands { snapshot, backup_dir, ..Demands::default() };
                let (source_snapshot, snapshot_before) = (sync.source_snapshot, sync.snapshot_before);
                let params = RunParams { demands, source_snapshot, snapshot_before, ..params(sync.params)? };
                let params = check_params(params)?;
                Run::resolve(Job::Sync { source, destination, params }, sync.output, surroundings)?
            }
        })
    }
}

/// Refuses the flags of a link for a command without one.
fn check_unlinked(link: &LinkFlags, bandwidth_limit: Option<u64>) -> Result<(), ConfigError> {
    let LinkFlags { listen, connect, identity, exchange, connect_timeout } = link;
    let given = [
        ("--listen", listen.is_some()),
        ("--connect", connect.is_some()),
        ("--identity", identity.is_some()),
        ("--exchange", exchange.is_some()),
        ("--connect-timeout", connect_timeout.is_some()),
        ("--bandwidth-limit", bandwidth_limit.is_some()),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => Err(ConfigError::LinkOfNoEnd(flag)),
        None => Ok(()),
    }
}

/// Returns the typed parameters, with the patterns of the files that they name.
fn params(flags: ParamFlags) -> Result<RunParams, ConfigError> {
    let files = [&flags.include_from, &flags.exclude_from];
    let patterns = files.into_iter().flatten().filter(|path| *path == Path::new("-")).count();
    if patterns + usize::from(flags.reads_paths_from_input()) > 1 {
        return Err(ConfigError::InputTwice);
    }
    let [mut include, mut exclude] = [pattern_file::read_all(files[0])?, pattern_file::read_all(files[1])?];
    let typed = RunParams::from(flags);
    include.extend(typed.include);
    exclude.extend(typed.exclude);
    let files_from = typed.files_from.map(listed).transpose()?.flatten();
    Ok(RunParams { include, exclude, files_from, ..typed })
}

/// Reads the paths of a list; `None` if it contains the root, and so the whole tree.
fn listed(list: FilesFrom) -> Result<Option<FilesFrom>, PathListError> {
    let paths = path_list::read(Path::new(&list.file), list.from0)?;
    Ok(paths.map(|paths| FilesFrom { paths, ..list }))
}

fn place(trusted: PathBuf, below: Option<RelPath>) -> TreeLocation {
    TreeLocation { trusted, below: below.unwrap_or_default() }
}

impl Run {
    fn resolve(mut job: Job, output: OutputFlags, surroundings: Surroundings) -> Result<Config, ConfigError> {
        job.tell_changes(output.itemize_changes || output.verbose > 0);
        let output = Output::resolve(output, job.sends(), surroundings)?;
        Ok(Config::Run(Box::new(Self { job, output })))
    }
}

impl LinkConfig {
    fn resolve(flags: LinkFlags, side: Side) -> Result<Self, ConfigError> {
        let LinkFlags { listen, connect, identity, exchange, connect_timeout } = flags;
        if connect_timeout.is_some() && listen.is_some() && connect.is_none() {
            return Err(ConfigError::TimeoutOfListener);
        }
        let connect_timeout = connect_timeout.unwrap_or(CONNECT_TIMEOUT);
        if let Some(job) = exchange {
            return Ok(Self::Exchanged(Exchange { side, job, listen, connect_timeout }));
        }
        let endpoint = match (listen, connect) {
            (Some(address), None) => Endpoint::Listen(address),
            (None, Some(address)) => Endpoint::Connect(address),
            (None, None) => return Err(ConfigError::NoEndpoint),
            (Some(_), Some(_)) => return Err(ConfigError::TwoEndpoints),
        };
        let identity = identity.ok_or(ConfigError::NoIdentity)?;
        Ok(Self::Known { endpoint, side, identity, connect_timeout })
    }

    pub(super) fn listens(&self) -> bool {
        match self {
            Self::Known { endpoint, .. } => matches!(endpoint, Endpoint::Listen(_)),
            Self::Exchanged(exchange) => exchange.listen.is_some(),
        }
    }
}

impl Output {
    fn resolve(flags: OutputFlags, sends: bool, surroundings: Surroundings) -> Result<Self, ConfigError> {
        if let Some(path) = &flags.report {
            check_report(path, flags.progress)?;
        }
        let can_draw = surroundings.terminal && surroundings.cursor;
        let progress = match flags.progress {
            ProgressFlag::Json => ProgressMode::Json,
            ProgressFlag::None => ProgressMode::None,
            ProgressFlag::Auto | ProgressFlag::Bar if can_draw && !flags.quiet => ProgressMode::Bar,
            ProgressFlag::Auto | ProgressFlag::Bar => ProgressMode::None,
        };
        let changes = match (progress, flags.log_format) {
            (ProgressMode::Json, _) => ChangeForm::Event,
            (_, LogFormat::Json) => ChangeForm::Log,
            _ if flags.itemize_changes => ChangeForm::Letters { sends },
            _ => ChangeForm::Words,
        };
        Ok(Self {
            report: flags.report,
            changes,
            progress,
            quiet: flags.quiet,
            color: can_draw && surroundings.color,
            verbosity: flags.verbose,
            log_format: flags.log_format,
        })
    }
}

fn check_params(params: RunParams) -> Result<RunParams, ConfigError> {
    if params.bandwidth_limit == Some(0) {
        return Err(ConfigError::NoBandwidth);
    }
    if params.delete_limit != DeleteLimit::default() && !params.delete {
        return Err(ConfigError::LimitOfNoDelete);
    }
    if params.min_size.zip(params.max_size).is_some_and(|(min, max)| min > max) {
        return Err(ConfigError::NoSize);
    }
    if params.shard.is_some_and(|shard| shard.count > 1) && params.run.is_empty() {
        return Err(ConfigError::ShardOfNoRun);
    }
    if let Some(flag) = params.flags_of_live_sources().next().filter(|_| params.source_snapshot.is_some()) {
        return Err(ConfigError::NotForSnapshots(flag));
    }
    if params.shard.is_some_and(|shard| shard.count > 1) && params.demands.snapshot.is_some() {
        return Err(ConfigError::ShardedSnapshot);
    }
    if params.shard.is_some_and(|shard| shard.count > 1) && params.demands.backup_dir.is_some() {
        return Err(ConfigError::ShardedBackup);
    }
    Ok(params)
}

fn check_report(path: &Path, progress: ProgressFlag) -> Result<(), ConfigError> {
    if path == Path::new("-") {
        return if progress == ProgressFlag::Json { Err(ConfigError::ReportTwice) } else { Ok(()) };
    }
    if path.is_dir() {
        return Err(ConfigError::ReportIsFolder(path.into()));
    }
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => return Ok(()),
    };
    match fs::metadata(folder) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        _ => Err(ConfigError::ReportFolder { path: path.into(), folder: folder.into() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    const TERMINAL: Surroundings = Surroundings { terminal: true, cursor: true, color: true };
    const PIPE: Surroundings = Surroundings { terminal: false, ..TERMINAL };

    fn resolve(args: &[&str], surroundings: Surroundings) -> Result<Run, ConfigError> {
        let flags = Flags::try_parse_from(["volferry"].iter().chain(args)).unwrap();
        match Config::resolve(flags, surroundings)? {
            Config::Run(run) => Ok(*run),
            Config::Keygen { .. }
            | Config::Doctor(_)
            | Config::Bench(..)
            | Config::Report(_)
            | Config::Generate(_)
            | Config::Snapshot(_) => {
                panic!("not a run: {args:?}")
            }
        }
    }

    fn output(args: &[&str], surroundings: Surroundings) -> Output {
        resolve(&[&["sync", "a", "b"], args].concat(), surroundings).unwrap().output
    }

    #[test]
    fn limits_between_which_no_size_is_are_refused() {
        let limits = |min: &str, max: &str| resolve(&["sync", "a", "b", min, max], PIPE);
        assert!(limits("--min-size=5", "--max-size=5").is_ok());
        assert!(matches!(limits("--min-size=2k", "--max-size=1k"), Err(ConfigError::NoSize)));
    }

    #[test]
    fn a_shard_names_its_run() {
        let args = ["sync", "a", "b", "--shard=0/2"];
        assert!(matches!(resolve(&args, PIPE), Err(ConfigError::ShardOfNoRun)));
        assert!(resolve(&[&args[..], &["--run=r"]].concat(), PIPE).is_ok());
        assert!(resolve(&["sync", "a", "b", "--shard=0/1"], PIPE).is_ok());
    }

    #[test]
    fn a_snapshot_is_copied_as_a_whole() {
        for flag in ["--include=a", "--exclude=a", "--ignore-files", "--min-size=1", "--max-size=1"] {
            let refused = resolve(&["sync", "a", "b", "--source-snapshot=latest", flag], PIPE);
            assert!(matches!(refused, Err(ConfigError::NotForSnapshots(_))), "{flag}");
        }
        let run = resolve(&["sync", "a", "b", "--source-snapshot=v1", "--delete"], PIPE).unwrap();
        assert!(
            matches!(run.job, Job::Sync { params, .. } if params.source_snapshot.as_deref() == Some("v1"))
        );
    }

    #[test]
    fn a_shard_takes_no_snapshot() {
        let args = ["sync", "a", "b", "--shard=0/2", "--run=r", "--snapshot"];
        assert!(matches!(resolve(&args, PIPE), Err(ConfigError::ShardedSnapshot)));
        assert!(resolve(&["sync", "a", "b", "--snapshot"], PIPE).is_ok());
        let args = ["sync", "a", "b", "--shard=0/2", "--run=r", "--backup-dir=old"];
        assert!(matches!(resolve(&args, PIPE), Err(ConfigError::ShardedBackup)));
    }

    #[test]
    fn attributes_that_are_kept_by_default_may_be_declined() {
        let args =
            ["sync", "a", "b", "--no-xattrs", "--no-acls", "--no-hard-links", "--no-sparse", "--no-specials"];
        let Job::Sync { params, .. } = resolve(&args, PIPE).unwrap().job else { panic!("not a sync") };
        assert!(!params.preserve.xattrs);
    }

    #[test]
    fn an_end_listens_or_dials() {
        let end = |args: &[&str]| resolve(&[&["send", "a", "--identity", "i"], args].concat(), PIPE);
        assert!(matches!(end(&[]), Err(ConfigError::NoEndpoint)));
        let both = ["--listen", "127.0.0.1:0", "--connect", "h:1"];
        assert!(matches!(end(&both), Err(ConfigError::TwoEndpoints)));
        let Job::Send { link, .. } = end(&["--connect", "h:1"]).unwrap().job else { panic!("not a send") };
        let LinkConfig::Known { endpoint, side, connect_timeout, .. } = link else { panic!("no identity") };
        assert!(matches!(endpoint, Endpoint::Connect(address) if address == "h:1"));
        assert_eq!((side, connect_timeout), (Side::Source, Duration::from_secs(60)));
    }

    #[test]
    fn flags_that_have_no_effect_without_another_are_refused() {
        let listens = ["send", "a", "--identity=i", "--listen=127.0.0.1:0", "--connect-timeout=1"];
        assert!(matches!(resolve(&listens, PIPE), Err(ConfigError::TimeoutOfListener)));
        let dials = ["receive", "a", "--identity=i", "--connect=h:1", "--connect-timeout=1"];
        assert!(resolve(&dials, PIPE).is_ok());
        let limit = ["sync", "a", "b", "--delete-limit=10"];
        assert!(matches!(resolve(&limit, PIPE), Err(ConfigError::LimitOfNoDelete)));
        assert!(resolve(&[&limit[..], &["--delete"]].concat(), PIPE).is_ok());
    }

    #[test]
    fn a_folder_below_is_apart_from_the_folder_that_is_trusted() {
        let run = resolve(&["sync", "a", "b", "--source-path=/in", "--destination-path=x/y"], PIPE).unwrap();
        let Job::Sync { source, destination, .. } = run.job else { panic!("not a sync") };
        assert_eq!((source.trusted.as_path(), source.path()), (Path::new("a"), "a/in".into()));
        assert_eq!((destination.trusted.as_path(), destination.path()), (Path::new("b"), "b/x/y".into()));
    }

    #[test]
    fn a_bar_needs_a_terminal_that_can_move_its_cursor() {
        let dumb = Surroundings { cursor: false, ..TERMINAL };
        for (flag, at_terminal) in [
            ("--progress=auto", ProgressMode::Bar),
            ("--progress=bar", ProgressMode::Bar),
            ("--progress=json", ProgressMode::Json),
            ("--progress=none", ProgressMode::None),
        ] {
            let elsewhere = if at_terminal == ProgressMode::Bar { ProgressMode::None } else { at_terminal };
            assert_eq!(output(&[flag], TERMINAL).progress, at_terminal, "{flag}");
            assert_eq!(output(&[flag], PIPE).progress, elsewhere, "{flag} in a pipe");
            assert_eq!(output(&[flag], dumb).progress, elsewhere, "{flag} on a dumb terminal");
        }
    }

    #[test]
    fn a_quiet_run_has_no_bar_and_keeps_the_events_that_were_asked_for() {
        assert_eq!(output(&["--quiet", "--progress=bar"], TERMINAL).progress, ProgressMode::None);
        assert_eq!(output(&["-q", "--progress=json"], TERMINAL).progress, ProgressMode::Json);
    }

    #[test]
    fn colours_need_a_terminal_and_no_objection() {
        assert!(output(&[], TERMINAL).color);
        assert!(!output(&[], Surroundings { color: false, ..TERMINAL }).color);
        assert!(!output(&[], PIPE).color);
    }

    #[test]
    fn a_report_that_could_not_be_written_is_refused_before_the_run() {
        let dir = tempfile::tempdir().unwrap();
        let report = |path: &Path| {
            let flag = format!("--report={}", path.display());
            resolve(&["sync", "a", "b", &flag], PIPE)
        };
        assert!(matches!(report(dir.path()), Err(ConfigError::ReportIsFolder(_))));
        assert!(matches!(report(&dir.path().join("no/r.json")), Err(ConfigError::ReportFolder { .. })));
        assert!(report(&dir.path().join("r.json")).is_ok());
        assert!(report(Path::new("r.json")).is_ok());
    }
}
