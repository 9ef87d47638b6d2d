//! The state of a service: its rules, its sessions, and the queues of its folders.

use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::Arc,
};

use contract::{Event, Fingerprint, FolderAccess, FolderRequest, ServedRun, printable};
use parking_lot::{Mutex, RwLock};
use syncer::session::{Guests, SessionError};

use super::{
    folder_queue::{QueueLengths, Turns},
    log_refused_peers::Refused,
    peers::FileStamp,
    revoked_sessions::{Entered, Sessions},
    rules::{Rules, RulesError},
    service_config::ServedFolder,
    service_metrics::Counts,
};
use crate::screen::Screen;

/// The most characters of a peer's text that are shown: more than a name has.
const MAX_SHOWN: usize = 200;

/// The state of a service.
#[derive(Debug)]
pub(crate) struct ServiceState {
    path: PathBuf,
    rules: RwLock<Arc<Rules>>,
    guests: Guests,
    queues: Mutex<HashMap<String, Arc<Turns>>>,
    sessions: Sessions,
    /// The stamp of the file of keys that could not be used.
    failed: Mutex<Option<FileStamp>>,
    pub(crate) counts: Counts,
    pub(crate) refused: Refused,
    /// Where each run is told, if that was asked for.
    screen: Option<Arc<Screen>>,
}

impl ServiceState {
    pub(crate) fn new(path: &Path, rules: Rules, screen: Option<Arc<Screen>>) -> Self {
        let guests = Guests::default();
        guests.replace(rules.peers.fingerprints());
        Self {
            path: path.into(),
            rules: RwLock::new(Arc::new(rules)),
            guests,
            queues: Mutex::default(),
            sessions: Sessions::default(),
            failed: Mutex::default(),
            counts: Counts::default(),
            refused: Refused::default(),
            screen,
        }
    }

    /// Prints a run on standard output, if that was asked for.
    pub(crate) fn record(&self, run: impl FnOnce() -> ServedRun) {
        let Some(screen) = &self.screen else { return };
        if let Err(error) = screen.event(&Event::Served(Box::new(run()))) {
            tracing::warn!(%error, "cannot tell of a run on standard output");
        }
    }

    /// Returns the list of accepted keys, which follows the files.
    pub(crate) fn guests(&self) -> &Guests {
        &self.guests
    }

    pub(crate) fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.rules.read())
    }

    /// Returns the queue of a folder, which outlives changes of the configuration.
    pub(crate) fn queue(&self, folder: &str) -> Arc<Turns> {
        Arc::clone(self.queues.lock().entry(folder.into()).or_default())
    }

    /// Returns the lengths of the queues by folder.
    pub(crate) fn queues(&self) -> BTreeMap<String, QueueLengths> {
        self.queues.lock().iter().map(|(folder, turns)| (folder.clone(), turns.lengths())).collect()
    }

    /// Reads all files again. The former rules stay if one of them cannot be used.
    pub(crate) fn reload(&self) -> Result<(), RulesError> {
        let rules = Rules::read(&self.path)?;
        let former = self.rules();
        let (old, new) = (&former.config, &rules.config);
        let stay = old.listen == new.listen && old.mode == new.mode && old.keys == new.keys;
        if !stay || old.metrics != new.metrics {
            tracing::warn!("`listen`, `link`, `identity` and `metrics` change with the next start only");
        }
        self.replace(rules);
        Ok(())
    }

    /// Reads the file of keys again if it has changed. Returns whether it has. A file that cannot be used is an error
    /// once, until it changes.
    pub(crate) fn reload_keys(&self) -> Result<bool, RulesError> {
        let rules = self.rules();
        let stamp = FileStamp::of(&rules.config.authorized);
        let mut failed = self.failed.lock();
        if stamp == rules.stamp || (stamp.is_some() && stamp == *failed) {
            return Ok(false);
        }
        *failed = stamp;
        self.replace(Rules::of(rules.config.clone())?);
        *failed = None;
        Ok(true)
    }

    /// Puts new rules in place, and ends the sessions that they do not allow, or not with these demands.
    fn replace(&self, rules: Rules) {
        let (former, rules) = (self.rules(), Arc::new(rules));
        self.guests.replace(rules.peers.fingerprints());
        *self.rules.write() = Arc::clone(&rules);
        self.sessions.end_forbidden(&former, &rules);
    }

    /// Ends all sessions, and those that begin later.
    pub(crate) fn stop(&self) {
        self.sessions.end_all();
    }

    /// Returns whether all sessions end.
    pub(crate) fn is_stopping(&self) -> bool {
        self.sessions.are_ending()
    }

    /// Notes a session, so that it ends when its peer loses its right. Returns what a peer may not do as an error.
    pub(crate) fn enter(
        &self,
        number: u64,
        key: Fingerprint,
        request: &FolderRequest,
    ) -> Result<Admitted<'_>, SessionError> {
        let access = request.access;
        let entered = self.sessions.enter(number, key, request);
        // Only after it was noted, or a reload in between would miss it.
        let rules = self.rules();
        let name = || rules.peers.of_key(key).map_or_else(|| key.to_string(), |peer| peer.peer.clone());
        let refused = || SessionError::NotAllowed {
            peer: name(),
            access: if access == FolderAccess::Read { "read" } else { "write to" },
            folder: shown(&request.folder),
        };
        let served = rules.permit(key, &request.folder, access).ok_or_else(refused)?;
        Ok(Admitted { served: served.clone(), peer: name(), session: entered })
    }
}

/// Returns the start of a peer's text, for messages and the log.
pub(super) fn shown(text: &str) -> String {
    printable(&text.chars().take(MAX_SHOWN).collect::<String>()).into_owned()
}

/// A peer that may use a folder.
#[derive(Debug)]
pub(crate) struct Admitted<'a> {
    pub(crate) served: ServedFolder,
    /// The peer's name.
    pub(crate) peer: String,
    /// Its session, which goes on until this is dropped.
    pub(crate) session: Entered<'a>,
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_of_keys_that_cannot_be_used_is_an_error_once() {
        let dir = tempfile::tempdir().unwrap();
        let (config, keys) = (dir.path().join("serve.toml"), dir.path().join("authorized"));
        fs::write(&config, "[folders.a]\npath = \"a\"\n").unwrap();
        fs::write(&keys, "").unwrap();
        let state = ServiceState::new(&config, Rules::read(&config).unwrap(), None);
        fs::write(&keys, "no line of a key").unwrap();
        assert!(state.reload_keys().is_err());
        assert!(!state.reload_keys().unwrap(), "it has not changed since");
        fs::write(&keys, "another line of no key").unwrap();
        assert!(state.reload_keys().is_err());
        fs::write(&keys, "# none").unwrap();
        assert!(state.reload_keys().unwrap());
    }
}
