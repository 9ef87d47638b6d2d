//! A volume without free space: a command that fails changes nothing.

use std::fs;

use crate::{
    common::{
        mount::{FileSystem, Mounted},
        oracle::{Snapshot, UNTOUCHED},
        tree,
    },
    volume::Volume,
};

/// Makes a volume on a file system of 8 MiB. Returns `None` where that cannot be mounted.
fn small() -> Option<(Mounted, Volume)> {
    let Ok(mounted) = FileSystem::Tmpfs.mount_of("8m") else {
        eprintln!("skipped: only root may mount");
        return None;
    };
    let volume = Volume::in_dir(mounted.folder());
    Some((mounted, volume))
}

/// Leaves `room` bytes free on the file system of `volume`.
fn fill(volume: &Volume, room: u64) -> std::path::PathBuf {
    let path = volume.path().parent().unwrap().join("ballast");
    let stat = rustix::fs::statvfs(volume.path()).unwrap();
    let free = stat.f_bavail * stat.f_frsize;
    let file = fs::File::create(&path).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, free.saturating_sub(room).max(1))
        .unwrap();
    path
}

#[test]
fn healing_without_room_leaves_what_is_damaged_as_it_is_until_there_is_room() {
    let Some((_mounted, volume)) = small() else { return };
    fs::write(volume.path().join("large"), vec![3; 200_000]).unwrap();
    volume.create(&[]);
    let folder = fs::read_dir(volume.store("content")).unwrap().next().unwrap().unwrap().path();
    let object = fs::read_dir(folder).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&object).unwrap();
    bytes[70_000] ^= 1;
    fs::write(&object, &bytes).unwrap();
    let ballast = fill(&volume, 4096);
    let said = volume.run("verify", &[]);
    assert!(said.code != Some(0) && format!("{said:?}").contains("os error 28"), "{said:?}");
    assert!(fs::read(&object).unwrap() == bytes, "nothing but content with its id replaces it");
    fs::remove_file(ballast).unwrap();
    assert_eq!(volume.run("verify", &[]).code, Some(3));
    volume.ok("verify", &[]);
}

/// A command that needs space and gets none changes nothing, and succeeds once there is space.
#[test]
fn without_room_forget_prune_and_restore_change_nothing() {
    let Some((_mounted, volume)) = small() else { return };
    tree::many(volume.path(), 20, 3000);
    fs::write(volume.path().join("large"), vec![3; 100_000]).unwrap();
    volume.create(&["--tag", "first"]);
    let tree = Snapshot::of(volume.path());
    fs::remove_file(volume.path().join("d0000/f000003")).unwrap();
    fs::write(volume.path().join("large"), vec![4; 200_000]).unwrap();
    (0..3).for_each(|_| drop(volume.create(&[])));
    let mut failed = std::collections::BTreeMap::new();
    for pages in 0..4 {
        for command in ["forget", "prune", "restore"] {
            let newest = volume.list().last().unwrap()["id"].as_str().unwrap().to_owned();
            let args: &[&str] = match command {
                "forget" => &[&newest],
                "prune" => &["--keep-last", "9"],
                _ => &["first", "--no-safety"],
            };
            let before = (volume.list(), Snapshot::of(volume.path()));
            let ballast = fill(&volume, pages * 4096);
            let said = volume.run(command, args);
            fs::remove_file(ballast).unwrap();
            if said.code == Some(0) {
                continue;
            }
            *failed.entry(command).or_insert(0) += 1;
            assert!(format!("{said:?}").contains("os error 28"), "{command}, {pages} pages: {said:?}");
            assert_eq!(volume.list(), before.0, "{command}, {pages} pages");
            volume.ok("verify", &["--no-heal"]);
        }
    }
    assert!(failed.len() > 1, "{failed:?}");
    volume.ok("restore", &["first", "--no-safety"]);
    Snapshot::of(volume.path()).assert_like(&tree, crate::common::oracle::COPY, "with room");
}

#[test]
fn without_room_at_any_step_the_store_stays_as_it_was() {
    let Some((_mounted, volume)) = small() else { return };
    tree::many(volume.path(), 20, 3000);
    fs::write(volume.path().join("large"), vec![3; 100_000]).unwrap();
    volume.create(&["--tag", "first"]);
    let mut failed = 0;
    for pages in 0..60 {
        fs::write(volume.path().join("d0000/f000003"), format!("{pages}").repeat(500)).unwrap();
        fs::write(volume.path().join("large"), vec![pages; 100_000]).unwrap();
        let before = (volume.list(), Snapshot::of(volume.path()));
        let ballast = fill(&volume, u64::from(pages) * 4096);
        let said = volume.run("create", &[]);
        fs::remove_file(ballast).unwrap();
        if said.code != Some(0) {
            failed += 1;
            assert!(said.stderr.contains("os error 28") || said.stderr.contains("No space"), "{said:?}");
            assert_eq!(volume.list(), before.0, "{pages} pages");
        }
        Snapshot::of(volume.path()).assert_like(&before.1, UNTOUCHED, "the live tree");
        volume.ok("verify", &["--no-heal"]);
    }
    assert!(failed > 10, "{failed} failed");
    volume.create(&[]);
    assert_eq!(fs::read_dir(volume.store("new")).unwrap().count(), 0);
}
