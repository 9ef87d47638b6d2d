//! The tree of a snapshot as the source of a run.

use std::{
    collections::{HashSet, VecDeque},
    io,
    os::fd::AsFd as _,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{
    attrs::AttrsBuf,
    cores::on_cores,
    entry::{Entry, Kind, Meta, Time},
    hash::TreeDigest,
    listing::ListingBuilder,
    monitor::Monitor,
    path::RelPath,
    plan::Step,
    root::TreeLocation,
    session::{
        plan::{
            planned::{Compared, PlannedDir, path_in},
            source_tree::SourceTree,
        },
        reading::source_file::{OfStore, SourceFile, Stored},
        session_error::SessionError,
    },
    snapshot::{
        Snapshot, SnapshotError, Store,
        browse::{self, Node, What},
        content::ContentRef,
        folder::{Folder, FolderRef},
    },
    transport::TransportError,
    tree::{
        Tree,
        dir::{Dir, DirId, ROOT, Totals},
    },
    wire::Listed,
};

/// The number of objects for which one more thread is started.
const OBJECTS_PER_THREAD: usize = 64;

/// The tree of a snapshot, read directory by directory as a comparison requests it.
#[derive(Debug)]
pub(crate) struct StoredTree<'a> {
    store: &'a Store,
    snapshot: &'a Snapshot,
    /// The path in the snapshot that is restored.
    path: &'a RelPath,
    /// The metadata that the folders on the way to the path have at the sink, as far as they exist.
    way_there: Vec<(Meta, AttrsBuf)>,
    state: Mutex<StoredState>,
}

#[derive(Debug)]
struct StoredState {
    dirs: Vec<StoredDir>,
    asked: VecDeque<DirId>,
}

#[derive(Debug)]
struct StoredDir {
    folder: FolderRef,
    path: RelPath,
    /// Its content, once it was read.
    read: Option<ReadFolder>,
}

#[derive(Debug)]
struct ReadFolder {
    first_child: DirId,
    /// Sorted by name.
    files: Vec<StoredFile>,
}

#[derive(Debug)]
struct StoredFile {
    name: Box<[u8]>,
    content: Option<ContentRef>,
    len: u64,
    mtime: Time,
}

impl<'a> StoredTree<'a> {
    pub(crate) fn new(store: &'a Store, snapshot: &'a Snapshot, path: &'a RelPath) -> Self {
        let root = StoredDir { folder: snapshot.tree, path: RelPath::root(), read: None };
        let state = StoredState { dirs: vec![root], asked: VecDeque::new() };
        Self { store, snapshot, path, way_there: Vec::new(), state: Mutex::new(state) }
    }

    /// Reads the whole tree, for a source whose sink requests directories by their numbers.
    ///
    /// # Errors
    /// If a directory cannot be read, the snapshot has more entries than its record says, or the run is told to stop.
    pub(crate) fn load(&self, monitor: &Monitor) -> Result<Tree, SessionError> {
        let Snapshot { id, root_meta, root_attrs, entries, bytes, tree, .. } = self.snapshot;
        let mut dirs = vec![Dir { digest: tree.digest, ..Dir::default() }];
        let (mut next, mut count) = (0, 0);
        while next < dirs.len() {
            monitor.check().map_err(|_| TransportError::Canceled)?;
            let Listed { listing, first_child, children, .. } = self.list(next as DirId)?;
            count += listing.len() as u64;
            if count > *entries {
                let problem = format!("snapshot {id} has more than the {entries} entries of its record");
                return Err(SnapshotError::Invalid(problem).into());
            }
            let digest = dirs[next].digest;
            dirs[next] = Dir { listing, first_child, digest, ..Dir::default() };
            dirs.extend(children.into_iter().map(|digest| Dir { digest, ..Dir::default() }));
            next += 1;
        }
        let totals = Totals { entries: *entries, bytes: *bytes, ..Totals::default() };
        Ok(Tree { dirs, root_meta: *root_meta, root_attrs: root_attrs.clone(), totals, ..Tree::default() })
    }

    /// Records the metadata that the folders on the way to the path have in the sink's tree.
    pub(crate) fn go_to(&mut self, sink: &Tree) {
        self.way_there = way_there(sink, self.path);
    }

    /// Returns the name in this folder that leads to the path that is restored; `None` in the path itself, and below
    /// it.
    fn way(&self, dir: &RelPath) -> Option<&'a [u8]> {
        self.path.names().nth(dir.names().count()).filter(|_| self.path.starts_with(dir))
    }

    /// Reads a folder. A folder on the way to the path has only the next name. In and below the path, hard links to
    /// files outside of it become files.
    fn read(&self, dir: &StoredDir) -> Result<Folder, SnapshotError> {
        let folder = self.store.folder(&dir.folder)?;
        if self.path.is_root() {
            return Ok(folder);
        }
        let mut part = Folder::default();
        let mut builder = ListingBuilder::default();
        if !folder.listing.is_complete() {
            builder.mark_incomplete();
        }
        let way = self.way(&dir.path);
        for (name, node) in browse::nodes(&folder).filter(|(name, _)| way.is_none_or(|way| way == *name)) {
            let node = self.inside(node)?;
            let is_on_the_way = way.is_some() && dir.path.join(name).is_ok_and(|path| path != *self.path);
            let own = node.entry(name);
            let entry = if is_on_the_way { self.as_it_is(dir, own) } else { own };
            builder.push(&entry);
            match node.what {
                What::Dir(child) if is_on_the_way => {
                    part.children.push(FolderRef { digest: TreeDigest::default(), ..child });
                }
                What::Dir(child) => part.children.push(child),
                What::File { content: Some(content), .. } => {
                    part.contents.push(content);
                    part.stamps.push(0);
                }
                _ => {}
            }
        }
        part.listing = builder.finish();
        Ok(part)
    }

    /// Turns a hard link into a file if its target is outside of the path that is restored.
    fn inside(&self, node: Node) -> Result<Node, SnapshotError> {
        let What::HardLink(leader) = &node.what else { return Ok(node) };
        let outside = RelPath::parse(leader).ok().filter(|leader| !leader.starts_with(self.path));
        let Some(leader) = outside else { return Ok(node) };
        Ok(browse::at(self.store, self.snapshot, &leader)?.unwrap_or(node))
    }

    /// Gives a folder on the way to the path the metadata that it has at the sink, so that it stays as it is.
    fn as_it_is<'e>(&'e self, dir: &StoredDir, own: Entry<'e>) -> Entry<'e> {
        match self.way_there.get(dir.path.names().count()) {
            Some((meta, attrs)) => Entry { meta: *meta, attrs: attrs.as_attrs(), ..own },
            None => own,
        }
    }

    fn lock(&self) -> MutexGuard<'_, StoredState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the content of a file, with its length and time in the snapshot.
    pub(crate) fn file(&self, dir: DirId, name: &[u8]) -> Option<(Option<ContentRef>, OfStore)> {
        let state = self.lock();
        let files = &state.dirs.get(dir as usize)?.read.as_ref()?.files;
        let nth = files.binary_search_by(|file| (*file.name).cmp(name)).ok()?;
        let StoredFile { content, len, mtime, .. } = files[nth];
        Some((content, OfStore { start: 0, len, mtime, id: content.map(|content| content.id) }))
    }

    fn list(&self, id: DirId) -> Result<Listed, SessionError> {
        let mut state = self.lock();
        let next = state.dirs.len() as DirId;
        let unknown =
            || SnapshotError::Invalid("a directory was asked for that the snapshot does not have".into());
        let dir = state.dirs.get_mut(id as usize).ok_or_else(unknown)?;
        let folder = self.read(dir)?;
        let path = dir.path.clone();
        let is_new = dir.read.is_none();
        let read = dir.read.get_or_insert_with(|| ReadFolder { first_child: next, files: files(&folder) });
        let first_child = read.first_child;
        if is_new {
            let names = folder.listing.iter().filter(|entry| entry.kind == Kind::Dir).map(|entry| entry.name);
            for (name, child) in names.zip(&folder.children) {
                let path = path.join(name).unwrap_or_else(|_| path.clone());
                state.dirs.push(StoredDir { folder: *child, path, read: None });
            }
        }
        let children = folder.children.iter().map(|child| child.digest).collect();
        Ok(Listed { dir: id, first_child, children, listing: folder.listing, rules: Box::default() })
    }
}

/// Returns the metadata of the folders of a tree that lead to a path, as far as they exist.
fn way_there(tree: &Tree, path: &RelPath) -> Vec<(Meta, AttrsBuf)> {
    let mut way = Vec::new();
    let mut at = ROOT;
    for name in path.names() {
        let Some(dir) = tree.dirs.get(at as usize) else { return way };
        let dirs = dir.listing.iter().filter(|entry| entry.kind == Kind::Dir);
        let Some((id, entry)) = (dir.first_child..).zip(dirs).find(|(_, entry)| entry.name == name) else {
            return way;
        };
        way.push((entry.meta, entry.attrs.into()));
        at = id;
    }
    way
}

fn files(folder: &Folder) -> Vec<StoredFile> {
    let mut with_content = folder.files().map(|(entry, content, _)| (entry.name, content)).peekable();
    let regular = folder.listing.iter().filter_map(|entry| match entry.kind {
        Kind::File { size } => Some((entry, size)),
        _ => None,
    });
    let file = regular.map(|(entry, len)| {
        let content = with_content.next_if(|(name, _)| *name == entry.name).map(|(_, content)| content);
        StoredFile { name: entry.name.into(), content, len, mtime: entry.meta.mtime }
    });
    file.collect()
}

impl SourceTree for &StoredTree<'_> {
    fn request(&mut self, dirs: &[DirId]) -> Result<(), SessionError> {
        self.lock().asked.extend(dirs);
        Ok(())
    }

    fn next(&mut self) -> Result<Listed, SessionError> {
        let id = self.lock().asked.pop_front().unwrap_or_default();
        self.list(id)
    }
}

impl Stored for StoredTree<'_> {
    fn open(&self, dir: DirId, name: &[u8]) -> io::Result<SourceFile> {
        let (content, of) = self.file(dir, name).ok_or(io::ErrorKind::NotFound)?;
        let Some(content) = content else {
            return SourceFile::stored(self.store.dir().try_clone_to_owned()?, of);
        };
        let open = self.store.content(&content).map_err(io::Error::other)?;
        let fd = open.file.as_fd().try_clone_to_owned()?;
        SourceFile::stored(fd, OfStore { start: open.start, ..of })
    }
}

/// An object that a restore reads, and a file that needs it.
pub(crate) struct NeededContent {
    pub content: ContentRef,
    pub len: u64,
    pub path: RelPath,
}

/// Returns the objects of all files that are made or updated, each once.
pub(crate) fn needed(tree: &StoredTree<'_>, compared: &Compared) -> Vec<NeededContent> {
    let mut seen = HashSet::new();
    let mut needed = Vec::new();
    for dir in &compared.dirs {
        for (_, entry, len) in written(dir) {
            let Some((content, _)) = tree.file(dir.source, entry.name) else { continue };
            if let Some(content) = content.filter(|content| seen.insert(content.id)) {
                needed.push(NeededContent { content, len, path: path_in(&dir.path, entry.name) });
            }
        }
    }
    needed
}

/// Yields the files of a directory that are written, with their indexes and lengths.
pub(crate) fn written(dir: &PlannedDir) -> impl Iterator<Item = (u32, Entry<'_>, u64)> {
    let mut steps = dir.plan.steps.iter().peekable();
    (0..).zip(&dir.listing).filter_map(move |(index, entry)| {
        let (_, step) = steps.next_if(|(at, _)| *at == index)?;
        match entry.kind {
            Kind::File { size } if *step != Step::Meta => Some((index, entry, size)),
            _ => None,
        }
    })
}

/// Checks the objects that a restore needs, before it changes anything.
///
/// # Errors
/// [`SnapshotError::NotWhole`], which names the first file that needs a damaged object.
pub(crate) fn check_all(
    store: &Store,
    snapshot: &Snapshot,
    needed: &[NeededContent],
) -> Result<(), SnapshotError> {
    let check = |nth: usize| {
        let NeededContent { content, len, path } = &needed[nth];
        let checked = store.check(content, *len);
        checked.inspect_err(|error| tracing::error!(%path, %error, "an object is needed")).err().map(|_| path)
    };
    let mut bad: Vec<&RelPath> =
        on_cores(needed.len(), OBJECTS_PER_THREAD, check).into_iter().flatten().collect();
    bad.sort_unstable();
    match bad.first() {
        None => Ok(()),
        Some(first) => {
            let path = first.to_string();
            Err(SnapshotError::NotWhole { id: snapshot.id, count: bad.len() as u64, path })
        }
    }
}

/// The parameters of a restore: a path of a snapshot, and the tree that gets it.
#[derive(Debug)]
pub struct Restore<'a> {
    /// The store that has the snapshot.
    pub store: &'a Store,
    /// The snapshot.
    pub snapshot: &'a Snapshot,
    /// The tree that is restored to; it is made if it is missing.
    pub to: TreeLocation,
    /// The path to restore; the root for the whole snapshot. The run's parameters must exclude all other paths
    /// (`session::all_but`).
    pub path: RelPath,
}
