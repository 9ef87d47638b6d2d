//! Closes a connection so that the peer learns of it.

use std::{
    thread,
    time::{Duration, Instant},
};

use quinn::{Connection, VarInt};

/// The longest time that a close may take to leave this machine.
const CLOSE_PATIENCE: Duration = Duration::from_millis(100);

/// The time to wait for another datagram after one that may have been the close.
const SENT_PATIENCE: Duration = Duration::from_millis(1);

/// Closes `connection` if it is open, and waits until the close has left this machine, because otherwise the peer would
/// wait for its time-out.
pub(super) fn close_and_tell(connection: &Connection, code: u32) {
    if connection.close_reason().is_none() {
        let before = Datagrams::of(connection);
        connection.close(VarInt::from_u32(code), b"");
        close_is_sent(connection, before);
    }
}

/// The numbers of datagrams of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Datagrams {
    sent: u64,
    received: u64,
}

impl Datagrams {
    fn of(connection: &Connection) -> Self {
        let stats = connection.stats();
        Self { sent: stats.udp_tx.datagrams, received: stats.udp_rx.datagrams }
    }
}

/// Waits until a close that was just made has been sent. `before` is what was sent before it. One acknowledgement may
/// have been sent at the same moment, and nothing else is but the close. quinn sends what is due whenever it has
/// handled a datagram, so after the next one, such as the peer's answer to the close, the close has been sent, too.
fn close_is_sent(connection: &Connection, before: Datagrams) {
    let (began, first) = (Instant::now(), Datagrams::of(connection));
    let patience = if first.sent == before.sent { CLOSE_PATIENCE } else { SENT_PATIENCE };
    // quinn has no event for this. The thread that sends may need this one's core.
    while Datagrams::of(connection) == first && began.elapsed() < patience {
        thread::yield_now();
    }
}
