//! Where an end's tree is on its machine, told to the other end in hashes, so that trees which contain one another are found although
//! no end sees both.
//!
//! A token is a keyed hash of the machine's boot id, a nonce of the run, and one name of a folder: its device and inode, or its device
//! and its path in that file system. The second finds folders that bind mounts show without those above them.

use std::{
    fs,
    io::Read as _,
    os::{
        fd::{AsFd, AsRawFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Path, PathBuf},
};

use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use serde::{Deserialize, Serialize};

use crate::{
    device::folder_of,
    root::{Place, Root, RootError},
};

/// More folders above one another than a path can have.
const MAX_FOLDERS: usize = 4096;

type Token = [u8; 16];

/// Where a tree is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Whereabouts {
    nonce: [u8; 16],
    /// The names of its root; none of one that is still to be made.
    root: Vec<Token>,
    /// The names of the folders above it.
    above: Vec<Token>,
}

impl Whereabouts {
    /// Of the tree at `place`, for a run that is known by a random `nonce`. Of a machine that does not tell its boot id, nothing.
    pub fn of(place: &Place, nonce: [u8; 16]) -> Self {
        let Ok(boot) = fs::read("/proc/sys/kernel/random/boot_id") else { return Self::default() };
        let key = blake3::derive_key("volferry 2026 whereabouts of a tree", &[&nonce[..], &boot].concat());
        let mut of = Self { nonce, ..Self::default() };
        let mut at = place.clone();
        let mut is_there = true;
        for _ in 0..MAX_FOLDERS {
            match Root::enter(&at) {
                Ok(root) => {
                    of.add(&key, &root, is_there);
                    break;
                }
                Err(RootError::Missing(_)) => (at, is_there) = (folder_of(&at), false),
                Err(_) => break,
            }
        }
        of
    }

    /// A nonce that no other run has.
    pub fn nonce() -> [u8; 16] {
        let mut nonce = [0; 16];
        // Without one the tokens still match; they are then the same in each run of a boot.
        let _ = fs::File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut nonce));
        nonce
    }

    /// The run's nonce.
    pub fn run(&self) -> [u8; 16] {
        self.nonce
    }

    /// Whether a tree that is `here` is the other, lies in it or contains it.
    pub fn overlaps(&self, here: &Self) -> bool {
        let has = |tree: &Self, token| tree.root.contains(token) || tree.above.contains(token);
        here.root.iter().any(|token| has(self, token)) || self.root.iter().any(|token| has(here, token))
    }

    fn add(&mut self, key: &[u8; 32], root: &Root, is_root: bool) {
        let mut folders = inodes(root);
        folders.truncate(MAX_FOLDERS);
        let paths = path_in_file_system(root).unwrap_or_default();
        for names in [folders, paths] {
            for (nth, name) in names.iter().enumerate() {
                let digest = blake3::keyed_hash(key, name);
                let token = std::array::from_fn(|at| digest.as_bytes()[at]);
                if nth == 0 && is_root { self.root.push(token) } else { self.above.push(token) }
            }
        }
    }
}

/// Device and inode of a folder and of those above it, up to the root of what this process sees.
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

/// The path of a folder from the root of its file system, wherever that is mounted, and those of the folders above it there.
fn path_in_file_system(root: &Root) -> Option<Vec<Vec<u8>>> {
    let mount = rustix::fs::statx(root, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?.stx_mnt_id;
    let seen = fs::read_link(format!("/proc/self/fd/{}", root.as_fd().as_raw_fd())).ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = mounts.lines().find(|line| line.split(' ').next() == Some(&mount.to_string()))?;
    let mut fields = line.split(' ').skip(2);
    let (device, top, point) = (fields.next()?, unescape(fields.next()?), unescape(fields.next()?));
    let path = top.join(seen.strip_prefix(point).ok()?);
    let name = |path: &Path| [b"path", device.as_bytes(), b":", path.as_os_str().as_bytes()].concat();
    Some(path.ancestors().take(MAX_FOLDERS).map(name).collect())
}

/// A path as the kernel writes it, with spaces and the like as three octal digits.
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
        let of = |name: &str| Whereabouts::of(&Place::from(&dir.path().join(name)), [7; 16]);
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
        let place = Place::from("/");
        let [one, other] =
            [Whereabouts::nonce(), Whereabouts::nonce()].map(|nonce| Whereabouts::of(&place, nonce));
        assert!(one.overlaps(&one) && !one.overlaps(&other));
    }

    #[test]
    fn the_kernels_escapes_are_read() {
        assert_eq!(unescape(r"/a\040b\134"), Path::new(r"/a b\"));
    }
}
