//! Decides whether a destination counts as known, so that its first run with `--delete` needs no `--adopt`: a run has
//! begun to write to it, or it has snapshots.

use std::io;

use rustix::fs::{AtFlags, OFlags};

use crate::{
    destination::state::volume_id::VOLUME,
    path::OWN_DIR,
    sys::root::{Root, open_child},
};

/// Returns whether a run has begun to write to the folder at `root` before, or it has snapshots.
pub(crate) fn is_adopted(root: &Root) -> bool {
    inspect(root).unwrap_or(true)
}

fn inspect(root: &Root) -> io::Result<bool> {
    let dir = match open_child(root, OWN_DIR, OFlags::PATH) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        dir => dir?,
    };
    let has = |name: &[u8]| rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW).is_ok();
    Ok(has(VOLUME) || has(b"snapshots"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_destination_is_known_by_an_id_or_by_snapshots() {
        let dir = tempfile::tempdir().unwrap();
        let (root, own) = (Root::open(dir.path()).unwrap(), dir.path().join(".volferry"));
        assert!(!inspect(&root).unwrap());
        fs::create_dir(&own).unwrap();
        assert!(!inspect(&root).unwrap());
        for name in ["volume", "snapshots"] {
            fs::create_dir(own.join(name)).unwrap();
            assert!(inspect(&root).unwrap(), "{name}");
            fs::remove_dir(own.join(name)).unwrap();
        }
    }
}
