//! Content from one open file to another on the same machine, by the cheapest way that the file systems allow.

use std::{io, os::fd::BorrowedFd};

use rustix::{fs::FallocateFlags, io::Errno};

/// Files up to this size are read and written: one system call each, which no other way beats.
const SMALL_BYTES: u64 = 128 << 10;

/// What a large copy moves at once where nothing better is left.
const BUFFER_BYTES: usize = 256 << 10;

/// Copies `len` bytes. Where the source turns out to be shorter, the copy ends there.
pub(super) fn content(from: BorrowedFd<'_>, to: BorrowedFd<'_>, len: u64) -> io::Result<()> {
    if len > SMALL_BYTES && rustix::fs::ioctl_ficlone(to, from).is_ok() {
        return Ok(());
    }
    if len > SMALL_BYTES && in_kernel(from, to, len)? {
        return Ok(());
    }
    through_memory(from, to, len)
}

/// `copy_file_range`; false where the file systems do not do it.
fn in_kernel(from: BorrowedFd<'_>, to: BorrowedFd<'_>, len: u64) -> io::Result<bool> {
    let mut done = 0;
    while done < len {
        let (mut at, mut there) = (done, done);
        let left = usize::try_from(len - done).unwrap_or(usize::MAX);
        match rustix::fs::copy_file_range(from, Some(&mut at), to, Some(&mut there), left) {
            Ok(0) => break,
            Ok(copied) => done += copied as u64,
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) if done == 0 => {
                return Ok(false);
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

fn through_memory(from: BorrowedFd<'_>, to: BorrowedFd<'_>, len: u64) -> io::Result<()> {
    let mut buffer = Vec::with_capacity(usize::try_from(len).unwrap_or(usize::MAX).min(BUFFER_BYTES));
    let mut offset = 0;
    while offset < len {
        buffer.clear();
        match rustix::io::pread(from, rustix::buffer::spare_capacity(&mut buffer), offset) {
            Ok(0) => return Ok(()),
            Ok(_) => write_all(to, &buffer, offset)?,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        offset += buffer.len() as u64;
    }
    Ok(())
}

/// Fills `bytes` from `offset` on.
///
/// # Errors
/// `UnexpectedEof` where the file ends before.
pub fn read_exact_at(from: BorrowedFd<'_>, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::pread(from, &mut *bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                bytes = &mut bytes[read..];
                offset += read as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Makes a range within a file's length a hole, or zeros where the file system has no holes.
pub(super) fn make_hole(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(file, flags, offset, len) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            let zeros = vec![0; len.min(BUFFER_BYTES as u64) as usize];
            (offset..offset + len).step_by(zeros.len()).try_for_each(|at| {
                let left = usize::try_from(offset + len - at).unwrap_or(usize::MAX);
                write_all(file, &zeros[..left.min(zeros.len())], at)
            })
        }
        result => Ok(result?),
    }
}

/// Writes all of `bytes` at `offset`.
pub(super) fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::pwrite(to, bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = &bytes[written..];
                offset += written as u64;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
