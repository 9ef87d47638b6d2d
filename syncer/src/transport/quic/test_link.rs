//! Links two ends of a run in one process, for tests.

use std::{net::SocketAddr, time::Duration};

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
