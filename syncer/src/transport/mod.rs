//! Framed streams between a source and a sink: over quinn ([`quic`]), or, in tests, within one process.
//!
//! A session is plain blocking code on threads of its own. It sees a [`Peer`]: channels whose other ends are pumped by the
//! transport. All channels are bounded, so a slow end slows the other down instead of filling memory.

mod congestion;
#[cfg(test)]
pub mod memory;
mod pace;
mod parts;
pub mod quic;
mod tls;

use std::{
    io,
    sync::{Arc, OnceLock},
};

use async_channel::{Receiver, Sender};
use thiserror::Error;
use tokio::sync::OwnedSemaphorePermit;

use crate::wire::{Message, Refusal, WireError};

/// How many frames wait between a session and the transport.
const QUEUE_FRAMES: usize = 16;

/// Why an end cannot talk to its peer, or not any more.
#[derive(Debug, Error, Clone)]
pub enum TransportError {
    /// The peer showed a key that is not the pinned one, or refused ours.
    #[error("the peer refused this end's key, or showed another key than the identity file names ({0})")]
    Identity(String),
    /// The peer has the right key, and is of another job.
    #[error(
        "the peer has the right key, but is an end of another job: give both ends the files that one `volferry keygen` wrote"
    )]
    OtherJob,
    /// The peer is of another version.
    #[error(
        "the peer does not speak {}: run the same version of volferry at both ends",
        String::from_utf8_lossy(crate::wire::PROTOCOL)
    )]
    OtherProtocol,
    /// The connection could not be made, or broke.
    #[error("the connection to the peer was lost: {0}")]
    Lost(String),
    /// The peer said something that the protocol does not allow.
    #[error("the peer broke the protocol: {0}")]
    Protocol(Arc<WireError>),
    /// The peer's message is not the one that the protocol has here.
    #[error("the peer broke the protocol: {got} came instead of {expected}")]
    Unexpected {
        /// What came.
        got: &'static str,
        /// What should have come.
        expected: &'static str,
    },
    /// The peer answered with something that refers to nothing.
    #[error("the peer broke the protocol: {0}")]
    Nonsense(&'static str),
    /// A directory of the peer's is too large for this end.
    #[error("the peer has a directory for which there is no room here: {0}")]
    NoRoom(Arc<io::Error>),
    /// The peer stopped, and said why.
    #[error("the peer stopped: {}", .0.message)]
    Refused(Box<Refusal>),
    /// The address cannot be used.
    #[error("cannot use the address {address}: {error}")]
    Address {
        /// As given.
        address: String,
        /// Why.
        error: String,
    },
    /// This end was told to stop.
    #[error("stopped on request")]
    Canceled,
}

impl From<WireError> for TransportError {
    fn from(error: WireError) -> Self {
        Self::Protocol(Arc::new(error))
    }
}

/// A frame of a data stream.
#[derive(Debug)]
pub struct Frame {
    /// One of the kinds of [`crate::wire::data`].
    pub kind: u8,
    /// The frame's body.
    pub body: Vec<u8>,
}

/// Asks a connection why it ended, if it did.
type CloseReason = dyn Fn() -> Option<TransportError> + Send + Sync;

/// The first error of a connection; what every later call on it fails with.
#[derive(Clone, Default)]
pub struct Fault {
    first: Arc<OnceLock<TransportError>>,
    close_reason: Option<Arc<CloseReason>>,
}

impl Fault {
    /// For a connection that knows why it ended, even before the task that notices it has run.
    pub fn of(close_reason: impl Fn() -> Option<TransportError> + Send + Sync + 'static) -> Self {
        Self { first: Arc::default(), close_reason: Some(Arc::new(close_reason)) }
    }

    /// Keeps `error` if it is the first.
    pub fn set(&self, error: TransportError) {
        let _ = self.first.set(error);
    }

    /// The error, or that the peer went away without a word.
    pub fn get(&self) -> TransportError {
        let reason = || self.close_reason.as_ref().and_then(|ask| ask());
        let unknown = || TransportError::Lost("the peer closed it".into());
        self.first.get().cloned().or_else(reason).unwrap_or_else(unknown)
    }
}

impl std::fmt::Debug for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Fault").field(&self.first.get()).finish()
    }
}

/// A message that waits for a session.
#[derive(Debug)]
struct Queued {
    message: Message,
    /// Its share of what all that wait may take; given back when it is taken. `None` where nobody counts.
    _room: Option<OwnedSemaphorePermit>,
}

/// The control stream, both directions.
#[derive(Debug)]
pub struct Control {
    outgoing: Sender<Vec<u8>>,
    incoming: Receiver<Queued>,
    fault: Fault,
}

impl Control {
    /// Sends a message; waits while the peer is behind.
    pub fn send(&self, message: &Message) -> Result<(), TransportError> {
        message
            .frames()
            .try_for_each(|frame| self.outgoing.send_blocking(frame))
            .map_err(|_| self.fault.get())
    }

    /// Waits for the next message. A refusal by the peer is an error.
    pub fn recv(&self) -> Result<Message, TransportError> {
        match self.incoming.recv_blocking().map(|queued| queued.message) {
            Ok(Message::Refuse(refusal)) => Err(TransportError::Refused(Box::new(refusal))),
            Ok(message) => Ok(message),
            Err(_) => Err(self.fault.get()),
        }
    }

    /// Sees that the connection stands while nothing is to come.
    ///
    /// # Errors
    /// When it is lost, or something came.
    pub fn check_quiet(&self) -> Result<(), TransportError> {
        match self.incoming.is_empty() && !self.incoming.is_closed() {
            true => Ok(()),
            false => {
                let got = self.recv()?.what();
                Err(TransportError::Unexpected { got, expected: "nothing" })
            }
        }
    }

    /// Waits until the peer does not listen any more: it has gone, or refused as well and waits for the same.
    pub(super) async fn peer_is_done(&self) {
        while let Ok(queued) = self.incoming.recv().await {
            if matches!(queued.message, Message::Refuse(_)) {
                return;
            }
        }
    }

    /// Why the peer stopped, if it said so among what it sent before the connection was lost.
    pub fn last_word(&self) -> Option<TransportError> {
        while let Ok(queued) = self.incoming.try_recv() {
            if let Message::Refuse(refusal) = queued.message {
                return Some(TransportError::Refused(Box::new(refusal)));
            }
        }
        None
    }
}

/// Where a worker of the source puts data frames; whichever stream is free takes the next.
#[derive(Debug, Clone)]
pub struct DataSender {
    outgoing: Sender<Vec<u8>>,
    fault: Fault,
}

impl DataSender {
    /// Sends an encoded frame; waits while the peer is behind.
    pub fn send(&self, frame: Vec<u8>) -> Result<(), TransportError> {
        self.outgoing.send_blocking(frame).map_err(|_| self.fault.get())
    }

    /// Whether frames wait for the link, so that the next one would wait too.
    pub fn is_behind(&self) -> bool {
        self.outgoing.is_full()
    }

    /// Makes every sending worker fail, now and later.
    pub fn close(&self) {
        self.outgoing.close();
    }
}

/// Where the sink's workers take data frames from, whichever stream they came on.
#[derive(Debug, Clone)]
pub struct DataReceiver {
    incoming: Receiver<Frame>,
}

impl DataReceiver {
    /// The next frame; `None` once the connection has ended or [`DataReceiver::close`] was called.
    pub fn recv(&self) -> Option<Frame> {
        self.incoming.recv_blocking().ok()
    }

    /// Lets every waiting worker go.
    pub fn close(&self) {
        self.incoming.close();
    }
}

/// One end's view of a run's connection, or connections: they end as one.
#[derive(Debug)]
pub struct Peer {
    /// Messages.
    pub control: Control,
    /// Data to the peer, one sender a worker; empty at the sink.
    pub senders: Vec<DataSender>,
    /// Data from the peer; nothing comes at the source.
    pub receiver: DataReceiver,
    /// What ended the connection.
    pub fault: Fault,
    /// How many connections the run may have, once that is known.
    connections: Asked,
}

/// See [`Peer::use_connections`].
type Asked = Arc<OnceLock<u32>>;

impl Peer {
    /// Lets the run have so many connections, or as many as the end that dials chooses where it is 0. Until then, and over the queues of
    /// tests, it has one.
    pub fn use_connections(&self, asked: u32) {
        let _ = self.connections.set(asked);
    }

    /// Has done with a peer that broke the protocol: whoever waits for data, or for it to hear, is let go and finds the error.
    pub fn give_up(&self, error: TransportError) {
        self.fault.set(error);
        self.receiver.close();
        self.control.outgoing.close();
    }
}
