//! Finds the place of a tree on its machine, for [`Whereabouts`].

use std::{
    ffi::OsStr,
    fs,
    io::Read as _,
    os::{
        fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Path, PathBuf},
    sync::OnceLock,
};

use rustix::fs::{AtFlags, Mode, OFlags, Stat, StatxFlags};

use crate::{
    filter::Filter,
    path::{OWN_DIR, RelPath},
    sys::{
        mounts::{Mount, MountTable},
        root::{Root, RootError, TreeLocation},
    },
    whereabouts::Whereabouts,
};

/// The largest number of nested folders that is followed, more than a path can have.
const MAX_FOLDERS: usize = 4096;

/// A tree, as far as a run reaches into what is mounted below its root.
#[derive(Debug)]
pub(crate) struct Reach<'a> {
    pub place: &'a TreeLocation,
    /// The mounts that are left out, by their paths.
    pub filter: Filter,
    /// Whether mounts of other file systems are left out.
    pub one_file_system: bool,
}

impl<'a> Reach<'a> {
    /// Reaches into all mounts below `place`.
    pub(crate) fn all(place: &'a TreeLocation) -> Self {
        Self { place, filter: Filter::default(), one_file_system: false }
    }
}

/// Returns the place of a tree, and of what is mounted in it, as tokens made with a `nonce` of the run. Without a boot
/// id of the machine, returns none.
pub(crate) fn locate(tree: &Reach<'_>, nonce: [u8; 16]) -> Whereabouts {
    boot_id().map(|boot| locate_by(tree, nonce, boot)).unwrap_or_default()
}

fn locate_by(tree: &Reach<'_>, nonce: [u8; 16], boot: &[u8]) -> Whereabouts {
    let mut found = Whereabouts::new(nonce);
    let key = found.key(boot);
    let mut at = tree.place.clone();
    let mut is_there = true;
    for _ in 0..MAX_FOLDERS {
        match Root::enter(&at) {
            Ok(root) => {
                let mut folders = inodes(&root);
                folders.truncate(MAX_FOLDERS);
                found.add(&key, &folders, is_there);
                add_paths(&mut found, &key, &root, is_there, tree);
                break;
            }
            Err(RootError::Missing(_)) => (at, is_there) = (at.folder(), false),
            Err(_) => break,
        }
    }
    found
}

/// Returns the place of the file `name` in the folder at `place`, as [`locate`] does that of a tree.
pub(crate) fn locate_file(place: &TreeLocation, name: &[u8], nonce: [u8; 16]) -> Whereabouts {
    let mut found = locate(&Reach::all(place), nonce);
    if let Some(boot) = boot_id() {
        let key = found.key(boot);
        found.add_file(&key, &file_names(place, name));
    }
    found
}

/// Returns whether two files of this machine are one: by one name, by two spellings of it, or through a mount. Other
/// hard links of a file differ from it if their folders do.
pub(crate) fn is_same_file(one: (&TreeLocation, &[u8]), other: (&TreeLocation, &[u8])) -> bool {
    let [one, other] = [one, other].map(|(place, name)| file_names(place, name));
    one.iter().any(|name| other.contains(name))
}

/// Returns whether two trees of this machine contain one another, or show parts of one another through mounts.
pub(crate) fn overlap(one: &Reach<'_>, other: &Reach<'_>) -> bool {
    // Tokens that do not leave the process need neither a secret nor the machine's name.
    let [one, other] = [one, other].map(|tree| locate_by(tree, [0; 16], &[]));
    one.overlaps(&other)
}

/// Refuses a place in Volferry's own folder of a volume, by whatever mount or link it is seen: a command that writes
/// there could remove snapshots. A folder that is missing is judged by where it would be made.
///
/// # Errors
/// [`RootError::Own`].
pub fn refuse_own(place: &TreeLocation) -> Result<(), RootError> {
    let mut at = place.clone();
    for _ in 0..MAX_FOLDERS {
        match Root::enter(&at) {
            Ok(root) if is_own(&root) => return Err(RootError::Own(place.path())),
            Err(RootError::Missing(_)) if at.path().file_name() == Some(OsStr::from_bytes(OWN_DIR)) => {
                return Err(RootError::Own(place.path()));
            }
            Err(RootError::Missing(_)) => at = at.folder(),
            // Any other error is that of the operation that follows.
            Ok(_) | Err(_) => break,
        }
    }
    Ok(())
}

/// Returns whether a folder is Volferry's own or below it, as this process sees it or within its file system.
fn is_own(root: &Root) -> bool {
    let has_own = |path: &Path| path.iter().any(|name| name.as_bytes() == OWN_DIR);
    let mounts = MountTable::read().unwrap_or_default();
    let (Some(mount), Some(seen)) = (mount_of(root, &mounts), path_of(root)) else { return false };
    has_own(&seen) || has_own(&mount.top())
}

/// Adds the path of a folder within its file system, which does not depend on where it is mounted, and the paths of the
/// folders above it. If it `is_there`, also adds those of what is mounted below it, as far as the run reaches.
fn add_paths(found: &mut Whereabouts, key: &[u8; 32], root: &Root, is_there: bool, tree: &Reach<'_>) {
    let mounts = MountTable::read().unwrap_or_default();
    let (Some(own), Some(seen)) = (mount_of(root, &mounts), path_of(root)) else { return };
    if let Ok(below) = seen.strip_prefix(own.point()) {
        found.add(key, &names(own, below), is_there);
    }
    if !is_there {
        return;
    }
    let mut left = MAX_FOLDERS;
    for mount in mounts.iter() {
        let Some(path) = path_below(mount, &seen) else { continue };
        let is_other = tree.one_file_system && mount.device() != own.device();
        let mut names = names(mount, Path::new(""));
        names.truncate(left);
        if !is_other && !tree.filter.excludes_dir(&path) {
            left -= names.len();
            found.add(key, &names, true);
        }
    }
}

/// Returns the names of the folder `below` a mount within its file system, and of those above that.
fn names(mount: Mount<'_>, below: &Path) -> Vec<Vec<u8>> {
    // Unlike a join, this adds no slash for an empty path.
    let path: PathBuf = mount.top().components().chain(below.components()).collect();
    let name = |path: &Path| [b"path", mount.device(), b":", path.as_os_str().as_bytes()].concat();
    path.ancestors().take(MAX_FOLDERS).map(name).collect()
}

/// Returns the names of a file within its folder, by itself if no other entry leads to it, and by its path within its
/// file system; none of a file that does not exist.
fn file_names(place: &TreeLocation, name: &[u8]) -> Vec<Vec<u8>> {
    let open = |root: &Root| {
        let file =
            rustix::fs::openat(root, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
        let file = file.ok()?;
        Some((rustix::fs::fstat(root).ok()?, rustix::fs::fstat(&file).ok()?, file))
    };
    let Some((folder, stat, file)) = Root::enter(place).ok().and_then(|root| open(&root)) else {
        return Vec::new();
    };
    let inode = |stat: &Stat| [stat.st_dev.to_le_bytes(), stat.st_ino.to_le_bytes()].concat();
    let mut found = vec![[&b"file in"[..], &inode(&folder), &inode(&stat)].concat()];
    if stat.st_nlink == 1 {
        found.push([&b"file"[..], &inode(&stat)].concat());
    }
    let mounts = MountTable::read().unwrap_or_default();
    if let (Some(own), Some(seen)) = (mount_of(&file, &mounts), path_of(&file))
        && let Ok(below) = seen.strip_prefix(own.point())
    {
        found.extend(names(own, below).into_iter().next());
    }
    found
}

/// Returns a mount's path below the folder at `above`; `None` if it is not mounted below that.
fn path_below(mount: Mount<'_>, above: &Path) -> Option<RelPath> {
    let point = mount.point();
    // Both are as the kernel writes paths. Comparing bytes first is ten times faster than comparing components.
    let is_near = point.as_os_str().as_bytes().starts_with(above.as_os_str().as_bytes());
    let below = is_near.then(|| point.strip_prefix(above).ok())??;
    RelPath::parse(below.as_os_str().as_bytes()).ok().filter(|path| !path.is_root())
}

/// Returns the mount that a folder or file is seen through.
fn mount_of<'m>(open: impl AsFd, mounts: &'m MountTable) -> Option<Mount<'m>> {
    let id = rustix::fs::statx(open, "", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?.stx_mnt_id;
    mounts.iter().find(|mount| mount.id() == Some(id))
}

/// Returns the path of an open folder or file.
fn path_of(open: impl AsFd) -> Option<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", open.as_fd().as_raw_fd())).ok()
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
    let name = |stat: &Stat| [&b"inode"[..], &stat.st_dev.to_le_bytes(), &stat.st_ino.to_le_bytes()].concat();
    let mut names = Vec::new();
    each_upwards(root, |_, stat| names.push(name(stat)));
    names
}

/// Calls `look` with a folder and those above it, nearest first, up to the root that this process sees.
pub(crate) fn each_upwards(root: &Root, mut look: impl FnMut(BorrowedFd<'_>, &Stat)) {
    let mut last = None;
    let mut at: Option<OwnedFd> = None;
    for _ in 0..MAX_FOLDERS {
        let fd = at.as_ref().map_or(root.as_fd(), |at| at.as_fd());
        let Ok(stat) = rustix::fs::fstat(fd) else { return };
        let here = Some((stat.st_dev, stat.st_ino));
        if last == here {
            return;
        }
        last = here;
        look(fd, &stat);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(above) = rustix::fs::openat(fd, "..", flags, Mode::empty()) else { return };
        at = Some(above);
    }
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
        let of = |name: &str| locate(&Reach::all(&TreeLocation::from(&dir.path().join(name))), [7; 16]);
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
    fn a_file_is_itself_by_whatever_folder_and_another_name_of_it_is_not() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b"] {
            fs::create_dir(dir.path().join(name)).unwrap();
            fs::write(dir.path().join(name).join("file"), name).unwrap();
        }
        fs::hard_link(dir.path().join("a/file"), dir.path().join("b/name")).unwrap();
        std::os::unix::fs::symlink("a", dir.path().join("link")).unwrap();
        let place = |folder: &str| TreeLocation::from(&dir.path().join(folder));
        for (one, other, expected) in [
            (("a", "file"), ("a", "file"), true),
            (("a", "file"), ("link", "file"), true),
            (("a", "file"), ("b", "file"), false),
            (("a", "file"), ("b", "name"), false),
            (("a", "none"), ("a", "none"), false),
        ] {
            let [here, there] = [one, other].map(|(folder, name)| (place(folder), name.as_bytes()));
            assert_eq!(is_same_file((&here.0, here.1), (&there.0, there.1)), expected, "{one:?} {other:?}");
            let [here, there] = [here, there].map(|(place, name)| locate_file(&place, name, [7; 16]));
            assert_eq!(here.is_same_file(&there), expected, "{one:?} {other:?}");
        }
    }

    #[test]
    fn tokens_of_two_runs_have_nothing_in_common() {
        let place = TreeLocation::from("/");
        let [one, other] = [nonce(), nonce()].map(|nonce| locate(&Reach::all(&place), nonce));
        assert!(one.overlaps(&one) && !one.overlaps(&other));
    }
}
