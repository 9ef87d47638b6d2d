//! Accepts the connections of the port for probes and metrics that a client may have at once, and closes others.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
};

use axum::serve::Listener;
use contract::client_bounds::{AdmittedClient, ClientBounds};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
};

/// A listener that bounds its clients.
pub(super) struct BoundedListener {
    listener: TcpListener,
    bounds: ClientBounds,
}

impl From<TcpListener> for BoundedListener {
    fn from(listener: TcpListener) -> Self {
        Self { listener, bounds: ClientBounds::default() }
    }
}

impl Listener for BoundedListener {
    type Io = BoundedStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (BoundedStream, SocketAddr) {
        loop {
            let (stream, from) = Listener::accept(&mut self.listener).await;
            if let Some(admitted) = self.bounds.admit(from.ip()) {
                return (BoundedStream { stream, _admitted: admitted }, from);
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that counts as its client's until it is closed.
pub(super) struct BoundedStream {
    stream: TcpStream,
    _admitted: AdmittedClient,
}

impl AsyncRead for BoundedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl AsyncWrite for BoundedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
