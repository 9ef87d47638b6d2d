//! `volferry-operator run` with loop devices in place of raw block volumes. It needs no API server, but both programs,
//! as the other tests of this folder do. Skipped, with a line that gives the reason, where this process cannot have
//! loop devices.

use std::{
    fs,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use tempfile::TempDir;

use crate::prelude::*;

const MIB: u64 = 1 << 20;

/// A loop device on a file of its own. Detached when dropped.
struct Loop(PathBuf);

impl Loop {
    fn new(image: &Path, bytes: u64) -> Option<Self> {
        fs::File::create(image).unwrap().set_len(bytes).unwrap();
        let attached = Command::new("losetup").args(["--find", "--show"]).arg(image).output().unwrap();
        if !attached.status.success() {
            eprintln!("skipped: no loop device: {}", String::from_utf8_lossy(&attached.stderr));
            return None;
        }
        Some(Self(String::from_utf8(attached.stdout).unwrap().trim().into()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").arg("--detach").arg(&self.0).status();
    }
}

struct Stage {
    dir: TempDir,
    from: Loop,
    to: Loop,
}

impl Stage {
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let from = Loop::new(&dir.path().join("from"), 20 * MIB)?;
        let to = Loop::new(&dir.path().join("to"), 24 * MIB)?;
        let content: Vec<u8> = (0..3 * MIB).map(|at| (at / 3 + at / 4099) as u8).collect();
        let device = fs::OpenOptions::new().write(true).open(&from.0).unwrap();
        device.write_all_at(&content, 5 * MIB).unwrap();
        device.sync_all().unwrap();
        fs::create_dir(dir.path().join("folder")).unwrap();
        Some(Self { dir, from, to })
    }

    /// Runs a job from one device to `destination`, with `place` for its claim.
    fn run(&self, destination: &str, place: &Path, more: &str) -> Output {
        let job = self.dir.path().join("job.yaml");
        let manifest = format!(
            "apiVersion: volferry.dev/v1alpha1\nkind: SyncJob\nmetadata: {{name: disk}}\nspec:\n  \
             source: {{persistentVolumeClaim: {{claimName: raw}}}}\n  destination: {destination}\n{more}"
        );
        fs::write(&job, manifest).unwrap();
        let mut command = Command::new(programs::of_workspace("volferry-operator").unwrap());
        command.arg("run").arg(&job).arg("--volferry").arg(programs::of_workspace("volferry").unwrap());
        command.arg("--volume").arg(format!("raw={}", self.from.0.display()));
        command.arg("--volume").arg(format!("copy={}", place.display())).output().unwrap()
    }
}

const COPY: &str = "{persistentVolumeClaim: {claimName: copy}}";
const IMAGE: &str = "{persistentVolumeClaim: {claimName: copy}, path: /backups/disk.img}";

#[track_caller]
fn assert_done(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(0), "{said}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[track_caller]
fn assert_begins_with(there: &Path, here: &Path, bytes: u64) {
    let same =
        Command::new("cmp").args(["--bytes", &bytes.to_string()]).args([there, here]).output().unwrap();
    assert!(same.status.success(), "{}", String::from_utf8_lossy(&same.stdout));
}

#[test]
fn a_device_is_synced_onto_another_and_into_an_image() {
    let Some(stage) = Stage::new() else { return };
    let status = assert_done(&stage.run(COPY, &stage.to.0, ""));
    assert_begins_with(&stage.to.0, &stage.from.0, 20 * MIB);
    assert!(status.contains("filesUpdated: 1"), "{status}");

    let again = assert_done(&stage.run(COPY, &stage.to.0, ""));
    assert!(again.contains("filesUpdated: 0") && again.contains("bytesChanged: 0"), "{again}");

    let folder = stage.dir.path().join("folder");
    assert_done(&stage.run(IMAGE, &folder, ""));
    assert_begins_with(&folder.join("backups/disk.img"), &stage.from.0, 20 * MIB);
}

#[test]
fn a_device_does_not_go_onto_a_folder_nor_with_what_is_for_files() {
    let Some(stage) = Stage::new() else { return };
    let folder = stage.dir.path().join("folder");
    for (place, more, words) in
        [(&folder, "", "KindMismatch"), (&stage.to.0, "  files: {delete: true}\n", "NotForDevices")]
    {
        let refused = stage.run(COPY, place, more);
        assert_ne!(refused.status.code(), Some(0));
        let said = String::from_utf8_lossy(&refused.stdout);
        assert!(said.contains(words), "{said}");
    }
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
}
