//! The listening side of a socket. quinn keeps the first packets of peers that dial during another peer's session.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
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
}

impl Listener {
    pub(super) fn new(endpoint: Endpoint, server: ServerConfig, local: IpAddr, side: Side) -> Arc<Self> {
        Arc::new(Self { endpoint, server, local, side })
    }

    /// Returns the peer that has waited longest, or the next to dial; `None` once the socket is closed.
    pub(super) async fn next(&self) -> Option<Incoming> {
        self.endpoint.accept().await
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
