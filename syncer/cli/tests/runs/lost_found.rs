//! The folder `lost+found` of ext4, which belongs to root: it stops nobody who may not read it, and no run deletes it
//! because the source has none.

use crate::common::prelude::*;

/// Makes a `lost+found` as `mkfs.ext4` does, with a file in it.
fn lost_found(volume: &Path) -> PathBuf {
    let folder = scratch::dir(volume, "lost+found");
    tree::file(&folder.join("#12"), b"recovered");
    tree::set_mode(&folder, 0o700);
    folder.join("#12")
}

#[test]
fn a_user_who_may_not_read_it_syncs_the_volume_without_it() {
    let Some(()) = scratch::needs_root() else { return };
    for pair in Pair::each_unprivileged() {
        tree::file(&pair.source.join("file"), b"content");
        tree::file(&pair.destination.join("surplus"), b"content");
        scratch::give_to_nobody(&pair.source);
        scratch::give_to_nobody(&pair.destination);
        let kept = [&pair.source, &pair.destination].map(|volume| lost_found(volume));
        let run = pair.done(&["--delete", "--force"]);
        assert_eq!(run.report().work.files_deleted, 1, "{:?}", pair.way);
        assert_eq!(fs::read(pair.destination.join("file")).unwrap(), b"content");
        assert!(!pair.destination.join("surplus").exists());
        assert!(kept.iter().all(|file| file.exists()), "{:?}", pair.way);
    }
}

#[test]
fn an_empty_one_that_a_pods_group_may_read_is_none_and_what_is_in_one_is_data() {
    for pair in Pair::each_unprivileged() {
        tree::file(&pair.source.join("file"), b"content");
        scratch::give_to_nobody(&pair.source);
        // As kubelet leaves it on a volume with an `fsGroup`.
        for volume in [&pair.source, &pair.destination] {
            tree::set_mode(&scratch::dir(volume, "lost+found"), 0o777);
        }
        pair.done(&["--delete"]);
        tree::file(&pair.source.join("lost+found/#12"), b"recovered");
        tree::set_mode(&pair.source.join("lost+found/#12"), 0o644);
        let run = pair.run_to(ExitCode::Partial, &["--delete"]);
        assert_eq!(run.report().failures[0].path, "lost+found", "{:?}", pair.way);
    }
}

#[test]
fn what_was_copied_of_one_stays_when_the_user_may_not_read_it_any_more() {
    if !scratch::is_root() {
        return;
    }
    for pair in Pair::each_unprivileged() {
        for name in ["one", "two", "three", "four"] {
            tree::file(&pair.source.join(name), b"content");
        }
        scratch::give_to_nobody(&pair.source);
        let recovered = lost_found(&pair.source);
        let folder = recovered.parent().unwrap();
        tree::set_mode(&recovered, 0o644);
        tree::set_mode(folder, 0o755);
        pair.run(&[]).assert_exit(ExitCode::Done);
        tree::set_mode(folder, 0o700);
        let run = pair.run(&["--delete"]);
        run.assert_exit(ExitCode::Done);
        assert_eq!(run.report().work.files_deleted, 0, "{:?}", pair.way);
        assert!(pair.destination.join("lost+found/#12").exists(), "{:?}", pair.way);
    }
}

/// A new volume, or one that was wiped, has nothing else.
#[test]
fn a_source_with_nothing_but_an_empty_one_is_empty() {
    if !scratch::is_root() {
        return;
    }
    for pair in Way::ALL.into_iter().map(Pair::new) {
        tree::file(&pair.source.join("file"), b"content");
        pair.sync("before the volume is made anew");
        fs::remove_file(pair.source.join("file")).unwrap();
        tree::set_mode(&scratch::dir(&pair.source, "lost+found"), 0o700);
        pair.refuse(&["--delete", "--delete-limit=100"], ExitCode::Guard, "SourceEmpty");
    }
}

#[test]
fn a_run_of_root_copies_it_and_deletes_none() {
    let Some(()) = scratch::needs_root() else { return };
    for pair in Pair::each(Way::ALL) {
        let from = lost_found(&pair.source);
        pair.sync("with what was recovered");
        fs::remove_dir_all(from.parent().unwrap()).unwrap();
        tree::file(&pair.source.join("file"), b"content");
        let run = pair.done(&["--delete", "--force"]);
        assert_eq!(run.report().work.files_deleted, 0, "{:?}", pair.way);
        assert!(pair.destination.join("lost+found/#12").exists(), "{:?}", pair.way);
    }
}
