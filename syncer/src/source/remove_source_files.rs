//! Removes entries of a source whose copies are durable, and were read back and compared with them.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use rustix::fs::{AtFlags, FileType, Stat};

use crate::{
    entry::{Entry, Kind},
    measure::report::Failures,
    path::RelPath,
    source::{
        paths_by_number::{EntriesOf, Paths},
        source_file::open_nonblocking,
    },
    sys::{in_motion::is_in_motion, root::Root, stat::modified},
    transport::TransportError,
    tree::{Tree, dir::ROOT},
    wire::FileGroup,
};

const NONE: TransportError =
    TransportError::Nonsense("something was to be removed that there is not, or that is a folder");

/// Removes these entries of the tree below `root`. One that has changed since it was listed stays, and is a failure.
///
/// # Errors
/// If the tree has no such entries, or one is a directory.
pub(crate) fn release(
    root: &Root,
    tree: &Tree,
    groups: &[FileGroup],
    failures: &Failures,
) -> Result<(), TransportError> {
    let (mut paths, mut entries) = (Paths::new(tree), EntriesOf::new(tree));
    for group in groups {
        let first = group.indices.first().copied().unwrap_or(0);
        let mut listed = (first..).zip(entries.from(group.dir, first).ok_or(NONE)?);
        let path = paths.of(group.dir);
        let dir = root.read_dir(&path);
        for wanted in &group.indices {
            let (_, entry) = listed.find(|(index, _)| index == wanted).ok_or(NONE)?;
            if entry.kind == Kind::Dir {
                return Err(NONE);
            }
            let file = file_of(tree, &entry).ok_or(NONE)?;
            let removed =
                dir.as_ref().map_err(again).and_then(|dir| remove(root, dir, &path, entry.name, &file));
            if let Err(error) = removed {
                let path = path.join(entry.name).unwrap_or_else(|_| path.clone());
                failures.add(&path, "remove at the source", &error);
            }
        }
    }
    Ok(())
}

fn again(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}

/// Returns the entry that lists the file of a hard link, or the entry itself.
fn file_of<'a>(tree: &'a Tree, entry: &Entry<'a>) -> Option<Entry<'a>> {
    let Kind::HardLink { to } = entry.kind else { return Some(*entry) };
    let (above, name) = RelPath::parse(to)
        .ok()
        .and_then(|path| path.split_last().map(|(above, name)| (above, Box::<[u8]>::from(name))))?;
    let mut id = ROOT;
    for step in above.names() {
        id = tree.dirs[id as usize].children().find(|(name, _)| *name == step)?.1;
    }
    tree.dirs[id as usize].listing.iter().find(|entry| *entry.name == *name)
}

/// Removes the entry `name` of the directory at `path`, if it still is the listed `file` and nobody is writing to it.
fn remove(root: &Root, dir: &OwnedFd, path: &RelPath, name: &[u8], file: &Entry<'_>) -> io::Result<()> {
    let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if !is_as_listed(&stat, file) {
        return Err(io::Error::other("it has changed since it was copied, and stays"));
    }
    if root.doubts(path, name, &stat) {
        return Err(io::Error::other(
            "a run that wrote to it was cut off, and it stays until one has completed it",
        ));
    }
    // A long write, or one to a mapping, changes no time.
    if let Kind::File { .. } = file.kind
        && is_in_motion(open_nonblocking(dir.as_fd(), name)?, &stat)
    {
        return Err(io::Error::other("another process may be writing to it, and it stays"));
    }
    Ok(rustix::fs::unlinkat(dir, name, AtFlags::empty())?)
}

fn is_as_listed(stat: &Stat, listed: &Entry<'_>) -> bool {
    let kind = FileType::from_raw_mode(stat.st_mode);
    let is_same = match listed.kind {
        Kind::File { size } => kind == FileType::RegularFile && stat.st_size as u64 == size,
        Kind::Symlink { .. } => kind == FileType::Symlink,
        Kind::Fifo => kind == FileType::Fifo,
        Kind::CharDevice { rdev } => kind == FileType::CharacterDevice && stat.st_rdev == rdev,
        Kind::BlockDevice { rdev } => kind == FileType::BlockDevice && stat.st_rdev == rdev,
        Kind::Dir | Kind::HardLink { .. } | Kind::Socket => false,
    };
    is_same && modified(stat) == listed.meta.mtime
}
