//! Takes the content of new and changed files into the store, on several threads.

use std::{
    io,
    iter::Peekable,
    os::fd::{AsFd as _, OwnedFd},
    sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
};

use super::{
    find_unchanged::{Making, PlannedFolders, Slot, WantedFile},
    store_live_file::FileStorer,
    written_by_run::{PackedFile, WrittenFiles},
};
use crate::{
    entry::{Entry, FullMeta, Kind, Time},
    listing::EntryIndex,
    path::RelPath,
    report::Failures,
    root::Root,
    snapshot::store::ContentRef,
    sys::cores::on_cores,
    tree::{Tree, seek::seek},
};

/// A thread takes this many files of one directory at a time.
const FILES_PER_UNIT: usize = 64;

/// A tree to publish, with access to its files.
#[derive(Debug)]
pub(crate) struct ScannedTree<'a> {
    /// Its listings, scanned with stamps.
    pub tree: &'a Tree,
    /// The root directory's own metadata and attributes.
    pub root_meta: FullMeta,
    /// The root that its files are read from.
    pub root: &'a Root,
    /// Files that were changed since then, by the file system's clock, get no stamp.
    pub before: Time,
    /// When the scan began.
    pub began: Time,
    /// The files that a run has just written, whose contents need not be read.
    pub written: Option<&'a WrittenFiles>,
}

/// Some of a directory's wanted files.
struct Unit {
    /// The directory's index among those to write.
    making: usize,
    files: Vec<WantedFile>,
}

/// Takes the content of all wanted files into the store. Returns the number of bytes in new files of their own.
pub(crate) fn store_contents(
    planned: &mut PlannedFolders,
    source: &ScannedTree<'_>,
    storer: &FileStorer<'_>,
    failures: &Failures,
) -> u64 {
    let units = units(planned);
    let (added, grown) = (AtomicU64::new(0), AtomicI64::new(0));
    let storing = Storing { source, storer, failures, added: &added, grown: &grown };
    let stored = on_cores(units.len(), 1, |nth| {
        let Unit { making, files } = &units[nth];
        storing.unit(&planned.making[*making], files)
    });
    for (Unit { making, files }, stored) in units.iter().zip(stored) {
        let slots = &mut planned.making[*making].slots;
        files.iter().zip(stored).for_each(|(file, stored)| slots[file.slot as usize] = stored);
    }
    planned.grown = grown.into_inner();
    added.into_inner()
}

fn units(planned: &PlannedFolders) -> Vec<Unit> {
    let mut units = Vec::new();
    for (nth, making) in planned.making.iter().enumerate() {
        let wanted = making.slots.iter().filter_map(|slot| match slot {
            Slot::Wanted(file) => Some(*file),
            _ => None,
        });
        let wanted: Vec<WantedFile> = wanted.collect();
        let parts = wanted.chunks(FILES_PER_UNIT);
        units.extend(parts.map(|files| Unit { making: nth, files: files.to_vec() }));
    }
    units
}

/// What the threads share.
struct Storing<'a> {
    source: &'a ScannedTree<'a>,
    storer: &'a FileStorer<'a>,
    failures: &'a Failures,
    /// Bytes in new files of their own.
    added: &'a AtomicU64,
    /// Bytes by which files have grown since the scan.
    grown: &'a AtomicI64,
}

/// A directory, from its first use on.
type OpenedDir = Option<io::Result<OwnedFd>>;

impl Storing<'_> {
    /// Takes some files of a directory. Once the publication is broken, it takes no more.
    fn unit(&self, making: &Making, files: &[WantedFile]) -> Vec<Slot> {
        let listed = &self.source.tree.dirs[making.dir as usize];
        let Some(&WantedFile { index: first, .. }) = files.first() else { return Vec::new() };
        let mut entries = (first..).zip(EntryIndex::of(&listed.listing).from(first)).peekable();
        let first_name = entries.peek().map_or(&b""[..], |(_, entry)| entry.name);
        let mut packed = self.storer.packed(&making.path, first_name).peekable();
        let mut opened = None;
        let mut stored = Vec::with_capacity(files.len());
        for &WantedFile { index, old, .. } in files {
            let Some((_, entry)) = entries.find(|(at, _)| *at == index) else { break };
            if self.storer.broken.get().is_some() {
                break;
            }
            let file = match packed_as_listed(&mut packed, &entry) {
                Some(file) => self.storer.store_packed(&file, old).map(|content| {
                    Slot::Stored(content, listed.stamps.get(index as usize).copied().unwrap_or(0))
                }),
                None => self.read(making, &entry, old, &mut opened),
            };
            stored.push(file.unwrap_or_else(|error| self.failed(making, &entry, &error)));
        }
        stored
    }

    fn read(
        &self,
        making: &Making,
        entry: &Entry<'_>,
        old: Option<ContentRef>,
        opened: &mut OpenedDir,
    ) -> io::Result<Slot> {
        let dir = opened.get_or_insert_with(|| self.source.root.dir(&making.path));
        let dir = dir.as_ref().map_err(|error| io::Error::from(error.kind()))?;
        let stored = self.storer.store_file(dir.as_fd(), entry.name, old)?;
        self.added.fetch_add(stored.added, Relaxed);
        if let Kind::File { size } = entry.kind {
            self.grown.fetch_add(stored.len as i64 - size as i64, Relaxed);
        }
        if stored.kept_changing {
            self.failures.add_in_motion(&path_of(making, entry));
        }
        Ok(Slot::Read(Box::new(stored)))
    }

    fn failed(&self, making: &Making, entry: &Entry<'_>, error: &io::Error) -> Slot {
        if self.storer.broken.get().is_some() {
            return Slot::Failed;
        }
        if error.kind() == io::ErrorKind::NotFound {
            return Slot::Gone;
        }
        self.failures.add(&path_of(making, entry), "take into the snapshot", error);
        Slot::Failed
    }
}

/// Returns the path of an entry, for messages.
pub(crate) fn path_of(making: &Making, entry: &Entry<'_>) -> RelPath {
    making.path.join(entry.name).unwrap_or_else(|_| making.path.clone())
}

/// Returns the file that the run has packed under an entry's name, if the scan has listed it as the run left it.
fn packed_as_listed<'a>(
    packed: &mut Peekable<impl Iterator<Item = (&'a [u8], PackedFile)>>,
    entry: &Entry<'_>,
) -> Option<PackedFile> {
    let (_, file) = seek(packed, entry.name, |(name, _)| name)?;
    (file.entry.entry(entry.name) == *entry).then_some(file)
}
