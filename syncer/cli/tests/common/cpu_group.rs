//! A control group with a CPU limit, for a run of the program.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use super::process::program;

/// For each version of control groups: the mount of the CPU controller, the limit's file, and a fiftieth of one
/// processor in its format.
const VERSIONS: [(&str, &str, &str); 2] =
    [("/sys/fs/cgroup", "cpu.max", "2000 100000"), ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "2000")];

/// A control group limited to a fiftieth of one processor, and the group that the program enters: itself or one below.
/// Removed when dropped.
#[derive(Debug)]
pub struct CpuGroup {
    limited: PathBuf,
    own: PathBuf,
}

impl CpuGroup {
    /// Makes a group that the program enters. Returns `None` and prints the reason where this process cannot make one.
    pub fn new(name: &str) -> Option<Self> {
        Self::around(name, "")
    }

    /// Makes a group around one without a limit of its own, which the program enters.
    pub fn above(name: &str) -> Option<Self> {
        Self::around(name, "own")
    }

    fn around(name: &str, own: &str) -> Option<Self> {
        let name = format!("volferry-{name}-{}", std::process::id());
        let made = VERSIONS
            .map(|(mount, file, limit)| Self::limited(&Path::new(mount).join(&name), own, file, limit));
        let mut errors = Vec::new();
        for group in made {
            match group {
                Ok(group) => return Some(group),
                Err(error) => errors.push(error.to_string()),
            }
        }
        eprintln!("skipped: no control group with a CPU limit could be made: {}", errors.join("; "));
        None
    }

    fn limited(path: &Path, own: &str, file: &str, limit: &str) -> io::Result<Self> {
        fs::create_dir(path)?;
        let group = Self { limited: path.into(), own: path.join(own) };
        fs::create_dir_all(&group.own)?;
        fs::OpenOptions::new().write(true).open(path.join(file))?;
        fs::write(path.join(file), limit)?;
        Ok(group)
    }

    /// Writes a program into `dir` that enters the group, then becomes `volferry`.
    pub fn program(&self, dir: &Path) -> PathBuf {
        let path = dir.join("limited");
        let (procs, program) = (self.own.join("cgroup.procs"), program());
        let script =
            format!("#!/bin/sh\necho $$ > '{}' && exec '{}' \"$@\"\n", procs.display(), program.display());
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }
}

impl Drop for CpuGroup {
    fn drop(&mut self) {
        for group in [&self.own, &self.limited] {
            let _ = fs::remove_dir(group);
        }
    }
}
