//! The entry points of all runs. A single run is a session of one run.

use contract::{Demands, RunParams, Side};

use crate::{
    monitor::Monitor,
    root::TreeLocation,
    session::{
        local::stored_tree::Restore,
        run::{
            link_options::LinkOptions,
            local_session::LocalSession,
            outcome::{Clock, Outcome},
            sink_session::SinkSession,
            source_session::SendSession,
        },
        session_error::SessionError,
    },
    transport::{TransportError, quic::End},
};

/// Runs the source's end of one run. Every error is in the outcome.
pub fn send(
    source: impl Into<TreeLocation>,
    link: &LinkOptions,
    params: &RunParams,
    monitor: &Monitor,
) -> Outcome {
    let mut clock = Clock::start(monitor);
    clock.watch.look_at_limits();
    let result = SendSession::connect(source, link, params.bandwidth_limit, monitor)
        .and_then(|mut session| session.run_by(&mut clock, params, true));
    clock.outcome(&params.run, result)
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
    let clock = Clock::start(monitor);
    let mut port = match link.open_port(monitor) {
        Ok(port) => port,
        Err(error) => return clock.outcome(&demands.run, Err(error)),
    };
    loop {
        let mut clock = Clock::start(monitor);
        clock.watch.look_at_limits();
        let end = End { side: Side::Sink, bandwidth_limit: None };
        let link = match link.connect(port, end, monitor) {
            Ok(link) => link,
            Err(SessionError::Transport(TransportError::Canceled)) if !once => {
                return Outcome::between_runs();
            }
            Err(error) => {
                let outcome = clock.outcome(&demands.run, Err(error));
                let outcome = outcome.with_no_snapshot(demands.snapshot.as_ref());
                on_run(&outcome);
                return outcome;
            }
        };
        let mut session = SinkSession { destination: &destination, demands, monitor, on_run: &mut *on_run };
        let (back, outcome) = session.serve(link, clock);
        if once || monitor.cancelled() {
            return outcome;
        }
        port = Some(back);
        monitor.reset();
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
    let result = restore.run(params, &mut clock.watch);
    clock.outcome(&params.run, result)
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use contract::Report;

    use crate::{
        report::Stopwatch,
        session::{run::network, sink::open::HeldDestination, source::serve},
        transport::memory,
    };

    /// Runs both ends over queues in memory.
    fn run(from: &Path, to: &Path, params: &RunParams) -> (Report, Report) {
        let (source_peer, sink_peer) = memory::pair();
        let monitor = Monitor::default();
        std::thread::scope(|scope| {
            let source = scope.spawn(|| {
                serve::run(&from.into(), &source_peer, params, &mut Stopwatch::start(&monitor)).unwrap()
            });
            let mut watch = Stopwatch::start(&monitor);
            let hello = network::await_run(&sink_peer.control, &Demands::default()).unwrap();
            let held = &mut HeldDestination::default();
            let sink = network::run(&to.into(), &sink_peer, hello, held, &mut watch, &|| 7).unwrap();
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
