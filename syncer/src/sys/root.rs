//! Reaches the root of a tree and the directories below it by descriptors only. No path of a peer, and no symbolic link
//! that is swapped in during a run, leads out of the root.

mod make_missing;

use std::{
    collections::HashMap,
    ffi::CStr,
    io,
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Path, PathBuf},
    sync::OnceLock,
};

use parking_lot::RwLock;
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags, SeekFrom, Stat},
    io::Errno,
};
use thiserror::Error;

use crate::{
    path::RelPath,
    sys::{files_in_doubt::Doubt, listed_name::is_listed, stat::device_of_stat},
};

/// The longest path passed to the kernel, below `PATH_MAX`, which counts the terminating NUL.
const MAX_HOP_BYTES: usize = 4000;

const DIR_FLAGS: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The size of the buffer into which a folder's names are read.
const DIRENTS_BYTES: usize = 4 << 10;

/// The place of a tree: a trusted folder, and an untrusted way below it. Users of the volume could put a symbolic link
/// there, so no link below `trusted` is followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeLocation {
    /// Opened as written; its symbolic links are the user's own.
    pub trusted: PathBuf,
    /// The folder below it; [`RelPath::root`] for `trusted` itself.
    pub below: RelPath,
}

impl<P: AsRef<Path> + ?Sized> From<&P> for TreeLocation {
    fn from(trusted: &P) -> Self {
        Self { trusted: trusted.as_ref().into(), below: RelPath::root() }
    }
}

impl TreeLocation {
    /// Returns the whole path, for messages.
    pub fn path(&self) -> PathBuf {
        if self.below.is_root() { self.trusted.clone() } else { self.trusted.join(self.below.as_path()) }
    }

    /// Returns the location of the folder that contains its last name.
    pub(crate) fn folder(&self) -> Self {
        let trusted = self.trusted.clone();
        match self.below.split_last() {
            Some((below, _)) => Self { trusted, below },
            None => match trusted.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                Some(parent) => Self::from(parent),
                None => Self::from("."),
            },
        }
    }

    /// Returns the path without symbolic links, also of a folder that [`Root::prepare`] would make; `None` if it cannot
    /// be resolved.
    pub fn real_path(&self) -> Option<PathBuf> {
        let trusted = self.trusted.canonicalize().ok().or_else(|| {
            let parent = self.trusted.parent()?;
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            Some(parent.canonicalize().ok()?.join(self.trusted.file_name()?))
        })?;
        Some(Self { trusted, below: self.below.clone() }.path())
    }
}

/// The reason why a root cannot be opened.
#[derive(Debug, Error)]
pub enum RootError {
    /// It, or a folder on the way to it, is missing.
    #[error("{0} is not there")]
    Missing(PathBuf),
    /// A symbolic link is on the way to it.
    #[error(
        "{0} is a symbolic link, and none is followed below a volume's own folder: name the folder that it leads to, or remove it"
    )]
    Link(PathBuf),
    /// It is in the folder of a volume that has its snapshots.
    #[error(
        "{0} is in a folder .volferry, which is a volume's own and has its snapshots: name another place"
    )]
    Own(PathBuf),
    /// It, or a folder on the way to it, has another name, which the file system takes for this one.
    #[error("{0} is another spelling of a name: write it as its folder lists it")]
    OtherSpelling(PathBuf),
    /// Something that is no folder is on the way to it.
    #[error("{0} is not a folder")]
    NotAFolder(PathBuf),
    /// The system refused an operation.
    #[error("cannot {operation} {path}")]
    System {
        /// The operation.
        operation: &'static str,
        /// Its path.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
}

/// An open root directory, below which a tree is read or written.
#[derive(Debug)]
pub struct Root {
    fd: OwnedFd,
    elsewhere: Elsewhere,
    doubt: OnceLock<Doubt>,
}

/// Folders that are filled in another place before they move to their own.
#[derive(Debug, Default)]
struct Elsewhere {
    /// The directory that contains the folders that are not filled beside their places.
    base: OnceLock<OwnedFd>,
    /// The places of these folders, by their paths below the root.
    places: RwLock<HashMap<Box<[u8]>, FilledAt>>,
}

/// The place where a folder is filled.
#[derive(Debug, Clone)]
enum FilledAt {
    /// By this name in the base.
    Base(String),
    /// By this name beside its place.
    Beside(String),
}

/// A directory, and the path from there to a place.
struct PathFrom<'f> {
    base: &'f OwnedFd,
    path: Vec<u8>,
}

/// The place of a directory: its parent, and its name there.
#[derive(Debug)]
pub(crate) struct DirPlace {
    pub parent: OwnedFd,
    pub name: Box<[u8]>,
}

impl Elsewhere {
    /// Finds the place of a `path` that is filled elsewhere; `None` for any other.
    fn find<'f>(&'f self, root: &'f OwnedFd, path: &[u8]) -> Option<PathFrom<'f>> {
        let places = self.places.read();
        if places.is_empty() {
            return None;
        }
        let mut ends = (0..path.len()).filter(|&at| path[at] == b'/').chain([path.len()]);
        ends.find_map(|end| match places.get(&path[..end])? {
            FilledAt::Base(name) => {
                Some(PathFrom { base: self.base.get()?, path: [name.as_bytes(), &path[end..]].concat() })
            }
            FilledAt::Beside(name) => {
                let above = path[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
                Some(PathFrom { base: root, path: [&path[..above], name.as_bytes(), &path[end..]].concat() })
            }
        })
    }

    fn put(&self, path: &RelPath, place: FilledAt) {
        let mut places = self.places.write();
        places.insert(path.as_bytes().into(), place);
    }

    /// Returns the temporary name that the folder at `path` has beside its place, if it is filled there.
    fn beside(&self, path: &[u8]) -> Option<String> {
        let places = self.places.read();
        match places.get(path) {
            Some(FilledAt::Beside(name)) => Some(name.clone()),
            _ => None,
        }
    }
}

impl Root {
    /// Makes a root of an open directory, which was opened without following a link.
    pub(crate) fn of_dir(fd: OwnedFd) -> Self {
        Self { fd, elsewhere: Elsewhere::default(), doubt: OnceLock::new() }
    }

    /// Opens `path` as a root. Symbolic links in `path` itself are followed, because it is the user's own.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self::of_dir(rustix::fs::open(path, flags, Mode::empty())?))
    }

    /// Notes which files of a source are in doubt.
    pub(crate) fn set_doubt(&self, doubt: Doubt) {
        let _ = self.doubt.set(doubt);
    }

    /// Returns whether the file `name` of the directory at `dir` is in doubt. `stat` is its state.
    pub(crate) fn doubts(&self, dir: &RelPath, name: &[u8], stat: &Stat) -> bool {
        self.doubt.get().is_some_and(|doubt| doubt.covers(dir, name, stat))
    }

    /// Duplicates the root.
    pub fn again(&self) -> io::Result<Self> {
        Ok(Self::of_dir(self.fd.try_clone()?))
    }

    /// Opens the root at `place`, which must exist.
    pub fn enter(place: &TreeLocation) -> Result<Self, RootError> {
        let trusted = Self::open(&place.trusted).map_err(|error| refused("open", &place.trusted, error))?;
        trusted.descend(place, false)
    }

    /// Opens the folder below this one name by name, so that an error names the obstacle.
    fn descend(self, place: &TreeLocation, make: bool) -> Result<Self, RootError> {
        let mut at = self.fd;
        let mut path = place.trusted.clone();
        let mut names = place.below.names().peekable();
        while let Some(name) = names.next() {
            // Folders on the way need not be readable.
            let access = if names.peek().is_some() { OFlags::PATH } else { OFlags::RDONLY };
            path.push(std::ffi::OsStr::from_bytes(name));
            let next = match open_beneath(&at, name, access) {
                Err(error) if make && error.kind() == io::ErrorKind::NotFound => {
                    make_missing::make_in(&at, name).map_err(|error| refused("make", &path, error))?;
                    open_beneath(&at, name, access)
                }
                result => result,
            }
            .map_err(|error| {
                if is_link(&at, name) { RootError::Link(path.clone()) } else { refused("open", &path, error) }
            })?;
            if !is_listed(at.as_fd(), name).map_err(|error| refused("list the folder of", &path, error))? {
                return Err(RootError::OtherSpelling(path));
            }
            at = next;
        }
        Ok(Self::of_dir(at))
    }

    /// Returns the number of the file system that it is on.
    pub(crate) fn device(&self) -> io::Result<u64> {
        Ok(device_of_stat(&rustix::fs::fstat(&self.fd)?))
    }

    /// Opens the directory at `path` for reading its entries.
    pub fn read_dir(&self, path: &RelPath) -> io::Result<OwnedFd> {
        self.walk(path, OFlags::RDONLY)
    }

    /// Opens the directory at `path` as a place to work in; it need not be readable.
    pub fn dir(&self, path: &RelPath) -> io::Result<OwnedFd> {
        self.walk(path, OFlags::PATH)
    }

    /// Opens the file at `path` for reading. The caller checks its kind: it may be a pipe.
    pub fn file(&self, path: &RelPath) -> io::Result<OwnedFd> {
        let (dir, name) = path.split_last().ok_or(Errno::ISDIR)?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(self.dir(&dir)?, name, flags, Mode::empty())?)
    }

    /// Opens the file at `path` for reading and writing. The caller checks its kind.
    pub fn file_to_write(&self, path: &RelPath) -> io::Result<OwnedFd> {
        let (dir, name) = path.split_last().ok_or(Errno::ISDIR)?;
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(self.dir(&dir)?, name, flags, Mode::empty())?)
    }

    /// Returns the place of the directory at `path`, as it is now.
    pub(crate) fn place_of(&self, path: &RelPath) -> io::Result<DirPlace> {
        let (parent, name) = path.split_last().ok_or(Errno::BUSY)?;
        if let Some(name) = self.kept_beside(path) {
            return Ok(DirPlace { parent: self.dir(&parent)?, name: name.into_bytes().into() });
        }
        match self.elsewhere.find(&self.fd, path.as_bytes()) {
            Some(PathFrom { base, path }) if !path.contains(&b'/') => {
                Ok(DirPlace { parent: base.try_clone()?, name: path.into() })
            }
            _ => Ok(DirPlace { parent: self.dir(&parent)?, name: name.into() }),
        }
    }

    /// Notes that the folder at `path` is filled as `name` in `base`, which is the same for all: entries below `path`
    /// are opened there.
    pub fn keep_elsewhere(&self, path: &RelPath, base: BorrowedFd<'_>, name: String) -> io::Result<()> {
        if self.elsewhere.base.get().is_none() {
            let _ = self.elsewhere.base.set(base.try_clone_to_owned()?);
        }
        self.elsewhere.put(path, FilledAt::Base(name));
        Ok(())
    }

    /// Notes that the folder at `path` is filled as `name` beside its place: nothing can be moved there from another
    /// file system.
    pub fn keep_beside(&self, path: &RelPath, name: String) {
        self.elsewhere.put(path, FilledAt::Beside(name));
    }

    /// Returns the name beside its place that the folder at `path` has while it is filled.
    pub fn kept_beside(&self, path: &RelPath) -> Option<String> {
        self.elsewhere.beside(path.as_bytes())
    }

    /// Forgets all folders that were filled elsewhere.
    pub fn keep_at_places(&self) {
        self.elsewhere.places.write().clear();
    }

    fn walk(&self, path: &RelPath, access: OFlags) -> io::Result<OwnedFd> {
        if path.is_root() {
            return open_beneath(&self.fd, b".", access);
        }
        match self.elsewhere.find(&self.fd, path.as_bytes()) {
            Some(PathFrom { base, path }) => walk_from(base, &path, access),
            None => walk_from(&self.fd, path.as_bytes(), access),
        }
    }
}

impl AsFd for Root {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Opens one directory entry as a directory, never through a symbolic link.
pub fn open_child(dir: impl AsFd, name: &[u8], access: OFlags) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(dir, name, access | DIR_FLAGS, Mode::empty())?)
}

/// Calls `visit` with the name of each entry of an open folder. Reads through `dir` itself, which saves opening the
/// folder again, so no other thread may list it through the same descriptor meanwhile.
///
/// # Errors
/// If the folder cannot be read, and the errors of `visit`.
pub(crate) fn each_name(dir: impl AsFd, mut visit: impl FnMut(&CStr) -> io::Result<()>) -> io::Result<()> {
    let mut buffer = [MaybeUninit::uninit(); DIRENTS_BYTES];
    rustix::fs::seek(&dir, SeekFrom::Start(0))?;
    let mut entries = RawDir::new(&dir, &mut buffer);
    while let Some(entry) = entries.next() {
        let entry = entry?;
        if ![&b"."[..], b".."].contains(&entry.file_name().to_bytes()) {
            visit(entry.file_name())?;
        }
    }
    Ok(())
}

fn is_link(dir: &OwnedFd, name: &[u8]) -> bool {
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
    stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

fn refused(operation: &'static str, path: &Path, source: io::Error) -> RootError {
    match source.kind() {
        io::ErrorKind::NotFound => RootError::Missing(path.into()),
        io::ErrorKind::NotADirectory => RootError::NotAFolder(path.into()),
        _ => RootError::System { operation, path: path.into(), source },
    }
}

fn walk_from(base: &OwnedFd, path: &[u8], access: OFlags) -> io::Result<OwnedFd> {
    let mut hops = hops(path);
    let last = hops.next_back().unwrap_or(b".");
    let mut dir: Option<OwnedFd> = None;
    for hop in hops {
        let next = open_beneath(dir.as_ref().unwrap_or(base), hop, OFlags::PATH)?;
        dir = Some(next);
    }
    open_beneath(dir.as_ref().unwrap_or(base), last, access)
}

/// Splits a path between names into pieces that the kernel accepts.
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
    open_below(dir.as_fd(), path, access | DIR_FLAGS)
}

/// Opens the entry at `path` below `dir`, which exists, through no symbolic link. Its names must not contain `..`.
pub(crate) fn open_below(dir: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match rustix::fs::openat2(dir, path, flags, Mode::empty(), resolve) {
        // An old kernel or a container's filter refuses the call: walk name by name, which is as safe and slower.
        Err(Errno::NOSYS | Errno::PERM) => open_stepwise(dir, path, flags),
        result => Ok(result?),
    }
}

fn open_stepwise(dir: BorrowedFd<'_>, path: &[u8], flags: OFlags) -> io::Result<OwnedFd> {
    let mut names = path.split(|&b| b == b'/').peekable();
    let mut at: Option<OwnedFd> = None;
    while let Some(name) = names.next() {
        let above = at.as_ref().map_or(dir, AsFd::as_fd);
        at = Some(match names.peek() {
            Some(_) => open_child(above, name, OFlags::PATH)?,
            None => rustix::fs::openat(above, name, flags, Mode::empty())?,
        });
    }
    at.ok_or_else(|| Errno::NOENT.into())
}

#[cfg(test)]
mod tests;
