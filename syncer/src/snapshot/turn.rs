//! Checks of a store in turn: each reads the next part, and again what earlier ones found damaged and could not heal.

use std::{
    collections::HashSet,
    io::{self, Read as _},
    os::fd::BorrowedFd,
};

use rustix::fs::{Mode, OFlags};

use super::{
    scrub::StoreShare,
    snapshot_error::{SnapshotError, io_error},
    store::Store,
    store_files::{open_file, write_all},
};
use crate::hash::ContentId;

/// The file with the last part that was checked in turn.
const CHECKED: &str = "checked";
/// The file with the ids of damaged contents that have no good copy, a line each.
const DAMAGED: &str = "damaged";
/// The longest content of the first file, in bytes.
const MAX_CHECKED_BYTES: u64 = 64;
/// The most damaged contents that are remembered, and the bytes of a line.
const MAX_KNOWN: usize = 10_000;
const LINE_BYTES: usize = 65;

/// What one check reads of the contents of a store.
#[derive(Debug, Default)]
pub struct Turn {
    /// The part.
    pub part: StoreShare,
    known: HashSet<ContentId>,
}

impl From<StoreShare> for Turn {
    fn from(part: StoreShare) -> Self {
        Self { part, known: HashSet::new() }
    }
}

impl Turn {
    /// Returns the turn of the next part of `of`: the one after the last that [`Self::note`] wrote down. Damage that is
    /// known from other parts is read again.
    ///
    /// # Errors
    /// If the files with these cannot be read. A damaged one counts as empty.
    pub fn next(store: &Store, of: u64) -> Result<Self, SnapshotError> {
        let read =
            |name, most| read(store.dir(), name, most).map_err(io_error("read", store.path().join(name)));
        let last = read(CHECKED, MAX_CHECKED_BYTES)?;
        let last = last.strip_suffix('\n').and_then(StoreShare::parse);
        let before = last.filter(|last| last.of == of && last.nth < of);
        let part = StoreShare { nth: before.map_or(1, |last| last.nth + 1), of };
        let known = read(DAMAGED, (MAX_KNOWN * LINE_BYTES) as u64)?;
        Ok(Self { part, known: known.lines().filter_map(content_id).collect() })
    }

    /// Whether this check reads the content.
    pub(super) fn has(&self, id: &ContentId) -> bool {
        self.part.has(id) || self.known.contains(id)
    }

    /// Writes down that this part was checked, and which objects are still damaged (`None` for a directory), so that
    /// the next check in turn goes on there.
    ///
    /// # Errors
    /// If the store cannot be written to.
    pub fn note(
        &self,
        store: &Store,
        unhealed: impl Iterator<Item = Option<ContentId>>,
    ) -> Result<(), SnapshotError> {
        let mut damaged = HashSet::new();
        for object in unhealed {
            match object {
                Some(content) => drop(damaged.insert(content)),
                // Contents of a directory that cannot be read were not reached.
                None => damaged.extend(&self.known),
            }
        }
        let lines: String = damaged.iter().take(MAX_KNOWN).map(|id| format!("{id}\n")).collect();
        for (name, text) in [(DAMAGED, lines), (CHECKED, format!("{}\n", self.part))] {
            replace(store.dir(), name, &text).map_err(io_error("write", store.path().join(name)))?;
        }
        Ok(())
    }
}

fn content_id(line: &str) -> Option<ContentId> {
    blake3::Hash::from_hex(line).ok().map(|hash| ContentId(*hash.as_bytes()))
}

fn read(dir: BorrowedFd<'_>, name: &str, most: u64) -> io::Result<String> {
    let file = match open_file(dir, name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        result => result?,
    };
    let mut text = Vec::new();
    std::fs::File::from(file).take(most).read_to_end(&mut text)?;
    Ok(String::from_utf8(text).unwrap_or_default())
}

fn replace(dir: BorrowedFd<'_>, name: &str, text: &str) -> io::Result<()> {
    let new = format!("{name}.new");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(dir, &new, flags, Mode::RUSR | Mode::WUSR)?;
    write_all(&file, text.as_bytes())?;
    rustix::fs::fsync(&file)?;
    Ok(rustix::fs::renameat(dir, &new, dir, name)?)
}
