//! Reads a live file into a store elsewhere, again if it changes meanwhile.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use rustix::fs::{Mode, OFlags, Stat};

use super::offsite_store::OffsiteStore;
use crate::{
    entry::Time,
    hash::ContentId,
    monitor::Monitor,
    scan::stamp_of_stat,
    snapshot::{
        copy::{ContentPiece, PIECE_BYTES, next_data},
        create::{LiveFile, MAX_ATTEMPTS, key},
        store::{ContentRef, Home, SnapshotError, regular},
    },
    sys::{file_part::Slice, in_motion::is_in_motion, stat::meta_of},
    tree::stamps::IN_MOTION,
};

/// Why a file is not in the store.
pub(crate) enum NotRead {
    /// The file cannot be read.
    File(io::Error),
    /// The store does not take it, which ends the run.
    Store(SnapshotError),
}

impl From<io::Error> for NotRead {
    fn from(error: io::Error) -> Self {
        Self::File(error)
    }
}

impl From<rustix::io::Errno> for NotRead {
    fn from(error: rustix::io::Errno) -> Self {
        Self::File(error.into())
    }
}

impl From<SnapshotError> for NotRead {
    fn from(error: SnapshotError) -> Self {
        Self::Store(error)
    }
}

/// Reads files of one tree.
pub(crate) struct OffsiteReader<'a> {
    /// Files that changed at this time or later get no stamp.
    before: Time,
    /// The file system of the tree's root.
    device: u64,
    monitor: &'a Monitor,
    buffer: Vec<u8>,
}

impl<'a> OffsiteReader<'a> {
    pub(crate) fn new(before: Time, device: u64, monitor: &'a Monitor) -> Self {
        Self { before, device, monitor, buffer: vec![0; PIECE_BYTES as usize] }
    }

    /// Takes the content of the file `name` in `dir` into the store.
    pub(crate) fn read(
        &mut self,
        store: &mut dyn OffsiteStore,
        dir: BorrowedFd<'_>,
        name: &[u8],
    ) -> Result<LiveFile, NotRead> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(dir, name, flags, Mode::empty())?;
        let mut last = None;
        for _ in 0..MAX_ATTEMPTS {
            let mut stat = regular(&file)?;
            let in_motion = is_in_motion(&file, &stat);
            if in_motion {
                // Once dirty pages are on the disk, the next store to a mapping gives the file another time.
                let _ = rustix::fs::fdatasync(&file);
                stat = regular(&file)?;
            }
            match self.pass_on(store, &file, &stat) {
                Ok(content) => {
                    let is_quiet = key(&stat) == key(&regular(&file)?);
                    let stamp = if is_quiet && !in_motion {
                        stamp_of_stat(&stat, self.before, self.device)
                    } else {
                        IN_MOTION
                    };
                    let (len, meta) = (stat.st_size as u64, meta_of(&stat));
                    let live = LiveFile { content, len, meta, stamp, kept_changing: !is_quiet, added: 0 };
                    if is_quiet {
                        return Ok(live);
                    }
                    last = Some(live);
                }
                Err(NotRead::File(error)) if key(&stat) == key(&regular(&file)?) => return Err(error.into()),
                // It became shorter while it was read.
                Err(NotRead::File(_)) => {}
                Err(error) => return Err(error),
            }
        }
        last.ok_or_else(|| io::Error::other("the file kept changing while it was read").into())
    }

    /// Reads as much of a file as its status says, and passes its holes on as such.
    fn pass_on(
        &mut self,
        store: &mut dyn OffsiteStore,
        file: &OwnedFd,
        stat: &Stat,
    ) -> Result<Option<ContentRef>, NotRead> {
        let len = stat.st_size as u64;
        if len == 0 {
            return Ok(None);
        }
        let has_holes = (stat.st_blocks as u64) * 512 < len;
        let most = self.monitor.copy_bytes().min(PIECE_BYTES);
        store.begin_content(len);
        let mut at = 0;
        while at < len {
            let data = if has_holes { next_data(file.as_fd(), at, len) } else { at };
            if data > at {
                self.check()?;
                store.add_piece(ContentPiece::Hole(data - at))?;
                at = data;
                continue;
            }
            let piece = (len - at).min(most);
            self.monitor.may_copy(piece).map_err(stopped)?;
            let bytes = &mut self.buffer[..piece as usize];
            Slice::all_of(file.as_fd()).read_exact_at(bytes, at)?;
            store.add_piece(ContentPiece::Data(bytes))?;
            at += piece;
        }
        let id: ContentId = store.end_content()?;
        Ok(Some(ContentRef { id, home: Home::Own }))
    }

    fn check(&self) -> Result<(), NotRead> {
        self.monitor.check().map_err(stopped)
    }
}

/// Makes a stop the end of the run, and not of the file that is being read.
fn stopped(error: io::Error) -> NotRead {
    NotRead::Store(SnapshotError::Link(error))
}
