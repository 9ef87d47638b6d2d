//! The transport over QUIC. All asynchronous code of the engine is in this folder.

mod accept;
mod await_contact;
mod closing;
mod config;
mod data_streams;
mod dial;
mod errors;
mod handshakes;
mod lanes;
mod link;
#[cfg(test)]
mod linked;
mod listener;
mod port;
mod pump;
mod socket;

pub(crate) use await_contact::await_contact;
pub(crate) use dial::dial;
pub(crate) use link::Link;
pub(crate) use port::{End, Port, bind};

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use contract::{IdentityPair, Side};
    use quinn::crypto::rustls::QuicClientConfig;

    use super::{errors::connection_error, *};
    use crate::{
        monitor::Monitor,
        transport::{TransportError, tls},
    };

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
        assert!(refused.to_string().contains("volferry/10"));
    }
}
