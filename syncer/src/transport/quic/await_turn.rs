//! Asks a service for a folder, and waits for the turn of this end at a busy peer.

use contract::{BusyAnswerError, BusyAnswers, MAX_BUSY_ANSWER_BYTES};
use quinn::Connection;

use crate::{
    measure::monitor::Monitor,
    transport::{
        TransportError,
        quic::{
            closing::close_and_tell,
            link_errors::{connection_error, write_error},
        },
    },
    wire::code,
};

/// Tells a service what this end wants.
pub(super) async fn ask(connection: &Connection, request: &[u8]) -> Result<(), TransportError> {
    let mut words = connection.open_uni().await.map_err(|error| connection_error(&error))?;
    words.write_all(request).await.map_err(write_error)?;
    let _ = words.finish();
    Ok(())
}

/// Reports each answer of the peer to the `monitor`, and returns when the peer has time. A stop gives up the place.
pub(super) async fn await_turn(connection: &Connection, monitor: &Monitor) -> Result<(), TransportError> {
    tokio::select! {
        turn = until_turn(connection, monitor) => turn,
        () = monitor.until_cancelled() => {
            close_and_tell(connection, code::CANCELED);
            Err(TransportError::Canceled)
        }
    }
}

async fn until_turn(connection: &Connection, monitor: &Monitor) -> Result<(), TransportError> {
    let lost = |error: String| TransportError::Lost(error);
    let nonsense = |BusyAnswerError(what)| TransportError::Nonsense(what);
    let mut words = connection.accept_uni().await.map_err(|error| connection_error(&error))?;
    let mut answers = BusyAnswers::default();
    while let Some(chunk) =
        words.read_chunk(MAX_BUSY_ANSWER_BYTES, true).await.map_err(|e| lost(e.to_string()))?
    {
        answers.take(&chunk.bytes, |answer| monitor.waiting(answer)).map_err(nonsense)?;
    }
    answers.end().map_err(nonsense)
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use std::{sync::Arc, thread};

    use contract::{BusyAnswer, IdentityPair, Side};
    use tokio::sync::oneshot;

    use super::*;
    use crate::transport::{
        quic::{
            LinkMode, Ways, dial,
            handshakes::Handshakes,
            port::{End, Port},
            test_link::{PATIENCE, listening},
        },
        tls::LinkUse,
    };

    /// Meets one peer, says `words` to it, and stays until it `leaves`.
    async fn busy(port: &Port, words: &[u8], leaves: oneshot::Receiver<()>) {
        let (door, mut handshakes) = (port.door().unwrap(), Handshakes::default());
        door.open_for(LinkUse::Queue);
        let met = loop {
            tokio::select! {
                arrival = door.next() => handshakes.begin(arrival.unwrap(), &door),
                Some(ended) = handshakes.next() => break ended.shaken.ok().unwrap(),
            }
        };
        let mut stream = met.connection.open_uni().await.unwrap();
        // The dialling end may leave at any byte.
        let _ = stream.write_all(words).await;
        let _ = stream.finish();
        let _ = leaves.await;
    }

    /// Dials a peer with the right key that says `words` when it is busy. Returns the result and what was told.
    fn told(words: &[u8]) -> (Result<(), TransportError>, Vec<BusyAnswer>) {
        let pair = IdentityPair::generate("job").unwrap();
        let (port, address) = listening(&pair.sink);
        let told = Arc::new(Mutex::new(Vec::new()));
        let telling = Arc::clone(&told);
        let monitor = Monitor::default().with_waiting(move |answer| telling.lock().push(answer.clone()));
        let (left, leaves) = oneshot::channel();
        let dialled = thread::scope(|scope| {
            scope.spawn(|| port.runtime.block_on(busy(&port, words, leaves)));
            let end = End { side: Side::Source, bandwidth_limit: None };
            let ways = Ways::to(&address.to_string(), LinkMode::Udp);
            let dialled = dial(ways, &pair.source, PATIENCE, end, &monitor).map(drop);
            drop(left);
            dialled
        });
        let told = told.lock().clone();
        (dialled, told)
    }

    #[test]
    fn a_busy_peer_that_answers_nonsense_is_left_and_not_dialled_again() {
        let answer = BusyAnswer { peer: "\u{1b}[2J".into(), since: "now".into(), number: 1 };
        let line = answer.to_line();
        let (turn, heard) = told(&line);
        assert!(turn.is_ok() && heard == [answer], "{turn:?} {heard:?}");
        let long = vec![b'x'; 1 << 20];
        let mixed = [&line[..], b"\xff\n"].concat();
        for (words, heard_before) in
            [(&long[..], 0), (b"\xff\n", 0), (&mixed, 1), (&line[..9], 0), (b"{}\n", 0)]
        {
            let (turn, heard) = told(words);
            assert!(matches!(turn, Err(TransportError::Nonsense(_))), "{turn:?}");
            assert_eq!(heard.len(), heard_before);
        }
    }
}
