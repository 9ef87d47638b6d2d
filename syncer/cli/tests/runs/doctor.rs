//! `volferry doctor` finds the problems that a run would have, on real file systems, and leaves them as they were.

use std::{os::unix::fs::lchown, process::Output};

use serde_json::Value;

use crate::common::prelude::*;
use crate::common::scratch::{NOBODY, dir, is_root, scratch};

fn doctor(args: &[&str]) -> Output {
    Command::new(program()).arg("doctor").args(args).output().unwrap()
}

/// Returns the findings, as check and severity, and the exit code.
fn found(args: &[&str]) -> (Vec<(String, String)>, Option<i32>) {
    let run = doctor(&[args, &["--json"]].concat());
    let stdout = String::from_utf8_lossy(&run.stdout);
    let diagnosis: Value = serde_json::from_str(&stdout).unwrap_or_else(|error| panic!("{error}: {stdout}"));
    let findings = diagnosis["findings"].as_array().unwrap();
    let word = |finding: &Value, key: &str| finding[key].as_str().unwrap().to_owned();
    for finding in findings {
        assert_eq!(finding["hint"].is_string(), finding["severity"] != "ok", "{finding}");
    }
    let found = findings.iter().map(|finding| (word(finding, "check"), word(finding, "severity")));
    (found.collect(), run.status.code())
}

fn has(findings: &[(String, String)], check: &str, severity: &str) -> bool {
    findings.iter().any(|(at, how)| at == check && how == severity)
}

/// Makes a source with a file; returns its path.
fn source(at: &Path) -> std::path::PathBuf {
    let source = dir(at, "source");
    tree::file(&source.join("file"), b"content");
    source
}

#[test]
fn a_volume_that_keeps_everything_is_left_as_it_was() {
    for kind in ["ext4", "xfs"] {
        let Some(disk) = Disk::new(kind, 512 << 20, "") else { return };
        let place = scratch();
        let (source, destination) = (source(place.path()), dir(&disk.path(), "copy"));
        tree::file(&destination.join("there"), b"before");
        tree::set_mtime(&destination, 1_000_000_000, 7);
        let before = [&source, &destination].map(|root| Snapshot::of(root));
        let (findings, exit) = found(&[text(&source), text(&destination)]);
        assert_eq!(exit, Some(0), "{findings:?}");
        assert!(has(&findings, "volume", "ok") && has(&findings, "dryRun", "ok"), "{findings:?}");
        assert_eq!(has(&findings, "reflinks", "note"), kind == "ext4", "{findings:?}");
        Snapshot::of(&source).assert_like(&before[0], UNTOUCHED, "the source");
        let after = Snapshot::of(&destination);
        let kept = |tree: &Snapshot| {
            tree.entries().map(|(path, node)| (path.to_vec(), node.touched)).collect::<Vec<_>>()
        };
        assert_eq!(kept(&after), kept(&before[1]));
        assert_eq!(after.at(b"").unwrap().mtime, (1_000_000_000, 7));
        assert!(!destination.join(".volferry").exists());
    }
}

#[test]
fn a_full_volume_a_mount_and_a_folder_of_others_are_found() {
    if !is_root() {
        return;
    }
    let place = scratch();
    let (source, destination) = (source(place.path()), dir(place.path(), "copy"));
    let inside = dir(&source, "inside");
    let _mounts = [Mount::tmpfs(&inside, "1m"), Mount::tmpfs(&destination, "1m")];
    fs::write(destination.join("most"), vec![1; 1010 << 10]).unwrap();
    let own = dir(&destination, ".volferry");
    lchown(&own, Some(NOBODY), None).unwrap();
    let (findings, exit) = found(&[text(&source), text(&destination)]);
    assert!(has(&findings, "freeSpace", "warning") || has(&findings, "freeSpace", "error"), "{findings:?}");
    assert!(has(&findings, "mounts", "note") && has(&findings, "ownFolder", "error"), "{findings:?}");
    assert_eq!(exit, Some(1));
    let said = doctor(&[text(&source), text(&destination)]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("\nhint: --one-file-system leaves it out\n"), "{said}");
}

#[test]
fn a_volumes_own_folder_is_no_destination_and_nothing_is_tried_in_it() {
    let place = scratch();
    let source = source(place.path());
    let own = dir(&dir(place.path(), "copy"), ".volferry");
    tree::file(&own.join("source"), b"of a run");
    let before = Snapshot::of(&own);
    for destination in [own.clone(), own.join("snapshots"), own.join("new/below")] {
        let (findings, exit) = found(&[text(&source), text(&destination)]);
        assert_eq!(findings, [("ownFolder".to_string(), "error".to_string())], "{}", destination.display());
        assert_eq!(exit, Some(1));
    }
    Snapshot::of(&own).assert_like(&before, UNTOUCHED, "a volume's own folder");
    let said = doctor(&[text(&source), text(&own)]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(
        said.contains("which is a volume's own") && said.contains("\nhint: name a folder beside it"),
        "{said}"
    );
}

#[test]
fn a_volume_without_attributes_and_one_without_rights_are_found() {
    if !is_root() {
        return;
    }
    let place = scratch();
    let (source, destination) = (source(place.path()), dir(place.path(), "copy"));
    let ramfs = Command::new("mount").args(["-t", "ramfs", "ramfs"]).arg(&destination).status().unwrap();
    assert!(ramfs.success());
    let (findings, exit) = found(&[text(&source), text(&destination)]);
    assert!(Command::new("umount").arg(&destination).status().unwrap().success());
    assert!(has(&findings, "xattrs", "warning") && has(&findings, "acls", "warning"), "{findings:?}");
    assert_eq!(exit, Some(3), "{findings:?}");
    let mount = Mount::tmpfs(&destination, "1m");
    assert!(Command::new("mount").args(["-o", "remount,ro"]).arg(&destination).status().unwrap().success());
    let (findings, exit) = found(&[text(&source), text(&destination)]);
    drop(mount);
    assert!(has(&findings, "access", "error"), "{findings:?}");
    assert_eq!(exit, Some(1), "{findings:?}");
}

#[test]
fn a_user_who_may_not_give_files_away_is_told() {
    for pair in Pair::each_unprivileged().filter(|pair| pair.way == Way::Local) {
        tree::file(&pair.source.join("file"), b"content");
        let run = pair.output(&["doctor", text(&pair.source), text(&pair.destination), "--json"]);
        let said = String::from_utf8_lossy(&run.stdout).into_owned();
        assert!(said.contains("\"ownership\"") && said.contains("--ownership never"), "{said}");
        assert_eq!(run.status.code(), Some(3), "{said}");
    }
}

#[test]
fn the_way_to_a_receiving_end_is_checked_by_a_run_that_changes_nothing() {
    let pair = Pair::new(Way::SinkListens);
    tree::file(&pair.destination.join("theirs"), b"there");
    let before = Snapshot::of(&pair.destination);
    let mut sink = pair.start_receive(&["--once", "--listen", ANY_PORT]);
    let (identity, address) = (pair.key("source"), sink.listening().to_string());
    let check = ["--connect", &address, "--identity", text(&identity), "--connect-timeout"];
    let within = |seconds| found(&[&check[..], &[seconds]].concat());
    let (findings, exit) = within("60");
    assert!(has(&findings, "link", "ok") && exit == Some(0), "{findings:?}");
    sink.wait();
    Snapshot::of(&pair.destination).assert_like(&before, UNTOUCHED, "a destination whose way was checked");
    let (findings, exit) = within("1");
    assert!(has(&findings, "link", "error") && exit == Some(1), "nobody listens any more: {findings:?}");
}

#[test]
fn the_schema_of_a_diagnosis_is_printed() {
    let run = doctor(&["--schema"]);
    let schema: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert!(schema["properties"]["findings"].is_object(), "{schema}");
    assert_eq!(doctor(&["only-one"]).status.code(), Some(2));
}
