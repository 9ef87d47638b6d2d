//! Dialling the peer until it answers.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs as _, UdpSocket},
    sync::Arc,
    time::{Duration, Instant},
};

use contract::{Identity, Side};
use quinn::crypto::rustls::QuicClientConfig;

use super::{
    End, HANDSHAKE, Link, Port, config::transport_config, connection_error, further::Role, identity_error,
};
use crate::{
    monitor::Monitor,
    transport::{
        Peer, TransportError,
        tls::{self, SERVER_NAME},
    },
    wire::code,
};

/// How long one attempt to connect may take; then a new socket tries again, because a packet that went to an address with nobody behind it
/// yet (a Service without endpoints) can leave a path that stays deaf.
const ATTEMPT: Duration = Duration::from_secs(2);

/// Dials `address` (`host:port`) until the peer answers or `timeout` is over.
pub fn dial(
    address: &str,
    identity: &Identity,
    timeout: Duration,
    end: End,
    monitor: &Monitor,
) -> Result<(Link, Peer), TransportError> {
    let crypto = tls::client(identity).map_err(|error| identity_error(&error))?;
    let crypto = QuicClientConfig::try_from(crypto).map_err(|e| TransportError::Identity(e.to_string()))?;
    let config = quinn::ClientConfig::new(Arc::new(crypto));
    let began = Instant::now();
    let deadline = began + timeout;
    loop {
        match attempt(address, &config, end.side, deadline, monitor) {
            Ok((port, connection, config)) => {
                return Ok(Link::start(port, connection, began, end, Role::Dialled(config), monitor));
            }
            Err(error @ TransportError::Lost(_)) if Instant::now() >= deadline => return Err(error),
            Err(TransportError::Lost(error)) => tracing::info!(address, error, "no answer, dialling again"),
            Err(error) => return Err(error),
        }
    }
}

fn attempt(
    address: &str,
    config: &quinn::ClientConfig,
    side: Side,
    deadline: Instant,
    monitor: &Monitor,
) -> Result<(Port, quinn::Connection, quinn::ClientConfig), TransportError> {
    let unusable =
        |error: io::Error| TransportError::Address { address: address.into(), error: error.to_string() };
    let mut resolved = address.to_socket_addrs().map_err(unusable)?;
    let peer = resolved.next().ok_or_else(|| unusable(io::ErrorKind::NotFound.into()))?;
    let any: SocketAddr = if peer.is_ipv4() { ([0; 4], 0).into() } else { ([0; 16], 0).into() };
    let socket = UdpSocket::bind(any).map_err(unusable)?;
    let mut config = config.clone();
    config.transport_config(transport_config(any.ip(), peer, side));
    let port = Port::open(socket, None).map_err(unusable)?;
    let patience = ATTEMPT.min(deadline.saturating_duration_since(Instant::now()));
    let connected = port.runtime.block_on(async {
        let connecting = port.endpoint.connect_with(config.clone(), peer, SERVER_NAME);
        let connecting = connecting.map_err(|error| TransportError::Lost(error.to_string()))?;
        tokio::select! {
            connected = shake_in_time(connecting, patience) => {
                connected.unwrap_or_else(|| Err(TransportError::Lost(format!("{address} does not answer"))))
            }
            () = monitor.until_cancelled() => Err(TransportError::Canceled),
        }
    });
    connected.map(|connection| (port, connection, config))
}

/// Waits `patience` for an answer and, where there was one, for the handshake's end. An attempt that was answered is not given up for
/// another: the peer may take it for the run's connection already.
async fn shake_in_time(
    mut connecting: quinn::Connecting,
    patience: Duration,
) -> Option<Result<quinn::Connection, TransportError>> {
    let answered = tokio::time::timeout(patience, connecting.handshake_data()).await.ok()?;
    if let Err(error) = answered {
        return Some(Err(connection_error(&error)));
    }
    let connected = tokio::time::timeout(HANDSHAKE, connecting).await.ok()?;
    Some(connected.map_err(|error| connection_error(&error)).and_then(of_one_job))
}

/// Gives a peer of another job up before it is sent a byte.
fn of_one_job(connection: quinn::Connection) -> Result<quinn::Connection, TransportError> {
    match tls::is_of_one_job(&connection) {
        true => Ok(connection),
        false => {
            connection.close(code::FAILED.into(), b"of another job");
            Err(TransportError::OtherJob)
        }
    }
}
