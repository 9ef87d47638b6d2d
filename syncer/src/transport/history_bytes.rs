//! The bytes of a copy of snapshots over the messages of a session, in each direction.

use std::{
    io::{self, Read, Write},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    measure::monitor::Monitor,
    sys::bandwidth_limit::Pace,
    transport::{Control, Peer, TransportError},
    wire::{MAX_HISTORY_BYTES, Message},
};

/// The bytes that the peer sends.
pub(crate) struct HistoryReader<'a> {
    control: &'a Control,
    monitor: &'a Monitor,
    /// The limit of this end on what it takes.
    pace: Option<Arc<Pace>>,
    piece: Vec<u8>,
    /// The number of bytes of the piece that were read.
    at: usize,
    /// Whether a message has arrived.
    is_open: bool,
}

/// The bytes that this end sends.
pub(crate) struct HistoryWriter<'a>(&'a Control);

/// Returns both directions of what crosses between this end and its peer.
pub(crate) fn history_bytes<'a>(
    peer: &'a Peer,
    monitor: &'a Monitor,
) -> (HistoryReader<'a>, HistoryWriter<'a>) {
    let (control, pace) = (&peer.control, peer.pace.clone());
    let reader = HistoryReader { control, monitor, pace, piece: Vec::new(), at: 0, is_open: false };
    (reader, HistoryWriter(control))
}

/// Opens the session where the end that dialled has nothing to ask, so that the other end can.
pub(crate) fn open_history(control: &Control) -> Result<(), TransportError> {
    control.send(&Message::History(Vec::new()))
}

impl<'a> HistoryReader<'a> {
    /// Begins with bytes that have arrived before.
    pub(crate) fn with_first(mut self, piece: Vec<u8>) -> Self {
        (self.piece, self.is_open) = (piece, true);
        self
    }

    /// Waits for the next message. Only the first one may be empty.
    fn next(&mut self) -> Result<(), TransportError> {
        let piece = match self.control.recv()? {
            Message::History(piece) => piece,
            other => return Err(TransportError::Unexpected { got: other.what(), expected: "History" }),
        };
        if piece.is_empty() && self.is_open {
            return Err(TransportError::Nonsense("a message of a copy of snapshots has no bytes"));
        }
        if let Some(pace) = &self.pace {
            let wait = pace.reserve(Instant::now(), piece.len());
            let waited = if wait > Duration::ZERO { self.monitor.pause(wait) } else { Ok(()) };
            waited.map_err(|_| TransportError::Canceled)?;
        }
        (self.piece, self.at, self.is_open) = (piece, 0, true);
        Ok(())
    }
}

impl Read for HistoryReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.piece.len() {
            self.next().map_err(io::Error::other)?;
        }
        let rest = &self.piece[self.at..];
        let len = rest.len().min(buffer.len());
        buffer[..len].copy_from_slice(&rest[..len]);
        self.at += len;
        Ok(len)
    }
}

impl Write for HistoryWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let len = bytes.len().min(MAX_HISTORY_BYTES);
        if len > 0 {
            self.0.send(&Message::History(bytes[..len].to_vec())).map_err(io::Error::other)?;
        }
        Ok(len)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{transport::memory_link, wire::Welcome};

    #[test]
    fn bytes_cross_as_one_stream_whatever_their_pieces_are() {
        let (source, sink) = memory_link::pair();
        let monitor = Monitor::default();
        let bytes: Vec<u8> = (0..MAX_HISTORY_BYTES + 1000).map(|at| at as u8).collect();
        open_history(&source.control).unwrap();
        let (_, mut to) = history_bytes(&source, &monitor);
        bytes.chunks(300_000).for_each(|part| to.write_all(part).unwrap());
        let pace = Some(Arc::new(Pace::new(1 << 30, 1.0)));
        let sink = Peer { pace, ..sink };
        let (mut from, _) = history_bytes(&sink, &monitor);
        let mut read = vec![0; bytes.len()];
        from.read_exact(&mut read).unwrap();
        assert!(read == bytes);
    }

    #[test]
    fn a_peer_that_sends_something_else_or_nothing_is_an_error_and_ends_no_loop() {
        let (source, sink) = memory_link::pair();
        let monitor = Monitor::default();
        let read = |first: &[Message]| {
            first.iter().for_each(|message| source.control.send(message).unwrap());
            let (mut from, _) = history_bytes(&sink, &monitor);
            from.read(&mut [0; 9]).unwrap_err().downcast::<TransportError>().unwrap()
        };
        let empty = Message::History(Vec::new());
        assert!(matches!(read(&[empty.clone(), empty]), TransportError::Nonsense(_)));
        let other = Message::Welcome(Welcome { version: String::new(), dry_run: false });
        assert!(matches!(read(&[other]), TransportError::Unexpected { expected: "History", .. }));
    }
}
