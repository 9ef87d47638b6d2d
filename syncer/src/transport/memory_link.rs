//! Connects two ends in one process, for tests: the same queues without a network.

use std::sync::{Arc, atomic::AtomicBool};

use async_channel::{Receiver, Sender, bounded};

use crate::{
    transport::{
        Control, DataReceiver, DataSender, Fault, Frame, Peer, QUEUE_FRAMES, Queued, Threads,
        listing_frames::ListingFrames,
    },
    wire::{HEADER_BYTES, Header, MAX_FRAME_BYTES, MAX_MESSAGE_BYTES, read_header},
};

/// Returns a source's and a sink's view of one connection.
pub(crate) fn pair() -> (Peer, Peer) {
    let (to_sink, at_sink) = control_pipe();
    let (to_source, at_source) = control_pipe();
    let (data_out, frames) = data_pipe();
    let (_, nothing) = bounded(1);
    let source = peer(to_sink, at_source, vec![data_out], nothing);
    let sink = peer(to_source, at_sink, Vec::new(), frames);
    (source, sink)
}

fn peer(
    outgoing: Sender<Vec<u8>>,
    incoming: Receiver<Queued>,
    data: Vec<Sender<Vec<u8>>>,
    frames: Receiver<Frame>,
) -> Peer {
    let fault = Fault::default();
    Peer {
        control: Control { run: 0, outgoing, incoming, fault: fault.clone() },
        senders: data
            .into_iter()
            .map(|outgoing| DataSender { run: 0, outgoing, fault: fault.clone() })
            .collect(),
        receiver: DataReceiver { incoming: frames },
        fault,
        link: None,
        pace: None,
        last: Arc::new(AtomicBool::new(true)),
        threads: Threads::default(),
    }
}

fn control_pipe() -> (Sender<Vec<u8>>, Receiver<Queued>) {
    let mut parts = ListingFrames::default();
    pipe(MAX_MESSAGE_BYTES, move |kind, body| {
        let message = parts.take(kind, body).unwrap()?;
        Some(Queued { message, _room: None })
    })
}

fn data_pipe() -> (Sender<Vec<u8>>, Receiver<Frame>) {
    pipe(MAX_FRAME_BYTES, |kind, body| Some(Frame { kind, body: body.to_vec() }))
}

fn pipe<T: Send + 'static>(
    max: usize,
    mut decode: impl FnMut(u8, &[u8]) -> Option<T> + Send + 'static,
) -> (Sender<Vec<u8>>, Receiver<T>) {
    let (sender, encoded) = bounded::<Vec<u8>>(QUEUE_FRAMES);
    let (decoded, receiver) = bounded(QUEUE_FRAMES);
    std::thread::spawn(move || {
        while let Ok(frame) = encoded.recv_blocking() {
            let (header, body) = frame.split_first_chunk::<HEADER_BYTES>().unwrap();
            let Header { kind, run, len } = read_header(*header, max).unwrap();
            assert_eq!((run, len), (0, body.len()));
            if decode(kind, body).is_some_and(|it| decoded.send_blocking(it).is_err()) {
                return;
            }
        }
    });
    (sender, receiver)
}
