//! Framed streams between a source and a sink: over quinn ([`quic`]), or, in tests, within one process.
//!
//! A session is blocking code on threads of its own. It sees a [`Peer`]: channels whose other ends the transport pumps.
//! All channels are bounded, so a slow end slows the other down instead of filling memory.

mod accepted_peers;
mod congestion;
pub(crate) mod history_bytes;
mod listing_frames;
#[cfg(test)]
pub(crate) mod memory_link;
pub(crate) mod quic;
mod tls;

pub use accepted_peers::Guests;

use std::{
    io,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use async_channel::{Receiver, Sender};
use contract::RunLink;
use parking_lot::Mutex;
use thiserror::Error;
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    measure::thread_time::{Activity, during},
    sys::bandwidth_limit::Pace,
    wire::{Message, Refusal, WireError, stamp_frame},
};

/// Frames that wait between a session and the transport, at most.
const QUEUE_FRAMES: usize = 16;

/// Why an end cannot communicate with its peer.
#[derive(Debug, Error, Clone)]
pub enum TransportError {
    /// The keys of this end cannot be used.
    #[error("the keys of this end cannot be used: {0}")]
    Identity(String),
    /// The peer, which is named by its address if it was dialled, showed a key that is not the pinned one.
    #[error("{0} showed another key than the one that this end accepts")]
    OtherKey(String),
    /// The peer, named likewise, has the pinned key, and refused ours.
    #[error("{0} does not accept this end's key")]
    NotAccepted(String),
    /// The peer has the right key and belongs to another job.
    #[error(
        "the peer has the right key, but is an end of another job: give both ends the files that one `volferry keygen` wrote"
    )]
    OtherJob,
    /// The peer speaks another version.
    #[error(
        "the peer does not speak {}: run the same version of volferry at both ends",
        String::from_utf8_lossy(crate::wire::PROTOCOL)
    )]
    OtherProtocol,
    /// The connection could not be made, or broke.
    #[error("the connection to the peer was lost: {0}")]
    Lost(String),
    /// No peer answered at this address (`host:port`) while it was dialled.
    #[error("no answer from {0}: does the other end listen there, and is UDP or TCP open on the way?")]
    NoAnswer(String),
    /// The contact of the peer did not arrive.
    #[error("the peer's contact did not come on standard input: {0}")]
    NoContact(String),
    /// The peer sent data that the protocol does not allow.
    #[error("the peer broke the protocol: {0}")]
    Protocol(Arc<WireError>),
    /// The peer sent another message than the protocol requires here.
    #[error("the peer broke the protocol: {got} came instead of {expected}")]
    Unexpected {
        /// The message that arrived.
        got: &'static str,
        /// The message that was expected.
        expected: &'static str,
    },
    /// The peer's message refers to something that does not exist.
    #[error("the peer broke the protocol: {0}")]
    Nonsense(&'static str),
    /// A directory of the peer's is too large for this end.
    #[error("the peer has a directory for which there is no room here: {0}")]
    NoRoom(Arc<io::Error>),
    /// The peer stopped, and gave the reason.
    #[error("the peer stopped: {}", .0.message)]
    Refused(Box<Refusal>),
    /// The name of the peer's machine cannot be resolved.
    #[error(
        "the name in {address} is not known here: {error}\nhint: see that it is right, and that this machine's name service \
         answers"
    )]
    NameUnknown {
        /// The address as given.
        address: String,
        /// The reason.
        error: String,
    },
    /// The address cannot be used.
    #[error("cannot use the address {address}: {error}")]
    Address {
        /// The address as given.
        address: String,
        /// The reason.
        error: String,
    },
    /// This end was told to stop.
    #[error("stopped on request")]
    Canceled,
}

/// The name of a peer in errors, until its address is known.
const THE_PEER: &str = "the peer";

impl TransportError {
    fn other_key() -> Self {
        Self::OtherKey(THE_PEER.into())
    }

    fn not_accepted() -> Self {
        Self::NotAccepted(THE_PEER.into())
    }

    /// Names the peer of an error about keys by the address that was dialled.
    fn of_peer_at(self, address: &str) -> Self {
        match self {
            Self::OtherKey(_) if !address.is_empty() => Self::OtherKey(address.into()),
            Self::NotAccepted(_) if !address.is_empty() => Self::NotAccepted(address.into()),
            error => error,
        }
    }
}

impl From<WireError> for TransportError {
    fn from(error: WireError) -> Self {
        Self::Protocol(Arc::new(error))
    }
}

/// A frame of a data stream.
#[derive(Debug)]
pub(crate) struct Frame {
    /// One of the kinds of [`crate::wire::data`].
    pub kind: u8,
    /// The frame's body.
    pub body: Vec<u8>,
}

/// Returns the reason why a connection ended, if it has.
type CloseReason = dyn Fn() -> Option<TransportError> + Send + Sync;

/// The first error of a connection. Every later call on it fails with it.
#[derive(Clone, Default)]
pub(crate) struct Fault {
    first: Arc<OnceLock<TransportError>>,
    close_reason: Option<Arc<CloseReason>>,
}

impl Fault {
    /// Makes a fault for a connection that knows why it ended, even before the task that notices it has run.
    pub(crate) fn of(close_reason: impl Fn() -> Option<TransportError> + Send + Sync + 'static) -> Self {
        Self { first: Arc::default(), close_reason: Some(Arc::new(close_reason)) }
    }

    /// Makes the fault of one run of a `link`, which ends with the link.
    pub(crate) fn below(link: &Self) -> Self {
        let link = link.clone();
        Self::of(move || link.known())
    }

    fn known(&self) -> Option<TransportError> {
        let reason = || self.close_reason.as_ref().and_then(|ask| ask());
        self.first.get().cloned().or_else(reason)
    }

    /// Keeps `error` if it is the first.
    pub(crate) fn set(&self, error: TransportError) {
        let _ = self.first.set(error);
    }

    /// Returns the error, or that the peer vanished without a message.
    pub(crate) fn get(&self) -> TransportError {
        self.known().unwrap_or_else(|| TransportError::Lost("the peer closed it".into()))
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
    /// Its share of the memory for waiting messages, released when it is taken. `None` if it is not counted.
    _room: Option<OwnedSemaphorePermit>,
}

/// One run's messages, both directions.
#[derive(Debug)]
pub(crate) struct Control {
    /// The number of the run.
    run: u32,
    outgoing: Sender<Vec<u8>>,
    incoming: Receiver<Queued>,
    fault: Fault,
}

impl Control {
    /// Sends a message; waits while the peer is behind.
    pub(crate) fn send(&self, message: &Message) -> Result<(), TransportError> {
        let send = |mut frame: Vec<u8>| {
            stamp_frame(&mut frame, self.run);
            self.outgoing.send_blocking(frame)
        };
        during(Activity::Peer, || message.frames().try_for_each(send)).map_err(|_| self.fault.get())
    }

    /// Waits for the next message. A refusal by the peer is an error.
    pub(crate) fn recv(&self) -> Result<Message, TransportError> {
        match during(Activity::Peer, || self.incoming.recv_blocking()).map(|queued| queued.message) {
            Ok(Message::Refuse(refusal)) => Err(TransportError::Refused(Box::new(refusal))),
            Ok(message) => Ok(message),
            Err(_) => Err(self.fault.get()),
        }
    }

    /// Checks that the connection stands while no message is expected.
    ///
    /// # Errors
    /// If it is lost, or a message has arrived.
    pub(crate) fn check_quiet(&self) -> Result<(), TransportError> {
        if self.incoming.is_empty() && !self.incoming.is_closed() {
            Ok(())
        } else {
            let got = self.recv()?.what();
            Err(TransportError::Unexpected { got, expected: "nothing" })
        }
    }

    /// Waits until the peer no longer reads: it has closed, or has also refused and waits for this end.
    pub(super) async fn peer_is_done(&self) {
        while let Ok(queued) = self.incoming.recv().await {
            if matches!(queued.message, Message::Refuse(_)) {
                return;
            }
        }
    }

    /// Returns the reason why the peer stopped, if it sent one before the connection was lost.
    pub(crate) fn last_word(&self) -> Option<TransportError> {
        while let Ok(queued) = self.incoming.try_recv() {
            if let Message::Refuse(refusal) = queued.message {
                return Some(TransportError::Refused(Box::new(refusal)));
            }
        }
        None
    }
}

/// Takes data frames from a worker of the source. Any free stream takes the next one.
#[derive(Debug, Clone)]
pub(crate) struct DataSender {
    /// The number of the run.
    run: u32,
    outgoing: Sender<Vec<u8>>,
    fault: Fault,
}

impl DataSender {
    /// Sends an encoded frame; waits while the peer is behind.
    pub(crate) fn send(&self, mut frame: Vec<u8>) -> Result<(), TransportError> {
        stamp_frame(&mut frame, self.run);
        during(Activity::Network, || self.outgoing.send_blocking(frame)).map_err(|_| self.fault.get())
    }

    /// Returns whether frames wait for the link, so that the next one would wait, too.
    pub(crate) fn is_behind(&self) -> bool {
        self.outgoing.is_full()
    }

    /// Makes every sending worker fail, now and later.
    pub(crate) fn close(&self) {
        self.outgoing.close();
    }
}

/// Gives data frames to the sink's workers, from any stream.
#[derive(Debug, Clone)]
pub(crate) struct DataReceiver {
    incoming: Receiver<Frame>,
}

impl DataReceiver {
    /// Returns the next frame; `None` once the connection has ended or [`DataReceiver::close`] was called.
    pub(crate) fn recv(&self) -> Option<Frame> {
        during(Activity::Peer, || self.incoming.recv_blocking()).ok()
    }

    /// Wakes every waiting worker.
    pub(crate) fn close(&self) {
        self.incoming.close();
    }
}

/// One end's view of its peer in one run.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Messages.
    pub control: Control,
    /// Data to the peer, one sender for each worker; empty at the sink.
    pub senders: Vec<DataSender>,
    /// Data from the peer; empty at the source.
    pub receiver: DataReceiver,
    /// The reason why the run cannot continue.
    pub fault: Fault,
    /// What the link is; `None` within one process.
    pub link: Option<RunLink>,
    /// The limit on what a sink takes, for what crosses as messages; data streams keep it themselves.
    pub pace: Option<Arc<Pace>>,
    /// Whether the session ends with this run: a failure then ends the connection, too.
    last: Arc<AtomicBool>,
    /// The numbers of the transport's own threads.
    threads: Threads,
}

/// The kernel's numbers of the transport's threads.
type Threads = Arc<Mutex<Vec<u32>>>;

impl Peer {
    /// Returns whether packets take long to the peer, so that it is probably beyond this site.
    pub(crate) fn is_far(&self) -> bool {
        self.link.is_some_and(|link| Duration::from_micros(link.rtt_us) >= congestion::NEAR)
    }

    /// Returns whether the session ends with this run. A sink knows it from the source's Hello.
    pub(crate) fn is_last(&self) -> bool {
        self.last.load(Relaxed)
    }

    /// Marks this run as followed by others.
    pub(crate) fn is_followed(&self) {
        self.last.store(false, Relaxed);
    }

    /// Returns the kernel's numbers of the transport's threads.
    pub(crate) fn threads(&self) -> Vec<u32> {
        self.threads.lock().clone()
    }

    /// Drops a peer that broke the protocol. Threads that wait for it wake and find the error.
    pub(crate) fn give_up(&self, error: TransportError) {
        self.fault.set(error);
        self.receiver.close();
        self.control.outgoing.close();
    }
}
