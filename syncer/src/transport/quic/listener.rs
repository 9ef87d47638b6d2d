//! The listening side of a socket. Peers that dial during another peer's run wait here for the next one.

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
};

use contract::Side;
use quinn::{Endpoint, Incoming, ServerConfig};

use super::config::transport_config;

/// The listening side of a socket.
pub(super) struct Listener {
    endpoint: Endpoint,
    server: ServerConfig,
    local: IpAddr,
    side: Side,
    /// Waiting peers, the longest wait first. quinn bounds their number.
    waiting: Mutex<VecDeque<Incoming>>,
}

impl Listener {
    pub(super) fn new(endpoint: Endpoint, server: ServerConfig, local: IpAddr, side: Side) -> Arc<Self> {
        Arc::new(Self { endpoint, server, local, side, waiting: Mutex::default() })
    }

    /// Returns the peer that has waited longest, or the next to dial; `None` once the socket is closed.
    pub(super) async fn next(&self) -> Option<Incoming> {
        let first = self.waiting().pop_front();
        match first {
            Some(incoming) => Some(incoming),
            None => self.endpoint.accept().await,
        }
    }

    /// Returns the next connection from `peer`, and lets all others wait.
    pub(super) async fn next_from(&self, peer: impl Fn() -> SocketAddr) -> Option<Incoming> {
        loop {
            let incoming = self.endpoint.accept().await?;
            if incoming.remote_address() == peer() {
                return Some(incoming);
            }
            self.waiting().push_back(incoming);
        }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, VecDeque<Incoming>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the configuration for a connection from `peer`, with the packet size of its path.
    pub(super) fn config_for(&self, peer: SocketAddr) -> Arc<ServerConfig> {
        let mut config = self.server.clone();
        config.transport_config(transport_config(self.local, peer, self.side));
        Arc::new(config)
    }

    /// Returns the number of connections, including failed ones that are kept a moment longer.
    pub(super) fn open_connections(&self) -> usize {
        self.endpoint.open_connections()
    }
}
