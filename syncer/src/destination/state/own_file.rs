//! Opens the files that the engine keeps in `.volferry/`, to write to them. Another user who could write to the volume
//! may have put a link, a pipe or a further name of another file in the place of one: it is refused, or replaced.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, Stat},
    io::Errno,
    path::Arg,
};

/// No link is followed, and no pipe is waited for.
const NO_DETOUR: OFlags = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

/// Opens the file `name` in the engine's own folder `dir`, to change it. `access` may have `CREATE`.
///
/// # Errors
/// If it is no regular file, or has more names than this one.
pub(crate) fn open_own(dir: BorrowedFd<'_>, name: impl Arg, access: OFlags) -> io::Result<OwnedFd> {
    open_own_with_stat(dir, name, access).map(|(file, _)| file)
}

/// Opens a file as [`open_own`] does, and returns its status, too.
pub(crate) fn open_own_with_stat(
    dir: BorrowedFd<'_>,
    name: impl Arg,
    access: OFlags,
) -> io::Result<(OwnedFd, Stat)> {
    let file = match rustix::fs::openat(dir, name, access | NO_DETOUR, Mode::RUSR | Mode::WUSR) {
        Err(Errno::LOOP) => return Err(io::Error::other("it is a symbolic link")),
        // A pipe that nobody reads.
        Err(Errno::NXIO) => return Err(not_regular()),
        opened => opened?,
    };
    let stat = rustix::fs::fstat(&file)?;
    match stat.st_nlink {
        _ if !FileType::from_raw_mode(stat.st_mode).is_file() => Err(not_regular()),
        names @ 2.. => Err(io::Error::other(format!("it has {names} names (hard links)"))),
        _ => Ok((file, stat)),
    }
}

fn not_regular() -> io::Error {
    io::Error::other("it is not a regular file")
}

/// Makes the file `name` in the engine's own folder `dir`. Removes what has the name.
pub(crate) fn create_own(dir: BorrowedFd<'_>, name: impl Arg + Copy) -> io::Result<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | NO_DETOUR;
    let create = || rustix::fs::openat(dir, name, flags, Mode::RUSR | Mode::WUSR);
    match create() {
        Err(Errno::EXIST) => {
            rustix::fs::unlinkat(dir, name, AtFlags::empty())?;
            Ok(create()?)
        }
        created => Ok(created?),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::{self, File},
        os::{
            fd::AsFd as _,
            unix::fs::{FileTypeExt as _, symlink},
        },
    };

    use super::*;

    #[test]
    fn what_is_put_in_the_place_of_an_own_file_is_refused_or_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (fd, path) = (File::open(dir.path()).unwrap(), dir.path().join("own"));
        let other = dir.path().join("other");
        fs::write(&other, "another's").unwrap();
        let put: [(&str, &dyn Fn()); 3] = [
            ("it is a symbolic link", &|| symlink("other", &path).unwrap()),
            ("it is not a regular file", &|| {
                rustix::fs::mknodat(&fd, "own", FileType::Fifo, Mode::RWXU, 0).unwrap();
                assert!(fs::symlink_metadata(&path).unwrap().file_type().is_fifo());
            }),
            ("it has 2 names (hard links)", &|| fs::hard_link(&other, &path).unwrap()),
        ];
        for (refusal, put) in put {
            put();
            for access in [OFlags::WRONLY, OFlags::RDWR, OFlags::WRONLY | OFlags::CREATE, OFlags::RDONLY] {
                let error = open_own(fd.as_fd(), "own", access).unwrap_err();
                assert_eq!(error.to_string(), refusal, "{access:?}");
            }
            create_own(fd.as_fd(), "own").unwrap();
            assert!(fs::symlink_metadata(&path).unwrap().file_type().is_file(), "{refusal}");
            open_own(fd.as_fd(), "own", OFlags::RDWR).unwrap();
            fs::remove_file(&path).unwrap();
        }
        assert_eq!(fs::read(&other).unwrap(), b"another's");
    }
}
