//! The peers that a listening end accepts, which may change while it listens.

use std::{collections::HashSet, sync::Arc};

use contract::Fingerprint;
use parking_lot::RwLock;

/// The fingerprints of the keys that peers may have. Clones share one list.
#[derive(Debug, Clone, Default)]
pub struct Guests(Arc<RwLock<HashSet<Fingerprint>>>);

impl Guests {
    /// Returns a list of one peer.
    pub(super) fn only(peer: Fingerprint) -> Self {
        let guests = Self::default();
        guests.replace([peer]);
        guests
    }

    /// Accepts these peers from now on, and no others. Connections that stand are not concerned.
    pub fn replace(&self, peers: impl IntoIterator<Item = Fingerprint>) {
        *self.0.write() = peers.into_iter().collect();
    }

    /// Returns whether the peer is accepted.
    pub(super) fn have(&self, peer: Fingerprint) -> bool {
        self.0.read().contains(&peer)
    }
}
