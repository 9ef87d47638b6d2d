//! Fetches a directory of another store, and all that is below it, into this one.
//!
//! 1. [`TreeFetch::walk`] asks for directories level by level, where this store has no equal one in the same place.
//! 2. [`TreeFetch::fetch_contents`] takes the contents that this store lacks, and checks each.
//! 3. [`TreeFetch::write`] writes the directories, from the leaves to the root.

use std::{collections::HashMap, io};

use super::{
    arriving_content::{ArrivingContent, ArrivingInto},
    content_basis::{ContentBasis, MIN_BYTES},
    copy_source::{ContentPiece, HistorySource, RequestedContent},
    tree_counts::TreeCounts,
};
use crate::{
    hash::ContentId,
    monitor::Monitor,
    path::RelPath,
    snapshot::{
        create::write_folder,
        store::{
            ContentRef, Engine, Folder, FolderFile, FolderId, FolderRef, FolderRow, Home, Packing,
            SizedContent, SnapshotError, Store, io_error, overwrite,
        },
    },
    tree::stamps::IN_MOTION,
};

/// The most contents that are asked for at once.
const MAX_ASKED: usize = 1024;

/// Directories and contents on their way into a store.
pub(crate) struct TreeFetch<'a, 'c> {
    pub store: &'a Store,
    pub packing: &'a Packing<'a>,
    /// What the directories of this store have below them, and what is damaged.
    pub counts: &'a mut TreeCounts<'c>,
    pub monitor: &'a Monitor,
    /// The whole tree, if this store has it.
    whole: Option<FolderRef>,
    folders: Vec<FetchedFolder>,
    contents: Vec<WantedContent>,
    by_id: HashMap<ContentId, usize>,
    /// Contents that this store did not have, and has now in files of their own.
    placed: Vec<ContentId>,
}

/// A directory that this store lacks, as the other one has it.
struct FetchedFolder {
    path: RelPath,
    folder: Folder,
    /// The directory that is in its place here.
    old: Option<FolderRef>,
    children: Vec<ChildPlace>,
    contents: Vec<ContentPlace>,
    stamps: Vec<u64>,
}

/// Where a directory comes from.
enum ChildPlace {
    Here(FolderRef),
    /// The fetched directory of this number.
    Fetched(usize),
}

/// Where the content of a file comes from.
enum ContentPlace {
    Here(ContentRef),
    /// The wanted content of this number.
    Wanted(usize),
}

/// Content that this store lacks, or has damaged.
struct WantedContent {
    there: ContentRef,
    len: u64,
    /// The first file that needs it, by its directory's number and its name.
    needed_by: (usize, Box<[u8]>),
    /// Where this store has it damaged in a pack.
    damaged: Option<(u64, u64)>,
    /// What the file had before: probably much of it is the same.
    basis: Option<SizedContent>,
    /// Its place here once it has arrived.
    here: Option<ContentRef>,
}

/// A directory that is requested.
struct RequestedFolder {
    there: FolderRef,
    old: Option<FolderRef>,
    path: RelPath,
}

/// What fetch a tree would take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FetchedBytes {
    /// Bytes of contents that have to cross.
    pub contents: u64,
    /// Bytes of room for contents and directories, without holes.
    pub room: u64,
}

impl<'a, 'c> TreeFetch<'a, 'c> {
    pub(crate) fn new(
        store: &'a Store,
        packing: &'a Packing<'a>,
        counts: &'a mut TreeCounts<'c>,
        monitor: &'a Monitor,
    ) -> Self {
        let (folders, contents, by_id) = (Vec::new(), Vec::new(), HashMap::new());
        Self { store, packing, counts, monitor, whole: None, folders, contents, by_id, placed: Vec::new() }
    }

    /// Asks for the directory `there` and for all below it that this store lacks. `old` is what this store has in its
    /// place.
    ///
    /// # Errors
    /// If the other store has one damaged or does not answer; if paths are longer than any file can have.
    pub(crate) fn walk(
        &mut self,
        source: &mut dyn HistorySource,
        there: FolderRef,
        old: Option<FolderRef>,
    ) -> Result<(), SnapshotError> {
        self.whole = old.filter(|old| old.id == there.id && self.counts.of(self.store, old).is_some());
        if self.whole.is_some() {
            return Ok(());
        }
        let mut level = vec![RequestedFolder { there, old, path: RelPath::root() }];
        while !level.is_empty() {
            self.go_on()?;
            let wanted: Vec<FolderRef> = level.iter().map(|asked| asked.there).collect();
            let mut below = LevelBelow { first: self.folders.len() + level.len(), ..LevelBelow::default() };
            let mut asked = level.into_iter();
            source.folders(&wanted, &mut |_, folder| match asked.next() {
                Some(asked) if folder.id() == asked.there.id => self.place(asked, folder, &mut below),
                asked => Err(not_asked_for(asked.map(|asked| asked.path))),
            })?;
            if let Some(missing) = asked.next() {
                return Err(not_asked_for(Some(missing.path)));
            }
            level = below.asked;
        }
        Ok(())
    }

    fn go_on(&self) -> Result<(), SnapshotError> {
        self.monitor.check().map_err(io_error("copy to", self.store.path()))
    }

    /// Compares a directory with what this store has in its place, and asks for what is missing below it.
    fn place(
        &mut self,
        asked: RequestedFolder,
        folder: Folder,
        below: &mut LevelBelow,
    ) -> Result<(), SnapshotError> {
        let RequestedFolder { old, path, .. } = asked;
        let number = self.folders.len();
        let old_folder = old.and_then(|old| self.store.folder(&old).ok()).unwrap_or_default();
        let mut olds = old_folder.rows().peekable();
        let (mut children, mut contents, mut stamps) = (Vec::new(), Vec::new(), Vec::new());
        for row in folder.rows() {
            while olds.next_if(|old| old.entry.name < row.entry.name).is_some() {}
            let old = olds.next_if(|old| old.entry.name == row.entry.name);
            if let Some(child) = row.child {
                let path = path.join(row.entry.name).map_err(|_| too_long(&path))?;
                let old = old.as_ref().and_then(|old| old.child);
                children.push(self.child(child, old, path, below));
            }
            if let Some(file) = row.file() {
                let old = old.as_ref().and_then(FolderRow::file);
                let two_lengths =
                    || SnapshotError::Elsewhere(format!("it has a file of two lengths in {path}"));
                contents.push(self.content(number, &file, old.as_ref()).ok_or_else(two_lengths)?);
                stamps.push(stamp_of(&file, old.as_ref()));
            }
        }
        self.folders.push(FetchedFolder { path, folder, old, children, contents, stamps });
        Ok(())
    }

    /// Returns where a directory comes from. An equal one that is whole here is not asked for.
    fn child(
        &mut self,
        there: FolderRef,
        old: Option<FolderRef>,
        path: RelPath,
        below: &mut LevelBelow,
    ) -> ChildPlace {
        let here = old.filter(|old| old.id == there.id);
        match here.filter(|here| self.counts.of(self.store, here).is_some()) {
            Some(here) => ChildPlace::Here(here),
            None => ChildPlace::Fetched(below.ask(RequestedFolder { there, old, path })),
        }
    }

    /// Returns where the content of a file of the directory `folder` comes from; `None` if another file with this
    /// content has another length.
    fn content(
        &mut self,
        folder: usize,
        file: &FolderFile<'_>,
        old: Option<&FolderFile<'_>>,
    ) -> Option<ContentPlace> {
        let FolderFile { entry, len, content: there, .. } = *file;
        let same = old.filter(|old| has_same(old, file)).map(|old| old.content);
        let is_damaged = self.counts.is_damaged(&there.id);
        if let Some(here) = same.filter(|_| !is_damaged) {
            return Some(ContentPlace::Here(here));
        }
        let damaged = match same.map(|same| same.home) {
            Some(Home::Pack { pack, offset }) => Some((pack, offset)),
            _ => None,
        };
        let number = *self.by_id.entry(there.id).or_insert(self.contents.len());
        if number == self.contents.len() {
            let needed_by = (folder, entry.name.into());
            let basis = old.filter(|old| old.content.id != there.id && old.len.min(len) >= MIN_BYTES);
            let basis = basis.map(|old| SizedContent { content: old.content, len: old.len });
            self.contents.push(WantedContent { there, len, needed_by, damaged, basis, here: None });
        }
        (self.contents[number].len == len).then_some(ContentPlace::Wanted(number))
    }

    /// Finds what this store has in files of its own after all, and returns what the rest would take.
    pub(crate) fn measure(&mut self, source: &mut dyn HistorySource) -> Result<FetchedBytes, SnapshotError> {
        for wanted in &mut self.contents {
            self.monitor.check().map_err(io_error("copy to", self.store.path()))?;
            let here = ContentRef { id: wanted.there.id, home: Home::Own };
            if self.packing.is_stored(&here, wanted.len, &|_, _| self.monitor.check()) {
                wanted.here = Some(here);
            }
        }
        let missing = || self.contents.iter().filter(|wanted| wanted.here.is_none());
        let large = || missing().filter(|wanted| !Engine::Copy.packs(wanted.len));
        let refs: Vec<ContentRef> = large().map(|wanted| wanted.there).collect();
        let allocated = if refs.is_empty() { Vec::new() } else { source.allocated(&refs)? };
        // What the other side says of holes can only lower the estimate.
        let large = large().zip(allocated).map(|(wanted, allocated)| wanted.len.min(allocated));
        let packed = missing().filter(|wanted| Engine::Copy.packs(wanted.len)).map(|wanted| wanted.len);
        let listed = self.folders.iter().map(|fetched| fetched.folder.listing.encoded_len() as u64);
        let room = packed.chain(large).chain(listed).fold(0, u64::saturating_add);
        let contents = missing().map(|wanted| wanted.len).fold(0, u64::saturating_add);
        Ok(FetchedBytes { contents, room })
    }

    /// Takes the contents that this store lacks. Returns the bytes that they take in files of their own.
    pub(crate) fn fetch_contents(&mut self, source: &mut dyn HistorySource) -> Result<u64, SnapshotError> {
        let missing: Vec<usize> =
            (0..self.contents.len()).filter(|nth| self.contents[*nth].here.is_none()).collect();
        let mut added = 0;
        for some in missing.chunks(MAX_ASKED) {
            added += self.fetch_some(source, some)?;
        }
        Ok(added)
    }

    /// Asks for these contents, where it helps with what this store has of older versions.
    fn fetch_some(
        &mut self,
        source: &mut dyn HistorySource,
        missing: &[usize],
    ) -> Result<u64, SnapshotError> {
        let delta = source.wants_bases();
        let basis = |wanted: &WantedContent| {
            wanted.basis.filter(|_| delta).and_then(|basis| ContentBasis::of(self.store, &basis, wanted.len))
        };
        let ask = |wanted: &WantedContent| {
            let (basis, granules) =
                basis(wanted).map_or((None, Vec::new()), |it| (Some(it.content), it.granules));
            (RequestedContent { content: wanted.there, len: wanted.len, granules }, basis)
        };
        let (asked, bases): (Vec<_>, Vec<_>) = missing.iter().map(|nth| ask(&self.contents[*nth])).unzip();
        let (mut added, mut arriving) = (0, None);
        source.contents(&asked, &mut |nth, piece| {
            let Some(number) = missing.get(nth).copied() else { return Err(not_asked_for(None)) };
            let mut now = match arriving.take() {
                Some((of, now)) if of == nth => now,
                None if self.contents[number].here.is_none() => {
                    ArrivingContent::begin(self.packing, self.monitor, self.contents[number].len)
                        .map_err(io_error("write to", self.store.path()))?
                }
                _ => return Err(self.is_bad(number)),
            };
            self.go_on()?;
            if piece == ContentPiece::End {
                added += self.store_arrived(number, &now)?;
                return Ok(());
            }
            now.push(piece, bases[nth].as_ref()).map_err(|error| match error.kind() {
                io::ErrorKind::InvalidData => self.is_bad(number),
                _ => io_error("write to", self.store.path())(error),
            })?;
            arriving = Some((nth, now));
            Ok(())
        })?;
        match missing.iter().find(|number| self.contents[**number].here.is_none()) {
            Some(number) => Err(self.is_bad(*number)),
            None => Ok(added),
        }
    }

    /// Stores content that has arrived, if it has its hash.
    fn store_arrived(&mut self, number: usize, arrived: &ArrivingContent<'_>) -> Result<u64, SnapshotError> {
        let WantedContent { there, len, damaged, .. } = self.contents[number];
        if !arrived.is_whole(&there.id, len) {
            return Err(self.is_bad(number));
        }
        let failed = || io_error("write to", self.store.path());
        let (home, added) = match (&arrived.into, damaged) {
            (ArrivingInto::Memory(bytes), Some((pack, offset))) => {
                overwrite(self.store, pack, offset, bytes).map_err(failed())?;
                (Home::Pack { pack, offset }, 0)
            }
            (ArrivingInto::Memory(bytes), None) => {
                (self.packing.content(there.id, bytes).map_err(failed())?, 0)
            }
            (ArrivingInto::File(part), _) => {
                if self.packing.place_own(&part.name, there.id).map_err(failed())? {
                    self.placed.push(there.id);
                }
                (Home::Own, len)
            }
        };
        self.contents[number].here = Some(ContentRef { id: there.id, home });
        Ok(added)
    }

    /// Removes the large contents that have arrived: on a full file system the room is needed. Otherwise they stay, for
    /// the next try.
    pub(crate) fn remove_placed(&self) {
        self.placed.iter().for_each(|id| self.packing.remove_own(id));
    }

    /// Returns the error for content that the other store sent damaged, with the first file that needs it.
    fn is_bad(&self, number: usize) -> SnapshotError {
        let (folder, name) = &self.contents[number].needed_by;
        let path = self.folders.get(*folder).and_then(|folder| folder.path.join(name).ok());
        SnapshotError::Elsewhere(format!("it has a damaged {}", path.unwrap_or_default()))
    }

    /// Writes the directories, and returns the first one that was asked for, with its digests of this store.
    pub(crate) fn write(&mut self) -> Result<FolderRef, SnapshotError> {
        let failed = || io_error("write to", self.store.path());
        let mut here: Vec<Option<FolderRef>> = vec![None; self.folders.len()];
        for (number, fetched) in std::mem::take(&mut self.folders).into_iter().enumerate().rev() {
            self.go_on()?;
            let FetchedFolder { folder, old, children, contents, stamps, .. } = fetched;
            let child = |child: &ChildPlace| match child {
                ChildPlace::Here(here) => Some(*here),
                ChildPlace::Fetched(number) => here.get(*number).copied().flatten(),
            };
            let content = |content: &ContentPlace| match content {
                ContentPlace::Here(here) => Some(*here),
                ContentPlace::Wanted(number) => self.contents[*number].here,
            };
            let children = children.iter().map(child).collect::<Option<Vec<_>>>();
            let contents = contents.iter().map(content).collect::<Option<Vec<_>>>();
            let (Some(children), Some(contents)) = (children, contents) else {
                return Err(failed()(io::Error::other("an object that a directory needs did not arrive")));
            };
            let folder = Folder { listing: folder.listing, children, contents, stamps };
            let written = write_folder(&folder, old, self.store, self.packing).map_err(failed())?;
            self.counts.add(&folder, written.place);
            here[number] = Some(written);
        }
        self.whole
            .or_else(|| here.first().copied().flatten())
            .ok_or_else(|| failed()(io::Error::other("the tree has no root")))
    }
}

/// Returns whether two files have the same content.
fn has_same(one: &FolderFile<'_>, other: &FolderFile<'_>) -> bool {
    one.len == other.len && one.content.id == other.content.id
}

/// Returns the stamp that a file gets here: that of the `old` one, if it has the same content.
fn stamp_of(file: &FolderFile<'_>, old: Option<&FolderFile<'_>>) -> u64 {
    match old {
        _ if file.stamp == IN_MOTION => IN_MOTION,
        Some(old) if old.stamp != IN_MOTION && has_same(old, file) => old.stamp,
        _ => 0,
    }
}

/// The directories of the next level that are asked for, each once.
#[derive(Default)]
struct LevelBelow {
    asked: Vec<RequestedFolder>,
    by_id: HashMap<FolderId, usize>,
    /// The number that the first of them gets.
    first: usize,
}

impl LevelBelow {
    /// Asks for a directory, and returns the number that it gets.
    fn ask(&mut self, folder: RequestedFolder) -> usize {
        let number = *self.by_id.entry(folder.there.id).or_insert(self.asked.len());
        if number == self.asked.len() {
            self.asked.push(folder);
        }
        self.first + number
    }
}

fn not_asked_for(path: Option<RelPath>) -> SnapshotError {
    let path = path.map(|path| format!(" for the directory {path}")).unwrap_or_default();
    SnapshotError::Elsewhere(format!("it answered with something else than was asked{path}"))
}

fn too_long(path: &RelPath) -> SnapshotError {
    SnapshotError::Elsewhere(format!("it has names below {path} that are longer than a path can be"))
}
