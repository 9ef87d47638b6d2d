//! `--backup-dir`: an entry that a run replaces or deletes is kept below the same path, and the tree can be restored
//! from it.

use std::time::Instant;

use crate::common::oracle::Kind;
use crate::common::prelude::*;

const MIB: usize = 1 << 20;
const DELETE: &[&str] = &["--delete", "--delete-limit=100", "--force"];

/// Compares all but the root's own metadata, which the backup folder does not keep.
const BELOW: Aspects = Aspects { root: false, ..COPY };

/// Makes entries of every kind that a run replaces or deletes.
fn fill(root: &Path) {
    let mut rng = Rng::new(3);
    let put = |path: &str, len: usize, rng: &mut Rng| {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        tree::file(&path, &rng.bytes(len));
    };
    for (path, len) in [
        ("replaced", 3000),
        ("large", 2 * MIB),
        ("stays", 100),
        ("deleted", 700),
        ("folder/deleted/a", 10),
        ("folder/deleted/deep/b", 20),
        ("folder/replaced", 30),
        ("becomes folder", 40),
        ("becomes file/inside", 50),
        ("linked", 60),
        ("was a pipe/pipe", 5),
    ] {
        put(path, len, &mut rng);
    }
    fs::hard_link(root.join("linked"), root.join("folder/also linked")).unwrap();
    fs::create_dir_all(root.join("folder/empty")).unwrap();
    for (path, target) in [("link", "stays"), ("deleted link", "nowhere"), ("folder/link becomes file", "..")]
    {
        std::os::unix::fs::symlink(target, root.join(path)).unwrap();
    }
    tree::pipe(&root.join("pipe"));
    tree::set_mode(&root.join("folder/empty"), 0o500);
    tree::set_mode(&root.join("folder/deleted"), 0o550);
    tree::set_mode(&root.join("replaced"), 0o604);
    for path in ["folder/deleted/deep", "folder/deleted", "folder/empty", "folder"] {
        tree::set_mtime(&root.join(path), 1_000_000_000, 7);
    }
}

/// Replaces and deletes entries in the tree of [`fill`] in every way that a run has to handle.
fn change(root: &Path) {
    let put = |path: &str, content: &str| fs::write(root.join(path), content).unwrap();
    put("replaced", "new");
    let large = fs::OpenOptions::new().write(true).open(root.join("large")).unwrap();
    large.write_all_at(b"edited", 1_000_000).unwrap();
    for path in
        ["deleted", "deleted link", "link", "pipe", "becomes folder", "folder/link becomes file", "linked"]
    {
        fs::remove_file(root.join(path)).unwrap();
    }
    fs::remove_file(root.join("folder/also linked")).unwrap();
    for path in ["folder/deleted", "becomes file", "folder/empty"] {
        fs::remove_dir_all(root.join(path)).unwrap();
    }
    put("folder/replaced", "new as well");
    fs::create_dir(root.join("becomes folder")).unwrap();
    put("becomes folder/new", "inside");
    put("becomes file", "a file");
    put("folder/link becomes file", "a file, too");
    put("pipe", "no pipe");
    put("linked", "alone");
    put("folder/also linked", "alone, too");
    std::os::unix::fs::symlink("replaced", root.join("link")).unwrap();
    put("created", "only at the source");
}

/// Makes a pair in step, then changes its source; returns it with a snapshot of its destination.
fn changed(way: Way) -> (Pair, Snapshot) {
    let pair = Pair::new(way);
    fill(&pair.source);
    pair.done(DELETE);
    change(&pair.source);
    let before = Snapshot::of(&pair.destination);
    (pair, before)
}

/// Removes the entries that `before` does not have, and syncs `backup` back.
#[track_caller]
fn undo(pair: &Pair, backup: &Path, before: &Snapshot) {
    let there = Snapshot::of(&pair.destination);
    let mut created: Vec<_> = there.entries().filter(|(path, _)| before.at(path).is_none()).collect();
    created.reverse();
    for (path, node) in created {
        let path = pair.destination.join(std::str::from_utf8(path).unwrap());
        match node.kind {
            Kind::Dir => fs::remove_dir(path).unwrap(),
            _ => fs::remove_file(path).unwrap(),
        }
    }
    let back = pair.start(&["sync", text(backup), text(&pair.destination)]);
    back.wait().assert_exit(ExitCode::Done);
}

fn leftovers(backup: &Path) -> Vec<PathBuf> {
    let entries = Snapshot::of(backup);
    let paths = entries.entries().map(|(path, _)| PathBuf::from(String::from_utf8_lossy(path).into_owned()));
    paths.filter(|path| path.to_string_lossy().contains(".volferry-new-")).collect()
}

#[test]
fn what_a_run_replaces_or_deletes_brings_the_tree_back() {
    for way in Way::ALL {
        let (pair, before) = changed(way);
        let backup = pair.dir().join("old versions");
        let run = pair.run_with(DELETE, &["--backup-dir", text(&backup)]);
        run.assert_exit(ExitCode::Done);
        pair.assert_copy("with a backup folder");
        pair.assert_staging_empty();
        let kept = Snapshot::of(&backup);
        assert_eq!(kept.at(b"").unwrap().mode, 0o700);
        for path in ["stays", "created", "becomes folder/new"] {
            assert!(kept.at(path.as_bytes()).is_none(), "{way:?}: {path}");
        }
        undo(&pair, &backup, &before);
        Snapshot::of(&pair.destination).assert_like(&before, BELOW, &format!("{way:?}, undone"));
    }
}

#[test]
fn a_backup_folder_in_the_destination_is_left_out_of_the_run() {
    for (way, spelled) in
        [(Way::Local, "old/run [1]"), (Way::SinkListens, "old/run [1]"), (Way::SourceListens, "")]
    {
        let (pair, before) = changed(way);
        let backup = pair.destination.join("old/run [1]");
        let spelled = if spelled.is_empty() { text(&backup) } else { spelled };
        // The source has an entry of the backup folder's own path, which the run has to leave out.
        fs::create_dir_all(pair.source.join("old/run [1]")).unwrap();
        fs::write(pair.source.join("old/run [1]/file"), "the source's").unwrap();
        for round in 0..2 {
            pair.run_with(DELETE, &["--backup-dir", spelled]).assert_exit(ExitCode::Done);
            assert!(!backup.join("file").exists() && backup.join("deleted").exists(), "{way:?} {round}");
        }
        let aside = pair.dir().join("aside");
        fs::rename(&backup, &aside).unwrap();
        undo(&pair, &aside, &before);
        Snapshot::of(&pair.destination).assert_like(&before, BELOW, &format!("{way:?}, undone"));
    }
}

#[test]
fn a_file_that_is_written_in_place_is_copied_first() {
    for way in Way::ALL {
        let (pair, before) = changed(way);
        let inode = |path: &str| fs::metadata(pair.destination.join(path)).unwrap().ino();
        let large = inode("large");
        let backup = pair.dir().join("old");
        let flags = [DELETE, &["--write=in-place"]].concat();
        pair.run_with(&flags, &["--backup-dir", text(&backup)]).assert_exit(ExitCode::Done);
        pair.assert_copy("in place");
        assert_eq!(inode("large"), large, "{way:?}");
        undo(&pair, &backup, &before);
        Snapshot::of(&pair.destination).assert_like(&before, BELOW, &format!("{way:?}, undone"));
    }
}

#[test]
fn old_versions_are_copied_to_another_file_system() {
    let Some(()) = scratch::needs_root() else { return };
    for way in Way::ALL {
        let (pair, before) = changed(way);
        let other = scratch::dir(pair.dir(), "other");
        let _mount = Mount::tmpfs(&other, "8m");
        let backup = other.join("old");
        pair.run_with(DELETE, &["--backup-dir", text(&backup)]).assert_exit(ExitCode::Done);
        pair.assert_copy("with a backup folder elsewhere");
        assert_eq!(leftovers(&backup), [] as [PathBuf; 0]);
        undo(&pair, &backup, &before);
        // Copies are files of their own: names of one file are not linked there.
        let links = Aspects { links: false, ..BELOW };
        Snapshot::of(&pair.destination).assert_like(&before, links, &format!("{way:?}, undone"));
    }
}

#[test]
fn attributes_of_old_versions_are_kept_on_another_file_system_or_named() {
    const NAME: &str = "trusted.volferry-test";
    let Some(()) = scratch::needs_root() else { return };
    for keeps in [true, false] {
        let pair = Pair::new(Way::Local);
        tree::file(&pair.source.join("file"), b"new");
        let at = |name: &str| pair.destination.join(name);
        tree::file(&at("file"), b"old content");
        symlink("file", at("link")).unwrap();
        ["file", "link"].iter().for_each(|name| tree::set_attr(&at(name), NAME, b"value"));
        let other = scratch::dir(pair.dir(), "other");
        let _mount = if keeps { Mount::tmpfs(&other, "8m") } else { Mount::ramfs(&other) };
        let backup = other.join("old");
        let run = pair.run_with(DELETE, &["--backup-dir", text(&backup)]);
        run.assert_exit(ExitCode::Done);
        let value = |name: &str| {
            let mut value = [0; 16];
            rustix::fs::lgetxattr(backup.join(name), NAME, &mut value[..]).ok()
        };
        assert_eq!([value("file"), value("link")], [keeps.then_some(5); 2]);
        let note = "2 old versions in the backup folder did not keep their trusted.* attributes";
        let notes = &run.report().notes;
        assert_eq!(notes.iter().any(|it| it.starts_with(note)), !keeps, "{notes:?}");
    }
}

/// Folders and the times of links are not compared: rsync's backup folder has no empty folders, and rsync does not set
/// a link's time.
#[test]
fn the_backup_folder_has_what_rsyncs_has() {
    let (pair, _) = changed(Way::Local);
    let (backup, theirs) = (pair.dir().join("ours"), pair.dir().join("theirs"));
    let copy = pair.dir().join("copy");
    run(Command::new("cp").arg("-a").args([&pair.destination, &copy])).unwrap();
    fs::remove_dir_all(copy.join(".volferry")).unwrap();
    pair.run_with(DELETE, &["--backup-dir", text(&backup)]).assert_exit(ExitCode::Done);
    let ends = [format!("{}/", text(&pair.source)), format!("{}/", text(&copy))];
    let to = format!("--backup-dir={}", text(&theirs));
    run(Command::new("rsync").args(["-aH", "--modify-window=-1", "--delete", "--backup", &to]).args(ends))
        .unwrap();
    let files = |root: &Path| {
        let there = Snapshot::of(root);
        let of = |path: &[u8]| {
            let node = there.at(path).unwrap();
            let mtime = (!matches!(node.kind, Kind::Symlink(_))).then_some(node.mtime);
            (String::from_utf8_lossy(path).into_owned(), node.kind.clone(), node.mode, mtime)
        };
        let files = there.entries().filter(|(_, node)| node.kind != Kind::Dir);
        files.map(|(path, _)| of(path)).collect::<Vec<_>>()
    };
    let (ours, theirs) = (files(&backup), files(&theirs));
    let names = |files: &[(String, Kind, u32, _)]| files.iter().map(|it| it.0.clone()).collect::<Vec<_>>();
    assert_eq!(names(&ours), names(&theirs));
    assert!(ours == theirs);
}

#[test]
fn a_later_old_version_replaces_an_earlier_one() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        let backup = pair.dir().join("old");
        let (source, folder) = (pair.source.join("entry"), pair.source.join("entry/file"));
        let sync = |backup: &Path| {
            let flags = ["--backup-dir", text(backup)];
            pair.run_with(DELETE, &flags).assert_exit(ExitCode::Done);
        };
        for content in ["one", "two", "three"] {
            fs::write(&source, content).unwrap();
            sync(&backup);
        }
        assert_eq!(fs::read(backup.join("entry")).unwrap(), b"two", "{way:?}");
        fs::remove_file(&source).unwrap();
        fs::create_dir(&source).unwrap();
        fs::write(&folder, "in a folder").unwrap();
        sync(&backup);
        assert_eq!(fs::read(backup.join("entry")).unwrap(), b"three", "{way:?}");
        fs::remove_dir_all(&source).unwrap();
        fs::write(&source, "a file").unwrap();
        sync(&backup);
        assert_eq!(fs::read(backup.join("entry/file")).unwrap(), b"in a folder", "{way:?}");
        fs::remove_file(&source).unwrap();
        let run = pair.run_with(DELETE, &["--backup-dir", text(&backup)]);
        run.assert_exit(ExitCode::Partial);
        let failure = &run.report().failures[0].error;
        assert!(failure.contains("old versions of other paths"), "{way:?}: {failure}");
        assert_eq!(fs::read(backup.join("entry/file")).unwrap(), b"in a folder", "{way:?}");
        assert_eq!(fs::read(pair.destination.join("entry")).unwrap(), b"a file", "{way:?}");
    }
}

#[test]
fn a_folder_that_cannot_be_a_backup_folder_is_refused() {
    for way in Way::ALL {
        let (pair, before) = changed(way);
        let elsewhere = scratch::dir(pair.dir(), "elsewhere");
        let link = pair.dir().join("link");
        std::os::unix::fs::symlink(&elsewhere, &link).unwrap();
        std::os::unix::fs::symlink(&elsewhere, pair.destination.join("in")).unwrap();
        let before = (Snapshot::of(&pair.destination), before).0;
        let above = pair.destination.parent().unwrap();
        for (dir, exit) in [
            (text(&link), ExitCode::Failed),
            ("in/old", ExitCode::Failed),
            ("../old", ExitCode::Usage),
            (".", ExitCode::Usage),
            (".volferry/old", ExitCode::Usage),
            (text(above), ExitCode::Usage),
        ] {
            let run = pair.run_with(DELETE, &["--backup-dir", dir]);
            let end = run.ends().last().unwrap();
            end.assert_exit(exit);
            assert_eq!(
                end.reason(),
                if dir == "in/old" { "DestinationUnusable" } else { "BackupDirUnusable" },
                "{dir}"
            );
            Snapshot::of(&pair.destination).assert_like(&before, COPY, dir);
        }
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0, "{way:?}");
    }
}

#[test]
fn a_backup_folder_of_another_user_is_refused() {
    for pair in Pair::each_unprivileged() {
        let backup = scratch::dir(pair.dir(), "of root");
        fs::set_permissions(&backup, fs::Permissions::from_mode(0o777)).unwrap();
        tree::file(&pair.source.join("file"), b"content");
        let run = pair.run_with(&[], &["--backup-dir", text(&backup)]);
        let end = run.ends().last().unwrap();
        end.assert_exit(ExitCode::Failed);
        assert_eq!(end.reason(), "BackupDirUnusable");
        assert!(end.stderr.contains("belongs to user 0"), "{}", end.stderr);
    }
}

#[test]
fn a_dry_run_makes_no_backup_folder() {
    for way in Way::ALL {
        let (pair, before) = changed(way);
        pair.run_with(&["--delete", "--dry-run"], &["--backup-dir", "old"]).assert_exit(ExitCode::Done);
        Snapshot::of(&pair.destination).assert_like(&before, COPY, "a dry run");
    }
}

/// An old version that does not fit in the backup folder stays in its place, and the report names it.
#[test]
fn what_has_no_room_in_the_backup_folder_stays() {
    let Some(disk) = Disk::new("ext4", 8 << 20, "") else { return };
    for (way, flags) in
        [(Way::Local, &["--write=in-place"][..]), (Way::SinkListens, &[]), (Way::SourceListens, &[])]
    {
        let (pair, before) = changed(way);
        let full = disk.path().join("full");
        let filled = fs::File::create(&full).unwrap();
        while filled.write_at(&[1; 4096], filled.metadata().unwrap().len()).is_ok_and(|len| len == 4096) {}
        filled.set_len(filled.metadata().unwrap().len() - (1 << 20)).unwrap();
        let backup = disk.path().join(format!("{way:?}"));
        let run = pair.run_with(&[DELETE, flags].concat(), &["--backup-dir", text(&backup)]);
        run.assert_exit(ExitCode::Partial);
        let report = run.report();
        assert!(
            report.failures.iter().any(|it| it.path == "large" && it.error.contains("space")),
            "{report:?}"
        );
        let there = Snapshot::of(&pair.destination);
        assert!(there.at(b"large").unwrap().kind == before.at(b"large").unwrap().kind, "{way:?}");
        assert!(Snapshot::of(&backup).at(b"large").is_none());
        assert_eq!(leftovers(&backup), [] as [PathBuf; 0]);
        for (path, node) in before.files() {
            let is_in = |root: &Path| {
                Snapshot::of(root).at(path).is_some_and(|it| it.kind == Kind::File(node.into()))
            };
            assert!(is_in(&pair.destination) || is_in(&backup), "{way:?}: {}", String::from_utf8_lossy(path));
        }
    }
}

/// Whenever a run is killed, each old version is in its place or in the backup folder.
#[test]
fn no_old_version_is_lost_to_a_kill() {
    for (way, in_place) in
        [(Way::Local, false), (Way::Local, true), (Way::SinkListens, false), (Way::SourceListens, false)]
    {
        let mut pair = Pair::new(way);
        let versions = ["one", "two"].map(|name| scratch::dir(pair.dir(), name));
        fill(&versions[0]);
        fill(&versions[1]);
        change(&versions[1]);
        let mut rng = Rng::new(11);
        let flags = [DELETE, if in_place { &["--write=in-place"] } else { &[] }].concat();
        pair.source = versions[0].clone();
        let begin = Instant::now();
        pair.done(&flags);
        let span = begin.elapsed().as_micros() as u64;
        for nth in 0..6 {
            pair.source = versions[(nth + 1) % 2].clone();
            let before = Snapshot::of(&pair.destination);
            let backup = pair.dir().join(format!("old {nth}"));
            let saving = ["--backup-dir", text(&backup)];
            let ends = if pair.way == Way::Local {
                vec![pair.start_sync(&[&flags[..], &saving].concat())]
            } else {
                let (source, sink) = pair.start_both(&flags, &saving);
                vec![sink, source]
            };
            std::thread::sleep(Duration::from_micros(rng.below(span * 3 / 2)));
            ends.iter().for_each(Running::kill);
            ends.into_iter().for_each(|end| drop(end.wait()));
            // The journal holds the file's new version; the next run finishes it.
            let now = Snapshot::of(&pair.destination);
            let kept = backup.exists().then(|| Snapshot::of(&backup));
            for (path, content) in before.files() {
                let has =
                    |tree: &Snapshot| tree.at(path).is_some_and(|it| it.kind == Kind::File(content.into()));
                let what = format!("{way:?} {nth}: {}", String::from_utf8_lossy(path));
                assert!(has(&now) || kept.as_ref().is_some_and(has), "{what}");
            }
            pair.done(&flags);
        }
    }
}

#[test]
fn a_run_that_is_repeated_keeps_the_old_version_that_the_cut_off_one_has_saved() {
    for way in Way::EACH {
        let pair = Pair::new(way);
        let (file, mut rng) = (pair.destination.join("file"), Rng::new(5));
        let old = rng.bytes(3 * MIB);
        tree::file(&pair.source.join("file"), &old);
        pair.sync("the old version");
        tree::file(&pair.source.join("file"), &rng.bytes(3 * MIB));
        let kept = pair.dir().join("kept");
        let keeping = || pair.run_with(&[], &["--backup-dir", text(&kept)]).assert_exit(ExitCode::Done);
        keeping();
        // As after a kill before all was durable: the mark is older than the file's last change.
        fs::File::create(pair.destination.join(".volferry/dirty-0")).unwrap();
        let time = file.metadata().unwrap().modified().unwrap();
        fs::File::open(&file).unwrap().set_modified(time).unwrap();
        keeping();
        assert!(fs::read(kept.join("file")).unwrap() == old, "{way:?}");
        pair.sync_unchanged("after that");
    }
}
