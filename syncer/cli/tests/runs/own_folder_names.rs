//! Other names of `.volferry/`, and other folders of that name: what is not the syncer's own stays as it is.

use std::fs::Permissions;

use crate::common::prelude::*;
use crate::common::scratch::NOBODY;

/// Stands for a file system that folds case, for names of this one folder: the kernel here has none that does.
fn also_named(own: &Path, name: &Path) -> Mount {
    fs::create_dir(name).unwrap();
    Mount::bind(own, name)
}

#[test]
fn another_name_of_the_own_folder_is_as_reserved_as_its_own() {
    let Some(()) = scratch::needs_root() else { return };
    for way in Way::ALL {
        let pair = Pair::new(way);
        tree::file(&pair.source.join("file"), b"content");
        pair.sync("the first run");
        let own = pair.destination.join(".volferry");
        let also = also_named(&own, &pair.destination.join(".VOLFERRY"));
        tree::file(&pair.source.join("file"), b"other content");
        let run = pair.done(&["--delete"]);
        assert_eq!(run.report().work.files_deleted, 0, "{way:?}");
        assert!(own.join("volume").exists(), "{way:?}");
        let theirs = scratch::dir(&pair.source, ".VOLFERRY");
        tree::file(&theirs.join("volume"), b"forged");
        let run = pair.run(&[]);
        let (Run::Local(sink) | Run::Network { sink, .. }) = &run;
        let message = &sink.report().message;
        assert!(message.contains(".VOLFERRY, which is Volferry's own folder"), "{message}");
        assert_ne!(fs::read(own.join("volume")).unwrap(), b"forged", "{way:?}");
        drop(also);
    }
}

/// Fills a folder of this user's as any program might, with the names of Volferry's folders.
fn precious(at: &Path) -> PathBuf {
    tree::files(at, &["staging/precious", "journal/precious", "shards/precious"], "precious");
    fs::set_permissions(at, Permissions::from_mode(0o755)).unwrap();
    at.to_owned()
}

/// The owner of a folder may rename another user's folder in it to any name.
#[test]
fn a_folder_that_somebody_renamed_to_the_own_folders_name_is_refused_and_stays() {
    for way in Way::ALL {
        for owner in [None, Some(NOBODY)] {
            let pair = Pair::new(way);
            tree::file(&pair.source.join("file"), b"content");
            let own = precious(&pair.destination.join(".volferry"));
            if owner.is_some() {
                scratch::give_to_nobody(&own);
            }
            let before = Snapshot::of(&own);
            let run = pair.run_to(ExitCode::Failed, &["--delete"]);
            let (Run::Local(sink) | Run::Network { sink, .. }) = &run;
            let message = &sink.report().message;
            assert!(message.contains(own.to_str().unwrap()), "{way:?}: {message}");
            Snapshot::of(&own).assert_like(&before, UNTOUCHED, "the folder that was renamed");
        }
    }
}

#[test]
fn the_mark_of_another_folder_proves_nothing() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        tree::file(&pair.source.join("file"), b"content");
        pair.sync("the first run");
        let own = pair.destination.join(".volferry");
        let real = pair.dir().join("real");
        fs::rename(&own, &real).unwrap();
        precious(&own);
        for file in ["volume", "made"] {
            fs::copy(real.join(file), own.join(file)).unwrap();
        }
        let run = pair.run_to(ExitCode::Failed, &["--delete"]);
        let (Run::Local(sink) | Run::Network { sink, .. }) = &run;
        let message = &sink.report().message;
        assert!(message.contains("has no mark that volferry made it, and holds "), "{way:?}: {message}");
        assert!(own.join("staging/precious").exists() && own.join("journal/precious").exists());
        fs::remove_dir_all(&own).unwrap();
        fs::rename(&real, &own).unwrap();
        pair.sync("with the folder back in its place");
    }
}

#[test]
fn the_folder_of_version_0_1_gets_its_mark() {
    for way in Way::ALL {
        let pair = Pair::new(way);
        tree::file(&pair.source.join("file"), b"content");
        pair.sync("the first run");
        let made = pair.destination.join(".volferry/made");
        fs::remove_file(&made).unwrap();
        tree::file(&pair.destination.join(".volferry/staging/left over"), b"of an interrupted run");
        pair.sync_unchanged("of a later version");
        assert!(made.exists(), "{way:?}");
    }
}

#[test]
fn nothing_is_cleaned_up_across_a_mount() {
    for way in Way::ALL.into_iter().filter(|_| scratch::is_root()) {
        let pair = Pair::new(way);
        tree::file(&pair.source.join("file"), b"content");
        pair.sync("the first run");
        let other = scratch::dir(pair.dir(), "other");
        tree::file(&other.join("precious"), b"precious");
        let staging = pair.destination.join(".volferry/staging");
        for at in [staging.join("left over"), staging.join("left/over"), staging.clone()] {
            fs::create_dir_all(&at).unwrap();
            let mount = Mount::bind(&other, &at);
            pair.run_to(ExitCode::Failed, &["--delete"]);
            assert!(other.join("precious").exists(), "{way:?}");
            drop(mount);
        }
        pair.sync_unchanged("without a mount");
    }
}
