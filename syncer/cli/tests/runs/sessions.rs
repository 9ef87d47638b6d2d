//! Many runs over one session: nothing of one run reaches another.

use std::{
    fs,
    net::SocketAddr,
    sync::mpsc,
    thread::{self, Scope, ScopedJoinHandle},
};

use contract::{Demands, ExitCode, IdentityPair, RunParams};
use syncer::{
    monitor::Monitor,
    session::{self, Endpoint, LinkOptions, Outcome, SendSession},
};
use tempfile::TempDir;

use crate::common::{
    oracle::assert_copy,
    process::PATIENCE,
    scratch,
    tree::{self, Shape},
};

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
        let link = |endpoint, identity| LinkOptions { endpoint, identity, connect_timeout: PATIENCE };
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
