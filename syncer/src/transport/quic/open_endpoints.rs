//! Opens endpoints of quinn over what carries their packets: a UDP socket, or a stream of bytes.

use std::{io, net::UdpSocket, sync::Arc};

use quinn::{AsyncUdpSocket, Endpoint, EndpointConfig, Runtime as _, ServerConfig, TokioRuntime};
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    transport::quic::{
        byte_stream::ByteStream,
        connection_config::{MAX_PAYLOAD, enlarge_buffers},
        stream_socket::StreamSocket,
        udp_socket::Socket,
    },
    wire::packets::MAX_PACKET_BYTES,
};

/// Opens an endpoint over a UDP socket, on the runtime that the caller is in. Peers may dial in if `server` is given.
pub(super) fn over_udp(socket: Arc<Socket>, server: Option<ServerConfig>) -> io::Result<Endpoint> {
    open(MAX_PAYLOAD, server, socket)
}

/// Prepares a UDP socket for an endpoint, on the runtime that the caller is in.
pub(super) fn udp_socket(socket: UdpSocket) -> io::Result<Arc<Socket>> {
    enlarge_buffers(&socket);
    Ok(Socket::over(TokioRuntime.wrap_udp_socket(socket)?))
}

/// Opens an endpoint over a stream, on the runtime that the caller is in. One peer may dial in if `server` is given.
pub(super) fn over_stream(
    stream: ByteStream,
    place: Option<OwnedSemaphorePermit>,
    server: Option<ServerConfig>,
) -> io::Result<Endpoint> {
    let server = server.map(|mut server| {
        server.max_incoming(1);
        server
    });
    open(MAX_PACKET_BYTES as u16, server, StreamSocket::over(stream, place)?)
}

fn open(payload: u16, server: Option<ServerConfig>, socket: Arc<dyn AsyncUdpSocket>) -> io::Result<Endpoint> {
    let mut config = EndpointConfig::default();
    let _ = config.max_udp_payload_size(payload);
    Endpoint::new_with_abstract_socket(config, server, socket, Arc::new(TokioRuntime))
}
