//! Finds what uses the image of a disk, because a write would damage what reads from it: loop devices, mounts and
//! processes, as far as this process sees them. Of a device, the kernel itself tells mounts and what is stacked on it.

use std::{
    ffi::OsStr,
    fs, io,
    os::{fd::AsFd, unix::ffi::OsStrExt as _},
    path::{Path, PathBuf},
};

use rustix::fs::{AtFlags, CWD, FileType, OFlags, Statx, StatxFlags, statx};

use crate::sys::{mounts::MountTable, stat::device_of};

/// What the kernel adds to the path of a file that has lost its name.
const DELETED: &[u8] = b" (deleted)";

/// Returns a description of the first user of the image that is open as `image`; `None` if none is seen.
pub(crate) fn user_of(image: impl AsFd) -> Option<String> {
    let identity = |found: Statx| (device_of(&found), found.stx_ino);
    let image = identity(statx(image, "", AtFlags::EMPTY_PATH, StatxFlags::INO).ok()?);
    // Other processes may have files of a server that does not answer.
    let look = |path: &Path| statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::INO).map(identity);
    let is_it = |path: &Path| look(path) == Ok(image);
    loop_device(is_it).or_else(|| mount(is_it)).or_else(|| process(|file| is_it(file)))
}

/// Returns a description of the first process that has the open block device open for writing; `None` if none is seen.
/// Those that only read are no users: probes of a system, such as udev, open each device that changes.
pub(crate) fn writer_of(device: impl AsFd) -> Option<String> {
    let number = |found: Statx| (found.stx_rdev_major, found.stx_rdev_minor);
    let device = number(statx(device, "", AtFlags::EMPTY_PATH, StatxFlags::TYPE).ok()?);
    let is_it = |file: &Path| {
        let found = statx(CWD, file, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE);
        let is_block =
            |found: &Statx| FileType::from_raw_mode(found.stx_mode.into()) == FileType::BlockDevice;
        found.is_ok_and(|found| is_block(&found) && number(found) == device) && is_for_writing(file)
    };
    process(is_it)
}

/// Returns whether a process has a file open for writing, which `fdinfo` beside its `fd` has as octal flags.
fn is_for_writing(file: &Path) -> bool {
    let info = || -> Option<u32> {
        let (number, process) = (file.file_name()?, file.parent()?.parent()?);
        let text = fs::read_to_string(process.join("fdinfo").join(number)).ok()?;
        let flags = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
        u32::from_str_radix(flags.trim(), 8).ok()
    };
    info().is_some_and(|flags| flags & (OFlags::WRONLY | OFlags::RDWR).bits() != 0)
}

fn loop_device(is_it: impl Fn(&Path) -> bool) -> Option<String> {
    names_in(Path::new("/sys/block")).find_map(|device| {
        let backing = fs::read(device.join("loop/backing_file")).ok()?;
        let path: &[u8] = backing.strip_suffix(b"\n").unwrap_or(&backing);
        let path = path.strip_suffix(DELETED).unwrap_or(path);
        let name = device.file_name()?.to_string_lossy().into_owned();
        is_it(Path::new(OsStr::from_bytes(path))).then(|| format!("the loop device /dev/{name}"))
    })
}

/// Some file systems are mounted from a file without a loop device.
fn mount(is_it: impl Fn(&Path) -> bool) -> Option<String> {
    let mounts = MountTable::read().ok()?;
    let mount = mounts.iter().find(|mount| mount.source().is_absolute() && is_it(&mount.source()))?;
    Some(format!("the mount at {}", mount.point().display()))
}

fn process(is_it: impl Fn(&Path) -> bool) -> Option<String> {
    let own = rustix::process::getpid().as_raw_nonzero().to_string();
    names_in(Path::new("/proc")).find_map(|process| {
        let id = process.file_name()?.to_str()?.to_owned();
        let is_other = id.bytes().all(|byte| byte.is_ascii_digit()) && id != own;
        let files = process.join("fd");
        names_in(&files).filter(|_| is_other).find(|file| is_it(file))?;
        let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
        Some(format!("process {id} ({})", name.trim_end()))
    })
}

fn names_in(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry: io::Result<fs::DirEntry>| Some(entry.ok()?.path()))
}
