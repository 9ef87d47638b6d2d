//! Notes on a destination which of its files were in motion when they were read, so that the next run compares them.
//!
//! A note is appended before its file becomes visible. A run that reaches its end leaves out the notes that it has
//! settled. `syncer/doc/format.md` describes the bytes.

use std::{
    collections::HashMap,
    fs::File,
    io::{self, Read as _, Write as _},
    os::fd::{BorrowedFd, OwnedFd},
    sync::Arc,
};

use contract::human::plural;
use parking_lot::Mutex;
use rustix::{
    fs::{AtFlags, Mode, OFlags},
    io::Errno,
};

use crate::{
    destination::state::own_file::{create_own, open_own},
    entry::Time,
    hash::digest,
    path::{MAX_PATH_BYTES, RelPath},
    sys::root::each_name,
    tree::noted_in_motion::NotedFiles,
};

/// The prefix of a file's name; the number of the shard that appends to it follows, 0 where there is one process.
pub(crate) const MOTION: &str = "in-motion-";

/// The most files that are named. Beyond that, all files that are no older than those count as noted.
const MAX_NOTES: usize = 10_000;

/// The time before that of the first file that is not named from which on files count as noted, in seconds.
const MARGIN_SECONDS: i64 = 3600;

/// The number of files that a sentence for the report names.
const MAX_NAMED: usize = 5;

const HEADER_BYTES: usize = 14;
const CHECK_BYTES: usize = 16;

/// The longest file that is read.
const MAX_FILE_BYTES: usize = (MAX_NOTES + 2) * (HEADER_BYTES + MAX_PATH_BYTES + CHECK_BYTES);

/// The notes on a destination.
#[derive(Debug)]
pub(crate) struct MotionNotes {
    shard: u32,
    found: Arc<NotedFiles>,
    /// The notes of earlier runs.
    old: Vec<MotionNote>,
    /// The lengths of the files with these notes, by shard.
    lengths: HashMap<u32, usize>,
    added: Mutex<AddedNotes>,
}

/// A file that was in motion, by its path; without a path, all files that were modified at this time or later.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MotionNote {
    path: Option<RelPath>,
    mtime: Time,
}

/// The notes of this process.
#[derive(Debug, Default)]
struct AddedNotes {
    file: Option<File>,
    count: usize,
    /// The time from which on all files count as noted.
    since: Option<Time>,
    named: Vec<String>,
}

impl MotionNotes {
    /// Reads the notes in the `.volferry/` that is open as `dir`, for the process of this shard.
    pub(crate) fn inspect(dir: BorrowedFd<'_>, shard: u32) -> io::Result<Self> {
        let (mut found, mut old, mut lengths) = (NotedFiles::default(), Vec::new(), HashMap::new());
        for shard in shards(dir)? {
            let bytes = read(dir, &name(shard))?;
            let mut rest = &bytes[..];
            old.extend(std::iter::from_fn(|| MotionNote::decode(&mut rest)));
            if bytes.len() > MAX_FILE_BYTES {
                found.add_since(EVER);
            }
            lengths.insert(shard, bytes.len() - rest.len());
        }
        for MotionNote { path, mtime } in &old {
            match path {
                Some(path) => found.add(path.clone()),
                None => found.add_since(*mtime),
            }
        }
        Ok(Self { shard, found: Arc::new(found), old, lengths, added: Mutex::default() })
    }

    /// Returns the files that earlier runs noted.
    pub(crate) fn found(&self) -> &Arc<NotedFiles> {
        &self.found
    }

    /// Notes a file with this modification time.
    pub(crate) fn add(&self, dir: BorrowedFd<'_>, path: &RelPath, mtime: Time) -> io::Result<()> {
        let mut added = self.added.lock();
        let is_named = self.old.len() + added.count < MAX_NOTES;
        if added.named.len() < MAX_NAMED {
            added.named.push(path.to_string());
        }
        added.count += 1;
        let note = match (is_named, added.since) {
            (true, _) => MotionNote { path: Some(path.clone()), mtime },
            (false, Some(since)) if mtime >= since => return Ok(()),
            // At the second time that is earlier, all files count.
            (false, Some(_)) => MotionNote { path: None, mtime: EVER },
            (false, None) => {
                let seconds = mtime.seconds.saturating_sub(MARGIN_SECONDS);
                MotionNote { path: None, mtime: Time { seconds, ..mtime } }
            }
        };
        if note.path.is_none() {
            added.since = Some(note.mtime);
        }
        if added.file.is_none() {
            added.file = Some(self.open(dir)?);
        }
        added.file.as_mut().map_or(Ok(()), |file| file.write_all(&note.encode()))
    }

    /// Opens the file that this process appends to, and cuts off what a crash has torn.
    fn open(&self, dir: BorrowedFd<'_>) -> io::Result<File> {
        let file =
            File::from(open_own(dir, name(self.shard), OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND)?);
        let len = self.lengths.get(&self.shard).copied().unwrap_or(0) as u64;
        rustix::fs::ftruncate(&file, len)?;
        Ok(file)
    }

    /// Removes the notes of earlier runs except for those that `stay`, given their paths; `None` stands for the files
    /// that are noted by their time. Callers do this when all processes of the run have added theirs.
    pub(crate) fn settle(
        &self,
        dir: BorrowedFd<'_>,
        stays: impl Fn(Option<&RelPath>) -> bool,
    ) -> io::Result<()> {
        if self.found.is_empty() {
            return Ok(());
        }
        let staying = self.old.iter().filter(|note| stays(note.path.as_ref()));
        let mut bytes: Vec<u8> = staying.flat_map(MotionNote::encode).collect();
        let shards = shards(dir)?;
        for shard in &shards {
            let known = self.lengths.get(shard).copied().unwrap_or(0);
            bytes.extend_from_slice(read(dir, &name(*shard))?.get(known..).unwrap_or_default());
        }
        let first = name(0);
        if !bytes.is_empty() {
            let new = format!("{MOTION}new");
            let mut file = File::from(create_own(dir, new.as_str())?);
            file.write_all(&bytes)?;
            file.sync_data()?;
            rustix::fs::renameat(dir, new, dir, &first)?;
        }
        let gone = shards.into_iter().map(name).filter(|name| bytes.is_empty() || *name != first);
        gone.into_iter().try_for_each(|name| Ok(rustix::fs::unlinkat(dir, name, AtFlags::empty())?))
    }

    /// Returns a sentence for the report about the files that this process has noted.
    pub(crate) fn sentence(&self) -> Option<String> {
        let added = self.added.lock();
        let files = plural(added.count as u64, "file", "files");
        let more = if added.count > added.named.len() { ", …" } else { "" };
        let names = added.named.join(", ");
        (added.count > 0).then(|| {
            format!(
                "another process may have been writing to {files} while the run read: {names}{more}; \
                 the next run compares the content"
            )
        })
    }
}

/// Earlier than any time of a file.
const EVER: Time = Time { seconds: i64::MIN, nanos: 0 };

impl MotionNote {
    fn encode(&self) -> Vec<u8> {
        let path = self.path.as_ref().map_or(&b""[..], RelPath::as_bytes);
        let mut out = Vec::with_capacity(HEADER_BYTES + path.len() + CHECK_BYTES);
        out.extend_from_slice(&(path.len() as u16).to_le_bytes());
        out.extend_from_slice(&self.mtime.seconds.to_le_bytes());
        out.extend_from_slice(&self.mtime.nanos.to_le_bytes());
        out.extend_from_slice(path);
        let check = digest(&[&out]);
        out.extend_from_slice(&check);
        out
    }

    /// Takes the note that `bytes` begin with; returns `None` if there is none.
    fn decode(bytes: &mut &[u8]) -> Option<Self> {
        let (len, rest) = bytes.split_first_chunk()?;
        let (seconds, rest) = rest.split_first_chunk()?;
        let (nanos, rest) = rest.split_first_chunk()?;
        let (path, rest) = rest.split_at_checked(u16::from_le_bytes(*len).into())?;
        let (check, rest) = rest.split_first_chunk::<CHECK_BYTES>()?;
        if digest(&[&bytes[..HEADER_BYTES + path.len()]]) != *check {
            return None;
        }
        let mtime = Time { seconds: i64::from_le_bytes(*seconds), nanos: u32::from_le_bytes(*nanos) };
        let path = if path.is_empty() { None } else { Some(RelPath::parse(path).ok()?) };
        *bytes = rest;
        Some(Self { path, mtime })
    }
}

/// Returns the shards that have a file with notes.
fn shards(dir: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut shards = Vec::new();
    each_name(dir, |name| {
        let number = name.to_str().ok().and_then(|name| name.strip_prefix(MOTION));
        shards.extend(number.and_then(|number| number.parse::<u32>().ok()));
        Ok(())
    })?;
    Ok(shards)
}

fn name(shard: u32) -> String {
    format!("{MOTION}{shard}")
}

/// Reads a file, up to one byte more than it may have.
fn read(dir: BorrowedFd<'_>, name: &str) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file: OwnedFd = match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(Vec::new()),
        result => result?,
    };
    let mut bytes = Vec::new();
    File::from(file).take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::fd::AsFd as _};

    use super::*;

    fn path(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).unwrap()
    }

    fn at(seconds: i64) -> Time {
        Time { seconds, nanos: 5 }
    }

    fn inspect(dir: &File, shard: u32) -> MotionNotes {
        MotionNotes::inspect(dir.as_fd(), shard).unwrap()
    }

    fn holds(dir: &File, name: &str) -> bool {
        inspect(dir, 0).found().names_file(&RelPath::root(), name.as_bytes())
    }

    #[test]
    fn a_note_stays_until_a_run_settles_it_and_notes_of_that_run_stay() {
        let dir = tempfile::tempdir().unwrap();
        let fd = File::open(dir.path()).unwrap();
        assert!(inspect(&fd, 0).found().is_empty() && inspect(&fd, 0).sentence().is_none());
        for (shard, name) in [(0, "a"), (1, "b"), (0, "c")] {
            inspect(&fd, shard).add(fd.as_fd(), &path(name), at(1)).unwrap();
        }
        assert!(["a", "b", "c"].into_iter().all(|name| holds(&fd, name)));
        let run = inspect(&fd, 0);
        inspect(&fd, 1).add(fd.as_fd(), &path("d"), at(1)).unwrap();
        run.add(fd.as_fd(), &path("e"), at(1)).unwrap();
        assert!(run.sentence().unwrap().contains("1 file while the run read: e;"));
        run.settle(fd.as_fd(), |path| path.is_some_and(|path| path.as_bytes() == b"b")).unwrap();
        assert_eq!(["a", "b", "c", "d", "e"].map(|name| holds(&fd, name)), [false, true, false, true, true]);
        inspect(&fd, 0).settle(fd.as_fd(), |_| false).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_note_that_a_crash_has_torn_is_no_note_and_the_next_one_is() {
        let dir = tempfile::tempdir().unwrap();
        let fd = File::open(dir.path()).unwrap();
        let file = dir.path().join("in-motion-0");
        for name in ["one", "two"] {
            inspect(&fd, 0).add(fd.as_fd(), &path(name), at(1)).unwrap();
        }
        let whole = fs::read(&file).unwrap();
        for end in 0..whole.len() {
            fs::write(&file, &whole[..end]).unwrap();
            assert_eq!((holds(&fd, "one"), holds(&fd, "two")), (end >= whole.len() / 2, false), "{end}");
            inspect(&fd, 0).add(fd.as_fd(), &path("three"), at(1)).unwrap();
            assert!(holds(&fd, "three"), "{end}");
        }
    }

    #[test]
    fn of_more_files_than_are_named_the_times_count() {
        let dir = tempfile::tempdir().unwrap();
        let fd = File::open(dir.path()).unwrap();
        let run = inspect(&fd, 0);
        let seconds = 1_000_000;
        (0..MAX_NOTES).for_each(|n| run.add(fd.as_fd(), &path(&n.to_string()), at(7)).unwrap());
        let of = |seconds| inspect(&fd, 0).found().holds(&path("dir"), b"other", at(seconds));
        assert!(!of(seconds));
        (0..9).for_each(|_| run.add(fd.as_fd(), &path("more"), at(seconds)).unwrap());
        assert!(of(seconds) && of(seconds - MARGIN_SECONDS) && !of(seconds - MARGIN_SECONDS - 1));
        run.add(fd.as_fd(), &path("old"), at(7)).unwrap();
        assert!(of(i64::MIN));
        let later = inspect(&fd, 0);
        later.settle(fd.as_fd(), |path| path.is_none()).unwrap();
        assert!(of(7) && !inspect(&fd, 0).found().names_file(&RelPath::root(), b"1"));
    }
}
