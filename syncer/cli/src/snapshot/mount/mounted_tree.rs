//! The inodes of mounted snapshots. A directory of the store is read when it is first entered, and then known.

use std::{collections::HashMap, sync::Arc, time::SystemTime};

use rustix::io::Errno;
use syncer::{
    path::RelPath,
    snapshot::{
        Snapshot, SnapshotError, Store,
        browse::{Node, What, link_counts, nodes, root_node},
    },
};

/// The number of the root.
const TOP: u64 = 1;

/// The entries of a directory that the kernel is told of at once.
const ENTRIES_AT_ONCE: usize = 128;

/// An inode of the mount.
#[derive(Debug)]
pub(super) enum MountedNode {
    /// A directory of the mount itself.
    Fixed(Vec<(Vec<u8>, u64)>),
    /// A link of the mount itself, to the folder of a snapshot.
    Name(Vec<u8>),
    /// An entry of a snapshot.
    Stored(StoredNode),
}

/// An entry of a snapshot.
#[derive(Debug)]
pub(super) struct StoredNode {
    pub node: Node,
    /// The number of names.
    pub names: u32,
    snapshot: usize,
    /// What a directory has, by name, once it was read.
    children: Option<Vec<(Vec<u8>, MountedChild)>>,
}

#[derive(Debug, Clone)]
enum MountedChild {
    Inode(u64),
    /// A further name of what is at this path.
    Link(RelPath),
}

/// A snapshot that is mounted.
#[derive(Debug)]
struct MountedSnapshot {
    snapshot: Snapshot,
    /// The inode of its root.
    root: u64,
    /// How many further names entries have, by their paths, once somebody has looked into the snapshot.
    links: Option<HashMap<RelPath, u32>>,
}

/// All snapshots of a volume, by id, tag and time.
#[derive(Debug)]
pub(super) struct MountedTree {
    pub store: Arc<Store>,
    snapshots: Vec<MountedSnapshot>,
    /// By their numbers, from 1 on.
    nodes: Vec<MountedNode>,
    /// The path of each directory.
    paths: HashMap<u64, RelPath>,
}

impl MountedTree {
    /// Lays out these snapshots, of which the oldest comes first.
    pub(super) fn new<'s>(store: Store, snapshots: impl Iterator<Item = &'s Snapshot>) -> Self {
        let mut tree = Self {
            store: Arc::new(store),
            snapshots: Vec::new(),
            nodes: vec![MountedNode::Fixed(Vec::new())],
            paths: HashMap::new(),
        };
        let (mut ids, mut tags, mut times) = (Vec::new(), Vec::new(), Vec::new());
        for (number, snapshot) in snapshots.enumerate() {
            let root = tree.add(MountedNode::Stored(StoredNode {
                node: root_node(snapshot),
                names: 1,
                snapshot: number,
                children: None,
            }));
            tree.paths.insert(root, RelPath::root());
            let id = snapshot.id.to_string().into_bytes();
            // The newest of several counts.
            times.push((time_name(snapshot).into_bytes(), id.clone()));
            tags.extend(snapshot.tags.iter().map(|tag| (tag.replace('/', "%2F").into_bytes(), id.clone())));
            ids.push((id, root));
            tree.snapshots.push(MountedSnapshot { snapshot: snapshot.clone(), root, links: None });
        }
        let latest = ids.last().map(|(id, _)| [&b"by-id/"[..], &id[..]].concat());
        let folders = [("by-id", ids), ("by-tag", tree.names(tags)), ("by-time", tree.names(times))];
        let mut top: Vec<(Vec<u8>, u64)> = Vec::new();
        for (name, mut entries) in folders {
            entries.sort();
            top.push((name.into(), tree.add(MountedNode::Fixed(entries))));
        }
        if let Some(latest) = latest {
            top.push((b"latest".to_vec(), tree.add(MountedNode::Name(latest))));
        }
        tree.nodes[0] = MountedNode::Fixed(top);
        tree
    }

    /// Makes links to the folders of snapshots. Of equal names, the last one counts.
    fn names(&mut self, names: Vec<(Vec<u8>, Vec<u8>)>) -> Vec<(Vec<u8>, u64)> {
        let names: HashMap<Vec<u8>, Vec<u8>> = names.into_iter().collect();
        let link = |(name, id): (_, Vec<u8>)| {
            (name, self.add(MountedNode::Name([&b"../by-id/"[..], &id[..]].concat())))
        };
        names.into_iter().map(link).collect()
    }

    fn add(&mut self, node: MountedNode) -> u64 {
        self.nodes.push(node);
        self.nodes.len() as u64
    }

    /// Returns an inode.
    pub(super) fn node(&self, number: u64) -> Result<&MountedNode, Errno> {
        let at = usize::try_from(number.wrapping_sub(TOP)).map_err(|_| Errno::STALE)?;
        self.nodes.get(at).ok_or(Errno::STALE)
    }

    fn stored(&mut self, number: u64) -> Result<&mut StoredNode, Errno> {
        let at = usize::try_from(number.wrapping_sub(TOP)).map_err(|_| Errno::STALE)?;
        match self.nodes.get_mut(at) {
            Some(MountedNode::Stored(node)) => Ok(node),
            Some(_) => Err(Errno::NOTDIR),
            None => Err(Errno::STALE),
        }
    }

    /// Returns the inode of a name in a directory.
    pub(super) fn lookup(&mut self, dir: u64, name: &[u8]) -> Result<u64, Errno> {
        if let MountedNode::Fixed(entries) = self.node(dir)? {
            let found = entries.iter().find(|(other, _)| other == name);
            return found.map(|(_, number)| *number).ok_or(Errno::NOENT);
        }
        match self.child(dir, name)? {
            MountedChild::Inode(number) => Ok(number),
            MountedChild::Link(to) => {
                let snapshot = self.stored(dir)?.snapshot;
                self.resolve(snapshot, &to)
            }
        }
    }

    /// Returns some names and inodes in a directory, from the `skip`th on; none at its end.
    pub(super) fn entries(&mut self, dir: u64, skip: usize) -> Result<Vec<(Vec<u8>, u64)>, Errno> {
        if let MountedNode::Fixed(entries) = self.node(dir)? {
            return Ok(entries.iter().skip(skip).cloned().collect());
        }
        self.read_dir(dir)?;
        let stored = self.stored(dir)?;
        let all = stored.children.iter().flatten();
        let some: Vec<(Vec<u8>, MountedChild)> = all.skip(skip).take(ENTRIES_AT_ONCE).cloned().collect();
        let snapshot = stored.snapshot;
        let entries = some.into_iter().map(|(name, child)| match child {
            MountedChild::Inode(number) => Ok((name, number)),
            MountedChild::Link(to) => Ok((name, self.resolve(snapshot, &to)?)),
        });
        entries.collect()
    }

    fn child(&mut self, dir: u64, name: &[u8]) -> Result<MountedChild, Errno> {
        self.read_dir(dir)?;
        let children = self.stored(dir)?.children.as_deref().unwrap_or_default();
        let found = children.binary_search_by(|(other, _)| other.as_slice().cmp(name));
        found.ok().and_then(|at| children.get(at)).map(|(_, child)| child.clone()).ok_or(Errno::NOENT)
    }

    /// Returns the inode of the entry that a hard link leads to. That is no link itself.
    fn resolve(&mut self, snapshot: usize, path: &RelPath) -> Result<u64, Errno> {
        let mut at = self.snapshots.get(snapshot).ok_or(Errno::STALE)?.root;
        for name in path.names() {
            let MountedChild::Inode(below) = self.child(at, name)? else { return Err(Errno::IO) };
            at = below;
        }
        Ok(at)
    }

    /// Reads a directory, if it was not read before.
    fn read_dir(&mut self, number: u64) -> Result<(), Errno> {
        let stored = self.stored(number)?;
        let What::Dir(folder) = stored.node.what else { return Err(Errno::NOTDIR) };
        let snapshot = stored.snapshot;
        if stored.children.is_some() {
            return Ok(());
        }
        let folder = self.store.folder(&folder).map_err(|error| told(&error))?;
        let path = self.paths.get(&number).cloned().unwrap_or_default();
        let mut found = Vec::new();
        for (name, node) in nodes(&folder) {
            let link = match &node.what {
                What::HardLink(to) => Some(RelPath::parse(to).map_err(|_| Errno::IO)?),
                _ => None,
            };
            let child = match link {
                Some(to) => MountedChild::Link(to),
                None => MountedChild::Inode(self.add_stored(snapshot, node, &path, name)?),
            };
            found.push((name.to_vec(), child));
        }
        self.stored(number)?.children = Some(found);
        Ok(())
    }

    fn add_stored(&mut self, snapshot: usize, node: Node, dir: &RelPath, name: &[u8]) -> Result<u64, Errno> {
        let is_dir = matches!(node.what, What::Dir(_));
        let links = self.links(snapshot)?;
        if !is_dir && links.is_empty() {
            return Ok(self.add(MountedNode::Stored(StoredNode {
                node,
                names: 1,
                snapshot,
                children: None,
            })));
        }
        let path = dir.join(name).map_err(|_| Errno::NAMETOOLONG)?;
        let names = 1 + links.get(&path).copied().unwrap_or_default();
        let number = self.add(MountedNode::Stored(StoredNode { node, names, snapshot, children: None }));
        if is_dir {
            self.paths.insert(number, path);
        }
        Ok(number)
    }

    /// Returns how many further names the entries of a snapshot have. The first look into it reads its directories.
    fn links(&mut self, snapshot: usize) -> Result<&HashMap<RelPath, u32>, Errno> {
        let mounted = self.snapshots.get_mut(snapshot).ok_or(Errno::STALE)?;
        if mounted.links.is_none() {
            let counted = link_counts(&*self.store, &mounted.snapshot);
            mounted.links = Some(counted.map_err(|error| told(&error))?);
        }
        mounted.links.as_ref().ok_or(Errno::STALE)
    }
}

/// Turns an error of the store into one of a file system, and says in the log which object it is of.
pub(super) fn told(error: &SnapshotError) -> Errno {
    tracing::warn!("{}", contract::chain(error));
    Errno::IO
}

/// Returns the name of a snapshot in `by-time`: when it was begun, in UTC.
fn time_name(snapshot: &Snapshot) -> String {
    let seconds = u64::try_from(snapshot.began.seconds).unwrap_or_default();
    contract::timestamp(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds))
}
