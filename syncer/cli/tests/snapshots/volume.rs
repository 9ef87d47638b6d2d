//! A volume with snapshots, and the program run on it.

use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;

use crate::common::prelude::*;
use crate::common::wait;

/// A snapshot trusts the stamps of files that were changed longer ago.
const TICK_MS: u128 = 100;

/// A folder that stands for a mounted volume.
#[derive(Debug)]
pub struct Volume {
    _place: TempDir,
    path: PathBuf,
}

/// The output and the exit code of a command.
#[derive(Debug)]
pub struct Said {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Said {
    /// Asserts that a verify found no damage, also where there is no snapshot yet.
    #[track_caller]
    pub fn assert_undamaged(&self) {
        let is_empty = self.stderr.contains("has no snapshots\n");
        assert_eq!(self.code, Some(i32::from(is_empty)), "{self:?}");
    }

    /// Asserts the exit code.
    #[track_caller]
    pub fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl Volume {
    pub fn new() -> Self {
        Self::in_dir(scratch::scratch())
    }

    pub fn in_dir(place: TempDir) -> Self {
        let path = scratch::dir(place.path(), "volume");
        Self { _place: place, path }
    }

    /// Takes a folder that is there, and stays.
    pub fn at(path: PathBuf) -> Self {
        Self { _place: scratch::scratch(), path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a file or folder of the store.
    pub fn store(&self, name: &str) -> PathBuf {
        self.path.join(".volferry/snapshots").join(name)
    }

    /// Runs `volferry snapshot COMMAND DIR ARGS`.
    pub fn run(&self, command: &str, args: &[&str]) -> Said {
        self.command(command, args).output().unwrap().into()
    }

    pub fn command(&self, command: &str, args: &[&str]) -> Command {
        let mut process = Command::new(program());
        process.args(["snapshot", command]).arg(&self.path).args(args);
        process
    }

    /// Runs a command that has to succeed, and returns its standard output.
    pub fn ok(&self, command: &str, args: &[&str]) -> String {
        let said = self.run(command, args);
        assert_eq!(said.code, Some(0), "{command} {args:?}: {said:?}");
        said.stdout
    }

    /// Takes a snapshot, and returns its id.
    pub fn create(&self, args: &[&str]) -> String {
        self.ok("create", args).trim().to_owned()
    }

    pub fn list(&self) -> Vec<Value> {
        self.run("list", &["--json"]).json().as_array().unwrap().clone()
    }

    /// Waits until the clock of the file system has ticked since all files were written, so that a snapshot trusts
    /// their stamps.
    pub fn let_stamps_settle(&self) {
        let probe = self.path.with_file_name("probe");
        let now = || {
            std::fs::write(&probe, "").unwrap();
            std::fs::metadata(&probe).unwrap().modified().unwrap()
        };
        let written = now();
        let has_ticked = || now().duration_since(written).is_ok_and(|since| since.as_millis() > TICK_MS);
        wait::poll(has_ticked, || "the clock stands still".into());
        std::fs::remove_file(&probe).unwrap();
    }

    /// Returns the bytes that the store has allocated.
    pub fn allocated(&self) -> u64 {
        allocated(&self.store(""))
    }
}

fn allocated(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::symlink_metadata(path).unwrap();
    let own = metadata.blocks() * 512;
    if metadata.is_dir() {
        own + std::fs::read_dir(path).unwrap().map(|entry| allocated(&entry.unwrap().path())).sum::<u64>()
    } else {
        own
    }
}
