//! The folder of a store and the four folders in it. Each is opened once, by its name and never through a link, and
//! what it contains is reached by that descriptor alone. So another user who could write to the volume, as with an
//! `fsGroup`, leads no command out of it.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    sync::OnceLock,
};

use rustix::{
    fs::{AtFlags, FileType, OFlags},
    io::Errno,
};

use crate::root::open_child;

/// A folder in the folder of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreFolder {
    /// Contents in files of their own, in folders named by the first two digits of their ids.
    Content,
    /// The additions of publications that are not settled.
    New,
    /// The packs.
    Packs,
    /// Objects that are being removed.
    Trash,
}

impl StoreFolder {
    pub(crate) const ALL: [Self; 4] = [Self::Content, Self::New, Self::Packs, Self::Trash];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Content => "content",
            Self::New => "new",
            Self::Packs => "packs",
            Self::Trash => "trash",
        }
    }
}

/// The open folder of a store.
#[derive(Debug)]
pub(crate) struct StoreDir {
    fd: OwnedFd,
    /// The folders in it that were needed so far, in the order of [`StoreFolder::ALL`].
    folders: [OnceLock<OwnedFd>; 4],
}

impl StoreDir {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { fd, folders: Default::default() }
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Returns one of the folders. It can be worked in, and [`names`](super::store_files::names) lists it.
    ///
    /// # Errors
    /// `NotFound` if it is missing; if something else has its name.
    pub(crate) fn folder(&self, folder: StoreFolder) -> io::Result<BorrowedFd<'_>> {
        let opened = &self.folders[folder as usize];
        if let Some(fd) = opened.get() {
            return Ok(fd.as_fd());
        }
        let fd = open_folder(self.fd(), folder.name())?;
        Ok(opened.get_or_init(|| fd).as_fd())
    }
}

/// Opens the folder `name` in a folder of a store, to work in it.
///
/// # Errors
/// `NotFound` if it is missing; if something else has its name.
pub(crate) fn open_folder(dir: BorrowedFd<'_>, name: &str) -> io::Result<OwnedFd> {
    open_child(dir, name.as_bytes(), OFlags::PATH).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::NOTDIR | Errno::LOOP) => not_a_folder(dir, name),
        _ => error,
    })
}

fn not_a_folder(dir: BorrowedFd<'_>, name: &str) -> io::Error {
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
    let is_link = stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink);
    let what = if is_link { "a symbolic link" } else { "something else" };
    io::Error::new(io::ErrorKind::NotADirectory, format!("{name} is {what}, and no folder"))
}
