//! Stores that somebody made up, in which each object has its hash: what no scan could have found is not taken over.

use std::fs;

use tempfile::TempDir;

use super::lying_stores::{Lie, copy, store, volume};
use crate::{
    attrs::Attrs,
    entry::{Entry, Kind, Meta},
    hash::ContentId,
    listing::ListingBuilder,
    monitor::Monitor,
    root::TreeLocation,
    snapshot::{
        create::{lock_volume, write_folder},
        store::{AuditLine, ContentRef, Folder, FolderRef, Home, Packing, SnapshotId, Store, Writer},
    },
};

/// Makes a volume with one snapshot, of the tree that `build` writes.
fn made_up(build: impl FnOnce(&Store, &Packing<'_>) -> FolderRef) -> TempDir {
    let dir = volume();
    let destination = lock_volume(&TreeLocation::from(dir.path())).unwrap();
    let mut writer =
        Writer::open(destination.state(), destination.root(), dir.path(), &Monitor::default()).unwrap();
    let id = SnapshotId(7);
    let tree = {
        let packing = Packing::new(&writer, id, None);
        let tree = build(&writer.store, &packing);
        packing.finish().unwrap();
        tree
    };
    let mut roots = writer.roots.clone();
    let mut snapshot = roots.snapshots.remove(0);
    (snapshot.id, snapshot.tree) = (id, tree);
    roots.snapshots.push(snapshot);
    writer.publish_new(roots, AuditLine { action: "create", by: "nobody", note: "" }, id).unwrap();
    dir
}

fn folder(entries: &[(&str, Kind<'_>)], children: Vec<FolderRef>, contents: Vec<ContentRef>) -> Folder {
    let mut listing = ListingBuilder::default();
    for (name, kind) in entries {
        let meta = Meta { mode: 0o755, ..Meta::default() };
        listing.push(&Entry { name: name.as_bytes(), kind: *kind, meta, attrs: Attrs::default() });
    }
    let stamps = vec![0; contents.len()];
    Folder { listing: listing.finish(), children, contents, stamps }
}

#[track_caller]
fn assert_refused(from: &TempDir, why: &str) {
    let to = TempDir::new().unwrap();
    let done = copy(from.path(), to.path(), None, &Monitor::default()).unwrap();
    assert_eq!((done.copied.len(), done.failed.len()), (0, 1));
    assert!(done.failed[0].1.contains(why), "{}", done.failed[0].1);
    assert_eq!(fs::read_dir(store(to.path()).path().join("packs")).unwrap().count(), 0);
}

#[test]
fn a_file_that_claims_another_length_of_content_is_refused() {
    let from = made_up(|store, packing| {
        let bytes = vec![5; 100_000];
        let id = ContentId::of(&bytes);
        let content = ContentRef { id, home: packing.content(id, &bytes).unwrap() };
        let files = [("a", Kind::File { size: 100_000 }), ("b", Kind::File { size: 200_000 })];
        write_folder(&folder(&files, Vec::new(), vec![content; 2]), None, store, packing).unwrap()
    });
    assert_refused(&from, "two lengths");
}

#[test]
fn a_tree_that_nobody_could_walk_to_its_end_is_refused() {
    let from = made_up(|store, packing| {
        let mut tree = write_folder(&Folder::default(), None, store, packing).unwrap();
        for _ in 0..40 {
            let twice = folder(&[("a", Kind::Dir), ("b", Kind::Dir)], vec![tree; 2], Vec::new());
            tree = write_folder(&twice, None, store, packing).unwrap();
        }
        tree
    });
    assert_refused(&from, "entries");
}

#[test]
fn a_copy_that_is_stopped_ends_within_a_hole() {
    const LEN: u64 = 1 << 43;
    let from = made_up(|store, packing| {
        let content = ContentRef { id: ContentId([3; 32]), home: Home::Own };
        let file = folder(&[("a", Kind::File { size: LEN })], Vec::new(), vec![content]);
        write_folder(&file, None, store, packing).unwrap()
    });
    let (to, monitor) = (TempDir::new().unwrap(), Monitor::canceled_at(100));
    let error = copy(from.path(), to.path(), Some(Lie::AllHole), &monitor).unwrap_err();
    assert!(contract::chain(&error).contains("cancel"), "{}", contract::chain(&error));
    assert_eq!(monitor.checks(), 100);
}
