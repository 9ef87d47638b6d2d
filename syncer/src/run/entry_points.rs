//! The entry points of all runs. A single run is a session of one run.

use contract::{Demands, RunParams, Side};

use crate::{
    ends::stored_tree::Restore,
    measure::monitor::Monitor,
    run::{
        link_options::LinkOptions,
        local,
        local_session::LocalSession,
        outcome::{Clock, Outcome},
        receive_session::{Served, SinkSession},
        send_session::SendSession,
    },
    session_error::SessionError,
    sys::root::TreeLocation,
    transport::{
        TransportError,
        quic::{End, Link},
    },
};

/// Runs the source's end of one run. Every error is in the outcome.
pub fn send(
    source: impl Into<TreeLocation>,
    link: &LinkOptions,
    params: &RunParams,
    monitor: &Monitor,
) -> Outcome {
    send_each(source, link, params, monitor, true, &mut |_| ())
}

/// Runs the source's end. With `once`, ends after one run, else sends to peer after peer until told to stop. Calls
/// `on_run` with each outcome. Returns the last one, or an empty one if the end is stopped between two sessions.
pub fn send_each(
    source: impl Into<TreeLocation>,
    link: &LinkOptions,
    params: &RunParams,
    monitor: &Monitor,
    once: bool,
    on_run: &mut dyn FnMut(&Outcome),
) -> Outcome {
    let source = source.into();
    let end = End { side: Side::Source, bandwidth_limit: params.bandwidth_limit };
    let mut serve = |met: Result<Link, SessionError>, mut clock: Clock<'_>| {
        let (port, result) = match met.map(|link| SendSession::over(source.clone(), link)) {
            Ok(mut session) => {
                let result = session.run_by(&mut clock, params, true);
                (session.take_port(), result)
            }
            Err(error) => (None, Err(error)),
        };
        let outcome = clock.outcome(&params.run, result);
        on_run(&outcome);
        Served { port, outcome }
    };
    serve_each(link, end, &params.run, once, monitor, &mut serve)
}

/// Serves runs as the sink's end, in which a source may decide as much as `demands` lets it. With `once`, serves the
/// runs of one session, else session after session until told to stop. Calls `on_run` with each outcome. Returns the
/// last one, or an empty one if the end is stopped between two sessions.
pub fn receive(
    destination: impl Into<TreeLocation>,
    link: &LinkOptions,
    demands: &Demands,
    monitor: &Monitor,
    once: bool,
    on_run: &mut dyn FnMut(&Outcome),
) -> Outcome {
    let destination = destination.into();
    let end = End { side: Side::Sink, bandwidth_limit: None };
    let mut serve = |met: Result<Link, SessionError>, clock: Clock<'_>| match met {
        Ok(link) => {
            let mut session =
                SinkSession { destination: &destination, demands, monitor, on_run: &mut *on_run };
            session.serve(link, clock)
        }
        Err(error) => {
            let outcome = clock.outcome(&demands.run, Err(error));
            let outcome = outcome.with_no_snapshot(demands.snapshot.as_ref());
            on_run(&outcome);
            Served { port: None, outcome }
        }
    };
    serve_each(link, end, &demands.run, once, monitor, &mut serve)
}

/// Serves one session.
type Serve<'s, 'm> = dyn FnMut(Result<Link, SessionError>, Clock<'m>) -> Served + 's;

/// Serves a session, or, without `once`, one after the other until told to stop or none can begin.
fn serve_each<'m>(
    link: &LinkOptions,
    end: End,
    run: &str,
    once: bool,
    monitor: &'m Monitor,
    serve: &mut Serve<'_, 'm>,
) -> Outcome {
    let mut clock = Clock::start(monitor);
    clock.watch.inspect_limits();
    let mut port = match link.open_port(monitor) {
        Ok(port) => port,
        Err(error) => return clock.outcome(run, Err(error)),
    };
    loop {
        let met = link.connect(port, end, monitor);
        let is_stopped = matches!(met, Err(SessionError::Transport(TransportError::Canceled)));
        if is_stopped && !once {
            return Outcome::between_runs();
        }
        let is_over = once || met.is_err();
        let served = serve(met, clock);
        if is_over || monitor.cancelled() {
            return served.outcome;
        }
        port = served.port;
        monitor.reset();
        clock = Clock::start(monitor);
        clock.watch.inspect_limits();
    }
}

/// Returns the outcome of a run of this name that could not begin.
pub fn not_begun(run: &str, error: SessionError, monitor: &Monitor) -> Outcome {
    Clock::start(monitor).outcome(run, Err(error))
}

/// Runs both ends in one process, without a network.
pub fn sync(
    source: impl Into<TreeLocation>,
    destination: impl Into<TreeLocation>,
    params: &RunParams,
    monitor: &Monitor,
) -> Outcome {
    LocalSession::new(source, destination).run(params, monitor)
}

/// Restores a volume, or a path of one, from a snapshot.
pub fn restore(restore: &Restore<'_>, params: &RunParams, monitor: &Monitor) -> Outcome {
    let mut clock = Clock::start(monitor);
    let result = local::restore(restore, params, &mut clock.watch);
    clock.outcome(&params.run, result)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use contract::Report;

    use crate::{
        measure::report::Stopwatch,
        run::{receive, send},
        sink::open_destination::HeldDestination,
        transport::memory_link,
    };

    /// Runs both ends over queues in memory.
    fn run(from: &Path, to: &Path, params: &RunParams) -> (Report, Report) {
        let (source_peer, sink_peer) = memory_link::pair();
        let monitor = Monitor::default();
        std::thread::scope(|scope| {
            let source = scope.spawn(|| {
                send::run(&from.into(), &source_peer, params, &mut Stopwatch::start(&monitor)).unwrap()
            });
            let mut watch = Stopwatch::start(&monitor);
            let hello = receive::await_run(&sink_peer.control, &Demands::default()).unwrap();
            let held = &mut HeldDestination::default();
            let sink = receive::run(&to.into(), &sink_peer, hello, held, &mut watch, &|| 7).unwrap();
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
}
