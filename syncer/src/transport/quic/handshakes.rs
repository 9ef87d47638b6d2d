//! Performs handshakes with all ends that dial, as many at once as this end can afford.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use contract::LinkKind;
use quinn::{ConnectionError, TransportErrorCode};
use tokio::{
    net::TcpStream,
    sync::OwnedSemaphorePermit,
    task::{AbortHandle, JoinSet},
};

use crate::{
    transport::{
        quic::{
            byte_stream::ByteStream,
            listener::{Arrival, Listener},
            proven_peer::{HANDSHAKE, Proven, of_one_job},
        },
        tls::{self, Hosts},
    },
    wire::code,
};

/// The most handshakes at once. One more takes the place of the oldest, so to keep the peer out, an attacker must begin
/// as many within the peer's two round trips. While one is in progress, new addresses must first prove that they
/// receive packets, which costs this end nothing.
pub(super) const MAX_HANDSHAKES: usize = 32;

/// The most connections, of about 70 KB each. It includes failed ones, which are kept a moment longer to recognise
/// their last packets (RFC 9000, section 10.2). Beyond that, a dialler gets no answer and repeats its packet.
pub(super) const MAX_OPEN: usize = 128;

/// The result of a handshake: the connection, and the time of the peer's first packet. `Err(None)` is an attempt that
/// the peer gave up for another one of its own.
pub(super) type Shaken = Result<Proven, Option<String>>;

/// A handshake that has ended.
pub(super) struct EndedHandshake {
    pub(super) from: SocketAddr,
    pub(super) shaken: Shaken,
}

/// Handshakes with peers that have not shown their key yet.
#[derive(Default)]
pub(super) struct Handshakes {
    tasks: JoinSet<EndedHandshake>,
    /// The handshakes in progress, the oldest first.
    under_way: VecDeque<AbortHandle>,
}

impl Handshakes {
    pub(super) fn begin(&mut self, arrival: Arrival, door: &Arc<Listener>) {
        match arrival {
            Arrival::Packet(incoming) => self.begin_with_packet(*incoming, door),
            Arrival::Connection(connection, from, place) => {
                let door = Arc::clone(door);
                self.spawn(async move {
                    let shaken = shake_over_tcp(connection, place, &door).await;
                    EndedHandshake { from, shaken }
                });
            }
        }
    }

    fn begin_with_packet(&mut self, incoming: quinn::Incoming, door: &Listener) {
        if !self.under_way.is_empty() && incoming.may_retry() {
            let _ = incoming.retry();
            return;
        }
        if door.open_connections() >= MAX_OPEN + door.sessions {
            return incoming.ignore();
        }
        let (from, began) = (incoming.remote_address(), Instant::now());
        let accepted = incoming.accept_with(door.config_for(from));
        let hosts = door.hosts().clone();
        self.spawn(async move {
            let shaken =
                tokio::time::timeout(HANDSHAKE, shake_hands(accepted, &hosts, LinkKind::Udp, began)).await;
            EndedHandshake { from, shaken: shaken.unwrap_or_else(|_| Err(Some(UNFINISHED.into()))) }
        });
    }

    /// Starts a handshake; the oldest makes room for it.
    fn spawn(&mut self, handshake: impl Future<Output = EndedHandshake> + Send + 'static) {
        if self.under_way.len() >= MAX_HANDSHAKES
            && let Some(oldest) = self.under_way.pop_front()
        {
            oldest.abort();
        }
        self.under_way.push_back(self.tasks.spawn(handshake));
    }

    /// Returns whether no handshake is in progress.
    pub(super) fn are_over(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Returns the next finished handshake; `None` if there is none in progress. One that had to make room is not
    /// returned.
    pub(super) async fn next(&mut self) -> Option<EndedHandshake> {
        loop {
            if let Ok((id, ended)) = self.tasks.join_next_with_id().await? {
                self.under_way.retain(|task| task.id() != id);
                return Some(ended);
            }
        }
    }
}

const UNFINISHED: &str = "it did not finish the handshake";

async fn shake_over_tcp(connection: TcpStream, place: OwnedSemaphorePermit, door: &Listener) -> Shaken {
    let shaking = async {
        let stream = ByteStream::of_tcp(connection).map_err(|error| Some(error.to_string()))?;
        shake_over_stream(stream, Some(place), door).await
    };
    tokio::time::timeout(HANDSHAKE, shaking).await.unwrap_or_else(|_| Err(Some(UNFINISHED.into())))
}

/// Performs the handshake with the one peer that dials in over a stream. `Err(None)` if the stream ends before.
pub(super) async fn shake_over_stream(
    stream: ByteStream,
    place: Option<OwnedSemaphorePermit>,
    door: &Listener,
) -> Shaken {
    let kind = stream.kind();
    let config = door.config_over_stream();
    let endpoint = door.open(stream, place).map_err(|error| Some(error.to_string()))?;
    let incoming = endpoint.accept().await.ok_or(None)?;
    let began = Instant::now();
    shake_hands(incoming.accept_with(config), door.hosts(), kind, began).await
}

async fn shake_hands(
    accepted: Result<quinn::Connecting, ConnectionError>,
    hosts: &Hosts,
    kind: LinkKind,
    began: Instant,
) -> Shaken {
    let connecting = accepted.map_err(|error| Some(error.to_string()))?;
    match connecting.await {
        Ok(connection) if tls::use_of(&connection).is_some() && !hosts.admit(&connection) => {
            connection.close(code::FAILED.into(), b"of another job");
            Err(Some("it has the key of another job's peer".into()))
        }
        Ok(connection) => of_one_job(connection, kind, began).map_err(|error| Some(error.to_string())),
        Err(error) => Err((!is_given_up(&error)).then(|| error.to_string())),
    }
}

/// Returns whether the peer's program closed the connection before the handshake was done, as it does with all attempts
/// but the first that succeeds. A refused key is an error of another kind.
fn is_given_up(error: &ConnectionError) -> bool {
    matches!(error, ConnectionError::ConnectionClosed(close) if close.error_code == TransportErrorCode::APPLICATION_ERROR)
}

/// Logs peers that were turned away, at most one line every ten seconds.
#[derive(Default)]
pub(super) struct TurnedAway {
    told: Option<Instant>,
    untold: u64,
}

impl TurnedAway {
    const EVERY: Duration = Duration::from_secs(10);

    pub(super) fn add(&mut self, from: SocketAddr, error: &str) {
        if self.told.is_some_and(|told| told.elapsed() < Self::EVERY) {
            self.untold += 1;
            return;
        }
        tracing::warn!(%from, error, others = self.untold, "a peer was turned away");
        (self.told, self.untold) = (Some(Instant::now()), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_that_are_turned_away_few_are_told() {
        let mut turned_away = TurnedAway::default();
        for _ in 0..100 {
            turned_away.add(([127, 0, 0, 1], 1).into(), "a wrong key");
        }
        assert_eq!(turned_away.untold, 99);
    }

    #[test]
    fn an_attempt_that_the_peer_gives_up_for_another_is_not_told_and_a_refused_key_is() {
        let closed = |error_code| {
            let close = quinn::ConnectionClose { error_code, frame_type: None, reason: Default::default() };
            ConnectionError::ConnectionClosed(close)
        };
        assert!(is_given_up(&closed(TransportErrorCode::APPLICATION_ERROR)));
        assert!(!is_given_up(&closed(TransportErrorCode::crypto(42))));
        assert!(!is_given_up(&ConnectionError::TimedOut));
    }
}
