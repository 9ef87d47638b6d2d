//! Removes entries of a source whose copies are durable, and were read back and compared with them.

use std::{
    collections::HashMap,
    hash::{BuildHasher as _, RandomState},
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};

use crate::{
    entry::{Entry, Kind, Time},
    measure::{failures::Failures, monitor::Monitor},
    path::RelPath,
    session_error::SessionError,
    source::{
        find_destination::refuse_destination,
        hash_files::{Expect, HashRequest, hash_all, hash_with_states},
        paths_by_number::{EntriesOf, Paths},
        source_file::{Origin, open_nonblocking},
    },
    sys::{
        in_motion::is_in_motion,
        root::Root,
        stat::{FileState, modified},
    },
    transport::TransportError,
    tree::{
        Tree,
        dir::{DirId, ROOT},
    },
    wire::{FileGroup, Hashed, Release},
};

const NONE: TransportError =
    TransportError::Nonsense("something was to be removed that there is not, or that is a folder");

/// A file of the tree, by the number of its directory and its index there.
type FileId = (DirId, u32);

/// Removes the entries of a source that a run moves, and remembers what it has to know for that.
#[derive(Debug)]
pub(crate) struct Removal {
    /// Whether the run moves.
    moves: bool,
    /// Whether the source is known not to be the destination.
    is_apart: bool,
    /// Hashes of the states in which files were when their content was last compared.
    compared: HashMap<FileId, u64>,
    hasher: RandomState,
    /// The states that files with more names got when this run removed one of them, and those before that.
    unlinked: HashMap<FileState, FileState>,
}

impl Removal {
    /// Makes that of a run that moves or not. `is_apart` is whether its source is known not to be the destination.
    pub(crate) fn new(moves: bool, is_apart: bool) -> Self {
        let (compared, hasher, unlinked) = Default::default();
        Self { moves, is_apart, compared, hasher, unlinked }
    }

    /// Hashes files for the comparison with their copies, and remembers their states if the run moves.
    ///
    /// # Errors
    /// [`TransportError::Canceled`].
    pub(crate) fn hash(
        &mut self,
        origin: Origin<'_>,
        groups: &[FileGroup],
        files: &[HashRequest],
        monitor: &Monitor,
    ) -> Result<Vec<Hashed>, TransportError> {
        if !self.moves {
            return hash_all(origin, files, Expect::AsListed, monitor);
        }
        let ids = groups.iter().flat_map(|group| group.indices.iter().map(|index| (group.dir, *index)));
        let hashes = hash_with_states(origin, files, Expect::AsListed, monitor)?;
        for (id, (_, state)) in ids.zip(&hashes) {
            match state {
                Some(state) => self.compared.insert(id, self.hasher.hash_one(state)),
                None => self.compared.remove(&id),
            };
        }
        Ok(hashes.into_iter().map(|(hashed, _)| hashed).collect())
    }

    /// Removes these entries of the tree below `root`. One that has changed since it was listed and compared stays, and
    /// is a failure.
    ///
    /// # Errors
    /// [`SessionError::SameTree`] before the first is removed; if the tree has no such entries, or one is a directory.
    pub(crate) fn release(
        &mut self,
        root: &Root,
        tree: &Tree,
        release: &Release,
        failures: &Failures,
    ) -> Result<(), SessionError> {
        if !self.is_apart {
            refuse_destination(root, tree, release.epoch)?;
            self.is_apart = true;
        }
        let (mut paths, mut entries) = (Paths::new(tree), EntriesOf::new(tree));
        for group in &release.groups {
            let first = group.indices.first().copied().unwrap_or(0);
            let mut listed = (first..).zip(entries.from(group.dir, first).ok_or(NONE)?);
            let path = paths.of(group.dir);
            let dir = root.read_dir(&path);
            for wanted in &group.indices {
                let (index, entry) = listed.find(|(index, _)| index == wanted).ok_or(NONE)?;
                if entry.kind == Kind::Dir {
                    return Err(NONE.into());
                }
                let (id, file) = file_of(tree, (group.dir, index), &entry).ok_or(NONE)?;
                let listed = ListedEntry { id, file, since: tree.since };
                let removed = dir.as_ref().map_err(again).and_then(|dir| {
                    self.remove(&EntryLocation { root, dir, path: &path, name: entry.name }, &listed)
                });
                if let Err(error) = removed {
                    let path = path.join(entry.name).unwrap_or_else(|_| path.clone());
                    failures.add(&path, "remove at the source", &error);
                }
            }
        }
        Ok(())
    }

    /// Removes an entry if it still is the listed file, which was compared, and nobody is writing to it.
    fn remove(&mut self, at: &EntryLocation<'_>, listed: &ListedEntry<'_>) -> io::Result<()> {
        let EntryLocation { root, dir, path, name } = *at;
        let mut stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let state = FileState::of(&stat);
        let before = self.unlinked.get(&state).copied().unwrap_or(state);
        // What follows judges the file by its last change that this run did not make.
        (stat.st_ctime, stat.st_ctime_nsec) = (before.changed.seconds, before.changed.nanos.into());
        if !self.is_as_listed(at, &stat, before, listed) {
            return Err(io::Error::other("it has changed since it was copied, and stays"));
        }
        if root.doubts(path, name, &stat) {
            return Err(io::Error::other(
                "a run that wrote to it was cut off, and it stays until one has completed it",
            ));
        }
        // A long write, or one to a mapping, changes no time.
        if let Kind::File { .. } = listed.file.kind
            && is_in_motion(open_nonblocking(dir.as_fd(), name)?, &stat)
        {
            return Err(io::Error::other("another process may be writing to it, and it stays"));
        }
        if stat.st_nlink == 1 {
            return Ok(rustix::fs::unlinkat(dir, name, AtFlags::empty())?);
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let held = rustix::fs::openat(dir, name, flags, Mode::empty())?;
        rustix::fs::unlinkat(dir, name, AtFlags::empty())?;
        self.unlinked.insert(FileState::of(&rustix::fs::fstat(held)?), before);
        Ok(())
    }

    /// Returns whether an entry is what the scan has listed, and a file the one whose content was compared.
    fn is_as_listed(
        &self,
        at: &EntryLocation<'_>,
        stat: &Stat,
        state: FileState,
        listed: &ListedEntry<'_>,
    ) -> bool {
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_same = match listed.file.kind {
            Kind::File { size } => {
                kind == FileType::RegularFile
                    && stat.st_size as u64 == size
                    && self.compared.get(&listed.id) == Some(&self.hasher.hash_one(state))
            }
            Kind::Symlink { target } => {
                kind == FileType::Symlink
                    && rustix::fs::readlinkat(at.dir, at.name, Vec::new())
                        .is_ok_and(|now| now.as_bytes() == target)
            }
            Kind::Fifo => kind == FileType::Fifo,
            Kind::CharDevice { rdev } => kind == FileType::CharacterDevice && stat.st_rdev == rdev,
            Kind::BlockDevice { rdev } => kind == FileType::BlockDevice && stat.st_rdev == rdev,
            Kind::Dir | Kind::HardLink { .. } | Kind::Socket => false,
        };
        is_same && modified(stat) == listed.file.meta.mtime && !may_be_after(state.changed, listed.since)
    }
}

/// The location of an entry that is removed.
struct EntryLocation<'a> {
    root: &'a Root,
    dir: &'a OwnedFd,
    path: &'a RelPath,
    name: &'a [u8],
}

/// The file that an entry was listed as.
struct ListedEntry<'a> {
    id: FileId,
    file: Entry<'a>,
    /// When the scan began.
    since: Time,
}

/// Returns whether an entry may have changed after the scan began. File systems that keep no parts of seconds may keep
/// only even ones, and others cut off less than a millisecond.
fn may_be_after(changed: Time, since: Time) -> bool {
    const MILLI: u32 = 1_000_000;
    match changed.nanos {
        0 => changed.seconds.saturating_add(2) > since.seconds,
        _ => changed >= Time { nanos: since.nanos / MILLI * MILLI, ..since },
    }
}

fn again(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}

/// Returns the entry that lists the file of a hard link, or the entry itself.
fn file_of<'a>(tree: &'a Tree, id: FileId, entry: &Entry<'a>) -> Option<(FileId, Entry<'a>)> {
    let Kind::HardLink { to } = entry.kind else { return Some((id, *entry)) };
    let (above, name) = RelPath::parse(to)
        .ok()
        .and_then(|path| path.split_last().map(|(above, name)| (above, Box::<[u8]>::from(name))))?;
    let mut id = ROOT;
    for step in above.names() {
        id = tree.dirs[id as usize].children().find(|(name, _)| *name == step)?.1;
    }
    let mut listed = (0..).zip(&tree.dirs[id as usize].listing);
    let (index, file) = listed.find(|(_, entry)| *entry.name == *name)?;
    Some(((id, index), file))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
        path::PathBuf,
        time::Duration,
    };

    use rustix::{
        fs::{CWD, Timestamps},
        time::Timespec,
    };

    use super::*;
    use crate::{
        scan::{ScanOptions, scan},
        sys::root::TreeLocation,
    };

    /// A source that was scanned for a move.
    struct Source {
        dir: tempfile::TempDir,
        root: Root,
        tree: Tree,
        removal: Removal,
    }

    impl Source {
        /// Makes files of these names, symbolic links of those that begin so, and hard links of those "of" another.
        fn new(names: &[&str], hard_links: bool) -> Self {
            let dir = tempfile::tempdir().unwrap();
            for name in names {
                let path = dir.path().join(name);
                match name.split_once(" of ") {
                    Some((_, of)) => fs::hard_link(dir.path().join(of), path).unwrap(),
                    None if name.starts_with("link") => symlink("target", path).unwrap(),
                    None => fs::write(path, "content").unwrap(),
                }
            }
            std::thread::sleep(Duration::from_millis(20));
            let root = Root::enter(&TreeLocation::from(dir.path())).unwrap();
            let options = ScanOptions { is_source: true, hard_links, ..ScanOptions::default() };
            let tree = scan(&root, &options, &Failures::default(), &Monitor::default()).unwrap();
            Self { dir, root, tree, removal: Removal::new(true, false) }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        /// Replaces an entry by one of the same kind and length, with the same modification time.
        fn replace(&self, name: &str) {
            let (path, new) = (self.path(name), self.path(".new"));
            let old = fs::symlink_metadata(&path).unwrap();
            if old.is_symlink() {
                symlink("garget", &new).unwrap();
            } else {
                fs::write(&new, "CONTENT").unwrap();
            }
            let mtime = Timespec { tv_sec: old.mtime(), tv_nsec: old.mtime_nsec() };
            let times = Timestamps { last_access: mtime, last_modification: mtime };
            rustix::fs::utimensat(CWD, &new, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
            fs::rename(new, path).unwrap();
        }

        fn compare(&mut self) {
            let (files, indices): (Vec<_>, Vec<_>) = (0..)
                .zip(&self.tree.dirs[0].listing)
                .filter_map(|(index, entry)| Some((HashRequest::new(ROOT, &RelPath::root(), &entry)?, index)))
                .unzip();
            let groups = [FileGroup { dir: ROOT, indices }];
            self.removal.hash(Origin::Tree(&self.root), &groups, &files, &Monitor::default()).unwrap();
        }

        /// Releases each entry on its own. Returns those that are left, if each of them has failed.
        fn release(&mut self) -> Vec<String> {
            let failures = Failures::default();
            for index in 0..self.tree.dirs[0].listing.len() as u32 {
                let groups = vec![FileGroup { dir: ROOT, indices: vec![index] }];
                let release = Release { epoch: [7; 16], groups };
                self.removal.release(&self.root, &self.tree, &release, &failures).unwrap();
            }
            let names = fs::read_dir(self.dir.path()).unwrap();
            let mut left: Vec<_> = names.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
            left.sort();
            let failed: Vec<_> = failures.named().into_iter().map(|it| it.path).collect();
            assert_eq!(left, failed);
            assert!(failures.named().iter().all(|it| it.error.starts_with("it has changed since")));
            left
        }
    }

    #[test]
    fn what_another_entry_has_replaced_since_it_was_compared_stays() {
        let mut source = Source::new(&["file", "link", "other", "name of other"], true);
        source.compare();
        ["file", "link", "other"].into_iter().for_each(|name| source.replace(name));
        // The names of one inode share its change time, which moved when one was replaced.
        assert_eq!(source.release(), ["file", "link", "name of other", "other"]);
    }

    #[test]
    fn what_got_other_metadata_since_the_scan_stays_however_early() {
        let mut source = Source::new(&["before", "after", "other"], true);
        let close = |path| fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
        close(source.path("before"));
        source.compare();
        close(source.path("after"));
        assert_eq!(source.release(), ["after", "before"]);
    }

    #[test]
    fn a_file_that_was_not_compared_stays() {
        let mut source = Source::new(&["file", "name of file", "link"], true);
        assert_eq!(source.release(), ["file", "name of file"]);
    }

    #[test]
    fn removing_one_name_of_an_entry_is_no_change_of_the_others() {
        let names = ["a", "b of a", "c of a", "link", "link2 of link"];
        for hard_links in [true, false] {
            let mut source = Source::new(&names, hard_links);
            source.compare();
            assert!(source.release().is_empty(), "{hard_links}");
        }
    }

    #[test]
    fn a_change_counts_as_later_where_the_file_system_cuts_its_time_off() {
        let time = |seconds, nanos| Time { seconds, nanos };
        for (changed, since, expected) in [
            (time(100, 400_000_000), time(100, 500_000_000), false),
            (time(100, 500_000_000), time(100, 500_000_000), true),
            (time(100, 500_123_400), time(100, 500_123_456), true),
            (time(100, 499_999_900), time(100, 500_123_456), false),
            (time(100, 0), time(100, 500_000_000), true),
            (time(100, 0), time(101, 500_000_000), true),
            (time(100, 0), time(102, 500_000_000), false),
        ] {
            assert_eq!(may_be_after(changed, since), expected, "{changed:?} {since:?}");
        }
    }
}
