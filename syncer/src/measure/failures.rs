//! Collects the entries that a run fails with, from many threads.

use std::{
    collections::HashSet,
    fmt::Display,
    hash::{BuildHasher as _, RandomState},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use contract::{Failure, MAX_FAILURES};
use parking_lot::Mutex;

use crate::{hash::digest, path::RelPath};

/// The module that logs each failed file, for programs that show those lines or not.
pub const FAILED_FILES: &str = module_path!();

/// Entries that could not be synced. Each is counted once, and the first few are named.
#[derive(Debug, Default)]
pub struct Failures {
    count: AtomicU64,
    named: Mutex<NamedFailures>,
    /// Those that nothing has to wait for.
    put_off: Mutex<Vec<(RelPath, &'static str, String)>>,
    hasher: RandomState,
}

#[derive(Debug, Default, Clone)]
struct NamedFailures {
    first: Vec<Failure>,
    /// The hashes of all their paths.
    seen: HashSet<u64>,
    /// Digests of the paths that failed here, and of those that the peer reported.
    digests: [u64; 2],
    in_motion: FilesInMotion,
    /// The number of directories that were gone when they were to be read.
    gone_dirs: u64,
}

/// Files that were taken although they kept changing.
#[derive(Debug, Default, Clone)]
pub struct FilesInMotion {
    /// Their number.
    pub count: u64,
    /// The paths of the first of them.
    pub first: Vec<String>,
}

impl Failures {
    /// Adds and logs one failure.
    pub fn add(&self, path: &RelPath, operation: &str, error: &dyn Display) {
        tracing::warn!(%path, operation, %error, "failed");
        let failure =
            Failure { path: path.to_string(), operation: operation.into(), error: error.to_string() };
        let mut named = self.named.lock();
        if self.push(&mut named, failure) {
            named.digests[0] ^= word(&digest(&[path.as_bytes()]));
        }
    }

    /// Adds and logs a directory that was listed in the one above, and is gone: it was deleted or moved meanwhile.
    pub(crate) fn add_gone_dir(&self, path: &RelPath, error: &dyn Display) {
        self.add(path, "read directory", error);
        self.named.lock().gone_dirs += 1;
    }

    /// Returns the number of directories that were deleted or moved before they were read.
    pub(crate) fn gone_dirs(&self) -> u64 {
        self.named.lock().gone_dirs
    }

    /// Puts a failure off until [`Self::add_those_put_off`]: unlike the others, it keeps no deletes back.
    pub fn add_late(&self, path: RelPath, operation: &'static str, error: &dyn Display) {
        self.put_off.lock().push((path, operation, error.to_string()));
    }

    /// Adds the failures that were put off.
    pub fn add_those_put_off(&self) {
        let put_off = std::mem::take(&mut *self.put_off.lock());
        put_off.iter().for_each(|(path, operation, error)| self.add(path, operation, error));
    }

    /// Adds and logs a file that was taken although it kept changing. It does not count as failed.
    pub fn add_in_motion(&self, path: &RelPath) {
        tracing::warn!(%path, "it kept changing while it was read, and what was read last may be a mix");
        let mut named = self.named.lock();
        named.in_motion.count += 1;
        if named.in_motion.first.len() < MAX_FAILURES {
            named.in_motion.first.push(path.to_string());
        }
    }

    /// Returns the files that were taken although they kept changing.
    pub fn in_motion(&self) -> FilesInMotion {
        self.named.lock().in_motion.clone()
    }

    /// Adds the peer's count and named failures, and the digest of the paths that it counted.
    pub fn merge(&self, count: u64, named: Vec<Failure>, paths: u64) {
        let here = named.len() as u64;
        let mut known = self.named.lock();
        known.digests[1] ^= paths;
        for failure in named {
            self.push(&mut known, failure);
        }
        self.count.fetch_add(count.saturating_sub(here), Relaxed);
    }

    /// Returns a digest of the paths of all failures, in any order, by which two processes that compare the same trees
    /// can tell whether they had the same failures.
    pub fn paths(&self) -> u64 {
        let [here, peers] = self.named.lock().digests;
        if [here, peers] == [0, 0] { 0 } else { word(&digest(&[&here.to_le_bytes(), &peers.to_le_bytes()])) }
    }

    /// Returns whether the entry at `path` has failed in this process.
    pub fn has(&self, path: &RelPath) -> bool {
        self.named.lock().seen.contains(&self.hasher.hash_one(path.to_string()))
    }

    /// Returns their number.
    pub fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    /// Returns the first [`MAX_FAILURES`].
    pub fn named(&self) -> Vec<Failure> {
        self.named.lock().first.clone()
    }

    /// Returns those so far, for an attempt that may begin again.
    pub(crate) fn so_far(&self) -> FailuresThen {
        FailuresThen(self.named.lock().clone(), self.count())
    }

    /// Removes those that came later.
    pub(crate) fn go_back_to(&self, FailuresThen(named, count): &FailuresThen) {
        self.named.lock().clone_from(named);
        self.count.store(*count, Relaxed);
    }

    /// Removes all failures, because another process of the run reports them.
    pub fn forget(&self) {
        self.put_off.lock().clear();
        *self.named.lock() = NamedFailures::default();
        self.count.store(0, Relaxed);
    }

    /// Adds a failure, and returns whether its path is new.
    fn push(&self, named: &mut NamedFailures, failure: Failure) -> bool {
        let is_new = named.seen.insert(self.hasher.hash_one(&failure.path));
        if is_new {
            self.count.fetch_add(1, Relaxed);
        }
        if is_new && named.first.len() < MAX_FAILURES {
            named.first.push(failure);
        }
        is_new
    }
}

/// Returns the first 8 bytes of a digest.
fn word(digest: &[u8; 16]) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *digest;
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}

/// The failures up to a moment.
#[derive(Debug)]
pub(crate) struct FailuresThen(NamedFailures, u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_failures_are_named_but_all_are_counted() {
        let failures = Failures::default();
        for i in 0..25 {
            failures.add(&RelPath::root().join(format!("f{i}").as_bytes()).unwrap(), "read", &"broken");
        }
        assert_eq!(failures.count(), 25);
        assert_eq!(failures.named().len(), MAX_FAILURES);
        assert_eq!(failures.named()[0].path, "f0");
    }

    #[test]
    fn an_attempt_that_begins_again_has_only_the_failures_before_it() {
        let failures = Failures::default();
        let path = |name: &str| RelPath::root().join(name.as_bytes()).unwrap();
        failures.add(&path("scanned"), "list", &"broken");
        let before = failures.so_far();
        for _ in 0..2 {
            failures.go_back_to(&before);
            failures.add(&path("read"), "read", &"broken");
            failures.add_in_motion(&path("changing"));
        }
        assert_eq!((failures.count(), failures.in_motion().count), (2, 1));
        failures.go_back_to(&before);
        assert_eq!((failures.count(), failures.in_motion().count), (1, 0));
        assert!(!failures.has(&path("read")));
    }

    fn failed(paths: &[&str]) -> Failures {
        let failures = Failures::default();
        paths
            .iter()
            .for_each(|path| failures.add(&RelPath::parse(path.as_bytes()).unwrap(), "read", &"broken"));
        failures
    }

    #[test]
    fn only_failures_of_the_same_paths_have_the_same_digest() {
        let paths = |of: &[&str]| failed(of).paths();
        assert_eq!(paths(&["a", "b"]), paths(&["b", "a", "b"]));
        assert!(paths(&["a", "b"]) != paths(&["a", "c"]) && paths(&["a"]) != paths(&[]));
        let of_peer = |of: &[&str], peers: &[&str]| {
            let (here, there) = (failed(of), failed(peers));
            here.merge(there.count(), there.named(), there.paths());
            here.paths()
        };
        assert_eq!(of_peer(&["a"], &["b", "c"]), of_peer(&["a"], &["c", "b"]));
        assert!(of_peer(&["a"], &["b"]) != of_peer(&["a"], &["c"]));
        assert!(of_peer(&["a"], &["b"]) != of_peer(&["b"], &["a"]));
    }

    #[test]
    fn an_entry_that_fails_twice_counts_once() {
        let failures = Failures::default();
        let path = |name: &str| RelPath::parse(name.as_bytes()).unwrap();
        failures.add(&path("a"), "read", &"first");
        failures.add(&path("a"), "verify", &"second");
        failures.add(&path("b"), "verify", &"third");
        let errors: Vec<String> = failures.named().into_iter().map(|failure| failure.error).collect();
        assert_eq!((failures.count(), errors), (2, vec!["first".into(), "third".into()]));
    }
}
