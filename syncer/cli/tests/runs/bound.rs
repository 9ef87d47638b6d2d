//! Folders that are bound inside one of the trees: what a run would read, write or delete twice is refused, and deletes
//! stay in the destination's own mount.

use crate::common::prelude::*;

const DELETE: &[&str] = &["--delete", "--delete-limit=100", "--force"];

/// Binds the folder `from` at a new folder `at`.
fn bind(from: &Path, at: &Path) -> Mount {
    fs::create_dir_all(at).unwrap();
    Mount::bind(from, at)
}

fn pairs() -> impl Iterator<Item = Pair> {
    Way::ALL.into_iter().filter(|_| scratch::is_root()).map(|way| {
        let pair = Pair::new(way);
        tree::files(&pair.source, &["file", "in/file"], "source");
        pair
    })
}

#[track_caller]
fn assert_refused(pair: &Pair, flags: &[&str]) {
    let before = Snapshot::of(&pair.source);
    let run = pair.run_to(ExitCode::Failed, flags);
    run.ends().for_each(|end| assert_eq!(end.reason(), "SameTree", "{:?} {flags:?}", pair.way));
    Snapshot::of(&pair.source).assert_like(&before, UNTOUCHED, "the source of a refused run");
}

#[test]
fn a_source_that_is_bound_inside_the_destination_is_refused_and_stays() {
    for pair in pairs() {
        for (at, from) in [("bound", ""), ("deep/bound", "in")] {
            let _mount = bind(&pair.source.join(from), &pair.destination.join(at));
            for flags in [DELETE, &["-x", "--delete", "--delete-limit=100"], &["-n"]] {
                assert_refused(&pair, flags);
            }
        }
    }
}

#[test]
fn a_destination_that_is_bound_inside_the_source_is_refused_and_does_not_nest() {
    for pair in pairs() {
        let _mount = bind(&pair.destination, &pair.source.join("in/bound"));
        assert_refused(&pair, &[]);
        assert_eq!(fs::read_dir(&pair.destination).unwrap().count(), 0, "{:?}", pair.way);
    }
}

#[test]
fn one_folder_that_is_bound_inside_both_trees_is_refused() {
    for pair in pairs() {
        let shared = scratch::dir(pair.dir(), "shared");
        tree::files(&shared, &["file"], "shared");
        let _mounts = [&pair.source, &pair.destination].map(|tree| bind(&shared, &tree.join("bound")));
        assert_refused(&pair, DELETE);
    }
}

#[test]
fn a_mount_that_the_run_excludes_is_no_part_of_a_tree() {
    for pair in pairs() {
        let _mount = bind(&pair.destination, &pair.source.join("in/bound"));
        pair.done(&["--exclude=/in/bound", "--delete"]);
        assert!(pair.destination.join("in/file").exists() && !pair.destination.join("in/bound").exists());
    }
}

/// Volumes of Kubernetes are folders of one file system that are bound at their places.
#[test]
fn two_folders_of_one_file_system_are_synced_also_where_others_are_bound_in_them() {
    for mut pair in pairs() {
        let volume = pair.dir().join("volume");
        tree::files(&volume, &["a/file", "b/old", "c/file", "d/old"], "volume");
        let (from, to) = (pair.dir().join("from"), pair.dir().join("to"));
        let _ends = [bind(&volume.join("a"), &from), bind(&volume.join("b"), &to)];
        let _inside =
            [bind(&volume.join("c"), &from.join("bound")), bind(&volume.join("d"), &to.join("bound"))];
        (pair.source, pair.destination) = (from, to);
        let run = pair.done(DELETE);
        let note = "1 entry that the source does not have stays, in what is mounted inside the destination, the first at bound/old: \
                    --cross-mounts deletes there, too";
        assert!(run.report().notes.iter().any(|it| it == note), "{:?}: {:?}", pair.way, run.report().notes);
        assert_eq!(run.report().work.files_deleted, 1, "{:?}", pair.way);
        let names = |path: &str| names(&volume.join(path));
        assert_eq!(
            (names("b"), names("d")),
            (vec!["bound".into(), "file".into()], vec!["file".into(), "old".into()])
        );
    }
}

fn names(dir: &Path) -> Vec<String> {
    scratch::names(dir).into_iter().filter(|name| name != ".volferry").collect()
}

#[test]
fn deletes_cross_into_another_mount_only_where_they_are_asked_to() {
    for pair in pairs() {
        let other = scratch::dir(pair.dir(), "other");
        let fill = || {
            tree::files(&other, &["theirs", "sub/theirs"], "other");
            tree::files(&pair.destination, &["extra"], "destination");
        };
        fill();
        let mounts = ["in", "gone", "deep/gone"].map(|at| bind(&other, &pair.destination.join(at)));
        for flags in [DELETE, &["--delete=before", "--delete-limit=100", "--force"]] {
            fill();
            pair.done(flags);
            assert!(!pair.destination.join("extra").exists(), "{:?}", pair.way);
            assert_eq!(names(&other), ["file", "sub", "theirs"], "{:?}", pair.way);
            assert!(other.join("sub/theirs").exists());
        }
        drop(mounts);
        let _mount = Mount::bind(&other, &pair.destination.join("in"));
        pair.done(&[DELETE, &["--cross-mounts"]].concat());
        assert_eq!(
            (names(&other), names(&pair.destination)),
            (vec!["file".into()], vec!["file".into(), "in".into()])
        );
    }
}

#[track_caller]
fn assert_backup_refused(pair: &Pair, backup: &Path) {
    let before = Snapshot::of(pair.dir());
    let run = pair.run_with(DELETE, &["--backup-dir", text(backup)]);
    run.assert_exit(ExitCode::Usage);
    run.ends().for_each(|end| assert_eq!(end.reason(), "BackupDirUnusable", "{:?} {backup:?}", pair.way));
    Snapshot::of(pair.dir()).assert_like(&before, UNTOUCHED, "a refused run");
}

#[test]
fn a_backup_folder_that_is_the_source_contains_it_or_is_in_it_is_refused() {
    for mut pair in pairs() {
        pair.source = scratch::dir(&pair.source, "tree");
        tree::files(&pair.source, &["file", "in/file"], "edited");
        tree::files(&pair.destination, &["file", "in/file"], "old");
        let above = pair.source.parent().unwrap().to_owned();
        for backup in [pair.source.clone(), above, pair.source.join("in"), pair.source.join("new")] {
            assert_backup_refused(&pair, &backup);
        }
        let bound = pair.destination.join("bak");
        let mount = bind(&pair.source, &bound);
        assert_backup_refused(&pair, Path::new("bak"));
        drop(mount);
        let bound = pair.dir().join("elsewhere");
        let mount = bind(&pair.source.join("in"), &bound);
        assert_backup_refused(&pair, &bound);
        drop(mount);
        pair.run_with(DELETE, &["--backup-dir", text(&bound)]).assert_exit(ExitCode::Done);
    }
}

#[test]
fn the_folder_of_a_source_that_is_a_file_is_no_backup_folder() {
    for mut pair in pairs() {
        let folder = pair.source.clone();
        (pair.source, pair.destination) = (folder.join("file"), pair.destination.join("file"));
        tree::file(&pair.destination, b"old");
        let run = pair.run_with(&[], &["--backup-dir", text(&folder)]);
        run.ends().for_each(|end| assert_eq!(end.reason(), "BackupDirUnusable", "{:?}", pair.way));
        assert_eq!(fs::read(folder.join("file")).unwrap(), b"source");
        pair.run_with(&[], &["--backup-dir", text(&pair.dir().join("bak"))]).assert_exit(ExitCode::Done);
        assert_eq!(fs::read(pair.dir().join("bak/file")).unwrap(), b"old");
    }
}

#[test]
fn a_backup_folder_that_a_mount_inside_the_destination_shows_is_refused() {
    for pair in pairs() {
        let backup = scratch::dir(pair.dir(), "bak");
        let _mount = bind(&backup, &pair.destination.join("in/bound"));
        assert_backup_refused(&pair, &backup);
    }
}
