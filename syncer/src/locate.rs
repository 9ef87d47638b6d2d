//! Finds the place of a tree on its machine, for [`Whereabouts`].

use std::{
    cell::OnceCell,
    fs,
    io::{self, BufRead as _, Read as _},
    os::{
        fd::{AsFd, AsRawFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Path, PathBuf},
    sync::OnceLock,
};

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};

use crate::{
    device::folder_of,
    root::{Root, RootError, TreeLocation},
    whereabouts::Whereabouts,
};

/// The largest number of nested folders that is followed, more than a path can have.
const MAX_FOLDERS: usize = 4096;

/// The length of the buffer for the list of mounts. The list of most machines takes one or two reads of it.
const MOUNTS_BYTES: usize = 8 << 10;

/// Returns the place of the tree at `place`, as tokens made with a `nonce` of the run. Without a boot id of the
/// machine, returns none.
pub(crate) fn locate(place: &TreeLocation, nonce: [u8; 16]) -> Whereabouts {
    Locator::new(nonce).locate(place)
}

/// Returns whether two trees of this machine contain one another, by whatever mounts they are seen.
pub(crate) fn overlap(one: &TreeLocation, other: &TreeLocation) -> bool {
    let locator = Locator::new(nonce());
    locator.locate(one).overlaps(&locator.locate(other))
}

/// Locates trees with one nonce. Reads the list of mounts once, which costs more than all else here.
#[derive(Debug)]
struct Locator {
    nonce: [u8; 16],
    mounts: OnceCell<Vec<u8>>,
}

impl Locator {
    fn new(nonce: [u8; 16]) -> Self {
        Self { nonce, mounts: OnceCell::new() }
    }

    fn locate(&self, place: &TreeLocation) -> Whereabouts {
        let Some(boot) = boot_id() else { return Whereabouts::default() };
        let mut found = Whereabouts::new(self.nonce);
        let key = found.key(boot);
        let mut at = place.clone();
        let mut is_there = true;
        for _ in 0..MAX_FOLDERS {
            match Root::enter(&at) {
                Ok(root) => {
                    let mut folders = inodes(&root);
                    folders.truncate(MAX_FOLDERS);
                    found.add(&key, &folders, is_there);
                    found.add(&key, &self.path_in_file_system(&root).unwrap_or_default(), is_there);
                    break;
                }
                Err(RootError::Missing(_)) => (at, is_there) = (folder_of(&at), false),
                Err(_) => break,
            }
        }
        found
    }

    /// Returns the path of a folder within its file system, which does not depend on where it is mounted, and the paths
    /// of the folders above it.
    fn path_in_file_system(&self, root: &Root) -> Option<Vec<Vec<u8>>> {
        let mount = rustix::fs::statx(root, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?.stx_mnt_id;
        let seen = fs::read_link(format!("/proc/self/fd/{}", root.as_fd().as_raw_fd())).ok()?;
        let mount = format!("{mount} ");
        let mounts = self.mounts.get_or_init(|| mounts().unwrap_or_default());
        let line = mounts.lines().map_while(Result::ok).find(|line| line.starts_with(&mount))?;
        let mut fields = line.split(' ').skip(2);
        let (device, top, point) = (fields.next()?, unescape(fields.next()?), unescape(fields.next()?));
        let path = top.join(seen.strip_prefix(point).ok()?);
        let name = |path: &Path| [b"path", device.as_bytes(), b":", path.as_os_str().as_bytes()].concat();
        Some(path.ancestors().take(MAX_FOLDERS).map(name).collect())
    }
}

/// Reads the kernel's list of this process's mounts.
fn mounts() -> io::Result<Vec<u8>> {
    let mut file = fs::File::open("/proc/self/mountinfo")?;
    let mut text = Vec::with_capacity(MOUNTS_BYTES);
    file.read_to_end(&mut text)?;
    Ok(text)
}

/// Returns the kernel's id of this boot, which is read once.
fn boot_id() -> Option<&'static [u8]> {
    static BOOT: OnceLock<Option<Vec<u8>>> = OnceLock::new();
    BOOT.get_or_init(|| fs::read("/proc/sys/kernel/random/boot_id").ok()).as_deref()
}

/// Returns a random nonce, to make the tokens of each run different.
pub(crate) fn nonce() -> [u8; 16] {
    let mut nonce = [0; 16];
    // Without a random nonce the tokens still match; they are then equal in all runs until the next boot.
    let _ = fs::File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut nonce));
    nonce
}

/// Returns device and inode of a folder and of the folders above it, up to the root that this process sees.
fn inodes(root: &Root) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let mut last = None;
    let mut at: Option<OwnedFd> = None;
    while names.len() < MAX_FOLDERS {
        let fd = at.as_ref().map_or(root.as_fd(), |at| at.as_fd());
        let Ok(stat) = rustix::fs::fstat(fd) else { break };
        let here = (stat.st_dev, stat.st_ino);
        if last == Some(here) {
            break;
        }
        last = Some(here);
        names.push([&b"inode"[..], &here.0.to_le_bytes(), &here.1.to_le_bytes()].concat());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(above) = rustix::fs::openat(fd, "..", flags, Mode::empty()) else { break };
        at = Some(above);
    }
    names
}

/// Decodes a path as the kernel writes it, with spaces and similar bytes as three octal digits.
fn unescape(field: &str) -> PathBuf {
    let mut parts = field.split('\\');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.extend(digits);
        bytes.extend(part.get(3..).unwrap_or_default().bytes());
    }
    PathBuf::from(std::ffi::OsStr::from_bytes(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_overlaps_itself_what_is_in_it_and_what_it_is_in() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a/in", "b"] {
            fs::create_dir_all(dir.path().join(name)).unwrap();
        }
        let of = |name: &str| locate(&TreeLocation::from(&dir.path().join(name)), [7; 16]);
        for (one, other, expected) in [
            ("a", "a", true),
            ("a", "a/in", true),
            ("a", "a/in/new", true),
            ("a", "b", false),
            ("a/in", "b", false),
            ("a", "new", false),
            ("", "new", true),
        ] {
            assert_eq!(of(one).overlaps(&of(other)), expected, "{one} {other}");
            assert_eq!(of(other).overlaps(&of(one)), expected, "{other} {one}");
        }
    }

    #[test]
    fn tokens_of_two_runs_have_nothing_in_common() {
        let place = TreeLocation::from("/");
        let [one, other] = [nonce(), nonce()].map(|nonce| locate(&place, nonce));
        assert!(one.overlaps(&one) && !one.overlaps(&other));
    }

    #[test]
    fn the_kernels_escapes_are_read() {
        assert_eq!(unescape(r"/a\040b\134"), Path::new(r"/a b\"));
    }
}
