//! The connections to the authenticated peer, from the start of a session to its close.

use std::{net::SocketAddr, sync::Arc, time::Instant};

use async_channel::{Sender, bounded};
use contract::Side;
use tokio::{
    runtime::Handle,
    task::{AbortHandle, JoinSet},
};

use super::{
    config::{IDLE_TIMEOUT, data_streams, widen},
    connections::Connections,
    data_streams::Data,
    errors::connection_error,
    extra_connections::{ExtraConnections, Role},
    lanes::{EndsData, EndsRuns, Lanes},
    port::{End, Port},
    pump::{pump_control, stop_when, watch},
};
use crate::{
    monitor::Monitor,
    pace::{Pace, WIRE_OVERHEAD},
    transport::{Asked, Control, Fault, Peer, QUEUE_FRAMES},
};

/// The connections to the authenticated peer. Dropping it closes them.
pub(crate) struct Link {
    port: Port,
    /// When the peer's first packet came, or it was dialled.
    began: Instant,
    connections: Connections,
    pumps: JoinSet<()>,
    lanes: Lanes,
    /// How many connections there may be.
    asked: Asked,
    /// Messages to the peer.
    control: Sender<Vec<u8>>,
    /// Ends the present run when it is canceled.
    stop: Option<AbortHandle>,
}

impl Link {
    pub(super) fn start(
        port: Port,
        connection: quinn::Connection,
        began: Instant,
        end: End,
        role: Role,
    ) -> Self {
        widen(&connection);
        let connections = Connections::of(connection);
        let all = connections.clone();
        let fault = Fault::of(move || all.close_reason().map(|error| connection_error(&error)));
        let asked = Asked::default();
        let mut pumps = Pumps { connections, fault, tasks: JoinSet::new(), handle: port.runtime.handle() };
        let pace = end.bandwidth_limit.map(|limit| Arc::new(Pace::new(limit, WIRE_OVERHEAD)));
        let dialled = matches!(role, Role::Dialled(_));
        let (control, lanes) = pumps.control(dialled, end.side, pace.clone());
        let data = match end.side {
            Side::Source => Data::out(lanes.clone(), pace),
            Side::Sink => Data::into(lanes.clone()),
        };
        pumps.carry(&data, &lanes);
        let further =
            ExtraConnections { connections: pumps.connections.clone(), data, fault: pumps.fault.clone() };
        pumps.spawn(further.run(role, port.endpoint.clone(), Arc::clone(&asked)));
        let Pumps { connections, tasks: pumps, .. } = pumps;
        Self { port, began, connections, pumps, lanes, asked, control, stop: None }
    }

    /// Begins the next run, which ends when the `monitor` is told to stop. Nothing of earlier runs reaches it.
    pub(crate) fn next(&mut self, monitor: &Monitor) -> Peer {
        self.stop.iter().for_each(AbortHandle::abort);
        let (lane, peer) = self.lanes.next();
        let (canceled, control) = (monitor.until_cancelled(), self.control.downgrade());
        let stopping = stop_when(canceled, control, self.connections.clone(), lane);
        self.stop = Some(self.pumps.spawn_on(stopping, self.port.runtime.handle()));
        Peer { threads: Arc::clone(&self.port.threads), ..peer }
    }

    /// Allows the session this many connections; with 0, the dialling end chooses. Until then it has one. Only the
    /// first call counts.
    pub(crate) fn use_connections(&self, asked: u32) {
        let _ = self.asked.set(asked);
    }

    /// Returns when the connection began to be made.
    pub(crate) fn began(&self) -> Instant {
        self.began
    }

    /// Returns the address that the peer has now.
    pub(crate) fn peer(&self) -> SocketAddr {
        self.connections.first().remote_address()
    }

    /// Returns the bytes sent and received so far, as UDP payload.
    pub(crate) fn bytes_on_wire(&self) -> u64 {
        self.connections.bytes_on_wire()
    }

    #[cfg(test)]
    pub(super) fn port(&self) -> &Port {
        &self.port
    }

    #[cfg(test)]
    pub(super) fn connections(&self) -> &Connections {
        &self.connections
    }

    /// Closes the connections. An end that sent the last message passes its control stream, and waits until the peer
    /// closes or stops listening, so that the message arrives.
    pub(crate) fn close(mut self, spoke_last: Option<&Control>, exit_code: u32) -> Port {
        let Self { port, connections, pumps, .. } = &mut self;
        connections.log();
        port.runtime.block_on(async {
            if let Some(control) = spoke_last {
                let _ = tokio::time::timeout(IDLE_TIMEOUT, control.peer_is_done()).await;
            }
            connections.close_and_tell(exit_code).await;
            pumps.shutdown().await;
        });
        self.port
    }
}

/// The tasks of a link.
struct Pumps<'a> {
    connections: Connections,
    fault: Fault,
    tasks: JoinSet<()>,
    handle: &'a Handle,
}

impl Pumps<'_> {
    /// Carries messages. Returns the queue of those to the peer.
    fn control(&mut self, dialled: bool, side: Side, pace: Option<Arc<Pace>>) -> (Sender<Vec<u8>>, Lanes) {
        let (outgoing, queue) = bounded(QUEUE_FRAMES);
        let lanes = Lanes::new(side, outgoing.clone(), self.fault.clone());
        let ends = (queue.clone(), EndsRuns(lanes.clone()));
        let pump = pump_control(self.connections.first().clone(), dialled, queue, lanes.clone(), pace);
        self.spawn(watch(pump, self.connections.clone(), self.fault.clone(), ends));
        (outgoing, lanes)
    }

    /// Carries data over the first connection.
    fn carry(&mut self, data: &Data, lanes: &Lanes) {
        let (data, ends) = (data.clone(), EndsData(lanes.clone()));
        let first = self.connections.first().clone();
        let carry = async move { data.carry(&first, data_streams()).await };
        self.spawn(watch(carry, self.connections.clone(), self.fault.clone(), ends));
    }

    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn_on(task, self.handle);
    }
}
