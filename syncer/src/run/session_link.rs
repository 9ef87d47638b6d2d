//! The link of a session: runs begin and end on it.

use crate::{
    measure::monitor::Monitor,
    session_error::SessionError,
    transport::{
        Peer, TransportError,
        quic::{self, MetPeer, Port},
    },
    wire::{Message, code},
};

/// A link to the peer of a session.
pub(crate) struct SessionLink {
    link: quic::Link,
    /// The bytes that had crossed when the present run began.
    wire_before: u64,
}

/// A run that has ended.
pub(crate) struct EndedRun<T> {
    pub after: AfterRun,
    pub result: Result<T, SessionError>,
}

/// The state of a session after a run.
pub(crate) enum AfterRun {
    /// Another run may begin.
    GoesOn(SessionLink),
    /// The connection is closed.
    Over(Port),
}

impl SessionLink {
    pub(crate) fn new(link: quic::Link) -> Self {
        Self { link, wire_before: 0 }
    }

    /// Begins the next run, which the `monitor` may cancel.
    pub(crate) fn begin(&mut self, is_first: bool, monitor: &Monitor) -> Peer {
        // The bytes of the handshake belong to the first run.
        self.wire_before = if is_first { 0 } else { self.link.bytes_on_wire() };
        self.link.next(monitor)
    }

    /// Returns the bytes that crossed in the present run, as QUIC packets.
    pub(crate) fn bytes_on_wire(&self) -> u64 {
        self.link.bytes_on_wire() - self.wire_before
    }

    /// Describes the link and the peer.
    pub(crate) fn met(&self) -> MetPeer {
        self.link.met()
    }

    /// Ends a run, and tells the peer if it failed here. Closes the connection after the last run, and where the
    /// session cannot go on; an end that sent the last message `waits` for the peer to close. If the peer's last
    /// message is the cause of the error, returns that instead.
    pub(crate) fn end<T>(self, peer: &Peer, result: Result<T, SessionError>, waits: bool) -> EndedRun<T> {
        if goes_on(peer, &result) {
            return EndedRun { after: AfterRun::GoesOn(self), result };
        }
        let cause = match &result {
            Err(SessionError::Transport(error)) if !matches!(error, TransportError::Canceled) => {
                peer.control.last_word()
            }
            _ => None,
        };
        let after = AfterRun::Over(self.finish(peer, &result, waits));
        EndedRun { after, result: result.map_err(|error| error.or_cause(cause)) }
    }

    /// Tells the peer why no run begins, and closes the connection once it has heard that.
    pub(crate) fn refuse(self, peer: &Peer, error: SessionError) -> SessionError {
        let told = peer.control.send(&Message::Refuse(error.refusal()));
        let _port = self.link.close(told.is_ok().then_some(&peer.control), code::FAILED);
        error
    }

    /// Closes the connection between two runs.
    pub(crate) fn close(self, code: u32) -> Port {
        self.link.close(None, code)
    }

    /// Closes the connection, after telling the peer why if this end failed.
    fn finish<T>(self, peer: &Peer, result: &Result<T, SessionError>, waits: bool) -> Port {
        let (link, control) = (self.link, &peer.control);
        match result {
            Ok(_) => link.close(waits.then_some(control), code::DONE),
            // The transport tells the peer, and waits until the connection is closed.
            Err(SessionError::Transport(TransportError::Canceled)) => {
                link.close(Some(control), code::CANCELED)
            }
            Err(SessionError::Transport(_)) => link.close(None, code::FAILED),
            Err(error) => {
                let told = control.send(&Message::Refuse(error.refusal()));
                link.close(told.is_ok().then_some(control), code::FAILED)
            }
        }
    }
}

/// Returns whether another run may follow one that ended with this result. Tells the peer of a failure here.
fn goes_on<T>(peer: &Peer, result: &Result<T, SessionError>) -> bool {
    match result {
        _ if peer.is_last() => false,
        Ok(_) | Err(SessionError::Transport(TransportError::Refused(_))) => true,
        Err(SessionError::Transport(error)) if !matches!(error, TransportError::Canceled) => false,
        Err(error) => peer.control.send(&Message::Refuse(error.refusal())).is_ok(),
    }
}
