//! The record of damage that checks found and could not heal, in a file of the store. Publications do not reuse these
//! objects.

use std::collections::HashSet;

use super::{
    read_store::Store,
    small_files::{read_text_file, replace_file},
    snapshot_error::SnapshotError,
};
use crate::hash::ContentId;

/// The file with the ids of damaged contents, a line each.
const DAMAGED: &str = "damaged";
/// The line that stands for damaged directories.
const DIRECTORIES: &str = "directories";
/// The most damaged contents that are remembered, and the bytes of a line.
const MAX_KNOWN: usize = 10_000;
const LINE_BYTES: usize = 65;

/// Damaged objects that have no good copy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownDamage {
    /// Damaged contents.
    pub contents: HashSet<ContentId>,
    /// Whether any directory is damaged.
    pub in_directories: bool,
}

impl KnownDamage {
    /// Reads the damage that earlier checks recorded. Ignores unknown lines.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn read(store: &Store) -> Result<Self, SnapshotError> {
        let text = read_text_file(store, DAMAGED, (MAX_KNOWN * LINE_BYTES + LINE_BYTES) as u64)?;
        let contents = text.lines().filter_map(content_id).collect();
        Ok(Self { contents, in_directories: text.lines().any(|line| line == DIRECTORIES) })
    }

    /// Returns whether no damage is known.
    pub fn is_none(&self) -> bool {
        self.contents.is_empty() && !self.in_directories
    }

    /// Replaces the file with this damage, unless the file has it already.
    pub(crate) fn write(&self, store: &Store) -> Result<(), SnapshotError> {
        if Self::read(store)? == *self {
            return Ok(());
        }
        let lines = self.contents.iter().take(MAX_KNOWN).map(|id| format!("{id}\n"));
        let directories = self.in_directories.then(|| format!("{DIRECTORIES}\n"));
        let text: String = directories.into_iter().chain(lines).collect();
        replace_file(store, DAMAGED, text.as_bytes())
    }
}

fn content_id(line: &str) -> Option<ContentId> {
    blake3::Hash::from_hex(line).ok().map(|hash| ContentId(*hash.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::FileExt as _,
        path::{Path, PathBuf},
    };

    use contract::SnapshotEngine;
    use tempfile::TempDir;

    use super::*;
    use crate::{
        destination::Destination,
        entry::{FullMeta, Time},
        failures::Failures,
        kept_xattrs::Classes,
        monitor::Monitor,
        root::TreeLocation,
        scan::{ScanOptions, scan},
        snapshot::{
            check::{ReadPace, StoreShare, Turn, verify},
            create::{ScannedTree, lock_volume, publish},
            store::{
                commit::Writer, folder::ObjectRef, labels::Labels, snapshot_list::Snapshot,
                store_dir::StoreFolder, store_files::own_path,
            },
        },
    };

    /// A volume whose files have no stamps, as if their times were in the future: each snapshot compares all of them.
    struct Volume {
        dir: TempDir,
        destination: Destination,
    }

    impl Volume {
        fn new() -> Self {
            let dir = TempDir::new().unwrap();
            fs::create_dir_all(dir.path().join("above/dir")).unwrap();
            fs::write(dir.path().join("above/dir/small"), "small content").unwrap();
            fs::write(dir.path().join("above/dir/large"), vec![3; 100_000]).unwrap();
            let destination = lock_volume(&TreeLocation::from(dir.path())).unwrap();
            Self { dir, destination }
        }

        fn snapshot(&self) -> Snapshot {
            let (root, monitor) = (self.destination.root(), Monitor::default());
            let state = self.destination.state();
            let mut writer = Writer::open(state, root, self.dir.path(), &monitor).unwrap();
            let before = Time { seconds: 0, nanos: 0 };
            let options = ScanOptions {
                hard_links: true,
                attrs: Classes::ALL,
                stamps: Some(before),
                ..ScanOptions::default()
            };
            let failures = Failures::default();
            let tree = scan(root, &options, &failures, &monitor).unwrap();
            let root_meta = FullMeta { meta: tree.root_meta, attrs: tree.root_attrs.clone() };
            let source =
                ScannedTree { tree: &tree, options: &options, root, root_meta, began: before, written: None };
            publish::publish(
                &mut writer,
                &source,
                Labels::default(),
                SnapshotEngine::Copy,
                &failures,
                &monitor,
            )
            .unwrap()
        }

        fn store(&self) -> Store {
            Store::open(self.destination.root(), self.dir.path()).unwrap().unwrap()
        }

        fn pack(&self, pack: u64) -> PathBuf {
            let name = crate::snapshot::SnapshotId(pack).to_string();
            self.dir.path().join(".volferry/snapshots/packs").join(name)
        }

        /// Returns the number of objects that a check of the newest snapshot alone finds damaged.
        fn damaged_in_newest(&self) -> usize {
            let store = self.store();
            let mut roots = store.roots().unwrap();
            let newest = roots.snapshots.pop().unwrap();
            roots.snapshots = vec![newest];
            let turn = Turn::of(&store, StoreShare::default()).unwrap();
            let monitor = Monitor::default();
            verify(&store, &roots, &turn, &ReadPace::new(None, &monitor)).unwrap().damaged.len()
        }
    }

    fn flip(path: &Path, offset: u64) {
        let file = fs::File::options().read(true).write(true).open(path).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).unwrap();
        file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
    }

    /// Returns the places of the directories from the root down.
    fn places(store: &Store, snapshot: &Snapshot) -> Vec<ObjectRef> {
        let mut places = vec![snapshot.tree.place];
        let mut folder = store.folder(&snapshot.tree).unwrap();
        while let Some(child) = folder.children.first() {
            places.push(child.place);
            folder = store.folder(child).unwrap();
        }
        places
    }

    /// The ids of directories do not cover the places of their objects, so an equal parent may refer to a damaged one.
    #[test]
    fn a_snapshot_that_compares_its_files_refers_to_no_damaged_object() {
        for level in 0..3 {
            let volume = Volume::new();
            let first = volume.snapshot();
            assert_eq!(volume.snapshot().tree, first.tree, "nothing has changed");
            let place = places(&volume.store(), &first)[level];
            flip(&volume.pack(place.pack), place.offset + u64::from(place.len) / 2);
            assert_eq!(volume.damaged_in_newest(), 1, "level {level}");
            let third = volume.snapshot();
            assert_eq!(third.tree.id, first.tree.id, "level {level}");
            assert_eq!(volume.damaged_in_newest(), 0, "level {level}");
        }
    }

    #[test]
    fn content_that_is_read_again_replaces_damaged_content() {
        let volume = Volume::new();
        let first = volume.snapshot();
        let pack = volume.pack(first.tree.place.pack);
        let bytes = fs::read(&pack).unwrap();
        let at = bytes.windows(13).position(|window| window == b"small content").unwrap();
        flip(&pack, at as u64);
        let own = ContentId::of(&vec![3; 100_000]);
        let own = volume.store().path_of(StoreFolder::Content).join(own_path(&own));
        flip(&own, 5000);
        assert_eq!(volume.damaged_in_newest(), 2);
        let second = volume.snapshot();
        assert_eq!(second.tree.id, first.tree.id);
        assert_eq!(volume.damaged_in_newest(), 0);
        assert!(fs::read(&own).unwrap() == vec![3; 100_000], "also for the first snapshot");
    }

    #[test]
    fn known_damage_survives_the_trip_and_other_lines_are_left_out() {
        let volume = Volume::new();
        volume.snapshot();
        let store = volume.store();
        assert!(KnownDamage::read(&store).unwrap().is_none());
        let known = KnownDamage { contents: [ContentId([7; 32])].into(), in_directories: true };
        known.write(&store).unwrap();
        assert_eq!(KnownDamage::read(&store).unwrap(), known);
        let file = volume.dir.path().join(".volferry/snapshots").join(DAMAGED);
        fs::write(&file, "nonsense\n").unwrap();
        assert!(KnownDamage::read(&store).unwrap().is_none());
    }
}
