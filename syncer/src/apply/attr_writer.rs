//! Extended attributes: finds out which kinds this process may set on the destination, and sets them.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd},
};

use rustix::{
    fs::{AtFlags, Mode, OFlags, XattrFlags},
    io::Errno,
    thread::CapabilitySet,
};

use super::capability::has_capability;
use crate::{
    attrs::{ACCESS_ACL, Attrs, Classes, DEFAULT_ACL},
    xattr::{list_held, named},
};

/// An access control list that grants the same as mode 0600.
const PLAIN_ACL: [u8; 28] = [
    2, 0, 0, 0, //
    0x01, 0, 6, 0, 0xff, 0xff, 0xff, 0xff, // the owner
    0x04, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, // the group
    0x20, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, // others
];

/// An empty capability set (revision 2 of `struct vfs_cap_data`).
const NO_CAPABILITIES: [u8; 20] = [0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Returns the kinds of attributes that this process can see on its files.
pub(crate) fn visible_attrs() -> Classes {
    match has_capability(CapabilitySet::SYS_ADMIN) {
        true => Classes::ALL,
        false => Classes::ALL.without(Classes::TRUSTED),
    }
}

/// Returns the kinds of `wanted` that can be set on the destination, by setting each on a new file `name` in `staging`.
/// The result depends on the process and on the file system.
pub(super) fn probe(staging: BorrowedFd<'_>, name: &str, wanted: Classes) -> Classes {
    if wanted.is_empty() {
        return wanted;
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::openat(staging, name, flags, Mode::RUSR | Mode::WUSR) else {
        return wanted;
    };
    let refused = |class| {
        let (attr, value): (&[u8], &[u8]) = match class {
            Classes::ACL => (ACCESS_ACL, &PLAIN_ACL),
            Classes::CAPABILITY => (b"security.capability", &NO_CAPABILITIES),
            Classes::TRUSTED => (b"trusted.volferry", b""),
            _ => (b"user.volferry", b""),
        };
        let tried = rustix::fs::fsetxattr(&file, attr, value, XattrFlags::empty());
        matches!(tried, Err(Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL))
    };
    let asked = Classes::EACH.into_iter().filter(|class| wanted.contains(*class));
    let settable = asked.fold(wanted, |left, class| if refused(class) { left.without(class) } else { left });
    let _ = rustix::fs::unlinkat(staging, name, AtFlags::empty());
    settable
}

/// Returns the reason why attributes of this kind are not kept, for a note in the report.
pub(super) fn not_kept(class: Classes) -> &'static str {
    match class {
        Classes::ACL => "access control lists: the destination does not take them from this process",
        Classes::CAPABILITY => "file capabilities: only a process with CAP_SETFCAP may give them",
        Classes::TRUSTED => "trusted.* attributes: only a process with CAP_SYS_ADMIN may set them",
        _ => "user.* attributes: the destination does not take them",
    }
}

/// Sets the attributes of a new file. With `inherits`, the file may have inherited an access control list from its
/// directory, which is removed.
pub(super) fn set_new(
    file: BorrowedFd<'_>,
    wanted: Attrs<'_>,
    classes: Classes,
    inherits: bool,
) -> io::Result<()> {
    if inherits && classes.contains(Classes::ACL) && !wanted.has(ACCESS_ACL) {
        gone_is_fine(ACCESS_ACL, rustix::fs::fremovexattr(file, ACCESS_ACL))?;
    }
    wanted.within(classes).try_for_each(|(name, value)| {
        rustix::fs::fsetxattr(file, name, value, XattrFlags::empty()).map_err(|error| named(name, error))
    })
}

/// Replaces the attributes of an entry that is held open with `wanted`. The entry may be a symbolic link.
pub(super) fn replace(entry: BorrowedFd<'_>, wanted: Attrs<'_>, classes: Classes) -> io::Result<()> {
    // A link in `/proc` leads to the held entry itself, even if that is a symbolic link.
    let path = format!("/proc/self/fd/{}", entry.as_raw_fd());
    let names = list_held(&path)?;
    let surplus = names.split(|&byte| byte == 0).filter(|name| {
        let class = Classes::of(name);
        class.is_some_and(|class| classes.contains(class)) && !wanted.has(name)
    });
    for name in surplus {
        gone_is_fine(name, rustix::fs::removexattr(&*path, name))?;
    }
    wanted.within(classes).try_for_each(|(name, value)| {
        rustix::fs::setxattr(&*path, name, value, XattrFlags::empty()).map_err(|error| named(name, error))
    })
}

/// Removes the default access control list of a directory, so that new entries in it inherit none.
pub(super) fn drop_default_acl(dir: BorrowedFd<'_>) {
    let _ = rustix::fs::fremovexattr(dir, DEFAULT_ACL);
}

fn gone_is_fine(name: &[u8], result: Result<(), Errno>) -> io::Result<()> {
    match result {
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        result => result.map_err(|error| named(name, error)),
    }
}
