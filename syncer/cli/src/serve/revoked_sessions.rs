//! Ends the sessions of a service whose peers lose their right, and all when it stops.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use contract::{Fingerprint, FolderAccess, FolderRequest, Reason, RunResult};
use parking_lot::Mutex;
use syncer::{monitor::Monitor, session::Outcome};

use super::rules::Rules;

/// A session of a peer, or its wait for one.
#[derive(Debug)]
struct Present {
    number: u64,
    key: Fingerprint,
    folder: String,
    access: FolderAccess,
    monitor: Arc<Monitor>,
    forbidden: Arc<OnceLock<Forbidden>>,
}

/// Why a session must not go on, for the program and for people.
type Forbidden = (Reason, &'static str);

impl Present {
    /// Returns why the session must not go on by the new rules, if that is so.
    fn why_forbidden(&self, former: &Rules, rules: &Rules) -> Option<Forbidden> {
        let Some(now) = rules.permit(self.key, &self.folder, self.access) else {
            return Some((Reason::NotAllowed, "the run was stopped, because the right of its peer is gone"));
        };
        let before = former.config.folders.get(&self.folder);
        let stays = before.is_some_and(|before| now.is_as_strict(before));
        let changed = "the run was stopped, because the folder's demands changed; the next one keeps to them";
        (!stays).then_some((Reason::Canceled, changed))
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
        let forbidden = Arc::default();
        let (ended_by, why) = (Arc::clone(&monitor), Arc::clone(&forbidden));
        self.present.lock().push(Present { number, key, folder, access, monitor: ended_by, forbidden: why });
        if self.are_ending() {
            monitor.cancel();
        }
        Entered { sessions: self, number, monitor, forbidden }
    }

    /// Ends the sessions that the rules do not allow, or not with these demands.
    pub(super) fn end_forbidden(&self, former: &Rules, rules: &Rules) {
        for session in self.present.lock().iter() {
            if let Some(forbidden) = session.why_forbidden(former, rules) {
                let (_, why) = session.forbidden.get_or_init(|| forbidden);
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
    forbidden: Arc<OnceLock<Forbidden>>,
}

impl Entered<'_> {
    /// Returns the outcome of a run of this session; one that the rules have ended says so.
    pub(super) fn explained(&self, outcome: &Outcome) -> Outcome {
        let mut outcome = outcome.clone();
        if let (RunResult::Canceled, Some((reason, why))) = (outcome.report.result, self.forbidden.get()) {
            (outcome.report.reason, outcome.report.message) = (Some(reason.clone()), (*why).into());
        }
        outcome
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.sessions.present.lock().retain(|session| session.number != self.number);
    }
}
