//! Takes the content of new and changed files into the store, on several threads.

use std::{
    io,
    iter::Peekable,
    sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
};

use super::{
    find_listed_file::{EarlierReads, ListedFiles, LocatedFile, OpenedDir},
    find_unchanged::{Making, PlannedFolders, Slot, WantedFile},
    read_until_quiet::ScanTerms,
    store_live_file::FileStorer,
    written_by_run::{PackedFile, WrittenFiles},
};
use crate::{
    entry::{Entry, FullMeta, Kind, Time},
    entry_paths::EntryPlace,
    failures::Failures,
    listing::EntryIndex,
    path::RelPath,
    root::Root,
    scan::ScanOptions,
    sys::cores::on_cores,
    tree::{Tree, seek::seek},
};

/// A thread takes this many files of one directory at a time.
const FILES_PER_UNIT: usize = 64;

/// A tree to publish, with access to its files.
#[derive(Debug, Clone)]
pub(crate) struct ScannedTree<'a> {
    /// Its listings.
    pub tree: &'a Tree,
    /// The options that it was scanned with: it has stamps.
    pub options: &'a ScanOptions,
    /// The root directory's own metadata and attributes.
    pub root_meta: FullMeta,
    /// The root that its files are read from.
    pub root: &'a Root,
    /// When the scan began.
    pub began: Time,
    /// The files that a run has just written, whose contents need not be read.
    pub written: Option<&'a WrittenFiles>,
}

impl ScannedTree<'_> {
    /// Returns the same tree as a further scan, `again`, has found it.
    pub(crate) fn seen_again<'t>(&'t self, again: Option<&'t Tree>) -> ScannedTree<'t> {
        let Some(tree) = again else { return self.clone() };
        let root_meta = FullMeta { meta: tree.root_meta, attrs: tree.root_attrs.clone() };
        ScannedTree { tree, root_meta, ..self.clone() }
    }

    /// Returns the terms of the scan.
    ///
    /// # Errors
    /// If the root cannot be looked at.
    pub(crate) fn terms(&self) -> io::Result<ScanTerms> {
        let before = self.options.stamps.unwrap_or_default();
        Ok(ScanTerms { before, device: self.root.device()?, attrs: self.options.attrs })
    }
}

/// Some of a directory's wanted files.
struct Unit {
    /// The directory's index among those to write.
    making: usize,
    files: Vec<WantedFile>,
}

/// Takes the content of all wanted files into the store, unless earlier looks have. Returns the number of bytes in new
/// files of their own.
pub(crate) fn store_contents(
    planned: &mut PlannedFolders,
    source: &ScannedTree<'_>,
    earlier: &EarlierReads,
    storer: &FileStorer<'_>,
    failures: &Failures,
) -> u64 {
    let units = units(planned);
    let listed = ListedFiles::new(source.tree, source.root, earlier);
    let (added, grown, left_out) = (AtomicU64::new(0), AtomicI64::new(0), AtomicU64::new(0));
    let storing = Storing { source, listed, storer, failures, added, grown, left_out };
    let stored = on_cores(units.len(), 1, |nth| {
        let Unit { making, files } = &units[nth];
        storing.unit(&planned.making[*making], files)
    });
    for (Unit { making, files }, stored) in units.iter().zip(stored) {
        let slots = &mut planned.making[*making].slots;
        files.iter().zip(stored).for_each(|(file, stored)| slots[file.slot as usize] = stored);
    }
    let Storing { listed, added, grown, left_out, .. } = storing;
    (planned.grown, planned.left_out) = (grown.into_inner(), left_out.into_inner());
    planned.displaced = listed.displaced();
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
    listed: ListedFiles<'a>,
    storer: &'a FileStorer<'a>,
    failures: &'a Failures,
    /// Bytes in new files of their own.
    added: AtomicU64,
    /// See [`PlannedFolders::grown`].
    grown: AtomicI64,
    /// See [`PlannedFolders::left_out`].
    left_out: AtomicU64,
}

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
        for wanted in files {
            let WantedFile { index, old, .. } = *wanted;
            let Some((_, entry)) = entries.find(|(at, _)| *at == index) else { break };
            if self.storer.broken.get().is_some() {
                break;
            }
            let file = match packed_as_listed(&mut packed, &entry) {
                Some(file) => self.storer.store_packed(&file, old).map(|content| {
                    Slot::Stored(content, listed.stamps.get(index as usize).copied().unwrap_or(0))
                }),
                None => self.read(making, &entry, wanted, &mut opened),
            };
            stored.push(file.unwrap_or_else(|error| self.failed(making, &entry, &error)));
        }
        stored
    }

    fn read(
        &self,
        making: &Making,
        entry: &Entry<'_>,
        &WantedFile { index, old, .. }: &WantedFile,
        opened: &mut OpenedDir,
    ) -> io::Result<Slot> {
        let place = EntryPlace { dir: making.dir, index };
        let live = match self.listed.find(&making.path, entry.name, place, opened)? {
            LocatedFile::Read(live) => live,
            LocatedFile::Open(file) => {
                let stamps = &self.source.tree.dirs[making.dir as usize].stamps;
                let stamp = stamps.get(index as usize).copied().unwrap_or(0);
                let stored = self.storer.store_file(file, stamp, old)?;
                self.added.fetch_add(stored.added, Relaxed);
                stored
            }
        };
        if let Kind::File { size } = entry.kind {
            self.grown.fetch_add(live.len as i64 - size as i64, Relaxed);
        }
        if live.kept_changing {
            self.failures.add_in_motion(&path_of(making, entry));
        }
        Ok(Slot::Read(Box::new(live)))
    }

    fn failed(&self, making: &Making, entry: &Entry<'_>, error: &io::Error) -> Slot {
        if self.storer.broken.get().is_some() {
            return Slot::Failed;
        }
        self.left_out.fetch_add(1, Relaxed);
        if let Kind::File { size } = entry.kind {
            self.grown.fetch_sub(size as i64, Relaxed);
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
