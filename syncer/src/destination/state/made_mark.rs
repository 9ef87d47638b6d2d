//! The mark in `.volferry/` by which a run knows that runs made the folder, before it changes or removes anything.
//!
//! Another user who may rename entries in the destination's root could put any folder in the place of `.volferry/`,
//! also one of this process's user. Such a user cannot put a mark into it.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd},
    path::{Path, PathBuf},
};

use contract::VolumeId;
use rustix::{
    fs::{FileType, Mode, OFlags, Stat},
    io::Errno,
};

use crate::{
    destination::{
        copy_bytes,
        state::{
            own_file::create_own,
            state_names::{FOLDERS, MARK, NEW_MARK, SHARDS, is_made_by_runs, open_inside},
            volume_id::{NEW_VOLUME, VOLUME},
        },
    },
    sys::{root::each_name, source_id::renumbers},
};

/// The length of a longer file than any mark.
const MAX_BYTES: usize = 256;

/// A folder in the place of `.volferry/` that runs did not make, as far as this can be told.
#[derive(Debug, thiserror::Error)]
#[error(
    "{path} has no mark that volferry made it, and holds {entry}: another user may have renamed another folder, so nothing in it is changed \
     or removed\nhint: look at what is in it; if it is volferry's, as after the volume was copied or brought back by another program, remove its \
     file `made`; else rename it"
)]
pub(crate) struct NotMade {
    path: PathBuf,
    entry: String,
}

/// Checks that runs made the `.volferry/` that is open as `dir`, or that they can take it because nothing in it would
/// be lost. Returns whether it has a valid mark. Changes nothing.
///
/// # Errors
/// [`NotMade`].
pub(crate) fn check(dir: BorrowedFd<'_>, stat: &Stat, path: &Path) -> io::Result<bool> {
    let proof = proof_of(dir, stat)?;
    if proof != MadeProof::None {
        return Ok(proof == MadeProof::Mark);
    }
    let Some(entry) = first_foreign(dir)? else { return Ok(false) };
    // A run that has made the folder meanwhile marks it before it puts anything there.
    match proof_of(dir, stat)? {
        MadeProof::None => Err(io::Error::other(NotMade { path: path.into(), entry })),
        proof => Ok(proof == MadeProof::Mark),
    }
}

/// Writes the mark of the volume with this `id`, durably.
pub(crate) fn write(dir: BorrowedFd<'_>, id: VolumeId) -> io::Result<()> {
    let text = text(dir, &rustix::fs::fstat(dir)?, &id.to_string())?;
    let file = create_own(dir, NEW_MARK)?;
    copy_bytes::write_all(file.as_fd(), text.as_bytes(), 0)?;
    rustix::fs::fsync(&file)?;
    Ok(rustix::fs::renameat(dir, NEW_MARK, dir, MARK)?)
}

/// The proof that runs made a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MadeProof {
    None,
    /// The id of a volume, without a mark: runs of version 0.1 wrote none.
    Id,
    Mark,
}

fn proof_of(dir: BorrowedFd<'_>, stat: &Stat) -> io::Result<MadeProof> {
    let id = match own_text(dir, VOLUME, stat.st_uid)? {
        Some(id) => Some(id),
        None => own_text(dir, NEW_VOLUME, stat.st_uid)?,
    };
    let id = id.and_then(|text| text.strip_suffix('\n').map(str::to_owned));
    let Some(id) = id.filter(|id| id.parse::<VolumeId>().is_ok()) else { return Ok(MadeProof::None) };
    match own_text(dir, MARK, stat.st_uid)? {
        None => Ok(MadeProof::Id),
        Some(mark) if mark == text(dir, stat, &id)? => Ok(MadeProof::Mark),
        Some(_) => Ok(MadeProof::None),
    }
}

/// Returns the content of a mark: the volume's id, the folder's inode number (0 where that may change), its owner.
fn text(dir: BorrowedFd<'_>, stat: &Stat, id: &str) -> io::Result<String> {
    let inode = if renumbers(&rustix::fs::fstatfs(dir)?) { 0 } else { stat.st_ino };
    Ok(format!("{id} {inode} {}\n", stat.st_uid))
}

/// Returns the text of a file that this `user` alone has made, as far as its owner and its names tell.
fn own_text(dir: BorrowedFd<'_>, name: &[u8], user: u32) -> io::Result<Option<String>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::NOENT | Errno::LOOP | Errno::NXIO) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let stat = rustix::fs::fstat(&file)?;
    let is_file = FileType::from_raw_mode(stat.st_mode).is_file();
    if !is_file || stat.st_uid != user || stat.st_nlink != 1 {
        return Ok(Some(String::new()));
    }
    let mut text = [0; MAX_BYTES];
    let len = rustix::io::read(&file, &mut text)?;
    Ok(Some(String::from_utf8_lossy(&text[..len]).into_owned()))
}

/// Returns the first entry that a run would remove or that runs do not make; `None` if there is none.
fn first_foreign(dir: BorrowedFd<'_>) -> io::Result<Option<String>> {
    let mut foreign = None;
    each_name(dir, |name| {
        let text = name.to_string_lossy();
        foreign = foreign.take().or(match name.to_bytes() {
            folder if FOLDERS.contains(&folder) => first_in(dir, folder)?,
            _ => (!is_made_by_runs(&text)).then(|| text.into_owned()),
        });
        Ok(())
    })?;
    Ok(foreign)
}

fn first_in(dir: BorrowedFd<'_>, folder: &[u8]) -> io::Result<Option<String>> {
    let is_boards =
        |name: &str| folder == SHARDS && (["board", "deal"].contains(&name) || name.starts_with("seat-"));
    let mut first = None;
    each_name(open_inside(dir, folder)?, |name| {
        let name = name.to_string_lossy();
        let path = format!("{}/{name}", String::from_utf8_lossy(folder));
        first = first.take().or((!is_boards(&name)).then_some(path));
        Ok(())
    })?;
    Ok(first)
}
