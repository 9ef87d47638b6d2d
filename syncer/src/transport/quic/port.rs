//! The place that connections are made at, and the runtime that drives them.

use std::{io, sync::Arc};

use contract::{Identity, Side};
use quinn::{ServerConfig, crypto::rustls::QuicServerConfig};
use tokio::runtime::Runtime;

use crate::transport::{
    Threads, TransportError,
    quic::{
        busy_queue::PeerQueue, byte_stream::ByteStream, connection_config::data_streams,
        link_errors::identity_error, listener::Listener, sockets::Sockets,
    },
    tls::{self, Hosts, LinkUse},
};

/// First packets that wait for an answer, for example during a run, and bytes that follow them, for each and for all.
const MAX_WAITING: usize = 1024;
const WAITING_BYTES: u64 = 16 << 10;
const ALL_WAITING_BYTES: u64 = 1 << 20;

/// The end of a run that a connection serves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End {
    /// The source sends data, the sink receives it.
    pub side: Side,
    /// The largest number of bytes in a second that a source sends, as QUIC packets, or that a sink takes.
    pub bandwidth_limit: Option<u64>,
}

/// A runtime, with the sockets of an end that listens.
pub(crate) struct Port {
    /// The peers that dial; `None` if no end may, or during a session.
    pub(super) queue: Option<PeerQueue>,
    pub(super) runtime: Arc<Runtime>,
    /// The numbers of the runtime's threads.
    pub(super) threads: Threads,
}

impl Port {
    /// Starts the runtime of an end that dials.
    pub(super) fn to_dial() -> io::Result<Self> {
        let threads = Threads::default();
        let known = Arc::clone(&threads);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(worker_threads())
            .on_thread_start(move || {
                let number = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
                known.lock().push(number);
            })
            .enable_all()
            .build()?;
        Ok(Self { queue: None, runtime: Arc::new(runtime), threads })
    }

    /// Listens on sockets, with what has come to them since they were bound, and on the stream of the command that
    /// started this end. The `others` are identities for further peers.
    pub(crate) fn listen_on(
        sockets: Option<Sockets>,
        command: Option<ByteStream>,
        identity: &Identity,
        others: &[Identity],
    ) -> Result<Self, TransportError> {
        let hosts = Hosts::of_identities([identity].into_iter().chain(others))
            .map_err(|error| identity_error(&error))?;
        let configs = [server_config(&hosts, LinkUse::Runs)?, server_config(&hosts, LinkUse::Queue)?];
        let address = sockets.as_ref().map(|sockets| sockets.address().to_string()).unwrap_or_default();
        let listen = || {
            let port = Self::to_dial()?;
            let _inside = port.runtime.enter();
            let door = Listener::new(sockets, command, hosts, configs, identity.side(), 0)?;
            let queue = Some(PeerQueue::new(door));
            Ok(Self { queue, threads: Arc::clone(&port.threads), runtime: port.runtime })
        };
        listen().map_err(|error: io::Error| TransportError::Address { address, error: error.to_string() })
    }

    /// Returns the place of one of several connections, which share the runtime. Its threads are not named, because
    /// their time is that of all connections.
    pub(super) fn of_connection(&self) -> Self {
        Self { queue: None, runtime: Arc::clone(&self.runtime), threads: Threads::default() }
    }

    #[cfg(test)]
    pub(super) fn door(&self) -> Option<Arc<Listener>> {
        self.queue.as_ref().map(PeerQueue::door)
    }
}

pub(super) fn server_config(hosts: &Hosts, link_use: LinkUse) -> Result<ServerConfig, TransportError> {
    let crypto = tls::server(hosts, link_use).map_err(|error| identity_error(&error))?;
    let crypto = QuicServerConfig::try_from(crypto).map_err(|e| TransportError::Identity(e.to_string()))?;
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    config.max_incoming(MAX_WAITING);
    config.incoming_buffer_size(WAITING_BYTES).incoming_buffer_size_total(ALL_WAITING_BYTES);
    Ok(config)
}

/// Returns the number of worker threads: one for each data stream, and at least one for the connection and one for the
/// socket.
fn worker_threads() -> usize {
    data_streams().max(2)
}
