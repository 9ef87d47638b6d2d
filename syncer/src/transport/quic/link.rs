//! The connection to the authenticated peer, from the start of a session to its close.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use async_channel::bounded;
use contract::{LinkKind, RunLink, Side, timestamp};
use tokio::{
    runtime::Handle,
    task::{AbortHandle, JoinSet},
};

use crate::{
    measure::monitor::Monitor,
    sys::bandwidth_limit::{Pace, WIRE_OVERHEAD},
    transport::{
        Control, Fault, Peer, QUEUE_FRAMES,
        quic::{
            busy_queue::{AttendedQueue, PeerQueue, PresentSession},
            closing::close_and_tell,
            connection_config::widen,
            data_streams::Data,
            link_errors::connection_error,
            port::{End, Port},
            proven_peer::Proven,
            pump::{LinkOrigin, pump_control, stop_when, watch},
            run_queues::{EndsData, EndsRuns, Lanes},
            silent_peer::{IDLE_TIMEOUT, end_silent},
        },
    },
};

/// A link, and the peer that was met over it.
#[derive(Debug)]
pub(crate) struct MetPeer {
    pub(crate) link: RunLink,
    /// The address that the peer has now, if it has one.
    pub(crate) peer: Option<SocketAddr>,
    /// When the peer's first packet arrived, or this end began to dial.
    pub(crate) began: Instant,
}

/// The connection to the authenticated peer. Dropping it closes it.
pub(crate) struct Link {
    port: Port,
    /// Answers the peers that dial meanwhile; `None` at the end that dialled.
    queue: Option<AttendedQueue>,
    began: Instant,
    connection: quinn::Connection,
    link: RunLink,
    pumps: JoinSet<()>,
    lanes: Lanes,
    /// The limit on the bandwidth.
    pace: Option<Arc<Pace>>,
    side: Side,
    /// Ends the present run when it is canceled.
    stop: Option<AbortHandle>,
}

impl Link {
    /// Starts the session with a peer; the others in the `queue` of an end that listens wait for its end.
    pub(super) fn start(
        port: Port,
        met: Proven,
        end: End,
        opened: LinkOrigin,
        queue: Option<PeerQueue>,
    ) -> Self {
        let Proven { connection, kind, began, link_use: _ } = met;
        widen(&connection);
        let link = RunLink { kind, rtt_us: connection.rtt().as_micros() as u64 };
        let session = || PresentSession {
            peer: connection.remote_address().to_string(),
            since: timestamp(SystemTime::now()),
        };
        let queue = queue.map(|queue| queue.attend(session(), port.runtime.handle()));
        let closed = connection.clone();
        let fault = Fault::of(move || closed.close_reason().map(|error| connection_error(&error)));
        let mut pumps = Pumps { connection, fault, tasks: JoinSet::new(), handle: port.runtime.handle() };
        let pace = end.bandwidth_limit.map(|limit| Arc::new(Pace::new(limit, WIRE_OVERHEAD)));
        let lanes = pumps.control(opened, end.side, pace.clone().filter(|_| end.side == Side::Source));
        let data = match end.side {
            Side::Source => Data::out(lanes.clone(), pace.clone()),
            Side::Sink => Data::into(lanes.clone(), pace.clone()),
        };
        pumps.carry(data, &lanes);
        let Pumps { connection, tasks: pumps, .. } = pumps;
        let side = end.side;
        Self { port, queue, began, connection, link, pumps, lanes, pace, side, stop: None }
    }

    /// Ends the session if the peer sends nothing for `limit` while the `progress` of this end does not change.
    pub(crate) fn limit_silence<P: PartialEq + Send + 'static>(
        &mut self,
        limit: Duration,
        progress: impl Fn() -> P + Send + Sync + 'static,
    ) {
        let pace = self.pace.clone();
        // What waits for the bandwidth limit of this end is no silence of the peer.
        let progress = move || (progress(), pace.as_ref().map(|pace| pace.reserved()));
        let watch = end_silent(self.connection.clone(), self.lanes.fault(), limit, progress);
        self.pumps.spawn_on(watch, self.port.runtime.handle());
    }

    /// Begins the next run, which ends when the `monitor` is told to stop. Data of earlier runs does not reach it.
    pub(crate) fn next(&mut self, monitor: &Monitor) -> Peer {
        self.stop.iter().for_each(AbortHandle::abort);
        let (lane, peer) = self.lanes.next();
        let (canceled, control) = (monitor.until_cancelled(), self.lanes.messages_to_peer());
        let stopping = stop_when(canceled, control, self.connection.clone(), lane);
        self.stop = Some(self.pumps.spawn_on(stopping, self.port.runtime.handle()));
        let pace = self.pace.clone().filter(|_| self.side == Side::Sink);
        Peer { threads: Arc::clone(&self.port.threads), link: Some(self.link), pace, ..peer }
    }

    /// Describes the link and the peer.
    pub(crate) fn met(&self) -> MetPeer {
        let has_address = self.link.kind != LinkKind::Ssh;
        let peer = has_address.then(|| self.connection.remote_address());
        MetPeer { link: self.link, peer, began: self.began }
    }

    /// Returns the bytes sent and received so far, as QUIC packets.
    pub(crate) fn bytes_on_wire(&self) -> u64 {
        let stats = self.connection.stats();
        stats.udp_tx.bytes + stats.udp_rx.bytes
    }

    /// Closes the connection. An end that sent the last message passes its control stream, and waits until the peer
    /// closes or stops listening, so that the message arrives.
    pub(crate) fn close(mut self, spoke_last: Option<&Control>, exit_code: u32) -> Port {
        let Self { port, queue, connection, pumps, .. } = &mut self;
        log_path(connection);
        port.runtime.block_on(async {
            if let Some(control) = spoke_last {
                let _ = tokio::time::timeout(IDLE_TIMEOUT, control.peer_is_done()).await;
            }
            close_and_tell(connection, exit_code);
            pumps.shutdown().await;
            if let Some(queue) = queue.take() {
                port.queue = queue.end().await;
            }
        });
        self.port
    }
}

/// The tasks of a link.
struct Pumps<'a> {
    connection: quinn::Connection,
    fault: Fault,
    tasks: JoinSet<()>,
    handle: &'a Handle,
}

impl Pumps<'_> {
    /// Starts the task that carries messages. Returns the link's runs.
    fn control(&mut self, opened: LinkOrigin, side: Side, pace: Option<Arc<Pace>>) -> Lanes {
        let (outgoing, queue) = bounded(QUEUE_FRAMES);
        let lanes = Lanes::new(side, outgoing, self.fault.clone());
        let ends = (queue.clone(), EndsRuns(lanes.clone()));
        let pump = pump_control(self.connection.clone(), opened, queue, lanes.clone(), pace);
        self.spawn(watch(pump, self.connection.clone(), self.fault.clone(), ends));
        lanes
    }

    fn carry(&mut self, data: Data, lanes: &Lanes) {
        let connection = self.connection.clone();
        let carry = async move { data.carry(&connection).await };
        self.spawn(watch(carry, self.connection.clone(), self.fault.clone(), EndsData(lanes.clone())));
    }

    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn_on(task, self.handle);
    }
}

/// Logs statistics of a connection's path.
fn log_path(connection: &quinn::Connection) {
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
}
