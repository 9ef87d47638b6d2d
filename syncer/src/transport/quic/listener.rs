//! The listening side of a port: UDP, TCP, and the command that started this end. quinn and the kernel keep the peers
//! that dial during another peer's session.

use std::{
    future, io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use contract::Side;
use parking_lot::Mutex;
use quinn::{Endpoint, Incoming, ServerConfig};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
};

use crate::transport::{
    quic::{
        byte_stream::ByteStream,
        connection_config::{stream_config, transport_config},
        open_endpoints::{over_stream, over_udp, udp_socket},
        sockets::Sockets,
    },
    tls::{Hosts, LinkUse},
};

/// The most TCP connections, of at most 0.5 MB each before the peer has shown its key. One more is closed at once.
pub(super) const MAX_STREAMS: usize = 64;

/// How long to wait when the system cannot accept a connection, for example without a free descriptor.
const PAUSE: Duration = Duration::from_millis(100);

/// The listening side of a port.
pub(super) struct Listener {
    udp: Option<Endpoint>,
    tcp: Option<TcpListener>,
    command: Mutex<Option<ByteStream>>,
    hosts: Hosts,
    /// For runs, and for the queue during a session.
    servers: [ServerConfig; 2],
    is_busy: AtomicBool,
    local: IpAddr,
    side: Side,
    places: Arc<Semaphore>,
    /// The most sessions at once, whose connections take no place of a peer that has not shown its key yet.
    pub(super) sessions: usize,
}

/// A peer that has not shown its key yet.
pub(super) enum Arrival {
    /// The first packet of a peer.
    Packet(Box<Incoming>),
    /// A TCP connection, with its place among all.
    Connection(TcpStream, SocketAddr, OwnedSemaphorePermit),
}

impl Listener {
    /// Listens, on the runtime that the caller is in.
    pub(super) fn new(
        sockets: Option<Sockets>,
        command: Option<ByteStream>,
        hosts: Hosts,
        servers: [ServerConfig; 2],
        side: Side,
        sessions: usize,
    ) -> io::Result<Arc<Self>> {
        let local = sockets.as_ref().map_or(Ipv4Addr::UNSPECIFIED.into(), |sockets| sockets.address().ip());
        let (udp, tcp) = sockets.map_or((None, None), |sockets| (sockets.udp, sockets.tcp));
        let udp = udp.map(|socket| over_udp(udp_socket(socket)?, Some(servers[0].clone()))).transpose()?;
        let listen = |listener: std::net::TcpListener| {
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        };
        Ok(Arc::new(Self {
            udp,
            tcp: tcp.map(listen).transpose()?,
            command: Mutex::new(command),
            hosts,
            servers,
            is_busy: AtomicBool::new(false),
            local,
            side,
            places: Arc::new(Semaphore::new(MAX_STREAMS + sessions)),
            sessions,
        }))
    }

    /// Returns the peer that has waited longest, or the next to dial; `None` once the socket is closed. Cancel-safe.
    pub(super) async fn next(&self) -> Option<Arrival> {
        tokio::select! {
            packet = self.next_packet() => packet.map(|packet| Arrival::Packet(Box::new(packet))),
            connection = self.next_connection() => Some(connection),
        }
    }

    /// Decides what peers are told that dial from now on.
    pub(super) fn open_for(&self, link_use: LinkUse) {
        self.is_busy.store(link_use == LinkUse::Queue, Relaxed);
    }

    /// Returns the jobs and their peers.
    pub(super) fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// Takes the stream of the command that started this end, if there is one.
    pub(super) fn command(&self) -> Option<ByteStream> {
        self.command.lock().take()
    }

    async fn next_packet(&self) -> Option<Incoming> {
        match &self.udp {
            Some(endpoint) => endpoint.accept().await,
            None => future::pending().await,
        }
    }

    async fn next_connection(&self) -> Arrival {
        let Some(listener) = &self.tcp else { return future::pending().await };
        loop {
            match listener.accept().await {
                Ok((connection, from)) => {
                    if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
                        return Arrival::Connection(connection, from, place);
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "a connection cannot be accepted");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Returns the configuration for a connection from `peer` over UDP, with the packet size of its path.
    pub(super) fn config_for(&self, peer: SocketAddr) -> Arc<ServerConfig> {
        self.config(|server| server.transport_config(transport_config(self.local, peer, self.side)))
    }

    /// Returns the configuration for a connection over a stream.
    pub(super) fn config_over_stream(&self) -> Arc<ServerConfig> {
        self.config(|server| server.transport_config(stream_config()))
    }

    /// Opens a stream for one peer, which dials in over it.
    pub(super) fn open(
        &self,
        stream: ByteStream,
        place: Option<OwnedSemaphorePermit>,
    ) -> io::Result<Endpoint> {
        over_stream(stream, place, Some(self.servers[0].clone()))
    }

    fn config(&self, set: impl FnOnce(&mut ServerConfig) -> &mut ServerConfig) -> Arc<ServerConfig> {
        let mut config = self.servers[usize::from(self.is_busy.load(Relaxed))].clone();
        set(&mut config);
        Arc::new(config)
    }

    /// Returns the number of connections over UDP, including failed ones that are kept a moment longer.
    pub(super) fn open_connections(&self) -> usize {
        self.udp.as_ref().map_or(0, Endpoint::open_connections)
    }
}
