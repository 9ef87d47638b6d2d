//! A source, a destination, and the runs between them, by every way that there is.

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
    scratch,
};

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
    pub const NETWORK: [Self; 2] = [Self::SinkListens, Self::SourceListens];
}

/// Two folders and what is needed to sync them.
#[derive(Debug)]
pub struct Pair {
    pub source: PathBuf,
    pub destination: PathBuf,
    pub way: Way,
    pub user: User,
    /// Who sends, where another process receives.
    pub source_user: User,
    /// Where the runs put temporary files, if that is not where everybody does.
    pub tmpdir: Option<PathBuf>,
    /// The ends are devices or images of them.
    pub is_of_devices: bool,
    /// Runs the destination's end, or both ends of one process, in place of the plain program.
    pub limited: Option<PathBuf>,
    program: PathBuf,
    dir: TempDir,
}

/// How the process or processes of a run ended. A local run is both of its ends.
#[derive(Debug)]
pub enum Run {
    Local(Ended),
    Network { source: Ended, sink: Ended },
}

impl Pair {
    /// An empty source and an empty destination.
    pub fn new(way: Way) -> Self {
        Self::in_dir(scratch::scratch(), way)
    }

    /// The same, of a user without privileges.
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

    /// One such pair for each way; none where this process cannot be such a user.
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

    /// The folder that all of it is in.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn key(&self, name: &str) -> PathBuf {
        self.dir.path().join("keys").join(name)
    }

    /// `volferry` with these arguments, started as this pair's user.
    pub fn start(&self, args: &[&str]) -> Running {
        self.start_program(self.limited.as_ref().unwrap_or(&self.program), self.user, args)
    }

    /// The same, with a standard input to tell it something.
    pub fn start_listening(&self, args: &[&str]) -> Running {
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        Running::start_listening(command(&self.program, self.user, &args))
    }

    /// What `volferry` with these arguments prints, run as this pair's user.
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
        self.start(&[&ends, flags, self.image()].concat())
    }

    /// Starts the source's end.
    pub fn start_send(&self, link: &[&str], flags: &[&str]) -> Running {
        let identity = self.key("source");
        let end = ["send", text(&self.source), "--progress=json", "--identity", text(&identity)];
        self.start_program(&self.program, self.source_user, &[&end, link, flags, self.image()].concat())
    }

    /// Starts the sink's end.
    pub fn start_receive(&self, link: &[&str]) -> Running {
        let identity = self.key("sink");
        let end = ["receive", text(&self.destination), "--progress=json", "--identity", text(&identity)];
        self.start(&[&end, link, self.image()].concat())
    }

    /// What says that the ends are images or devices, where the tests' pair is.
    fn image(&self) -> &'static [&'static str] {
        if self.is_of_devices { &["--image"] } else { &[] }
    }

    /// One run; `flags` are those of `sync` and `send`.
    #[track_caller]
    pub fn run(&self, flags: &[&str]) -> Run {
        const ANY_PORT: &str = "127.0.0.1:0";
        match self.way {
            Way::Local => Run::Local(self.start_sync(flags).wait()),
            Way::SinkListens => {
                let mut sink = self.start_receive(&["--once", "--listen", ANY_PORT]);
                let address = sink.listening().to_string();
                let source = self.start_send(&["--connect", &address], flags).wait();
                Run::Network { source, sink: sink.wait() }
            }
            Way::SourceListens => {
                let mut source = self.start_send(&["--listen", ANY_PORT], flags);
                let address = source.listening().to_string();
                let sink = self.start_receive(&["--once", "--connect", &address]).wait();
                Run::Network { source: source.wait(), sink }
            }
        }
    }

    /// A run that ends well. Checks what has to be true after any such run with `--delete`: the destination is a copy,
    /// the report counts exactly what was to be done, and nothing is left in staging. `what` names the run in a
    /// failure.
    #[track_caller]
    pub fn sync(&self, what: &str) -> Report {
        let in_doubt = !self.marks().is_empty();
        let before = Snapshot::of(&self.destination);
        let after = Snapshot::of(&self.source);
        let run = self.run(&["--delete", "--delete-limit=100"]);
        run.assert_exit(ExitCode::Done);
        let report = run.report().clone();
        let what = format!("{:?}, {what}", self.way);
        Snapshot::of(&self.destination).assert_like(&after, oracle::COPY, &what);
        // A file with several names is one piece of work or several, as they come, and one that is in doubt is looked
        // at again.
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

    /// What says of the destination that something of it may not be durable.
    pub fn marks(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.destination.join(".volferry")).into_iter().flatten();
        let is_mark = |path: &PathBuf| path.to_string_lossy().contains("/dirty-");
        entries.map(|entry| entry.unwrap().path()).filter(is_mark).collect()
    }

    /// A run that has nothing to do, and does nothing.
    #[track_caller]
    pub fn sync_unchanged(&self, what: &str) -> Report {
        let before = Snapshot::of(&self.destination);
        let run = self.run(&["--delete"]);
        run.assert_exit(ExitCode::Done);
        let what = format!("{:?}, {what}", self.way);
        Snapshot::of(&self.destination).assert_like(&before, oracle::UNTOUCHED, &what);
        let report = run.report().clone();
        let Work { files_scanned, files_skipped, bytes_total, owners_not_kept, .. } = report.work;
        let nothing_done =
            Work { files_scanned, files_skipped, bytes_total, owners_not_kept, ..Work::default() };
        assert_eq!(expect::foretold(&report.work), nothing_done, "{what}");
        report
    }

    /// A run that has to end with `exit`, for `reason`, and with the destination as it was.
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

    /// The names of the files in staging.
    pub fn staged(&self) -> Vec<String> {
        let entries = fs::read_dir(self.destination.join(".volferry/staging")).into_iter().flatten();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Panics unless staging has nothing but parts of large files, at most one for each of `files`, and notes on them.
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

    /// The report, which both ends of a run that got to its end hold.
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

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
