//! File systems of several kinds, each made for one test.

use std::{fs::File, path::Path, process::Command};

use tempfile::TempDir;

use super::{disk::run, scratch};

/// The size of each; `mkfs.xfs` makes none smaller than 300 MB. The files are sparse.
const SIZE_BYTES: u64 = 512 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    Tmpfs,
    Ext4,
    Xfs,
    Btrfs,
    /// Takes names that differ only in case for the same; no kernel here has such a file system, but FUSE has.
    ExFat,
}

/// A mounted file system, unmounted and removed when dropped.
#[derive(Debug)]
pub struct Mounted {
    place: TempDir,
}

impl FileSystem {
    /// Those that containers keep their data on.
    pub const ALL: [Self; 4] = [Self::Tmpfs, Self::Ext4, Self::Xfs, Self::Btrfs];

    /// Makes and mounts a file system of this kind. Returns `None` and prints the reason where this process cannot.
    pub fn mount(self) -> Option<Mounted> {
        self.mount_with(&[])
    }

    /// Makes and mounts a file system in memory of this size, such as `8m`, as [`mount`](Self::mount) does.
    pub fn mount_of(self, size: &str) -> Option<Mounted> {
        self.mount_with(&["-o", &format!("size={size}")])
    }

    fn mount_with(self, options: &[&str]) -> Option<Mounted> {
        scratch::needs_root()?;
        self.try_mount(options).map_err(|error| eprintln!("skipped: no {self:?}: {error}")).ok()
    }

    fn try_mount(self, options: &[&str]) -> Result<Mounted, String> {
        let place = scratch::scratch();
        let (image, at) = (place.path().join("image"), scratch::dir(place.path(), "mounted"));
        let (kind, make): (&str, &[&str]) = match self {
            Self::Tmpfs => ("tmpfs", &[]),
            Self::Ext4 => ("ext4", &["mkfs.ext4", "-q"]),
            Self::Xfs => ("xfs", &["mkfs.xfs", "-q"]),
            Self::Btrfs => ("btrfs", &["mkfs.btrfs", "-q"]),
            Self::ExFat => ("exfat-fuse", &["mkfs.exfat"]),
        };
        if let [program, quietly @ ..] = make {
            File::create(&image).unwrap().set_len(SIZE_BYTES).unwrap();
            run(Command::new(program).args(quietly).arg(&image))?;
        }
        let from = if make.is_empty() { Path::new("tmpfs") } else { &image };
        let looped: &[&str] = if self == Self::ExFat { &["-o", "loop"] } else { &[] };
        run(Command::new("mount").args(["-t", kind]).args(options).args(looped).arg(from).arg(&at))?;
        Ok(Mounted { place })
    }
}

impl Mounted {
    /// Makes a folder in it, which has to be dropped before the file system.
    pub fn folder(&self) -> TempDir {
        TempDir::new_in(self.place.path().join("mounted")).unwrap()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Err(error) = run(Command::new("umount").arg(self.place.path().join("mounted"))) {
            eprintln!("{error}");
        }
    }
}
