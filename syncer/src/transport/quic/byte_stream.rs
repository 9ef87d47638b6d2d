//! A stream of bytes in each direction that carries QUIC's packets: a TCP connection, or standard input and output of a
//! command.

use std::{
    io::{self, IoSlice},
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    task::{Context, Poll},
};

use contract::LinkKind;
use rustix::{
    fs::{FileType, fstat},
    pipe::fcntl_setpipe_size,
};
use tokio::net::{
    TcpStream, UnixStream,
    unix::pipe::{Receiver, Sender},
};

/// The address that QUIC knows the other end of a command by. Nothing is sent there.
const NOWHERE: ([u8; 4], u16) = ([127, 0, 0, 1], 1);

/// The bytes that a pipe is asked to hold: those that the kernel allows everybody, which take all packets of one call.
/// With its usual 64 KiB, one gibibyte over ssh takes a fifth longer.
const PIPE_BYTES: usize = 1 << 20;

/// A stream of bytes in each direction.
#[derive(Debug)]
pub struct ByteStream {
    reader: OwnedFd,
    writer: OwnedFd,
    peer: SocketAddr,
    kind: LinkKind,
}

impl ByteStream {
    /// Takes the pipes or sockets that lead to the other end of a command, such as ssh.
    pub fn of_command(reader: OwnedFd, writer: OwnedFd) -> Self {
        Self { reader, writer, peer: NOWHERE.into(), kind: LinkKind::Ssh }
    }

    /// Takes an established TCP connection.
    pub(super) fn of_tcp(connection: TcpStream) -> io::Result<Self> {
        let peer = connection.peer_addr()?;
        connection.set_nodelay(true)?;
        let connection = connection.into_std()?;
        let writer = connection.try_clone()?.into();
        Ok(Self { reader: connection.into(), writer, peer, kind: LinkKind::Tcp })
    }

    /// Returns another handle of the same stream.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        let (reader, writer) = (self.reader.try_clone()?, self.writer.try_clone()?);
        Ok(Self { reader, writer, ..*self })
    }

    pub(super) fn peer(&self) -> SocketAddr {
        self.peer
    }

    pub(super) fn kind(&self) -> LinkKind {
        self.kind
    }

    /// Prepares both directions for a runtime, which the caller is in.
    pub(super) fn halves(self) -> io::Result<(ReadHalf, WriteHalf)> {
        Ok((ReadHalf::new(self.reader)?, WriteHalf::new(self.writer)?))
    }
}

/// Returns the address of any interface, in the family of `peer`.
pub(super) fn any_towards(peer: IpAddr) -> SocketAddr {
    match peer {
        IpAddr::V4(_) => ([0; 4], 0).into(),
        IpAddr::V6(_) => ([0; 16], 0).into(),
    }
}

/// Declares one direction of a stream, over what it may be.
macro_rules! half {
    ($name:ident, $pipe:ty, $poll:ident) => {
        #[derive(Debug)]
        pub(super) enum $name {
            /// A socket: sshd and socket pairs have these. TCP connections are read and written in the same way.
            Socket(UnixStream),
            Pipe($pipe),
        }

        impl $name {
            fn new(end: OwnedFd) -> io::Result<Self> {
                Ok(match FileType::from_raw_mode(fstat(&end)?.st_mode) {
                    FileType::Fifo => {
                        // A user over its limit of memory for pipes keeps the smaller one.
                        let _ = fcntl_setpipe_size(&end, PIPE_BYTES);
                        Self::Pipe(<$pipe>::from_owned_fd(end)?)
                    }
                    _ => {
                        let socket = std::os::unix::net::UnixStream::from(end);
                        socket.set_nonblocking(true)?;
                        Self::Socket(UnixStream::from_std(socket)?)
                    }
                })
            }

            pub(super) fn $poll(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                match self {
                    Self::Socket(socket) => socket.$poll(cx),
                    Self::Pipe(pipe) => pipe.$poll(cx),
                }
            }
        }
    };
}

half!(ReadHalf, Receiver, poll_read_ready);
half!(WriteHalf, Sender, poll_write_ready);

impl ReadHalf {
    pub(super) fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Socket(socket) => socket.try_read(buffer),
            Self::Pipe(pipe) => pipe.try_read(buffer),
        }
    }
}

impl WriteHalf {
    pub(super) fn try_write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Self::Socket(socket) => socket.try_write_vectored(parts),
            Self::Pipe(pipe) => pipe.try_write_vectored(parts),
        }
    }
}
