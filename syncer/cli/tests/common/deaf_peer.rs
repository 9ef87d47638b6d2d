//! An address at which nothing answers.

use std::{collections::BTreeSet, iter, net::UdpSocket};

/// The most attempts to dial in the time of `--connect-timeout=1`: they begin after 0, 0.1, 0.3 and 0.7 s. Without the
/// flag, nine begin.
pub const ATTEMPTS_IN_A_SECOND: usize = 4;

/// An address that is bound, so that no other process answers there.
#[derive(Debug)]
pub struct DeafPeer {
    socket: UdpSocket,
}

impl DeafPeer {
    pub fn bind() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        Self { socket }
    }

    pub fn address(&self) -> String {
        self.socket.local_addr().unwrap().to_string()
    }

    /// Returns the number of attempts to dial it since the last call. Each has a socket of its own.
    pub fn attempts(&self) -> usize {
        let datagrams = iter::from_fn(|| self.socket.recv_from(&mut [0; 2048]).ok());
        datagrams.map(|(_, from)| from).collect::<BTreeSet<_>>().len()
    }
}
