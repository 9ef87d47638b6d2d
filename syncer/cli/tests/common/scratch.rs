//! Where the tests put their trees.

use std::{
    env, fs,
    os::unix::fs::{PermissionsExt as _, lchown},
    path::{Path, PathBuf},
};

use tempfile::TempDir;

/// What a test's trees and their copies need at most.
const NEEDED_BYTES: u64 = 1 << 30;

/// The user and group that runs without privileges are made as: the one that images without root use.
pub const NOBODY: u32 = 65532;

/// A folder that is gone when the test ends. In memory where the machine has room there, because every run ends
/// with a `syncfs`, and on a disk that waits for all that other processes wrote.
pub fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    match rustix::fs::statvfs(memory) {
        Ok(room) if room.f_bavail * room.f_frsize >= NEEDED_BYTES => TempDir::new_in(memory).unwrap(),
        _ => on_disk(),
    }
}

/// A folder in the system's place for temporary files, which is most often on a disk.
pub fn on_disk() -> TempDir {
    TempDir::new_in(env::temp_dir()).unwrap()
}

/// Makes `parent/name`.
pub fn dir(parent: &Path, name: &str) -> PathBuf {
    let path = parent.join(name);
    fs::create_dir(&path).unwrap();
    path
}

/// Whether this process may do everything: give files away, make devices, become another user.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Gives `path` and all below it to [`NOBODY`], where this process may; else the files are those of an unprivileged
/// user already.
pub fn give_to_nobody(path: &Path) {
    if !is_root() {
        return;
    }
    lchown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    if path.is_dir() && !path.is_symlink() {
        fs::read_dir(path).unwrap().for_each(|entry| give_to_nobody(&entry.unwrap().path()));
    }
}

/// Lets every user in; a [`TempDir`] is its maker's own.
pub fn open_to_all(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}
