//! Decides when a silent peer is lost: one that sends no packet, or keeps the connection alive and says nothing.

use std::time::{Duration, Instant};

use quinn::Connection;
use tokio::time::sleep;

use crate::{
    transport::{Fault, TransportError},
    wire::code,
};

/// A peer from which nothing comes for this long is lost. Keep-alives make an idle peer send something.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(8);
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(2);

/// The longest time for the first message of a session.
const FIRST_MESSAGE: Duration = Duration::from_secs(30);

/// How often the peer is looked at within its time.
const LOOKS: u32 = 8;

/// Closes the connection once the peer has sent nothing for `limit`, while the `progress` of this end has not changed
/// either. Packets that only keep the connection alive do not count.
pub(super) async fn end_silent<P: PartialEq>(
    connection: Connection,
    fault: Fault,
    limit: Duration,
    progress: impl Fn() -> P,
) {
    let heard = || connection.stats().frame_rx.stream;
    let (first, mut last, mut since) = (heard(), (heard(), progress()), Instant::now());
    loop {
        let limit = if heard() == first { limit.min(FIRST_MESSAGE) } else { limit };
        sleep(limit / LOOKS).await;
        let now = (heard(), progress());
        if now != last {
            (last, since) = (now, Instant::now());
        } else if since.elapsed() >= limit {
            let silence = format!("it sent nothing for {} s", limit.as_secs());
            fault.set(TransportError::Lost(silence));
            return connection.close(code::FAILED.into(), b"silent for too long");
        }
    }
}
