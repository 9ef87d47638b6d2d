//! The files of a user of services: for each machine, the key by which its
//! services know this user, and their public keys.

use std::{
    env, fs, io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use contract::{IdentityError, OwnKey, ParseParamError, PublicKey};
use thiserror::Error;

use crate::report_file;

/// Why the files of a service cannot be used.
#[derive(Debug, Error)]
pub(crate) enum OwnFilesError {
    #[error("there is no home folder: set HOME, or XDG_CONFIG_HOME")]
    NoHome,
    #[error("cannot use {path}", path = .path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{path}:1: {why}", path = .path.display())]
    Key { path: PathBuf, why: ParseParamError },
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// The files for the services of one machine.
#[derive(Debug, Clone)]
pub(crate) struct OwnFiles {
    folder: PathBuf,
}

impl OwnFiles {
    /// Names the files for the services of `host` in the home of this process's user.
    pub(crate) fn of_host(host: &str) -> Result<Self, OwnFilesError> {
        let filled = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let folder = filled("XDG_CONFIG_HOME").or_else(|| filled("HOME").map(|home| home.join(".config")));
        let folder = folder.ok_or(OwnFilesError::NoHome)?.join("volferry/services");
        Ok(Self { folder: folder.join(host) })
    }

    /// Returns the path of the key by which the services know this user.
    pub(crate) fn key(&self) -> PathBuf {
        self.folder.join("key")
    }

    /// Returns the path of a key that takes the place of that one.
    pub(crate) fn next_key(&self) -> PathBuf {
        self.folder.join("key.next")
    }

    /// Returns the public key of the service at a port; `None` if it is not known.
    pub(crate) fn service_key(&self, port: u16) -> Result<Option<PublicKey>, OwnFilesError> {
        let path = self.pin(port);
        match fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(OwnFilesError::File { path, source }),
            Ok(text) => text.trim().parse().map(Some).map_err(|why| OwnFilesError::Key { path, why }),
        }
    }

    /// Notes the public key of the service at a port.
    pub(crate) fn set_service_key(&self, port: u16, key: PublicKey) -> Result<(), OwnFilesError> {
        self.make_folder()?;
        let path = self.pin(port);
        report_file::write(&path, &format!("{key}\n")).map_err(|source| OwnFilesError::File { path, source })
    }

    /// Reads a key of these files. Makes it if it is not there.
    pub(crate) fn read_or_make(&self, path: &Path) -> Result<OwnKey, OwnFilesError> {
        self.make_folder()?;
        Ok(read_or_make(path)?)
    }

    /// Returns the path of the public key of the service at a port.
    pub(crate) fn pin(&self, port: u16) -> PathBuf {
        self.folder.join(format!("{port}.pub"))
    }

    /// Makes the folder, which no other user may read.
    fn make_folder(&self) -> Result<(), OwnFilesError> {
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder);
        made.map_err(|source| OwnFilesError::File { path: self.folder.clone(), source })
    }
}

/// Reads a key. Makes the file if it is not there.
pub(crate) fn read_or_make(path: &Path) -> Result<OwnKey, IdentityError> {
    match OwnKey::read(path) {
        Err(IdentityError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            let key = OwnKey::generate()?;
            key.write(path)?;
            Ok(key)
        }
        read => read,
    }
}
