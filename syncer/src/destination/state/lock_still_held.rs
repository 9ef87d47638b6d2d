//! Tells a run whether it still holds the lock on its destination, by an epoch that each run raises.
//!
//! The lock on a destination is the file system's, and a network file system may give it away while its holder is cut
//! off, frozen or presumed dead. So every run that takes the lock writes a stamp of its own, and reads it again before
//! it changes anything. Only the run with the newest stamp continues; any other stops.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};

use crate::{destination::state::own_file::open_own, sys::random::fill_random};

pub(crate) const EPOCH: &[u8] = b"epoch";

/// The longest time between two reads of the stamp while a run changes something. One read costs two microseconds on a
/// local volume and a round trip on a network file system.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A counter and a random number. The counter is for people: two runs that both believe to hold the lock may write the
/// same count.
pub(crate) type Stamp = [u8; 16];

/// This run's stamp on a destination.
#[derive(Debug)]
pub(crate) struct Epoch {
    stamp: Stamp,
    start: Instant,
    /// The time of the last read of the stamp, in milliseconds since `start`.
    looked_ms: AtomicU64,
    lost: AtomicBool,
}

impl Epoch {
    /// Writes a new stamp to the `.volferry/` that is open as `dir`. The caller holds its lock.
    pub(crate) fn raise(dir: BorrowedFd<'_>) -> io::Result<Self> {
        let file = open_own(dir, EPOCH, OFlags::RDWR | OFlags::CREATE)?;
        let stamp = next(read(&file)?.unwrap_or_default())?;
        if rustix::io::pwrite(&file, &stamp, 0)? != stamp.len() {
            return Err(Errno::NOSPC.into());
        }
        Ok(Self::of(stamp))
    }

    /// Reads the stamp that another process of the same run has written.
    ///
    /// # Errors
    /// `WOULDBLOCK` when there is none.
    pub(crate) fn join(dir: BorrowedFd<'_>) -> io::Result<Self> {
        let stamp = stamp_in(dir)?.ok_or(Errno::WOULDBLOCK)?;
        Ok(Self::of(stamp))
    }

    fn of(stamp: Stamp) -> Self {
        Self { stamp, start: Instant::now(), looked_ms: AtomicU64::new(0), lost: AtomicBool::new(false) }
    }

    /// Returns the whole stamp.
    pub(crate) fn stamp(&self) -> Stamp {
        self.stamp
    }

    /// Returns whether a directory contains this run's stamp. This identifies the directory by whatever name it was
    /// opened.
    pub(crate) fn is_in(&self, dir: BorrowedFd<'_>) -> bool {
        stamp_in(dir).is_ok_and(|there| there == Some(self.stamp))
    }

    /// Returns the random half of the stamp, which is different in every run.
    pub(crate) fn word(&self) -> u64 {
        let [_, _, _, _, _, _, _, _, word @ ..] = self.stamp;
        u64::from_le_bytes(word)
    }

    /// Returns whether another run was seen to have taken the destination.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Relaxed)
    }

    /// Reads the stamp and then calls `also`, unless both were done less than [`LOOK_EVERY`] ago.
    ///
    /// # Errors
    /// When the stamp is another run's, or cannot be read; those of `also`.
    pub(crate) fn check(&self, dir: BorrowedFd<'_>, also: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let now_ms = self.start.elapsed().as_millis() as u64;
        let fresh = now_ms < self.looked_ms.load(Relaxed) + LOOK_EVERY.as_millis() as u64;
        if fresh && !self.is_lost() {
            return Ok(());
        }
        self.inspect(dir, now_ms)?;
        also()
    }

    /// Reads the stamp now. Opens the file each time, because that is when a network file system asks its server.
    fn inspect(&self, dir: BorrowedFd<'_>, now_ms: u64) -> io::Result<()> {
        if !self.is_lost() {
            let there = stamp_in(dir)?;
            self.looked_ms.store(now_ms, Relaxed);
            self.lost.store(there != Some(self.stamp), Relaxed);
        }
        if self.is_lost() {
            Err(io::Error::other("another run has taken the destination over"))
        } else {
            Ok(())
        }
    }
}

/// Reads the stamp in the `.volferry/` that is open as `dir`; `None` if there is none.
pub(crate) fn stamp_in(dir: BorrowedFd<'_>) -> io::Result<Option<Stamp>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    match rustix::fs::openat(dir, EPOCH, flags, Mode::empty()) {
        Ok(file) => read(&file),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn next(old: Stamp) -> io::Result<Stamp> {
    let [c0, c1, c2, c3, c4, c5, c6, c7, ..] = old;
    let count = u64::from_le_bytes([c0, c1, c2, c3, c4, c5, c6, c7]).wrapping_add(1);
    let mut stamp = Stamp::default();
    let (counter, word) = stamp.split_at_mut(8);
    counter.copy_from_slice(&count.to_le_bytes());
    fill_random(word)?;
    Ok(stamp)
}

/// Reads the stamp in an open file; `None` if the file is too short.
fn read(file: &OwnedFd) -> io::Result<Option<Stamp>> {
    let mut stamp = Stamp::default();
    let read = rustix::io::pread(file.as_fd(), &mut stamp, 0)?;
    Ok((read == stamp.len()).then_some(stamp))
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Epoch {
        /// Reads the stamp, however recent the last read is.
        fn check_now(&self, dir: BorrowedFd<'_>) -> io::Result<()> {
            self.inspect(dir, 0)
        }
    }

    fn folder() -> (tempfile::TempDir, OwnedFd) {
        let dir = tempfile::tempdir().unwrap();
        let fd = std::fs::File::open(dir.path()).unwrap().into();
        (dir, fd)
    }

    #[test]
    fn the_last_to_stamp_holds_the_destination_and_who_lost_it_never_gets_it_back() {
        let (dir, fd) = folder();
        let first = Epoch::raise(fd.as_fd()).unwrap();
        first.check_now(fd.as_fd()).unwrap();
        let kept = std::fs::read(dir.path().join("epoch")).unwrap();
        let second = Epoch::raise(fd.as_fd()).unwrap();
        second.check_now(fd.as_fd()).unwrap();
        assert!(first.check_now(fd.as_fd()).is_err());
        std::fs::write(dir.path().join("epoch"), kept).unwrap();
        assert!(first.check(fd.as_fd(), || Ok(())).is_err());
        assert!(second.check_now(fd.as_fd()).is_err());
    }

    #[test]
    fn each_run_counts_one_further_and_anything_unreadable_counts_from_the_start() {
        let (dir, fd) = folder();
        let count = || std::fs::read(dir.path().join("epoch")).unwrap()[..8].to_vec();
        for expected in [1, 2, 3] {
            Epoch::raise(fd.as_fd()).unwrap();
            assert_eq!(count(), u64::to_le_bytes(expected));
        }
        std::fs::write(dir.path().join("epoch"), b"short").unwrap();
        Epoch::raise(fd.as_fd()).unwrap();
        assert_eq!(count(), u64::to_le_bytes(1));
    }

    #[test]
    fn a_stamp_that_is_gone_is_another_runs() {
        let (dir, fd) = folder();
        let epoch = Epoch::raise(fd.as_fd()).unwrap();
        std::fs::remove_file(dir.path().join("epoch")).unwrap();
        assert!(epoch.check_now(fd.as_fd()).is_err());
        assert!(epoch.is_lost());
    }
}
