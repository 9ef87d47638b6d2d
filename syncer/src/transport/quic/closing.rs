//! Closes a connection so that the peer learns of it.

use std::time::Duration;

use quinn::{Connection, VarInt};

/// The longest time that a close may take to leave this machine.
const CLOSE_PATIENCE: Duration = Duration::from_millis(100);

/// The time to wait for another datagram after one that may have been the close.
const SENT_PATIENCE: Duration = Duration::from_millis(1);

/// Closes `connection` if it is open, and waits until the close has left this machine, because otherwise the peer would
/// wait for its time-out.
pub(super) async fn close_and_tell(connection: &Connection, code: u32) {
    if connection.close_reason().is_none() {
        let before = datagrams(connection);
        connection.close(VarInt::from_u32(code), b"");
        close_is_sent(connection, before).await;
    }
}

fn datagrams(connection: &Connection) -> u64 {
    connection.stats().udp_tx.datagrams
}

/// Waits until a close that was just made has been sent. `before` is the number of datagrams sent before it. Nothing
/// else is sent after a close but one acknowledgement at the same moment.
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
