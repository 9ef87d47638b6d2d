//! Copies content between two open files of the same machine, in the cheapest way that the file systems allow.

use std::{
    io,
    num::NonZeroU64,
    ops::Range,
    os::fd::BorrowedFd,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use parking_lot::Mutex;
use rustix::{
    fs::{Advice, FallocateFlags, SeekFrom},
    io::Errno,
};

use crate::{
    measure::{
        monitor::{MAX_UNCHECKED_BYTES, Monitor},
        thread_time::{Activity, during},
    },
    sys::{cores::cores, file_part::Slice},
};

/// Files up to this size are read and written: one system call each, which no other way beats.
pub(crate) const SMALL_BYTES: u64 = 128 << 10;

/// The buffer size of a copy through memory.
const BUFFER_BYTES: usize = 256 << 10;

/// Files from this size on are copied by several threads. Starting a thread costs as much as copying 100 KiB.
const SHARED_BYTES: u64 = 4 << 20;

/// The number of bytes that each thread copies at once.
const PART_BYTES: usize = 512 << 10;

/// Of `linux/magic.h`.
const TMPFS_MAGIC: i64 = 0x0102_1994;
const EXT4_SUPER_MAGIC: i64 = 0xef53;
const XFS_SUPER_MAGIC: i64 = 0x5846_5342;
const BTRFS_SUPER_MAGIC: i64 = 0x9123_683e;

/// Copies `len` bytes to an empty file. With `holes`, holes of the source stay holes.
///
/// # Errors
/// `UnexpectedEof` where the source turns out to be shorter; `ECANCELED` when the monitor was told to stop, which is
/// checked every [`MAX_UNCHECKED_BYTES`].
pub(super) fn content(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    len: u64,
    holes: bool,
    monitor: &Monitor,
) -> io::Result<()> {
    if len > SMALL_BYTES && rustix::fs::ioctl_ficlone(to, from).is_ok() {
        return Ok(());
    }
    if holes {
        return between_holes(from, to, len, monitor);
    }
    if len >= SHARED_BYTES && copies_through_memory(to) {
        in_parts(from, to, len, monitor)
    } else {
        part(from, to, 0..len, monitor)
    }
}

/// Copies with as many threads as there are cores. They write in turn: a kernel lets only one thread write to a file at
/// a time, and the others would spin.
fn in_parts(from: BorrowedFd<'_>, to: BorrowedFd<'_>, len: u64, monitor: &Monitor) -> io::Result<()> {
    let (next, writing) = (AtomicU64::new(0), Mutex::new(()));
    let work = || {
        let mut buffer = vec![0; PART_BYTES];
        loop {
            let start = next.fetch_add(PART_BYTES as u64, Relaxed);
            if start >= len {
                return Ok(());
            }
            monitor.may_copy((len - start).min(PART_BYTES as u64))?;
            let part = &mut buffer[..(len - start).min(PART_BYTES as u64) as usize];
            during(Activity::Reading, || Slice::all_of(from).read_exact_at(part, start))?;
            let turn = || during(Activity::Turn, || writing.lock());
            let alone = writing.try_lock().unwrap_or_else(turn);
            write_all(to, part, start)?;
            drop(alone);
            begin_write_back(to, start, part.len() as u64);
        }
    };
    let threads = cores();
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mine = work();
        let failed = |_| Err(io::Error::other("a copying thread failed"));
        let join = || others.into_iter().map(|other| other.join().unwrap_or_else(failed));
        during(Activity::Turn, || join().fold(mine, Result::and))
    })
}

/// Returns whether `copy_file_range` on this file system is one core's copy through memory, as on simple local ones.
fn copies_through_memory(file: BorrowedFd<'_>) -> bool {
    is_on(file, [TMPFS_MAGIC, EXT4_SUPER_MAGIC])
}

/// Returns whether a file is on a file system that is known not to clone: tmpfs, and ext2 to ext4.
pub(crate) fn never_clones(file: BorrowedFd<'_>) -> bool {
    is_on(file, [TMPFS_MAGIC, EXT4_SUPER_MAGIC])
}

/// Returns whether a file is on a file system that clones and that no other machine writes to.
pub(super) fn is_local_and_clones(file: BorrowedFd<'_>) -> bool {
    is_on(file, [XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC])
}

fn is_on(file: BorrowedFd<'_>, types: [i64; 2]) -> bool {
    rustix::fs::fstatfs(file).is_ok_and(|stat| types.contains(&stat.f_type))
}

/// Copies the data of a sparse file, leaves its holes out, and gives the copy its length.
fn between_holes(from: BorrowedFd<'_>, to: BorrowedFd<'_>, len: u64, monitor: &Monitor) -> io::Result<()> {
    rustix::fs::ftruncate(to, len)?;
    let mut at = 0;
    while at < len {
        let start = match rustix::fs::seek(from, SeekFrom::Data(at)) {
            // There is only a hole left.
            Err(Errno::NXIO) => break,
            // The file system does not report holes.
            Err(Errno::INVAL) => at,
            result => result?,
        };
        let end = match rustix::fs::seek(from, SeekFrom::Hole(start)) {
            Ok(end) => end.min(len),
            Err(Errno::NXIO | Errno::INVAL) => len,
            Err(error) => return Err(error.into()),
        };
        part(from, to, start..end, monitor)?;
        at = end;
    }
    Ok(())
}

/// Makes `to` share the blocks of a `range` of `from`, at offset `at`. Returns false, and does nothing, where the two
/// offsets are not aligned alike to blocks, or the file system does not share.
pub(super) fn share(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    range: Range<u64>,
    at: u64,
    monitor: &Monitor,
) -> io::Result<bool> {
    let block = rustix::fs::fstatvfs(to)?.f_bsize.max(1);
    let first = range.start.next_multiple_of(block);
    let last = range.end - range.end % block;
    if range.start % block != at % block || first >= last {
        return Ok(false);
    }
    let place = |offset: u64| at + (offset - range.start);
    let shared = in_kernel(from, to, first..last, place(first), Some(monitor))?;
    if shared == 0 {
        return Ok(false);
    }
    for edge in [range.start..first, first + shared..range.end] {
        through_memory_at(from, to, edge.clone(), place(edge.start), Some(monitor))?;
    }
    Ok(true)
}

/// Copies a range of a file to the same offset of another, sharing its blocks where the file system can. Takes no
/// monitor, because updates in place are finished even after a stop: half of one would be neither the old file nor the
/// new one.
///
/// # Errors
/// `UnexpectedEof` where the file ends before.
pub(super) fn range(from: BorrowedFd<'_>, to: BorrowedFd<'_>, range: Range<u64>) -> io::Result<()> {
    let copied = in_kernel(from, to, range.clone(), range.start, None)?;
    rest(from, to, range, copied, None)
}

/// Copies the rest of a range through memory, after the kernel has `copied` its beginning: a file system may copy less
/// than the requested length.
fn rest(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    range: Range<u64>,
    copied: u64,
    monitor: Option<&Monitor>,
) -> io::Result<()> {
    let start = range.start + copied;
    through_memory_at(from, to, start..range.end, start, monitor)
}

fn part(from: BorrowedFd<'_>, to: BorrowedFd<'_>, range: Range<u64>, monitor: &Monitor) -> io::Result<()> {
    let copied = if range.end.saturating_sub(range.start) > SMALL_BYTES {
        in_kernel(from, to, range.clone(), range.start, Some(monitor))?
    } else {
        0
    };
    rest(from, to, range, copied, Some(monitor))
}

/// Copies a range to offset `at` by `copy_file_range`. Returns the number of bytes copied: fewer where the file ends
/// before, and 0 where the file systems do not support the call.
fn in_kernel(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    Range { start, end }: Range<u64>,
    at: u64,
    monitor: Option<&Monitor>,
) -> io::Result<u64> {
    let mut done = 0;
    while start + done < end {
        let (mut from_at, mut to_at) = (start + done, at + done);
        let most = monitor.map_or(MAX_UNCHECKED_BYTES, Monitor::copy_bytes);
        let left = (end - from_at).min(most) as usize;
        monitor.map_or(Ok(()), |monitor| monitor.may_copy(left as u64))?;
        match rustix::fs::copy_file_range(from, Some(&mut from_at), to, Some(&mut to_at), left) {
            Ok(0) => break,
            Ok(copied) => done += copied as u64,
            Err(Errno::XDEV | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM) if done == 0 => {
                break;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(done)
}

/// Copies a range to offset `at` by reading and writing.
fn through_memory_at(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    range: Range<u64>,
    at: u64,
    monitor: Option<&Monitor>,
) -> io::Result<()> {
    let len = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
    let mut buffer = Vec::with_capacity(len.min(BUFFER_BYTES));
    let mut done = 0;
    while range.start + done < range.end {
        let left = (range.end - range.start - done).min(BUFFER_BYTES as u64);
        monitor.map_or(Ok(()), |monitor| monitor.may_copy(left))?;
        buffer.clear();
        let room = rustix::buffer::spare_capacity(&mut buffer);
        match during(Activity::Reading, || rustix::io::pread(from, room, range.start + done)) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {
                buffer.truncate(usize::try_from(range.end - range.start - done).unwrap_or(usize::MAX));
                write_all(to, &buffer, at + done)?;
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        done += buffer.len() as u64;
    }
    Ok(())
}

/// Fills `bytes` from `offset` on.
///
/// # Errors
/// `UnexpectedEof` where the file ends before.
pub(crate) fn read_exact_at(from: BorrowedFd<'_>, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    Slice::all_of(from).read_exact_at(bytes, offset)
}

/// Makes a range within a file's length a hole, or zeros where the file system or device has no holes there.
pub(super) fn make_hole(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(file, flags, offset, len) {
        // A device only takes whole sectors.
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => write_zeros(file, offset, len),
        result => Ok(result?),
    }
}

/// Writes `len` zeros at `offset`.
pub(super) fn write_zeros(file: BorrowedFd<'_>, offset: u64, len: u64) -> io::Result<()> {
    let zeros = vec![0; len.clamp(1, BUFFER_BYTES as u64) as usize];
    (offset..offset + len).step_by(zeros.len()).try_for_each(|at| {
        let left = usize::try_from(offset + len - at).unwrap_or(usize::MAX);
        write_all(file, &zeros[..left.min(zeros.len())], at)
    })
}

/// Writes of at least this many bytes are sent to the disk at once.
const WRITE_BACK_BYTES: u64 = 256 << 10;

/// Asks the system to write a range to the disk now, while the run goes on. Otherwise it would begin half a minute
/// later, or at the `syncfs` that ends the run. On `POSIX_FADV_DONTNEED`, Linux starts writing dirty pages, and drops
/// only clean ones (`posix_fadvise(2)`, `mm/fadvise.c`). 256 MiB to XFS took 243 ms instead of 277, and to ext4 472
/// instead of 667.
pub(super) fn begin_write_back(file: BorrowedFd<'_>, offset: u64, len: u64) {
    if len >= WRITE_BACK_BYTES {
        let _ = rustix::fs::fadvise(file, offset, NonZeroU64::new(len), Advice::DontNeed);
    }
}

/// Writes all of `bytes` at `offset`.
///
/// # Errors
/// `WriteZero` where nothing more can be written, and any error of the system.
pub(crate) fn write_all(to: BorrowedFd<'_>, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use std::os::{fd::AsFd as _, unix::fs::FileExt as _};

    use super::*;

    /// However little of a range the kernel has copied, the copy is complete, or an error.
    #[test]
    fn a_short_count_of_the_kernel_is_no_success() {
        let content: Vec<u8> = (0..300_000_u32).map(|at| (at / 7) as u8).collect();
        let from = tempfile::tempfile().unwrap();
        from.write_all_at(&content, 0).unwrap();
        for copied in [0, 1, 4096, 299_999, 300_000] {
            let to = tempfile::tempfile().unwrap();
            to.write_all_at(&content[..copied as usize], 0).unwrap();
            rest(from.as_fd(), to.as_fd(), 0..300_000, copied, None).unwrap();
            let mut there = vec![0; 300_000];
            to.read_exact_at(&mut there, 0).unwrap();
            assert!(there == content, "{copied}");
        }
    }

    #[test]
    fn a_source_that_ends_early_is_an_error_by_every_way() {
        let from = tempfile::tempfile().unwrap();
        from.write_all_at(&vec![1; 200_000], 0).unwrap();
        for (len, holes) in [(200_001, false), (300_000, false), (SHARED_BYTES, false)] {
            let to = tempfile::tempfile().unwrap();
            let error = content(from.as_fd(), to.as_fd(), len, holes, &Monitor::default()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{len}");
        }
    }

    /// The kernel copies the blocks if the file system here does not share them.
    #[test]
    fn a_shared_range_is_there_from_its_first_byte_to_its_last() {
        let monitor = Monitor::default();
        let [from, to] = [(); 2].map(|()| tempfile::tempfile().unwrap());
        let content: Vec<u8> = (0..100_000_u32).map(|at| (at / 7) as u8).collect();
        from.write_all_at(&content, 0).unwrap();
        let block = rustix::fs::fstatvfs(&to).unwrap().f_bsize;
        for (range, blocks) in
            [(5000..90_000, 3), (0..8 * block, 0), (4 * block..100_000, 1), (9000..9000 + 2 * block, 2)]
        {
            to.set_len(0).unwrap();
            to.write_all_at(&[7; 200_000], 0).unwrap();
            let at = range.start + blocks * block;
            assert!(share(from.as_fd(), to.as_fd(), range.clone(), at, &monitor).unwrap(), "{range:?}");
            let mut expected = vec![7; 200_000];
            let len = (range.end - range.start) as usize;
            expected[at as usize..at as usize + len]
                .copy_from_slice(&content[range.start as usize..range.end as usize]);
            let mut there = vec![0; 200_000];
            to.read_exact_at(&mut there, 0).unwrap();
            assert!(there == expected, "{range:?}");
        }
        for (range, at) in [(5000..90_000, 5001), (10..block, 10), (1..block + 1, 1)] {
            assert!(!share(from.as_fd(), to.as_fd(), range, at, &monitor).unwrap());
        }
    }

    /// Tests every way to copy, on a file without holes.
    #[test]
    fn a_copy_that_is_told_to_stop_ends_within_the_next_piece() {
        const LEN: u64 = 10 * MAX_UNCHECKED_BYTES;
        type Copy = fn(BorrowedFd<'_>, BorrowedFd<'_>, &Monitor) -> io::Result<()>;
        let ways: [(Copy, u64); 4] = [
            (|from, to, monitor| part(from, to, 0..LEN, monitor), MAX_UNCHECKED_BYTES),
            (|from, to, monitor| in_parts(from, to, LEN, monitor), PART_BYTES as u64),
            (|from, to, monitor| rest(from, to, 0..LEN, 0, Some(monitor)), BUFFER_BYTES as u64),
            (|from, to, monitor| between_holes(from, to, LEN, monitor), MAX_UNCHECKED_BYTES),
        ];
        let from = tempfile::tempfile().unwrap();
        from.set_len(LEN).unwrap();
        (0..LEN).step_by(1 << 20).for_each(|at| from.write_all_at(&[7; 1 << 20], at).unwrap());
        for (nth, (copy, piece)) in ways.into_iter().enumerate() {
            let to = tempfile::tempfile().unwrap();
            let whole = Monitor::default();
            copy(from.as_fd(), to.as_fd(), &whole).unwrap();
            assert!(whole.checks() >= LEN / MAX_UNCHECKED_BYTES, "way {nth}: {} looks", whole.checks());
            let to = tempfile::tempfile().unwrap();
            let stopped = Monitor::canceled_at(3);
            let error = copy(from.as_fd(), to.as_fd(), &stopped).unwrap_err();
            assert_eq!(Errno::from_io_error(&error), Some(Errno::CANCELED), "way {nth}");
            let written = rustix::fs::fstat(&to).unwrap().st_blocks as u64 * 512;
            assert!(written <= (2 + cores() as u64) * piece, "way {nth}: {written} bytes are written");
        }
    }
}
