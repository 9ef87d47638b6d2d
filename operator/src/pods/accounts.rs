//! Remembers the service accounts of pods that this operator has created, so that they are not created again for each
//! run.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;

/// The accounts with their bindings that have been created, by SyncJob.
#[derive(Debug, Default)]
pub struct Accounts {
    made: Mutex<HashMap<String, HashSet<String>>>,
}

impl Accounts {
    /// Returns whether this account of a SyncJob has been created.
    pub fn has(&self, namespace: &str, job: &str, account: &str) -> bool {
        self.made.lock().get(&key(namespace, job)).is_some_and(|made| made.contains(account))
    }

    /// Notes that an account of a SyncJob has been created.
    pub fn note(&self, namespace: &str, job: &str, account: &str) {
        self.made.lock().entry(key(namespace, job)).or_default().insert(account.into());
    }

    /// Forgets the accounts of a SyncJob, because the SyncJob or one of the accounts is gone.
    pub fn forget(&self, namespace: &str, job: &str) {
        self.made.lock().remove(&key(namespace, job));
    }
}

fn key(namespace: &str, job: &str) -> String {
    format!("{namespace}/{job}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_made_is_known_until_its_job_is_gone() {
        let accounts = Accounts::default();
        accounts.note("n", "web", "a");
        let has = |job, account| accounts.has("n", job, account);
        assert!(has("web", "a") && !has("web", "b") && !has("db", "a"));
        accounts.forget("n", "web");
        assert!(!accounts.has("n", "web", "a"));
    }
}
