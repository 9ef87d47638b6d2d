//! Tells whether another process may be writing to a file although the file's times do not show it.
//!
//! The kernel sets the times of a file when a write begins. So a long write, and stores to a mapping of a page that is
//! dirty already, change content without changing a time. A read lease is only granted for a file that nobody has open
//! for writing, by a descriptor or a mapping.

use std::os::fd::{AsFd, AsRawFd as _};

use rustix::{
    fs::Stat,
    time::{ClockId, clock_gettime},
};

/// A file that has not changed for this long is at rest, whoever has it open: no single write takes as long, and the
/// kernel writes dirty pages back long before.
const AT_REST_SECONDS: i64 = 600;

/// The same where no lease tells whether anybody has the file open for writing.
const YOUNG_SECONDS: i64 = 60;

/// Returns whether an open file may be written to by a write that has already begun. `stat` is its state. Content that
/// is read later, and is followed by the same state, may be a mix of old and new bytes then.
pub(crate) fn is_in_motion(file: impl AsFd, stat: &Stat) -> bool {
    let age = clock_gettime(ClockId::RealtimeCoarse).tv_sec.saturating_sub(stat.st_ctime);
    age < AT_REST_SECONDS
        && match has_writers(file) {
            Some(has_writers) => has_writers,
            None => age < YOUNG_SECONDS,
        }
}

/// Returns whether anybody has a file open for writing; `None` where the kernel does not tell.
fn has_writers(file: impl AsFd) -> Option<bool> {
    let file = file.as_fd();
    // Whoever opens the file while the lease is held has a signal sent here: one that is ignored, unlike the default.
    set(file, F_SETSIG, libc::SIGURG).ok()?;
    match set(file, libc::F_SETLEASE, libc::F_RDLCK) {
        Ok(()) => {
            let _ = set(file, libc::F_SETLEASE, libc::F_UNLCK);
            Some(false)
        }
        Err(error) => (error.raw_os_error() == Some(libc::EAGAIN)).then_some(true),
    }
}

/// `F_SETSIG` of `fcntl(2)`, the same on all architectures.
const F_SETSIG: libc::c_int = 10;

/// Sets a property of an open file.
#[allow(unsafe_code)] // no crate has a safe call for leases
fn set(file: impl AsFd, property: libc::c_int, value: libc::c_int) -> std::io::Result<()> {
    // SAFETY: the descriptor is open during the call, and the kernel takes the value as a number, not as an address.
    match unsafe { libc::fcntl(file.as_fd().as_raw_fd(), property, value) } {
        -1 => Err(std::io::Error::last_os_error()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::*;

    fn state(file: &File) -> Stat {
        rustix::fs::fstat(file).unwrap()
    }

    #[test]
    fn a_file_is_in_motion_as_long_as_it_is_open_for_writing_or_mapped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, [7; 8192]).unwrap();
        let file = File::open(&path).unwrap();
        let moves = || is_in_motion(&file, &state(&file));
        assert!(!moves(), "it was just written, and nobody writes to it any more");
        let writer = File::options().append(true).open(&path).unwrap();
        assert!(moves());
        drop(writer);
        assert!(!moves());
        let mut old = state(&file);
        old.st_ctime -= AT_REST_SECONDS;
        let writer = File::options().write(true).open(&path).unwrap();
        assert!(moves() && !is_in_motion(&file, &old), "a file that nobody has changed for long is at rest");
        drop(writer);
    }

    #[test]
    fn where_no_lease_is_granted_a_young_file_is_in_motion() {
        let null = File::open("/dev/null").unwrap();
        let now = clock_gettime(ClockId::RealtimeCoarse).tv_sec;
        assert_eq!(has_writers(&null), None);
        for (age, expected) in [(-3, true), (YOUNG_SECONDS / 2, true), (YOUNG_SECONDS * 2, false)] {
            let mut stat = state(&null);
            stat.st_ctime = now - age;
            assert_eq!(is_in_motion(&null, &stat), expected, "{age}");
        }
    }
}
