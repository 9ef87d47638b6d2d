//! The way in which the two ends of a session meet.

use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use contract::{FolderRequest, Identity};

use crate::{
    measure::monitor::Monitor,
    session_error::SessionError,
    transport::{
        TransportError,
        quic::{self, ByteStream, End, LinkMode, Port, Sockets, Ways},
    },
};

/// The time between two attempts to show a key.
const SHOWN_AGAIN: Duration = Duration::from_millis(250);

/// Whether this end dials or listens.
#[derive(Debug)]
pub enum Endpoint {
    /// This end listens on the address; port 0 takes any free port.
    Listen(SocketAddr),
    /// This end dials `host:port` until it is answered.
    Connect(String),
    /// This end was started by the peer, or by a program of it, and listens on sockets whose address the peer knows
    /// already, and on the stream of the command.
    Started {
        /// The sockets.
        sockets: Option<Sockets>,
        /// The stream.
        command: Option<ByteStream>,
    },
    /// This end dials a service at `host:port`, and asks it for a folder.
    Ask {
        /// The address.
        address: String,
        /// What is asked.
        request: Box<FolderRequest>,
    },
    /// This end started the peer by a command, and dials its address, if it has one, or goes over the command.
    Starts {
        /// The stream of the command.
        command: ByteStream,
        /// The peer's `ip:port`.
        address: Option<String>,
    },
}

/// The way to reach the peer, and the keys that identify both ends.
#[derive(Debug)]
pub struct LinkOptions {
    /// Whether to listen or dial.
    pub endpoint: Endpoint,
    /// The carriers to offer or to try.
    pub mode: LinkMode,
    /// This end's key, and the peer's fingerprint.
    pub identity: Identity,
    /// Identities for further peers, each of a job of its own, of an end that listens.
    pub others: Vec<Identity>,
    /// The longest time to dial.
    pub connect_timeout: Duration,
}

impl LinkOptions {
    /// Opens a listening socket; `None` where this end dials.
    pub(crate) fn open_port(&self, monitor: &Monitor) -> Result<Option<Port>, SessionError> {
        match &self.endpoint {
            Endpoint::Connect(_) | Endpoint::Ask { .. } | Endpoint::Starts { .. } => Ok(None),
            Endpoint::Listen(address) => {
                let sockets = Sockets::bind(*address, self.mode)?;
                let address = sockets.address();
                let port = Port::listen_on(Some(sockets), None, &self.identity, &self.others)?;
                monitor.listening(address);
                Ok(Some(port))
            }
            Endpoint::Started { sockets, command } => {
                let sockets =
                    sockets.as_ref().map(Sockets::try_clone).transpose().map_err(|error| lost(&error))?;
                let command = command.as_ref().map(ByteStream::try_clone).transpose();
                let command = command.map_err(|error| lost(&error))?;
                Ok(Some(Port::listen_on(sockets, command, &self.identity, &self.others)?))
            }
        }
    }

    /// Waits for the peer on `port`, or dials it.
    pub(crate) fn connect(
        &self,
        port: Option<Port>,
        end: End,
        monitor: &Monitor,
    ) -> Result<quic::Link, SessionError> {
        let ways = match (&self.endpoint, port) {
            (Endpoint::Connect(address), _) => Ways::to(address, self.mode),
            (Endpoint::Ask { address, request }, _) => {
                let request = serde_json::to_vec(request).map_err(|error| lost(&error.into()))?;
                Ways { request: Some(request), ..Ways::to(address, self.mode) }
            }
            (Endpoint::Starts { command, address }, _) => {
                let command = command.try_clone().map_err(|error| lost(&error))?;
                let address = address.clone();
                Ways { address, mode: self.mode, command: Some(command), request: None }
            }
            (Endpoint::Listen(_) | Endpoint::Started { .. }, Some(port)) => {
                return Ok(port.accept(end, monitor)?);
            }
            (Endpoint::Listen(_) | Endpoint::Started { .. }, None) => {
                return Err(TransportError::Lost("the socket was closed".into()).into());
            }
        };
        Ok(quic::dial(ways, &self.identity, self.connect_timeout, end, monitor)?)
    }
}

/// Shows the service at `host:port` a key, and returns once the service has accepted it. A service that was just told
/// of the key may take a moment to know it, so a refused key is shown again until `timeout` is over.
///
/// # Errors
/// If the service cannot be reached, or refuses the key.
pub fn show_key(
    address: &str,
    identity: &Identity,
    timeout: Duration,
    monitor: &Monitor,
) -> Result<(), SessionError> {
    let began = Instant::now();
    loop {
        match quic::show_key(Ways::to(address, LinkMode::Auto), identity, timeout, monitor) {
            Err(TransportError::NotAccepted(_)) if began.elapsed() < timeout => {
                monitor.pause(SHOWN_AGAIN).map_err(|_| TransportError::Canceled)?;
            }
            shown => return Ok(shown?),
        }
    }
}

fn lost(error: &io::Error) -> TransportError {
    TransportError::Lost(error.to_string())
}
