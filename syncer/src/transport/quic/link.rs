//! A connection to the authenticated peer, from its start to its close.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use async_channel::bounded;
use contract::Side;
use quinn::VarInt;
use tokio::task::JoinSet;

use super::{
    End, Port,
    config::{IDLE_TIMEOUT, MAX_DATA_STREAMS, widen},
    connection_error,
    pump::{pump_control, receive_data, send_data, stop_when, watch},
};
use crate::{
    monitor::Monitor,
    transport::{Control, DataReceiver, DataSender, Fault, Peer, QUEUE_FRAMES, pace::Pace},
};

/// How long a close may take to leave this machine.
const CLOSE_PATIENCE: Duration = Duration::from_millis(100);

/// A connection to the authenticated peer. Dropping it closes the connection.
pub struct Link {
    port: Port,
    /// When the peer was first heard of, or dialled.
    began: Instant,
    connection: quinn::Connection,
    pumps: JoinSet<()>,
}

impl Link {
    pub(super) fn start(
        port: Port,
        connection: quinn::Connection,
        began: Instant,
        end: End,
        dialled: bool,
        monitor: &Monitor,
    ) -> (Self, Peer) {
        widen(&connection);
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

/// One stream for each core that can fill it.
fn data_streams() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(MAX_DATA_STREAMS)
}
