//! Tries out the operations that a run needs at a destination, in a folder that is removed afterwards.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown},
    path::{Path, PathBuf},
    process,
    time::{Duration, SystemTime},
};

use rustix::{
    fs::{Timespec, Timestamps, UTIME_OMIT, XattrFlags, futimens, ioctl_ficlone, setxattr},
    io::Errno,
};

use super::finding::{Check, Finding, Severity};
use crate::refuse_own_folder;

/// The user that test files are given to.
const ANYBODY: u32 = 65_533;

/// An access control list with an entry for one user, in the kernel's form.
const ACL: &[u8] =
    b"\x02\0\0\0\x01\0\x06\0\xff\xff\xff\xff\x02\0\x04\0\xe1\x10\0\0\x04\0\x04\0\xff\xff\xff\xff\
    \x10\0\x04\0\xff\xff\xff\xff\x20\0\0\0\xff\xff\xff\xff";

/// A folder for trials. Dropping it removes it and restores the times of its parent.
struct TrialFolder {
    around: PathBuf,
    path: PathBuf,
    modified: Option<SystemTime>,
}

impl TrialFolder {
    fn new(around: &Path) -> io::Result<Self> {
        refuse_own_folder::check(around)?;
        let modified = fs::metadata(around)?.modified().ok();
        let path = around.join(format!(".volferry-doctor-{}", process::id()));
        fs::create_dir(&path)?;
        Ok(Self { around: around.into(), path, modified })
    }

    fn file(&self, name: &str) -> io::Result<File> {
        let path = self.path.join(name);
        fs::write(&path, b"x")?;
        File::options().read(true).write(true).open(path)
    }
}

impl Drop for TrialFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
        let folder = File::open(&self.around);
        if let (Ok(folder), Some(modified)) = (folder, self.modified) {
            let _ = folder.set_modified(modified);
        }
    }
}

/// Runs all trials in `folder`, which is the destination or the folder that it would be made in.
pub(super) fn all(folder: &Path) -> Vec<Finding> {
    let trial = match TrialFolder::new(folder) {
        Ok(trial) => trial,
        Err(error) => {
            let message = format!("nothing can be written to {}: {error}", folder.display());
            let hint = "give this user the right to write there, or mount the volume writable";
            return vec![Finding::new(Check::Access, Severity::Error, message, hint)];
        }
    };
    let probes = [names, xattrs, acls, hard_links, times, clock, permissions, ownership, reflinks];
    probes.iter().filter_map(|probe| probe(&trial).unwrap_or_else(|error| Some(unknown(&error)))).collect()
}

fn unknown(error: &io::Error) -> Finding {
    let message = format!("the destination could not be tried out: {error}");
    Finding::new(Check::Access, Severity::Error, message, "see that the volume works and has room")
}

fn warning(check: Check, message: &str, hint: &str) -> Finding {
    Finding::new(check, Severity::Warning, message.into(), hint)
}

fn names(trial: &TrialFolder) -> io::Result<Option<Finding>> {
    trial.file("name")?;
    let folds = trial.path.join("NAME").exists();
    let message =
        "the destination takes names that differ only in case for one another: a run leaves one of two out";
    Ok(folds.then(|| {
        warning(
            Check::CaseFolding,
            message,
            "choose a file system that tells cases apart, or exclude such names",
        )
    }))
}

fn set_xattr(trial: &TrialFolder, name: &str, value: &[u8]) -> io::Result<bool> {
    trial.file("attributes")?;
    match setxattr(trial.path.join("attributes"), name, value, XattrFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn xattrs(trial: &TrialFolder) -> io::Result<Option<Finding>> {
    let message = "the destination keeps no extended attributes";
    let found = || warning(Check::Xattrs, message, "--no-xattrs leaves them out on purpose");
    Ok((!set_xattr(trial, "user.volferry", b"1")?).then(found))
}

fn acls(trial: &TrialFolder) -> io::Result<Option<Finding>> {
    let message = "the destination keeps no access control lists";
    let found = || warning(Check::Acls, message, "mount it with `acl`, or leave them out with --no-acls");
    Ok((!set_xattr(trial, "system.posix_acl_access", ACL)?).then(found))
}

fn hard_links(trial: &TrialFolder) -> io::Result<Option<Finding>> {
    trial.file("first")?;
    let linked = fs::hard_link(trial.path.join("first"), trial.path.join("second"));
    let message = "the destination has no hard links";
    let found = |_| warning(Check::HardLinks, message, "--no-hard-links copies each name as a file");
    Ok(linked.err().map(found))
}

fn times(trial: &TrialFolder) -> io::Result<Option<Finding>> {
    let file = trial.file("time")?;
    let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
    let wanted =
        Timestamps { last_access: time(0, UTIME_OMIT), last_modification: time(1_000_000_000, 123_456_789) };
    futimens(&file, &wanted)?;
    let kept = file.metadata()?;
    let message = "the destination rounds modification times, so runs compare with what it keeps of them";
    let found = || {
        warning(Check::Times, message, "choose a file system with times in nanoseconds, or compare with -c")
    };
    Ok(((kept.mtime(), kept.mtime_nsec()) != (1_000_000_000, 123_456_789)).then(found))
}

fn clock(trial: &TrialFolder) -> io::Result<Option<Finding>> {
    const TOLERANCE: Duration = Duration::from_secs(2);
    let (here, there) = (SystemTime::now(), trial.file("clock")?.metadata()?.modified()?);
    let apart = there.duration_since(here).unwrap_or_else(|error| error.duration());
    let message =
        format!("the clocks of the destination and of this machine differ by {} s", apart.as_secs());
    let hint = "set both clocks by NTP: times of files decide what is copied";
    Ok((apart > TOLERANCE).then(|| Finding::new(Check::Clock, Severity::Warning, message, hint)))
}

fn permissions(trial: &TrialFolder) -> io::Result<Option<Finding>> {
    let file = trial.file("mode")?;
    let kept = file.set_permissions(fs::Permissions::from_mode(0o640)).and_then(|()| file.metadata());
    let is_kept = kept.is_ok_and(|kept| kept.mode() & 0o777 == 0o640);
    let message = "the destination does not keep permission bits";
    Ok((!is_kept)
        .then(|| warning(Check::Permissions, message, "--no-permissions leaves them out on purpose")))
}

fn ownership(trial: &TrialFolder) -> io::Result<Option<Finding>> {
    let file = trial.file("owner")?;
    let given = fchown(&file, Some(ANYBODY), Some(ANYBODY));
    let is_kept = given.is_ok() && file.metadata()?.uid() == ANYBODY;
    let is_root = rustix::process::geteuid().is_root();
    let (message, hint) = if is_root {
        (
            "root may not give files away at the destination, as on an NFS export with root_squash: owners are not kept",
            "export it with no_root_squash, or leave owners out with --ownership never",
        )
    } else {
        (
            "this user may not give files away: owners are not kept",
            "run as root, or leave owners out with --ownership never",
        )
    };
    Ok((!is_kept).then(|| warning(Check::Ownership, message, hint)))
}

fn reflinks(trial: &TrialFolder) -> io::Result<Option<Finding>> {
    let (from, to) = (trial.file("from")?, trial.file("to")?);
    let message = "files of the destination cannot share blocks: snapshots and changed parts of large files are written in full";
    let found = |_| {
        let hint = "XFS made with reflink=1 and btrfs share blocks";
        Finding::new(Check::Reflinks, Severity::Note, message.into(), hint)
    };
    Ok(ioctl_ficlone(&to, &from).err().map(found))
}
