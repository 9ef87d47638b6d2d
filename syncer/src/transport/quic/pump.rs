//! Moves frames between a connection's streams and the channels of a session.

use std::{sync::Arc, time::Duration};

use async_channel::{Receiver, Sender, WeakSender};
use bytes::Bytes;
use quinn::{RecvStream, SendStream};
use tokio::sync::Semaphore;

use super::{
    connections::Connections,
    errors::{connection_error, read_error, write_error},
};
use crate::{
    buffers::{self, Returning},
    pace::Pace,
    transport::{Fault, Queued, TransportError, listing_frames::ListingFrames},
    wire::{HEADER_BYTES, MAX_FRAME_BYTES, MAX_MESSAGE_BYTES, Message, Refusal, code, read_header},
};

/// How long a peer may take to close the connection after it was told that this end stops.
const STOP_PATIENCE: Duration = Duration::from_millis(500);

/// Sends on the control stream that this end stops, and leaves the close to the peer. This end's own close would wait
/// behind its data for the congestion window, which a closed connection never opens.
pub(super) async fn stop_when(
    canceled: impl Future<Output = ()>,
    control: WeakSender<Vec<u8>>,
    connections: Connections,
    fault: Fault,
) {
    canceled.await;
    fault.set(TransportError::Canceled);
    let mut word = Vec::new();
    Message::Refuse(Refusal::canceled()).encode(&mut word);
    let stopped = async {
        if let Some(control) = control.upgrade()
            && control.send(word).await.is_ok()
        {
            connections.first().closed().await;
        }
    };
    let _ = tokio::time::timeout(STOP_PATIENCE, stopped).await;
    connections.close(code::CANCELED, b"stopped on request");
}

/// Returns the code to close with for an error that the peer shall know at once.
pub(super) fn close_code(error: &TransportError) -> Option<u32> {
    match error {
        TransportError::Protocol(_) | TransportError::Nonsense(_) => Some(code::PROTOCOL),
        TransportError::Refused(_) => Some(code::FAILED),
        _ => None,
    }
}

/// Runs a pump of the first connection and makes its error the run's. Dropping `ends` wakes threads that wait at its
/// channels, after the error is set. A peer that breaks the protocol or stops is no longer read.
pub(super) async fn watch<T>(
    pump: impl Future<Output = Result<(), TransportError>>,
    connections: Connections,
    fault: Fault,
    ends: T,
) {
    if let Err(error) = pump.await {
        let code = close_code(&error);
        fault.set(error);
        if let Some(code) = code {
            connections.close(code, b"");
        }
    }
    drop(ends);
}

pub(super) async fn pump_control(
    connection: quinn::Connection,
    dialled: bool,
    queue: Receiver<Vec<u8>>,
    messages: Sender<Queued>,
    pace: Option<Arc<Pace>>,
) -> Result<(), TransportError> {
    let streams = if dialled { connection.open_bi().await } else { connection.accept_bi().await };
    let (send, recv) = streams.map_err(|error| connection_error(&error))?;
    // This stream has priority over all others: a late answer stops the peer.
    let _ = send.set_priority(1);
    let sending = async {
        write_all_queued(send, queue, pace.as_deref()).await?;
        std::future::pending().await
    };
    tokio::select! {
        result = sending => result,
        result = read_messages(recv, messages) => result,
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

/// Queues the peer's messages. Waiting messages take, encoded, at most the size of one message or one directory; beyond
/// that, the peer waits.
async fn read_messages(mut stream: RecvStream, messages: Sender<Queued>) -> Result<(), TransportError> {
    let room = Arc::new(Semaphore::new(MAX_MESSAGE_BYTES));
    let mut parts = ListingFrames::default();
    while let Some((kind, body)) = read_frame(&mut stream, MAX_MESSAGE_BYTES).await? {
        let needed = parts.room_for(kind, &body).min(MAX_MESSAGE_BYTES) as u32;
        let taken = Arc::clone(&room).acquire_many_owned(needed).await.ok();
        let message = parts.take(kind, &body)?;
        buffers::give_back(body);
        let Some(message) = message else { continue };
        let refusal = match &message {
            Message::Refuse(refusal) => Some(refusal.clone()),
            _ => None,
        };
        if messages.send(Queued { message, _room: taken }).await.is_err() {
            return Ok(());
        }
        // A thread that waits for data would not read it.
        if let Some(refusal) = refusal {
            return Err(TransportError::Refused(Box::new(refusal)));
        }
    }
    Ok(())
}

const CUT_OFF: TransportError = TransportError::Nonsense("a stream ended inside of a frame");

/// Reads the next frame; `None` if the stream ends between two frames.
pub(super) async fn read_frame(
    stream: &mut RecvStream,
    max: usize,
) -> Result<Option<(u8, Vec<u8>)>, TransportError> {
    let mut header = [0; HEADER_BYTES];
    match stream.read_exact(&mut header).await {
        Ok(()) => {}
        Err(quinn::ReadExactError::FinishedEarly(0)) => return Ok(None),
        Err(quinn::ReadExactError::FinishedEarly(_)) => return Err(CUT_OFF),
        Err(error) => return Err(read_error(error)),
    }
    let (kind, len) = read_header(header, max)?;
    let mut body = buffers::empty(len.min(MAX_FRAME_BYTES));
    while body.len() < len {
        let chunk = stream.read_chunk(len - body.len(), true).await;
        match chunk.map_err(|error| read_error(error.into()))? {
            Some(chunk) => body.extend_from_slice(&chunk.bytes),
            None => return Err(CUT_OFF),
        }
    }
    Ok(Some((kind, body)))
}
