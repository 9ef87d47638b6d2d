//! Several runs over one session: nothing of one run affects another.

use std::{
    fs::File,
    net::SocketAddr,
    sync::{Arc, Weak, mpsc},
    thread::{Scope, ScopedJoinHandle},
};

use contract::{Demands, IdentityPair, RunParams};
use rustix::fs::{FlockOperation, flock};
use syncer::{
    monitor::Monitor,
    session::{self, Endpoint, LinkMode, LinkOptions, LocalSession, Outcome, SendSession},
};
use tempfile::TempDir;

use crate::common::oracle::assert_copy;
use crate::common::prelude::*;
use crate::common::wait;

/// Two folders, and the two ends of a session between them.
struct Ends {
    from: TempDir,
    to: TempDir,
}

impl Ends {
    fn new() -> Self {
        Self { from: scratch::scratch(), to: scratch::scratch() }
    }

    fn from(&self, name: &str) -> std::path::PathBuf {
        self.from.path().join(name)
    }

    /// Starts the sink, which serves one session, and connects the source.
    fn connect<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
    ) -> (SendSession, ScopedJoinHandle<'scope, Vec<Outcome>>) {
        let keys = IdentityPair::generate("job").unwrap();
        let link = |endpoint, identity| LinkOptions {
            others: Vec::new(),
            endpoint,
            mode: LinkMode::Auto,
            identity,
            connect_timeout: PATIENCE,
        };
        let listen = link(Endpoint::Listen(([127, 0, 0, 1], 0).into()), keys.sink);
        let (tell, address) = mpsc::channel();
        let sink = scope.spawn(move || {
            let monitor = Monitor::new(move |address: SocketAddr| tell.send(address).unwrap());
            let mut seen = Vec::new();
            let on_run = &mut |outcome: &Outcome| seen.push(outcome.clone());
            session::receive(self.to.path(), &listen, &Demands::default(), &monitor, true, on_run);
            seen
        });
        let address = address.recv_timeout(PATIENCE).unwrap().to_string();
        let dial = link(Endpoint::Connect(address), keys.source);
        (SendSession::connect(self.from.path(), &dial, None, &Monitor::default()).unwrap(), sink)
    }
}

/// A session of either kind.
trait Session {
    fn run(&mut self, params: &RunParams, monitor: &Monitor) -> Outcome;
}

impl Session for SendSession {
    fn run(&mut self, params: &RunParams, monitor: &Monitor) -> Outcome {
        Self::run(self, params, monitor)
    }
}

impl Session for LocalSession {
    fn run(&mut self, params: &RunParams, monitor: &Monitor) -> Outcome {
        Self::run(self, params, monitor)
    }
}

fn params(run: u32) -> RunParams {
    RunParams { run: run.to_string(), delete: true, force: true, ..RunParams::default() }
}

#[track_caller]
fn assert_done(outcome: &Outcome) {
    assert_eq!(outcome.exit, ExitCode::Done, "{:?}", outcome.report);
}

#[test]
fn a_session_serves_run_after_run_and_each_counts_for_itself() {
    let ends = Ends::new();
    tree::gallery(ends.from.path(), Shape::Everything);
    let seen = thread::scope(|scope| {
        let (mut session, sink) = ends.connect(scope);
        let first = session.run(&params(0), &Monitor::default());
        assert_done(&first);
        assert_copy(ends.to.path(), ends.from.path(), "the first run");
        fs::write(ends.from("new"), "content").unwrap();
        let second = session.run(&params(1), &Monitor::default());
        assert_done(&second);
        assert_copy(ends.to.path(), ends.from.path(), "the second run");
        assert_eq!((second.report.work.files_created, second.report.work.bytes_changed), (1, 7));
        assert!(second.report.work.bytes_on_wire < first.report.work.bytes_on_wire);
        let third = session.run(&params(2), &Monitor::default());
        assert_eq!((third.report.work.files_created, third.report.work.bytes_changed), (0, 0));
        drop(session);
        let seen = sink.join().unwrap();
        let sent = [&first, &second, &third].map(|outcome| &outcome.report);
        assert_eq!(seen.iter().map(|outcome| &outcome.report).collect::<Vec<_>>(), sent);
        seen
    });
    assert!(seen.iter().all(|outcome| outcome.exit == ExitCode::Done));
}

/// The event that a run of the test meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    Change,
    Nothing,
    /// The sink refuses its destination.
    FailingSink,
    /// Another run writes to the source.
    FailingSource,
    /// The run is canceled once its plan is known, before content crosses.
    Cancel,
    /// The destination has too little space.
    FullDisk,
}

const CASES: [Case; 10] = [
    Case::Change,
    Case::Nothing,
    Case::FailingSink,
    Case::Change,
    Case::Cancel,
    Case::Nothing,
    Case::FullDisk,
    Case::Change,
    Case::FailingSource,
    Case::Cancel,
];

impl Case {
    fn exit(self) -> ExitCode {
        match self {
            Self::Change | Self::Nothing => ExitCode::Done,
            Self::FullDisk => ExitCode::Partial,
            Self::FailingSink => ExitCode::Guard,
            Self::FailingSource | Self::Cancel => ExitCode::Failed,
        }
    }

    /// Runs once, after the changes or under the conditions of the case.
    fn run(self, ends: &Ends, number: u32, session: &mut impl Session) -> Outcome {
        if self != Self::Nothing {
            fs::write(ends.from(&format!("{}", number % 7)), vec![number as u8; 300_000]).unwrap();
            fs::write(ends.from("small"), number.to_string()).unwrap();
        }
        let (params, monitor) = (params(number), Monitor::default());
        match self {
            Self::Change | Self::Nothing => session.run(&params, &monitor),
            Self::FailingSink => {
                let expect_volume = Some("07".repeat(16).parse().unwrap());
                session.run(&RunParams { expect_volume, force: false, ..params }, &monitor)
            }
            Self::FailingSource => {
                let lock = File::open(ends.from(".volferry/lock")).unwrap();
                flock(&lock, FlockOperation::LockExclusive).unwrap();
                let outcome = session.run(&params, &monitor);
                flock(&lock, FlockOperation::Unlock).unwrap();
                outcome
            }
            Self::Cancel => {
                let cancel = |weak: Weak<Monitor>| move |_: &_| weak.upgrade().unwrap().cancel();
                let monitor = Arc::new_cyclic(|weak| Monitor::default().with_planned(cancel(weak.clone())));
                session.run(&RunParams { itemize_changes: true, ..params }, &monitor)
            }
            Self::FullDisk => {
                fs::write(ends.from("large"), vec![7; 9 << 20]).unwrap();
                let room = free_bytes(ends.to.path());
                let outcome = session.run(&params, &monitor);
                // A child that another test has just forked holds the removed file until it executes.
                let is_free = || free_bytes(ends.to.path()) + (1 << 20) >= room;
                wait::poll(is_free, || format!("run {number} has left something"));
                fs::remove_file(ends.from("large")).unwrap();
                outcome
            }
        }
    }
}

fn free_bytes(path: &Path) -> u64 {
    let disk = rustix::fs::statvfs(path).unwrap();
    disk.f_bavail * disk.f_frsize
}

/// Makes a destination with space for 8 MiB, and a source that another run can lock.
fn small_ends() -> Option<(Ends, Mount)> {
    scratch::needs_root()?;
    let ends = Ends::new();
    let mount = Mount::tmpfs(ends.to.path(), "8m");
    fs::create_dir(ends.from(".volferry")).unwrap();
    fs::write(ends.from(".volferry/lock"), "").unwrap();
    Some((ends, mount))
}

/// Runs twenty times through all cases, and once more. Returns the outcomes.
fn run_many_times(ends: &Ends, session: &mut impl Session) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    for (number, case) in (0..200).zip(CASES.into_iter().cycle()) {
        let outcome = case.run(ends, number, session);
        assert_eq!(outcome.exit, case.exit(), "run {number}, {case:?}: {:?}", outcome.report);
        assert_eq!(outcome.report.run, number.to_string());
        if case == Case::Cancel {
            assert_eq!(outcome.report.result, RunResult::Canceled, "run {number}");
        }
        if case.exit() == ExitCode::Done {
            let small = |dir: &TempDir| fs::read(dir.path().join("small")).unwrap();
            assert_eq!(small(&ends.to), small(&ends.from), "run {number}");
            assert!(!ends.to.path().join(".volferry/dirty-0").exists(), "run {number}");
        }
        outcomes.push(outcome);
    }
    outcomes.push(session.run(&params(200), &Monitor::default()));
    assert_copy(ends.to.path(), ends.from.path(), "after the last run");
    outcomes
}

#[test]
fn many_runs_of_one_session_fail_and_succeed_each_for_itself() {
    let Some((ends, _mount)) = small_ends() else { return };
    thread::scope(|scope| {
        let (mut session, sink) = ends.connect(scope);
        let sent = run_many_times(&ends, &mut session);
        assert!(!session.is_over());
        drop(session);
        let seen = sink.join().unwrap();
        assert_eq!(seen.len(), sent.len());
        for (sent, seen) in sent.iter().zip(&seen) {
            assert_eq!((sent.exit, sent.report.result), (seen.exit, seen.report.result), "{:?}", seen.report);
            if sent.exit == ExitCode::Done {
                assert_eq!(sent.report, seen.report);
            }
        }
    });
}

#[test]
fn many_local_runs_of_one_session_fail_and_succeed_each_for_itself() {
    let Some((ends, _mount)) = small_ends() else { return };
    run_many_times(&ends, &mut LocalSession::new(ends.from.path(), ends.to.path()));
}

#[test]
fn a_local_session_also_serves_images() {
    let ends = Ends::new();
    let [from, to] = [ends.from("disk"), ends.to.path().join("disk")];
    let mut session = LocalSession::new(&*from, &*to);
    for round in 1..4 {
        fs::write(&from, vec![round; 3 << 20]).unwrap();
        let params = RunParams { image: true, run: round.to_string(), ..RunParams::default() };
        assert_done(&session.run(&params, &Monitor::default()));
        assert_eq!(fs::read(&to).unwrap(), fs::read(&from).unwrap(), "round {round}");
        fs::rename(&from, ends.from("away")).unwrap();
        assert_eq!(session.run(&params, &Monitor::default()).exit, ExitCode::Usage, "no source");
    }
}

#[test]
fn nobody_else_writes_to_the_destination_of_a_session_between_its_runs() {
    let ends = Ends::new();
    fs::write(ends.from("file"), "content").unwrap();
    let local = || session::sync(ends.from.path(), ends.to.path(), &params(9), &Monitor::default());
    thread::scope(|scope| {
        let (mut session, sink) = ends.connect(scope);
        assert_done(&session.run(&params(0), &Monitor::default()));
        assert_eq!(local().report.reason.as_deref(), Some("DestinationBusy"));
        assert_done(&session.run(&params(1), &Monitor::default()));
        drop(session);
        sink.join().unwrap();
    });
    assert_done(&local());
    let mut session = LocalSession::new(ends.from.path(), ends.to.path());
    assert_done(&session.run(&params(2), &Monitor::default()));
    assert_eq!(local().report.reason.as_deref(), Some("DestinationBusy"));
    drop(session);
    assert_done(&local());
}
