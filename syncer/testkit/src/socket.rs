//! UDP sockets that send and receive many datagrams a call, with the kernel's offloads.

use std::{
    io::{self, IoSliceMut},
    net::{SocketAddr, UdpSocket},
};

use quinn_udp::{BATCH_SIZE, EcnCodepoint, RecvMeta, Transmit, UdpSocketState};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    net::sockopt,
};

/// The buffer size of a socket in bytes, enough for a burst of a sender without delay.
const BUFFER_BYTES: usize = 16 << 20;

/// A UDP socket with the kernel's offloads enabled.
pub(crate) struct Socket {
    pub(crate) socket: UdpSocket,
    pub(crate) state: UdpSocketState,
}

impl Socket {
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = UdpSocket::bind(address)?;
        enlarge(&socket)?;
        let state = UdpSocketState::new((&socket).into())?;
        Ok(Self { socket, state })
    }

    pub(crate) fn send(
        &self,
        destination: SocketAddr,
        ecn: Option<EcnCodepoint>,
        contents: &[u8],
        segment_size: Option<usize>,
    ) -> io::Result<()> {
        let transmit = Transmit { destination, ecn, contents, segment_size, src_ip: None };
        loop {
            match self.state.send((&self.socket).into(), &transmit) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable()?,
                other => return other,
            }
        }
    }

    fn writable(&self) -> io::Result<()> {
        let limit = Timespec { tv_sec: 1, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.socket, PollFlags::OUT)], Some(&limit))?;
        Ok(())
    }
}

/// Buffers for the datagrams of one call, and their metadata.
pub(crate) struct Received {
    buffers: Vec<Box<[u8]>>,
    metas: Vec<RecvMeta>,
    count: usize,
}

impl Received {
    pub(crate) fn new() -> Self {
        Self {
            buffers: (0..BATCH_SIZE).map(|_| vec![0; 1 << 16].into_boxed_slice()).collect(),
            metas: vec![RecvMeta::default(); BATCH_SIZE],
            count: 0,
        }
    }

    /// Reads the available datagrams, if any.
    pub(crate) fn read(&mut self, from: &Socket) -> io::Result<()> {
        let mut slices: Vec<IoSliceMut<'_>> =
            self.buffers.iter_mut().map(|buffer| IoSliceMut::new(buffer)).collect();
        self.count = match from.state.recv((&from.socket).into(), &mut slices, &mut self.metas) {
            Ok(count) => count,
            // Reports an earlier, refused datagram, which UDP allows to lose.
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionRefused | io::ErrorKind::Interrupted
                ) =>
            {
                0
            }
            Err(error) => return Err(error),
        };
        Ok(())
    }

    /// Returns the single datagrams; datagrams joined by the kernel are split.
    pub(crate) fn datagrams(&self) -> impl Iterator<Item = (&RecvMeta, &[u8])> {
        let read = self.metas.iter().zip(&self.buffers).take(self.count);
        read.flat_map(|(meta, buffer)| {
            buffer[..meta.len].chunks(meta.stride.max(1)).map(move |datagram| (meta, datagram))
        })
    }
}

/// Enlarges the buffers of a socket. Only root may exceed the system's limit; with smaller buffers, a fast sender meets
/// losses that were not configured.
pub(crate) fn enlarge(socket: &UdpSocket) -> io::Result<()> {
    if sockopt::set_socket_recv_buffer_size_force(socket, BUFFER_BYTES).is_err() {
        sockopt::set_socket_recv_buffer_size(socket, BUFFER_BYTES)?;
    }
    if sockopt::set_socket_send_buffer_size_force(socket, BUFFER_BYTES).is_err() {
        sockopt::set_socket_send_buffer_size(socket, BUFFER_BYTES)?;
    }
    Ok(())
}
