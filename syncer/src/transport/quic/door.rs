//! Where peers come in. Who comes while a run is under way, and is no part of it, waits here for the next.

use std::{
    collections::VecDeque,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
};

use contract::Side;
use quinn::{Endpoint, Incoming, ServerConfig};

use super::config::transport_config;

/// The listening side of a socket.
pub(super) struct Door {
    endpoint: Endpoint,
    server: ServerConfig,
    local: IpAddr,
    side: Side,
    /// The longest wait first. No more than quinn lets come: these count as its own.
    waiting: Mutex<VecDeque<Incoming>>,
}

impl Door {
    pub(super) fn new(endpoint: Endpoint, server: ServerConfig, local: IpAddr, side: Side) -> Arc<Self> {
        Arc::new(Self { endpoint, server, local, side, waiting: Mutex::default() })
    }

    /// Who has waited the longest, or comes next; `None` once the socket is closed.
    pub(super) async fn next(&self) -> Option<Incoming> {
        let first = self.waiting().pop_front();
        match first {
            Some(incoming) => Some(incoming),
            None => self.endpoint.accept().await,
        }
    }

    /// Who comes next from `peer`, while all others come to wait.
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

    /// How a connection from `peer` is accepted: with what the path to it takes.
    pub(super) fn config_for(&self, peer: SocketAddr) -> Arc<ServerConfig> {
        let mut config = self.server.clone();
        config.transport_config(transport_config(self.local, peer, self.side));
        Arc::new(config)
    }

    /// How many connections there are, with those that have failed and are kept a moment longer.
    pub(super) fn open_connections(&self) -> usize {
        self.endpoint.open_connections()
    }
}
