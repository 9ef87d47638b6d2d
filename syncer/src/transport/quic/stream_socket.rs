//! A socket for quinn whose packets cross a stream of bytes, one after the other.

use std::{
    io::{self, ErrorKind, IoSlice, IoSliceMut},
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use parking_lot::{Mutex, MutexGuard};
use quinn::{
    AsyncUdpSocket, UdpPoller,
    udp::{RecvMeta, Transmit},
};
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    transport::quic::byte_stream::{ByteStream, ReadHalf, WriteHalf, any_towards},
    wire::packets::{PACKET_PREFIX_BYTES, Packets, packet_prefix},
};

/// The most packets of one call: those that quinn makes at once.
const PACKETS_A_CALL: usize = 10;

/// The most packets that quinn is given at once, so that a peer without a key makes it use few of its buffers.
const PACKETS_A_READ: usize = 8;

/// The socket at one end of a stream.
#[derive(Debug)]
pub(super) struct StreamSocket {
    reader: ReadHalf,
    writer: WriteHalf,
    peer: SocketAddr,
    incoming: Mutex<Packets>,
    outgoing: Mutex<Outgoing>,
    /// The place among the streams of a listening end, given back when the stream is closed.
    _place: Option<OwnedSemaphorePermit>,
}

/// The state of the direction to the peer.
#[derive(Debug, Default)]
struct Outgoing {
    /// The bytes of a call that the stream had no room for, from `sent` on.
    rest: Vec<u8>,
    sent: usize,
    /// Whether the stream had no room.
    is_full: bool,
    /// Whether the peer's end is closed.
    is_broken: bool,
    /// Wakes the task that reads the stream, which also sends the rest.
    flusher: Option<Waker>,
    /// Wake the connections that wait for room.
    waiting: Vec<Waker>,
}

impl StreamSocket {
    /// Takes a `stream` on the runtime that the caller is in, with its place among others.
    pub(super) fn over(stream: ByteStream, place: Option<OwnedSemaphorePermit>) -> io::Result<Arc<Self>> {
        let peer = stream.peer();
        let (reader, writer) = stream.halves()?;
        let (incoming, outgoing) = Default::default();
        Ok(Arc::new(Self { reader, writer, peer, incoming, outgoing, _place: place }))
    }

    fn outgoing(&self) -> MutexGuard<'_, Outgoing> {
        self.outgoing.lock()
    }

    /// Sends the rest of an earlier call, and lets connections send again once it is sent.
    fn flush(&self, cx: &mut Context<'_>) {
        let mut outgoing = self.outgoing();
        if !outgoing.flusher.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            outgoing.flusher = Some(cx.waker().clone());
        }
        while outgoing.is_full && !outgoing.is_broken {
            if self.writer.poll_write_ready(cx).is_pending() {
                return;
            }
            outgoing.send_rest(&self.writer);
        }
        outgoing.waiting.drain(..).for_each(Waker::wake);
    }

    fn read(&self, incoming: &mut Packets, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.reader.poll_read_ready(cx))?;
            match self.reader.try_read(incoming.room()) {
                Ok(0) => return Poll::Ready(Err(ErrorKind::UnexpectedEof.into())),
                Ok(len) => {
                    incoming.arrived(len);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                // quinn ignores the error of this kind, and would ask again for ever.
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    return Poll::Ready(Err(ErrorKind::BrokenPipe.into()));
                }
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl Outgoing {
    /// Sends as much of the rest as the stream has room for.
    fn send_rest(&mut self, writer: &WriteHalf) {
        while self.sent < self.rest.len() && !self.is_broken {
            match writer.try_write(&[IoSlice::new(&self.rest[self.sent..])]) {
                Ok(len) => self.sent += len,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => self.is_broken = true,
            }
        }
        self.rest.clear();
        (self.sent, self.is_full) = (0, false);
    }

    /// Sends packets, and keeps what the stream has no room for. Says only that a stream without any room would block.
    fn send(&mut self, writer: &WriteHalf, packets: &[IoSlice<'_>]) -> io::Result<()> {
        let written = match writer.try_write(packets) {
            Ok(written) => written,
            Err(error) if error.kind() == ErrorKind::Interrupted => 0,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.is_full = true;
                self.flusher.iter().for_each(Waker::wake_by_ref);
                return Err(error);
            }
            // An error here would end the task of the connection without a word; the task that reads says it.
            Err(_) => {
                self.is_broken = true;
                self.flusher.iter().for_each(Waker::wake_by_ref);
                return Ok(());
            }
        };
        let mut skip = written;
        for part in packets {
            let kept = part.get(skip..).unwrap_or_default();
            skip = skip.saturating_sub(part.len());
            self.rest.extend_from_slice(kept);
        }
        if !self.rest.is_empty() {
            self.is_full = true;
            self.flusher.iter().for_each(Waker::wake_by_ref);
        }
        Ok(())
    }
}

impl AsyncUdpSocket for StreamSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Box::pin(StreamRoom(self))
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let mut outgoing = self.outgoing();
        if outgoing.is_broken {
            return Ok(());
        }
        if outgoing.is_full {
            return Err(ErrorKind::WouldBlock.into());
        }
        let size = transmit.segment_size.unwrap_or(transmit.contents.len()).max(1);
        let mut prefixes = [[0; PACKET_PREFIX_BYTES]; PACKETS_A_CALL];
        let mut parts = [IoSlice::new(&[]); 2 * PACKETS_A_CALL];
        let packets = transmit.contents.chunks(size);
        let count = packets.len().min(PACKETS_A_CALL);
        for (prefix, packet) in prefixes.iter_mut().zip(packets.clone()) {
            *prefix = packet_prefix(packet.len());
        }
        for ((parts, prefix), packet) in parts.chunks_exact_mut(2).zip(&prefixes).zip(packets) {
            (parts[0], parts[1]) = (IoSlice::new(prefix), IoSlice::new(packet));
        }
        outgoing.send(&self.writer, &parts[..2 * count])
    }

    /// Gives quinn the packets that have arrived whole. Also sends what an earlier call could not.
    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        self.flush(cx);
        let mut incoming = self.incoming.lock();
        loop {
            let mut taken = 0;
            for (buffer, meta) in bufs.iter_mut().zip(meta.iter_mut()).take(PACKETS_A_READ) {
                let Some(packet) = incoming.take().map_err(io::Error::other)? else { break };
                let len = packet.len().min(buffer.len());
                buffer[..len].copy_from_slice(&packet[..len]);
                *meta = RecvMeta { addr: self.peer, len, stride: len, ecn: None, dst_ip: None };
                taken += 1;
            }
            if taken > 0 {
                return Poll::Ready(Ok(taken));
            }
            match self.read(&mut incoming, cx) {
                Poll::Ready(read) => read?,
                // What the peer said before it closed its end has been read.
                Poll::Pending if self.outgoing().is_broken => {
                    return Poll::Ready(Err(ErrorKind::BrokenPipe.into()));
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        // quinn only looks at the family, which has to be the peer's.
        Ok(any_towards(self.peer.ip()))
    }

    fn max_transmit_segments(&self) -> usize {
        PACKETS_A_CALL
    }

    fn may_fragment(&self) -> bool {
        false
    }
}

/// Waits for room in a stream.
#[derive(Debug)]
struct StreamRoom(Arc<StreamSocket>);

impl UdpPoller for StreamRoom {
    fn poll_writable(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut outgoing = self.0.outgoing();
        if !outgoing.is_full || outgoing.is_broken {
            return Poll::Ready(Ok(()));
        }
        if !outgoing.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            outgoing.waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }
}
