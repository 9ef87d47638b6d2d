//! Ends the sessions of a service whose peers lose their right, and all when it stops.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use contract::{Fingerprint, FolderAccess, FolderRequest};
use parking_lot::Mutex;
use syncer::monitor::Monitor;

use super::rules::Rules;

/// A session of a peer, or its wait for one.
#[derive(Debug)]
struct Present {
    number: u64,
    key: Fingerprint,
    folder: String,
    access: FolderAccess,
    monitor: Arc<Monitor>,
}

impl Present {
    /// Returns why the session must not go on by the new rules, if that is so.
    fn why_forbidden(&self, former: &Rules, rules: &Rules) -> Option<&'static str> {
        let Some(now) = rules.permit(self.key, &self.folder, self.access) else {
            return Some("its right is gone");
        };
        let before = former.config.folders.get(&self.folder);
        let stays = before.is_some_and(|before| now.is_as_strict(before));
        (!stays).then_some("the folder's demands changed")
    }
}

/// The sessions that go on.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    present: Mutex<Vec<Present>>,
    are_ending: AtomicBool,
}

impl Sessions {
    /// Notes a session, so that it ends when its peer loses its right.
    pub(super) fn enter(&self, number: u64, key: Fingerprint, request: &FolderRequest) -> Entered<'_> {
        let monitor = Arc::new(Monitor::default());
        let (folder, access) = (request.folder.clone(), request.access);
        self.present.lock().push(Present { number, key, folder, access, monitor: Arc::clone(&monitor) });
        if self.are_ending() {
            monitor.cancel();
        }
        Entered { sessions: self, number, monitor }
    }

    /// Ends the sessions that the rules do not allow, or not with these demands.
    pub(super) fn end_forbidden(&self, former: &Rules, rules: &Rules) {
        for session in self.present.lock().iter() {
            if let Some(why) = session.why_forbidden(former, rules) {
                tracing::warn!(folder = session.folder, key = %session.key, why, "the session of a peer ends");
                session.monitor.cancel();
            }
        }
    }

    /// Ends all sessions, and those that begin later.
    pub(super) fn end_all(&self) {
        self.are_ending.store(true, SeqCst);
        self.present.lock().iter().for_each(|session| session.monitor.cancel());
    }

    /// Returns whether all sessions end.
    pub(super) fn are_ending(&self) -> bool {
        self.are_ending.load(SeqCst)
    }
}

/// A session that is noted until this is dropped.
#[derive(Debug)]
pub(crate) struct Entered<'a> {
    sessions: &'a Sessions,
    number: u64,
    /// What ends it.
    pub(crate) monitor: Arc<Monitor>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.sessions.present.lock().retain(|session| session.number != self.number);
    }
}
