//! Links two ends of a run in one process for tests, also over a path that loses packets.

use std::{
    net::{SocketAddr, UdpSocket},
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::Duration,
};

use contract::{Identity, IdentityPair, Side};

use crate::{
    measure::monitor::Monitor,
    transport::{
        Peer,
        quic::{
            End, Link, Port,
            dial::{Ways, dial},
            sockets::{LinkMode, Sockets},
        },
    },
};

/// How long a test waits for an event that must come.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// Listens on UDP and TCP at a free port of this machine. Also returns its address.
pub(super) fn listening(identity: &Identity) -> (Port, SocketAddr) {
    let sockets = Sockets::bind(([127, 0, 0, 1], 0).into(), LinkMode::Auto).unwrap();
    let address = sockets.address();
    (Port::listen_on(Some(sockets), None, identity, &[]).unwrap(), address)
}

/// The two ends of a run; the source dialled.
pub(super) struct Linked {
    pub source: (Link, Peer),
    pub sink: (Link, Peer),
}

impl Linked {
    pub(super) fn new() -> Self {
        Self::over(LinkMode::Auto)
    }

    pub(super) fn over(mode: LinkMode) -> Self {
        let pair = IdentityPair::generate("job").unwrap();
        let (port, address) = listening(&pair.sink);
        let ways = Ways::to(&address.to_string(), mode);
        let monitor = Monitor::default();
        let end = |side| End { side, bandwidth_limit: None };
        let (source, sink) = std::thread::scope(|scope| {
            let accepted = scope.spawn(|| port.accept(end(Side::Sink), &monitor).unwrap());
            let dialled = dial(ways, &pair.source, PATIENCE, end(Side::Source), &monitor);
            // Else a test that fails would wait for the other end.
            let dialled = dialled.inspect_err(|_| monitor.cancel()).unwrap();
            let begun = |mut link: Link| {
                let peer = link.next(&monitor);
                (link, peer)
            };
            (begun(dialled), begun(accepted.join().unwrap()))
        });
        Self { source, sink }
    }
}

/// A path to a listener. `passes` decides by the numbers of socket and packet which packets arrive.
pub(super) struct LossyPath {
    pub front: UdpSocket,
    pub listener: SocketAddr,
    pub passes: fn(usize, usize) -> bool,
    /// The answer to a packet that does not pass.
    pub junk: &'static [u8],
    pub is_over: AtomicBool,
}

impl LossyPath {
    /// Carries packets until the end; returns the number of packets of each socket, in the order of their first.
    pub(super) fn carry(&self) -> Vec<usize> {
        let back = UdpSocket::bind("127.0.0.1:0").unwrap();
        let tick = Some(Duration::from_millis(1));
        back.set_read_timeout(tick).unwrap();
        self.front.set_read_timeout(tick).unwrap();
        let mut sockets: Vec<(SocketAddr, usize)> = Vec::new();
        let (mut datagram, mut client) = ([0; 65_536], None);
        while !self.is_over.load(SeqCst) {
            if let Ok((len, from)) = self.front.recv_from(&mut datagram) {
                let known = sockets.iter().position(|(socket, _)| *socket == from);
                let number = known.unwrap_or(sockets.len());
                if known.is_none() {
                    sockets.push((from, 0));
                }
                sockets[number].1 += 1;
                if (self.passes)(number, sockets[number].1) {
                    client = Some(from);
                    back.send_to(&datagram[..len], self.listener).unwrap();
                } else if !self.junk.is_empty() {
                    self.front.send_to(self.junk, from).unwrap();
                }
            }
            if let (Ok(len), Some(client)) = (back.recv(&mut datagram), client) {
                self.front.send_to(&datagram[..len], client).unwrap();
            }
        }
        sockets.into_iter().map(|(_, packets)| packets).collect()
    }
}
