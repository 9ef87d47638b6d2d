//! The id that a destination keeps from its first run on.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd},
};

use contract::VolumeId;
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};

use crate::{
    destination::{copy_bytes, state::own_file::open_own},
    path::OWN_DIR,
    sys::{
        random::fill_random,
        root::{Root, open_child},
    },
};

pub(crate) const VOLUME: &[u8] = b"volume";
/// The name of a new id, from before the first run begins to write: a run that a guard refused adopts nothing.
pub(crate) const NEW_VOLUME: &[u8] = b"volume.new";

/// The name of the id of the source that the copy is of.
const SOURCE: &[u8] = b"source";

/// 32 digits and a newline.
const FILE_BYTES: usize = 33;

/// Returns the id of the destination at `root`, if it has one. Changes nothing.
pub(crate) fn of(root: &Root) -> io::Result<Option<VolumeId>> {
    match open_child(root, OWN_DIR, OFlags::PATH) {
        Ok(dir) => read(dir.as_fd()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Records in the `.volferry/` that is open as `dir` that a run begins to write to the destination.
pub(crate) fn adopt(dir: BorrowedFd<'_>) -> io::Result<()> {
    match rustix::fs::renameat(dir, NEW_VOLUME, dir, VOLUME) {
        Err(Errno::NOENT) => Ok(()),
        result => Ok(result?),
    }
}

/// The id of a destination that is written to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OwnVolume {
    pub id: VolumeId,
    /// Whether a run has [adopted](adopt) the destination.
    pub is_adopted: bool,
}

/// Returns the id in the `.volferry/` that is open as `dir`. If there is none, writes the `known` one or a new one, and
/// syncs it to the disk before it returns, so that no report names an id that a crash takes back. The caller holds the
/// lock.
pub(crate) fn read_or_make(dir: BorrowedFd<'_>, known: Option<VolumeId>) -> io::Result<OwnVolume> {
    match read_file(dir, VOLUME)? {
        Some(id) => Ok(OwnVolume { id, is_adopted: true }),
        None => {
            let id = make(dir, known)?;
            // A folder that takes the place of another one goes on as that.
            known.map_or(Ok(()), |_| adopt(dir))?;
            Ok(OwnVolume { id, is_adopted: known.is_some() })
        }
    }
}

/// Reads the id, also under the name for new ones, from which another process may rename it meanwhile.
pub(crate) fn read(dir: BorrowedFd<'_>) -> io::Result<Option<VolumeId>> {
    for name in [VOLUME, NEW_VOLUME, VOLUME] {
        if let Some(id) = read_file(dir, name)? {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// Reads the id in one file; `None` if the file has no valid id, for example because a crash of the machine left it
/// empty.
fn read_file(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Option<VolumeId>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut text = [0; FILE_BYTES + 1];
    let len = rustix::io::read(&file, &mut text)?;
    let text = std::str::from_utf8(text.get(..len).unwrap_or_default()).ok();
    Ok(text.and_then(|text| text.strip_suffix('\n')).and_then(|text| text.parse().ok()))
}

/// Returns the id of the source that the copy is of; `None` if no run noted one.
pub(crate) fn source_of(dir: BorrowedFd<'_>) -> io::Result<Option<VolumeId>> {
    read_file(dir, SOURCE)
}

/// Notes the source that the copy is of, durably, unless it is noted.
pub(crate) fn note_source(dir: BorrowedFd<'_>, id: VolumeId) -> io::Result<()> {
    if source_of(dir)? == Some(id) { Ok(()) } else { write(dir, SOURCE, id) }
}

/// Writes the `known` id, the one that an earlier run began to write, or a new one.
fn make(dir: BorrowedFd<'_>, known: Option<VolumeId>) -> io::Result<VolumeId> {
    let id = match known.map_or_else(|| read_file(dir, NEW_VOLUME), |known| Ok(Some(known)))? {
        Some(id) => id,
        None => VolumeId::new(random()?),
    };
    write(dir, NEW_VOLUME, id)?;
    Ok(id)
}

/// Writes an id to a file, durably.
fn write(dir: BorrowedFd<'_>, name: &[u8], id: VolumeId) -> io::Result<()> {
    let file = open_own(dir, name, OFlags::WRONLY | OFlags::CREATE)?;
    rustix::fs::ftruncate(&file, FILE_BYTES as u64)?;
    copy_bytes::write_all(file.as_fd(), format!("{id}\n").as_bytes(), 0)?;
    rustix::fs::fsync(&file)?;
    sync_names(dir)
}

fn random() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    fill_random(&mut bytes)?;
    Ok(bytes)
}

/// Syncs the names in `.volferry/`, and the name of the folder itself.
fn sync_names(dir: BorrowedFd<'_>) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    for folder in [c".", c".."] {
        rustix::fs::fsync(rustix::fs::openat(dir, folder, flags, Mode::empty())?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::destination::is_adopted;

    #[test]
    fn a_destination_keeps_its_id_and_another_has_another() {
        let ids = [(); 2].map(|()| {
            let dir = tempfile::tempdir().unwrap();
            let root = Root::open(dir.path()).unwrap();
            assert_eq!(of(&root).unwrap(), None);
            assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "looking makes nothing");
            fs::create_dir(dir.path().join(".volferry")).unwrap();
            let state = fs::File::open(dir.path().join(".volferry")).unwrap();
            let id = read_or_make(state.as_fd(), None).unwrap().id;
            let again = read_or_make(state.as_fd(), None).unwrap();
            assert_eq!(again, OwnVolume { id, is_adopted: false });
            assert!(!is_adopted(&root));
            [(); 2].iter().for_each(|()| adopt(state.as_fd()).unwrap());
            assert!(is_adopted(&root));
            let adopted = read_or_make(state.as_fd(), None).unwrap();
            assert_eq!(adopted, OwnVolume { id, is_adopted: true });
            assert_eq!(of(&root).unwrap(), Some(id));
            id
        });
        assert_ne!(ids[0], ids[1]);
    }

    #[test]
    fn what_is_not_an_id_is_as_good_as_none() {
        let dir = tempfile::tempdir().unwrap();
        let state = fs::File::open(dir.path()).unwrap();
        let id = read_or_make(state.as_fd(), None).unwrap().id;
        adopt(state.as_fd()).unwrap();
        for content in
            [String::new(), id.to_string(), format!("{id}\n\n"), format!("{id} \n"), "\0".repeat(33)]
        {
            fs::write(dir.path().join("volume"), &content).unwrap();
            assert_eq!(read(state.as_fd()).unwrap(), None, "{content:?}");
        }
        assert_ne!(read_or_make(state.as_fd(), None).unwrap().id, id);
    }
}
