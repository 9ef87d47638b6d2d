//! The socket that connections are made on, and the runtime that drives it.

use std::{
    io,
    net::{SocketAddr, UdpSocket},
    sync::{Arc, PoisonError},
    time::Duration,
};

use contract::{Identity, Side};
use quinn::{Endpoint, EndpointConfig, Runtime as _, crypto::rustls::QuicServerConfig};
use tokio::runtime::Runtime;

use super::{
    config::{MAX_PAYLOAD, data_streams, enlarge_buffers},
    errors::identity_error,
    listener::Listener,
    socket::Socket,
};
use crate::transport::{Threads, TransportError, tls};

/// The longest handshake. The dialling end gives up an attempt earlier.
pub(super) const HANDSHAKE: Duration = Duration::from_secs(3);

/// First packets that wait for an answer, for example during a run, and bytes that follow them, for each and for all.
const MAX_WAITING: usize = 1024;
const WAITING_BYTES: u64 = 16 << 10;
const ALL_WAITING_BYTES: u64 = 1 << 20;

/// The end of a run that a connection serves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End {
    /// The source sends data, the sink receives it.
    pub side: Side,
    /// The largest number of bytes that this end sends in a second, as UDP payload.
    pub bandwidth_limit: Option<u64>,
}

/// An open socket with its runtime, ready to listen or to dial.
pub(crate) struct Port {
    /// The listening side; `None` if no end may dial in.
    pub(super) door: Option<Arc<Listener>>,
    pub(super) runtime: Runtime,
    /// The numbers of the runtime's threads.
    pub(super) threads: Threads,
    pub(super) endpoint: Endpoint,
    pub(super) socket: Arc<Socket>,
}

impl Port {
    /// Listens on `address`.
    pub(crate) fn listen(address: SocketAddr, identity: &Identity) -> Result<Self, TransportError> {
        Self::listen_on(bind(address)?, identity)
    }

    /// Listens on a socket, with the packets that have come to it since it was bound.
    pub(crate) fn listen_on(socket: UdpSocket, identity: &Identity) -> Result<Self, TransportError> {
        let crypto = tls::server(identity).map_err(|error| identity_error(&error))?;
        let crypto =
            QuicServerConfig::try_from(crypto).map_err(|e| TransportError::Identity(e.to_string()))?;
        let mut config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
        config.max_incoming(MAX_WAITING);
        config.incoming_buffer_size(WAITING_BYTES).incoming_buffer_size_total(ALL_WAITING_BYTES);
        let address = socket.local_addr().map(|address| address.to_string()).unwrap_or_default();
        Self::open(socket, Some((config, identity.side()))).map_err(|error| unusable(address, &error))
    }

    /// Opens a socket. Peers may dial in if `server` has a configuration, with this end's side.
    pub(super) fn open(socket: UdpSocket, server: Option<(quinn::ServerConfig, Side)>) -> io::Result<Self> {
        let threads = Threads::default();
        let known = Arc::clone(&threads);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(worker_threads())
            .on_thread_start(move || {
                let number = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
                known.lock().unwrap_or_else(PoisonError::into_inner).push(number);
            })
            .enable_all()
            .build()?;
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
        let door = server.map(|(server, side)| Listener::new(endpoint.clone(), server, local, side));
        Ok(Self { door, runtime, threads, endpoint, socket })
    }

    /// Returns the real address of the socket.
    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.endpoint.local_addr()
    }
}

/// Binds a socket to `address`. Packets wait in it until a port listens on it.
pub(crate) fn bind(address: SocketAddr) -> Result<UdpSocket, TransportError> {
    UdpSocket::bind(address).map_err(|error| unusable(address.to_string(), &error))
}

fn unusable(address: String, error: &io::Error) -> TransportError {
    TransportError::Address { address, error: error.to_string() }
}

/// Returns the number of worker threads: one for each data stream, and at least one for the connection and one for the
/// socket.
fn worker_threads() -> usize {
    data_streams().max(2)
}
