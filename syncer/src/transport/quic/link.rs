//! The connections to the authenticated peer, from the start of a run to its close.

use std::{net::SocketAddr, sync::Arc, time::Instant};

use async_channel::bounded;
use contract::Side;
use tokio::{runtime::Handle, task::JoinSet};

use super::{
    config::{IDLE_TIMEOUT, MAX_DATA_STREAMS, widen},
    connections::Connections,
    data_streams::{ClosesData, Data},
    errors::connection_error,
    extra_connections::{ExtraConnections, Role},
    port::{End, Port},
    pump::{pump_control, stop_when, watch},
};
use crate::{
    cores::cores,
    monitor::Monitor,
    pace::{Pace, WIRE_OVERHEAD},
    transport::{Asked, Control, DataReceiver, DataSender, Fault, Peer, QUEUE_FRAMES, Queued},
};

/// Frames that wait for each stream, at most.
const FRAMES_A_STREAM: usize = 2;

/// The connections to the authenticated peer. Dropping it closes them.
pub(crate) struct Link {
    port: Port,
    /// When the peer's first packet came, or it was dialled.
    began: Instant,
    connections: Connections,
    pumps: JoinSet<()>,
}

impl Link {
    pub(super) fn start(
        port: Port,
        connection: quinn::Connection,
        began: Instant,
        end: End,
        role: Role,
        monitor: &Monitor,
    ) -> (Self, Peer) {
        widen(&connection);
        let connections = Connections::of(connection);
        let all = connections.clone();
        let fault = Fault::of(move || all.close_reason().map(|error| connection_error(&error)));
        let asked = Asked::default();
        let mut pumps = Pumps { connections, fault, tasks: JoinSet::new(), handle: port.runtime.handle() };
        let pace = end.bandwidth_limit.map(|limit| Arc::new(Pace::new(limit, WIRE_OVERHEAD)));
        let dialled = matches!(role, Role::Dialled(_));
        let control = pumps.control(dialled, pace.clone());
        let (data, senders, receiver) = pumps.data(end.side, pace);
        pumps.carry(&data);
        let further =
            ExtraConnections { connections: pumps.connections.clone(), data, fault: pumps.fault.clone() };
        pumps.spawn(further.run(role, port.endpoint.clone(), Arc::clone(&asked)));
        pumps.stop(&control, monitor);
        let Pumps { connections, fault, tasks: pumps, .. } = pumps;
        let peer = Peer { control, senders, receiver, fault, connections: asked };
        (Self { port, began, connections, pumps }, peer)
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
    fn control(&mut self, dialled: bool, pace: Option<Arc<Pace>>) -> Control {
        let (outgoing, queue) = bounded(QUEUE_FRAMES);
        let (messages, incoming) = bounded::<Queued>(QUEUE_FRAMES);
        let ends = (queue.clone(), messages.clone());
        let pump = pump_control(self.connections.first().clone(), dialled, queue, messages, pace);
        self.spawn(watch(pump, self.connections.clone(), self.fault.clone(), ends));
        Control { outgoing, incoming, fault: self.fault.clone() }
    }

    /// Makes the queues for data, and the session's ends of them.
    fn data(&self, side: Side, pace: Option<Arc<Pace>>) -> (Data, Vec<DataSender>, DataReceiver) {
        let (frames, incoming) = bounded(QUEUE_FRAMES);
        let receiver = DataReceiver { incoming };
        match side {
            Side::Sink => (Data::into(frames), Vec::new(), receiver),
            Side::Source => {
                let (outgoing, queue) = bounded(FRAMES_A_STREAM * data_streams());
                let sender = DataSender { outgoing, fault: self.fault.clone() };
                (Data::out(queue, pace), vec![sender; data_streams()], receiver)
            }
        }
    }

    /// Carries data over the first connection.
    fn carry(&mut self, data: &Data) {
        let (data, ends) = (data.clone(), ClosesData(data.clone()));
        let first = self.connections.first().clone();
        let carry = async move { data.carry(&first, data_streams()).await };
        self.spawn(watch(carry, self.connections.clone(), self.fault.clone(), ends));
    }

    /// Ends the run when this end is told to stop.
    fn stop(&mut self, control: &Control, monitor: &Monitor) {
        let canceled = monitor.until_cancelled();
        let control = control.outgoing.downgrade();
        self.spawn(stop_when(canceled, control, self.connections.clone(), self.fault.clone()));
    }

    fn spawn(&mut self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn_on(task, self.handle);
    }
}

/// Returns the number of streams of the first connection: one for each core that can fill it.
fn data_streams() -> usize {
    cores().min(MAX_DATA_STREAMS)
}
