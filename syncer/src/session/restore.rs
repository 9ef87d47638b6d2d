//! A snapshot → a tree: a run whose source is a store.

use std::{
    collections::{HashSet, VecDeque},
    io,
    os::fd::AsFd as _,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use contract::{Phase, Report, RunParams, Side};

use super::{
    SessionError,
    compare::{Compared, PlannedDir, SourceTree},
    execute::path_in,
    local::{AtHand, Found, Target, bring},
    read::{OfStore, Origin, SourceFile, Stored},
    single::Subject,
    sink::scan_tree,
};
use crate::{
    attrs::AttrsBuf,
    cores::cores,
    entry::{Entry, Kind, Meta, Time},
    hash::TreeDigest,
    listing::ListingBuilder,
    owners::Owners,
    path::RelPath,
    plan::Step,
    report::{Failures, Stopwatch},
    root::{Place, Root},
    snapshot::{
        Snapshot, SnapshotError, Store,
        browse::{self, Node, What},
        content::Content,
        folder::{Folder, FolderRef},
        publish::files_of,
    },
    tree::{
        Tree,
        dir::{DirId, ROOT, Totals},
    },
    wire::{Listed, SourceDone, TreeHead},
};

/// What is to be restored, and where.
#[derive(Debug)]
pub struct Restore<'a> {
    /// The store that has the snapshot.
    pub store: &'a Store,
    /// The snapshot.
    pub snapshot: &'a Snapshot,
    /// The tree that is brought back; it is made if it is not there.
    pub to: Place,
    /// What of the tree; the root for all of it. The run's parameters have to exclude [`all_but`] this path.
    pub path: RelPath,
}

/// Patterns that leave out of a run everything but a path, what is below it, and the folders on the way to it.
///
/// # Errors
/// When the path is not UTF-8, as patterns are.
pub fn all_but(path: &RelPath) -> Result<Vec<String>, SnapshotError> {
    let mut patterns = Vec::new();
    let mut at = String::new();
    for name in path.names() {
        let name = std::str::from_utf8(name).map_err(|_| {
            SnapshotError::Invalid(format!("{path} is not UTF-8: restore the folder that it is in"))
        })?;
        patterns.push(format!("{at}/*"));
        at.push('/');
        name.chars().for_each(|c| {
            if matches!(c, '\\' | '*' | '?' | '[' | ']' | '{' | '}' | '!' | '#' | ' ') {
                at.push('\\');
            }
            at.push(c);
        });
        patterns.push(format!("!{at}"));
    }
    Ok(patterns)
}

impl Restore<'_> {
    pub(super) fn run(&self, params: &RunParams, watch: &mut Stopwatch<'_>) -> Result<Report, SessionError> {
        watch.enter(Phase::Scan);
        let (target, notes) = Target::open(&self.to, params, None)?;
        let failures = Failures::default();
        let subject = Subject::of_tree(&self.to);
        let sink = match target.root() {
            Some(root) => {
                let doubt = target.doubtful_since();
                scan_tree(&subject, root, params, Side::Sink, doubt, &failures, watch.monitor())?
            }
            None => Tree::empty(),
        };
        let tree = StoredTree::new(self, &sink);
        let head = self.head(&sink)?;
        let ready = |compared: &Compared, root: Option<&Root>| self.check(&tree, compared, root);
        let source = AtHand { tree: &tree, head, origin: Origin::Stored(&tree), ready: &ready };
        bring(source, Found { target, sink, subject: &subject, notes }, params, &failures, watch)
    }

    /// Where only a path is restored, the root stays as it is.
    fn head(&self, sink: &Tree) -> Result<TreeHead, SnapshotError> {
        let Snapshot { root_meta, root_attrs, entries, bytes, tree, id, .. } = self.snapshot;
        let totals = Totals { entries: *entries, bytes: *bytes, ..Totals::default() };
        let (source, owners) = (SourceDone::default(), Owners::default());
        if self.path.is_root() {
            let (root_meta, root_attrs) = (*root_meta, root_attrs.clone());
            let digest = tree.digest;
            return Ok(TreeHead { root_meta, root_attrs, digest, totals, last_run: None, owners, source });
        }
        if browse::at(self.store, self.snapshot, &self.path)?.is_none() {
            return Err(SnapshotError::NoPath { id: *id, path: self.path.to_string() });
        }
        let (root_meta, root_attrs) = (sink.root_meta, sink.root_attrs.clone());
        let digest = TreeDigest::default();
        Ok(TreeHead { root_meta, root_attrs, digest, totals, last_run: None, owners, source })
    }

    /// Checks every object that is needed, so that nothing is changed for a snapshot that is not whole. Returns a note that says how much is to be written.
    fn check(
        &self,
        tree: &StoredTree<'_>,
        compared: &Compared,
        root: Option<&Root>,
    ) -> Result<Option<String>, SessionError> {
        let needed = needed(tree, compared);
        let bytes: u64 = needed.iter().map(|object| object.len).sum();
        check_all(self.store, self.snapshot, &needed)?;
        let free = root.and_then(|root| rustix::fs::fstatvfs(root).ok()).map(|at| at.f_bavail * at.f_frsize);
        Ok(free.map(|free| {
            format!("{bytes} bytes come from the snapshot; {free} bytes are free at the destination")
        }))
    }
}

/// An object that a restore reads, and a file that it is for.
struct Needed {
    content: Content,
    len: u64,
    path: RelPath,
}

/// The objects of all files that are made or updated, each once.
fn needed(tree: &StoredTree<'_>, compared: &Compared) -> Vec<Needed> {
    let mut seen = HashSet::new();
    let mut needed = Vec::new();
    for dir in &compared.dirs {
        for (name, len) in written(dir) {
            let Some((content, _)) = tree.file(dir.source, name) else { continue };
            if let Some(content) = content.filter(|content| seen.insert(content.id)) {
                needed.push(Needed { content, len, path: path_in(&dir.path, name) });
            }
        }
    }
    needed
}

/// The names and lengths of the files that are written in a directory.
fn written(dir: &PlannedDir) -> impl Iterator<Item = (&[u8], u64)> {
    let mut steps = dir.plan.steps.iter().peekable();
    (0..).zip(&dir.listing).filter_map(move |(index, entry)| {
        let (_, step) = steps.next_if(|(at, _)| *at == index)?;
        match entry.kind {
            Kind::File { size } if *step != Step::Meta => Some((entry.name, size)),
            _ => None,
        }
    })
}

fn check_all(store: &Store, snapshot: &Snapshot, needed: &[Needed]) -> Result<(), SnapshotError> {
    let (next, bad) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(object) = needed.get(next.fetch_add(1, Relaxed)) {
            if let Err(error) = store.check(&object.content, object.len) {
                tracing::error!(path = %object.path, %error, "an object is needed");
                bad.lock().unwrap_or_else(PoisonError::into_inner).push(object.path.clone());
            }
        }
    };
    std::thread::scope(|scope| {
        (1..cores().min(needed.len().div_ceil(64))).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    let mut bad = bad.into_inner().unwrap_or_else(PoisonError::into_inner);
    bad.sort_unstable();
    match bad.first() {
        None => Ok(()),
        Some(first) => {
            let path = first.to_string();
            Err(SnapshotError::NotWhole { id: snapshot.id, count: bad.len() as u64, path })
        }
    }
}

/// The tree of a snapshot, read directory by directory as a comparison asks for it.
#[derive(Debug)]
struct StoredTree<'a> {
    restore: &'a Restore<'a>,
    /// What the folders on the way to the path look like at the sink, as far as they are there.
    way_there: Vec<(Meta, AttrsBuf)>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    dirs: Vec<Dir>,
    asked: VecDeque<DirId>,
}

#[derive(Debug)]
struct Dir {
    folder: FolderRef,
    path: RelPath,
    /// Once it was read.
    read: Option<Read>,
}

#[derive(Debug)]
struct Read {
    first_child: DirId,
    /// In the order of their names.
    files: Vec<File>,
}

#[derive(Debug)]
struct File {
    name: Box<[u8]>,
    content: Option<Content>,
    len: u64,
    mtime: Time,
}

impl<'a> StoredTree<'a> {
    fn new(restore: &'a Restore<'a>, sink: &Tree) -> Self {
        let root = Dir { folder: restore.snapshot.tree, path: RelPath::root(), read: None };
        let state = State { dirs: vec![root], asked: VecDeque::new() };
        Self { restore, way_there: way_there(sink, &restore.path), state: Mutex::new(state) }
    }

    /// The name in this folder that leads to the path that is restored; `None` in the path itself, and below it.
    fn way(&self, dir: &RelPath) -> Option<&'a [u8]> {
        self.restore.path.names().nth(dir.names().count()).filter(|_| self.restore.path.starts_with(dir))
    }

    /// Reads a folder. Of one on the way to the path there is only the next name; of a path, hard links to files outside of it are files of their own.
    fn read(&self, dir: &Dir) -> Result<Folder, SnapshotError> {
        let folder = self.restore.store.folder(&dir.folder)?;
        if self.restore.path.is_root() {
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
            let is_on_the_way =
                way.is_some() && dir.path.join(name).is_ok_and(|path| path != self.restore.path);
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

    /// Makes a file of a hard link that leads out of the path that is restored.
    fn inside(&self, node: Node) -> Result<Node, SnapshotError> {
        let What::HardLink(leader) = &node.what else { return Ok(node) };
        let outside = RelPath::parse(leader).ok().filter(|leader| !leader.starts_with(&self.restore.path));
        let Some(leader) = outside else { return Ok(node) };
        Ok(browse::at(self.restore.store, self.restore.snapshot, &leader)?.unwrap_or(node))
    }

    /// A folder on the way to the path stays as the sink has it.
    fn as_it_is<'e>(&'e self, dir: &Dir, own: Entry<'e>) -> Entry<'e> {
        match self.way_there.get(dir.path.names().count()) {
            Some((meta, attrs)) => Entry { meta: *meta, attrs: attrs.as_attrs(), ..own },
            None => own,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The content of a file, and its length and time in the snapshot.
    fn file(&self, dir: DirId, name: &[u8]) -> Option<(Option<Content>, OfStore)> {
        let state = self.lock();
        let files = &state.dirs.get(dir as usize)?.read.as_ref()?.files;
        let nth = files.binary_search_by(|file| (*file.name).cmp(name)).ok()?;
        let File { content, len, mtime, .. } = files[nth];
        Some((content, OfStore { start: 0, len, mtime }))
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
        let read = dir.read.get_or_insert_with(|| Read { first_child: next, files: files(&folder) });
        let first_child = read.first_child;
        if is_new {
            let names = folder.listing.iter().filter(|entry| entry.kind == Kind::Dir).map(|entry| entry.name);
            for (name, child) in names.zip(&folder.children) {
                let path = path.join(name).unwrap_or_else(|_| path.clone());
                state.dirs.push(Dir { folder: *child, path, read: None });
            }
        }
        let children = folder.children.iter().map(|child| child.digest).collect();
        Ok(Listed { dir: id, first_child, children, listing: folder.listing, rules: Box::default() })
    }
}

/// The metadata of the folders of a tree that lead to a path, as far as they are there.
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

fn files(folder: &Folder) -> Vec<File> {
    let mut with_content = files_of(folder).map(|(entry, content, _)| (entry.name, content)).peekable();
    let regular = folder.listing.iter().filter_map(|entry| match entry.kind {
        Kind::File { size } => Some((entry, size)),
        _ => None,
    });
    let file = regular.map(|(entry, len)| {
        let content = with_content.next_if(|(name, _)| *name == entry.name).map(|(_, content)| content);
        File { name: entry.name.into(), content, len, mtime: entry.meta.mtime }
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
            return SourceFile::stored(self.restore.store.dir().try_clone_to_owned()?, of);
        };
        let open = self.restore.store.content(&content).map_err(io::Error::other)?;
        let fd = open.file.as_fd().try_clone_to_owned()?;
        SourceFile::stored(fd, OfStore { start: open.start, ..of })
    }
}
