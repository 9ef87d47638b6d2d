//! Extended attributes: finds out which kinds this process may set on the destination, and sets them.

use std::{
    io,
    os::fd::{AsRawFd as _, BorrowedFd},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use rustix::{fs::XattrFlags, io::Errno, thread::CapabilitySet};

use crate::{
    attrs::Attrs,
    destination::metadata::probe_file::ProbeFile,
    kept_xattrs::{ACCESS_ACL, Classes, DEFAULT_ACL, SELINUX_LABEL},
    sys::{
        process_capabilities::has_capability,
        read_xattrs::{list_held, named, within_rights},
    },
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

/// A label for files where no policy knows labels.
const ANY_LABEL: &[u8] = b"x\0";

/// Returns the kinds of attributes that this process can see on its files, and keeps.
pub(crate) fn visible_attrs() -> Classes {
    if has_capability(CapabilitySet::SYS_ADMIN) {
        Classes::ALL
    } else {
        within_rights(Classes::ALL.without(Classes::TRUSTED))
    }
}

/// The kinds of attributes of a destination's files.
pub(crate) struct ProbedAttrs {
    /// Those that were wanted and can be set.
    pub settable: Classes,
    /// Those that a policy gives to new files.
    pub by_policy: Classes,
}

/// Finds out which kinds of `wanted` can be set on the destination, by setting each on a new file there; without one,
/// all count as settable. The result depends on the process and on the file system.
pub(crate) fn probe(file: Option<&ProbeFile<'_>>, wanted: Classes) -> ProbedAttrs {
    let Some(file) = file.filter(|_| !wanted.is_empty()) else {
        return ProbedAttrs { settable: wanted, by_policy: Classes::NONE };
    };
    let mut buffer = [0; 256];
    let given = match rustix::fs::fgetxattr(file, SELINUX_LABEL, &mut buffer[..]) {
        Ok(len) if wanted.contains(Classes::LABEL) => Some(&buffer[..len]),
        _ => None,
    };
    let refused = |class| {
        let (attr, value): (&[u8], &[u8]) = match class {
            Classes::ACL => (ACCESS_ACL, &PLAIN_ACL),
            Classes::CAPABILITY => (b"security.capability", &NO_CAPABILITIES),
            Classes::TRUSTED => (b"trusted.volferry", b""),
            // A policy refuses labels that it does not know.
            Classes::LABEL => (SELINUX_LABEL, given.unwrap_or(ANY_LABEL)),
            _ => (b"user.volferry", b""),
        };
        let tried = rustix::fs::fsetxattr(file, attr, value, XattrFlags::empty());
        // What does not fit into an inode of ext4 takes a block, whose release may take milliseconds.
        if class == Classes::CAPABILITY && tried.is_ok() {
            let _ = rustix::fs::fremovexattr(file, attr);
        }
        matches!(tried, Err(Errno::PERM | Errno::ACCESS | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL))
    };
    let asked = Classes::EACH.into_iter().filter(|class| wanted.contains(*class));
    let settable = asked.fold(wanted, |left, class| if refused(class) { left.without(class) } else { left });
    ProbedAttrs { settable, by_policy: if given.is_some() { Classes::LABEL } else { Classes::NONE } }
}

/// Counts entries whose attributes are of kinds that cannot be set.
#[derive(Debug, Default)]
pub(crate) struct LostAttrs {
    classes: Classes,
    counts: [AtomicU64; Classes::EACH.len()],
}

impl LostAttrs {
    pub(crate) fn of(classes: Classes) -> Self {
        Self { classes, counts: Default::default() }
    }

    /// Returns the kinds that are lost.
    pub(crate) fn classes(&self) -> Classes {
        self.classes
    }

    pub(crate) fn count(&self, attrs: Attrs<'_>) {
        if self.classes.is_empty() || attrs.is_empty() {
            return;
        }
        let lost = attrs.classes().and(self.classes);
        for (count, class) in self.counts.iter().zip(Classes::EACH) {
            count.fetch_add(u64::from(lost.contains(class)), Relaxed);
        }
    }

    /// Returns the number of entries for each kind, and the reason why it is not kept.
    pub(crate) fn counted(&self) -> impl Iterator<Item = (u64, &'static str)> {
        self.counts.iter().zip(Classes::EACH).map(|(count, class)| (count.load(Relaxed), not_kept(class)))
    }
}

fn not_kept(class: Classes) -> &'static str {
    match class {
        Classes::ACL => "access control lists: the destination does not take them from this process",
        Classes::CAPABILITY => "file capabilities: only a process with CAP_SETFCAP may give them",
        Classes::TRUSTED => "trusted.* attributes: only a process with CAP_SYS_ADMIN may set them",
        Classes::LABEL => {
            "SELinux labels: the destination does not take them from this process; its policy gives others"
        }
        _ => "user.* attributes: the destination does not take them",
    }
}

/// Sets the attributes of a new file. With `inherits`, the file may have inherited an access control list from its
/// directory, which is removed.
pub(crate) fn set_new(
    file: BorrowedFd<'_>,
    wanted: Attrs<'_>,
    classes: Classes,
    inherits: bool,
) -> io::Result<()> {
    if inherits && classes.contains(Classes::ACL) && !wanted.has(ACCESS_ACL) {
        gone_is_fine(ACCESS_ACL, rustix::fs::fremovexattr(file, ACCESS_ACL))?;
    }
    set_each(wanted.within(classes), |name, value| {
        rustix::fs::fsetxattr(file, name, value, XattrFlags::empty())
    })
}

/// Replaces the attributes of an entry that is held open with `wanted`. The entry may be a symbolic link.
pub(crate) fn replace(entry: BorrowedFd<'_>, wanted: Attrs<'_>, classes: Classes) -> io::Result<()> {
    // A link in `/proc` leads to the held entry itself, even if that is a symbolic link.
    let path = format!("/proc/self/fd/{}", entry.as_raw_fd());
    let names = list_held(&path)?;
    let surplus = names.split(|&byte| byte == 0).filter(|name| {
        let class = Classes::of(name);
        class.is_some_and(|class| classes.contains(class)) && !wanted.has(name)
    });
    for name in surplus {
        or_policy(name, rustix::fs::removexattr(&*path, name))?;
    }
    set_each(wanted.within(classes), |name, value| {
        rustix::fs::setxattr(&*path, name, value, XattrFlags::empty())
    })
}

/// An attribute that the file system has no room for in an entry. All other metadata of the entry is set.
#[derive(Debug, thiserror::Error)]
#[error("attribute {0}: the file system of the destination has no room for it in this entry")]
struct TooLarge(String);

/// Returns whether an error says only that an attribute is too large for the file system.
pub(crate) fn is_too_large(error: &io::Error) -> bool {
    error.get_ref().and_then(|inner| inner.downcast_ref::<TooLarge>()).is_some()
}

/// Splits a result: what has to end the work on an entry, and that an attribute is too large, which waits until all
/// else is done.
pub(crate) fn put_off_too_large(result: io::Result<()>) -> io::Result<io::Result<()>> {
    match result {
        Err(error) if !is_too_large(&error) => Err(error),
        result => Ok(result),
    }
}

/// Sets attributes. One that is too large is reported once the others are set.
fn set_each<'a>(
    wanted: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    set: impl Fn(&[u8], &[u8]) -> Result<(), Errno>,
) -> io::Result<()> {
    let mut fits = Ok(());
    for (name, value) in wanted {
        match set(name, value) {
            // A full disk is said in the same way, and the next write tells it apart. Access control lists and
            // capabilities are rights, and no entry is made with other rights than its own.
            Err(Errno::NOSPC | Errno::TOOBIG | Errno::RANGE)
                if matches!(Classes::of(name), Some(Classes::USER | Classes::TRUSTED)) =>
            {
                fits = Err(io::Error::other(TooLarge(crate::path::display(name))));
            }
            result => or_policy(name, result)?,
        }
    }
    fits
}

/// Removes the default access control list of a directory, so that new entries in it inherit none.
pub(crate) fn drop_default_acl(dir: BorrowedFd<'_>) {
    let _ = rustix::fs::fremovexattr(dir, DEFAULT_ACL);
}

/// Leaves it to the policy of SELinux which labels it allows: one that it refuses is no failure of the entry.
fn or_policy(name: &[u8], result: Result<(), Errno>) -> io::Result<()> {
    match result {
        Err(Errno::PERM | Errno::ACCESS | Errno::INVAL | Errno::OPNOTSUPP) if name == SELINUX_LABEL => {
            tracing::debug!("the policy refuses a label of SELinux");
            Ok(())
        }
        Err(Errno::NODATA) => Ok(()),
        result => result.map_err(|error| named(name, error)),
    }
}

fn gone_is_fine(name: &[u8], result: Result<(), Errno>) -> io::Result<()> {
    match result {
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        result => result.map_err(|error| named(name, error)),
    }
}
