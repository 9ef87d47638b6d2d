//! Checks whether two volumes have room for a bench.

use std::{fs, io, os::unix::fs::MetadataExt as _, path::Path};

use contract::{
    BenchTree,
    human::{bytes, count},
};

use super::bench_error::BenchError;

/// The largest overhead of a file beside its content, in bytes: a part of a block, and its inode.
const BYTES_PER_FILE: u64 = 8 << 10;

/// The room that a bench needs, in bytes, and in files and folders.
#[derive(Debug, Clone, Copy)]
struct Need {
    bytes: u64,
    files: u64,
}

/// Checks that the tree fits into the source, and into the destination with a second version of its largest file. If
/// both are on one file system, it needs room for both. An end of a bench between two machines checks its own volume.
pub(super) fn check(
    tree: &BenchTree,
    source: Option<&Path>,
    destination: Option<&Path>,
) -> Result<(), BenchError> {
    let files = tree.count().saturating_add(tree.folders());
    let once = Need { bytes: tree.bytes().saturating_add(files.saturating_mul(BYTES_PER_FILE)), files };
    let largest = tree.files.iter().map(|group| group.bytes).max().unwrap_or(0);
    let copy = Need { bytes: once.bytes.saturating_add(largest), files };
    if let (Some(source), Some(destination)) = (source, destination)
        && device(source)? == device(destination)?
    {
        let both = Need { bytes: once.bytes.saturating_add(copy.bytes), files: files.saturating_mul(2) };
        return check_volume(destination, both);
    }
    source.map_or(Ok(()), |source| check_volume(source, once))?;
    destination.map_or(Ok(()), |destination| check_volume(destination, copy))
}

fn device(path: &Path) -> Result<u64, BenchError> {
    let found = fs::metadata(path).map(|found| found.dev());
    found.map_err(|source| BenchError::Folder { path: path.into(), source })
}

fn check_volume(path: &Path, need: Need) -> Result<(), BenchError> {
    let failed =
        |error: rustix::io::Errno| BenchError::Folder { path: path.into(), source: io::Error::from(error) };
    let room = rustix::fs::statvfs(path).map_err(failed)?;
    let free = room.f_bavail.saturating_mul(room.f_frsize);
    let lacks = |needed: String, free: String| Err(BenchError::NoRoom { path: path.into(), needed, free });
    if need.bytes > free {
        return lacks(bytes(need.bytes), bytes(free));
    }
    if room.f_files > 0 && need.files > room.f_favail {
        return lacks(format!("{} files", count(need.files)), count(room.f_favail));
    }
    Ok(())
}
