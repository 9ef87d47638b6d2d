//! Tests of the oracle itself: one that finds no differences proves nothing.

use tempfile::TempDir;

use crate::common::prelude::*;

/// Makes two folders with the same content.
fn twins(fill: impl Fn(&Path)) -> (TempDir, TempDir) {
    let twins = (scratch::scratch(), scratch::scratch());
    fill(twins.0.path());
    fill(twins.1.path());
    twins
}

fn seeded(root: &Path) {
    tree::random(root, &mut Rng::new(5), 150, tree::Shape::Everything);
}

#[test]
fn trees_of_one_seed_are_alike() {
    let (a, b) = twins(seeded);
    // A link contains the path of its own folder.
    let but_links = |dir: &Path| {
        let found = Snapshot::of(dir);
        found.entries().filter(|(_, node)| node.kind.name() != "symbolic link").count()
    };
    assert!(but_links(a.path()) > 80);
    let differences = Snapshot::of(a.path()).differences(&Snapshot::of(b.path()), COPY);
    assert!(differences.iter().all(|line| line.contains(": points to ")), "{differences:?}");
}

#[test]
fn a_tree_with_one_of_everything_is_like_itself() {
    let dir = scratch::scratch();
    tree::gallery(dir.path(), tree::Shape::Everything);
    let (a, b) = (Snapshot::of(dir.path()), Snapshot::of(dir.path()));
    assert!(a.entries().count() > 1000);
    a.assert_like(&b, UNTOUCHED, "one tree, read twice");
}

#[test]
fn every_kind_of_edit_is_seen_where_it_was_made() {
    let mut rng = Rng::new(11);
    let dir = scratch::scratch();
    seeded(dir.path());
    for edit in Edit::ALL {
        let before = Snapshot::of(dir.path());
        let Some(path) = (0..20).find_map(|_| edit.apply(dir.path(), &mut rng)) else {
            assert!(edit == Edit::Chown && !scratch::is_root(), "{edit:?} found nothing to change");
            continue;
        };
        let differences = before.differences(&Snapshot::of(dir.path()), COPY);
        let path = std::os::unix::ffi::OsStrExt::as_bytes(path.strip_prefix(dir.path()).unwrap().as_os_str());
        let named = differences.iter().any(|line| line.starts_with(&format!("{}: ", show(path))));
        assert!(named, "{edit:?} of {}: {differences:?}", show(path));
    }
}

#[test]
fn a_file_that_was_written_again_as_it_was_is_told_from_an_untouched_one() {
    let dir = scratch::scratch();
    let path = dir.path().join("f");
    fs::write(&path, "same").unwrap();
    tree::set_mtime(&path, 5, 5);
    tree::set_mtime(dir.path(), 5, 5);
    let before = Snapshot::of(dir.path());
    fs::remove_file(&path).unwrap();
    fs::write(&path, "same").unwrap();
    tree::set_mtime(&path, 5, 5);
    tree::set_mtime(dir.path(), 5, 5);
    let after = Snapshot::of(dir.path());
    assert_eq!(before.differences(&after, COPY), [""; 0]);
    assert!(!before.differences(&after, UNTOUCHED).is_empty());
}

#[test]
fn only_the_roots_own_folder_is_no_part_of_a_tree() {
    let dir = scratch::scratch();
    fs::create_dir_all(dir.path().join(".volferry/staging")).unwrap();
    fs::create_dir_all(dir.path().join("below/.volferry")).unwrap();
    symlink("x", dir.path().join("link")).unwrap();
    assert_eq!(Snapshot::of(dir.path()).paths(), ["below", "below/.volferry", "link"]);
}
