//! The peers of a service, from its file of authorized keys.

use std::{
    collections::HashMap,
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use contract::{AuthorizedFileError, AuthorizedKey, AuthorizedKeyError, Fingerprint, read_authorized};
use thiserror::Error;

use super::trusted_file::read_trusted;

/// Why a file of authorized keys cannot be used.
#[derive(Debug, Error)]
pub(crate) enum PeersError {
    #[error("cannot read {path}, the file of authorized keys", path = .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{path}:{line}: {why}", path = .path.display())]
    Line { path: PathBuf, line: usize, why: AuthorizedKeyError },
}

/// The state of a file, by which a change is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileStamp {
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl FileStamp {
    /// Looks at a file; `None` if it is not there.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let found = fs::metadata(path).ok()?;
        Some(Self { inode: found.ino(), size: found.size(), changed: (found.ctime(), found.ctime_nsec()) })
    }
}

/// The peers that a service accepts, by their keys.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    by_key: HashMap<Fingerprint, AuthorizedKey>,
}

impl Peers {
    /// Reads a file of authorized keys. A file that is not there has none.
    pub(crate) fn read(path: &Path) -> Result<Self, PeersError> {
        let text = match read_trusted(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            text => text.map_err(|source| PeersError::Unreadable { path: path.into(), source })?,
        };
        let in_line = |AuthorizedFileError { line, why }| PeersError::Line { path: path.into(), line, why };
        let mut by_key = HashMap::<Fingerprint, AuthorizedKey>::new();
        for key in read_authorized(&text).map_err(in_line)? {
            let known = by_key.entry(key.key.fingerprint()).or_insert_with(|| key.clone());
            known.read.extend(key.read);
            known.write.extend(key.write);
        }
        Ok(Self { by_key })
    }

    /// Returns the peer with this key.
    pub(crate) fn of_key(&self, key: Fingerprint) -> Option<&AuthorizedKey> {
        self.by_key.get(&key)
    }

    pub(crate) fn fingerprints(&self) -> impl Iterator<Item = Fingerprint> {
        self.by_key.keys().copied()
    }

    pub(crate) fn has_name(&self, name: &str) -> bool {
        self.by_key.values().any(|key| key.peer == name)
    }

    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }
}
