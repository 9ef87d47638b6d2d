//! The way in which the two ends of a session meet.

use std::{
    net::{SocketAddr, UdpSocket},
    time::Duration,
};

use contract::Identity;

use crate::{
    monitor::Monitor,
    session::session_error::SessionError,
    transport::{
        TransportError,
        quic::{self, End, Port},
    },
};

/// Whether this end dials or listens.
#[derive(Debug)]
pub enum Endpoint {
    /// This end listens on the address; port 0 takes any free port.
    Listen(SocketAddr),
    /// This end listens on a socket whose address the peer knows already.
    Bound(UdpSocket),
    /// This end dials `host:port` until it is answered.
    Connect(String),
}

/// The way to reach the peer, and the keys that identify both ends.
#[derive(Debug)]
pub struct LinkOptions {
    /// Whether to listen or dial.
    pub endpoint: Endpoint,
    /// This end's key, and the peer's fingerprint.
    pub identity: Identity,
    /// The longest time to dial.
    pub connect_timeout: Duration,
}

impl LinkOptions {
    /// Opens a listening socket; `None` where this end dials.
    pub(crate) fn open_port(&self, monitor: &Monitor) -> Result<Option<Port>, SessionError> {
        let port = match &self.endpoint {
            Endpoint::Connect(_) => return Ok(None),
            Endpoint::Listen(address) => Port::listen(*address, &self.identity)?,
            Endpoint::Bound(socket) => {
                let socket = socket.try_clone().map_err(|error| TransportError::Lost(error.to_string()))?;
                return Ok(Some(Port::listen_on(socket, &self.identity)?));
            }
        };
        if let Ok(address) = port.local_addr() {
            monitor.listening(address);
        }
        Ok(Some(port))
    }

    /// Waits for the peer on `port`, or dials it.
    pub(crate) fn connect(
        &self,
        port: Option<Port>,
        end: End,
        monitor: &Monitor,
    ) -> Result<quic::Link, SessionError> {
        match (&self.endpoint, port) {
            (Endpoint::Connect(address), _) => {
                Ok(quic::dial(address, &self.identity, self.connect_timeout, end, monitor)?)
            }
            (Endpoint::Listen(_) | Endpoint::Bound(_), Some(port)) => Ok(port.accept(end, monitor)?),
            (Endpoint::Listen(_) | Endpoint::Bound(_), None) => {
                Err(TransportError::Lost("the socket was closed".into()).into())
            }
        }
    }
}
