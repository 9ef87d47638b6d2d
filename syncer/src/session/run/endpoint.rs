//! The ends of a session: they connect, run, tell the peer how it ended, and serve the next run.

use std::{
    net::{SocketAddr, UdpSocket},
    time::Duration,
};

use contract::{Demands, Identity, Report, RunParams, Side, Work};

use crate::{
    monitor::Monitor,
    root::TreeLocation,
    session::{
        local::stored_tree::Restore,
        run::{
            local_run, network,
            outcome::{Clock, Outcome},
        },
        session_error::SessionError,
        source::serve,
    },
    transport::{
        Peer, TransportError,
        quic::{self, End, Port},
    },
    wire::{Message, code},
};

/// Which end dials.
#[derive(Debug)]
pub enum Endpoint {
    /// This end waits on the address; port 0 takes any free port.
    Listen(SocketAddr),
    /// This end waits on a socket that the peer knows already.
    Bound(UdpSocket),
    /// This end dials `host:port` until it is answered.
    Connect(String),
}

/// How to reach the peer, and how to know it.
#[derive(Debug)]
pub struct LinkOptions {
    /// Listen or dial.
    pub endpoint: Endpoint,
    /// This end's key, and the peer's fingerprint.
    pub identity: Identity,
    /// How long to dial.
    pub connect_timeout: Duration,
}

/// The source's end of one run. Every error is in the outcome.
pub fn send(
    source: impl Into<TreeLocation>,
    link: &LinkOptions,
    params: &RunParams,
    monitor: &Monitor,
) -> Outcome {
    let source = source.into();
    let mut clock = Clock::start(monitor);
    let result = open_port(link, monitor)
        .and_then(|port| {
            connect(port, link, End { side: Side::Source, bandwidth_limit: params.bandwidth_limit }, monitor)
        })
        .and_then(|(connection, peer)| {
            clock.met(connection.peer(), connection.began());
            peer.use_connections(params.connections);
            let result = serve::run(&source, &peer, params, &mut clock.watch);
            let result = result.map_err(|error| error.or_stopped(monitor));
            let bytes_on_wire = connection.bytes_on_wire();
            clock.watch.did(Work { bytes_on_wire, ..clock.watch.work() });
            let exchange = finish(connection, &peer, &result, false);
            result.map_err(|error| error.or_cause(exchange.1))
        });
    clock.outcome(&params.run, result)
}

/// Serves runs as the sink's end, which lets a source decide as far as `demands` says: one run when `once`, else run
/// after run until told to stop. `on_run` sees each outcome. Returns the last one; that of no run if the end is stopped
/// between two.
pub fn receive(
    destination: impl Into<TreeLocation>,
    link: &LinkOptions,
    demands: &Demands,
    monitor: &Monitor,
    once: bool,
    on_run: &mut dyn FnMut(&Outcome),
) -> Outcome {
    let destination = destination.into();
    let clock = Clock::start(monitor);
    let mut port = match open_port(link, monitor) {
        Ok(port) => port,
        Err(error) => return clock.outcome(&demands.run, Err(error)),
    };
    loop {
        let mut clock = Clock::start(monitor);
        let mut run = demands.run.clone();
        let end = End { side: Side::Sink, bandwidth_limit: None };
        let (back, result) = match connect(port, link, end, monitor) {
            Ok((connection, peer)) => {
                // An end that listens may have waited for hours before the run began.
                clock.met(connection.peer(), connection.began());
                let wire = || connection.bytes_on_wire();
                let result = network::run(&destination, &peer, demands, &mut clock.watch, &mut run, &wire);
                let result = result.map_err(|error| error.or_stopped(monitor));
                let (port, cause) = finish(connection, &peer, &result, true);
                (Some(port), result.map_err(|error| error.or_cause(cause)))
            }
            Err(SessionError::Transport(TransportError::Canceled)) if !once => {
                return Outcome::between_runs();
            }
            Err(error) => (None, Err(error)),
        };
        let outcome = clock.outcome(&run, result).with_no_snapshot(demands.snapshot.as_ref());
        on_run(&outcome);
        match back {
            Some(back) if !once && !monitor.cancelled() => port = Some(back),
            _ => return outcome,
        }
        monitor.reset();
    }
}

/// The outcome of a run of this name that could not begin.
pub fn not_begun(run: &str, error: SessionError, monitor: &Monitor) -> Outcome {
    Clock::start(monitor).outcome(run, Err(error))
}

/// Both ends in one process, with no network.
pub fn sync(
    source: impl Into<TreeLocation>,
    destination: impl Into<TreeLocation>,
    params: &RunParams,
    monitor: &Monitor,
) -> Outcome {
    let mut clock = Clock::start(monitor);
    let result = local_run::run(&source.into(), &destination.into(), params, &mut clock.watch);
    clock.outcome(&params.run, result).with_no_snapshot(params.demands.snapshot.as_ref())
}

/// Brings a volume, or a path of one, back to what a snapshot has.
pub fn restore(restore: &Restore<'_>, params: &RunParams, monitor: &Monitor) -> Outcome {
    let mut clock = Clock::start(monitor);
    let result = restore.run(params, &mut clock.watch);
    clock.outcome(&params.run, result)
}

/// A listening socket; `None` where this end dials.
fn open_port(link: &LinkOptions, monitor: &Monitor) -> Result<Option<Port>, SessionError> {
    let port = match &link.endpoint {
        Endpoint::Connect(_) => return Ok(None),
        Endpoint::Listen(address) => Port::listen(*address, &link.identity)?,
        Endpoint::Bound(socket) => {
            let socket = socket.try_clone().map_err(|error| TransportError::Lost(error.to_string()))?;
            return Ok(Some(Port::listen_on(socket, &link.identity)?));
        }
    };
    if let Ok(address) = port.local_addr() {
        monitor.listening(address);
    }
    Ok(Some(port))
}

fn connect(
    port: Option<Port>,
    link: &LinkOptions,
    end: End,
    monitor: &Monitor,
) -> Result<(quic::Link, Peer), SessionError> {
    match (&link.endpoint, port) {
        (Endpoint::Connect(address), _) => {
            Ok(quic::dial(address, &link.identity, link.connect_timeout, end, monitor)?)
        }
        (Endpoint::Listen(_) | Endpoint::Bound(_), Some(port)) => Ok(port.accept(end, monitor)?),
        (Endpoint::Listen(_) | Endpoint::Bound(_), None) => {
            Err(TransportError::Lost("the socket was closed".into()).into())
        }
    }
}

/// Ends a connection, after telling the peer why if this end failed. Returns what may have caused the failure: the
/// peer's last word.
fn finish(
    connection: quic::Link,
    peer: &Peer,
    result: &Result<Report, SessionError>,
    waits: bool,
) -> (Port, Option<TransportError>) {
    let control = &peer.control;
    match result {
        Ok(_) => (connection.close(waits.then_some(control), code::DONE), None),
        // The transport says so to the peer, and sees the connection closed.
        Err(SessionError::Transport(TransportError::Canceled)) => {
            (connection.close(Some(control), code::CANCELED), None)
        }
        Err(SessionError::Transport(_)) => {
            let cause = control.last_word();
            (connection.close(None, code::FAILED), cause)
        }
        Err(error) => {
            let told = control.send(&Message::Refuse(error.refusal()));
            (connection.close(told.is_ok().then_some(control), code::FAILED), None)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use crate::{report::Stopwatch, transport::memory};

    /// Runs both ends over queues in memory.
    fn run(from: &Path, to: &Path, params: &RunParams) -> (Report, Report) {
        let (source_peer, sink_peer) = memory::pair();
        let monitor = Monitor::default();
        std::thread::scope(|scope| {
            let source = scope.spawn(|| {
                serve::run(&from.into(), &source_peer, params, &mut Stopwatch::start(&monitor)).unwrap()
            });
            let mut watch = Stopwatch::start(&monitor);
            let sink = network::run(
                &to.into(),
                &sink_peer,
                &Demands::default(),
                &mut watch,
                &mut String::new(),
                &|| 7,
            )
            .unwrap();
            (source.join().unwrap(), sink)
        })
    }

    #[test]
    fn both_ends_hold_the_same_report() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::create_dir(from.path().join("d")).unwrap();
        fs::write(from.path().join("d/small"), "content").unwrap();
        fs::write(from.path().join("large"), vec![7; 3 << 20]).unwrap();
        let (source, sink) =
            run(from.path(), to.path(), &RunParams { run: "r".into(), ..RunParams::default() });
        assert_eq!(source, sink);
        assert_eq!(sink.run, "r");
        assert_eq!((sink.work.files_created, sink.work.bytes_on_wire), (3, 7));
        assert_eq!(fs::read(to.path().join("d/small")).unwrap(), b"content");
        assert_eq!(fs::read(to.path().join("large")).unwrap(), vec![7; 3 << 20]);
    }

    #[test]
    fn a_second_run_finds_nothing_to_do() {
        let (from, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for i in 0..3000 {
            fs::write(from.path().join(format!("file {i}")), [1; 100]).unwrap();
        }
        run(from.path(), to.path(), &RunParams::default());
        let (_, again) = run(from.path(), to.path(), &RunParams::default());
        assert_eq!(again.work.files_created + again.work.files_updated + again.work.bytes_changed, 0);
        assert_eq!(again.work.files_scanned, 3000);
    }
}
