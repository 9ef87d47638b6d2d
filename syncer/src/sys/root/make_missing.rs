//! Makes the folders that a destination lacks: the last name of the trusted path, and each below it.

use std::{io, os::fd::OwnedFd, path::Path};

use rustix::{
    fs::{Access, AtFlags, Mode, OFlags},
    io::Errno,
};

use super::{Root, RootError, TreeLocation, open_beneath, refused};

/// The mode of a new root, minus the process's umask.
const MADE_MODE: Mode = Mode::RWXU.union(Mode::RGRP).union(Mode::XGRP).union(Mode::ROTH).union(Mode::XOTH);

impl Root {
    /// Opens the root at `place` and makes missing folders with mode 0755. Of the trusted path only the last name is
    /// made, because a mistyped path should not become a tree of folders; of the way below it, each name.
    pub fn prepare(place: &TreeLocation) -> Result<Self, RootError> {
        let path = &place.trusted;
        let trusted = match Self::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_trusted(path)?;
                Self::open(path)
            }
            result => result,
        };
        trusted.map_err(|error| refused("open", path, error))?.descend(place, true)
    }

    /// Opens the folder in which [`Root::prepare`] would make the first missing folder of `place`.
    ///
    /// # Errors
    /// As [`Root::prepare`], also if this process may not make a folder there.
    pub fn above_missing(place: &TreeLocation) -> Result<Self, RootError> {
        let path = &place.trusted;
        let at = match Self::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
                let parent = parent.unwrap_or(Path::new("."));
                Self::open(parent).map_err(|error| refused("open", parent, error))?
            }
            result => result.map_err(|error| refused("open", path, error))?.nearest(place)?,
        };
        let access = Access::WRITE_OK | Access::EXEC_OK;
        let may = rustix::fs::accessat(&at.fd, c".", access, AtFlags::EACCESS);
        may.map_err(|error| refused("make", &place.path(), error.into())).map(|()| at)
    }

    /// Opens the last existing folder on the way to `place`.
    fn nearest(self, place: &TreeLocation) -> Result<Self, RootError> {
        let mut at = self.fd;
        for name in place.below.names() {
            match open_beneath(&at, name, OFlags::PATH) {
                Ok(next) => at = next,
                Err(error) if error.kind() == io::ErrorKind::NotFound => break,
                Err(error) => return Err(refused("open", &place.path(), error)),
            }
        }
        Ok(Self::of_dir(at))
    }
}

fn make_trusted(path: &Path) -> Result<(), RootError> {
    match rustix::fs::mkdir(path, MADE_MODE) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(Errno::NOENT) => Err(RootError::Missing(path.parent().unwrap_or(path).into())),
        Err(error) => Err(refused("make", path, error.into())),
    }
}

pub(super) fn make_in(dir: &OwnedFd, name: &[u8]) -> io::Result<()> {
    match rustix::fs::mkdirat(dir, name, MADE_MODE) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
