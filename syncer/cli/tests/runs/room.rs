//! A run that needs more space than the destination has is refused before it changes anything.

use contract::human;

use crate::common::prelude::*;

const MIB: usize = 1 << 20;

/// Makes a pair whose destination is on a disk of 32 MiB, with about 25 MiB free.
fn on_small_disk(way: Way) -> Option<(Pair, Disk)> {
    let disk = Disk::new("ext4", 32 << 20, "")?;
    let mut pair = Pair::new(way);
    pair.destination = scratch::dir(&disk.path(), "copy");
    Some((pair, disk))
}

#[test]
fn a_run_without_room_is_refused_with_both_figures_and_changes_nothing() {
    for way in Way::ALL {
        let Some((pair, _disk)) = on_small_disk(way) else { return };
        tree::file(&pair.source.join("small"), b"content");
        pair.sync("before");
        tree::file(&pair.source.join("large"), &vec![7; 40 * MIB]);
        tree::file(&pair.source.join("small"), b"other content");
        let before = Snapshot::of(&pair.destination);
        for flags in [&["--delete"][..], &["--delete", "--dry-run"]] {
            let run = pair.refuse(flags, ExitCode::Guard, "NotEnoughSpace");
            let message = &run.ends().next().unwrap().report().message;
            let needed = human::bytes((40 * MIB) as u64);
            assert!(message.contains(&format!("at least {needed} at")), "{message}");
            assert!(message.contains(" are free"), "{message}");
            Snapshot::of(&pair.destination).assert_like(&before, UNTOUCHED, "a refused run");
        }
        let forced = pair.run_to(ExitCode::Partial, &["--force"]);
        assert!(forced.report().notes.iter().any(|note| note.contains("overrode a guard")), "{forced:?}");
        assert!(!pair.destination.join("large").exists());
    }
}

#[test]
fn what_takes_no_room_is_not_counted() {
    for way in Way::ALL {
        let Some((pair, _disk)) = on_small_disk(way) else { return };
        tree::sparse(&pair.source.join("sparse"), &mut Rng::new(1));
        fs::File::options().write(true).open(pair.source.join("sparse")).unwrap().set_len(64 << 20).unwrap();
        tree::file(&pair.source.join("large"), &vec![7; 15 * MIB]);
        fs::hard_link(pair.source.join("large"), pair.source.join("link")).unwrap();
        pair.done(&[]);
        pair.assert_copy("sparse files and hard links");
        // The new version would be staged beside the old one.
        tree::file(&pair.source.join("new"), &vec![8; 15 * MIB]);
        fs::rename(pair.source.join("new"), pair.source.join("large")).unwrap();
        fs::remove_file(pair.source.join("link")).unwrap();
        fs::remove_file(pair.source.join("sparse")).unwrap();
        pair.refuse(&["--delete", "--delete-limit=100"], ExitCode::Guard, "NotEnoughSpace");
        let in_place = pair.run(&["--delete", "--delete-limit=100", "--write=in-place", "--force"]);
        // It may run out of room all the same, of which each end has a report of its own.
        for end in in_place.ends() {
            assert_ne!(end.report().reason.as_deref(), Some("NotEnoughSpace"));
        }
    }
}

#[test]
fn deletes_before_all_else_make_room_and_pass_the_guard_first() {
    for way in Way::ALL {
        let Some((pair, _disk)) = on_small_disk(way) else { return };
        fs::create_dir(pair.source.join("gone")).unwrap();
        tree::file(&pair.source.join("gone/old"), &vec![7; 15 * MIB]);
        pair.sync("before");
        fs::remove_dir_all(pair.source.join("gone")).unwrap();
        tree::file(&pair.source.join("new"), &vec![8; 16 * MIB]);
        pair.refuse(&["--delete", "--delete-limit=100"], ExitCode::Guard, "NotEnoughSpace");
        pair.refuse(&["--delete=before"], ExitCode::Guard, "DeleteLimitExceeded");
        let run = pair.done(&["--delete=before", "--delete-limit=100"]);
        assert_eq!(run.report().work.files_deleted, 2);
        pair.assert_copy("after deletes that came first");
    }
}

/// Makes a pair whose destination is on XFS with about 25 MiB free.
fn on_xfs(way: Way) -> Option<(Pair, Disk)> {
    let disk = Disk::new("xfs", 300 << 20, "")?;
    let mut pair = Pair::new(way);
    pair.destination = scratch::dir(&disk.path(), "copy");
    let stat = rustix::fs::statvfs(disk.path()).unwrap();
    let ballast = fs::File::create(disk.path().join("ballast")).unwrap();
    let bytes = (stat.f_bavail * stat.f_frsize).saturating_sub(25 << 20);
    rustix::fs::fallocate(&ballast, rustix::fs::FallocateFlags::empty(), 0, bytes).unwrap();
    Some((pair, disk))
}

#[test]
fn on_xfs_what_a_clone_may_serve_is_not_counted_and_the_rest_is() {
    for way in Way::ALL {
        let Some((pair, _disk)) = on_xfs(way) else { return };
        pair.sync("before");
        tree::file(&pair.source.join("large"), &vec![7; 40 * MIB]);
        let run = pair.refuse(&[], ExitCode::Guard, "NotEnoughSpace");
        let message = &run.ends().next().unwrap().report().message;
        assert!(message.contains(&format!("at least {}", human::bytes((40 * MIB) as u64))), "{message}");
        tree::file(&pair.source.join("large"), &Rng::new(1).bytes(14 * MIB));
        pair.done(&[]);
        // Over the network two more versions are clones of the first; in a local run they are not.
        for name in ["second", "third"] {
            fs::copy(pair.source.join("large"), pair.source.join(name)).unwrap();
        }
        match way {
            Way::Local => drop(pair.refuse(&[], ExitCode::Guard, "NotEnoughSpace")),
            _ => {
                pair.done(&[]);
                pair.assert_copy("clones");
            }
        }
    }
}

#[test]
fn what_goes_to_a_file_system_mounted_in_the_destination_is_not_counted() {
    for way in Way::ALL {
        let Some((pair, _disk)) = on_small_disk(way) else { return };
        let inner = pair.destination.join("inner");
        fs::create_dir(&inner).unwrap();
        let _mount = Mount::tmpfs(&inner, "100m");
        for file in 0..800 {
            // Larger files are staged first, on the file system of the root.
            let dir = pair.source.join(format!("inner/{}", file % 3));
            fs::create_dir_all(&dir).unwrap();
            tree::file(&dir.join(file.to_string()), &[7; 50 << 10]);
        }
        pair.done(&["--dry-run"]);
        pair.done(&[]);
        pair.assert_copy("in a mount");
        tree::file(&pair.source.join("large"), &vec![7; 40 * MIB]);
        pair.refuse(&[], ExitCode::Guard, "NotEnoughSpace");
    }
}
