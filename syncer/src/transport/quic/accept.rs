//! Waits for the peer among all ends that dial.

use crate::{
    measure::monitor::Monitor,
    transport::{
        TransportError,
        quic::{
            busy_queue::closed,
            link::Link,
            port::{End, Port},
            pump::LinkOrigin,
        },
    },
};

impl Port {
    /// Waits for the peer. Turns away ends that dial with another key, and continues to wait.
    pub(crate) fn accept(mut self, end: End, monitor: &Monitor) -> Result<Link, TransportError> {
        let mut queue = self.queue.take().ok_or_else(closed)?;
        let met = self.runtime.block_on(async {
            tokio::select! {
                met = queue.next_peer() => met,
                () = monitor.until_cancelled() => Err(TransportError::Canceled),
            }
        })?;
        Ok(Link::start(self, met, end, LinkOrigin::Accepted, Some(queue)))
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{SocketAddr, TcpStream, UdpSocket},
        sync::Arc,
        time::Duration,
    };

    use contract::{IdentityPair, Side};
    use quinn::{Endpoint, crypto::rustls::QuicClientConfig};
    use tokio::runtime::Runtime;

    use super::*;
    use crate::transport::{
        quic::{
            LinkMode, Ways, dial,
            handshakes::{MAX_HANDSHAKES, MAX_OPEN},
            listener::MAX_STREAMS,
            open_endpoints::{over_udp, udp_socket},
            test_link::listening,
        },
        tls::{self, SERVER_NAME},
    };

    const PATIENCE: Duration = Duration::from_secs(60);
    const ANY_PORT: &str = "127.0.0.1:0";

    /// Returns whether a datagram is a Retry packet of QUIC version 1, by its first byte without the arbitrary bits
    /// (RFC 9000, section 17.2.5).
    fn is_retry(datagram: &[u8]) -> bool {
        datagram.first().is_some_and(|first| first & 0xf0 == 0xf0)
    }

    /// Begins handshakes with a listener and continues none.
    struct Staller {
        runtime: Arc<Runtime>,
        endpoint: Endpoint,
        config: quinn::ClientConfig,
        /// Endpoints with half a handshake.
        held: Vec<(UdpSocket, UdpSocket, quinn::Connecting)>,
    }

    impl Staller {
        fn new() -> Self {
            let stranger = IdentityPair::generate("job").unwrap().source;
            let crypto = QuicClientConfig::try_from(tls::client(&stranger).unwrap()).unwrap();
            let config = quinn::ClientConfig::new(Arc::new(crypto));
            let Port { runtime, .. } = Port::to_dial().unwrap();
            let endpoint = {
                let _inside = runtime.enter();
                over_udp(udp_socket(UdpSocket::bind(ANY_PORT).unwrap()).unwrap(), None).unwrap()
            };
            Self { runtime, endpoint, config, held: Vec::new() }
        }

        /// Proves its address if asked, and falls silent when the listener answers.
        fn stall(&mut self, listener: SocketAddr) {
            let [near, far] = [(); 2].map(|()| UdpSocket::bind(ANY_PORT).unwrap());
            near.set_read_timeout(Some(PATIENCE)).unwrap();
            far.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            let _inside = self.runtime.enter();
            let there = near.local_addr().unwrap();
            let connecting = self.endpoint.connect_with(self.config.clone(), there, SERVER_NAME).unwrap();
            let mut datagram = [0; 2048];
            loop {
                let (len, client) = near.recv_from(&mut datagram).unwrap();
                far.send_to(&datagram[..len], listener).unwrap();
                match far.recv_from(&mut datagram) {
                    Ok((len, _)) if is_retry(&datagram[..len]) => {
                        near.send_to(&datagram[..len], client).unwrap()
                    }
                    _ => break,
                };
            }
            self.held.push((near, far, connecting));
        }

        /// Begins from an address that never proves itself.
        fn pretend(&self, listener: SocketAddr) {
            let [near, far] = [(); 2].map(|()| UdpSocket::bind(ANY_PORT).unwrap());
            [&near, &far].iter().for_each(|socket| socket.set_read_timeout(Some(PATIENCE)).unwrap());
            let _inside = self.runtime.enter();
            let there = near.local_addr().unwrap();
            let _connecting = self.endpoint.connect_with(self.config.clone(), there, SERVER_NAME).unwrap();
            let mut datagram = [0; 2048];
            let (len, _) = near.recv_from(&mut datagram).unwrap();
            far.send_to(&datagram[..len], listener).unwrap();
            far.recv_from(&mut datagram).unwrap();
        }
    }

    #[test]
    fn stalled_handshakes_take_a_bounded_place_and_do_not_keep_the_peer_out() {
        let pair = IdentityPair::generate("job").unwrap();
        let (port, address) = listening(&pair.sink);
        let listener = port.door().unwrap();
        let monitor = Monitor::default();
        let end = |side| End { side, bandwidth_limit: None };
        let mut staller = Staller::new();
        std::thread::scope(|scope| {
            let accepted = scope.spawn(|| port.accept(end(Side::Sink), &monitor));
            for _ in 0..MAX_OPEN + 20 {
                staller.stall(address);
                assert!(listener.open_connections() <= MAX_OPEN, "{}", listener.open_connections());
            }
            let ways = Ways::to(&address.to_string(), LinkMode::Udp);
            let dialled = dial(ways, &pair.source, PATIENCE, end(Side::Source), &Monitor::default());
            let accepted = accepted.join().unwrap();
            assert!(dialled.is_ok() && accepted.is_ok(), "{:?} {:?}", dialled.err(), accepted.err());
        });
    }

    #[test]
    fn connections_that_say_nothing_do_not_keep_the_peer_out() {
        let pair = IdentityPair::generate("job").unwrap();
        let (port, address) = listening(&pair.sink);
        let monitor = Monitor::default();
        let end = |side| End { side, bandwidth_limit: None };
        std::thread::scope(|scope| {
            let accepted = scope.spawn(|| port.accept(end(Side::Sink), &monitor));
            let silent: Vec<_> =
                (0..MAX_STREAMS + MAX_HANDSHAKES).map(|_| TcpStream::connect(address).unwrap()).collect();
            let ways = Ways::to(&address.to_string(), LinkMode::Tcp);
            let dialled = dial(ways, &pair.source, PATIENCE, end(Side::Source), &Monitor::default());
            let accepted = accepted.join().unwrap();
            assert!(dialled.is_ok() && accepted.is_ok(), "{:?} {:?}", dialled.err(), accepted.err());
            drop(silent);
        });
    }

    #[test]
    fn a_connection_that_sends_no_packets_is_closed_at_once() {
        let pair = IdentityPair::generate("job").unwrap();
        let (port, address) = listening(&pair.sink);
        let monitor = Monitor::default();
        let end = End { side: Side::Sink, bandwidth_limit: None };
        std::thread::scope(|scope| {
            let accepted = scope.spawn(|| port.accept(end, &monitor).is_err());
            // A packet without bytes, and one above the limit.
            let answers = [[0, 0], [0xff, 0xff]].map(|junk| {
                let mut stranger = TcpStream::connect(address).unwrap();
                stranger.set_read_timeout(Some(PATIENCE)).unwrap();
                stranger.write_all(&junk).unwrap();
                stranger.read(&mut [0]).ok()
            });
            monitor.cancel();
            assert!(accepted.join().unwrap());
            assert_eq!(answers, [Some(0); 2], "a connection is kept open");
        });
    }

    #[test]
    fn an_address_that_may_be_made_up_begins_no_handshake_beside_another() {
        let pair = IdentityPair::generate("job").unwrap();
        let (port, address) = listening(&pair.sink);
        let listener = port.door().unwrap();
        let monitor = Monitor::default();
        let mut staller = Staller::new();
        let end = End { side: Side::Sink, bandwidth_limit: None };
        std::thread::scope(|scope| {
            let accepted = scope.spawn(|| port.accept(end, &monitor).is_err());
            staller.stall(address);
            (0..50).for_each(|_| staller.pretend(address));
            // The first gives up its place after a while; on a busy machine a few follow one another.
            assert!(listener.open_connections() < 10, "{}", listener.open_connections());
            monitor.cancel();
            assert!(accepted.join().unwrap());
        });
    }
}
