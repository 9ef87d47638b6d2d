//! Files that are moved, replaced or deleted while a snapshot is taken: none that was there all the time is missing,
//! and none has the content or the rights of another.

use std::{os::unix::fs::chown, process::Stdio};

use rustix::process::{Pid, kill_process};

use crate::common::prelude::*;
use crate::{
    common::watch::{FirstEntry, until_written},
    volume::{Said, Volume},
};

/// A hole that is read before all other files, and long enough for the program to be stopped meanwhile.
const HOLE_BYTES: u64 = 4 << 30;

/// Takes a snapshot, and calls `change` when the program has read no file but the first.
fn create_while(volume: &Volume, change: impl FnOnce()) -> Said {
    fs::File::create(volume.path().join("0")).unwrap().set_len(HOLE_BYTES).unwrap();
    let begins = FirstEntry::of(&volume.store("new"));
    let mut command = volume.command("create", &[]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    begins.wait();
    let of_snapshot = fs::read_dir(volume.store("new")).unwrap().next().unwrap().unwrap().path();
    until_written(&of_snapshot, || of_snapshot.join("0.part").exists());
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::STOP).unwrap();
    change();
    kill_process(pid, Signal::CONT).unwrap();
    child.wait_with_output().unwrap().into()
}

#[test]
fn what_was_there_all_the_time_is_in_the_snapshot_with_its_own_content_and_rights() {
    let volume = Volume::new();
    volume.create(&[]);
    let path = |name: &str| volume.path().join(name);
    let write = |name: &str, content: &str| fs::write(path(name), content).unwrap();
    ["a", "z"].iter().for_each(|name| fs::create_dir(path(name)).unwrap());
    for (name, content) in [("h1", "OLD"), ("c1", "GONE"), ("f", "precious"), ("tmp", "temporary")] {
        write(name, content);
    }
    [("acl", "public"), ("prog", "trusted")].iter().for_each(|(name, content)| write(name, content));
    fs::hard_link(path("h1"), path("z/h2")).unwrap();
    fs::hard_link(path("c1"), path("z/c2")).unwrap();
    tree::set_attr(&path("prog"), "user.of", b"trusted");
    let is_root = scratch::is_root();
    if is_root {
        tree::set_attr(&path("prog"), "security.capability", &tree::capability());
        tree::set_attr(&path("acl"), "system.posix_acl_access", &tree::acl([6, 4, 4, 4, 0]));
    }
    let replace = |name: &str, content: &str, mode: u32| {
        write(".new", content);
        fs::set_permissions(path(".new"), fs::Permissions::from_mode(mode)).unwrap();
        if is_root {
            chown(path(".new"), Some(1000), None).unwrap();
        }
        fs::rename(path(".new"), path(name)).unwrap();
    };
    let said = create_while(&volume, || {
        replace("h1", "NEW", 0o644);
        ["c1", "tmp"].iter().for_each(|name| fs::remove_file(path(name)).unwrap());
        fs::rename(path("f"), path("a/f")).unwrap();
        replace("acl", "SECRET", 0o600);
        replace("prog", "evil", 0o755);
    });
    assert_eq!(said.code, Some(0), "{said:?}");
    volume.ok("verify", &[]);
    let live = Snapshot::of(volume.path());
    let shown = volume.run("show", &["latest", "--json"]).json();
    let below = |dir: &str| fs::read_dir(path(dir)).unwrap().count();
    assert_eq!(shown["entries"], below("") - 1 + below("a") + below("z"), "{shown}");
    let restored = volume.path().with_file_name("restored");
    volume.ok("restore", &["latest", "--to", restored.to_str().unwrap()]);
    Snapshot::of(&restored).assert_like(&live, COPY, "the snapshot");
    let content = |name: &str| fs::read_to_string(restored.join(name)).unwrap();
    assert_eq!(["z/h2", "z/c2", "a/f", "prog"].map(content), ["OLD", "GONE", "precious", "evil"]);
    for name in ["acl", "prog"] {
        let mut names = [0; 200];
        assert_eq!(rustix::fs::llistxattr(restored.join(name), &mut names), Ok(0), "{name}");
    }
}

#[test]
fn a_temporary_file_that_is_deleted_meanwhile_is_no_failure() {
    let volume = Volume::new();
    volume.create(&[]);
    fs::write(volume.path().join("stays"), "content").unwrap();
    fs::write(volume.path().join("temporary"), "content").unwrap();
    let said = create_while(&volume, || fs::remove_file(volume.path().join("temporary")).unwrap());
    assert_eq!(said.code, Some(0), "{said:?}");
    let shown = volume.run("show", &["latest", "--json"]).json();
    assert_eq!(
        (shown["entries"].as_u64(), shown["bytes"].as_u64()),
        (Some(2), Some(HOLE_BYTES + 7)),
        "{shown}"
    );
    assert_eq!(volume.ok("ls", &["latest"]).lines().count(), 2);
    volume.ok("restore", &["latest", "--no-safety"]);
    assert!(volume.path().join("stays").exists());
}
