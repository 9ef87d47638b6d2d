//! Finds out, before a move removes anything, whether the source is the destination, contains it or lies in it: the run
//! has written its stamp there, which is seen through any mount, by any file system and from any machine.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{AtFlags, Mode, OFlags, StatxFlags},
    io::Errno,
};

use crate::{
    destination::{Stamp, stamp_in},
    path::{OWN_DIR, RelPath},
    session_error::SessionError,
    source::paths_by_number::Paths,
    sys::{
        locate::each_upwards,
        root::{Root, each_name},
    },
    tree::{
        Tree,
        dir::{Dir, ROOT},
    },
};

/// Refuses a move if the folder at `root`, one above it or a listed one below it is the destination of the run with
/// this stamp.
///
/// # Errors
/// [`SessionError::SameTree`], also when the root has a `.volferry` that cannot be read.
pub(crate) fn refuse_destination(root: &Root, tree: &Tree, stamp: Stamp) -> Result<(), SessionError> {
    // Has a network file system ask its server, instead of remembering that there was no such folder.
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    let _ = rustix::fs::statx(root, "", flags, StatxFlags::CTIME);
    let own = stamp_of(root).and_then(|found| if found.is_none() { no_stamp(root) } else { Ok(found) });
    let own = own.map_err(|error| {
        SessionError::SameTree(format!(
            "nothing is removed at the source, because it has a .volferry by which it may be the destination, and that cannot be \
             read: {error}"
        ))
    })?;
    let is_it = |found: Option<Stamp>| found == Some(stamp);
    if is_it(own) {
        return Err(refused("is"));
    }
    let mut is_inside = false;
    each_upwards(root, |above, _| is_inside |= stamp_of(above).is_ok_and(is_it));
    if is_inside {
        return Err(refused("lies in"));
    }
    let mut paths = Paths::new(tree);
    // The run leaves alone what is mounted where it lists nothing.
    let is_left_out = |dir: &Dir| dir.leaves_out && dir.listing.is_empty();
    let mut below = (ROOT..).zip(&tree.dirs).skip(1).filter(|(_, dir)| !is_left_out(dir));
    if below.any(|(id, _)| root.dir(&paths.of(id)).is_ok_and(|dir| stamp_of(dir).is_ok_and(is_it))) {
        return Err(refused("contains"));
    }
    Ok(())
}

fn refused(how: &str) -> SessionError {
    SessionError::SameTree(format!(
        "nothing is removed at the source, because it {how} the destination, by another mount, file system or machine: choose \
         folders that do not contain one another"
    ))
}

/// Returns the stamp of the run that has a folder for its destination, or had last; `None` if none had.
fn stamp_of(dir: impl AsFd) -> io::Result<Option<Stamp>> {
    match own_dir(dir) {
        Ok(own) => stamp_in(own.as_fd()),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn own_dir(dir: impl AsFd) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, OWN_DIR, flags, Mode::empty())
}

/// Checks that a root without a stamp has no `.volferry` that this machine only remembers to be missing, as an overlay
/// does whose layer another process has changed.
fn no_stamp(root: &Root) -> io::Result<Option<Stamp>> {
    if !matches!(own_dir(root), Err(Errno::NOENT)) {
        return Ok(None);
    }
    each_name(root.read_dir(&RelPath::root())?, |name| {
        if name.to_bytes() == OWN_DIR { Err(Errno::STALE.into()) } else { Ok(()) }
    })?;
    Ok(None)
}
