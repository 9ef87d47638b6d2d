//! Links two ends of a run in one process, for tests.

use std::time::Duration;

use contract::{IdentityPair, Side};

use super::{End, Link, Port, dial};
use crate::{monitor::Monitor, transport::Peer};

/// How long a test waits for an event that must come.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

/// The two ends of a run; the source dialled.
pub(super) struct Linked {
    pub source: (Link, Peer),
    pub sink: (Link, Peer),
}

impl Linked {
    pub(super) fn new() -> Self {
        let pair = IdentityPair::generate("job").unwrap();
        let port = Port::listen("127.0.0.1:0".parse().unwrap(), &pair.sink).unwrap();
        let address = port.local_addr().unwrap().to_string();
        let monitor = Monitor::default();
        let end = |side| End { side, bandwidth_limit: None };
        let (source, sink) = std::thread::scope(|scope| {
            let accepted = scope.spawn(|| port.accept(end(Side::Sink), &monitor).unwrap());
            let dialled = dial(&address, &pair.source, PATIENCE, end(Side::Source), &monitor).unwrap();
            let begun = |mut link: Link| {
                let peer = link.next(&monitor);
                (link, peer)
            };
            (begun(dialled), begun(accepted.join().unwrap()))
        });
        Self { source, sink }
    }
}
