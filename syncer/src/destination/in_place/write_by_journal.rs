//! Writes files in place: the ranges that change go into the journal first, from which a later run repeats them.
//!
//! The changes are staged alone, with a note of the ranges where they belong ([`Overlay`]). When all have arrived and
//! were checked, they become an entry of the journal ([`JournalEntry`]), are made durable, and only then written into
//! the file. A crash before that leaves the old file; after a later crash, the next process that opens the destination
//! applies the entry again from its start.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use contract::human::plural;
use rustix::{
    fs::{AtFlags, FallocateFlags, FileType, Mode, OFlags, Stat, Timespec, Timestamps},
    io::Errno,
};

use crate::{
    destination::{
        copy_bytes,
        destination_error::{ApplyError, JournalError},
        in_place::journal_entry::{AttrsOf, JournalEntry, hash_content, path_of_damaged},
        metadata::{
            set_metadata::{self, chown, times},
            set_xattrs::{self, put_off_too_large},
        },
        staging::{byte_ranges::RangeChange, overlay::Overlay, staged_file::Staged},
        state::{staging_names::part_key, state_dir::StateDir},
    },
    path::RelPath,
    sys::{
        file_part::SizedFile,
        root::{Root, each_name},
    },
};

/// The number of bytes written between two checks that the destination is still this run's.
const STEP_BYTES: u64 = 8 << 20;

/// Describes the update of a file as a journal entry, to which the caller adds the file's metadata.
///
/// # Errors
/// When the file was changed or replaced since it was opened: the ranges that the update leaves alone may differ now.
pub(crate) fn redo(
    overlay: &Overlay,
    staged: &Staged,
    dir: BorrowedFd<'_>,
    name: &[u8],
) -> io::Result<JournalEntry> {
    let key = |s: &Stat| {
        (
            (s.st_dev, s.st_ino, s.st_nlink, s.st_size),
            (s.st_mtime, s.st_mtime_nsec, s.st_ctime, s.st_ctime_nsec),
        )
    };
    let now = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if key(&now) != key(&overlay.was) {
        return Err(io::Error::other(
            "another process changed the file at the destination while it was updated; run again",
        ));
    }
    let ranges = overlay.ranges().clone();
    let content = hash_content(staged.fd(), &ranges)?;
    let len = rustix::fs::fstat(staged.fd())?.st_size as u64;
    let (owner, mtime, attrs) = (None, None, None);
    let (path, inode) = (overlay.path.clone(), overlay.was.st_ino);
    Ok(JournalEntry { path, inode, len, mode: 0, owner, mtime, attrs, ranges, content })
}

/// Commits an update to the journal and then writes it into the file.
pub(crate) fn publish(
    overlay: &Overlay,
    state: &StateDir,
    staged: &Staged,
    redo: &JournalEntry,
) -> io::Result<()> {
    let target = overlay.basis();
    if redo.ranges.len() == 0 && redo.len == overlay.was.st_size as u64 {
        staged.unlink(state);
        return set_rewritten(redo, target);
    }
    let key = commit(state, staged, redo).inspect_err(|_| staged.unlink(state))?;
    if let Err(error) = reserve(redo, target) {
        // Nothing of the file has changed yet.
        rustix::fs::ftruncate(target, overlay.was.st_size as u64)?;
        rustix::fs::futimens(target, &times_of(&overlay.was))?;
        remove(state, &key)?;
        return Err(error);
    }
    let applied = put_off_too_large(apply(state, redo, staged.fd(), target));
    let applied = applied.and_then(|fits| remove(state, &key).map(|()| fits));
    applied.map_err(|error| {
        io::Error::new(
            error.kind(),
            format!(
                "{error}; its update is complete in .volferry/journal/{key}, and the next run begins by finishing it"
            ),
        )
    })?
}

fn times_of(stat: &Stat) -> Timestamps {
    let time = |seconds, nanos| Timespec { tv_sec: seconds, tv_nsec: nanos as _ };
    Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec),
    }
}

/// Makes a staged file an entry of the journal, durably: from then on the update counts as done. Returns the entry's
/// name.
fn commit(state: &StateDir, staged: &Staged, redo: &JournalEntry) -> io::Result<String> {
    state.check()?;
    let name = staged.name().ok_or(io::ErrorKind::NotFound)?;
    copy_bytes::write_all(staged.fd(), &redo.encode()?, redo.len)?;
    rustix::fs::fsync(staged.fd())?;
    let key = part_key(&redo.path);
    rustix::fs::renameat(state.staging(), name, state.journal().as_fd(), &key)?;
    rustix::fs::fsync(state.journal().as_fd())?;
    Ok(key)
}

/// Removes an entry from the journal, durably: an entry that reappeared would undo later changes of the file.
fn remove(state: &StateDir, key: &str) -> io::Result<()> {
    rustix::fs::unlinkat(state.journal().as_fd(), key, AtFlags::empty())?;
    Ok(rustix::fs::fsync(state.journal().as_fd())?)
}

/// Allocates room for the data that will be written, where the file system can.
fn reserve(redo: &JournalEntry, target: BorrowedFd<'_>) -> io::Result<()> {
    for (range, _) in redo.ranges.iter().filter(|(_, change)| *change == RangeChange::Data) {
        let len = range.end - range.start;
        match rustix::fs::fallocate(target, FallocateFlags::KEEP_SIZE, range.start, len) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => return Ok(()),
            result => result?,
        }
    }
    Ok(())
}

/// Applies an entry to its file. Applying it twice has the same result.
fn apply(
    state: &StateDir,
    redo: &JournalEntry,
    entry: BorrowedFd<'_>,
    target: BorrowedFd<'_>,
) -> io::Result<()> {
    rustix::fs::ftruncate(target, redo.len)?;
    for (range, change) in redo.ranges.iter() {
        let mut at = range.start;
        while at < range.end {
            state.check()?;
            let end = range.end.min(at + STEP_BYTES);
            match change {
                RangeChange::Data => copy_bytes::range(entry, target, at..end)?,
                RangeChange::Hole => copy_bytes::make_hole(target, at, end - at)?,
            }
            at = end;
        }
    }
    state.check()?;
    let fits = put_off_too_large(set_rewritten(redo, target))?;
    rustix::fs::fsync(target)?;
    fits
}

/// Sets the metadata of a file that was written in place, including the bits that writing cleared.
fn set_rewritten(redo: &JournalEntry, file: BorrowedFd<'_>) -> io::Result<()> {
    if let Some(owner) = redo.owner {
        chown(file, owner)?;
    }
    let set_attrs =
        |AttrsOf { classes, attrs }: &AttrsOf| set_xattrs::replace(file, attrs.as_attrs(), *classes);
    let fits = put_off_too_large(redo.attrs.as_ref().map_or(Ok(()), set_attrs))?;
    rustix::fs::fchmod(file, Mode::from_raw_mode(redo.mode.into()))?;
    if let Some(mtime) = redo.mtime {
        rustix::fs::futimens(file, &times(mtime))?;
    }
    fits
}

/// Applies all entries that a run that was cut off left in the journal. Returns notes for the report.
///
/// # Errors
/// [`ApplyError::Journal`] where an entry is damaged, or the file cannot be written.
pub(crate) fn replay(root: &Root, state: &StateDir) -> Result<Vec<String>, ApplyError> {
    let Keys { mine, removed } =
        keys(state).map_err(|source| ApplyError::Own { path: state.path().into(), source })?;
    for key in mine {
        finish(root, state, &key).map_err(|(file, source)| ApplyError::Journal {
            file: file
                .map_or_else(|| "a file that it does not name any more".into(), |path| path.to_string()),
            entry: state.path().join(".volferry/journal").join(&key),
            source,
        })?;
    }
    Ok((removed > 0).then(|| not_believed(removed)).into_iter().collect())
}

fn not_believed(entries: usize) -> String {
    let updates = plural(entries as u64, "interrupted update", "interrupted updates");
    format!(
        "removed {updates} in .volferry/journal, which another user could have written: files that were being written in place \
         are compared with the source's"
    )
}

/// The entries of a journal.
#[derive(Default)]
struct Keys {
    /// The names of those that may be redone.
    mine: Vec<String>,
    /// The number of entries that were removed because another user could have written them.
    removed: usize,
}

/// Returns the names of the entries. Leaves files of other names alone.
fn keys(state: &StateDir) -> io::Result<Keys> {
    let mut keys = Keys::default();
    each_name(state.journal(), |name| {
        let name = name.to_string_lossy().into_owned();
        if name.len() != 32 || !name.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Ok(());
        }
        let stat = rustix::fs::statat(state.journal(), &name, AtFlags::SYMLINK_NOFOLLOW)?;
        if state.journal().trusts(&stat) {
            keys.mine.push(name);
        } else {
            rustix::fs::unlinkat(state.journal(), &name, AtFlags::empty())?;
            keys.removed += 1;
        }
        Ok(())
    })?;
    Ok(keys)
}

type UnfinishedRedo = (Option<RelPath>, JournalError);

fn finish(root: &Root, state: &StateDir, key: &str) -> Result<(), UnfinishedRedo> {
    let SizedFile { file, len } = open_entry(state, key).map_err(|error| (None, error))?;
    let redo = JournalEntry::read(file.as_fd(), len)
        .map_err(|error| (path_of_damaged(file.as_fd(), len, key), error))?;
    if part_key(&redo.path) != key {
        return Err((Some(redo.path), JournalError::Damaged("it has another entry's name")));
    }
    write_again(root, state, &redo, &file, key).map_err(|error| (Some(redo.path), error.into()))
}

fn write_again(
    root: &Root,
    state: &StateDir,
    redo: &JournalEntry,
    entry: &OwnedFd,
    key: &str,
) -> io::Result<()> {
    match open_target(root, redo)? {
        Some(target) => {
            tracing::info!(path = %redo.path, "finishing an update in place that a run which was cut off had begun");
            reserve(redo, target.as_fd())?;
            // The next comparison reports an attribute that is too large.
            drop(put_off_too_large(apply(state, redo, entry.as_fd(), target.as_fd()))?);
        }
        None => {
            tracing::warn!(path = %redo.path, "the file of a journal's entry is not there any more");
        }
    }
    remove(state, key)
}

fn open_entry(state: &StateDir, key: &str) -> Result<SizedFile, JournalError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file =
        rustix::fs::openat(state.journal().as_fd(), key, flags, Mode::empty()).map_err(io::Error::from)?;
    let stat = rustix::fs::fstat(&file).map_err(io::Error::from)?;
    if state.journal().trusts(&stat) {
        Ok(SizedFile { file, len: stat.st_size as u64 })
    } else {
        Err(JournalError::Damaged("another user could have written it"))
    }
}

/// Opens the file of an entry; `None` if it is gone or was replaced.
fn open_target(root: &Root, redo: &JournalEntry) -> io::Result<Option<OwnedFd>> {
    let target = match root.file_to_write(&redo.path) {
        // Its new mode may have been set already.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            set_metadata::unlock_file(root, &redo.path, redo.inode)?;
            root.file_to_write(&redo.path)
        }
        result => result,
    };
    let target = match target.map_err(|error| (Errno::from_io_error(&error), error)) {
        Err((Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ISDIR | Errno::NXIO), _)) => {
            return Ok(None);
        }
        result => result.map_err(|(_, error)| error)?,
    };
    let stat = rustix::fs::fstat(&target)?;
    let is_same = FileType::from_raw_mode(stat.st_mode).is_file() && stat.st_ino == redo.inode;
    Ok(is_same.then_some(target))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{FileExt as _, PermissionsExt as _},
        path::{Path, PathBuf},
    };

    use super::*;
    use crate::entry::Time;

    const LEN: usize = 3 << 20;

    struct TestTree {
        dir: tempfile::TempDir,
    }

    impl TestTree {
        fn new() -> Self {
            let place = Self { dir: tempfile::tempdir().unwrap() };
            fs::write(place.file(), vec![1; LEN]).unwrap();
            place
        }

        fn file(&self) -> PathBuf {
            self.dir.path().join("file")
        }

        fn journal(&self) -> Vec<PathBuf> {
            let entries = fs::read_dir(self.dir.path().join(".volferry/journal")).unwrap();
            entries.map(|entry| entry.unwrap().path()).collect()
        }

        fn root(&self) -> Root {
            Root::open(self.dir.path()).unwrap()
        }

        fn state(&self) -> StateDir {
            StateDir::open(&self.root(), self.dir.path(), None, None).unwrap()
        }

        /// Commits an update to the journal without applying it. Returns the new content.
        fn cut_off(&self) -> Vec<u8> {
            let (state, root) = (self.state(), self.root());
            let staged = Staged::overlay(&state, &root, &RelPath::parse(b"file").unwrap()).unwrap().unwrap();
            staged.set_len(LEN as u64 + 10).unwrap();
            staged.write_at(&[2; 5000], 100).unwrap();
            staged.make_hole(1 << 20, 1 << 20).unwrap();
            staged.write_at(&[3; 10], LEN as u64).unwrap();
            let redo = redo(staged.below().unwrap(), &staged, root.as_fd(), b"file").unwrap();
            let mtime = Some(Time { seconds: 12345, nanos: 67 });
            commit(&state, &staged, &JournalEntry { mode: 0o640, mtime, ..redo }).unwrap();
            let mut new = vec![1; LEN + 10];
            new[100..5100].fill(2);
            new[1 << 20..2 << 20].fill(0);
            new[LEN..].fill(3);
            new
        }

        fn replay(&self) -> Result<(), ApplyError> {
            replay(&self.root(), &self.state()).map(drop)
        }
    }

    #[test]
    fn what_is_in_the_journal_is_finished_however_much_of_it_was_written() {
        type Crash = fn(&fs::File);
        let crashes: [Crash; 4] = [
            |_| {},
            |file| file.set_len(LEN as u64 + 10).unwrap(),
            |file| file.write_all_at(&[2; 1234], 100).unwrap(),
            |file| {
                file.write_all_at(&[2; 5000], 100).unwrap();
                file.write_all_at(&[3; 10], LEN as u64).unwrap();
            },
        ];
        for crash in crashes {
            let place = TestTree::new();
            let new = place.cut_off();
            crash(&fs::OpenOptions::new().write(true).open(place.file()).unwrap());
            place.replay().unwrap();
            assert!(fs::read(place.file()).unwrap() == new);
            let stat = rustix::fs::stat(place.file()).unwrap();
            assert_eq!((stat.st_mode & 0o7777, stat.st_mtime, stat.st_mtime_nsec), (0o640, 12345, 67));
            assert_eq!(place.journal(), Vec::<PathBuf>::new());
        }
    }

    #[test]
    fn what_is_not_in_the_journal_yet_leaves_the_file_as_it_was() {
        let place = TestTree::new();
        let (state, root) = (place.state(), place.root());
        let staged = Staged::overlay(&state, &root, &RelPath::parse(b"file").unwrap()).unwrap().unwrap();
        staged.write_at(&[2; 5000], 100).unwrap();
        drop((staged, state));
        place.replay().unwrap();
        assert!(fs::read(place.file()).unwrap() == vec![1; LEN]);
    }

    #[test]
    fn a_file_that_took_the_place_of_another_is_left_alone() {
        let place = TestTree::new();
        place.cut_off();
        fs::write(place.dir.path().join("other"), "somebody's own").unwrap();
        fs::rename(place.dir.path().join("other"), place.file()).unwrap();
        place.replay().unwrap();
        assert_eq!(fs::read(place.file()).unwrap(), b"somebody's own");
        assert_eq!(place.journal(), Vec::<PathBuf>::new());
    }

    #[test]
    fn an_entry_that_others_could_have_written_is_never_believed() {
        type Opening = fn(&TestTree, &Path);
        let open: [Opening; 5] = [
            |_, entry| set_mode(entry, 0o620),
            |place, _| set_mode(&place.dir.path().join(".volferry/journal"), 0o2770),
            |place, _| set_mode(&place.dir.path().join(".volferry"), 0o2770),
            |place, entry| fs::hard_link(entry, place.dir.path().join("another name")).unwrap(),
            |_, entry| {
                fs::remove_file(entry).unwrap();
                std::os::unix::fs::symlink("../../file", entry).unwrap();
            },
        ];
        for (nth, open) in open.into_iter().enumerate() {
            let place = TestTree::new();
            place.cut_off();
            open(&place, &place.journal()[0]);
            let notes = replay(&place.root(), &place.state()).unwrap();
            assert!(notes[0].starts_with("removed 1 interrupted update in"), "{nth}: {notes:?}");
            assert!(fs::read(place.file()).unwrap() == vec![1; LEN], "{nth}");
            assert_eq!(place.journal(), Vec::<PathBuf>::new(), "{nth}");
            let mode = fs::metadata(place.dir.path().join(".volferry/journal")).unwrap().permissions().mode();
            assert_eq!(mode & 0o077, 0, "{nth}");
        }
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_damaged_entry_names_its_file_and_changes_nothing() {
        let place = TestTree::new();
        place.cut_off();
        let entry = place.journal().remove(0);
        fs::OpenOptions::new().write(true).open(&entry).unwrap().write_all_at(b"x", 3000).unwrap();
        let Err(error) = place.replay() else { panic!("not seen") };
        let text = error.to_string();
        assert!(text.contains("the update of file,") && text.contains(entry.to_str().unwrap()), "{text}");
        assert!(fs::read(place.file()).unwrap() == vec![1; LEN]);
        fs::remove_file(entry).unwrap();
        place.replay().unwrap();
    }

    #[test]
    fn a_file_that_somebody_else_writes_to_is_not_mixed_with_what_was_kept_of_it() {
        let place = TestTree::new();
        let (state, root) = (place.state(), place.root());
        let staged = Staged::overlay(&state, &root, &RelPath::parse(b"file").unwrap()).unwrap().unwrap();
        fs::OpenOptions::new()
            .write(true)
            .open(place.file())
            .unwrap()
            .write_all_at(b"more", LEN as u64)
            .unwrap();
        assert!(redo(staged.below().unwrap(), &staged, root.as_fd(), b"file").is_err());
    }

    #[test]
    fn a_file_with_two_names_is_not_written_in_place() {
        let place = TestTree::new();
        fs::hard_link(place.file(), place.dir.path().join("link")).unwrap();
        let path = RelPath::parse(b"file").unwrap();
        assert!(Staged::overlay(&place.state(), &place.root(), &path).unwrap().is_none());
    }
}
