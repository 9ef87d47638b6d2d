//! The connections of one run: the first, which carries control messages, and those that share the data with it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use quinn::{Connection, ConnectionError, VarInt};

/// How long a close may take to leave this machine.
const CLOSE_PATIENCE: Duration = Duration::from_millis(100);

/// How long to wait for another datagram after one that may have been the close.
const SENT_PATIENCE: Duration = Duration::from_millis(1);

/// All connections of a run. They end together.
#[derive(Clone)]
pub(super) struct Connections {
    first: Connection,
    further: Arc<Mutex<Vec<Connection>>>,
}

impl Connections {
    pub(super) fn of(first: Connection) -> Self {
        Self { first, further: Arc::default() }
    }

    pub(super) fn first(&self) -> &Connection {
        &self.first
    }

    pub(super) fn add(&self, further: Connection) {
        self.further.lock().unwrap_or_else(PoisonError::into_inner).push(further);
    }

    /// Returns the first connection and the others in the order in which they were made.
    pub(super) fn all(&self) -> Vec<Connection> {
        let further = self.further.lock().unwrap_or_else(PoisonError::into_inner);
        [&self.first].into_iter().chain(further.iter()).cloned().collect()
    }

    /// Returns why the run's connections ended, if one did.
    pub(super) fn close_reason(&self) -> Option<ConnectionError> {
        self.all().iter().find_map(Connection::close_reason)
    }

    fn open(&self) -> impl Iterator<Item = Connection> + use<> {
        self.all().into_iter().filter(|one| one.close_reason().is_none())
    }

    /// Closes all that are open.
    pub(super) fn close(&self, code: u32, reason: &[u8]) {
        self.open().for_each(|one| one.close(VarInt::from_u32(code), reason));
    }

    /// Closes all that are open, and waits until the peer was told.
    pub(super) async fn close_and_tell(&self, code: u32) {
        let open: Vec<_> = self.open().map(|one| (datagrams(&one), one)).collect();
        self.close(code, b"");
        for (before, one) in open {
            close_is_sent(&one, before).await;
        }
    }

    /// Returns the bytes sent and received so far, as UDP payload.
    pub(super) fn bytes_on_wire(&self) -> u64 {
        let bytes = |one: &Connection| one.stats().udp_tx.bytes + one.stats().udp_rx.bytes;
        self.all().iter().map(bytes).sum()
    }

    /// Logs statistics of the paths.
    pub(super) fn log(&self) {
        let all = self.all();
        for (number, one) in (1..).zip(&all) {
            let path = one.stats().path;
            tracing::debug!(
                number,
                of = all.len(),
                rtt_us = path.rtt.as_micros() as u64,
                window_bytes = path.cwnd,
                payload_bytes = path.current_mtu,
                sent = path.sent_packets,
                lost = path.lost_packets,
                congestion_events = path.congestion_events,
                "the path of a connection"
            );
        }
    }
}

fn datagrams(connection: &Connection) -> u64 {
    connection.stats().udp_tx.datagrams
}

/// Waits until a close that was just made has left this machine, because otherwise the peer would wait for its
/// time-out. `before` is the number of datagrams sent before the close. Nothing else is sent after a close but one
/// acknowledgement at the same moment.
async fn close_is_sent(connection: &Connection, before: u64) {
    let sent = datagrams(connection);
    let patience = if sent == before { CLOSE_PATIENCE } else { SENT_PATIENCE };
    let next = async {
        while datagrams(connection) == sent {
            tokio::task::yield_now().await;
        }
    };
    let _ = tokio::time::timeout(patience, next).await;
}
