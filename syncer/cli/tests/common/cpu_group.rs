//! A control group with a CPU limit, and the program run in it.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use super::process::program;

/// Where a version of control groups has the processors, which file has the limit, and a fiftieth of one processor in
/// its words.
const VERSIONS: [(&str, &str, &str); 2] =
    [("/sys/fs/cgroup", "cpu.max", "2000 100000"), ("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "2000")];

/// A new group that may use a fiftieth of one processor, and the one in it that the program enters. Removed when
/// dropped.
#[derive(Debug)]
pub struct CpuGroup {
    limited: PathBuf,
    own: PathBuf,
}

impl CpuGroup {
    /// A group that has the program itself. `None`, with a line that says why, where this process cannot make one.
    pub fn new(name: &str) -> Option<Self> {
        Self::around(name, "")
    }

    /// A group that has another without a limit, which has the program.
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

    /// Writes a program into `dir` that enters the group, and is `volferry` then.
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
