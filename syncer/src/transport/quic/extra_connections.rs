//! Further connections of a run. A connection is one task in quinn, so several use more cores, and each has its own
//! congestion window. They only carry data, from the same queue as the first.
//!
//! The end that dialled the first dials them from the same socket, once enough data has crossed. The other end accepts
//! them from that address only, and each has to prove that it belongs to this run and not only to this peer.

use std::sync::Arc;

use quinn::Endpoint;
use tokio::task::JoinSet;

use super::{
    config::widen,
    connections::Connections,
    data_streams::Data,
    errors::connection_error,
    handshakes::{Handshakes, TurnedAway},
    listener::Listener,
    port::HANDSHAKE,
    pump::close_code,
};
use crate::{
    cores::cores,
    transport::{Asked, Fault, TransportError, tls::SERVER_NAME},
    wire::code,
};

/// Bytes of frames that cross before there are further connections, so that short runs have none.
const WORTH_BYTES: u64 = 4 << 20;

/// Data streams of a further connection: enough to fill the window of a far path.
const STREAMS: usize = 3;

/// A connection keeps about one core busy; the others are for files, hashes and the socket.
const CORES_PER_CONNECTION: usize = 4;

/// The most connections that an end chooses unasked.
const MAX_CHOSEN: usize = 4;

/// The exporter label of the proof (RFC 5705).
const PROOF_LABEL: &[u8] = b"EXPORTER-volferry-further-connection";

const PROOF_BYTES: usize = 32;

/// How an end got the first connection, and gets further ones.
pub(super) enum Role {
    /// It dials.
    Dialled(quinn::ClientConfig),
    /// It is dialled.
    Listened(Arc<Listener>),
}

/// The run that a further connection joins.
#[derive(Clone)]
pub(super) struct ExtraConnections {
    pub(super) connections: Connections,
    pub(super) data: Data,
    pub(super) fault: Fault,
}

impl ExtraConnections {
    /// Dials, or accepts, further connections, and serves them until the first has ended.
    pub(super) async fn run(self, role: Role, endpoint: Endpoint, asked: Asked) {
        let coming = async {
            match role {
                Role::Dialled(config) => self.dial_all(&config, &endpoint, &asked).await,
                Role::Listened(door) => self.take_in(&door).await,
            }
        };
        tokio::select! {
            _ = self.connections.first().closed() => {}
            () = coming => {}
        }
    }

    async fn dial_all(&self, config: &quinn::ClientConfig, endpoint: &Endpoint, asked: &Asked) {
        self.data.has_crossed(WORTH_BYTES).await;
        let count = chosen(asked.get().copied().unwrap_or(1));
        let mut dialled = JoinSet::new();
        for _ in 1..count {
            dialled.spawn(self.clone().dial_one(config.clone(), endpoint.clone()));
        }
        while dialled.join_next().await.is_some() {}
    }

    async fn dial_one(self, config: quinn::ClientConfig, endpoint: Endpoint) {
        match tokio::time::timeout(HANDSHAKE, self.reach(config, &endpoint)).await {
            Ok(Ok(connection)) => self.serve(connection).await,
            Ok(Err(error)) => Self::went_without(&error.to_string()),
            Err(_) => Self::went_without("the peer does not answer"),
        }
    }

    fn went_without(error: &str) {
        tracing::warn!(error, "a further connection could not be made; the run goes on without it");
    }

    /// Dials the peer once more, proves that the connection is for this run, and waits for the peer's confirmation. A
    /// refusal does not end the run.
    async fn reach(
        &self,
        config: quinn::ClientConfig,
        endpoint: &Endpoint,
    ) -> Result<quinn::Connection, TransportError> {
        let first = self.connections.first();
        let lost = |error: String| TransportError::Lost(error);
        let connecting = endpoint.connect_with(config, first.remote_address(), SERVER_NAME);
        let connecting = connecting.map_err(|error| lost(error.to_string()))?;
        let connection = connecting.await.map_err(|error| connection_error(&error))?;
        let (mut shown, mut found) = connection.open_bi().await.map_err(|error| connection_error(&error))?;
        let proof = proof(first).ok_or_else(|| lost("there is no proof for it".into()))?;
        shown.write_all(&proof).await.map_err(|error| lost(error.to_string()))?;
        let _ = shown.finish();
        found.read_to_end(0).await.map_err(|error| lost(error.to_string()))?;
        Ok(connection)
    }

    /// Accepts connections from the peer's address with the peer's key.
    async fn take_in(&self, door: &Listener) {
        let mut handshakes = Handshakes::default();
        let mut turned_away = TurnedAway::default();
        let mut taken = JoinSet::new();
        let peer = || self.connections.first().remote_address();
        loop {
            tokio::select! {
                incoming = door.next_from(peer) => match incoming {
                    Some(incoming) => handshakes.begin(incoming, door),
                    None => return,
                },
                Some((from, shaken)) = handshakes.next() => match shaken {
                    Ok((connection, _)) if taken.len() + 1 < contract::MAX_CONNECTIONS as usize => {
                        taken.spawn(self.clone().examine(connection));
                    }
                    Ok((connection, _)) => turn_away(&connection, "a run has no more connections"),
                    Err(error) => turned_away.add(from, &error),
                },
                Some(_) = taken.join_next() => {}
            }
        }
    }

    /// Serves a connection if it belongs to this run.
    async fn examine(self, connection: quinn::Connection) {
        match tokio::time::timeout(HANDSHAKE, self.proven(&connection)).await {
            Ok(Some(mut found)) => {
                // The peer waits for the end of this stream.
                let _ = found.finish();
                self.serve(connection).await;
            }
            _ => turn_away(&connection, "the connection is not of this run"),
        }
    }

    /// Returns the way to answer, if the first stream is exactly the proof.
    async fn proven(&self, connection: &quinn::Connection) -> Option<quinn::SendStream> {
        let (found, mut shown) = connection.accept_bi().await.ok()?;
        let shown: [u8; PROOF_BYTES] = shown.read_to_end(PROOF_BYTES).await.ok()?.try_into().ok()?;
        // This type compares in constant time.
        let is_right = blake3::Hash::from(shown) == blake3::Hash::from(proof(self.connections.first())?);
        is_right.then_some(found)
    }

    /// Lets a connection carry data. Its end is the end of all.
    async fn serve(self, connection: quinn::Connection) {
        widen(&connection);
        self.connections.add(connection.clone());
        let error = match self.data.carry(&connection, STREAMS).await {
            Ok(()) => connection_error(&connection.closed().await),
            Err(error) => error,
        };
        let code = close_code(&error).unwrap_or(code::FAILED);
        self.fault.set(error);
        self.connections.close(code, b"");
    }
}

/// Computes the secret that only the two ends of `first` know.
fn proof(first: &quinn::Connection) -> Option<[u8; PROOF_BYTES]> {
    let mut proof = [0; PROOF_BYTES];
    first.export_keying_material(&mut proof, PROOF_LABEL, b"").ok()?;
    Some(proof)
}

fn turn_away(connection: &quinn::Connection, why: &str) {
    tracing::warn!(from = %connection.remote_address(), why, "a further connection was turned away");
    connection.close(quinn::VarInt::from_u32(code::PROTOCOL), why.as_bytes());
}

/// Returns how many connections the dialling end makes for a run that was asked for this many.
fn chosen(asked: u32) -> usize {
    match asked {
        0 => chosen_for(cores()),
        asked => asked.min(contract::MAX_CONNECTIONS) as usize,
    }
}

fn chosen_for(cores: usize) -> usize {
    (cores / CORES_PER_CONNECTION).clamp(1, MAX_CHOSEN)
}

#[cfg(test)]
mod tests {
    use contract::Identity;
    use quinn::{ConnectionError, crypto::rustls::QuicClientConfig};

    use super::*;
    use crate::{
        transport::{
            Peer,
            quic::{
                Link,
                linked::{Linked, PATIENCE},
            },
            tls,
        },
        wire::{HEADER_BYTES, Message, Welcome},
    };

    /// A run in progress, at whose source further steps can be taken.
    struct UnderWay {
        source: (Link, Peer),
        sink: (Link, Peer),
        config: quinn::ClientConfig,
    }

    impl UnderWay {
        fn new() -> Self {
            let Linked { source, sink, identity } = Linked::new();
            Self { source, sink, config: config(&identity) }
        }

        /// Runs a future at the source's end.
        fn at_source<T>(&self, what: impl Future<Output = T>) -> T {
            let within = async { tokio::time::timeout(PATIENCE, what).await.unwrap() };
            self.source.0.port().runtime.block_on(within)
        }

        /// Makes another connection from the source's socket with the source's key, which shows `proof`.
        async fn join(&self, proof: &[u8]) -> quinn::Connection {
            let link = &self.source.0;
            let address = link.connections().first().remote_address();
            let connecting = link.port().endpoint.connect_with(self.config.clone(), address, SERVER_NAME);
            let connection = connecting.unwrap().await.unwrap();
            // A connection beyond the limit may be closed already.
            if let Ok((mut shown, _)) = connection.open_bi().await {
                let _ = shown.write_all(proof).await;
                let _ = shown.finish();
            }
            connection
        }

        fn proof(&self) -> [u8; PROOF_BYTES] {
            proof(self.source.0.connections().first()).unwrap()
        }

        #[track_caller]
        fn assert_goes_on(&self) {
            let word = Message::Welcome(Welcome { version: "any".into(), dry_run: false });
            for (from, to) in [(&self.source.1, &self.sink.1), (&self.sink.1, &self.source.1)] {
                from.control.send(&word).unwrap();
                assert!(matches!(to.control.recv(), Ok(Message::Welcome(_))));
            }
        }
    }

    fn config(identity: &Identity) -> quinn::ClientConfig {
        quinn::ClientConfig::new(Arc::new(
            QuicClientConfig::try_from(tls::client(identity).unwrap()).unwrap(),
        ))
    }

    /// Returns the reason of a close by the peer for breaking the protocol.
    fn refusal(error: &ConnectionError) -> Option<&[u8]> {
        match error {
            ConnectionError::ApplicationClosed(close) if close.error_code == code::PROTOCOL.into() => {
                Some(&close.reason)
            }
            _ => None,
        }
    }

    #[test]
    fn a_connection_that_cannot_prove_that_it_is_of_the_run_is_closed_and_the_run_goes_on() {
        let run = UnderWay::new();
        let other_run = UnderWay::new();
        let right = run.proof();
        let too_long = [&right[..], &[0]].concat();
        for wrong in [&[0; PROOF_BYTES][..], &other_run.proof(), &right[1..], &too_long, &[]] {
            let error = run.at_source(async { run.join(wrong).await.closed().await });
            assert_eq!(refusal(&error), Some(&b"the connection is not of this run"[..]), "{error}");
        }
        run.assert_goes_on();
        assert_eq!(run.sink.0.connections().all().len(), 1);
    }

    #[test]
    fn a_connection_that_shows_nothing_is_closed_and_the_run_goes_on() {
        let run = UnderWay::new();
        let link = &run.source.0;
        let address = link.connections().first().remote_address();
        let error = run.at_source(async {
            let connecting = link.port().endpoint.connect_with(run.config.clone(), address, SERVER_NAME);
            connecting.unwrap().await.unwrap().closed().await
        });
        assert!(refusal(&error).is_some(), "{error}");
        run.assert_goes_on();
    }

    #[test]
    fn one_connection_too_many_is_closed_and_the_run_goes_on() {
        let run = UnderWay::new();
        let right = run.proof();
        let taken = run.at_source(async {
            let mut taken = Vec::new();
            for _ in 1..contract::MAX_CONNECTIONS {
                taken.push(run.join(&right).await);
            }
            let error = run.join(&right).await.closed().await;
            assert_eq!(refusal(&error), Some(&b"a run has no more connections"[..]), "{error}");
            taken
        });
        run.assert_goes_on();
        assert!(taken.iter().all(|one| one.close_reason().is_none()));
    }

    #[test]
    fn the_end_of_a_further_connection_is_the_end_of_the_run_at_both_ends() {
        let run = UnderWay::new();
        run.at_source(async {
            let further = run.join(&run.proof()).await;
            while run.sink.0.connections().all().len() == 1 {
                tokio::task::yield_now().await;
            }
            further.close(code::DONE.into(), b"gone");
        });
        for end in [&run.source.1, &run.sink.1] {
            assert!(matches!(end.control.recv(), Err(TransportError::Lost(_))));
        }
        assert!(run.sink.1.receiver.recv().is_none());
        while run.source.1.senders[0].send(vec![0; HEADER_BYTES]).is_ok() {}
    }

    #[test]
    fn an_end_chooses_by_its_cores() {
        let chosen = [1, 2, 7, 8, 12, 16, 64].map(chosen_for);
        assert_eq!(chosen, [1, 1, 1, 2, 3, 4, 4]);
        assert_eq!([1, 5, 8, u32::MAX].map(super::chosen), [1, 5, 8, 8]);
    }
}
