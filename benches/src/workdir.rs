//! Creates the place for the trees: a folder that is removed with the bench however it ends, or a separate file system
//! in such a folder.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::Write as _,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use testkit::process::run;

/// The magic number of tmpfs in `linux/magic.h`.
const TMPFS_MAGIC: i64 = 0x0102_1994;

const PREFIX: &str = "volferry-bench-";
const LOCK: &str = "lock";
/// Set for the process that runs in its own mount namespace.
const NAMESPACE: &str = "VOLFERRY_BENCH_NAMESPACE";

/// The file system for the trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FileSystem {
    /// Whatever `--dir` is on
    Dir,
    /// A new XFS with reflink in a file in `--dir`, mounted through a loop device
    Xfs,
    /// A new btrfs, likewise
    Btrfs,
    /// A new ext4, likewise
    Ext4,
    /// A new tmpfs, with as many inodes as memory has room for
    Tmpfs,
}

impl FileSystem {
    /// Returns whether files can share blocks on it; `Dir` is not examined, and counts as unable.
    pub fn can_clone(self) -> bool {
        matches!(self, Self::Xfs | Self::Btrfs)
    }

    /// Returns the command that creates the file system. None of them discards free blocks of the image, which has all
    /// its memory from the start. Trees of small files need more inodes than ext4 makes by itself.
    fn make_command(self) -> Option<&'static [&'static str]> {
        match self {
            Self::Dir | Self::Tmpfs => None,
            Self::Xfs => Some(&["mkfs.xfs", "-q", "-f", "-K", "-m", "reflink=1"]),
            Self::Btrfs => Some(&["mkfs.btrfs", "-q", "-f", "-K"]),
            Self::Ext4 => Some(&["mkfs.ext4", "-q", "-F", "-i", "4096", "-E", "nodiscard"]),
        }
    }
}

/// Continues in a separate mount namespace if `file_system` has to be mounted: the kernel then unmounts it, and frees
/// the loop device and the file's space, when the last process of the bench is gone, killed or not. Otherwise returns
/// at once.
pub fn enter_namespace(file_system: FileSystem) -> anyhow::Result<()> {
    if file_system == FileSystem::Dir || std::env::var_os(NAMESPACE).is_some() {
        return Ok(());
    }
    let error = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "--"])
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(NAMESPACE, "1")
        .exec();
    Err(error).context("starting unshare (util-linux)")
}

/// A folder for one bench, removed with this value. Remains of an earlier bench that was killed are removed first.
#[derive(Debug)]
pub struct WorkDir {
    mounted: Option<PathBuf>,
    trees: PathBuf,
    dir: tempfile::TempDir,
    // Locked while the folder is in use; the kernel releases it if the bench dies.
    _lock: File,
}

impl WorkDir {
    /// Creates the folder in `parent`, with a file system of `bytes` bytes in it if one is requested.
    pub fn make(parent: &Path, file_system: FileSystem, bytes: u64) -> anyhow::Result<Self> {
        remove_abandoned(parent).with_context(|| format!("cleaning {}", parent.display()))?;
        let dir = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        let lock = File::create(dir.path().join(LOCK))?;
        lock.try_lock().context("locking the new folder")?;
        let trees = dir.path().join("trees");
        fs::create_dir(&trees)?;
        let mut work = Self { mounted: None, trees, dir, _lock: lock };
        if file_system != FileSystem::Dir {
            work.mount(file_system, bytes).with_context(|| format!("mounting {file_system:?}"))?;
        }
        Ok(work)
    }

    /// Returns the folder that holds the trees.
    pub fn trees(&self) -> &Path {
        &self.trees
    }

    /// Gives every tool the same start before it handles `bytes` of data: writes dirty data, so that no tool's clock
    /// runs while another's data is written, and warms the memory.
    pub fn settle(&self, bytes: u64) -> anyhow::Result<()> {
        self.sync()?;
        self.warm(bytes).context("warming the memory")
    }

    /// Makes all written data durable.
    pub fn sync(&self) -> anyhow::Result<()> {
        Ok(rustix::fs::syncfs(File::open(&self.trees)?)?)
    }

    /// Allocates and frees memory like the trees' file system: some allocate single pages, others large pieces. A
    /// hypervisor may reclaim free memory, and the next user then waits for it: on one such machine, the same update of
    /// 1 GiB took 0.7 s or 3.3 s, and 256 MiB to XFS 0.25 or 0.95 s.
    fn warm(&self, bytes: u64) -> anyhow::Result<()> {
        if !self.is_in_memory()? {
            return Ok(());
        }
        let path = self.trees.join("warm");
        let file = File::create_new(&path)?;
        fs::remove_file(path)?;
        fill(&file, bytes)?;
        file.sync_all()?;
        drop(file);
        self.sync()
    }

    fn is_in_memory(&self) -> anyhow::Result<bool> {
        Ok(rustix::fs::statfs(self.dir.path())?.f_type == TMPFS_MAGIC)
    }

    fn mount(&mut self, file_system: FileSystem, bytes: u64) -> anyhow::Result<()> {
        ensure!(std::env::var_os(NAMESPACE).is_some(), "only in a mount namespace of the bench's own");
        match file_system.make_command() {
            Some(make) => {
                // Of these, only btrfs discards free blocks by default.
                let options = if file_system == FileSystem::Btrfs { "loop,nodiscard" } else { "loop" };
                self.mount_image(make, options, bytes)?;
            }
            None => {
                let args = ["-t", "tmpfs", "-o", "nr_inodes=0,size=100%", "tmpfs"];
                run(Command::new("mount").args(args).arg(&self.trees))?;
            }
        }
        self.mounted = Some(self.trees.clone());
        Ok(())
    }

    /// Mounts an image, and unlinks it, so that only the mount keeps it. An image in memory is filled at the start;
    /// otherwise, tools that make their copies durable would allocate that memory while they are measured.
    fn mount_image(&self, make: &[&str], options: &str, bytes: u64) -> anyhow::Result<()> {
        let image = self.dir.path().join("image");
        let file = File::create_new(&image)?;
        file.set_len(bytes)?;
        if self.is_in_memory()? {
            fill(&file, bytes).context("getting memory for an image; --dir may name a folder on a disk")?;
        }
        run(Command::new(make[0]).args(&make[1..]).arg(&image))?;
        run(Command::new("mount").args(["-o", options]).arg(&image).arg(&self.trees))?;
        Ok(fs::remove_file(image)?)
    }
}

impl Drop for WorkDir {
    fn drop(&mut self) {
        if let Some(point) = &self.mounted
            && let Err(error) = run(Command::new("umount").arg(point))
        {
            eprintln!("unmounting {}: {error:#}", point.display());
        }
    }
}

/// Writes `bytes` bytes that are not zero.
fn fill(mut file: &File, bytes: u64) -> std::io::Result<()> {
    let block = vec![1; 1 << 20];
    (0..bytes.div_ceil(1 << 20)).try_for_each(|_| file.write_all(&block))
}

/// Removes folders of benches that no longer run: those whose lock is not held.
fn remove_abandoned(parent: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(parent)? {
        let path = entry?.path();
        let ours = path.file_name().map(OsStr::to_string_lossy).is_some_and(|name| name.starts_with(PREFIX));
        if ours && File::open(path.join(LOCK)).is_ok_and(|lock| lock.try_lock().is_ok()) {
            fs::remove_dir_all(path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_goes_with_its_owner() {
        let parent = tempfile::tempdir().unwrap();
        let work = WorkDir::make(parent.path(), FileSystem::Dir, 0).unwrap();
        fs::write(work.trees().join("file"), "x").unwrap();
        drop(work);
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_a_killed_bench_left_is_removed_and_what_a_running_one_uses_is_not() {
        let parent = tempfile::tempdir().unwrap();
        let running = WorkDir::make(parent.path(), FileSystem::Dir, 0).unwrap();
        let left = parent.path().join("volferry-bench-left");
        fs::create_dir(&left).unwrap();
        fs::write(left.join(LOCK), "").unwrap();
        let other = parent.path().join("something-else");
        fs::create_dir(&other).unwrap();
        let _next = WorkDir::make(parent.path(), FileSystem::Dir, 0).unwrap();
        assert!(!left.exists());
        assert!(other.exists() && running.trees().exists());
    }
}
