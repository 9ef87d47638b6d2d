//! Decides how many peers a service takes at once, and how many with one key, so that one does not keep out the others.

use std::sync::Arc;

use contract::Fingerprint;
use parking_lot::Mutex;
use syncer::session::Service;

/// The most peers of all folders with one key, with those that wait.
const MAX_VISITS_OF_KEY: usize = 8;

/// The peers that have or await a session, by their keys.
#[derive(Debug, Clone, Default)]
pub(super) struct Visits(Arc<Mutex<Vec<Fingerprint>>>);

impl Visits {
    /// Adds a peer, unless there are too many.
    pub(super) fn begin(&self, key: Fingerprint) -> bool {
        let mut keys = self.0.lock();
        let of_key = keys.iter().filter(|other| **other == key).count();
        let has_room = keys.len() < Service::MAX_VISITS && of_key < MAX_VISITS_OF_KEY;
        if has_room {
            keys.push(key);
        }
        has_room
    }

    pub(super) fn end(&self, key: Fingerprint) {
        let mut keys = self.0.lock();
        if let Some(at) = keys.iter().position(|other| *other == key) {
            keys.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use contract::OwnKey;

    use super::*;

    #[test]
    fn one_key_does_not_keep_out_the_others() {
        let visits = Visits::default();
        let [one, other] = [(); 2].map(|()| OwnKey::generate().unwrap().public().fingerprint());
        let begun = (0..20).filter(|_| visits.begin(one)).count();
        assert_eq!(begun, MAX_VISITS_OF_KEY);
        assert!(visits.begin(other));
        visits.end(one);
        assert!(visits.begin(one) && !visits.begin(one));
    }
}
