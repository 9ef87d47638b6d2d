//! The transport over QUIC. All asynchronous code of the engine is in this folder.

mod accept;
mod config;
mod connections;
mod data;
mod dial;
mod door;
mod further;
mod link;
#[cfg(test)]
mod linked;
mod pump;
mod socket;

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    sync::Arc,
    time::Duration,
};

use contract::{Identity, Side};
use quinn::{
    ConnectionError, Endpoint, EndpointConfig, Runtime as _, VarInt, crypto::rustls::QuicServerConfig,
};
use tokio::runtime::Runtime;

pub use dial::dial;
pub use link::Link;

use super::{TransportError, tls};
use crate::{
    cores::cores,
    wire::{Refusal, code},
};
use config::{MAX_PAYLOAD, enlarge_buffers};
use door::Door;
use socket::Socket;

/// The longest handshake. The dialling end gives up an attempt earlier.
const HANDSHAKE: Duration = Duration::from_secs(3);

/// First packets that wait for an answer, for example during a run, and bytes that follow them, for each and for all.
const MAX_WAITING: usize = 1024;
const WAITING_BYTES: u64 = 16 << 10;
const ALL_WAITING_BYTES: u64 = 1 << 20;

/// Which end of a run a connection is for.
#[derive(Debug, Clone, Copy)]
pub struct End {
    /// The source sends data, the sink receives it.
    pub side: Side,
    /// The most bytes that this end sends in a second, as UDP payload.
    pub bandwidth_limit: Option<u64>,
}

/// An open socket with its runtime, ready to listen or to dial.
pub struct Port {
    /// The listening side; `None` if nobody may dial in.
    door: Option<Arc<Door>>,
    runtime: Runtime,
    endpoint: Endpoint,
    socket: Arc<Socket>,
}

impl Port {
    /// Listens on `address`.
    pub fn listen(address: SocketAddr, identity: &Identity) -> Result<Self, TransportError> {
        let unusable = |error: io::Error| TransportError::Address {
            address: address.to_string(),
            error: error.to_string(),
        };
        let crypto = tls::server(identity).map_err(|error| identity_error(&error))?;
        let crypto =
            QuicServerConfig::try_from(crypto).map_err(|e| TransportError::Identity(e.to_string()))?;
        let mut config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
        let socket = UdpSocket::bind(address).map_err(unusable)?;
        config.max_incoming(MAX_WAITING);
        config.incoming_buffer_size(WAITING_BYTES).incoming_buffer_size_total(ALL_WAITING_BYTES);
        Self::open(socket, Some((config, identity.side()))).map_err(unusable)
    }

    /// Opens a socket. Peers may dial in if `server` has a configuration, with this end's side.
    fn open(socket: UdpSocket, server: Option<(quinn::ServerConfig, Side)>) -> io::Result<Self> {
        let threads = worker_threads();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
        enlarge_buffers(&socket);
        let mut config = EndpointConfig::default();
        let _ = config.max_udp_payload_size(MAX_PAYLOAD);
        let (endpoint, socket) = {
            let _inside = runtime.enter();
            let tokio = Arc::new(quinn::TokioRuntime);
            let socket = Socket::over(tokio.wrap_udp_socket(socket)?);
            let server = server.as_ref().map(|(server, _)| server.clone());
            (Endpoint::new_with_abstract_socket(config, server, socket.clone(), tokio)?, socket)
        };
        let local = endpoint.local_addr()?.ip();
        let door = server.map(|(server, side)| Door::new(endpoint.clone(), server, local, side));
        Ok(Self { door, runtime, endpoint, socket })
    }

    /// Returns the real address of the socket.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.endpoint.local_addr()
    }
}

/// Returns the number of worker threads: one for each possible connection and one for the socket, but no more than
/// cores.
fn worker_threads() -> usize {
    cores().clamp(2, contract::MAX_CONNECTIONS as usize + 1)
}

fn identity_error(error: &rustls::Error) -> TransportError {
    TransportError::Identity(error.to_string())
}

/// The alert of an end that shares no protocol with the other (RFC 7301).
const NO_APPLICATION_PROTOCOL: u64 = 0x100 + 120;

/// The code of an end that was told to stop, if its `Refuse` has not arrived.
const STOPPED: VarInt = VarInt::from_u32(code::CANCELED);

fn connection_error(error: &ConnectionError) -> TransportError {
    if matches!(error, ConnectionError::ApplicationClosed(close) if close.error_code == STOPPED) {
        return TransportError::Refused(Box::new(Refusal::canceled()));
    }
    let code = match error {
        ConnectionError::TransportError(inner) => inner.code.into(),
        ConnectionError::ConnectionClosed(close) => close.error_code.into(),
        _ => 0,
    };
    // TLS alerts are QUIC error codes 0x100 to 0x1ff (RFC 9001, section 4.8). After agreement on ALPN, only keys can be
    // refused.
    match code {
        NO_APPLICATION_PROTOCOL => TransportError::OtherProtocol,
        0x100..0x200 => TransportError::Identity(error.to_string()),
        _ => TransportError::Lost(error.to_string()),
    }
}

fn write_error(error: quinn::WriteError) -> TransportError {
    match error {
        quinn::WriteError::ConnectionLost(error) => connection_error(&error),
        error => TransportError::Lost(error.to_string()),
    }
}

fn read_error(error: quinn::ReadExactError) -> TransportError {
    match error {
        quinn::ReadExactError::ReadError(quinn::ReadError::ConnectionLost(error)) => connection_error(&error),
        error => TransportError::Lost(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use contract::{IdentityPair, Side};
    use quinn::crypto::rustls::QuicClientConfig;

    use super::*;
    use crate::monitor::Monitor;

    #[test]
    fn a_peer_of_another_version_is_not_taken_for_one_with_another_key() {
        let pair = IdentityPair::generate("job").unwrap();
        let port = Port::listen("127.0.0.1:0".parse().unwrap(), &pair.sink).unwrap();
        let address = port.local_addr().unwrap();
        let peer = Port::listen("127.0.0.1:0".parse().unwrap(), &pair.source).unwrap();
        let mut crypto = tls::client(&pair.source).unwrap();
        crypto.alpn_protocols = vec![b"volferry/0".to_vec()];
        let crypto = QuicClientConfig::try_from(crypto).unwrap();
        let config = quinn::ClientConfig::new(Arc::new(crypto));
        let monitor = Monitor::default();
        let refused = std::thread::scope(|scope| {
            scope.spawn(|| port.accept(End { side: Side::Sink, bandwidth_limit: None }, &monitor).is_err());
            let dialled = peer.runtime.block_on(async {
                peer.endpoint.connect_with(config, address, tls::SERVER_NAME).unwrap().await
            });
            monitor.cancel();
            connection_error(&dialled.unwrap_err())
        });
        assert!(matches!(refused, TransportError::OtherProtocol), "{refused}");
        assert!(refused.to_string().contains("volferry/5"));
    }
}
