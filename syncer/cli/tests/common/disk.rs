//! File systems on files: small ones, which tests can fill and damage.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;

use super::scratch;

/// A mounted file system. Unmounted when dropped.
#[derive(Debug)]
pub struct Disk {
    dir: TempDir,
}

impl Disk {
    /// Makes a file system of `kind` (`ext4`, `xfs`) and `bytes`, mounted with `options`. Returns `None` and prints the
    /// reason where this process cannot mount one.
    pub fn new(kind: &str, bytes: u64, options: &str) -> Option<Self> {
        Self::made_with(kind, &[], bytes, options)
    }

    /// Makes a file system as [`Disk::new`] does, with these `flags` of `mkfs`.
    pub fn made_with(kind: &str, flags: &[&str], bytes: u64, options: &str) -> Option<Self> {
        scratch::needs_root()?;
        let dir = scratch::on_disk();
        let disk = Self { dir };
        fs::File::create(disk.image()).unwrap().set_len(bytes).unwrap();
        let image = disk.image();
        let made = run(Command::new(format!("/usr/sbin/mkfs.{kind}")).arg("-q").args(flags).arg(&image));
        made.unwrap_or_else(|error| panic!("mkfs.{kind}: {error}"));
        fs::create_dir(disk.path()).unwrap();
        match disk.mount(options) {
            Ok(()) => Some(disk),
            Err(error) => {
                eprintln!("skipped: no {kind} could be mounted: {error}");
                None
            }
        }
    }

    /// Returns the root of the file system.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("mounted")
    }

    /// Returns the file that holds the file system.
    pub fn image(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    /// Mounts it again with other options, so that none of it is cached. `between` runs while it is not mounted.
    pub fn remount(&self, options: &str, between: impl FnOnce(&Path)) {
        run(Command::new("umount").arg(self.path())).unwrap();
        between(&self.image());
        self.mount(options).unwrap();
    }

    /// Mounts it again after the test has unmounted it.
    pub fn mount_again(&self) {
        self.mount("").unwrap();
    }

    fn mount(&self, options: &str) -> Result<(), String> {
        let options = ["loop", options].join(if options.is_empty() { "" } else { "," });
        run(Command::new("mount").arg("-o").arg(options).arg(self.image()).arg(self.path()))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = run(Command::new("umount").arg("-l").arg(self.path()));
    }
}

/// A file system mounted at a folder. Unmounted when dropped.
#[derive(Debug)]
pub struct Mount(PathBuf);

impl Mount {
    /// Mounts a file system in memory of this size, such as `8m`.
    pub fn tmpfs(at: &Path, size: &str) -> Self {
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(at))
            .unwrap();
        Self(at.into())
    }

    /// Mounts a file system in memory that has no attributes.
    pub fn ramfs(at: &Path) -> Self {
        run(Command::new("mount").args(["-t", "ramfs", "ramfs"]).arg(at)).unwrap();
        Self(at.into())
    }

    /// Mounts the folder `from` at `at`, too.
    pub fn bind(from: &Path, at: &Path) -> Self {
        run(Command::new("mount").arg("--bind").args([from, at])).unwrap();
        Self(at.into())
    }

    /// Mounts at `at` an overlay whose changes go to the folder `upper`; `beside` gets its other folders.
    pub fn overlay(upper: &Path, at: &Path, beside: &Path) -> Self {
        let [lower, work] = ["lower", "work"].map(|name| scratch::dir(beside, name));
        let [lower, upper, work] = [&lower, upper, &work].map(|path| path.display());
        let options = format!("lowerdir={lower},upperdir={upper},workdir={work}");
        run(Command::new("mount").args(["-t", "overlay", "-o", &options, "overlay"]).arg(at)).unwrap();
        Self(at.into())
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = run(Command::new("umount").arg("-l").arg(&self.0));
    }
}

/// Runs a program; its standard error is the error.
pub fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| error.to_string())?;
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}
