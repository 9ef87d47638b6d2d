//! The keys of a user of services, in the user's home: for each machine, the key by which its services know this user,
//! and their public keys.

use std::{
    env,
    fs::{self, File},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use contract::{IdentityError, KeyOwner, OwnKey, ParseParamError, PublicKey};
use rustix::process::geteuid;
use thiserror::Error;

use crate::{refuse_own_folder, report_file};

/// The permissions of other users to a folder, and those to write to it.
const OTHERS: u32 = 0o077;
const OTHERS_WRITE: u32 = 0o022;

/// Why the files of a service cannot be used.
#[derive(Debug, Error)]
pub(crate) enum OwnFilesError {
    #[error("there is no home folder: set HOME, or XDG_CONFIG_HOME")]
    NoHome,
    #[error("cannot use {path}", path = .path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{path}:1: {why}\nhint: remove it, and enroll again", path = .path.display())]
    Key { path: PathBuf, why: ParseParamError },
    #[error(
        "other users may write to {path}, so they may have put keys of theirs there (mode {mode:o})\nhint: run `chmod go-rwx \
         {path}`, and see that its files are yours",
        path = .path.display()
    )]
    Open { path: PathBuf, mode: u32 },
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// The files for the services of one machine.
#[derive(Debug, Clone)]
pub(crate) struct OwnFiles {
    /// Has a folder for each machine.
    services: PathBuf,
    folder: PathBuf,
}

impl OwnFiles {
    /// Names the files for the services of `host` in the home of this process's user.
    pub(crate) fn of_host(host: &str) -> Result<Self, OwnFilesError> {
        let filled = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let folder = filled("XDG_CONFIG_HOME").or_else(|| filled("HOME").map(|home| home.join(".config")));
        let services = folder.ok_or(OwnFilesError::NoHome)?.join("volferry/services");
        let folder = services.join(host);
        Ok(Self { services, folder })
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
        self.check_folders()?;
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

    /// Returns the address of the machine, if it is noted because only ssh knows the machine by its name.
    pub(crate) fn reached(&self) -> Option<String> {
        let text = fs::read_to_string(self.address()).ok()?;
        Some(text.trim().to_owned()).filter(|address| !address.is_empty())
    }

    /// Notes the address of the machine, or that its name is one.
    pub(crate) fn note_reached(&self, address: Option<&str>) -> Result<(), OwnFilesError> {
        let path = self.address();
        let noted = match address {
            Some(address) => report_file::write(&path, &format!("{address}\n")),
            None => fs::remove_file(&path).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            }),
        };
        noted.map_err(|source| OwnFilesError::File { path, source })
    }

    fn address(&self) -> PathBuf {
        self.folder.join("address")
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

    /// Makes the folder, which no other user may read, and takes the rights of others from one that is there.
    fn make_folder(&self) -> Result<(), OwnFilesError> {
        let in_folder = |source| OwnFilesError::File { path: self.folder.clone(), source };
        refuse_own_folder::check(&self.folder).map_err(in_folder)?;
        self.check_folders()?;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder).map_err(in_folder)?;
        for path in [&self.services, &self.folder] {
            close_to_others(path).map_err(|source| OwnFilesError::File { path: path.clone(), source })?;
        }
        Ok(())
    }

    /// Refuses folders that other users may write to: these could replace a key that is trusted.
    fn check_folders(&self) -> Result<(), OwnFilesError> {
        for path in [&self.services, &self.folder] {
            let mode = fs::metadata(path).map_or(0, |found| found.mode() & 0o777);
            if mode & OTHERS_WRITE != 0 {
                return Err(OwnFilesError::Open { path: path.clone(), mode });
            }
        }
        Ok(())
    }
}

/// Takes the rights of other users from a folder of this process's user, and says so.
fn close_to_others(path: &Path) -> io::Result<()> {
    let folder = File::open(path)?;
    let found = folder.metadata()?;
    let mode = found.mode() & 0o777;
    if mode & OTHERS == 0 || found.uid() != geteuid().as_raw() {
        return Ok(());
    }
    folder.set_permissions(fs::Permissions::from_mode(mode & !OTHERS))?;
    eprintln!("{} had mode {mode:o}: now only its owner may use it", path.display());
    Ok(())
}

/// Reads a key. Makes the file if it is not there; the key that root makes in a folder of another user is that user's.
pub(crate) fn read_or_make(path: &Path) -> Result<OwnKey, IdentityError> {
    let in_file = |source| IdentityError::File { path: path.into(), source };
    match OwnKey::read(path) {
        Err(IdentityError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            refuse_own_folder::check(path.parent().unwrap_or(path)).map_err(in_file)?;
            let key = OwnKey::generate()?;
            match key.write_for(path, KeyOwner::OfFolder) {
                // Another process has made it meanwhile.
                Err(IdentityError::File { source, .. }) if source.kind() == io::ErrorKind::AlreadyExists => {
                    OwnKey::read(path)
                }
                written => written.map(|()| key),
            }
        }
        read => read,
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn all_that_make_a_key_at_once_get_the_same() {
        let dir = tempfile::tempdir().unwrap();
        for round in 0..20 {
            let path = dir.path().join(format!("key{round}"));
            let keys: Vec<_> = thread::scope(|scope| {
                let make = || read_or_make(&path).unwrap().public();
                let made: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
                made.into_iter().map(|made| made.join().unwrap()).collect()
            });
            assert!(keys.iter().all(|key| *key == keys[0]), "{keys:?}");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 20);
    }

    #[test]
    fn a_folder_that_others_may_write_to_is_refused_and_one_that_they_may_read_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let services = dir.path().join("services");
        let files = OwnFiles { folder: services.join("nas"), services };
        let key = PublicKey::from_bytes(&[7; 32]).unwrap();
        files.set_service_key(7400, key).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        for folder in [&files.services, &files.folder] {
            assert_eq!(mode(folder), 0o700);
            set(folder, 0o755);
            assert_eq!(files.service_key(7400).unwrap(), Some(key), "reading alone changes nothing");
            files.read_or_make(&files.key()).unwrap();
            assert_eq!(mode(folder), 0o700);
            set(folder, 0o770);
            for refused in [files.service_key(7400).map(drop), files.read_or_make(&files.key()).map(drop)] {
                let refused = refused.unwrap_err().to_string();
                assert!(refused.contains("mode 770)\nhint: run `chmod go-rwx "), "{refused}");
            }
            set(folder, 0o700);
        }
    }
}
