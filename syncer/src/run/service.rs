//! A service: peers dial one port for different folders, and their sessions go on at the same time.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use contract::{BusyAnswer, Demands, Fingerprint, FolderAccess, OwnKey, RunParams, Side};

use crate::{
    measure::monitor::Monitor,
    run::{
        outcome::{Clock, Outcome},
        receive_session::SinkSession,
        send_session::SendSession,
        session_link::SessionLink,
    },
    session_error::SessionError,
    sys::root::TreeLocation,
    transport::{
        Guests,
        quic::{Asked, End, Link, MAX_VISITS, ServicePort, Sockets, Visitor},
    },
};

/// What the peers of a folder may take of a service.
#[derive(Debug, Clone, Copy)]
pub struct ServiceLimits {
    /// The most bytes that a peer sends in a second.
    pub bandwidth: Option<u64>,
    /// The longest time that a peer may send nothing while this end has nothing to do.
    pub silence: Duration,
}

/// The port of a service.
pub struct Service {
    port: ServicePort,
}

impl Service {
    /// The most peers that have or await a session at once.
    pub const MAX_VISITS: usize = MAX_VISITS;

    /// Listens on `sockets` with these keys, for the guests of a list that may change.
    ///
    /// # Errors
    /// If a key or a socket cannot be used.
    pub fn listen(sockets: Sockets, keys: &[OwnKey], guests: &Guests) -> Result<Self, SessionError> {
        Ok(Self { port: ServicePort::listen(sockets, keys, guests)? })
    }

    /// Waits for the next peer that has shown its key and said what it wants.
    ///
    /// # Errors
    /// If the monitor is told to stop, or the sockets were closed.
    pub fn next(&mut self, monitor: &Monitor) -> Result<Asked<ServiceVisit>, SessionError> {
        let Asked { visit: visitor, request } = self.port.next(monitor)?;
        Ok(Asked { visit: ServiceVisit { visitor }, request })
    }
}

/// A peer of a service, which waits for its session. Dropping it sends the peer away.
pub struct ServiceVisit {
    visitor: Visitor,
}

impl ServiceVisit {
    /// Returns the fingerprint of the peer's key.
    pub fn peer(&self) -> Fingerprint {
        self.visitor.peer
    }

    /// Returns the peer's address.
    pub fn address(&self) -> SocketAddr {
        self.visitor.address()
    }

    /// Returns whether the peer has left.
    pub fn is_gone(&self) -> bool {
        self.visitor.is_gone()
    }

    /// Tells the peer that it has to wait, and its place.
    pub fn send_answer(&mut self, answer: BusyAnswer) {
        self.visitor.send_answer(answer);
    }

    /// Sends the peer away; it dials again.
    pub fn send_away(self) {
        self.visitor.send_away();
    }

    /// Ends the visit with an error, which the peer reports.
    pub fn refuse(self, error: SessionError, monitor: &Monitor) -> Outcome {
        let mut clock = Clock::start_beside_others(monitor);
        let side = match self.visitor.access {
            FolderAccess::Read => Side::Source,
            FolderAccess::Write => Side::Sink,
        };
        let mut link = SessionLink::new(self.visitor.begin(End { side, bandwidth_limit: None }));
        clock.met(link.met(), true);
        let peer = link.begin(true, monitor);
        let refused = link.refuse(&peer, error);
        clock.outcome("", Err(refused))
    }

    /// Serves the runs of the peer onto a destination, as `receive` does.
    pub fn receive(
        self,
        destination: &TreeLocation,
        demands: &Demands,
        limits: ServiceLimits,
        monitor: &Arc<Monitor>,
        on_run: &mut dyn FnMut(&Outcome),
    ) {
        let mut clock = Clock::start_beside_others(monitor);
        clock.watch.inspect_limits();
        let end = End { side: Side::Sink, bandwidth_limit: limits.bandwidth };
        let link = self.begin(end, limits.silence, monitor);
        let mut session = SinkSession { destination, demands, monitor, on_run };
        let _ = session.serve(link, clock);
    }

    /// Sends a source to the peer in one run. Every error is in the outcome.
    pub fn send(
        self,
        source: TreeLocation,
        params: &RunParams,
        silence: Duration,
        monitor: &Arc<Monitor>,
    ) -> Outcome {
        let mut clock = Clock::start_beside_others(monitor);
        clock.watch.inspect_limits();
        let end = End { side: Side::Source, bandwidth_limit: params.bandwidth_limit };
        let mut session = SendSession::over(source, self.begin(end, silence, monitor));
        let result = session.run_by(&mut clock, params, true);
        clock.outcome(&params.run, result)
    }

    pub(crate) fn begin(self, end: End, silence: Duration, monitor: &Arc<Monitor>) -> Link {
        let mut link = self.visitor.begin(end);
        let monitor = Arc::clone(monitor);
        link.limit_silence(silence, move || monitor.snapshot());
        link
    }
}
