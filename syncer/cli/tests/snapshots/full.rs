//! A volume without free space: a command that fails changes nothing.

use contract::human;

use crate::common::prelude::*;
use crate::{
    common::{
        mount::Mounted,
        process::{command, program_in},
    },
    copy::digests,
    volume::{Said, Volume},
};

/// Makes a volume on a file system of 8 MiB. Returns `None` where that cannot be mounted.
fn small() -> Option<(Mounted, Volume)> {
    let mounted = FileSystem::Tmpfs.mount_of("8m")?;
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

/// Takes all room of the file system of `volume`, down to the last block that a user can have. May be called again.
fn fill_up(volume: &Volume) {
    let path = volume.path().parent().unwrap().join("ballast");
    let file = fs::File::options().create(true).append(true).open(&path).unwrap();
    let (mut len, mut step) = (file.metadata().unwrap().len(), 1 << 30);
    while step >= 4096 {
        let flags = rustix::fs::FallocateFlags::empty();
        match rustix::fs::fallocate(&file, flags, len, step) {
            Ok(()) => len += step,
            Err(_) => step /= 2,
        }
    }
    let more = (0..300).map(|nth| path.with_extension(nth.to_string())).filter(|path| !path.exists());
    more.map(|path| fs::write(path, [1; 4096])).find(Result::is_err).unwrap().unwrap_err();
}

/// Mounts file systems that can be filled. Leaves out btrfs, which writes its own structures anew at each change, and
/// so needs room for any.
fn small_ones() -> impl Iterator<Item = (FileSystem, Mounted)> {
    let kinds = [FileSystem::Tmpfs, FileSystem::Ext4, FileSystem::Xfs].into_iter();
    kinds.filter_map(|kind| {
        let mounted = match kind {
            FileSystem::Tmpfs => kind.mount_of("32m"),
            _ => kind.mount(),
        };
        Some((kind, mounted?))
    })
}

/// Another program takes what each command leaves, so a room that a command gives back is lost to the next.
#[test]
fn changes_on_a_full_file_system_leave_the_room_for_the_next_one() {
    let from = Volume::new();
    fs::write(from.path().join("large"), vec![3; 200_000]).unwrap();
    let pinned = from.create(&["--pin", "--tag", "first"]);
    fs::remove_file(from.path().join("large")).unwrap();
    // So many that the line of the prune in the log is longer than a block.
    for _ in 0..250 {
        from.create(&[]);
    }
    for (kind, mounted) in small_ones() {
        let volume = Volume::in_dir(mounted.folder());
        from.ok("copy", &[volume.path().to_str().unwrap(), "--all"]);
        let unpin = ("unpin", &[&pinned[..]][..]);
        for (command, args) in [unpin, ("untag", &["first", "first"]), ("prune", &["--keep-last", "1"])] {
            fill_up(&volume);
            let said = volume.run(command, args);
            assert_eq!(said.code, Some(0), "{kind:?} {command}: {said:?}");
        }
        assert_eq!(volume.list().len(), 1, "{kind:?}");
        volume.ok("verify", &["--no-heal"]);
    }
}

#[test]
fn snapshots_are_forgotten_and_collected_on_a_full_file_system() {
    for (kind, mounted) in small_ones() {
        let volume = Volume::in_dir(mounted.folder());
        let ids: Vec<String> = (0..40_u8)
            .map(|nth| {
                fs::write(volume.path().join("file"), vec![nth; 100_000]).unwrap();
                volume.create(&[])
            })
            .collect();
        fill_up(&volume);
        let said = volume.run("forget", &[&ids[0], &ids[1]]);
        assert_eq!(said.code, Some(0), "{kind:?}: {said:?}");
        let said = volume.run("prune", &["--keep-last", "20", "--json"]);
        assert_eq!(said.code, Some(0), "{kind:?}: {said:?}");
        assert_eq!(said.json()["removed"].as_array().unwrap().len(), 20);
        assert_eq!(volume.list().len(), 20, "{kind:?}");
        volume.ok("verify", &["--no-heal"]);
        assert_eq!(volume.ok("cat", &[&ids[39], "file"]).len(), 100_000);
    }
}

#[test]
fn a_file_system_without_inodes_is_named_as_the_reason() {
    let Some(mounted) = FileSystem::Tmpfs.mount_of("8m,nr_inodes=100") else { return };
    let volume = Volume::in_dir(mounted.folder());
    volume.create(&[]);
    let mut files = (0..).map(|nth| fs::File::create(volume.path().join(format!("{nth}"))));
    assert!(files.any(|file| file.is_err()));
    let said = volume.run("create", &[]).exits(1);
    assert!(said.stderr.contains("inodes"), "{said:?}");
}

#[test]
fn a_restore_that_cannot_fit_is_refused_before_it_changes_the_tree() {
    let Some((_mounted, volume)) = small() else { return };
    let at = |name: &str| volume.path().join(name);
    fs::write(at("large"), vec![3; 2 << 20]).unwrap();
    volume.create(&["--tag", "first"]);
    fs::remove_file(at("large")).unwrap();
    // The first time there is too little room at once, the second time once the state before is kept.
    for (free, kept) in [(1 << 20, 0), (5 << 19, 1)] {
        fs::write(at("changed"), vec![4; kept << 20]).unwrap();
        let (before, ballast) = (Snapshot::of(volume.path()), fill(&volume, free));
        let said = volume.run("restore", &["first"]).exits(4);
        assert!(said.stderr.contains("needs at least 2.1 MB"), "{said:?}");
        fs::remove_file(ballast).unwrap();
        Snapshot::of(volume.path()).assert_like(&before, UNTOUCHED, "refused");
        assert_eq!(volume.list().len(), 1 + kept);
    }
    volume.ok("restore", &["first"]);
    assert!(at("large").exists() && !at("changed").exists());
}

#[test]
fn a_restore_without_room_changes_nothing() {
    let Some((_mounted, volume)) = small() else { return };
    tree::many(volume.path(), 20, 3000);
    fs::write(volume.path().join("large"), vec![3; 100_000]).unwrap();
    volume.create(&["--tag", "first"]);
    let tree = Snapshot::of(volume.path());
    fs::write(volume.path().join("large"), vec![4; 200_000]).unwrap();
    let mut failed = 0;
    for pages in 0..4 {
        let before = (volume.list(), Snapshot::of(volume.path()));
        let ballast = fill(&volume, pages * 4096);
        let said = volume.run("restore", &["first"]);
        fs::remove_file(ballast).unwrap();
        let is_full = said.code == Some(1) && format!("{said:?}").contains("os error 28");
        failed += u32::from(is_full || said.code == Some(4) && said.stderr.contains("are free"));
        assert_eq!(volume.list(), before.0, "{pages} pages");
        Snapshot::of(volume.path()).assert_like(&before.1, UNTOUCHED, "the live tree");
        volume.ok("verify", &["--no-heal"]);
    }
    assert_eq!(failed, 4);
    volume.ok("restore", &["first"]);
    Snapshot::of(volume.path()).assert_like(&tree, crate::common::oracle::COPY, "with room");
}

/// Syncs a new file of `len` bytes in place of the last, and takes a snapshot by these rules.
fn sync(volume: &Volume, (round, len): (u8, usize), rules: &[&str]) -> (Option<i32>, Report) {
    let source = scratch::scratch();
    fs::write(source.path().join(format!("round{round}")), vec![round; len]).unwrap();
    let reports = scratch::scratch();
    let report = reports.path().join("report");
    let done = Command::new(program())
        .args(["sync", "--quiet", "--delete=before", "--force", "--snapshot", "--report"])
        .args([&report, source.path(), volume.path()])
        .args(rules)
        .status();
    let report = serde_json::from_slice(&fs::read(&report).unwrap()).unwrap();
    (done.unwrap().code(), report)
}

#[test]
fn what_the_rules_would_drop_after_a_snapshot_goes_before_one_that_does_not_fit() {
    let Some((_mounted, volume)) = small() else { return };
    let mut dropped = 0;
    for round in 1..9 {
        let (code, report) = sync(&volume, (round, 1_800_000), &["--snapshot-keep-last=3"]);
        assert_eq!(code, Some(0), "round {round}: {report:?}");
        let told = report.snapshot.unwrap();
        assert_eq!((told.count, told.dropped.len() as u64), (u64::from(round.min(3)), told.dropped_count));
        dropped += told.dropped_for_room;
        let is_noted = report.notes.iter().any(|note| note.contains("because it did not fit"));
        assert_eq!(is_noted, told.dropped_for_room > 0, "{:?}", report.notes);
    }
    assert_eq!(dropped, 5);
    volume.ok("verify", &["--no-heal"]);
}

#[test]
fn the_last_snapshot_stays_even_if_the_next_one_does_not_fit_unless_that_is_allowed() {
    let Some((_mounted, volume)) = small() else { return };
    let take = |round, more: &[&str]| {
        sync(&volume, (round, 3_000_000), &[&["--snapshot-keep-last=1"], more].concat())
    };
    let first = take(1, &[]).1.snapshot.unwrap().made.unwrap().id;
    let (code, report) = take(2, &[]);
    assert_eq!((code, report.reason.as_deref()), (Some(3), Some("SnapshotFailed")), "{report:?}");
    assert_eq!((volume.list().len(), volume.list()[0]["id"].as_str()), (1, Some(&first[..])));
    let (code, report) = take(3, &["--snapshot-min-keep=0"]);
    assert_eq!(code, Some(0), "{report:?}");
    assert_eq!((volume.list().len(), report.snapshot.unwrap().dropped), (1, vec![first]));
}

#[test]
fn the_last_complete_snapshot_stays_even_if_there_is_a_newer_one_that_lacks_files() {
    let Some((_mounted, volume)) = small() else { return };
    let (source, place) = (scratch::scratch(), scratch::scratch());
    let program = program_in(place.path());
    let above = volume.path().ancestors().skip(1).take(3);
    above.chain([source.path(), place.path()]).for_each(scratch::open_to_all);
    scratch::give_to_nobody(volume.path());
    let take = |len| {
        fs::write(source.path().join("large"), Rng::new(len as u64).bytes(len)).unwrap();
        let ends = [source.path(), volume.path()].map(|path| path.to_str().unwrap());
        let args = [&["sync", "--snapshot", "--snapshot-keep-last=1"], &ends[..]].concat();
        let args: Vec<String> = args.into_iter().map(String::from).collect();
        Said::from(command(&program, User::Nobody, &args).output().unwrap())
    };
    let is_whole = |at: usize| volume.list()[at]["failed"] == 0;
    let said = take(500_000);
    assert_eq!(said.code, Some(0), "{said:?}");
    let whole = volume.list()[0]["id"].clone();
    let unreadable = volume.path().join("unreadable");
    fs::write(&unreadable, "of root").unwrap();
    fs::set_permissions(&unreadable, fs::Permissions::from_mode(0o600)).unwrap();
    let said = take(500_001);
    assert_eq!((said.code, volume.list().len()), (Some(3), 2), "{said:?}");
    assert!(is_whole(0) && !is_whole(1), "{:?}", volume.list());
    let said = take(4_500_000);
    assert!(said.code == Some(3) && said.stderr.contains("its snapshot failed"), "{said:?}");
    assert_eq!((volume.list().len(), &volume.list()[0]["id"]), (1, &whole), "{said:?}");
    fs::remove_file(&unreadable).unwrap();
    let said = take(2_000_000);
    assert_eq!((said.code, volume.list().len(), is_whole(0)), (Some(0), 1, true), "{said:?}");
    assert_ne!(volume.list()[0]["id"], whole);
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

#[test]
fn the_first_snapshot_says_what_it_copies_and_is_refused_if_that_does_not_fit() {
    let Some((_mounted, volume)) = small() else { return };
    fs::write(volume.path().join("large"), vec![3; 5_000_000]).unwrap();
    let before = Snapshot::of(volume.path());
    let said = volume.run("create", &[]).exits(1);
    assert!(said.stderr.contains("copies 5.0 MB, ") && said.stderr.contains("hint: make room"), "{said:?}");
    Snapshot::of(volume.path()).assert_like(&before, UNTOUCHED, "refused");
    assert!(!volume.store("").exists());
    fs::write(volume.path().join("large"), vec![3; 2_000_000]).unwrap();
    let said = volume.run("create", &[]);
    assert!(said.code == Some(0) && said.stderr.contains("copies 2.0 MB, and "), "{said:?}");
    assert!(!volume.run("create", &[]).stderr.contains("copies"), "later ones copy changes only");
}

/// Runs from `source` onto the volume with a snapshot. Returns the exit code, the standard error and the report.
fn run_with_snapshot(source: &Path, volume: &Path, flags: &[&str]) -> (Option<i32>, String, Report) {
    let place = scratch::scratch();
    let report = place.path().join("report");
    let mut command = Command::new(program());
    command.arg("sync").arg(source).arg(volume).args(["--snapshot", "--report"]).arg(&report).args(flags);
    let run = command.output().unwrap();
    let report: Report = serde_json::from_slice(&fs::read(report).unwrap()).unwrap();
    (run.status.code(), String::from_utf8(run.stderr).unwrap(), report)
}

#[test]
fn a_run_says_beforehand_what_its_first_snapshot_copies_and_does_not_try_what_does_not_fit() {
    let on_ext4 = Disk::new("ext4", 16 << 20, "");
    let ext4 = on_ext4.as_ref().map(|disk| Volume::at(scratch::dir(&disk.path(), "volume")));
    let in_memory = small();
    let volumes = ext4.iter().chain(in_memory.iter().map(|(_, volume)| volume));
    for volume in volumes {
        let source = scratch::scratch();
        let run = |flags: &[&str]| run_with_snapshot(source.path(), volume.path(), flags);
        let stat = rustix::fs::statvfs(volume.path()).unwrap();
        let large = stat.f_bavail * stat.f_frsize * 3 / 5;
        let says = |bytes: u64| format!("its first snapshot copies about {}, and ", human::bytes(bytes));
        fs::write(source.path().join("large"), vec![3; large as usize]).unwrap();

        let (code, said, report) = run(&["--dry-run"]);
        assert!(code == Some(0) && report.notes.iter().any(|it| it.contains(&says(large))), "{said}");
        let (code, said, report) = run(&[]);
        assert!(said.lines().next().unwrap().contains(&says(large)), "before all else: {said}");
        let refused = |it: &String| it.contains(&says(large)) && it.contains("it will be refused");
        assert!(report.notes.iter().any(refused), "{report:?}");
        assert_eq!((code, report.reason.as_deref()), (Some(3), Some("SnapshotFailed")), "{said}");
        assert!(report.message.contains("no snapshot was taken"), "{report:?}");
        assert!(!volume.store("content").exists() && volume.path().join("large").exists());

        let less = large / 3;
        fs::write(source.path().join("large"), vec![3; less as usize]).unwrap();
        let (code, _, report) = run(&[]);
        assert_eq!(code, Some(0), "{report:?}");
        assert!(report.notes.iter().any(|it| it.contains(&says(less))), "{report:?}");
        let (_, said, _) = run(&[]);
        assert!(!said.contains("copies about"), "later ones copy changes only: {said}");
    }
}

#[test]
fn a_run_announces_no_copy_where_files_are_cloned() {
    let Some(mounted) = FileSystem::Btrfs.mount() else { return };
    let (source, volume) = (scratch::scratch(), Volume::in_dir(mounted.folder()));
    fs::write(source.path().join("large"), vec![3; 2_000_000]).unwrap();
    let (code, said, report) = run_with_snapshot(source.path(), volume.path(), &[]);
    assert!(code == Some(0) && !said.contains("snapshot copies") && report.notes.is_empty(), "{report:?}");
}

#[test]
fn an_export_onto_a_full_file_system_says_so_and_is_done_once_there_is_room() {
    let Some(mounted) = FileSystem::Tmpfs.mount_of("8m") else { return };
    let (folder, volume) = (mounted.folder(), Volume::new());
    fs::write(volume.path().join("large"), Rng::new(5).bytes(6 << 20)).unwrap();
    volume.create(&[]);
    let [ballast, to] = ["ballast", "a.tar"].map(|name| folder.path().join(name));
    let export = || volume.run("export", &["latest", "--tar", to.to_str().unwrap()]);
    fs::write(&ballast, vec![1; 4 << 20]).unwrap();
    let said = export();
    let full = format!("cannot write the archive to {}: No space left", to.display());
    assert!(said.code == Some(1) && said.stderr.contains(&full), "{said:?}");
    assert!(said.stderr.ends_with("hint: make room there\n"), "{said:?}");
    assert!(!to.exists());
    fs::remove_file(ballast).unwrap();
    assert_eq!(export().code, Some(0));
    let elsewhere = scratch::scratch();
    let whole = elsewhere.path().join("a.tar");
    volume.ok("export", &["latest", "--tar", whole.to_str().unwrap()]);
    assert!(fs::read(&to).unwrap() == fs::read(&whole).unwrap());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_history_without_room_leaves_the_files_and_the_snapshots_that_fit_and_comes_once_there_is_room() {
    let Some((_mounted, to)) = small() else { return };
    let from = Volume::new();
    for round in 0..3 {
        fs::write(from.path().join("large"), Rng::new(round).bytes(1_000_000)).unwrap();
        from.create(&["--engine", "copy"]);
    }
    fs::write(from.path().join("large"), "small now").unwrap();
    let sync = || {
        let mut command = Command::new(program());
        Said::from(command.args(["sync", "--history=all"]).args([from.path(), to.path()]).output().unwrap())
    };
    let ballast = fill(&to, 2_500_000);
    let said = sync().exits(3);
    assert_eq!(fs::read_to_string(to.path().join("large")).unwrap(), "small now");
    let (all, some) = (digests(&from), digests(&to));
    assert!(
        !some.is_empty() && some.len() < 3 && some.iter().all(|it| all.get(it.0) == Some(it.1)),
        "{said:?}"
    );
    to.ok("verify", &["--no-heal"]);
    fs::remove_file(ballast).unwrap();
    assert_eq!(sync().code, Some(0));
    assert_eq!(digests(&to), all);
    to.ok("verify", &["--no-heal"]);
}
