//! `.volferry/` on a volume that other users can write to: a run uses it only if it belongs to the syncer's user.

use std::{
    fs::Permissions,
    io::Read as _,
    os::unix::process::CommandExt as _,
    process::{Child, Stdio},
};

use crate::common::prelude::*;
use crate::common::scratch::NOBODY;

/// The content of the attacker's files.
const THEIRS: &[u8] = b"written by somebody else";

/// Swaps, as long as the test runs, all entries that the owner of a destination's root can: the syncer's folder, the
/// folders of the tree, and the entries in the syncer's folder.
const ATTACK: &str = r#"
put() { for at in "$1"/*; do [ -e "$at" ] && cp ../evil .evil 2>/dev/null && mv -f .evil "$at" 2>/dev/null; done; }
while [ -d /proc/$PPID ]; do
    mv .volferry .aside 2>/dev/null && mkdir -m 777 .volferry .volferry/staging .volferry/journal 2>/dev/null
    put .volferry/staging; put .volferry/journal; put .volferry
    rm -rf .volferry 2>/dev/null; mv .aside .volferry 2>/dev/null
    put .volferry/staging
    for folder in roots new; do
        mv "$folder" ".$folder" 2>/dev/null && mkdir -m 777 "$folder" 2>/dev/null
        cp ../evil "$folder/evil" 2>/dev/null
        rm -rf "$folder" 2>/dev/null; mv ".$folder" "$folder" 2>/dev/null
    done
    for file in leader tool; do cp -p ../evil ".$file" 2>/dev/null && mv -f ".$file" "$file" 2>/dev/null; done
done
"#;

/// A user who owns the destination's root and works against the run.
struct Attacker(Child);

impl Attacker {
    fn start(destination: &Path) -> Self {
        let mut shell = Command::new("sh");
        shell.args(["-c", ATTACK]).current_dir(destination).uid(NOBODY).gid(NOBODY).process_group(0);
        Self(shell.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Attacker {
    /// Ends the shell and the commands that it has started. Each of them holds the standard output, so the end of the
    /// output is the end of all.
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.0.wait();
        let _ = self.0.stdout.take().map(|mut held| held.read_to_end(&mut Vec::new()));
    }
}

/// Removes the `.volferry` that the attacker's last command may have left, which a run refuses, and puts the syncer's
/// folder back.
fn remove_their_state_folder(destination: &Path) {
    let (state, aside) = (destination.join(".volferry"), destination.join(".aside"));
    if state.metadata().is_ok_and(|metadata| metadata.uid() == NOBODY) {
        fs::remove_dir_all(&state).unwrap();
    }
    if !state.exists() && aside.exists() {
        fs::rename(&aside, &state).unwrap();
    }
}

/// Makes a tree with entries for each way of publishing: replaced, new, small, large, linked and set-id files.
fn fill(source: &Path, round: u64) {
    let mut rng = Rng::new(round);
    for folder in ["roots", "roots/deep", "new", &format!("roots/new {round}")] {
        fs::create_dir_all(source.join(folder)).unwrap();
    }
    for file in ["leader", "roots/replaced", "roots/deep/replaced", "tool"] {
        tree::file(&source.join(file), &rng.bytes(2000));
    }
    for nth in 0..8 {
        tree::file(&source.join(format!("new/{round} {nth}")), &rng.bytes(100));
        tree::file(&source.join(format!("roots/new {round}/{nth}")), &rng.bytes(100));
    }
    tree::file(&source.join("roots/large"), &rng.bytes(1_500_000));
    tree::set_mode(&source.join("tool"), 0o4755);
    let _ = fs::remove_file(source.join("roots/linked"));
    fs::hard_link(source.join("leader"), source.join("roots/linked")).unwrap();
}

/// Collects all entries below a folder.
fn below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        found.push(entry.path());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            below(&entry.path(), found);
        }
    }
}

/// Checks that each file of the attacker belongs to the attacker, has no set-id bits and is in no folder of another
/// user. Exempt are files added to a folder that the attacker loses, if the run `is_incomplete` and reports that.
#[track_caller]
fn assert_nothing_of_theirs_was_published(destination: &Path, is_incomplete: bool) {
    let mut found = Vec::new();
    below(destination, &mut found);
    for path in found {
        let (metadata, folder) =
            (path.symlink_metadata().unwrap(), path.parent().unwrap().metadata().unwrap());
        let is_theirs = metadata.is_file() && {
            let mut content = Vec::new();
            let read = fs::File::open(&path).and_then(|file| file.take(100).read_to_end(&mut content));
            read.is_ok() && content == THEIRS
        };
        if metadata.uid() == NOBODY && metadata.is_file() || is_theirs {
            assert_eq!(metadata.uid(), NOBODY, "{}: it was given an owner", path.display());
            assert_eq!(metadata.mode() & 0o6000, 0, "{}: it has set-id bits", path.display());
            let is_told = is_incomplete && path.file_name().is_some_and(|name| name == "evil");
            assert!(
                is_told || folder.uid() == NOBODY,
                "{}: it is in a folder of another user",
                path.display()
            );
        }
    }
}

#[test]
fn who_owns_the_root_gets_nothing_published_in_folders_of_others() {
    let Some(()) = scratch::needs_root() else { return };
    for pair in Pair::each(Way::EACH) {
        scratch::open_to_all(pair.dir());
        fill(&pair.source, 0);
        pair.sync("the first run");
        let destination = &pair.destination;
        for root in [&pair.source, destination] {
            std::os::unix::fs::chown(root, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let evil = pair.dir().join("evil");
        fs::write(&evil, THEIRS).unwrap();
        std::os::unix::fs::chown(&evil, Some(NOBODY), Some(NOBODY)).unwrap();
        tree::set_mode(&evil, 0o777);
        for round in 1..=10 {
            fill(&pair.source, round);
            let attacker = Attacker::start(destination);
            let run = pair.run(&["--delete", "--delete-limit=100"]);
            drop(attacker);
            let is_incomplete = run.ends().all(|end| end.exit != Some(ExitCode::Done));
            assert_nothing_of_theirs_was_published(destination, is_incomplete);
        }
        remove_their_state_folder(destination);
        pair.done(&["--delete", "--delete-limit=100"]);
        assert_nothing_of_theirs_was_published(destination, false);
    }
}

/// Changes a user's folder while content for another one is on its way: adds an entry that the plan does not know, and
/// replaces one of the run's own.
fn work_against(folder: &Path) {
    for name in ["added", "exchanged"] {
        let theirs = folder.with_file_name(".theirs");
        fs::write(&theirs, THEIRS).unwrap();
        scratch::give_to_nobody(&theirs);
        fs::rename(&theirs, folder.join(name)).unwrap();
    }
}

#[test]
fn what_a_user_adds_to_a_folder_that_they_lose_is_told_and_deleted_by_the_next_run() {
    let Some(()) = scratch::needs_root() else { return };
    for delete in [true, false] {
        let pair = Pair::new(Way::SinkListens);
        for folder in ["equal", "planned"] {
            scratch::dir(&pair.source, folder);
            ["exchanged", "first name"].iter().for_each(|name| {
                tree::file(&pair.source.join(folder).join(name), b"content");
            });
        }
        fs::hard_link(pair.source.join("equal/first name"), pair.source.join("planned/other name")).unwrap();
        pair.sync("the first run");
        let theirs = ["equal", "planned"].map(|name| pair.destination.join(name));
        for folder in &theirs {
            std::os::unix::fs::chown(folder, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        tree::file(&pair.source.join("planned/new"), b"new content");
        tree::file(&pair.source.join("large"), &Rng::new(5).bytes(3_000_000));
        let flags: &[&str] = if delete { &["--delete"] } else { &[] };
        let (source, sink, relay) = pair.start_over(1_000_000, flags);
        theirs.iter().for_each(|folder| work_against(folder));
        relay.release();
        let (sink, source) = (sink.wait(), source.wait());
        [&sink, &source].iter().for_each(|end| end.assert_exit(ExitCode::Partial));
        let report = sink.report();
        let failed: Vec<&str> = report.failures.iter().map(|failure| failure.path.as_str()).collect();
        for folder in ["equal", "planned"] {
            assert!(failed.contains(&format!("{folder}/exchanged").as_str()), "{failed:?}");
            assert_eq!(failed.contains(&format!("{folder}/added").as_str()), delete, "{failed:?}");
        }
        assert_eq!(failed.len(), if delete { 4 } else { 2 }, "{failed:?}");
        let noted = report.notes.iter().any(|note| note.starts_with("2 entries stay with their owners"));
        assert_eq!(noted, !delete, "{:?}", report.notes);
        assert!(theirs.iter().all(|folder| folder.metadata().unwrap().uid() == 0));
        pair.sync("the next run");
    }
}

#[test]
fn what_a_user_adds_again_after_its_delete_to_a_folder_that_they_lose_is_told() {
    let Some(()) = scratch::needs_root() else { return };
    let pair = Pair::new(Way::SinkListens);
    tree::file(&scratch::dir(&pair.source, "folder").join("file"), b"content");
    pair.sync("the first run");
    let folder = pair.destination.join("folder");
    let again = folder.join("again");
    fs::write(&again, THEIRS).unwrap();
    scratch::give_to_nobody(&folder);
    tree::file(&pair.source.join("large"), &Rng::new(5).bytes(3_000_000));
    let (source, sink, relay) = pair.start_over(1_000_000, &["--delete=before"]);
    assert!(!again.exists(), "it was deleted before content moved");
    fs::write(&again, THEIRS).unwrap();
    std::os::unix::fs::chown(&again, Some(NOBODY), Some(NOBODY)).unwrap();
    relay.release();
    let (sink, source) = (sink.wait(), source.wait());
    [&sink, &source].iter().for_each(|end| end.assert_exit(ExitCode::Partial));
    let failures = &sink.report().failures;
    assert!(failures.iter().any(|failure| failure.path == "folder/again"), "{failures:?}");
    assert_eq!(folder.metadata().unwrap().uid(), 0);
    pair.sync("the next run");
    assert!(!again.exists());
}

#[test]
fn folders_that_change_their_owner_with_all_that_is_in_them_are_no_failure() {
    let Some(()) = scratch::needs_root() else { return };
    for pair in Pair::each(Way::ALL) {
        for folder in ["equal", "planned", "moved"] {
            scratch::dir(&pair.source, folder);
            ["file", "one name"].iter().for_each(|name| {
                tree::file(&pair.source.join(folder).join(name), folder.as_bytes());
            });
            fs::hard_link(pair.source.join(folder).join("one name"), pair.source.join(folder).join("two"))
                .unwrap();
            scratch::give_to_nobody(&pair.source.join(folder));
        }
        pair.sync("of another user");
        for folder in ["equal", "planned", "moved"] {
            std::os::unix::fs::chown(pair.source.join(folder), Some(1000), Some(1000)).unwrap();
        }
        tree::file(&pair.source.join("planned/new"), b"new content");
        fs::rename(pair.source.join("moved"), pair.source.join("moved on")).unwrap();
        tree::file(&scratch::dir(&pair.destination, "planned/extra").join("file"), b"extra");
        pair.done(&[]);
        pair.sync("the folders have another owner");
    }
}

#[test]
fn a_folder_that_another_user_made_beforehand_is_made_anew() {
    let Some(()) = scratch::needs_root() else { return };
    for pair in Pair::each(Way::ALL) {
        tree::file(&pair.source.join("file"), b"content");
        let own = pair.destination.join(".volferry");
        let inside = ["", "staging", "journal"].map(|name| own.join(name));
        inside.iter().for_each(|folder| {
            fs::create_dir(folder).unwrap();
            fs::set_permissions(folder, Permissions::from_mode(0o777)).unwrap();
        });
        for name in ["volume", "staging/0", "journal/0123456789abcdef0123456789abcdef"] {
            fs::write(own.join(name), "b9a3c0ffee0123456789abcdef012345\n").unwrap();
        }
        scratch::give_to_nobody(&own);
        let report = pair.sync("in the folder of another user");
        assert!(
            report.notes.iter().any(|note| note.contains("belonged to user 65532")),
            "{:?}",
            report.notes
        );
        for folder in inside {
            let metadata = folder.metadata().unwrap();
            assert_eq!((metadata.uid(), metadata.mode() & 0o7777), (0, 0o700), "{}", folder.display());
            assert!(
                fs::read_dir(&folder).unwrap().all(|entry| entry.unwrap().metadata().unwrap().uid() == 0)
            );
        }
        let volume = report.volume.unwrap().to_string();
        assert_eq!(volume, "b9a3c0ffee0123456789abcdef012345", "the destination keeps its id");
        pair.sync_unchanged("after that");
    }
}

#[test]
fn a_folder_of_another_user_that_cannot_be_removed_is_refused_with_its_owner_and_the_cure() {
    for pair in Pair::each_unprivileged() {
        tree::file(&pair.source.join("file"), b"content");
        scratch::give_to_nobody(&pair.source);
        let own = scratch::dir(&pair.destination, ".volferry");
        fs::set_permissions(&own, Permissions::from_mode(0o700)).unwrap();
        let run = pair.run_to(ExitCode::Failed, &[]);
        let message = match &run {
            Run::Local(sink) | Run::Network { sink, .. } => sink.report().message.clone(),
        };
        for part in [
            own.to_str().unwrap(),
            "belongs to user 0 (mode 0700)",
            "works as user 65532",
            "remove it as its owner",
        ] {
            assert!(message.contains(part), "{message}");
        }
        assert!(!pair.destination.join("file").exists());
    }
}

/// The kubelet changes the group of all files of a volume to the `fsGroup` of a pod that mounts it.
#[test]
fn a_pod_with_an_fs_group_works_run_after_run_and_closes_the_folder_again() {
    for pair in Pair::each_unprivileged() {
        for round in 0..3 {
            tree::file(&pair.source.join(format!("file {round}")), b"content");
            scratch::give_to_nobody(&pair.source);
            pair.sync(&format!("run {round}"));
            let own = pair.destination.join(".volferry");
            for name in ["", "staging", "journal", "lock", "volume", "epoch"] {
                let mode = own.join(name).metadata().unwrap().mode();
                assert_eq!(mode & 0o077, 0, "{name}: {mode:o}, run {round}");
            }
            let opened = Command::new("chmod").args(["-R", "g+rwX"]).arg(&own).status().unwrap();
            assert!(opened.success());
        }
    }
}

#[test]
fn a_set_id_file_loses_its_bits_with_its_owner() {
    for pair in Pair::each_unprivileged() {
        tree::file(&pair.source.join("tool"), b"content");
        scratch::open_to_all(&pair.source);
        tree::set_mode(&pair.source.join("tool"), 0o4755);
        pair.done(&[]);
        let metadata = pair.destination.join("tool").metadata().unwrap();
        assert_eq!((metadata.uid(), metadata.mode() & 0o7777), (NOBODY, 0o755), "{:?}", pair.way);
        let again = pair.done(&[]);
        assert_eq!(again.report().work.files_updated, 0, "that is no difference to the next run");
    }
}

#[test]
fn a_file_that_another_user_could_have_written_is_replaced_before_it_gets_set_id_bits() {
    let Some(()) = scratch::needs_root() else { return };
    for way in Way::ALL {
        let pair = Pair::new(way);
        let content = b"the content of the source";
        tree::file(&pair.source.join("tool"), content);
        tree::set_mode(&pair.source.join("tool"), 0o4755);
        tree::set_mtime(&pair.source.join("tool"), 1_000_000, 7);
        let forged = pair.destination.join("tool");
        tree::file(&forged, &[b'x'; 25]);
        scratch::give_to_nobody(&forged);
        tree::set_mtime(&forged, 1_000_000, 7);
        pair.done(&[]);
        assert_eq!(fs::read(&forged).unwrap(), content, "{way:?}");
        let metadata = forged.metadata().unwrap();
        assert_eq!((metadata.uid(), metadata.mode() & 0o7777), (0, 0o4755), "{way:?}");
    }
}
