//! The UDP socket of an endpoint. quinn passes ten packets at once, whatever their size; this socket splits them into
//! calls that the kernel accepts.

use std::{
    io::{self, IoSliceMut},
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use quinn::{
    AsyncUdpSocket, UdpPoller,
    udp::{RecvMeta, Transmit},
};

/// The most bytes that the kernel accepts in one call: those of an IPv4 datagram. A refused call would look like the
/// loss of ten packets.
pub(super) const CALL_BYTES: usize = 65_507;

/// The states of a socket: without a packet so far, with one, and given up.
const SILENT: u8 = 0;
const HEARD: u8 = 1;
const GIVEN_UP: u8 = 2;

#[derive(Debug)]
pub(super) struct Socket {
    inner: Arc<dyn AsyncUdpSocket>,
    state: AtomicU8,
}

impl Socket {
    pub(super) fn over(inner: Arc<dyn AsyncUdpSocket>) -> Arc<Self> {
        Arc::new(Self { inner, state: AtomicU8::new(SILENT) })
    }

    /// Gives up a path on which no packet has arrived; returns false on one that is only slow. From then on packets are
    /// dropped: an answer that is on its way must not complete a handshake that this end drops in the same moment.
    pub(super) fn give_up_if_silent(&self) -> bool {
        self.becomes(GIVEN_UP)
    }

    /// Moves to a state from [`SILENT`]; returns whether the socket is in it now.
    fn becomes(&self, state: u8) -> bool {
        match self.state.compare_exchange(SILENT, state, Relaxed, Relaxed) {
            Ok(_) => true,
            Err(already) => already == state,
        }
    }
}

impl AsyncUdpSocket for Socket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.inner).create_io_poller()
    }

    /// Sends the packets. If the kernel has no room for all of them, all are sent again; the peer drops duplicates.
    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        let Some(packet) = transmit.segment_size.filter(|_| transmit.contents.len() > CALL_BYTES) else {
            return self.inner.try_send(transmit);
        };
        for contents in transmit.contents.chunks(CALL_BYTES / packet * packet) {
            let segment_size = Some(packet).filter(|&packet| packet < contents.len());
            self.inner.try_send(&Transmit { contents, segment_size, ..*transmit })?;
        }
        Ok(())
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let received = self.inner.poll_recv(cx, bufs, meta);
        match received {
            Poll::Ready(Ok(1..)) if !self.becomes(HEARD) => Poll::Ready(Ok(0)),
            received => received,
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.inner.local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.inner.max_transmit_segments()
    }

    fn max_receive_segments(&self) -> usize {
        self.inner.max_receive_segments()
    }

    fn may_fragment(&self) -> bool {
        self.inner.may_fragment()
    }
}

#[cfg(test)]
mod tests {
    use std::{net::UdpSocket, time::Duration};

    use quinn::Runtime as _;

    use super::*;

    #[test]
    fn what_the_kernel_would_refuse_in_one_call_arrives_packet_by_packet() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _inside = runtime.enter();
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let socket = Socket::over(quinn::TokioRuntime.wrap_udp_socket(sender).unwrap());
        for packet in [1_200, 8_972, 16_376] {
            let contents: Vec<u8> = (0..packet * 9 + 700).map(|at| (at / packet) as u8).collect();
            let destination = receiver.local_addr().unwrap();
            let segment_size = Some(packet);
            let transmit =
                Transmit { destination, ecn: None, contents: &contents, segment_size, src_ip: None };
            let mut poller = Arc::clone(&socket).create_io_poller();
            runtime.block_on(std::future::poll_fn(|cx| poller.as_mut().poll_writable(cx))).unwrap();
            socket.try_send(&transmit).unwrap();
            let mut datagram = vec![0; 1 << 16];
            for expected in contents.chunks(packet) {
                let len = receiver.recv(&mut datagram).unwrap();
                assert!(datagram[..len] == *expected, "{len} bytes of {}, packets of {packet}", datagram[0]);
            }
        }
    }
}
