//! The engine as a library: both ends on threads of one process.

use std::{net::SocketAddr, sync::mpsc};

use contract::{Demands, IdentityPair, Phase, RunParams};
use syncer::{
    monitor::Monitor,
    session::{self, Endpoint, LinkMode, LinkOptions, Outcome},
};

use crate::common::oracle::assert_copy;
use crate::common::prelude::*;

fn anywhere() -> Endpoint {
    Endpoint::Listen(([127, 0, 0, 1], 0).into())
}

/// Returns a monitor, and the channel by which it reports the address of its end.
fn monitor() -> (Monitor, mpsc::Receiver<SocketAddr>) {
    let (tell, address) = mpsc::channel();
    (Monitor::new(move |address| tell.send(address).unwrap()), address)
}

fn receive(to: &Path, link: &LinkOptions, monitor: &Monitor, once: bool) -> (Outcome, Vec<RunResult>) {
    let mut seen = Vec::new();
    let last = session::receive(to, link, &Demands::default(), monitor, once, &mut |outcome| {
        seen.push(outcome.report.result);
    });
    (last, seen)
}

#[test]
fn both_ends_run_in_one_process_and_their_monitors_end_at_what_was_moved() {
    let (from, to) = (scratch::scratch(), scratch::scratch());
    tree::gallery(from.path(), Shape::Everything);
    let keys = IdentityPair::generate("job").unwrap();
    let ((sink_monitor, address), source_monitor) = (monitor(), Monitor::default());
    let (sent, (received, seen)) = thread::scope(|scope| {
        let link = LinkOptions {
            others: Vec::new(),
            endpoint: anywhere(),
            mode: LinkMode::Auto,
            identity: keys.sink,
            connect_timeout: PATIENCE,
        };
        let (to, monitor) = (to.path(), &sink_monitor);
        let sink = scope.spawn(move || receive(to, &link, monitor, true));
        let endpoint = Endpoint::Connect(address.recv_timeout(PATIENCE).unwrap().to_string());
        let link = LinkOptions {
            others: Vec::new(),
            endpoint,
            mode: LinkMode::Auto,
            identity: keys.source,
            connect_timeout: PATIENCE,
        };
        let params = RunParams { run: "in one process".into(), ..RunParams::default() };
        let sent = session::send(from.path(), &link, &params, &source_monitor);
        (sent, sink.join().unwrap())
    });
    assert_copy(to.path(), from.path(), "in one process");
    assert_eq!((sent.exit, received.exit), (ExitCode::Done, ExitCode::Done));
    assert_eq!(sent.report, received.report);
    assert_eq!((sent.report.run.as_str(), seen), ("in one process", vec![RunResult::Succeeded]));
    let work = sent.report.work;
    for monitor in [&sink_monitor, &source_monitor] {
        let now = monitor.snapshot();
        assert_eq!(
            (now.phase, now.bytes, now.bytes_total),
            (Phase::Commit, work.bytes_changed, work.bytes_changed)
        );
        assert_eq!(now.files, now.files_total);
    }
}

#[test]
fn whoever_waits_for_a_peer_stops_at_once_when_asked() {
    let dir = scratch::scratch();
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let silent = || Endpoint::Connect(silent.local_addr().unwrap().to_string());
    let cases: [(&str, &dyn Fn() -> Endpoint); 2] = [("listens", &anywhere), ("dials", &silent)];
    for (what, endpoint) in cases {
        for side in ["source", "sink"] {
            let keys = IdentityPair::generate("job").unwrap();
            let identity = if side == "source" { keys.source } else { keys.sink };
            let link = LinkOptions {
                others: Vec::new(),
                endpoint: endpoint(),
                mode: LinkMode::Auto,
                identity,
                connect_timeout: PATIENCE,
            };
            let (monitor, _address) = monitor();
            let outcome = thread::scope(|scope| {
                let end = scope.spawn(|| match side {
                    "source" => session::send(dir.path(), &link, &RunParams::default(), &monitor),
                    _ => receive(dir.path(), &link, &monitor, true).0,
                });
                monitor.cancel();
                end.join().unwrap()
            });
            assert_eq!(outcome.exit, ExitCode::Failed, "a {side} that {what}");
            assert_eq!(
                (outcome.report.result, outcome.report.reason.as_deref()),
                (RunResult::Canceled, Some("Canceled"))
            );
        }
    }
}

#[test]
fn an_end_that_serves_and_is_stopped_before_any_run_tells_of_none() {
    let dir = scratch::scratch();
    let link = LinkOptions {
        others: Vec::new(),
        endpoint: anywhere(),
        mode: LinkMode::Auto,
        identity: IdentityPair::generate("job").unwrap().sink,
        connect_timeout: PATIENCE,
    };
    let (monitor, address) = monitor();
    let (outcome, seen) = thread::scope(|scope| {
        let end = scope.spawn(|| receive(dir.path(), &link, &monitor, false));
        address.recv_timeout(PATIENCE).unwrap();
        monitor.cancel();
        end.join().unwrap()
    });
    assert_eq!((outcome.exit, seen), (ExitCode::Done, vec![]));
}

#[test]
fn a_run_that_was_stopped_before_it_began_changes_nothing() {
    let (from, to) = (scratch::scratch(), scratch::scratch());
    tree::gallery(from.path(), Shape::Everything);
    tree::file(&to.path().join("theirs"), b"content");
    let params = RunParams { delete: true, force: true, ..RunParams::default() };
    let stopped = || {
        let monitor = Monitor::default();
        monitor.cancel();
        session::sync(from.path(), to.path(), &params, &monitor)
    };
    // The first run makes Volferry's own folder.
    stopped();
    let before = Snapshot::of(to.path());
    assert_eq!(stopped().report.result, RunResult::Canceled);
    Snapshot::of(to.path()).assert_like(&before, UNTOUCHED, "a run that was stopped");
}
