//! Tests `volferry-operator run` with the real `volferry`: one tree, synced by three pairs of processes.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::Value;
use tempfile::TempDir;

const SHARDS: usize = 3;

const JOB: &str = "
apiVersion: volferry.dev/v1alpha1
kind: SyncJob
metadata: {name: web}
spec:
  source: {persistentVolumeClaim: {claimName: a}}
  destination: {persistentVolumeClaim: {claimName: b}}
  files: {delete: true}
  parallelism: 3
";

struct Stage {
    dir: TempDir,
}

impl Stage {
    fn new() -> Self {
        let stage = Self { dir: tempfile::tempdir().unwrap() };
        for volume in ["a", "b"] {
            fs::create_dir(stage.path(volume)).unwrap();
        }
        fs::write(stage.path("job.yaml"), JOB).unwrap();
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run(&self) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_volferry-operator"));
        command.arg("run").arg(self.path("job.yaml")).arg("--volferry").arg(volferry());
        for volume in ["a", "b"] {
            command.arg(format!("--volume={volume}={}", self.path(volume).display()));
        }
        command.output().unwrap()
    }

    /// Runs successfully, and returns `lastRun`.
    #[track_caller]
    fn succeed(&self) -> Value {
        let output = self.run();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        status(&output)["lastRun"].clone()
    }

    #[track_caller]
    fn assert_copied(&self) {
        let output = Command::new("diff")
            .args(["--recursive", "--no-dereference", "--exclude=.volferry"])
            .args([self.path("a"), self.path("b")])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    }

    /// Returns the number of shards of the last run, from the board on the destination (`syncer/doc/format.md`).
    fn shards_on_board(&self) -> u32 {
        let board = fs::read(self.path("b/.volferry/shards/board")).unwrap();
        u32::from_le_bytes(board[32..36].try_into().unwrap())
    }
}

/// Returns the engine's program, which cargo builds beside the operator's when it tests the whole workspace.
fn volferry() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_volferry-operator")).with_file_name("volferry");
    assert!(
        program.is_file(),
        "{} is missing: run `cargo build --test gitignore --bin volferry`",
        program.display()
    );
    program
}

fn status(output: &Output) -> Value {
    let shown: Value = serde_saphyr::from_str(&String::from_utf8(output.stdout.clone()).unwrap()).unwrap();
    shown["status"].clone()
}

/// Creates 20 folders of 30 files and a link each; returns the number of entries.
fn tree(root: &Path) -> u64 {
    for folder in 0..20 {
        let folder = root.join(format!("d{folder:02}"));
        fs::create_dir(&folder).unwrap();
        for file in 0..30 {
            fs::write(folder.join(format!("f{file:02}")), vec![b'x'; file * 997]).unwrap();
        }
        symlink("f00", folder.join("link")).unwrap();
    }
    20 * 32
}

#[test]
fn three_pairs_of_processes_copy_a_tree_and_keep_it_in_step() {
    let stage = Stage::new();
    let entries = tree(&stage.path("a"));
    let first = stage.succeed();
    stage.assert_copied();
    assert_eq!(stage.shards_on_board(), u32::try_from(SHARDS).unwrap());
    assert_eq!(
        (&first["work"]["filesScanned"], &first["work"]["filesCreated"]),
        (&entries.into(), &entries.into())
    );

    fs::remove_dir_all(stage.path("a/d07")).unwrap();
    fs::write(stage.path("a/d03/new"), b"new").unwrap();
    let inode = fs::metadata(stage.path("b/d11/f11")).unwrap().ino();
    let second = stage.succeed();
    stage.assert_copied();
    assert_eq!((&second["work"]["filesCreated"], &second["work"]["filesDeleted"]), (&1.into(), &32.into()));
    assert_eq!(fs::metadata(stage.path("b/d11/f11")).unwrap().ino(), inode, "what is the same is left alone");
}

#[test]
fn a_guard_refuses_the_run_of_all_shards_and_nothing_is_changed() {
    let stage = Stage::new();
    tree(&stage.path("a"));
    stage.succeed();
    fs::rename(stage.path("a"), stage.path("lost")).unwrap();
    fs::create_dir(stage.path("a")).unwrap();
    let refused = stage.run();
    assert_eq!(refused.status.code(), Some(4), "{}", String::from_utf8_lossy(&refused.stderr));
    let run = &status(&refused)["lastRun"];
    assert_eq!(run["reason"], "SourceEmpty");
    assert!(run["message"].as_str().unwrap().starts_with("the source is empty"), "said once: {run}");
    fs::remove_dir(stage.path("a")).unwrap();
    fs::rename(stage.path("lost"), stage.path("a")).unwrap();
    stage.assert_copied();
}
