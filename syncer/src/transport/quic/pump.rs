//! Moves frames between a connection's streams and the channels of a session.

use std::{sync::Arc, time::Duration};

use async_channel::{Receiver, WeakSender};
use bytes::Bytes;
use quinn::{RecvStream, SendStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::{
    buffers::{self, Returning},
    sys::bandwidth_limit::Pace,
    transport::{
        Fault, Queued, TransportError,
        listing_frames::ListingFrames,
        quic::{
            link_errors::{connection_error, read_error, write_error},
            run_queues::{Lane, Lanes},
        },
    },
    wire::{
        HEADER_BYTES, Header, MAX_FRAME_BYTES, MAX_MESSAGE_BYTES, Message, Refusal, code, read_header,
        stamp_frame,
    },
};

/// How long a peer may take to close the connection after it was told that this end stops.
const STOP_PATIENCE: Duration = Duration::from_millis(500);

/// The end that opened a connection, which also opens the control stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkOrigin {
    Dialled,
    Accepted,
}

/// Ends a run when it is canceled. In the last run of a session, sends on the control stream that this end stops, and
/// leaves the close to the peer: this end's own close would wait behind its data for the congestion window, which a
/// closed connection never opens.
pub(super) async fn stop_when(
    canceled: impl Future<Output = ()>,
    control: WeakSender<Vec<u8>>,
    connection: quinn::Connection,
    lane: Lane,
) {
    canceled.await;
    if !lane.is_last() {
        // The session tells the peer when its threads have stopped.
        return lane.give_up(TransportError::Canceled);
    }
    lane.fault.set(TransportError::Canceled);
    let mut word = Vec::new();
    Message::Refuse(Refusal::canceled()).encode(&mut word);
    stamp_frame(&mut word, lane.run);
    let stopped = async {
        if let Some(control) = control.upgrade()
            && control.send(word).await.is_ok()
        {
            connection.closed().await;
        }
    };
    let _ = tokio::time::timeout(STOP_PATIENCE, stopped).await;
    connection.close(code::CANCELED.into(), b"stopped on request");
}

/// Returns the code to close with for an error that the peer has to learn at once.
pub(super) fn close_code(error: &TransportError) -> Option<u32> {
    match error {
        TransportError::Protocol(_) | TransportError::Nonsense(_) => Some(code::PROTOCOL),
        TransportError::Refused(_) => Some(code::FAILED),
        _ => None,
    }
}

/// Runs a pump of a connection and makes its error the link's. Dropping `ends` wakes threads that wait at its
/// channels, after the error is set. A peer that breaks the protocol or stops is no longer read.
pub(super) async fn watch<T>(
    pump: impl Future<Output = Result<(), TransportError>>,
    connection: quinn::Connection,
    fault: Fault,
    ends: T,
) {
    if let Err(error) = pump.await {
        let code = close_code(&error);
        fault.set(error);
        if let Some(code) = code {
            connection.close(code.into(), b"");
        }
    }
    drop(ends);
}

pub(super) async fn pump_control(
    connection: quinn::Connection,
    opened: LinkOrigin,
    queue: Receiver<Vec<u8>>,
    lanes: Lanes,
    pace: Option<Arc<Pace>>,
) -> Result<(), TransportError> {
    let streams = match opened {
        LinkOrigin::Dialled => connection.open_bi().await,
        LinkOrigin::Accepted => connection.accept_bi().await,
    };
    let (send, recv) = streams.map_err(|error| connection_error(&error))?;
    // This stream has priority over all others: a late answer stops the peer.
    let _ = send.set_priority(1);
    let sending = async {
        write_all_queued(send, queue, pace.as_deref()).await?;
        std::future::pending().await
    };
    tokio::select! {
        result = sending => result,
        result = read_messages(recv, &lanes) => result,
    }
}

async fn write_all_queued(
    mut stream: SendStream,
    queue: Receiver<Vec<u8>>,
    pace: Option<&Pace>,
) -> Result<(), TransportError> {
    while let Ok(frame) = queue.recv().await {
        write_paced(&mut stream, frame, pace).await?;
    }
    let _ = stream.finish();
    Ok(())
}

pub(super) async fn write_paced(
    stream: &mut SendStream,
    frame: Vec<u8>,
    pace: Option<&Pace>,
) -> Result<(), TransportError> {
    let mut rest = Bytes::from_owner(Returning::from(frame));
    if let Some(pace) = pace {
        while rest.len() > pace.piece_bytes() {
            pace.wait(pace.piece_bytes()).await;
            stream.write_chunk(rest.split_to(pace.piece_bytes())).await.map_err(write_error)?;
        }
        pace.wait(rest.len()).await;
    }
    stream.write_chunk(rest).await.map_err(write_error)
}

/// Queues the peer's messages for their runs. Waiting messages take, encoded, at most the size of one message or one
/// directory; beyond that, the peer waits. Messages of runs that are over are dropped.
async fn read_messages(mut stream: RecvStream, lanes: &Lanes) -> Result<(), TransportError> {
    let room = Arc::new(Semaphore::new(MAX_MESSAGE_BYTES));
    let (mut parts, mut parts_of) = (ListingFrames::default(), 0);
    while let Some(RunFrame { kind, run, body }) = read_frame(&mut stream, MAX_MESSAGE_BYTES).await? {
        let Some(lane) = lanes.of_message(run).await? else { continue };
        if parts_of != run {
            // A run that was given up may have left half a directory.
            (parts, parts_of) = (ListingFrames::default(), run);
        }
        let needed = parts.room_for(kind, &body).min(MAX_MESSAGE_BYTES) as u32;
        let taken = Arc::clone(&room).acquire_many_owned(needed).await.ok();
        let message = parts.take(kind, &body)?;
        buffers::give_back(body);
        if let Some(message) = message {
            deliver(message, taken, &lane).await?;
        }
    }
    Ok(())
}

/// Passes a message to its run, if the run continues. A refusal also becomes the run's fault, because a thread that
/// waits for data does not read messages.
///
/// # Errors
/// If the peer stops in the last run of the session.
async fn deliver(
    message: Message,
    room: Option<OwnedSemaphorePermit>,
    lane: &Lane,
) -> Result<(), TransportError> {
    let mut refused = None;
    match &message {
        Message::Hello(hello) => lane.set_last(hello.last),
        Message::Refuse(refusal) => refused = Some(TransportError::Refused(Box::new(refusal.clone()))),
        _ => {}
    }
    if let Some(reason) = refused.take_if(|_| !lane.is_last()) {
        lane.give_up(reason);
        return Ok(());
    }
    let _ = lane.messages.send(Queued { message, _room: room }).await;
    refused.map_or(Ok(()), Err)
}

const CUT_OFF: TransportError = TransportError::Nonsense("a stream ended inside of a frame");

/// A frame as it came, with its run.
pub(super) struct RunFrame {
    pub(super) kind: u8,
    pub(super) run: u32,
    pub(super) body: Vec<u8>,
}

/// Reads the next frame; `None` if the stream ends between two frames.
pub(super) async fn read_frame(
    stream: &mut RecvStream,
    max: usize,
) -> Result<Option<RunFrame>, TransportError> {
    let mut header = [0; HEADER_BYTES];
    match stream.read_exact(&mut header).await {
        Ok(()) => {}
        Err(quinn::ReadExactError::FinishedEarly(0)) => return Ok(None),
        Err(quinn::ReadExactError::FinishedEarly(_)) => return Err(CUT_OFF),
        Err(error) => return Err(read_error(error)),
    }
    let Header { kind, run, len } = read_header(header, max)?;
    let mut body = buffers::empty(len.min(MAX_FRAME_BYTES));
    while body.len() < len {
        let chunk = stream.read_chunk(len - body.len(), true).await;
        match chunk.map_err(|error| read_error(error.into()))? {
            Some(chunk) => body.extend_from_slice(&chunk.bytes),
            None => return Err(CUT_OFF),
        }
    }
    Ok(Some(RunFrame { kind, run, body }))
}
