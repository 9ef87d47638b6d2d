//! A snapshot's restore equals the tree that it was taken of.

use serde_json::json;

use crate::common::{
    prelude::*,
    process::{command, program_in},
};
use crate::volume::{Said, Volume};

const COPY_BUT_LINKS: Aspects = Aspects { links: false, ..COPY };

/// Every kind of entry is restored exactly, on every file system that volumes commonly have.
#[test]
fn every_tree_comes_back_as_it_was() {
    for kind in FileSystem::ALL {
        let Some(mounted) = kind.mount() else { continue };
        let volume = Volume::in_dir(mounted.folder());
        let mut rng = Rng::new(kind as u64 + 1);
        tree::gallery(volume.path(), Shape::Everything);
        fs::write(volume.path().join(".READY"), "an ordinary file").unwrap();
        let mut taken = Vec::new();
        for round in 0..4 {
            for _ in 0..12 {
                rng.pick(&Edit::ALL).unwrap().apply(volume.path(), &mut rng);
            }
            let before = Snapshot::of(volume.path());
            let id = volume.create(&["--tag", &format!("round{round}")]);
            Snapshot::of(volume.path()).assert_like(&before, COPY, "a snapshot changes nothing");
            taken.push((id, before));
        }
        for nth in [1, 3, 0, 2] {
            let (id, expected) = &taken[nth];
            let said = volume.run("restore", &[id, "--no-safety"]);
            assert_eq!(said.code, Some(0), "{kind:?}: {said:?}");
            Snapshot::of(volume.path()).assert_like(expected, COPY, &format!("{kind:?}, snapshot {nth}"));
        }
        let other = volume.path().parent().unwrap().join("other");
        volume.ok("restore", &["round2", "--to", other.to_str().unwrap()]);
        Snapshot::of(&other).assert_like(&taken[2].1, COPY, &format!("{kind:?}, another folder"));
    }
}

#[test]
fn small_files_share_a_pack_and_a_snapshot_of_the_same_tree_adds_nothing() {
    let volume = Volume::new();
    tree::many(volume.path(), 1000, 29);
    volume.create(&[]);
    assert!(volume.allocated() < 4_000_000, "{} bytes", volume.allocated());
    // The files are too recent for the snapshot to trust their stamps, so the second snapshot reads all and packs none.
    volume.create(&[]);
    let before = volume.allocated();
    volume.let_stamps_settle();
    volume.create(&[]);
    volume.create(&[]);
    let list = volume.list();
    assert_eq!(list.len(), 4);
    assert_eq!(list[3]["addedBytes"], 0, "{list:?}");
    assert!(list.iter().all(|snapshot| snapshot["digest"] == list[0]["digest"]));
    assert!(volume.allocated() < before + 400_000, "{} bytes, {before} before", volume.allocated());
}

#[test]
fn what_cannot_be_done_is_said_with_what_to_do_instead() {
    let volume = Volume::new();
    for (command, args, code, error, hint) in [
        ("restore", &["latest"][..], 1, "has no snapshots", "hint: `volferry snapshot create`"),
        ("create", &["--tag", "two words"], 2, "cannot be a tag", ""),
        ("create", &["--engine", "clone"], 1, "cannot clone files", "hint: use `--engine copy`"),
    ] {
        let said = volume.run(command, args);
        assert_eq!(said.code, Some(code), "{said:?}");
        assert!(said.stderr.contains(error) && said.stderr.contains(hint), "{said:?}");
    }
    assert_eq!(volume.ok("list", &["--json"]), "[]\n");
    fs::write(volume.path().join("file"), "content").unwrap();
    volume.create(&[]);
    let said = volume.run("restore", &["ffffffffffffffff"]);
    assert!(said.stderr.contains("there is no snapshot ffffffffffffffff\nhint: "), "{said:?}");
}

#[test]
fn a_path_comes_back_and_all_else_stays_as_it_is() {
    let volume = Volume::new();
    let at = |path: &str| volume.path().join(path);
    fs::create_dir_all(at("a/b [1]/c")).unwrap();
    fs::write(at("a/b [1]/c/file"), "old").unwrap();
    fs::write(at("a/b [1]/gone"), "old").unwrap();
    fs::write(at("a/leader"), "linked").unwrap();
    fs::hard_link(at("a/leader"), at("a/b [1]/link")).unwrap();
    fs::write(at("other"), "old").unwrap();
    volume.create(&["--tag", "old"]);
    fs::remove_dir_all(at("a/b [1]")).unwrap();
    fs::create_dir(at("a/b [1]")).unwrap();
    fs::write(at("a/b [1]/new"), "new").unwrap();
    fs::write(at("a/sibling"), "new").unwrap();
    fs::write(at("other"), "new").unwrap();
    let before = Snapshot::of(volume.path());
    volume.ok("restore", &["old", "--path", "a/b [1]", "--no-safety"]);
    let after = Snapshot::of(volume.path());
    for (path, content) in [
        ("a/b [1]/c/file", "old"),
        ("a/b [1]/gone", "old"),
        ("a/b [1]/link", "linked"),
        ("other", "new"),
        ("a/sibling", "new"),
    ] {
        assert_eq!(fs::read_to_string(at(path)).unwrap(), content, "{path}");
    }
    assert!(!at("a/b [1]/new").exists());
    for path in ["", "a", "other", "a/leader", "a/sibling"] {
        after.only(path.as_bytes()).assert_like(&before.only(path.as_bytes()), COPY_BUT_LINKS, path);
    }
    fs::remove_dir_all(at("a")).unwrap();
    volume.ok("restore", &["old", "--path", "a/b [1]/c/file", "--no-safety"]);
    assert_eq!(fs::read_to_string(at("a/b [1]/c/file")).unwrap(), "old");
    assert!(!at("a/leader").exists() && !at("a/b [1]/gone").exists());
    let said = volume.run("restore", &["old", "--path", "a/nothing", "--no-safety"]);
    assert!(said.code == Some(1) && said.stderr.contains("has no a/nothing"), "{said:?}");
}

/// Stores a directory as its differences from an earlier one, which stays as long as it is needed.
#[test]
fn a_change_in_a_large_folder_costs_little_and_outlives_the_snapshots_before_it() {
    let volume = Volume::new();
    let write =
        |nth: usize, content: &str| fs::write(volume.path().join(format!("file{nth:04}")), content).unwrap();
    (0..1000).for_each(|nth| write(nth, "as all others"));
    // Otherwise the first one has the stamps of some files only, and what the next ones add depends on the speed.
    volume.let_stamps_settle();
    volume.create(&[]);
    let mut taken = Vec::new();
    for round in 0..4 {
        write(round * 200, &format!("changed in round {round}"));
        fs::remove_file(volume.path().join(format!("file{:04}", round * 200 + 1))).unwrap();
        write(1000 + round, "new");
        let id = volume.create(&[]);
        taken.push((id, Snapshot::of(volume.path())));
    }
    let added: Vec<u64> = volume.list().iter().map(|it| it["addedBytes"].as_u64().unwrap()).collect();
    assert!(added[0] > 50_000 && added[1..].iter().all(|bytes| *bytes < added[0] / 20), "{added:?}");
    volume.ok("prune", &["--keep-last", "2"]);
    volume.ok("verify", &["--no-heal"]);
    for (id, expected) in &taken[2..] {
        volume.ok("restore", &[id, "--no-safety", "--compare", "content"]);
        Snapshot::of(volume.path()).assert_like(expected, COPY, id);
    }
    volume.ok("prune", &["--keep-last", "1"]);
    volume.ok("verify", &["--no-heal"]);
}

#[test]
fn no_name_of_a_file_that_could_not_be_taken_is_in_the_snapshot() {
    let Some(()) = scratch::needs_root() else { return };
    let (above, volume) = (scratch::scratch(), Volume::new());
    let program = program_in(above.path());
    [above.path(), volume.path().parent().unwrap()].into_iter().for_each(scratch::open_to_all);
    let root = volume.path();
    tree::files(root, &["a", "unchanged/deep/stays"], "content");
    for name in ["b", "unchanged/deep/c"] {
        fs::hard_link(root.join("a"), root.join(name)).unwrap();
    }
    scratch::give_to_nobody(root);
    let snapshot = |args: &[&str]| {
        let args: Vec<String> = ["snapshot"].iter().chain(args).map(ToString::to_string).collect();
        Said::from(command(&program, User::Nobody, &args).output().unwrap())
    };
    let place = root.to_str().unwrap();
    let said = snapshot(&["create", place]);
    assert_eq!(said.code, Some(0), "{said:?}");
    std::os::unix::fs::chown(root.join("a"), Some(0), Some(0)).unwrap();
    tree::set_mode(&root.join("a"), 0o600);
    let said = snapshot(&["create", place, "--tag", "lacks"]);
    assert_eq!(said.code, Some(3), "{said:?}");
    for line in ["a: take into the snapshot: Permission denied", "b: ", "unchanged/deep/c: "] {
        assert!(said.stderr.contains(line), "{said:?}");
    }
    let listed = volume.list();
    assert_eq!((&listed[1]["failed"], &listed[1]["entries"]), (&json!(3), &json!(3)), "{listed:?}");
    for name in ["a", "b", "unchanged/deep/c"] {
        fs::remove_file(root.join(name)).unwrap();
    }
    tree::file(&root.join("a"), b"another file");
    let said = snapshot(&["restore", place, "lacks"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(!root.join("b").exists() && !root.join("unchanged/deep/c").exists());
    volume.ok("restore", &["lacks", "--to", above.path().join("to").to_str().unwrap()]);
}
