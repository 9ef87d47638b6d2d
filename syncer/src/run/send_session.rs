//! The source's end of a session.

use contract::{Report, RunParams, Side, Work};

use crate::{
    measure::monitor::Monitor,
    run::{
        link_options::LinkOptions,
        outcome::{Clock, Outcome},
        send,
        send_snapshot::send_snapshot,
        session_link::{AfterRun, EndedRun, SessionLink},
    },
    session_error::SessionError,
    sys::root::TreeLocation,
    transport::{
        TransportError,
        quic::{End, Link, Port},
    },
    wire::code,
};

/// A link from a source to a sink, over which any number of runs follow one another. The sink keeps its destination
/// locked until the link is closed.
///
/// A run that fails or is canceled does not end the session. A lost connection does, and so does a peer that breaks the
/// protocol.
pub struct SendSession {
    source: TreeLocation,
    /// `None` once the session is over.
    link: Option<SessionLink>,
    /// Whether no run has begun.
    is_new: bool,
    /// The place of the link, once the session is over.
    port: Option<Port>,
}

impl SendSession {
    /// Connects `source` to a sink. All runs share a limit on their bandwidth, in bytes per second as UDP payload.
    ///
    /// # Errors
    /// If the address cannot be used, the peer does not answer in time or has another key, or the `monitor` is told to
    /// stop.
    pub fn connect(
        source: impl Into<TreeLocation>,
        link: &LinkOptions,
        bandwidth_limit: Option<u64>,
        monitor: &Monitor,
    ) -> Result<Self, SessionError> {
        let end = End { side: Side::Source, bandwidth_limit };
        let link = link.connect(link.open_port(monitor)?, end, monitor)?;
        Ok(Self::over(source.into(), link))
    }

    /// Takes the link to a sink that asked for `source`.
    pub(crate) fn over(source: TreeLocation, link: Link) -> Self {
        Self { source, link: Some(SessionLink::new(link)), is_new: true, port: None }
    }

    /// Runs once. Every error is in the outcome. The `monitor` cancels this run only.
    pub fn run(&mut self, params: &RunParams, monitor: &Monitor) -> Outcome {
        let mut clock = Clock::start(monitor);
        clock.watch.inspect_limits();
        let result = self.run_by(&mut clock, params, false);
        clock.outcome(&params.run, result)
    }

    /// Takes the place of the link of a session that is over, at which an end that listens awaits the next peer.
    pub(crate) fn take_port(&mut self) -> Option<Port> {
        self.port.take()
    }

    /// Returns whether no further run can begin.
    pub fn is_over(&self) -> bool {
        self.link.is_none()
    }

    /// Runs with this clock, for the last time if `is_last`.
    pub(crate) fn run_by(
        &mut self,
        clock: &mut Clock<'_>,
        params: &RunParams,
        is_last: bool,
    ) -> Result<Report, SessionError> {
        let over = || TransportError::Lost("the session is over".into());
        let mut link = self.link.take().ok_or_else(over)?;
        let is_first = std::mem::take(&mut self.is_new);
        clock.met(link.met(), is_first);
        let monitor = clock.watch.monitor();
        let peer = link.begin(is_first, monitor);
        if !is_last {
            peer.is_followed();
        }
        let result = match &params.source_snapshot {
            Some(which) => send_snapshot(&self.source, which, &peer, params, &mut clock.watch),
            None => send::run(&self.source, &peer, params, &mut clock.watch),
        };
        let result = result.map_err(|error| error.or_stopped(monitor));
        let bytes_on_wire = link.bytes_on_wire();
        clock.watch.did(Work { bytes_on_wire, ..clock.watch.work() });
        let EndedRun { after, result } = link.end(&peer, result, false);
        match after {
            AfterRun::GoesOn(link) => self.link = Some(link),
            AfterRun::Over(port) => self.port = Some(port),
        }
        result
    }
}

impl std::fmt::Debug for SendSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { source, link, is_new, port: _ } = self;
        let link = link.as_ref().map(SessionLink::met);
        f.debug_struct("SendSession")
            .field("source", source)
            .field("link", &link)
            .field("is_new", is_new)
            .finish()
    }
}

/// Tells the sink that no run follows.
impl Drop for SendSession {
    fn drop(&mut self) {
        if let Some(link) = self.link.take() {
            let _port = link.close(code::DONE);
        }
    }
}
