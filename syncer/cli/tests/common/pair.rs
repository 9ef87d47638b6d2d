//! A source, a destination, and the runs between them, local or over the network.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Output,
};

use contract::{ExitCode, IdentityPair, Report, Work};
use tempfile::TempDir;

use super::{
    expect, oracle,
    oracle::Snapshot,
    process::{Ended, Running, User, command, program, program_in},
    relay::Relay,
    scratch,
    watch::until_written,
};

/// Lets the system choose a free port.
pub const ANY_PORT: &str = "127.0.0.1:0";

/// The length of a block whose arrival is recorded, and the length of its record.
const NOTED_BLOCK_BYTES: u64 = 256 << 10;
const NOTE_BYTES: u64 = 56;

/// How the two ends of a run meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// `volferry sync`: no network.
    Local,
    /// The sink listens, the source dials.
    SinkListens,
    /// The source listens, the sink dials.
    SourceListens,
}

impl Way {
    pub const ALL: [Self; 3] = [Self::Local, Self::SinkListens, Self::SourceListens];
    /// One without and one with a network, for what does not depend on who dials.
    pub const EACH: [Self; 2] = [Self::Local, Self::SinkListens];
    pub const NETWORK: [Self; 2] = [Self::SinkListens, Self::SourceListens];
}

/// The two folders of a run, its users and its keys.
#[derive(Debug)]
pub struct Pair {
    pub source: PathBuf,
    pub destination: PathBuf,
    pub way: Way,
    pub user: User,
    /// The user that runs the source's end, where another process is the sink.
    pub source_user: User,
    /// The folder for the runs' temporary files, if not the system's.
    pub tmpdir: Option<PathBuf>,
    /// Whether the ends are devices or images of them.
    pub is_of_devices: bool,
    /// A program to run in place of `volferry` at the destination's end, or in a local run.
    pub limited: Option<PathBuf>,
    program: PathBuf,
    dir: TempDir,
}

/// The end of a run's process or processes. A local run is both of its ends.
#[derive(Debug)]
pub enum Run {
    Local(Ended),
    Network { source: Ended, sink: Ended },
}

impl Pair {
    /// Makes an empty source and an empty destination.
    pub fn new(way: Way) -> Self {
        Self::in_dir(scratch::scratch(), way)
    }

    /// Makes an empty pair for each way.
    pub fn each<const WAYS: usize>(ways: [Way; WAYS]) -> impl Iterator<Item = Self> {
        ways.into_iter().map(Self::new)
    }

    /// Makes an empty pair whose runs are of a user without privileges.
    pub fn unprivileged(way: Way) -> Self {
        let mut pair = Self::new(way);
        (pair.user, pair.source_user) = (User::Nobody, User::Nobody);
        pair.program = program_in(pair.dir.path());
        scratch::open_to_all(pair.dir.path());
        [&pair.source, &pair.destination, &pair.dir.path().join("keys")]
            .into_iter()
            .for_each(|path| scratch::give_to_nobody(path));
        pair
    }

    /// Makes an unprivileged pair for each way; none where this process cannot change its user.
    pub fn each_unprivileged() -> impl Iterator<Item = Self> {
        Way::ALL.into_iter().filter(|_| scratch::is_root()).map(Self::unprivileged)
    }

    pub fn in_dir(dir: TempDir, way: Way) -> Self {
        let source = scratch::dir(dir.path(), "source");
        let destination = scratch::dir(dir.path(), "destination");
        IdentityPair::generate("job").unwrap().write(&dir.path().join("keys")).unwrap();
        let (user, source_user) = (User::Same, User::Same);
        Self {
            source,
            destination,
            way,
            user,
            source_user,
            tmpdir: None,
            is_of_devices: false,
            limited: None,
            program: program(),
            dir,
        }
    }

    /// Returns the folder that holds the source, the destination and the keys.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn key(&self, name: &str) -> PathBuf {
        self.dir.path().join("keys").join(name)
    }

    /// Starts `volferry` with these arguments, as this pair's user.
    pub fn start(&self, args: &[&str]) -> Running {
        self.start_program(self.limited.as_ref().unwrap_or(&self.program), self.user, args)
    }

    /// Starts `volferry` as [`Pair::start`] does, with a standard input that a test can write to.
    pub fn start_listening(&self, args: &[&str]) -> Running {
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        Running::start_listening(command(&self.program, self.user, &args))
    }

    /// Runs `volferry` with these arguments, as this pair's user, and returns its output.
    pub fn output(&self, args: &[&str]) -> Output {
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        command(&self.program, self.user, &args).output().unwrap()
    }

    fn start_program(&self, program: &Path, user: User, args: &[&str]) -> Running {
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        let mut command = command(program, user, &args);
        command.envs(self.tmpdir.iter().map(|path| ("TMPDIR", path)));
        Running::start(command)
    }

    /// Starts a local run.
    pub fn start_sync(&self, flags: &[&str]) -> Running {
        let ends = ["sync", text(&self.source), text(&self.destination), "--progress=json"];
        self.start(&[&ends, flags, adopting(flags), self.image()].concat())
    }

    /// Starts the source's end of one run.
    pub fn start_send(&self, link: &[&str], flags: &[&str]) -> Running {
        let listens = link.iter().any(|flag| flag.starts_with("--listen"));
        let once: &[&str] = if listens { &["--once"] } else { &[] };
        self.start_source(&[link, once].concat(), flags)
    }

    /// Starts the source's end, which serves run after run if it listens.
    pub fn start_source(&self, link: &[&str], flags: &[&str]) -> Running {
        let identity = self.key("source");
        let end = ["send", text(&self.source), "--progress=json", "--identity", text(&identity)];
        self.start_program(
            &self.program,
            self.source_user,
            &[&end, link, flags, adopting(flags), self.image()].concat(),
        )
    }

    /// Starts the sink's end.
    pub fn start_receive(&self, link: &[&str]) -> Running {
        let identity = self.key("sink");
        let end = ["receive", text(&self.destination), "--progress=json", "--identity", text(&identity)];
        self.start(&[&end, link, self.image()].concat())
    }

    /// Returns the flag for ends that are images or devices, if this pair's are.
    fn image(&self) -> &'static [&'static str] {
        if self.is_of_devices { &["--image"] } else { &[] }
    }

    /// Starts both ends of a run, over a link that stands still after `bytes`, and waits until it does. `flags` go to
    /// `send`.
    #[track_caller]
    pub fn start_over(&self, bytes: u64, flags: &[&str]) -> (Running, Running, Relay) {
        let run = self.start_relayed(bytes, flags);
        run.2.wait_holding();
        run
    }

    /// Starts a run as [`Pair::start_over`] does, which may end before the link stands still.
    #[track_caller]
    pub fn start_relayed(&self, bytes: u64, flags: &[&str]) -> (Running, Running, Relay) {
        if self.way == Way::SourceListens {
            let mut source = self.start_send(&["--listen", ANY_PORT], flags);
            let relay = Relay::holding(source.listening(), bytes);
            let sink = self.start_receive(&["--once", "--connect", &relay.address().to_string()]);
            return (source, sink, relay);
        }
        let mut sink = self.start_receive(&["--once", "--listen", ANY_PORT]);
        let relay = Relay::holding(sink.listening(), bytes);
        let source = self.start_send(&["--connect", &relay.address().to_string()], flags);
        (source, sink, relay)
    }

    /// Waits until the sink has recorded the arrival of this many bytes of very large files.
    #[track_caller]
    pub fn wait_for_notes(&self, bytes: u64) {
        let staging = self.destination.join(".volferry/staging");
        until_written(&staging, || {
            let names = self.staged().into_iter().filter(|name| name.ends_with(".blocks"));
            let lengths = names.filter_map(|name| Some(fs::metadata(staging.join(name)).ok()?.len()));
            lengths.sum::<u64>() >= NOTE_BYTES * (1 + bytes / NOTED_BLOCK_BYTES)
        });
    }

    /// Runs once; `flags` are those of `sync` and `send`.
    #[track_caller]
    pub fn run(&self, flags: &[&str]) -> Run {
        self.run_with(flags, &[])
    }

    /// Runs once, with more flags of the destination's end.
    #[track_caller]
    pub fn run_with(&self, flags: &[&str], of_sink: &[&str]) -> Run {
        if self.way == Way::Local {
            return Run::Local(self.start_sync(&[flags, of_sink].concat()).wait());
        }
        let (source, sink) = self.start_both(flags, of_sink);
        Run::Network { source: source.wait(), sink: sink.wait() }
    }

    /// Starts both ends of a run over the network, each with its flags: the source's, and the sink's.
    #[track_caller]
    pub fn start_both(&self, flags: &[&str], of_sink: &[&str]) -> (Running, Running) {
        if self.way == Way::SourceListens {
            let mut source = self.start_send(&["--listen", ANY_PORT], flags);
            let address = source.listening().to_string();
            let sink = self.start_receive(&[&["--once", "--connect", &address], of_sink].concat());
            return (source, sink);
        }
        let mut sink = self.start_receive(&[&["--once", "--listen", ANY_PORT], of_sink].concat());
        (self.start_send(&["--connect", &sink.listening().to_string()], flags), sink)
    }

    /// Runs once, and checks that the run ends with `exit`.
    #[track_caller]
    pub fn run_to(&self, exit: ExitCode, flags: &[&str]) -> Run {
        let run = self.run(flags);
        run.assert_exit(exit);
        run
    }

    /// Runs once, and checks that all was done.
    #[track_caller]
    pub fn done(&self, flags: &[&str]) -> Run {
        self.run_to(ExitCode::Done, flags)
    }

    /// Runs once with success, and checks everything that is true after such a run with `--delete`: the destination is
    /// a copy, the report's counts are exact, and staging is empty. `what` names the run in a failure.
    #[track_caller]
    pub fn sync(&self, what: &str) -> Report {
        let in_doubt = !self.marks().is_empty() || !self.notes().is_empty();
        let before = Snapshot::of(&self.destination);
        let after = Snapshot::of(&self.source);
        let run = self.done(&["--delete", "--delete-limit=100"]);
        let report = run.report().clone();
        let what = format!("{:?}, {what}", self.way);
        Snapshot::of(&self.destination).assert_like(&after, oracle::COPY, &what);
        // A file with several names can count once or several times, and a file in doubt is compared again.
        if !in_doubt && !before.has_links() && !after.has_links() {
            assert_eq!(
                expect::foretold(&report.work),
                expect::work(&before, &after, self.user.id()),
                "{what}"
            );
        }
        self.assert_staging_empty();
        assert_eq!(self.marks(), [] as [PathBuf; 0], "{what}: all is durable");
        report
    }

    /// Returns the marks of the destination which say that some of it may not be durable.
    pub fn marks(&self) -> Vec<PathBuf> {
        self.own_files("dirty-")
    }

    /// Returns the notes of the destination about files that were in motion when they were read.
    pub fn notes(&self) -> Vec<PathBuf> {
        self.own_files("in-motion-")
    }

    fn own_files(&self, prefix: &str) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.destination.join(".volferry")).into_iter().flatten();
        let has_prefix = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().starts_with(prefix);
        entries.map(|entry| entry.unwrap().path()).filter(has_prefix).collect()
    }

    /// Runs once, and checks that the run had nothing to do and wrote nothing.
    #[track_caller]
    pub fn sync_unchanged(&self, what: &str) -> Report {
        let before = Snapshot::of(&self.destination);
        let run = self.done(&["--delete"]);
        let what = format!("{:?}, {what}", self.way);
        Snapshot::of(&self.destination).assert_like(&before, oracle::UNTOUCHED, &what);
        let report = run.report().clone();
        let Work { files_scanned, files_skipped, bytes_total, owners_not_kept, .. } = report.work;
        let nothing_done =
            Work { files_scanned, files_skipped, bytes_total, owners_not_kept, ..Work::default() };
        assert_eq!(expect::foretold(&report.work), nothing_done, "{what}");
        report
    }

    /// Runs once, and checks that the run ends with `exit` and `reason` and leaves the destination as it was.
    #[track_caller]
    pub fn refuse(&self, flags: &[&str], exit: ExitCode, reason: &str) -> Run {
        let before = Snapshot::of(&self.destination);
        let run = self.run(flags);
        run.assert_exit(exit);
        run.ends().for_each(|end| assert_eq!(end.reason(), reason, "{:?}: {}", self.way, end.stderr));
        Snapshot::of(&self.destination).assert_like(&before, oracle::UNTOUCHED, "a refused run");
        self.assert_staging_empty();
        run
    }

    #[track_caller]
    pub fn assert_copy(&self, what: &str) {
        oracle::assert_copy(&self.destination, &self.source, what);
    }

    #[track_caller]
    pub fn assert_staging_empty(&self) {
        assert_eq!(self.staged(), [] as [String; 0], "left in staging");
    }

    /// Returns the names of the files in staging.
    pub fn staged(&self) -> Vec<String> {
        let entries = fs::read_dir(self.destination.join(".volferry/staging")).into_iter().flatten();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Checks that staging has only parts of large files, at most one for each of `files`, and their notes.
    #[track_caller]
    pub fn assert_only_parts_staged(&self, files: usize) {
        let staged: Vec<_> = self.staged().into_iter().filter(|name| !name.ends_with(".blocks")).collect();
        let is_part = |name: &String| name.find('.') == Some(32);
        assert!(staged.len() <= files && staged.iter().all(is_part), "left in staging: {staged:?}");
    }
}

impl Run {
    pub fn ends(&self) -> impl Iterator<Item = &Ended> {
        match self {
            Self::Local(end) => [Some(end), None],
            Self::Network { source, sink } => [Some(source), Some(sink)],
        }
        .into_iter()
        .flatten()
    }

    #[track_caller]
    pub fn assert_exit(&self, expected: ExitCode) {
        self.ends().for_each(|end| end.assert_exit(expected));
    }

    /// Returns the run's report, after a check that both ends have the same.
    #[track_caller]
    pub fn report(&self) -> &Report {
        match self {
            Self::Local(end) => end.report(),
            Self::Network { source, sink } => {
                assert_eq!(source.report(), sink.report());
                source.report()
            }
        }
    }
}

/// Returns the flag that lets deletes happen in a first run: most tests begin with a destination of their own making.
fn adopting(flags: &[&str]) -> &'static [&'static str] {
    let deletes = |flag: &&str| *flag == "--delete" || flag.starts_with("--delete=");
    if flags.iter().any(deletes) { &["--adopt"] } else { &[] }
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
