//! Volumes that go away, come back, or are covered by others during a run: a run stays with the volumes that it opened,
//! and the work that it reported as done survives a power cut.

use crate::common::prelude::*;

const DISK_BYTES: u64 = 512 << 20;

/// The number of bytes after which the run stops: some large files have arrived and others have not.
const CUT: u64 = 2_500_000;

fn change(source: &std::path::Path, seed: u64) {
    let mut rng = Rng::new(seed);
    for n in 0..40 {
        tree::file(&source.join(format!("small{n}")), &rng.bytes(2000 + seed as usize));
    }
    // More than windows and queues hold, also where a busy machine makes the path look far: so the source has not read
    // all of it when the run stops.
    for n in 0..24 {
        tree::file(&source.join(format!("large{n}")), &rng.bytes(1_300_000 + seed as usize));
    }
}

/// A run that the link has stopped in the middle.
struct Halted {
    source: Running,
    sink: Running,
    relay: Relay,
}

impl Halted {
    fn start(pair: &Pair) -> Self {
        let (source, sink, relay) = pair.start_over(CUT, &["--delete"]);
        Self { source, sink, relay }
    }

    /// Lets the run continue, and waits for its end.
    fn finish(self) -> [Ended; 2] {
        self.relay.release();
        [self.source.wait(), self.sink.wait()]
    }
}

/// Makes a pair in step with one folder, `at`, on `disk`; then changes the source.
fn pair_on(disk: &Disk, at: impl Fn(&mut Pair) -> &mut PathBuf) -> Pair {
    let mut pair = Pair::new(Way::SinkListens);
    *at(&mut pair) = scratch::dir(&disk.path(), "volume");
    change(&pair.source, 1);
    pair.sync("before");
    change(&pair.source, 2);
    pair
}

fn assert_done(ends: &[Ended; 2]) {
    ends.iter().for_each(|end| end.assert_exit(ExitCode::Done));
}

/// Unmounts lazily: a process that another test starts may have inherited what was open there for a moment.
fn umount(path: &std::path::Path) {
    run(Command::new("umount").arg("-l").arg(path)).unwrap();
}

#[test]
fn a_volume_that_is_mounted_over_the_destination_in_mid_run_gets_nothing() {
    let Some(disk) = Disk::new("ext4", DISK_BYTES, "") else { return };
    let pair = pair_on(&disk, |pair| &mut pair.destination);
    let halted = Halted::start(&pair);
    run(Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&pair.destination)).unwrap();
    let ends = halted.finish();
    let covering = fs::read_dir(&pair.destination).unwrap().count();
    umount(&pair.destination);
    assert_eq!(covering, 0);
    assert_done(&ends);
    pair.assert_copy("beneath what was mounted over it");
    pair.assert_staging_empty();
}

#[test]
fn a_volume_that_is_mounted_over_the_source_in_mid_run_is_not_taken_for_it() {
    let Some(disk) = Disk::new("ext4", DISK_BYTES, "") else { return };
    let pair = pair_on(&disk, |pair| &mut pair.source);
    let halted = Halted::start(&pair);
    run(Command::new("mount").args(["-t", "tmpfs", "tmpfs"]).arg(&pair.source)).unwrap();
    fs::write(pair.source.join("small0"), "of another volume").unwrap();
    let ends = halted.finish();
    umount(&pair.source);
    assert_done(&ends);
    pair.assert_copy("of what the run had opened");
}

#[test]
fn a_volume_that_is_unmounted_lazily_in_mid_run_is_written_to_the_end() {
    let Some(disk) = Disk::new("ext4", DISK_BYTES, "") else { return };
    let pair = pair_on(&disk, |pair| &mut pair.destination);
    let halted = Halted::start(&pair);
    umount(&disk.path());
    assert_done(&halted.finish());
    disk.mount_again();
    pair.assert_copy("on the volume, mounted again");
    pair.assert_staging_empty();
}

/// Writes files, links and folders, large and small; another seed changes them.
fn change_all(at: &std::path::Path, seed: u64) {
    let mut rng = Rng::new(seed);
    for (name, len) in
        [("empty", 0), ("small", 3000), ("packed", 100_000), ("blocks", 512 << 10), ("large", 5 << 20)]
    {
        tree::file(&at.join(name), &rng.bytes(len + seed as usize));
    }
    let _ = fs::remove_file(at.join("link"));
    std::os::unix::fs::symlink(format!("target{seed}"), at.join("link")).unwrap();
    let _ = fs::remove_file(at.join("another name"));
    fs::hard_link(at.join(["small", "packed"][seed as usize % 2]), at.join("another name")).unwrap();
    let folder = at.join(format!("folder{seed}/below"));
    fs::create_dir_all(&folder).unwrap();
    tree::file(&folder.join("file"), &rng.bytes(4000));
}

/// Makes folders at paths where other seeds make files, links and pipes, and the reverse.
fn swap_kinds(at: &std::path::Path, seed: u64) {
    for (nth, kind) in (0..).zip(["small", "large", "symlink", "hard link", "pipe", "small", "large"]) {
        let path = at.join(format!("swap{nth}"));
        let _ = fs::remove_file(&path);
        let _ = fs::remove_dir_all(&path);
        if (nth + seed).is_multiple_of(2) {
            fs::create_dir_all(path.join("below/deeper")).unwrap();
            tree::file(&path.join("file"), &Rng::new(seed).bytes(3000));
            tree::file(&path.join("below/deeper/large"), &Rng::new(seed).bytes(1 << 20));
            continue;
        }
        match kind {
            "small" => tree::file(&path, &Rng::new(seed).bytes(5000)),
            "large" => tree::file(&path, &Rng::new(seed).bytes(2 << 20)),
            "symlink" => std::os::unix::fs::symlink("target", &path).unwrap(),
            "hard link" => fs::hard_link(at.join("small"), &path).unwrap(),
            _ => run(Command::new("mkfifo").arg(&path)).unwrap(),
        }
    }
}

/// Makes a pair whose destination has a file system mounted at a folder of the source's tree.
fn pair_with_mount(way: Way, disk: &Disk) -> (Pair, PathBuf) {
    let pair = Pair::new(way);
    let mount = pair.destination.join("mounted");
    fs::create_dir_all(&mount).unwrap();
    fs::create_dir(pair.source.join("mounted")).unwrap();
    run(Command::new("mount").arg("--bind").arg(disk.path()).arg(&mount)).unwrap();
    (pair, mount)
}

/// An entry that cannot be replaced delays entries that replace folders, and folders that replace entries.
#[test]
fn what_replaces_another_kind_of_entry_on_a_mounted_file_system_waits_beside_it() {
    for way in Way::ALL {
        let Some(disk) = Disk::new("xfs", DISK_BYTES, "") else { return };
        let (pair, mount) = pair_with_mount(way, &disk);
        let source = pair.source.join("mounted");
        change_all(&source, 1);
        tree::file(&source.join("locked"), b"one");
        swap_kinds(&source, 1);
        pair.sync("before");
        let old = Snapshot::of(&mount);
        swap_kinds(&source, 2);
        tree::file(&source.join("locked"), b"another");
        let lock = |how| run(Command::new("chattr").arg(how).arg(mount.join("locked"))).unwrap();
        lock("+i");
        let flags = ["--delete", "--cross-mounts", "--delete-limit=100"];
        let kept = pair.run(&flags);
        lock("-i");
        kept.assert_exit(ExitCode::Partial);
        let left = Snapshot::of(&mount);
        let kinds = |tree: &Snapshot| {
            tree.entries().map(|(path, node)| (path.to_vec(), node.kind.clone())).collect::<Vec<_>>()
        };
        assert!(kinds(&left) == kinds(&old), "{way:?}, kept back");
        pair.assert_staging_empty();
        pair.done(&flags);
        pair.assert_copy("once the file can be replaced");
        pair.assert_staging_empty();
        umount(&mount);
    }
}

/// The kernel moves nothing from one file system to another.
#[test]
fn a_folder_that_was_moved_onto_what_is_another_file_system_at_the_destination_is_copied() {
    let Some(disk) = Disk::new("xfs", DISK_BYTES, "") else { return };
    let (pair, mount) = pair_with_mount(Way::Local, &disk);
    fs::create_dir(pair.source.join("folder")).unwrap();
    (0..20).for_each(|n| tree::file(&pair.source.join(format!("folder/{n}")), &[n; 3000]));
    pair.sync("before");
    for (from, to) in [("folder", "mounted/folder"), ("mounted/folder", "folder")] {
        fs::rename(pair.source.join(from), pair.source.join(to)).unwrap();
        pair.done(&["--delete", "--cross-mounts", "--delete-limit=100"]);
        pair.assert_copy(to);
    }
    umount(&mount);
}

#[test]
fn what_goes_to_a_file_system_that_is_mounted_inside_the_destination_arrives() {
    for way in Way::ALL {
        let Some(disk) = Disk::new("xfs", DISK_BYTES, "") else { return };
        let (pair, mount) = pair_with_mount(way, &disk);
        for seed in 1..4 {
            for dir in [&pair.source, &pair.source.join("mounted")] {
                change_all(dir, seed);
                swap_kinds(dir, seed);
            }
            let run = pair.run(&["--delete", "--cross-mounts", "--delete-limit", "100"]);
            let differences = Snapshot::of(&pair.source).differences(&Snapshot::of(&pair.destination), COPY);
            assert!(differences.is_empty(), "{way:?}, {seed}: {}", differences.join("\n"));
            run.assert_exit(ExitCode::Done);
            pair.assert_staging_empty();
        }
        umount(&mount);
    }
}

/// Stops the file system as a power cut would: data that it has not written is lost.
fn cut_power(disk: &Disk) {
    shut_down(disk, "shutdown");
}

/// Stops the file system like a power cut after the journal was written and before the data.
fn cut_power_behind_the_journal(disk: &Disk) {
    shut_down(disk, "shutdown -f");
}

fn shut_down(disk: &Disk, how: &str) {
    run(Command::new("xfs_io").args(["-x", "-c", how]).arg(disk.path())).unwrap();
}

#[test]
fn what_a_run_said_to_be_done_survives_a_power_cut() {
    let Some(disk) = Disk::new("xfs", DISK_BYTES, "") else { return };
    let pair = pair_on(&disk, |pair| &mut pair.destination);
    let change_root = || fs::set_permissions(&pair.source, fs::Permissions::from_mode(0o711)).unwrap();
    for seed in 3..7 {
        match seed {
            6 => change_root(),
            _ => change(&pair.source, seed),
        }
        let run = pair.run(&["--delete"]);
        cut_power(&disk);
        run.assert_exit(ExitCode::Done);
        disk.remount("", |_| ());
        pair.assert_copy("after the power came back");
    }
}

/// The run makes Volferry's folder and the volume's id, and has nothing to sync.
#[test]
fn the_id_that_a_run_reported_survives_a_power_cut_though_the_run_had_nothing_to_do() {
    for way in Way::ALL {
        let Some(disk) = Disk::new("xfs", DISK_BYTES, "") else { return };
        let mut pair = Pair::new(way);
        pair.destination = disk.path().join("volume");
        let nothing = ["--no-times", "--no-permissions", "--ownership=never"];
        let first = pair.run(&nothing);
        cut_power(&disk);
        first.assert_exit(ExitCode::Done);
        let report = first.report();
        assert_eq!(
            (report.work.files_created, report.work.bytes_changed),
            (0, 0),
            "there was nothing to sync"
        );
        let volume = report.volume.unwrap().to_string();
        disk.remount("", |_| ());
        pair.done(&[&nothing[..], &["--expect-volume", &volume]].concat());
    }
}

#[test]
fn a_power_cut_in_mid_run_leaves_files_old_or_new_and_the_next_run_gets_to_the_end() {
    for at in [0, 1] {
        let Some(disk) = Disk::new("xfs", DISK_BYTES, "") else { return };
        let pair =
            pair_on(&disk, |pair| [&mut pair.source, &mut pair.destination].into_iter().nth(at).unwrap());
        run(Command::new("sync").arg("-f").arg(disk.path())).unwrap();
        let [old, new] = [&pair.destination, &pair.source].map(|dir| Snapshot::of(dir));
        let halted = Halted::start(&pair);
        cut_power(&disk);
        for end in halted.finish() {
            assert!(!matches!(end.exit, Some(ExitCode::Done) | None), "{:?}", end.exit);
            let Report { message, failures, .. } = end.report();
            let told = format!("{message} {failures:?}");
            assert!(told.contains("Input/output error"), "{told}");
        }
        disk.remount("", |_| ());
        if at == 0 {
            Snapshot::of(&pair.source).assert_like(&new, UNTOUCHED, "a source whose power was cut");
        }
        for (path, node) in Snapshot::of(&pair.destination).entries() {
            let is_known =
                [&old, &new].iter().any(|tree| tree.at(path).is_some_and(|there| there.kind == node.kind));
            assert!(is_known, "{} is neither old nor new", path.escape_ascii());
        }
        pair.sync("after the power came back");
        pair.assert_staging_empty();
    }
}

#[test]
fn what_a_power_cut_took_from_files_that_look_done_is_brought_by_the_next_run() {
    let Some(disk) = Disk::new("xfs", DISK_BYTES, "") else { return };
    let pair = pair_on(&disk, |pair| &mut pair.destination);
    for seed in 3..6 {
        change(&pair.source, seed);
        let halted = Halted::start(&pair);
        cut_power_behind_the_journal(&disk);
        halted.finish();
        disk.remount("", |_| ());
        pair.sync("after the power came back");
    }
}
