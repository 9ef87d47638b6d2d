//! Names of the files of a store, and basic operations on them.

use std::{
    io::{self, Read as _},
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, Mode, OFlags, Stat},
    io::Errno,
};

use super::store_dir::open_folder;
use crate::{
    destination::{create_own, write_all},
    hash::ContentId,
    root::{each_name, open_below, open_child},
    sys::{file_part::data_in, stat::regular},
};

/// The log of changes.
pub(crate) const AUDIT: &str = "audit";

/// The name of a pack in the folder of its publication.
pub(crate) const PACK_NEW: &str = "pack";

/// The ending of the name of an incomplete file.
pub(crate) const PART: &str = ".part";

/// The first bytes of a pack: its name and its version.
pub(crate) const PACK_MAGIC: &[u8; 8] = b"vfpack\x02\0";

/// The first bytes of a pack of the version that does not end with the record of its snapshot.
pub(crate) const OLD_PACK_MAGIC: &[u8; 8] = b"vfpack\x01\0";

/// Returns the path of content in a file of its own, below the folder of contents.
pub(crate) fn own_path(id: &ContentId) -> String {
    let name = id.to_string();
    format!("{}/{name}", &name[..2])
}

/// Opens the folder of the content named `id`, which is made if it is missing. `contents` is the folder of all.
pub(crate) fn open_content_folder(contents: BorrowedFd<'_>, id: &str) -> io::Result<OwnedFd> {
    let prefix = id.get(..2).ok_or(io::ErrorKind::InvalidInput)?;
    match open_folder(contents, prefix) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_dir(contents, prefix)?;
            open_folder(contents, prefix)
        }
        opened => opened,
    }
}

/// Opens the file at a path below a folder for reading, never through a link. The caller checks its kind.
pub(crate) fn open_file(dir: BorrowedFd<'_>, path: &str) -> io::Result<OwnedFd> {
    open_below(dir, path.as_bytes(), OFlags::RDONLY | OFlags::NONBLOCK)
}

/// Reads a regular file of at most `most` bytes; one that is missing counts as empty.
pub(crate) fn read_regular(dir: BorrowedFd<'_>, name: &str, most: u64) -> io::Result<Vec<u8>> {
    Ok(read_with_stat(dir, name, most)?.map(|file| file.bytes).unwrap_or_default())
}

/// A regular file that was read, with its status.
pub(crate) struct ReadFile {
    pub bytes: Vec<u8>,
    pub stat: Stat,
}

/// Reads a regular file of at most `most` bytes; `None` if it is missing.
pub(crate) fn read_with_stat(dir: BorrowedFd<'_>, name: &str, most: u64) -> io::Result<Option<ReadFile>> {
    let file = match open_file(dir, name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        result => result?,
    };
    let stat = regular(&file)?;
    if stat.st_size as u64 > most {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is longer than any such file"));
    }
    // With room for all of it, the file is read by one call.
    let mut bytes = Vec::with_capacity(stat.st_size as usize + 1);
    std::fs::File::from(file).take(most).read_to_end(&mut bytes)?;
    Ok(Some(ReadFile { bytes, stat }))
}

pub(crate) fn make_dir(dir: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    match rustix::fs::mkdirat(dir, name, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Returns the names in the folder `name` of `dir`, or in `dir` itself if `name` is a dot.
pub(crate) fn names(dir: BorrowedFd<'_>, name: &str) -> io::Result<Vec<String>> {
    let folder = open_child(dir, name.as_bytes(), OFlags::RDONLY)?;
    let mut names = Vec::new();
    each_name(&folder, |name| {
        names.push(name.to_string_lossy().into_owned());
        Ok(())
    })?;
    Ok(names)
}

/// Removes a folder that contains only files. A missing folder is no error.
pub(crate) fn remove_flat(dir: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    let folder = open_folder(dir, name)?;
    for inside in names(folder.as_fd(), ".")? {
        rustix::fs::unlinkat(&folder, inside, AtFlags::empty())?;
    }
    match rustix::fs::unlinkat(dir, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Writes a new file in the place of what has its name.
pub(crate) fn write_new(dir: BorrowedFd<'_>, name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let file = create_own(dir, name)?;
    write_all(file.as_fd(), bytes, 0)?;
    Ok(file)
}

/// Writes bytes to a new file, and leaves holes where they are zeros.
pub(crate) fn write_data(to: BorrowedFd<'_>, bytes: &[u8], offset: u64) -> io::Result<()> {
    data_in(bytes, offset).into_iter().try_for_each(|data| {
        let inside = (data.start - offset) as usize..(data.end - offset) as usize;
        write_all(to, &bytes[inside], data.start)
    })
}

/// Returns the free bytes of a file system, as `df` shows them: without those that are reserved for root.
pub(crate) fn free_bytes(dir: BorrowedFd<'_>) -> io::Result<u64> {
    let stat = rustix::fs::fstatvfs(dir)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}
