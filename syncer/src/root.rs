//! The root of a tree and the directories below it, reached by descriptors only: no path of a peer, and no symbolic
//! link that someone swaps in during a run, leads out of the root.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{Mode, OFlags, ResolveFlags},
    io::Errno,
};

use crate::path::RelPath;

/// Paths handed to the kernel stay below `PATH_MAX`, which counts the terminating NUL.
const MAX_HOP_BYTES: usize = 4000;

const DIR_FLAGS: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// An open root directory.
#[derive(Debug)]
pub struct Root {
    fd: OwnedFd,
}

impl Root {
    /// Opens `path` as a root. Symbolic links in `path` itself are followed: it is the user's own.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { fd: rustix::fs::open(path, flags, Mode::empty())? })
    }

    /// Opens the directory at `path` for reading its entries.
    pub fn read_dir(&self, path: &RelPath) -> io::Result<OwnedFd> {
        self.walk(path, OFlags::RDONLY)
    }

    /// Opens the directory at `path` as a place to work in; it need not be readable.
    pub fn dir(&self, path: &RelPath) -> io::Result<OwnedFd> {
        self.walk(path, OFlags::PATH)
    }

    /// Opens the file at `path` for reading. What it is has still to be looked at: it may be a pipe.
    pub fn file(&self, path: &RelPath) -> io::Result<OwnedFd> {
        let (dir, name) = path.split_last().ok_or(Errno::ISDIR)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(self.dir(&dir)?, name, flags, Mode::empty())?)
    }

    fn walk(&self, path: &RelPath, access: OFlags) -> io::Result<OwnedFd> {
        if path.is_root() {
            return open_beneath(&self.fd, b".", access);
        }
        let mut hops = hops(path.as_bytes());
        let last = hops.next_back().unwrap_or(b".");
        let mut dir: Option<OwnedFd> = None;
        for hop in hops {
            let next = open_beneath(dir.as_ref().unwrap_or(&self.fd), hop, OFlags::PATH)?;
            dir = Some(next);
        }
        open_beneath(dir.as_ref().unwrap_or(&self.fd), last, access)
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Opens one directory entry as a directory, never through a symbolic link.
pub fn open_child(dir: impl AsFd, name: &[u8], access: OFlags) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(dir, name, access | DIR_FLAGS, Mode::empty())?)
}

/// A path in pieces that the kernel takes, cut between names.
fn hops(path: &[u8]) -> std::vec::IntoIter<&[u8]> {
    let mut pieces = Vec::new();
    let mut rest = path;
    while rest.len() > MAX_HOP_BYTES {
        let cut = rest[..MAX_HOP_BYTES].iter().rposition(|&b| b == b'/').unwrap_or(MAX_HOP_BYTES);
        pieces.push(&rest[..cut]);
        rest = &rest[cut + 1..];
    }
    pieces.push(rest);
    pieces.into_iter()
}

fn open_beneath(dir: &OwnedFd, path: &[u8], access: OFlags) -> io::Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match rustix::fs::openat2(dir, path, access | DIR_FLAGS, Mode::empty(), resolve) {
        // An old kernel, or a container's system call filter: walk name by name, which is as safe and slower.
        Err(Errno::NOSYS | Errno::PERM) => open_stepwise(dir, path, access),
        result => Ok(result?),
    }
}

fn open_stepwise(dir: &OwnedFd, path: &[u8], access: OFlags) -> io::Result<OwnedFd> {
    let mut names = path.split(|&b| b == b'/').peekable();
    let mut at: Option<OwnedFd> = None;
    while let Some(name) = names.next() {
        let access = if names.peek().is_some() { OFlags::PATH } else { access };
        at = Some(open_child(at.as_ref().unwrap_or(dir), name, access)?);
    }
    at.ok_or_else(|| Errno::NOENT.into())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn rel(path: &str) -> RelPath {
        path.split('/').fold(RelPath::root(), |at, name| at.join(name.as_bytes()).unwrap())
    }

    #[test]
    fn a_symbolic_link_on_the_way_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("real/below")).unwrap();
        std::os::unix::fs::symlink("real", dir.path().join("link")).unwrap();
        let root = Root::open(dir.path()).unwrap();
        assert!(root.dir(&rel("real/below")).is_ok());
        assert!(root.dir(&rel("link/below")).is_err());
        assert!(root.dir(&rel("link")).is_err());
        assert!(open_stepwise(&root.fd, b"real/below", OFlags::PATH).is_ok());
        assert!(open_stepwise(&root.fd, b"link/below", OFlags::PATH).is_err());
    }

    #[test]
    fn a_path_at_the_limit_is_reached_in_hops() {
        let dir = tempfile::tempdir().unwrap();
        let mut path = RelPath::root();
        let mut at = Root::open(dir.path()).unwrap().fd;
        let name = [b'd'; 200];
        while let Ok(next) = path.join(&name) {
            rustix::fs::mkdirat(&at, &name[..], Mode::RWXU).unwrap();
            at = open_child(&at, &name, OFlags::PATH).unwrap();
            path = next;
        }
        assert!(path.as_bytes().len() > MAX_HOP_BYTES);
        assert!(Root::open(dir.path()).unwrap().read_dir(&path).is_ok());
    }
}
