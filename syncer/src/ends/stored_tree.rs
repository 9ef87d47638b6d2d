//! The tree of a snapshot as the source of a run.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, VecDeque},
    io,
    os::fd::AsFd as _,
};

use contract::RunParams;
use parking_lot::Mutex;

use crate::{
    ends::trust_in_store::{harmless, is_trusted},
    entry::{Entry, FullMeta, Kind, Meta, Time},
    hash::TreeDigest,
    listing::ListingBuilder,
    measure::{failures::Failures, monitor::Monitor},
    path::RelPath,
    plan::{plan_id::PlanId, relink_names::links_names, source_tree::SourceTree},
    session_error::SessionError,
    snapshot::{
        Snapshot, SnapshotError, Store,
        around_runs::Before,
        browse::{Node, What, node_at, nodes},
        store::{ContentRef, Folder, FolderRef},
    },
    source::source_file::{OfStore, SourceFile, Stored},
    sys::root::TreeLocation,
    transport::TransportError,
    tree::{
        Tree,
        dir::{Dir, DirId, ROOT, Totals},
    },
    wire::Listed,
};

/// The tree of a snapshot, read directory by directory as a comparison requests it.
#[derive(Debug)]
pub(crate) struct StoredTree<'a> {
    store: &'a Store,
    snapshot: &'a Snapshot,
    /// The paths in the snapshot that are restored.
    paths: &'a [RelPath],
    /// Whether the metadata that gives rights is believed.
    is_trusted: bool,
    kept: KeptOfNodes,
    /// Whether a damaged directory is left as it is, and else a failure.
    keep_going: bool,
    /// The metadata that the folders on the way to the paths have at the sink, as far as they exist.
    way_there: BTreeMap<RelPath, FullMeta>,
    state: Mutex<StoredState>,
    leaders: Mutex<LeadersFolder>,
}

/// A folder with entries that names of one file lead to.
#[derive(Debug, Default)]
struct LeadersFolder {
    dir: Option<RelPath>,
    nodes: HashMap<Box<[u8]>, Node>,
}

#[derive(Debug)]
struct StoredState {
    dirs: Vec<StoredDir>,
    asked: VecDeque<DirId>,
    /// Directories that cannot be read.
    damaged: Vec<(RelPath, String)>,
}

/// What a run keeps of the entries of a snapshot. Of a live source, its scan leaves the rest out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct KeptOfNodes {
    links: bool,
    permissions: bool,
    specials: bool,
}

impl KeptOfNodes {
    const ALL: Self = Self { links: true, permissions: true, specials: true };

    fn meta(self, meta: Meta) -> Meta {
        Meta { mode: if self.permissions { meta.mode } else { 0 }, ..meta }
    }
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

/// The content of a file, and its length and time in the snapshot.
struct FoundFile {
    content: Option<ContentRef>,
    of: OfStore,
}

#[derive(Debug)]
struct StoredFile {
    name: Box<[u8]>,
    content: Option<ContentRef>,
    len: u64,
    mtime: Time,
}

impl<'a> StoredTree<'a> {
    pub(crate) fn new(
        store: &'a Store,
        snapshot: &'a Snapshot,
        paths: &'a [RelPath],
        params: &RunParams,
    ) -> Self {
        let root = StoredDir { folder: snapshot.tree, path: RelPath::root(), read: None };
        let state = StoredState { dirs: vec![root], asked: VecDeque::new(), damaged: Vec::new() };
        let is_trusted = is_trusted(snapshot, params);
        let kept = KeptOfNodes {
            links: links_names(params),
            permissions: params.preserve.permissions,
            specials: params.preserve.specials,
        };
        Self {
            store,
            snapshot,
            paths,
            is_trusted,
            kept,
            keep_going: params.keep_going,
            way_there: BTreeMap::new(),
            state: Mutex::new(state),
            leaders: Mutex::default(),
        }
    }

    /// Returns what a run keeps of the root's metadata.
    pub(crate) fn kept_of_root(&self, meta: Meta) -> Meta {
        self.kept.meta(meta)
    }

    /// Returns the digest of the root, by which a whole tree is known as equal; one that no tree has if names are
    /// copied as files of their own, since the sink's scan lists links all the same.
    pub(crate) fn digest(&self) -> TreeDigest {
        if self.kept.links { self.snapshot.tree.digest } else { TreeDigest::default() }
    }

    /// Reads the whole tree, for a source whose sink requests directories by their numbers.
    ///
    /// # Errors
    /// If a directory cannot be read, the snapshot has more entries than its record says, or the run is told to stop.
    pub(crate) fn load(&self, monitor: &Monitor) -> Result<Tree, SessionError> {
        let Snapshot { id, root_meta, root_attrs, entries, bytes, .. } = self.snapshot;
        let mut dirs = vec![Dir { digest: self.digest(), ..Dir::default() }];
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
        Ok(Tree {
            dirs,
            root_meta: self.kept.meta(*root_meta),
            root_attrs: root_attrs.clone(),
            totals,
            ..Tree::default()
        })
    }

    /// Records the metadata that the folders on the way to the paths have in the sink's tree.
    pub(crate) fn go_to(&mut self, sink: &Tree) {
        self.paths.iter().for_each(|path| way_there(sink, path, &mut self.way_there));
    }

    /// Returns the names in this folder that lead to the paths that are restored; `None` in such a path, and below it.
    fn ways(&self, dir: &RelPath) -> Option<BTreeSet<&'a [u8]>> {
        if self.is_inside(dir) {
            return None;
        }
        let beyond = self.paths.iter().filter(|path| path.starts_with(dir));
        Some(beyond.filter_map(|path| path.names().nth(dir.names().count())).collect())
    }

    /// Returns whether a path is one of those that are restored, or below one.
    fn is_inside(&self, path: &RelPath) -> bool {
        self.paths.iter().any(|restored| path.starts_with(restored))
    }

    /// Returns whether the whole snapshot is restored.
    fn is_whole(&self) -> bool {
        self.is_inside(&RelPath::root())
    }

    /// Reads a folder. One on the way to the paths has only the next names. In and below a path, hard links to files
    /// outside of all paths become files. Without trust, set-id bits, capabilities, pipes and devices are left out, and
    /// else what the run does not keep.
    fn read(&self, dir: &StoredDir) -> Result<Folder, SnapshotError> {
        let folder = self.store.folder(&dir.folder)?;
        if self.is_whole() && self.is_trusted && self.kept == KeptOfNodes::ALL {
            return Ok(folder);
        }
        let mut part = Folder::default();
        let mut builder = ListingBuilder::default();
        if !folder.listing.is_complete() {
            builder.mark_incomplete();
        }
        let ways = self.ways(&dir.path);
        let leads = |name: &[u8]| ways.as_ref().is_none_or(|ways| ways.contains(name));
        for (name, node) in nodes(&folder).filter(|(name, _)| leads(name)) {
            let Some(node) = self.inside(node)? else { continue };
            let is_on_the_way =
                ways.is_some() && dir.path.join(name).is_ok_and(|path| !self.is_inside(&path));
            if !self.keeps_specials() && node.what.is_special() {
                continue;
            }
            let harmless = if self.is_trusted { node } else { harmless(node) };
            let node = &harmless;
            let own = node.entry(name);
            let own = Entry { meta: self.kept.meta(own.meta), ..own };
            let entry = if is_on_the_way { self.as_it_is(dir, own) } else { own };
            builder.push(&entry);
            match node.what {
                What::Dir(child) if is_on_the_way || !self.kept.links => {
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

    /// Turns a hard link into a file if its target is outside of the paths that are restored, or names are copied as
    /// files of their own. Returns none for a further name of a pipe or device that is left out.
    fn inside(&self, node: Node) -> Result<Option<Node>, SnapshotError> {
        let What::HardLink(leader) = &node.what else { return Ok(Some(node)) };
        let Ok(leader) = RelPath::parse(leader) else { return Ok(Some(node)) };
        let (stays, may_be_left_out) = (self.kept.links && self.is_inside(&leader), !self.keeps_specials());
        if stays && !may_be_left_out {
            return Ok(Some(node));
        }
        let found = self.leader(&leader)?;
        let is_left_out = may_be_left_out && found.as_ref().is_some_and(|found| found.what.is_special());
        let node = if stays { node } else { found.unwrap_or(node) };
        Ok((!is_left_out).then_some(node))
    }

    fn keeps_specials(&self) -> bool {
        self.is_trusted && self.kept.specials
    }

    /// Returns the entry that names of one file lead to. The folder of the last one is kept in memory, since many names
    /// may lead there.
    fn leader(&self, path: &RelPath) -> Result<Option<Node>, SnapshotError> {
        let Some((dir, name)) = path.split_last() else { return Ok(None) };
        let mut last = self.leaders.lock();
        if last.dir.as_ref() != Some(&dir) {
            let folder = node_at(self.store, self.snapshot, &dir)?.map(|node| node.what);
            let Some(What::Dir(folder)) = folder else { return Ok(None) };
            let folder = self.store.folder(&folder)?;
            let nodes = nodes(&folder).map(|(name, node)| (name.into(), node)).collect();
            *last = LeadersFolder { dir: Some(dir), nodes };
        }
        Ok(last.nodes.get(name).cloned())
    }

    /// Gives a folder on the way to a path the metadata that it has at the sink, so that it stays as it is.
    fn as_it_is<'e>(&'e self, dir: &StoredDir, own: Entry<'e>) -> Entry<'e> {
        let path = dir.path.join(own.name).ok();
        match path.and_then(|path| self.way_there.get(&path)) {
            Some(FullMeta { meta, attrs }) => Entry { meta: *meta, attrs: attrs.as_attrs(), ..own },
            None => own,
        }
    }

    /// Adds the directories that could not be read to the failures of a run.
    pub(crate) fn add_damaged_dirs(&self, failures: &Failures) {
        self.state.lock().damaged.iter().for_each(|(path, error)| failures.add(path, "read", error));
    }

    /// Returns the content of a file; `None` if it is empty, or not in the tree as far as that was read.
    pub(crate) fn content(&self, dir: DirId, name: &[u8]) -> Option<ContentRef> {
        self.file(dir, name)?.content
    }

    fn file(&self, dir: DirId, name: &[u8]) -> Option<FoundFile> {
        let state = self.state.lock();
        let files = &state.dirs.get(dir as usize)?.read.as_ref()?.files;
        let nth = files.binary_search_by(|file| (*file.name).cmp(name)).ok()?;
        let StoredFile { content, len, mtime, .. } = files[nth];
        let of = OfStore { start: 0, len, mtime, id: content.map(|content| content.id) };
        Some(FoundFile { content, of })
    }

    fn list(&self, id: DirId) -> Result<Listed, SessionError> {
        let mut state = self.state.lock();
        let next = state.dirs.len() as DirId;
        let unknown =
            || SnapshotError::Invalid("a directory was asked for that the snapshot does not have".into());
        let dir = state.dirs.get_mut(id as usize).ok_or_else(unknown)?;
        let (folder, error) = match self.read(dir) {
            Err(error) if self.keep_going && id != ROOT => (unknown_folder(), Some(error)),
            result => (result?, None),
        };
        let path = dir.path.clone();
        let damaged = error.map(|error| (path.clone(), error.to_string()));
        let is_new = dir.read.is_none();
        let read = dir.read.get_or_insert_with(|| ReadFolder { first_child: next, files: files(&folder) });
        let first_child = read.first_child;
        if is_new {
            for (name, child) in folder.subfolders() {
                let path = path.join(name).unwrap_or_else(|_| path.clone());
                state.dirs.push(StoredDir { folder: child, path, read: None });
            }
        }
        state.damaged.extend(damaged.filter(|_| is_new));
        let children = folder.children.iter().map(|child| child.digest).collect();
        Ok(Listed { dir: id, first_child, children, listing: folder.listing, rules: Box::default() })
    }
}

/// Returns the listing of a directory of which nothing is known, so that no entry is made or deleted there.
fn unknown_folder() -> Folder {
    let mut listing = ListingBuilder::default();
    listing.mark_incomplete();
    Folder { listing: listing.finish(), ..Folder::default() }
}

/// Returns the metadata of the folders of a tree that lead to a path, as far as they exist.
fn way_there(tree: &Tree, path: &RelPath, way: &mut BTreeMap<RelPath, FullMeta>) {
    let (mut at, mut to) = (ROOT, RelPath::root());
    for name in path.names() {
        let Some(dir) = tree.dirs.get(at as usize) else { return };
        let dirs = dir.listing.iter().filter(|entry| entry.kind == Kind::Dir);
        let found = (dir.first_child..).zip(dirs).find(|(_, entry)| entry.name == name);
        let (Some((id, entry)), Ok(below)) = (found, to.join(name)) else { return };
        way.insert(below.clone(), FullMeta { meta: entry.meta, attrs: entry.attrs.into() });
        (at, to) = (id, below);
    }
}

fn files(folder: &Folder) -> Vec<StoredFile> {
    let mut with_content = folder.files().map(|file| (file.entry.name, file.content)).peekable();
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
        self.state.lock().asked.extend(dirs);
        Ok(())
    }

    fn next(&mut self) -> Result<Listed, SessionError> {
        let id = self.state.lock().asked.pop_front().unwrap_or_default();
        self.list(id)
    }
}

impl Stored for StoredTree<'_> {
    fn open(&self, dir: DirId, name: &[u8]) -> io::Result<SourceFile> {
        let FoundFile { content, of } = self.file(dir, name).ok_or(io::ErrorKind::NotFound)?;
        let Some(content) = content else {
            return SourceFile::stored(self.store.dir().try_clone_to_owned()?, of);
        };
        let open = self.store.content(&content).map_err(io::Error::other)?;
        let fd = open.file.as_fd().try_clone_to_owned()?;
        SourceFile::stored(fd, OfStore { start: open.start, ..of })
    }
}

/// The parameters of a restore: a path of a snapshot, and the tree that gets it.
#[derive(Debug)]
pub struct Restore<'a> {
    /// The volume that has the snapshot.
    pub from: TreeLocation,
    /// The store that has the snapshot.
    pub store: &'a Store,
    /// The snapshot.
    pub snapshot: &'a Snapshot,
    /// The tree that is restored to; it is made if it is missing.
    pub to: TreeLocation,
    /// The paths to restore, of which none is in another; the root for the whole snapshot. The run's parameters must
    /// exclude all other paths (`session::all_but`).
    pub paths: Vec<RelPath>,
    /// The records that it leaves before it changes anything.
    pub before: Before,
    /// The plan that was shown: any other is refused.
    pub plan: Option<PlanId>,
}
