//! Dials the peer until it answers: over UDP, and over a stream beside it if nothing answers there.

use std::{
    future, io,
    net::{SocketAddr, UdpSocket},
    pin::pin,
    sync::Arc,
    time::{Duration, Instant},
};

use contract::{Identity, LinkKind, Side};
use quinn::{Endpoint, TransportConfig, crypto::rustls::QuicClientConfig};
use tokio::{
    net::{TcpStream, lookup_host},
    sync::watch,
    time::{sleep, timeout},
};

use crate::{
    measure::monitor::Monitor,
    transport::{
        TransportError,
        quic::{
            await_turn::{ask, await_turn},
            byte_stream::{ByteStream, any_towards},
            connection_config::{stream_config, transport_config},
            link::Link,
            link_errors::{connection_error, identity_error},
            open_endpoints::{over_stream, over_udp, udp_socket},
            port::{End, Port},
            proven_peer::{HANDSHAKE, Proven, of_one_job},
            pump::LinkOrigin,
            sockets::LinkMode,
            tcp_waits_for_udp::until_udp_has_no_answer,
            udp_socket::Socket,
        },
        tls::{self, LinkUse, Proof, SERVER_NAME},
    },
    wire::code,
};

/// How long the first attempt waits for any packet, and how long later ones do. Each has its own socket: a packet to an
/// address without a peer yet (a Service without endpoints) leaves a path that never works.
const FIRST_ATTEMPT: Duration = Duration::from_millis(100);
const LONGEST_ATTEMPT: Duration = Duration::from_secs(2);

/// The ways to a peer.
#[derive(Debug)]
pub(crate) struct Ways {
    /// `host:port`, for UDP and TCP.
    pub address: Option<String>,
    /// The carriers to try.
    pub mode: LinkMode,
    /// The stream of a command that started the peer, in place of TCP.
    pub command: Option<ByteStream>,
    /// What to ask of the peer before the session, if it is a service.
    pub request: Option<Vec<u8>>,
}

impl Ways {
    /// Returns the ways to an address.
    pub(crate) fn to(address: &str, mode: LinkMode) -> Self {
        Self { address: Some(address.into()), mode, command: None, request: None }
    }
}

/// Dials until the peer answers or `timeout` is over. The first way on which the peer proves itself becomes the link.
pub(crate) fn dial(
    ways: Ways,
    identity: &Identity,
    timeout: Duration,
    end: End,
    monitor: &Monitor,
) -> Result<Link, TransportError> {
    let Ways { address, mode, command, request } = ways;
    let address = address.unwrap_or_default();
    let mut dialling = Dialling { request, ..Dialling::new(&address, identity, end.side, timeout) };
    let port = Port::to_dial().map_err(|error| dialling.unusable(&error))?;
    let met = port.runtime.block_on(async {
        tokio::select! {
            // First, because it gives up its place when it is stopped.
            biased;
            met = dialling.until_its_turn(mode, command, monitor) => met,
            () = monitor.until_cancelled() => Err(TransportError::Canceled),
        }
    });
    let met = met.map_err(|error| error.of_peer_at(&address))?;
    drop(dialling);
    Ok(Link::start(port, met, end, LinkOrigin::Dialled, None))
}

/// Shows a service this end's key, and returns once the service has accepted it.
pub(crate) fn show_key(
    ways: Ways,
    identity: &Identity,
    timeout: Duration,
    monitor: &Monitor,
) -> Result<(), TransportError> {
    let ways = Ways { request: Some(Vec::new()), ..ways };
    let end = End { side: identity.side(), bandwidth_limit: None };
    let link = dial(ways, identity, timeout, end, monitor)?;
    link.close(None, code::DONE);
    Ok(())
}

/// The way of an attempt, of which one at a time may prove this end to the peer.
#[derive(Debug, Clone, Copy)]
enum Carrier {
    Udp = 1,
    Stream,
}

/// All attempts to reach a peer.
struct Dialling<'a> {
    /// `host:port`; empty if only a command leads to the peer.
    address: &'a str,
    identity: &'a Identity,
    request: Option<Vec<u8>>,
    side: Side,
    began: Instant,
    timeout: Duration,
    deadline: Instant,
    proof: Arc<Proof>,
    /// Whether the present attempt over UDP has an answer.
    answered: watch::Sender<bool>,
}

impl<'a> Dialling<'a> {
    fn new(address: &'a str, identity: &'a Identity, side: Side, timeout: Duration) -> Self {
        let (began, proof, answered) = (Instant::now(), Arc::default(), watch::Sender::new(false));
        let (request, deadline) = (None, began + timeout);
        Self { address, identity, request, side, began, timeout, deadline, proof, answered }
    }
}

impl Dialling<'_> {
    /// Dials until the peer has time for this end. A busy peer that goes away is dialled anew.
    async fn until_its_turn(
        &mut self,
        mode: LinkMode,
        mut command: Option<ByteStream>,
        monitor: &Monitor,
    ) -> Result<Proven, TransportError> {
        let is_commanded = command.is_some();
        loop {
            let met = self.first_to_answer(mode, command.take()).await?;
            if met.link_use == LinkUse::Runs {
                return Ok(met);
            }
            let turn = async {
                if let Some(request) = &self.request {
                    ask(&met.connection, request).await?;
                }
                await_turn(&met.connection, monitor).await
            };
            match turn.await {
                Err(TransportError::Lost(_)) if !is_commanded => {
                    sleep(FIRST_ATTEMPT).await;
                    self.deadline = Instant::now() + self.timeout;
                    self.proof = Arc::default();
                    self.answered.send_replace(false);
                }
                turn => return turn.map(|()| met),
            }
        }
    }

    async fn first_to_answer(
        &self,
        mode: LinkMode,
        command: Option<ByteStream>,
    ) -> Result<Proven, TransportError> {
        let has_udp = mode.has_udp() && !self.address.is_empty();
        let is_commanded = command.is_some();
        let command = command.filter(|_| matches!(mode, LinkMode::Auto | LinkMode::Ssh));
        // The command takes the place of TCP, unless only TCP is asked for.
        let has_tcp = mode.has_tcp() && (mode == LinkMode::Tcp || !is_commanded);
        let has_stream = command.is_some() || has_tcp;
        let udp = async {
            if has_udp {
                self.until_answered(Carrier::Udp, FIRST_ATTEMPT).await
            } else {
                future::pending().await
            }
        };
        let stream = async {
            if has_udp {
                until_udp_has_no_answer(&self.answered).await;
            }
            match command {
                Some(command) => match self.over_command(command).await {
                    Err(error) if has_udp && self.is_of_other_attempt(Carrier::Stream, &error) => {
                        future::pending().await
                    }
                    met => met,
                },
                None if !has_stream => future::pending().await,
                None => match self.until_answered(Carrier::Stream, FIRST_ATTEMPT).await {
                    // The time is over for UDP, too, and which of the two ends first shall not decide what is said.
                    Err(TransportError::Lost(_) | TransportError::NoAnswer(_)) if has_udp => {
                        future::pending().await
                    }
                    met => met,
                },
            }
        };
        tokio::select! {
            met = pin!(udp) => met,
            met = pin!(stream) => met,
        }
    }

    /// Tries again and again until the peer answers or the time is over.
    async fn until_answered(
        &self,
        carrier: Carrier,
        mut patience: Duration,
    ) -> Result<Proven, TransportError> {
        loop {
            let left = self.deadline.saturating_duration_since(Instant::now());
            let tried = Instant::now();
            let error = match self.attempt(carrier, patience.min(left)).await {
                Err(error @ (TransportError::Lost(_) | TransportError::NoAnswer(_))) => error,
                Err(error) if self.is_of_other_attempt(carrier, &error) => self.no_answer(),
                answered => return answered,
            };
            self.proof.take_back(carrier as u8);
            self.answered.send_replace(false);
            if Instant::now() >= self.deadline {
                return Err(error);
            }
            tracing::info!(address = self.address, ?carrier, %error, "dialling again");
            // A refused connection fails at once, and so does an attempt beside one that shows the key.
            sleep(patience.saturating_sub(tried.elapsed())).await;
            patience = (patience * 2).min(LONGEST_ATTEMPT);
        }
    }

    /// Returns whether an attempt failed because the other carrier's attempt shows the key: the peer refuses an end
    /// without one.
    fn is_of_other_attempt(&self, carrier: Carrier, error: &TransportError) -> bool {
        let refused = matches!(
            error,
            TransportError::NoAnswer(_) | TransportError::OtherKey(_) | TransportError::NotAccepted(_)
        );
        refused && !self.proof.is_of(carrier as u8)
    }

    async fn attempt(&self, carrier: Carrier, patience: Duration) -> Result<Proven, TransportError> {
        let mut resolved = lookup_host(self.address).await.map_err(|error| self.unknown(&error))?;
        let peer = resolved.next().ok_or_else(|| self.unknown(&io::ErrorKind::NotFound.into()))?;
        match carrier {
            Carrier::Udp => self.over_udp(peer, patience).await,
            Carrier::Stream => self.over_tcp(peer).await,
        }
    }

    async fn over_udp(&self, peer: SocketAddr, patience: Duration) -> Result<Proven, TransportError> {
        let any = any_towards(peer.ip());
        let socket = UdpSocket::bind(any).map_err(|error| self.unusable(&error))?;
        let socket = udp_socket(socket).map_err(|error| self.unusable(&error))?;
        let endpoint = over_udp(Arc::clone(&socket), None).map_err(|error| self.unusable(&error))?;
        let config = transport_config(any.ip(), peer, self.side);
        let connecting = self.connect(&endpoint, peer, Carrier::Udp, config)?;
        let shaken = self.shake_in_time(connecting, &socket, patience).await;
        let connection = shaken.unwrap_or_else(|| Err(self.no_answer()))?;
        self.proven(connection, Carrier::Udp, LinkKind::Udp)
    }

    /// Takes a connection on which this end showed its key. One without is complete at this end before the peer refuses
    /// it, and would be taken for the link if it came before the attempt that shows the key.
    fn proven(
        &self,
        connection: quinn::Connection,
        carrier: Carrier,
        kind: LinkKind,
    ) -> Result<Proven, TransportError> {
        if !self.proof.is_of(carrier as u8) {
            return Err(self.no_answer());
        }
        of_one_job(connection, kind, self.began)
    }

    async fn over_tcp(&self, peer: SocketAddr) -> Result<Proven, TransportError> {
        let lost = |error: io::Error| TransportError::Lost(format!("{peer} over TCP: {error}"));
        let shaking = async {
            let connection = TcpStream::connect(peer).await.map_err(lost)?;
            self.over_stream(ByteStream::of_tcp(connection).map_err(lost)?).await
        };
        timeout(HANDSHAKE, shaking).await.unwrap_or_else(|_| Err(self.no_answer()))
    }

    async fn over_command(&self, command: ByteStream) -> Result<Proven, TransportError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let shaken = timeout(left, self.over_stream(command)).await;
        shaken.unwrap_or_else(|_| Err(TransportError::Lost("it did not answer over the command".into())))
    }

    async fn over_stream(&self, stream: ByteStream) -> Result<Proven, TransportError> {
        let (kind, peer) = (stream.kind(), stream.peer());
        let endpoint = over_stream(stream, None, None).map_err(|error| self.unusable(&error))?;
        let connecting = self.connect(&endpoint, peer, Carrier::Stream, stream_config())?;
        let connection = connecting.await.map_err(|error| connection_error(&error))?;
        self.proven(connection, Carrier::Stream, kind)
    }

    fn connect(
        &self,
        endpoint: &Endpoint,
        peer: SocketAddr,
        carrier: Carrier,
        transport: Arc<TransportConfig>,
    ) -> Result<quinn::Connecting, TransportError> {
        let crypto = tls::client(self.identity).map_err(|error| identity_error(&error))?;
        let crypto = Proof::only_of_one(&self.proof, carrier as u8, crypto);
        let crypto =
            QuicClientConfig::try_from(crypto).map_err(|e| TransportError::Identity(e.to_string()))?;
        let mut config = quinn::ClientConfig::new(Arc::new(crypto));
        config.transport_config(transport);
        let connecting = endpoint.connect_with(config, peer, SERVER_NAME);
        connecting.map_err(|error| TransportError::Lost(error.to_string()))
    }

    /// Waits `patience` for any answer and then for the handshake's end. An answered attempt is never given up for
    /// another over UDP, because the peer may already use it for the run.
    async fn shake_in_time(
        &self,
        mut connecting: quinn::Connecting,
        socket: &Socket,
        patience: Duration,
    ) -> Option<Result<quinn::Connection, TransportError>> {
        let in_time = timeout(patience, connecting.handshake_data()).await;
        match in_time {
            Err(_) if socket.give_up_if_silent() => return None,
            Ok(Err(error)) => return Some(Err(connection_error(&error))),
            Ok(Ok(_)) | Err(_) => {}
        }
        self.answered.send_replace(true);
        let connected = timeout(HANDSHAKE, connecting).await.ok()?;
        Some(connected.map_err(|error| connection_error(&error)))
    }

    fn unknown(&self, error: &io::Error) -> TransportError {
        TransportError::NameUnknown { address: self.address.into(), error: error.to_string() }
    }

    fn unusable(&self, error: &io::Error) -> TransportError {
        TransportError::Address { address: self.address.into(), error: error.to_string() }
    }

    fn no_answer(&self) -> TransportError {
        TransportError::NoAnswer(self.address.into())
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
    use crate::transport::quic::test_link::{LossyPath, PATIENCE, listening};

    /// Dials over a path; returns the number of packets of each socket.
    fn dial_over(passes: fn(usize, usize) -> bool, junk: &'static [u8]) -> Vec<usize> {
        let pair = IdentityPair::generate("job").unwrap();
        let (port, listener) = listening(&pair.sink);
        let front = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = front.local_addr().unwrap().to_string();
        let path = LossyPath { front, listener, passes, junk, is_over: AtomicBool::new(false) };
        let monitor = Monitor::default();
        let end = |side| End { side, bandwidth_limit: None };
        thread::scope(|scope| {
            let accepted = scope.spawn(|| port.accept(end(Side::Sink), &monitor).unwrap());
            let carried = scope.spawn(|| path.carry());
            let dialled =
                dial(Ways::to(&address, LinkMode::Udp), &pair.source, PATIENCE, end(Side::Source), &monitor);
            let dialled = dialled.inspect_err(|_| monitor.cancel());
            let accepted = accepted.join();
            path.is_over.store(true, SeqCst);
            drop((dialled.unwrap(), accepted.unwrap()));
            carried.join().unwrap()
        })
    }

    #[test]
    fn a_socket_whose_path_is_deaf_is_given_up_long_before_its_fifth_packet() {
        // A socket sends its fifth packet after more than a second; a path that then opens for it would be used.
        let sockets = dial_over(|socket, packet| socket > 0 || packet > 4, &[]);
        assert!(sockets.len() > 1 && sockets[0] <= 4, "{sockets:?}");
    }

    /// Returns the id of the connection that a first packet goes to: a random one until the listener's answer came.
    fn connection_id(datagram: &[u8]) -> &[u8] {
        &datagram[6..6 + usize::from(datagram[5])]
    }

    /// The listener would take a handshake that completes for the peer's, and the run for one that the peer ended.
    #[test]
    fn an_answer_that_comes_when_an_attempt_is_given_up_does_not_complete_its_handshake() {
        let pair = IdentityPair::generate("job").unwrap();
        let (listening, listener) = listening(&pair.sink);
        let [front, back] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
        [&front, &back].iter().for_each(|socket| socket.set_read_timeout(Some(PATIENCE)).unwrap());
        let (peer, monitor) = (front.local_addr().unwrap(), Monitor::default());
        let end = End { side: Side::Sink, bandwidth_limit: None };
        let dialling = Dialling::new("", &pair.source, Side::Source, PATIENCE);
        let port = Port::to_dial().unwrap();
        let _inside = port.runtime.enter();
        let socket = udp_socket(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
        let endpoint = over_udp(Arc::clone(&socket), None).unwrap();
        let config = transport_config(peer.ip(), peer, Side::Source);
        let _connecting = dialling.connect(&endpoint, peer, Carrier::Udp, config).unwrap();
        let [mut first, mut answer, mut next] = [[0; 2048]; 3];
        let (len, dialler) = front.recv_from(&mut first).unwrap();
        assert!(socket.give_up_if_silent());
        thread::scope(|scope| {
            let accepted = scope.spawn(|| listening.accept(end, &monitor).is_err());
            back.send_to(&first[..len], listener).unwrap();
            let len = back.recv(&mut answer).unwrap();
            front.send_to(&answer[..len], dialler).unwrap();
            front.recv(&mut next).unwrap();
            monitor.cancel();
            assert!(accepted.join().unwrap());
        });
        assert_eq!(connection_id(&next), connection_id(&first), "it has read the answer");
    }

    #[test]
    fn an_attempt_beside_one_that_shows_the_key_is_not_taken_for_the_link() {
        let pair = IdentityPair::generate("job").unwrap();
        let (listening, listener) = listening(&pair.sink);
        let monitor = Monitor::default();
        let end = End { side: Side::Sink, bandwidth_limit: None };
        let address = listener.to_string();
        let dialling = Dialling::new(&address, &pair.source, Side::Source, PATIENCE);
        let other = Proof::only_of_one(&dialling.proof, 7, tls::client(&pair.source).unwrap());
        assert!(other.client_auth_cert_resolver.resolve(&[], &[]).is_some());
        let port = Port::to_dial().unwrap();
        thread::scope(|scope| {
            let accepted = scope.spawn(|| listening.accept(end, &monitor).is_err());
            let attempts = [Carrier::Stream, Carrier::Udp]
                .map(|carrier| port.runtime.block_on(dialling.attempt(carrier, PATIENCE)));
            monitor.cancel();
            assert!(accepted.join().unwrap());
            assert!(attempts.iter().all(Result::is_err), "an attempt without the key was taken");
        });
    }

    #[test]
    fn a_socket_that_has_heard_anything_is_not_given_up_for_another() {
        // A socket sends its second packet later than the patience for a socket without an answer.
        let sockets = dial_over(|_, packet| packet > 1, b"?");
        assert_eq!(sockets.len(), 1, "{sockets:?}");
    }
}
