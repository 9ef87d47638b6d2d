//! Reads the attributes of a directory's entries, with one call for each entry, because Linux has no cheaper way.
//!
//! There are three ways to name an entry: relative to the thread's working directory (about one microsecond, as
//! `statx`), by a path from `/` (1.5 to 2), and below `/proc/self/fd` (4). Some containers forbid the first. A
//! directory in the second may be swapped for a link, so it only decides whether there is anything to read. The third
//! always leads to the entry.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsRawFd as _, BorrowedFd},
    sync::OnceLock,
};

use rustix::{
    io::Errno,
    thread::{CapabilitySet, UnshareFlags},
};

use crate::{
    attrs::{Attrs, AttrsBuf, MAX_ATTRS_BYTES, MAX_VALUE_BYTES, UNREADABLE, put_attr},
    kept_xattrs::Classes,
};

/// Room for nearly all lists of names, and nearly all values.
const FEW_BYTES: usize = 256;

/// The longest list of names (`XATTR_LIST_MAX`).
const MAX_NAMES_BYTES: usize = 64 << 10;

/// Paths are shorter than this (`PATH_MAX`).
const MAX_PATH_BYTES: usize = 4096;

/// Returns the kinds of `wanted` that runs of this process keep. Every process can read labels of SELinux, but few may
/// set them; the others neither read nor compare them.
pub(crate) fn within_rights(wanted: Classes) -> Classes {
    static IS_PRIVILEGED: OnceLock<bool> = OnceLock::new();
    let is_privileged = IS_PRIVILEGED.get_or_init(|| match rustix::thread::capabilities(None) {
        Ok(own) => own.effective.contains(CapabilitySet::SYS_ADMIN),
        Err(_) => rustix::process::geteuid().is_root(),
    });
    if *is_privileged { wanted } else { wanted.without(Classes::LABEL) }
}

/// Reads the attributes of the entries of one directory after another.
#[derive(Debug)]
pub(crate) struct AttrReader {
    classes: Classes,
    /// Whether unreadable values are left empty, and marked.
    marks_unreadable: bool,
    /// Whether this thread has a working directory of its own.
    own_cwd: bool,
    /// Whether the file system of the current directory has attributes.
    supported: bool,
    /// The directory's path up to its slash, or empty: used to find out whether an entry has attributes.
    hint: Vec<u8>,
    /// The directory's path up to its slash, or empty: used to read values.
    safe: Vec<u8>,
}

impl AttrReader {
    /// Reads attributes of these kinds. It may change the calling thread's working directory, and no other thread's.
    pub(crate) fn new(classes: Classes) -> Self {
        // The call is deprecated because of descriptors of other threads, which this flag does not concern.
        #[allow(deprecated)]
        let own_cwd = !classes.is_empty() && rustix::thread::unshare(UnshareFlags::FS).is_ok();
        Self { own_cwd, ..Self::staying(classes) }
    }

    /// Reads attributes of these kinds and leaves the working directory as it is, which costs more for each entry.
    pub(crate) fn staying(classes: Classes) -> Self {
        let (hint, safe) = (Vec::new(), Vec::new());
        let classes = within_rights(classes);
        Self { classes, marks_unreadable: false, own_cwd: false, supported: false, hint, safe }
    }

    /// Marks the `user.*` attributes of unreadable files as unknown. Otherwise such a file is an error.
    pub(crate) fn marking_unreadable(self, marks_unreadable: bool) -> Self {
        Self { marks_unreadable, ..self }
    }

    /// Moves to a directory.
    pub(crate) fn enter(&mut self, dir: BorrowedFd<'_>) {
        self.supported =
            !self.classes.is_empty() && rustix::fs::flistxattr_query(dir) != Err(Errno::OPNOTSUPP);
        if !self.supported {
            return;
        }
        self.hint.clear();
        self.safe.clear();
        if self.own_cwd && rustix::process::fchdir(dir).is_ok() {
            return;
        }
        let of_descriptor = format!("/proc/self/fd/{}", dir.as_raw_fd());
        self.safe.extend_from_slice(of_descriptor.as_bytes());
        self.safe.push(b'/');
        match rustix::fs::readlinkat(rustix::fs::CWD, &*of_descriptor, Vec::new()) {
            Ok(path) if path.count_bytes() + 257 < MAX_PATH_BYTES => {
                self.hint.extend_from_slice(path.to_bytes());
                self.hint.push(b'/');
            }
            _ => self.hint.extend_from_slice(&self.safe),
        }
    }

    /// Puts the attributes of an entry of the current directory into `out`, which is empty if it has none.
    ///
    /// # Errors
    /// If they cannot be read, or take more than [`MAX_ATTRS_BYTES`].
    pub(crate) fn read(&mut self, name: &CStr, out: &mut Vec<u8>) -> io::Result<()> {
        out.clear();
        if !self.supported {
            return Ok(());
        }
        let mut few = [0; FEW_BYTES];
        let listed = with_name(&mut self.hint, name, |path| rustix::fs::llistxattr(path, &mut few[..]));
        let (classes, marks) = (self.classes, self.marks_unreadable);
        match listed {
            Ok(0) => Ok(()),
            Ok(len) if !any_kept(&few[..len], classes) => Ok(()),
            Ok(len) => with_name(&mut self.safe, name, |path| {
                read_values(path, &few[..len], classes, marks, get_of_entry, out)
            }),
            // The names exceed the buffer, or the hint led nowhere.
            Err(_) => with_name(&mut self.safe, name, |path| match list(path) {
                Err(Errno::NOENT) => Ok(()),
                names => read_values(path, &names?, classes, marks, get_of_entry, out),
            }),
        }
    }
}

/// Lists the names of the attributes at `path` without following a link, each followed by a NUL. Empty if the file
/// system has none.
fn list(path: &[u8]) -> Result<Vec<u8>, Errno> {
    of_any_length(MAX_NAMES_BYTES, |buffer| match rustix::fs::llistxattr(path, buffer) {
        Err(Errno::OPNOTSUPP) => Ok(0),
        result => result,
    })
}

/// Returns the attributes of these kinds of an open file.
///
/// # Errors
/// If they cannot be read, or take more than [`MAX_ATTRS_BYTES`].
pub(crate) fn of_open(file: BorrowedFd<'_>, classes: Classes) -> io::Result<AttrsBuf> {
    let classes = within_rights(classes);
    if classes.is_empty() {
        return Ok(AttrsBuf::default());
    }
    let mut few = [0; FEW_BYTES];
    match rustix::fs::flistxattr(file, &mut few[..]) {
        Ok(0) | Err(Errno::OPNOTSUPP) => return Ok(AttrsBuf::default()),
        Ok(len) if !any_kept(&few[..len], classes) => return Ok(AttrsBuf::default()),
        _ => {}
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    // A link in `/proc` leads to the file itself.
    let get = |path: &[u8], attr: &[u8], buffer: &mut [u8]| rustix::fs::getxattr(path, attr, buffer);
    let mut out = Vec::new();
    read_values(path.as_bytes(), &list_held(&path)?, classes, false, get, &mut out)?;
    Ok(Attrs::trusted(&out).into())
}

/// Lists the names at `path`, a link of `/proc` to a descriptor.
pub(crate) fn list_held(path: &str) -> Result<Vec<u8>, Errno> {
    of_any_length(MAX_NAMES_BYTES, |buffer| match rustix::fs::listxattr(path, buffer) {
        Err(Errno::OPNOTSUPP) => Ok(0),
        result => result,
    })
}

fn any_kept(names: &[u8], classes: Classes) -> bool {
    names.split(|&byte| byte == 0).any(|name| classes.hold(name))
}

/// Reads the value of an attribute of an entry, without following a link.
fn get_of_entry(path: &[u8], attr: &[u8], buffer: &mut [u8]) -> Result<usize, Errno> {
    rustix::fs::lgetxattr(path, attr, buffer)
}

fn read_values(
    path: &[u8],
    names: &[u8],
    classes: Classes,
    marks_unreadable: bool,
    get: impl Fn(&[u8], &[u8], &mut [u8]) -> Result<usize, Errno>,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let mut is_unreadable = false;
    let mut names: Vec<&[u8]> = names.split(|&byte| byte == 0).filter(|name| classes.hold(name)).collect();
    names.sort_unstable();
    for attr in names {
        match of_any_length(MAX_VALUE_BYTES, |buffer| get(path, attr, buffer)) {
            Ok(value) => put_attr(out, attr, &value),
            // It was removed meanwhile.
            Err(Errno::NODATA | Errno::NOENT) => {}
            Err(Errno::ACCESS) if marks_unreadable && Classes::of(attr) == Some(Classes::USER) => {
                is_unreadable = true;
                put_attr(out, attr, b"");
            }
            Err(error) => return Err(named(attr, error)),
        }
        if out.len() > MAX_ATTRS_BYTES {
            return Err(io::Error::other("its extended attributes take more than 1 MiB together"));
        }
    }
    if is_unreadable {
        put_attr(out, UNREADABLE, b"");
    }
    Ok(())
}

/// Returns the result of `read`, with a small buffer first: the kernel's cost grows with the buffer, and few values are
/// long.
fn of_any_length(
    max: usize,
    mut read: impl FnMut(&mut [u8]) -> Result<usize, Errno>,
) -> Result<Vec<u8>, Errno> {
    let mut few = [0; FEW_BYTES];
    match read(&mut few) {
        Err(Errno::RANGE) => {}
        result => return Ok(few[..result?].into()),
    }
    let mut many = vec![0; max];
    let len = read(&mut many)?;
    many.truncate(len);
    Ok(many)
}

/// Makes an error that names the attribute.
pub(crate) fn named(attr: &[u8], error: Errno) -> io::Error {
    let error = io::Error::from(error);
    io::Error::new(error.kind(), format!("attribute {}: {error}", crate::path::display(attr)))
}

/// Calls `call` with the path of `name` in `dir`, which is a path up to its slash or nothing.
fn with_name<T>(dir: &mut Vec<u8>, name: &CStr, call: impl FnOnce(&[u8]) -> T) -> T {
    let len = dir.len();
    dir.extend_from_slice(name.to_bytes());
    let result = call(dir);
    dir.truncate(len);
    result
}

#[cfg(test)]
mod tests {
    use std::{fs::File, os::fd::AsFd as _, path::Path};

    use rustix::fs::XattrFlags;

    use super::*;

    fn found(reader: &mut AttrReader, name: &CStr) -> Vec<(Vec<u8>, usize)> {
        let mut out = Vec::new();
        reader.read(name, &mut out).unwrap();
        Attrs::decode(&out).unwrap().iter().map(|(name, value)| (name.to_vec(), value.len())).collect()
    }

    fn set(path: &Path, name: &str, value: &[u8]) {
        rustix::fs::lsetxattr(path, name, value, XattrFlags::empty()).unwrap();
    }

    /// However entries are named, the answers are the same.
    #[test]
    fn attributes_are_found_by_every_way() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["none", "one", "many"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        set(&dir.path().join("one"), "user.one", b"value");
        let many: Vec<_> = (0..40).map(|i| format!("user.attribute {i:02}")).collect();
        many.iter().for_each(|name| set(&dir.path().join("many"), name, name.as_bytes()));
        set(dir.path(), "user.own", b"");
        let fd = File::open(dir.path()).unwrap();
        let gone = || b"/nowhere/".to_vec();
        std::thread::scope(|scope| {
            for way in 0..3 {
                let fd = &fd;
                let many = &many;
                scope.spawn(move || {
                    let mut reader = AttrReader::new(Classes::ALL);
                    reader.own_cwd &= way == 0;
                    reader.enter(fd.as_fd());
                    if way == 2 {
                        reader.hint = gone();
                    }
                    assert_eq!(found(&mut reader, c"none"), []);
                    assert_eq!(found(&mut reader, c"one"), [(b"user.one".to_vec(), 5)]);
                    assert_eq!(found(&mut reader, c"gone"), []);
                    assert_eq!(found(&mut reader, c"."), [(b"user.own".to_vec(), 0)]);
                    let expected: Vec<_> =
                        many.iter().map(|name| (name.clone().into_bytes(), name.len())).collect();
                    assert_eq!(found(&mut reader, c"many"), expected);
                });
            }
        });
    }

    #[test]
    fn what_is_not_asked_for_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), "").unwrap();
        set(&dir.path().join("f"), "user.u", b"value");
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let fd = File::open(dir.path()).unwrap();
                let mut reader = AttrReader::new(Classes::ACL);
                reader.enter(fd.as_fd());
                assert_eq!(found(&mut reader, c"f"), []);
            });
        });
    }
}
