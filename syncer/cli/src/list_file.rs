//! Reads lists that the user wrote, which may come from standard input.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

/// Reads the file at `path`, or standard input if that is `-`. `None` if it has more than `max` bytes.
pub(super) fn read_at_most(path: &Path, max: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        io::stdin().lock().take(max + 1).read_to_end(&mut bytes)?
    } else {
        File::open(path)?.take(max + 1).read_to_end(&mut bytes)?
    };
    Ok((bytes.len() as u64 <= max).then_some(bytes))
}
