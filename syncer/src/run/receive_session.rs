//! The sink's end of a session.

use contract::{Demands, Report};

use crate::{
    measure::monitor::Monitor,
    run::{
        outcome::{Clock, Outcome},
        receive,
        session_link::{AfterRun, EndedRun, SessionLink},
    },
    session_error::SessionError,
    sink::open_destination::HeldDestination,
    sys::root::TreeLocation,
    transport::{
        Peer, TransportError,
        quic::{Link, Port},
    },
    wire::{Hello, code},
};

/// A session that was served.
pub(crate) struct Served {
    /// The place at which the next peer is awaited.
    pub port: Option<Port>,
    /// The outcome of the last run.
    pub outcome: Outcome,
}

/// Serves the runs of one source.
pub(crate) struct SinkSession<'a> {
    pub destination: &'a TreeLocation,
    pub demands: &'a Demands,
    pub monitor: &'a Monitor,
    pub on_run: &'a mut dyn FnMut(&Outcome),
}

impl<'a> SinkSession<'a> {
    /// Serves runs, the first one with this `clock`, until the source closes the connection, it is lost, or this end is
    /// told to stop.
    pub(crate) fn serve(&mut self, link: Link, mut clock: Clock<'a>) -> Served {
        let mut link = SessionLink::new(link);
        let mut held = HeldDestination::default();
        let mut before: Option<Outcome> = None;
        loop {
            let peer = link.begin(before.is_none(), self.monitor);
            let hello = receive::await_run(&peer.control, self.demands);
            if let Some(last) = before.take_if(|_| is_between_runs(&hello)) {
                return Served { port: Some(link.close(code::DONE)), outcome: last };
            }
            if before.is_some() {
                self.monitor.reset();
                clock = clock.start_next();
            }
            clock.met(link.met(), before.is_none());
            let name = hello.as_ref().map_or(&self.demands.run, |hello| &hello.params.run).clone();
            let result = self.run(&link, &peer, hello, &mut held, &mut clock);
            let EndedRun { after, result } = link.end(&peer, result, true);
            let outcome = clock.outcome(&name, result).with_no_snapshot(self.demands.snapshot.as_ref());
            (self.on_run)(&outcome);
            link = match after {
                AfterRun::GoesOn(link) if !self.monitor.cancelled() => link,
                AfterRun::GoesOn(link) => return Served { port: Some(link.close(code::CANCELED)), outcome },
                AfterRun::Over(port) => return Served { port: Some(port), outcome },
            };
            before = Some(outcome);
        }
    }

    /// Runs once.
    fn run(
        &self,
        link: &SessionLink,
        peer: &Peer,
        hello: Result<Hello, SessionError>,
        held: &mut HeldDestination,
        clock: &mut Clock<'_>,
    ) -> Result<Report, SessionError> {
        let result = hello.and_then(|hello| {
            let wire = || link.bytes_on_wire();
            receive::run(self.destination, peer, hello, held, &mut clock.watch, &wire)
        });
        result.map_err(|error| error.or_stopped(self.monitor))
    }
}

/// Returns whether no run began because the source left, or this end was told to stop. Neither is a failure of a run.
fn is_between_runs(hello: &Result<Hello, SessionError>) -> bool {
    matches!(hello, Err(SessionError::Transport(TransportError::Lost(_) | TransportError::Canceled)))
}
