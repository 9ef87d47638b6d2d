//! Looks again at a tree whose files were moved while they were read, so that no file that was there all the time is
//! left out, and none gets the content of another.
//!
//! A name that does not lead to the listed file any more was deleted, replaced or moved. Only a further scan tells
//! which: a file that was moved has another name then. Deleted files are simply not in the snapshot.

use std::{collections::HashSet, os::fd::AsFd as _, time::SystemTime};

use rustix::fs::{AtFlags, StatxFlags};

use super::{
    find_listed_file::{Displaced, EarlierReads},
    find_unchanged::PlannedFolders,
    left_out_files::{ReadPlanned, leave_out, reads_of, without_dangling},
    store_contents::ScannedTree,
};
use crate::{
    entry::{Kind, Time},
    entry_paths::{EntryPlace, paths},
    failures::Failures,
    monitor::Monitor,
    path::RelPath,
    root::Root,
    scan::{KnownTree, WrittenEntries, scan_changes},
    snapshot::{
        store::{SnapshotError, io_error},
        typed_time::time_of,
    },
    tree::Tree,
};

/// The number of looks at a tree before files that are moved again and again are reported as failed.
pub(super) const MAX_LOOKS: u32 = 4;

/// A tree whose files were read.
pub(crate) struct SettledTree {
    /// The further scan that the plan is of; `None` if it is of the first one.
    pub again: Option<Tree>,
    pub planned: PlannedFolders,
}

/// Plans and reads a tree by `read`, and scans it again if names led elsewhere: once if their files were deleted, else
/// until all are read. What cannot be read goes to `failures`.
///
/// # Errors
/// If the tree cannot be scanned again, and the errors of `read`.
pub(crate) fn read_until_settled(
    first: &ScannedTree<'_>,
    failures: &Failures,
    monitor: &Monitor,
    read: &mut ReadPlanned<'_>,
) -> Result<SettledTree, SnapshotError> {
    let before = failures.so_far();
    let (mut earlier, mut again, mut since) = (EarlierReads::default(), None, first.began);
    for look in 1.. {
        let source = first.seen_again(again.as_ref());
        let mut planned = read(&source, &earlier)?;
        if planned.displaced.is_empty() {
            let planned = without_dangling(planned, &source, failures, &before, read)?;
            return Ok(SettledTree { again, planned });
        }
        let of_this_look = failures.so_far();
        failures.go_back_to(&before);
        let scanned = time_of(SystemTime::now());
        let written = first.written.map(|written| written as &dyn WrittenEntries);
        let known = KnownTree { scan: None, written };
        let next = scan_changes(first.root, first.options, known, failures, monitor)
            .map_err(io_error("scan", "the tree, again"))?;
        let lost = lost_files(&planned.displaced, &next, first.root, since);
        if lost.is_empty() || look == MAX_LOOKS {
            failures.go_back_to(&of_this_look);
            leave_out(&mut planned, &lost, source.tree, failures);
            let planned = without_dangling(planned, &source, failures, &before, read)?;
            return Ok(SettledTree { again, planned });
        }
        earlier = reads_of(planned, source.tree);
        (again, since) = (Some(next), scanned);
    }
    Err(SnapshotError::Elsewhere("the tree was not looked at".into()))
}

/// Returns the displaced files that a further scan, `next`, has found at other names; and those with further names in
/// the listings, which would lead to another file or to none.
fn lost_files(displaced: &[Displaced], next: &Tree, root: &Root, since: Time) -> Vec<Displaced> {
    let wanted: HashSet<u32> = displaced.iter().filter_map(|file| file.inode).collect();
    let mut found = Vec::new();
    for (dir, scanned) in (0..).zip(&next.dirs) {
        let files = (0..).zip(scanned.listing.iter().zip(scanned.inodes.iter()));
        let files = files.filter(|(_, (entry, inode))| {
            wanted.contains(inode) && matches!(entry.kind, Kind::File { .. } | Kind::HardLink { .. })
        });
        found.extend(files.map(|(index, (_, inode))| (EntryPlace { dir, index }, *inode)));
    }
    let paths = paths(&next.dirs, found.iter().map(|(place, _)| *place));
    let is_old = |place: &EntryPlace| paths.get(place).is_none_or(|path| !is_born_since(root, path, since));
    let moved: HashSet<u32> =
        found.iter().filter(|(place, _)| is_old(place)).map(|(_, inode)| *inode).collect();
    let is_moved = |file: &Displaced| file.inode.is_some_and(|inode| moved.contains(&inode));
    displaced.iter().filter(|file| file.leads || is_moved(file)).copied().collect()
}

/// Returns whether the file at a path was made at this time or later, so that it has the inode of a deleted file. False
/// where the file system does not tell.
fn is_born_since(root: &Root, path: &RelPath, since: Time) -> bool {
    let Some((dir, name)) = path.split_last() else { return false };
    let born = root.dir(&dir).ok().and_then(|dir| {
        rustix::fs::statx(dir.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BTIME).ok()
    });
    born.is_some_and(|stat| {
        let born = Time { seconds: stat.stx_btime.tv_sec, nanos: stat.stx_btime.tv_nsec };
        stat.stx_mask & StatxFlags::BTIME.bits() != 0 && born >= since
    })
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        fs::{self, File, hard_link, rename},
        os::unix::fs::{PermissionsExt as _, symlink},
        path::{Path, PathBuf},
    };

    use contract::SnapshotEngine;
    use rustix::fs::{XattrFlags, setxattr};
    use tempfile::TempDir;

    use super::*;
    use crate::{
        destination::Destination,
        entry::FullMeta,
        root::TreeLocation,
        scan::scan,
        snapshot::{
            create::{
                ListedFiles, LocatedFile,
                create_snapshot::lock_volume,
                find_unchanged::{Slot, plan},
                left_out_files::KEPT_MOVING,
                options_of,
                publish::publish,
            },
            store::{FolderRef, KnownDamage, Labels, Snapshot, Store, Writer},
        },
    };

    /// A volume that is changed between the scan and the publication of a snapshot.
    struct LiveVolume {
        dir: TempDir,
        destination: Destination,
    }

    /// What a snapshot has: contents, or `->` and the path of the first name, by path; `...` for what it may lack.
    type Entries = BTreeMap<String, String>;

    impl LiveVolume {
        fn new() -> Self {
            let dir = TempDir::new().unwrap();
            let destination = lock_volume(&TreeLocation::from(dir.path())).unwrap();
            Self { dir, destination }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.dir.path().join(name)
        }

        fn write(&self, name: &str, content: &str) {
            fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
            fs::write(self.path(name), content).unwrap();
        }

        fn rename(&self, from: &str, to: &str) {
            rename(self.path(from), self.path(to)).unwrap();
        }

        /// Puts a new file in the place of another one.
        fn replace(&self, name: &str, content: &str) {
            self.write("temporary", content);
            self.rename("temporary", name);
        }

        /// Scans, changes the tree, and takes the snapshot.
        fn snapshot(&self, change: impl FnOnce(), failures: &Failures) -> Snapshot {
            let (root, monitor) = (self.destination.root(), Monitor::default());
            let path = self.dir.path();
            let mut writer = Writer::open(self.destination.state(), root, path, &monitor).unwrap();
            let options = options_of(writer.now().unwrap());
            let began = time_of(SystemTime::now());
            let tree = scan(root, &options, failures, &monitor).unwrap();
            let root_meta = FullMeta { meta: tree.root_meta, attrs: tree.root_attrs.clone() };
            let source =
                ScannedTree { tree: &tree, options: &options, root_meta, root, began, written: None };
            change();
            publish(&mut writer, &source, Labels::default(), SnapshotEngine::Copy, failures, &monitor)
                .unwrap()
        }

        /// Takes a snapshot as [`Self::snapshot`] does, which has to be whole, and returns its entries.
        fn entries(&self, change: impl FnOnce()) -> Entries {
            let failures = Failures::default();
            let made = self.snapshot(change, &failures);
            assert_eq!((failures.count(), made.failed), (0, 0), "{:?}", failures.named());
            let entries = self.entries_of(&made.tree);
            let files: u64 = entries.values().map(|content| content.len() as u64).sum();
            assert_eq!(made.entries, entries.len() as u64);
            let is_all = !entries.values().any(|content| content.starts_with("->"));
            assert!(!is_all || made.bytes == files, "{} bytes of {entries:?}", made.bytes);
            entries
        }

        fn entries_of(&self, folder: &FolderRef) -> Entries {
            let store = Store::open(self.destination.root(), self.dir.path()).unwrap().unwrap();
            let mut entries = Entries::new();
            add_entries(&store, folder, "", &mut entries);
            entries
        }
    }

    fn add_entries(store: &Store, folder: &FolderRef, above: &str, entries: &mut Entries) {
        let folder = store.folder(folder).unwrap();
        if !folder.listing.is_complete() {
            entries.insert(format!("{above}..."), String::new());
        }
        for row in folder.rows() {
            let path = format!("{above}{}", String::from_utf8_lossy(row.entry.name));
            let text = match row.entry.kind {
                Kind::File { size } => {
                    let content = row.content.map(|(content, _)| store.small(&content, size).unwrap());
                    String::from_utf8(content.unwrap_or_default()).unwrap()
                }
                Kind::HardLink { to } => format!("->{}", String::from_utf8_lossy(to)),
                _ => String::new(),
            };
            entries.insert(path.clone(), text);
            row.child.iter().for_each(|child| add_entries(store, child, &format!("{path}/"), entries));
        }
    }

    fn expected(entries: &[(&str, &str)]) -> Entries {
        entries.iter().map(|(path, content)| ((*path).into(), (*content).into())).collect()
    }

    #[test]
    fn a_file_with_several_names_is_read_by_one_that_still_leads_to_it() {
        let volume = LiveVolume::new();
        for (first, other) in [("gone", "z/gone"), ("replaced", "z/replaced"), ("linked", "z/linked")] {
            volume.write(other, "old");
            hard_link(volume.path(other), volume.path(first)).unwrap();
        }
        let entries = volume.entries(|| {
            fs::remove_file(volume.path("gone")).unwrap();
            volume.replace("replaced", "new");
            fs::remove_file(volume.path("linked")).unwrap();
            symlink("nowhere", volume.path("linked")).unwrap();
        });
        let links = [("z/gone", "->gone"), ("z/replaced", "->replaced"), ("z/linked", "->linked")];
        let firsts = [("gone", "old"), ("replaced", "old"), ("linked", "old"), ("z", "")];
        assert_eq!(entries, expected(&[&links[..], &firsts].concat()), "the state of the scan");
        let next = volume.entries(|| {});
        assert_eq!(next["replaced"], "new");
        assert_eq!(next["z/replaced"], "old");
    }

    #[test]
    fn names_of_one_file_that_all_lead_elsewhere_are_what_they_are_now() {
        let volume = LiveVolume::new();
        for (first, other) in [("apart", "z/apart"), ("gone", "z/gone"), ("moved", "z/moved")] {
            volume.write(other, "old");
            hard_link(volume.path(other), volume.path(first)).unwrap();
        }
        let entries = volume.entries(|| {
            volume.replace("apart", "one");
            volume.replace("z/apart", "other");
            ["gone", "z/gone", "moved"].iter().for_each(|name| fs::remove_file(volume.path(name)).unwrap());
            volume.rename("z/moved", "z/another");
        });
        let now = [("apart", "one"), ("z", ""), ("z/another", "old"), ("z/apart", "other")];
        assert_eq!(entries, expected(&now));
    }

    #[test]
    fn a_file_that_was_moved_before_it_was_read_is_where_it_is_now() {
        let volume = LiveVolume::new();
        volume.write("a/unchanged", "unchanged");
        volume.entries(|| {});
        volume.write("b/file", "moved");
        volume.write("c/folder/file", "moved with its folder");
        volume.write("log", "first lines");
        volume.write("same", "same");
        let entries = volume.entries(|| {
            volume.rename("b/file", "a/file");
            volume.rename("c/folder", "a/folder");
            volume.rename("log", "log.1");
            let mut log = File::options().append(true).open(volume.path("log.1")).unwrap();
            std::io::Write::write_all(&mut log, b" and more").unwrap();
            volume.write("log", "later lines");
        });
        let now = [
            ("a", ""),
            ("a/file", "moved"),
            ("a/folder", ""),
            ("a/folder/file", "moved with its folder"),
            ("a/unchanged", "unchanged"),
            ("b", ""),
            ("c", ""),
            ("log", "later lines"),
            ("log.1", "first lines and more"),
            ("same", "same"),
        ];
        assert_eq!(entries, expected(&now));
    }

    #[test]
    fn a_file_that_was_deleted_is_left_out_and_nothing_is_missing() {
        let volume = LiveVolume::new();
        volume.write("folder/temporary", "content");
        volume.write("folder/stays", "stays");
        volume.write("gone/file", "content");
        let entries = volume.entries(|| {
            fs::remove_file(volume.path("folder/temporary")).unwrap();
            fs::remove_dir_all(volume.path("gone")).unwrap();
            // It may have the inode of a file that was deleted.
            volume.write("folder/new", "new");
        });
        let read = [("folder", ""), ("folder/stays", "stays"), ("gone", "")];
        // With that inode, and made in the tick of the clock in which the scan began, it is taken for the deleted one
        // that was moved, and all is listed once more.
        let listed_anew = [("folder", ""), ("folder/new", "new"), ("folder/stays", "stays")];
        assert!(entries == expected(&read) || entries == expected(&listed_anew), "{entries:?}");
    }

    fn set_attr(path: &Path, name: &str, value: &str) {
        setxattr(path, name, value.as_bytes(), XattrFlags::empty()).unwrap();
    }

    #[test]
    fn a_file_has_the_attributes_that_it_had_when_it_was_read() {
        let volume = LiveVolume::new();
        for name in ["replaced", "changed", "same"] {
            volume.write(name, "old");
            set_attr(&volume.path(name), "user.of", "old");
        }
        let failures = Failures::default();
        let change = || {
            volume.replace("replaced", "new");
            fs::set_permissions(volume.path("replaced"), fs::Permissions::from_mode(0o755)).unwrap();
            set_attr(&volume.path("changed"), "user.of", "new");
        };
        let attrs = |made: &Snapshot| -> Vec<(String, String)> {
            let store = Store::open(volume.destination.root(), volume.dir.path()).unwrap().unwrap();
            let folder = store.folder(&made.tree).unwrap();
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            let values = folder.listing.iter().map(|entry| {
                (text(entry.name), entry.attrs.iter().map(|(_, value)| text(value)).collect::<String>())
            });
            values.collect()
        };
        let made = volume.snapshot(change, &failures);
        let now = [("changed", "new"), ("replaced", ""), ("same", "old")];
        assert_eq!(attrs(&made), now.map(|(name, value)| (name.into(), value.into())));
        let next = volume.snapshot(|| {}, &failures);
        assert_eq!(next.tree.id, made.tree.id, "the live tree is as the snapshot has it");
    }

    /// Moves a file before each look.
    #[test]
    fn a_file_that_is_moved_again_and_again_is_named_as_failed() {
        let volume = LiveVolume::new();
        volume.write("0", "content");
        volume.write("stays", "stays");
        let (root, monitor, failures) = (volume.destination.root(), Monitor::default(), Failures::default());
        let path = volume.dir.path();
        let writer = Writer::open(volume.destination.state(), root, path, &monitor).unwrap();
        let options = options_of(writer.now().unwrap());
        let began = time_of(SystemTime::now());
        let tree = scan(root, &options, &failures, &monitor).unwrap();
        let root_meta = FullMeta { meta: tree.root_meta, attrs: tree.root_attrs.clone() };
        let source = ScannedTree { tree: &tree, options: &options, root_meta, root, began, written: None };
        let mut looks = 0;
        let settled = read_until_settled(&source, &failures, &monitor, &mut |source, earlier| {
            volume.rename(&looks.to_string(), &(looks + 1).to_string());
            looks += 1;
            let damage = KnownDamage::default();
            let mut planned = plan(source.tree, &writer.store, None, &damage, &earlier.written_anew);
            let listed = ListedFiles::new(source.tree, root, earlier);
            let place = EntryPlace { dir: 0, index: 0 };
            let found = listed.find(&RelPath::root(), (looks - 1).to_string().as_bytes(), place, &mut None);
            assert!(
                !matches!(found, Ok(LocatedFile::Open(_) | LocatedFile::Read(_))),
                "its name leads nowhere"
            );
            planned.displaced = listed.displaced();
            Ok(planned)
        });
        let slots = &settled.unwrap().planned.making[0].slots;
        assert!(matches!(slots[..], [Slot::Failed, Slot::Wanted(_)]), "{slots:?}");
        assert_eq!(looks, 4);
        let named = failures.named();
        assert_eq!(
            (failures.count(), named[0].path.as_str(), named[0].error.as_str()),
            (1, "3", KEPT_MOVING)
        );
    }
}
