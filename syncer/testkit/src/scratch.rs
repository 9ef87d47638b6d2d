//! The folders in which the tests make their trees.

use std::{
    env, fs,
    os::unix::fs::{PermissionsExt as _, lchown},
    path::{Path, PathBuf},
};

use tempfile::TempDir;

/// The space that a test's trees and their copies need at most.
const NEEDED_BYTES: u64 = 1 << 30;

/// The user and group of unprivileged runs: the same as in images without root.
pub const NOBODY: u32 = 65532;

/// Makes a folder that is removed when dropped. It is in memory where there is space, because every run ends with a
/// `syncfs`, which on a disk waits for the writes of all other processes.
pub fn scratch() -> TempDir {
    let memory = Path::new("/dev/shm");
    match rustix::fs::statvfs(memory) {
        Ok(room) if room.f_bavail * room.f_frsize >= NEEDED_BYTES => TempDir::new_in(memory).unwrap(),
        _ => on_disk(),
    }
}

/// Makes a folder in the system's folder for temporary files, which is most often on a disk.
pub fn on_disk() -> TempDir {
    TempDir::new_in(env::temp_dir()).unwrap()
}

/// Makes `parent/name`.
pub fn dir(parent: &Path, name: &str) -> PathBuf {
    let path = parent.join(name);
    fs::create_dir(&path).unwrap();
    path
}

/// Returns the sorted names in a folder.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Returns whether this process is root, and so may change owners, make devices and become another user.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Lets a test return at once where this process is not root, and prints that it was skipped.
#[must_use]
pub fn needs_root() -> Option<()> {
    is_root().then_some(()).or_else(|| {
        eprintln!("skipped: only root can do this");
        None
    })
}

/// Gives `path` and everything below it to [`NOBODY`] if this process is root; otherwise the files belong to an
/// unprivileged user already.
pub fn give_to_nobody(path: &Path) {
    if !is_root() {
        return;
    }
    lchown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    if path.is_dir() && !path.is_symlink() {
        fs::read_dir(path).unwrap().for_each(|entry| give_to_nobody(&entry.unwrap().path()));
    }
}

/// Lets every user in; only its maker may enter a new [`TempDir`].
pub fn open_to_all(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}
