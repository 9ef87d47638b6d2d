//! Dials the peer until it answers.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs as _, UdpSocket},
    sync::Arc,
    time::{Duration, Instant},
};

use contract::{Identity, Side};
use quinn::crypto::rustls::QuicClientConfig;

use super::{
    config::transport_config,
    errors::{connection_error, identity_error},
    link::Link,
    port::{End, HANDSHAKE, Port},
    pump::LinkOrigin,
};
use crate::{
    monitor::Monitor,
    transport::{
        TransportError,
        tls::{self, SERVER_NAME},
    },
    wire::code,
};

/// How long the first attempt waits for any packet, and how long later ones do. Each has its own socket: a packet to an
/// address without a peer yet (a Service without endpoints) leaves a path that never works.
const FIRST_ATTEMPT: Duration = Duration::from_millis(100);
const LONGEST_ATTEMPT: Duration = Duration::from_secs(2);

/// Dials `address` (`host:port`) until the peer answers or `timeout` is over.
pub(crate) fn dial(
    address: &str,
    identity: &Identity,
    timeout: Duration,
    end: End,
    monitor: &Monitor,
) -> Result<Link, TransportError> {
    let crypto = tls::client(identity).map_err(|error| identity_error(&error))?;
    let crypto = QuicClientConfig::try_from(crypto).map_err(|e| TransportError::Identity(e.to_string()))?;
    let config = quinn::ClientConfig::new(Arc::new(crypto));
    let began = Instant::now();
    let deadline = began + timeout;
    let mut patience = FIRST_ATTEMPT;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match attempt(address, &config, end.side, patience.min(left), monitor) {
            Ok((port, connection)) => {
                return Ok(Link::start(port, connection, began, end, LinkOrigin::Dialled));
            }
            Err(error @ (TransportError::Lost(_) | TransportError::NoAnswer(_)))
                if Instant::now() >= deadline =>
            {
                return Err(error);
            }
            Err(error @ (TransportError::Lost(_) | TransportError::NoAnswer(_))) => {
                tracing::info!(address, %error, "dialling again");
            }
            Err(error) => return Err(error),
        }
        patience = (patience * 2).min(LONGEST_ATTEMPT);
    }
}

fn attempt(
    address: &str,
    config: &quinn::ClientConfig,
    side: Side,
    patience: Duration,
    monitor: &Monitor,
) -> Result<(Port, quinn::Connection), TransportError> {
    let unusable =
        |error: io::Error| TransportError::Address { address: address.into(), error: error.to_string() };
    let mut resolved = address.to_socket_addrs().map_err(unusable)?;
    let peer = resolved.next().ok_or_else(|| unusable(io::ErrorKind::NotFound.into()))?;
    let any: SocketAddr = if peer.is_ipv4() { ([0; 4], 0).into() } else { ([0; 16], 0).into() };
    let socket = UdpSocket::bind(any).map_err(unusable)?;
    let mut config = config.clone();
    config.transport_config(transport_config(any.ip(), peer, side));
    let port = Port::open(socket, None).map_err(unusable)?;
    let connected = port.runtime.block_on(async {
        let connecting = port.endpoint.connect_with(config, peer, SERVER_NAME);
        let connecting = connecting.map_err(|error| TransportError::Lost(error.to_string()))?;
        tokio::select! {
            connected = shake_in_time(connecting, &port, patience) => {
                connected.unwrap_or_else(|| Err(TransportError::NoAnswer(address.into())))
            }
            () = monitor.until_cancelled() => Err(TransportError::Canceled),
        }
    });
    connected.map(|connection| (port, connection))
}

/// Waits `patience` for any answer and then for the handshake's end. An answered attempt is never given up for another,
/// because the peer may already use it for the run.
async fn shake_in_time(
    mut connecting: quinn::Connecting,
    port: &Port,
    patience: Duration,
) -> Option<Result<quinn::Connection, TransportError>> {
    let in_time = tokio::time::timeout(patience, connecting.handshake_data()).await;
    match in_time {
        Err(_) if !port.socket.has_heard() => return None,
        Ok(Err(error)) => return Some(Err(connection_error(&error))),
        Ok(Ok(_)) | Err(_) => {}
    }
    let connected = tokio::time::timeout(HANDSHAKE, connecting).await.ok()?;
    Some(connected.map_err(|error| connection_error(&error)).and_then(of_one_job))
}

/// Closes a connection to a peer of another job before a byte is sent.
fn of_one_job(connection: quinn::Connection) -> Result<quinn::Connection, TransportError> {
    match tls::is_of_one_job(&connection) {
        true => Ok(connection),
        false => {
            connection.close(code::FAILED.into(), b"of another job");
            Err(TransportError::OtherJob)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, Ordering::SeqCst},
        thread,
    };

    use contract::IdentityPair;

    use super::*;
    use crate::transport::quic::linked::PATIENCE;

    /// A path to a listener. `passes` decides by the numbers of socket and packet which packets arrive.
    struct Path {
        front: UdpSocket,
        listener: SocketAddr,
        passes: fn(usize, usize) -> bool,
        /// The answer to a packet that does not pass.
        junk: &'static [u8],
        is_over: AtomicBool,
    }

    impl Path {
        /// Carries packets until the end; returns the number of packets of each socket, in the order of their first.
        fn carry(&self) -> Vec<usize> {
            let back = UdpSocket::bind("127.0.0.1:0").unwrap();
            let tick = Some(Duration::from_millis(1));
            back.set_read_timeout(tick).unwrap();
            self.front.set_read_timeout(tick).unwrap();
            let mut sockets: Vec<(SocketAddr, usize)> = Vec::new();
            let (mut datagram, mut client) = ([0; 65_536], None);
            while !self.is_over.load(SeqCst) {
                if let Ok((len, from)) = self.front.recv_from(&mut datagram) {
                    let known = sockets.iter().position(|(socket, _)| *socket == from);
                    let number = known.unwrap_or(sockets.len());
                    if known.is_none() {
                        sockets.push((from, 0));
                    }
                    sockets[number].1 += 1;
                    if (self.passes)(number, sockets[number].1) {
                        client = Some(from);
                        back.send_to(&datagram[..len], self.listener).unwrap();
                    } else if !self.junk.is_empty() {
                        self.front.send_to(self.junk, from).unwrap();
                    }
                }
                if let (Ok(len), Some(client)) = (back.recv(&mut datagram), client) {
                    self.front.send_to(&datagram[..len], client).unwrap();
                }
            }
            sockets.into_iter().map(|(_, packets)| packets).collect()
        }
    }

    /// Dials over a path; returns the number of packets of each socket.
    fn dial_over(passes: fn(usize, usize) -> bool, junk: &'static [u8]) -> Vec<usize> {
        let pair = IdentityPair::generate("job").unwrap();
        let port = Port::listen("127.0.0.1:0".parse().unwrap(), &pair.sink).unwrap();
        let (front, listener) = (UdpSocket::bind("127.0.0.1:0").unwrap(), port.local_addr().unwrap());
        let address = front.local_addr().unwrap().to_string();
        let path = Path { front, listener, passes, junk, is_over: AtomicBool::new(false) };
        let monitor = Monitor::default();
        let end = |side| End { side, bandwidth_limit: None };
        thread::scope(|scope| {
            let accepted = scope.spawn(|| port.accept(end(Side::Sink), &monitor).unwrap());
            let carried = scope.spawn(|| path.carry());
            let dialled = dial(&address, &pair.source, PATIENCE, end(Side::Source), &monitor);
            let accepted = accepted.join().unwrap();
            path.is_over.store(true, SeqCst);
            drop((dialled.unwrap(), accepted));
            carried.join().unwrap()
        })
    }

    #[test]
    fn a_socket_whose_path_is_deaf_is_given_up_long_before_its_fifth_packet() {
        // A socket sends its fifth packet after more than a second; a path that then opens for it would be used.
        let sockets = dial_over(|socket, packet| socket > 0 || packet > 4, &[]);
        assert!(sockets.len() > 1 && sockets[0] <= 4, "{sockets:?}");
    }

    #[test]
    fn a_socket_that_has_heard_anything_is_not_given_up_for_another() {
        // A socket sends its second packet later than the patience for a socket without an answer.
        let sockets = dial_over(|_, packet| packet > 1, b"?");
        assert_eq!(sockets.len(), 1, "{sockets:?}");
    }
}
