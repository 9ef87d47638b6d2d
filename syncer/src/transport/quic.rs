//! The transport over QUIC. Everything asynchronous of the engine is in this file.

use std::{
    collections::VecDeque,
    io,
    net::{SocketAddr, ToSocketAddrs as _, UdpSocket},
    sync::Arc,
    time::{Duration, Instant},
};

use async_channel::{Receiver, Sender, WeakSender, bounded};
use bytes::Bytes;
use contract::{Identity, Side};
use quinn::{
    AckFrequencyConfig, ConnectionError, Endpoint, EndpointConfig, IdleTimeout, MtuDiscoveryConfig,
    RecvStream, SendStream, TransportConfig, VarInt,
    crypto::rustls::{QuicClientConfig, QuicServerConfig},
};
use rustix::net::sockopt;
use tokio::{
    runtime::Runtime,
    task::{AbortHandle, JoinSet},
};

use super::{
    Control, DataReceiver, DataSender, Fault, Frame, Peer, QUEUE_FRAMES, TransportError, congestion,
    pace::Pace,
    tls::{self, SERVER_NAME},
};
use crate::{
    monitor::Monitor,
    wire::{HEADER_BYTES, MAX_MESSAGE_BYTES, Message, Refusal, code, data::MAX_FRAME_BYTES, read_header},
};

/// A peer that says nothing for this long is lost. Keep-alives make an idle but living peer speak up.
const IDLE_TIMEOUT: Duration = Duration::from_secs(8);
const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// How long one attempt to connect may take; then a new socket tries again, because a packet that went to an address with nobody behind it
/// yet (a Service without endpoints) can leave a path that stays deaf.
const ATTEMPT: Duration = Duration::from_secs(2);

/// How long a close may take to leave this machine.
const CLOSE_PATIENCE: Duration = Duration::from_millis(100);

/// How long a peer that is told that this end stops may take to close the connection.
const STOP_PATIENCE: Duration = Duration::from_millis(500);

/// How many data streams there may be. The sink holds up to a frame of each.
const MAX_DATA_STREAMS: usize = 8;

/// Unread data that one stream, and all streams of a connection, may hold.
const STREAM_WINDOW_BYTES: u32 = 8 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 24 << 20;

/// What the kernel is asked to buffer for the socket; it may grant less.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

const IPV4_UDP_HEADERS: u32 = 28;
const IPV6_UDP_HEADERS: u32 = 48;

/// The largest payload that is probed for. quinn hands the kernel ten packets in one call, which takes 65,507 bytes and refuses more, so larger
/// packets would be lost by the batch. Measured on loopback, 256 MiB cost both ends 730 ms of CPU at this size and 1,070 ms at 1,452 bytes.
const MAX_PAYLOAD: u16 = 6_500;

/// How long a handshake may take. The end that dials gives up an attempt earlier.
const HANDSHAKE: Duration = Duration::from_secs(3);

/// How many handshakes are under way at once. One more takes the place of the oldest, so whoever wants to keep the peer
/// out has to begin as many in the two round trips that the peer needs. And whoever comes when one is under way has to show
/// first that it hears what is sent to its address, which costs this end nothing: a made-up address begins none.
const MAX_HANDSHAKES: usize = 32;

/// How many connections of about 70 KB there may be, with those that have failed and are kept a moment longer, so that their last packets
/// are recognized (RFC 9000, section 10.2). Whoever comes then is not answered, and asks again.
const MAX_CONNECTIONS: usize = 128;

/// How many first packets wait for an answer, for example while a run is under way, and how many bytes of what follows them are kept, of each
/// and of all.
const MAX_WAITING: usize = 1024;
const WAITING_BYTES: u64 = 16 << 10;
const ALL_WAITING_BYTES: u64 = 1 << 20;

/// What every path takes (RFC 9000, section 14).
const INITIAL_PAYLOAD: u16 = 1_200;

/// Which end of a run a connection is for.
#[derive(Debug, Clone, Copy)]
pub struct End {
    /// The source sends data, the sink receives it.
    pub side: Side,
    /// The most that this end sends, in bytes a second of UDP payload.
    pub bandwidth_limit: Option<u64>,
}

/// An open socket with its runtime, ready to be dialled or to dial.
pub struct Port {
    runtime: Runtime,
    endpoint: Endpoint,
}

/// A connection to the authenticated peer. Dropping it closes the connection.
pub struct Link {
    port: Port,
    /// When the peer was first heard of, or dialled.
    began: Instant,
    connection: quinn::Connection,
    pumps: JoinSet<()>,
}

impl Port {
    /// Listens on `address`.
    pub fn listen(address: SocketAddr, identity: &Identity) -> Result<Self, TransportError> {
        let unusable = |error: io::Error| TransportError::Address {
            address: address.to_string(),
            error: error.to_string(),
        };
        let crypto = tls::server(identity).map_err(|error| identity_error(&error))?;
        let crypto =
            QuicServerConfig::try_from(crypto).map_err(|e| TransportError::Identity(e.to_string()))?;
        let mut config = quinn::ServerConfig::with_crypto(Arc::new(crypto));
        let socket = UdpSocket::bind(address).map_err(unusable)?;
        config.transport_config(Arc::new(transport_config(link_payload(&socket, None))));
        config.max_incoming(MAX_WAITING);
        config.incoming_buffer_size(WAITING_BYTES).incoming_buffer_size_total(ALL_WAITING_BYTES);
        Self::open(socket, Some(config)).map_err(unusable)
    }

    fn open(socket: UdpSocket, server: Option<quinn::ServerConfig>) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        enlarge_buffers(&socket);
        let mut config = EndpointConfig::default();
        let _ = config.max_udp_payload_size(MAX_PAYLOAD);
        let endpoint = {
            let _inside = runtime.enter();
            Endpoint::new(config, server, socket, Arc::new(quinn::TokioRuntime))?
        };
        Ok(Self { runtime, endpoint })
    }

    /// The address that the socket really has.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.endpoint.local_addr()
    }

    /// Waits for the peer. Whoever shows another key is turned away, and the wait goes on.
    pub fn accept(self, end: End, monitor: &Monitor) -> Result<(Link, Peer), TransportError> {
        let accepted = self.runtime.block_on(async {
            tokio::select! {
                accepted = first_to_prove_itself(&self.endpoint) => accepted,
                () = monitor.until_cancelled() => Err(TransportError::Canceled),
            }
        });
        accepted.map(|(connection, began)| Link::start(self, connection, began, end, false, monitor))
    }
}

/// Shakes hands with whoever comes, several at a time, until one shows the right key. The others are let go.
async fn first_to_prove_itself(endpoint: &Endpoint) -> Result<(quinn::Connection, Instant), TransportError> {
    let mut handshakes = Handshakes::default();
    let mut turned_away = TurnedAway::default();
    loop {
        tokio::select! {
            incoming = endpoint.accept() => match incoming {
                Some(incoming) => handshakes.begin(incoming, endpoint.open_connections()),
                None => return Err(TransportError::Lost("the socket was closed".into())),
            },
            Some((from, result)) = handshakes.next() => match result {
                Ok(proven) => return Ok(proven),
                Err(error) => turned_away.add(from, &error),
            },
        }
    }
}

/// What comes of a handshake: the connection, and when the peer was first heard of.
type Shaken = Result<(quinn::Connection, Instant), String>;

/// Handshakes under way with peers that have not shown their key yet.
#[derive(Default)]
struct Handshakes {
    tasks: JoinSet<(SocketAddr, Shaken)>,
    /// The oldest first.
    under_way: VecDeque<AbortHandle>,
}

impl Handshakes {
    fn begin(&mut self, incoming: quinn::Incoming, connections: usize) {
        if !self.under_way.is_empty() && incoming.may_retry() {
            let _ = incoming.retry();
            return;
        }
        if connections >= MAX_CONNECTIONS {
            return incoming.ignore();
        }
        if self.under_way.len() >= MAX_HANDSHAKES
            && let Some(oldest) = self.under_way.pop_front()
        {
            oldest.abort();
        }
        let from = incoming.remote_address();
        self.under_way.push_back(self.tasks.spawn(async move { (from, shake_hands(incoming).await) }));
    }

    /// The next that is over; `None` where none is under way. One that had to make room says nothing.
    async fn next(&mut self) -> Option<(SocketAddr, Shaken)> {
        loop {
            if let Ok((id, shaken)) = self.tasks.join_next_with_id().await? {
                self.under_way.retain(|task| task.id() != id);
                return Some(shaken);
            }
        }
    }
}

async fn shake_hands(incoming: quinn::Incoming) -> Shaken {
    let began = Instant::now();
    match tokio::time::timeout(HANDSHAKE, incoming).await {
        Ok(Ok(connection)) => Ok((connection, began)),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("it did not finish the handshake".into()),
    }
}

/// Tells of peers that were turned away, one line a while however many they are.
#[derive(Default)]
struct TurnedAway {
    told: Option<Instant>,
    untold: u64,
}

impl TurnedAway {
    const EVERY: Duration = Duration::from_secs(10);

    fn add(&mut self, from: SocketAddr, error: &str) {
        if self.told.is_some_and(|told| told.elapsed() < Self::EVERY) {
            self.untold += 1;
            return;
        }
        tracing::warn!(%from, error, others = self.untold, "a peer was turned away");
        (self.told, self.untold) = (Some(Instant::now()), 0);
    }
}

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
        match attempt(address, &config, deadline, monitor) {
            Ok((port, connection)) => return Ok(Link::start(port, connection, began, end, true, monitor)),
            Err(error @ TransportError::Lost(_)) if Instant::now() >= deadline => return Err(error),
            Err(TransportError::Lost(error)) => tracing::info!(address, error, "no answer, dialling again"),
            Err(error) => return Err(error),
        }
    }
}

fn attempt(
    address: &str,
    config: &quinn::ClientConfig,
    deadline: Instant,
    monitor: &Monitor,
) -> Result<(Port, quinn::Connection), TransportError> {
    let unusable =
        |error: io::Error| TransportError::Address { address: address.into(), error: error.to_string() };
    let mut resolved = address.to_socket_addrs().map_err(unusable)?;
    let peer = resolved.next().ok_or_else(|| unusable(io::ErrorKind::NotFound.into()))?;
    let any: SocketAddr = if peer.is_ipv4() { ([0; 4], 0).into() } else { ([0; 16], 0).into() };
    let socket = UdpSocket::bind(any).map_err(unusable)?;
    let mut config = config.clone();
    config.transport_config(Arc::new(transport_config(link_payload(&socket, Some(peer)))));
    let port = Port::open(socket, None).map_err(unusable)?;
    let patience = ATTEMPT.min(deadline.saturating_duration_since(Instant::now()));
    let connected = port.runtime.block_on(async {
        let connecting = port.endpoint.connect_with(config, peer, SERVER_NAME);
        let connecting = connecting.map_err(|error| TransportError::Lost(error.to_string()))?;
        tokio::select! {
            connected = shake_in_time(connecting, patience) => {
                connected.unwrap_or_else(|| Err(TransportError::Lost(format!("{address} does not answer"))))
            }
            () = monitor.until_cancelled() => Err(TransportError::Canceled),
        }
    });
    connected.map(|connection| (port, connection))
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
    Some(connected.map_err(|error| connection_error(&error)))
}

impl Link {
    fn start(
        port: Port,
        connection: quinn::Connection,
        began: Instant,
        end: End,
        dialled: bool,
        monitor: &Monitor,
    ) -> (Self, Peer) {
        let closed = connection.clone();
        let fault = Fault::of(move || closed.close_reason().map(|error| connection_error(&error)));
        let (control_out, control_queue) = bounded(QUEUE_FRAMES);
        let (message_in, messages) = bounded(QUEUE_FRAMES);
        let (frame_in, frames) = bounded(QUEUE_FRAMES);
        let mut pumps = JoinSet::new();
        let handle = port.runtime.handle();
        let pace = end.bandwidth_limit.map(|limit| Arc::new(Pace::new(limit)));
        let ends = (control_queue.clone(), message_in.clone());
        let control = pump_control(connection.clone(), dialled, control_queue, message_in, pace.clone());
        pumps.spawn_on(watch(control, connection.clone(), fault.clone(), ends), handle);
        let stop =
            stop_when(monitor.until_cancelled(), control_out.downgrade(), connection.clone(), fault.clone());
        pumps.spawn_on(stop, handle);
        let mut senders = Vec::new();
        match end.side {
            Side::Sink => {
                let receive = receive_data(connection.clone(), frame_in.clone());
                pumps.spawn_on(watch(receive, connection.clone(), fault.clone(), frame_in), handle);
            }
            Side::Source => {
                for _ in 0..data_streams() {
                    let (outgoing, queue) = bounded(2);
                    let send = send_data(connection.clone(), queue.clone(), pace.clone());
                    pumps.spawn_on(watch(send, connection.clone(), fault.clone(), queue), handle);
                    senders.push(DataSender { outgoing, fault: fault.clone() });
                }
            }
        }
        let peer = Peer {
            control: Control { outgoing: control_out, incoming: messages, fault: fault.clone() },
            senders,
            receiver: DataReceiver { incoming: frames },
            fault,
        };
        (Self { port, began, connection, pumps }, peer)
    }

    /// When the connection began to be made.
    pub fn began(&self) -> Instant {
        self.began
    }

    /// Bytes sent and received so far, as UDP payload.
    pub fn bytes_on_wire(&self) -> u64 {
        let stats = self.connection.stats();
        stats.udp_tx.bytes + stats.udp_rx.bytes
    }

    /// Closes the connection. An end that spoke last gives its control stream, and waits for the peer to close first or to be done
    /// otherwise, so that its words arrive.
    pub fn close(mut self, spoke_last: Option<&Control>, exit_code: u32) -> Port {
        let Self { port, connection, pumps, .. } = &mut self;
        let path = connection.stats().path;
        tracing::debug!(
            rtt_us = path.rtt.as_micros() as u64,
            window_bytes = path.cwnd,
            payload_bytes = path.current_mtu,
            sent = path.sent_packets,
            lost = path.lost_packets,
            congestion_events = path.congestion_events,
            "the path of the connection"
        );
        port.runtime.block_on(async {
            if let Some(control) = spoke_last {
                let _ = tokio::time::timeout(IDLE_TIMEOUT, control.peer_is_done()).await;
            }
            if connection.close_reason().is_none() {
                connection.close(VarInt::from_u32(exit_code), b"");
                let _ = tokio::time::timeout(CLOSE_PATIENCE, close_is_sent(connection)).await;
            }
            pumps.shutdown().await;
        });
        self.port
    }
}

/// Waits until the peer was told of a close that was just made: without it, the peer would wait for its time-out. After a close nothing
/// else is sent, so the next datagram is it. (Counted from before the close, it could be data.)
async fn close_is_sent(connection: &quinn::Connection) {
    let sent = connection.stats().udp_tx.datagrams;
    while connection.stats().udp_tx.datagrams == sent {
        tokio::task::yield_now().await;
    }
}

/// Says on the control stream that this end stops, and leaves the close to the peer: a close of this end would wait behind its data for
/// the congestion window, which no acknowledgement opens any more once a connection is closed.
async fn stop_when(
    canceled: impl Future<Output = ()>,
    control: WeakSender<Vec<u8>>,
    connection: quinn::Connection,
    fault: Fault,
) {
    canceled.await;
    fault.set(TransportError::Canceled);
    let mut word = Vec::new();
    Message::Refuse(Refusal::canceled()).encode(&mut word);
    let stopped = async {
        if let Some(control) = control.upgrade()
            && control.send(word).await.is_ok()
        {
            connection.closed().await;
        }
    };
    let _ = tokio::time::timeout(STOP_PATIENCE, stopped).await;
    connection.close(VarInt::from_u32(code::CANCELED), b"stopped on request");
}

/// One stream for each core that can fill it.
fn data_streams() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(MAX_DATA_STREAMS)
}

/// The largest UDP payload that the interface towards `peer` takes, or that any could take while nobody is known to be there.
fn link_payload(socket: &UdpSocket, peer: Option<SocketAddr>) -> u16 {
    let local = socket.local_addr().ok();
    let Some(peer) = peer else { return MAX_PAYLOAD };
    let route = || {
        let probe = UdpSocket::bind((local?.ip(), 0)).ok()?;
        probe.connect(peer).ok()?;
        match peer {
            SocketAddr::V4(_) => sockopt::ip_mtu(&probe).ok()?.checked_sub(IPV4_UDP_HEADERS),
            SocketAddr::V6(_) => sockopt::ipv6_mtu(&probe).ok()?.checked_sub(IPV6_UDP_HEADERS),
        }
    };
    route().and_then(|payload| u16::try_from(payload).ok()).unwrap_or(MAX_PAYLOAD).min(MAX_PAYLOAD)
}

fn transport_config(payload: u16) -> TransportConfig {
    let mut config = TransportConfig::default();
    let mut mtu = MtuDiscoveryConfig::default();
    // Each step of the search costs a packet of its size in each direction, which a short run has no use for: it ends when a quarter of
    // what there was to win is left.
    mtu.upper_bound(payload).minimum_change((payload.saturating_sub(INITIAL_PAYLOAD) / 4).max(20));
    let mut acks = AckFrequencyConfig::default();
    acks.ack_eliciting_threshold(VarInt::from_u32(16));
    config
        .max_concurrent_bidi_streams(VarInt::from_u32(1))
        .max_concurrent_uni_streams(VarInt::from_u32(MAX_DATA_STREAMS as u32))
        .max_idle_timeout(IdleTimeout::try_from(IDLE_TIMEOUT).ok())
        .keep_alive_interval(Some(KEEP_ALIVE))
        .stream_receive_window(VarInt::from_u32(STREAM_WINDOW_BYTES))
        .receive_window(VarInt::from_u32(CONNECTION_WINDOW_BYTES))
        .send_window(u64::from(CONNECTION_WINDOW_BYTES))
        .initial_rtt(Duration::from_millis(50))
        .mtu_discovery_config(Some(mtu))
        .ack_frequency_config(Some(acks))
        .congestion_controller_factory(Arc::new(congestion::Factory))
        .datagram_receive_buffer_size(None);
    config
}

fn enlarge_buffers(socket: &UdpSocket) {
    // The forced form passes the system's limit where the process may; the other asks for what the limit allows.
    let _ = sockopt::set_socket_recv_buffer_size_force(socket, SOCKET_BUFFER_BYTES)
        .or_else(|_| sockopt::set_socket_recv_buffer_size(socket, SOCKET_BUFFER_BYTES));
    let _ = sockopt::set_socket_send_buffer_size(socket, SOCKET_BUFFER_BYTES);
}

/// Runs a pump; its error is the connection's. A peer that breaks the protocol, or stops, need not be listened to any longer. Whoever waits
/// at the pump's channels is let go when these `ends` of them are dropped, and then finds the error set.
async fn watch<T>(
    pump: impl Future<Output = Result<(), TransportError>>,
    connection: quinn::Connection,
    fault: Fault,
    ends: T,
) {
    if let Err(error) = pump.await {
        let code = match error {
            TransportError::Protocol(_) | TransportError::Nonsense(_) => Some(code::PROTOCOL),
            TransportError::Refused(_) => Some(code::FAILED),
            _ => None,
        };
        fault.set(error);
        if let Some(code) = code {
            connection.close(VarInt::from_u32(code), b"");
        }
    }
    drop(ends);
}

async fn pump_control(
    connection: quinn::Connection,
    dialled: bool,
    queue: Receiver<Vec<u8>>,
    messages: Sender<Message>,
    pace: Option<Arc<Pace>>,
) -> Result<(), TransportError> {
    let streams = if dialled { connection.open_bi().await } else { connection.accept_bi().await };
    let (send, recv) = streams.map_err(|error| connection_error(&error))?;
    // The stream goes first among all that has to be sent: a late answer stops the peer.
    let _ = send.set_priority(1);
    let sending = async {
        write_all_queued(send, queue, pace.as_deref()).await?;
        std::future::pending().await
    };
    tokio::select! {
        result = sending => result,
        result = read_messages(recv, messages) => result,
    }
}

async fn write_all_queued(
    mut stream: SendStream,
    queue: Receiver<Vec<u8>>,
    pace: Option<&Pace>,
) -> Result<(), TransportError> {
    while let Ok(frame) = queue.recv().await {
        write_paced(&mut stream, frame, pace).await?;
    }
    let _ = stream.finish();
    Ok(())
}

async fn write_paced(
    stream: &mut SendStream,
    frame: Vec<u8>,
    pace: Option<&Pace>,
) -> Result<(), TransportError> {
    let mut rest = Bytes::from(frame);
    if let Some(pace) = pace {
        while rest.len() > pace.piece_bytes() {
            pace.wait(pace.piece_bytes()).await;
            stream.write_chunk(rest.split_to(pace.piece_bytes())).await.map_err(write_error)?;
        }
        pace.wait(rest.len()).await;
    }
    stream.write_chunk(rest).await.map_err(write_error)
}

async fn read_messages(mut stream: RecvStream, messages: Sender<Message>) -> Result<(), TransportError> {
    while let Some((kind, body)) = read_frame(&mut stream, MAX_MESSAGE_BYTES).await? {
        let message = Message::decode(kind, &body)?;
        let refusal = match &message {
            Message::Refuse(refusal) => Some(refusal.clone()),
            _ => None,
        };
        if messages.send(message).await.is_err() {
            return Ok(());
        }
        // Whoever waits for data would not read it.
        if let Some(refusal) = refusal {
            return Err(TransportError::Refused(Box::new(refusal)));
        }
    }
    Ok(())
}

async fn send_data(
    connection: quinn::Connection,
    queue: Receiver<Vec<u8>>,
    pace: Option<Arc<Pace>>,
) -> Result<(), TransportError> {
    // The stream is opened with the first frame, so a run with nothing to send has no data streams.
    let Ok(first) = queue.recv().await else { return Ok(()) };
    let mut stream = connection.open_uni().await.map_err(|error| connection_error(&error))?;
    write_paced(&mut stream, first, pace.as_deref()).await?;
    write_all_queued(stream, queue, pace.as_deref()).await
}

async fn receive_data(connection: quinn::Connection, frames: Sender<Frame>) -> Result<(), TransportError> {
    let mut streams = JoinSet::new();
    loop {
        tokio::select! {
            stream = connection.accept_uni() => {
                let stream = stream.map_err(|error| connection_error(&error))?;
                streams.spawn(read_data(stream, frames.clone()));
            }
            Some(ended) = streams.join_next() => ended.unwrap_or(Ok(()))?,
        }
    }
}

async fn read_data(mut stream: RecvStream, frames: Sender<Frame>) -> Result<(), TransportError> {
    while let Some((kind, body)) = read_frame(&mut stream, MAX_FRAME_BYTES).await? {
        if frames.send(Frame { kind, body }).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

const CUT_OFF: TransportError = TransportError::Nonsense("a stream ended inside of a frame");

/// The next frame, or `None` where the stream ends between two frames.
async fn read_frame(stream: &mut RecvStream, max: usize) -> Result<Option<(u8, Vec<u8>)>, TransportError> {
    let mut header = [0; HEADER_BYTES];
    match stream.read_exact(&mut header).await {
        Ok(()) => {}
        Err(quinn::ReadExactError::FinishedEarly(0)) => return Ok(None),
        Err(quinn::ReadExactError::FinishedEarly(_)) => return Err(CUT_OFF),
        Err(error) => return Err(read_error(error)),
    }
    let (kind, len) = read_header(header, max)?;
    let mut body = Vec::with_capacity(len.min(MAX_FRAME_BYTES));
    while body.len() < len {
        let chunk = stream.read_chunk(len - body.len(), true).await;
        match chunk.map_err(|error| read_error(error.into()))? {
            Some(chunk) => body.extend_from_slice(&chunk.bytes),
            None => return Err(CUT_OFF),
        }
    }
    Ok(Some((kind, body)))
}

fn identity_error(error: &rustls::Error) -> TransportError {
    TransportError::Identity(error.to_string())
}

fn connection_error(error: &ConnectionError) -> TransportError {
    // TLS alerts travel as QUIC error codes 0x100 to 0x1ff (RFC 9001, section 4.8). After ALPN was agreed on, only the
    // keys can be refused.
    let crypto = |code: u64| (0x100..0x200).contains(&code);
    match error {
        ConnectionError::TransportError(inner) if crypto(inner.code.into()) => {
            TransportError::Identity(error.to_string())
        }
        ConnectionError::ConnectionClosed(close) if crypto(close.error_code.into()) => {
            TransportError::Identity(error.to_string())
        }
        _ => TransportError::Lost(error.to_string()),
    }
}

fn write_error(error: quinn::WriteError) -> TransportError {
    match error {
        quinn::WriteError::ConnectionLost(error) => connection_error(&error),
        error => TransportError::Lost(error.to_string()),
    }
}

fn read_error(error: quinn::ReadExactError) -> TransportError {
    match error {
        quinn::ReadExactError::ReadError(quinn::ReadError::ConnectionLost(error)) => connection_error(&error),
        error => TransportError::Lost(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use contract::IdentityPair;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);
    const ANY_PORT: &str = "127.0.0.1:0";

    /// The first byte of a Retry packet of QUIC version 1, less the bits that may be anything (RFC 9000, section 17.2.5).
    fn is_retry(datagram: &[u8]) -> bool {
        datagram.first().is_some_and(|first| first & 0xf0 == 0xf0)
    }

    /// Somebody who begins handshakes with a listener and lets none go on.
    struct Staller {
        runtime: Runtime,
        endpoint: Endpoint,
        config: quinn::ClientConfig,
        /// What the listener has half of a handshake with.
        held: Vec<(UdpSocket, UdpSocket, quinn::Connecting)>,
    }

    impl Staller {
        fn new() -> Self {
            let stranger = IdentityPair::generate().unwrap().source;
            let crypto = QuicClientConfig::try_from(tls::client(&stranger).unwrap()).unwrap();
            let config = quinn::ClientConfig::new(Arc::new(crypto));
            let Port { runtime, endpoint } = Port::open(UdpSocket::bind(ANY_PORT).unwrap(), None).unwrap();
            Self { runtime, endpoint, config, held: Vec::new() }
        }

        /// Shows that its address is real where it is asked to, and falls silent when the listener answers, or does not.
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

        /// Begins from an address that never shows that it is real.
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
        let pair = IdentityPair::generate().unwrap();
        let port = Port::listen(ANY_PORT.parse().unwrap(), &pair.sink).unwrap();
        let (address, listener) = (port.local_addr().unwrap(), port.endpoint.clone());
        let monitor = Monitor::default();
        let end = |side| End { side, bandwidth_limit: None };
        let mut staller = Staller::new();
        std::thread::scope(|scope| {
            let accepted = scope.spawn(|| port.accept(end(Side::Sink), &monitor).map(|(link, _)| link));
            for _ in 0..MAX_CONNECTIONS + 20 {
                staller.stall(address);
                assert!(listener.open_connections() <= MAX_CONNECTIONS, "{}", listener.open_connections());
            }
            let dialled =
                dial(&address.to_string(), &pair.source, PATIENCE, end(Side::Source), &Monitor::default());
            let connection = accepted.join().unwrap().unwrap().connection.stable_id();
            assert!(dialled.is_ok(), "{:?} {connection}", dialled.err());
        });
    }

    #[test]
    fn an_address_that_may_be_made_up_begins_no_handshake_beside_another() {
        let pair = IdentityPair::generate().unwrap();
        let port = Port::listen(ANY_PORT.parse().unwrap(), &pair.sink).unwrap();
        let (address, listener) = (port.local_addr().unwrap(), port.endpoint.clone());
        let monitor = Monitor::default();
        let mut staller = Staller::new();
        let end = End { side: Side::Sink, bandwidth_limit: None };
        std::thread::scope(|scope| {
            let accepted = scope.spawn(|| port.accept(end, &monitor).is_err());
            staller.stall(address);
            (0..50).for_each(|_| staller.pretend(address));
            // The first gives its place up after a while; on a busy machine a few come after one another.
            assert!(listener.open_connections() < 10, "{}", listener.open_connections());
            monitor.cancel();
            assert!(accepted.join().unwrap());
        });
    }

    #[test]
    fn of_many_that_are_turned_away_few_are_told() {
        let mut turned_away = TurnedAway::default();
        for _ in 0..100 {
            turned_away.add(([127, 0, 0, 1], 1).into(), "a wrong key");
        }
        assert_eq!(turned_away.untold, 99);
    }
}
