//! The transport over QUIC. All asynchronous code of the engine is in this folder.

mod accept;
mod await_contact;
mod await_turn;
mod busy_queue;
mod byte_stream;
mod closing;
mod connection_config;
mod data_streams;
mod dial;
mod handshakes;
mod link;
mod link_errors;
mod listener;
mod open_endpoints;
mod port;
mod proven_peer;
mod pump;
mod run_queues;
mod service_port;
mod silent_peer;
mod sockets;
mod stream_socket;
mod tcp_waits_for_udp;
#[cfg(test)]
mod test_link;
mod udp_socket;

pub(crate) use await_contact::await_contact;
pub use byte_stream::ByteStream;
pub(crate) use dial::{Ways, dial, show_key};
pub(crate) use link::{Link, MetPeer};
pub(crate) use port::{End, Port};
pub use service_port::Asked;
pub(crate) use service_port::{MAX_VISITS, ServicePort, Visitor};
pub use sockets::{LinkMode, Sockets};

#[cfg(test)]
mod tests {
    use std::{net::UdpSocket, sync::Arc};

    use contract::{IdentityPair, Side};
    use quinn::crypto::rustls::QuicClientConfig;

    use super::*;
    use crate::{
        measure::monitor::Monitor,
        transport::{TransportError, quic::link_errors::connection_error, tls},
    };

    #[test]
    fn a_peer_of_another_version_is_not_taken_for_one_with_another_key() {
        let pair = IdentityPair::generate("job").unwrap();
        let (port, address) = test_link::listening(&pair.sink);
        let peer = Port::to_dial().unwrap();
        let mut crypto = tls::client(&pair.source).unwrap();
        crypto.alpn_protocols = vec![b"volferry/0".to_vec()];
        let crypto = QuicClientConfig::try_from(crypto).unwrap();
        let config = quinn::ClientConfig::new(Arc::new(crypto));
        let monitor = Monitor::default();
        let refused = std::thread::scope(|scope| {
            scope.spawn(|| port.accept(End { side: Side::Sink, bandwidth_limit: None }, &monitor).is_err());
            let dialled = peer.runtime.block_on(async {
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                let socket = open_endpoints::udp_socket(socket).unwrap();
                let endpoint = open_endpoints::over_udp(socket, None).unwrap();
                endpoint.connect_with(config, address, tls::SERVER_NAME).unwrap().await
            });
            monitor.cancel();
            connection_error(&dialled.unwrap_err())
        });
        assert!(matches!(refused, TransportError::OtherProtocol), "{refused}");
        assert!(refused.to_string().contains("volferry/14"));
    }
}
