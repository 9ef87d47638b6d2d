//! A tree's state, read without the engine: none of its code decides whether its result is right.
//!
//! Reads kind, mode, owner, modification time to the nanosecond, link target, size, content, device number, extended
//! attributes, access control lists and hard links of every entry, the root among them. A folder `.volferry` at the
//! root is not part of a tree. Directories are reached through `/proc/self/fd`, so paths may be longer than the kernel
//! takes at once.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fmt::Write as _,
    fs::{self, File, Metadata},
    os::{
        fd::AsRawFd as _,
        unix::{
            ffi::{OsStrExt as _, OsStringExt as _},
            fs::{FileTypeExt as _, MetadataExt as _},
        },
    },
    path::{Path, PathBuf},
};

use anyhow::Context as _;

/// Volferry's own folder, at the root of a destination.
const OWN_DIR: &[u8] = b".volferry";

/// The number of differences that are printed at most.
const MAX_SHOWN: usize = 40;

/// The kind of an entry, with the state that only this kind has.
#[derive(Clone, PartialEq, Eq)]
pub enum Kind {
    File(Vec<u8>),
    Dir,
    Symlink(Vec<u8>),
    Fifo,
    Socket,
    CharDevice(u64),
    BlockDevice(u64),
}

impl Kind {
    pub fn name(&self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Dir => "directory",
            Self::Symlink(_) => "symbolic link",
            Self::Fifo => "pipe",
            Self::Socket => "socket",
            Self::CharDevice(_) => "character device",
            Self::BlockDevice(_) => "block device",
        }
    }
}

/// The state of an entry.
#[derive(Clone, PartialEq, Eq)]
pub struct Node {
    pub kind: Kind,
    /// The twelve permission bits.
    pub mode: u32,
    /// User and group.
    pub owner: (u32, u32),
    /// Seconds and nanoseconds.
    pub mtime: (i64, i64),
    /// Extended attributes, access control lists among them, by name.
    pub attrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The smallest path in the tree that names the same file, which may be this one's; `None` where there is no other
    /// name.
    pub leader: Option<Vec<u8>>,
    /// Bytes that the file system has allocated.
    pub allocated: u64,
    /// The file system and the inode.
    identity: (u64, u64),
    /// Inode number and change time, which differ after any write, even of the same content.
    pub touched: (u64, i64, i64),
}

/// The attributes by which two trees are compared, beside kind, content and link targets.
#[derive(Debug, Clone, Copy)]
pub struct Aspects {
    pub modes: bool,
    pub owners: bool,
    pub times: bool,
    /// Extended attributes and access control lists.
    pub attrs: bool,
    /// The paths that name one file.
    pub links: bool,
    /// The root's own metadata.
    pub root: bool,
    /// Whether an entry is the same inode and was not written to.
    pub touched: bool,
}

/// The attributes that a copy has in common with its original.
pub const COPY: Aspects =
    Aspects { modes: true, owners: true, times: true, attrs: true, links: true, root: true, touched: false };

/// The attributes of a tree that do not change unless a process writes to it.
pub const UNTOUCHED: Aspects = Aspects { touched: true, ..COPY };

/// A tree's state at one moment, by the bytes of paths; the root is the empty path.
#[derive(Clone, PartialEq, Eq)]
pub struct Snapshot(BTreeMap<Vec<u8>, Node>);

impl Snapshot {
    /// Reads the tree at `root`.
    #[track_caller]
    pub fn of(root: &Path) -> Self {
        Self::read(root, Depth::Everything).unwrap_or_else(|error| panic!("{error:#}"))
    }

    /// Reads the tree at `root` as far as `depth` says.
    pub(crate) fn read(root: &Path, depth: Depth) -> anyhow::Result<Self> {
        let of_root = || root.display().to_string();
        let mut nodes = BTreeMap::new();
        let metadata = fs::metadata(root).with_context(of_root)?;
        nodes.insert(Vec::new(), Node::new(Kind::Dir, &metadata, read_attrs(&root.join("."), depth)?));
        read_dir(&File::open(root).with_context(of_root)?, b"", depth, &mut nodes).with_context(of_root)?;
        find_links(&mut nodes);
        Ok(Self(nodes))
    }

    /// Changes each entry, and leaves out those for which `change` returns false.
    pub(crate) fn retain(&mut self, mut change: impl FnMut(&[u8], &mut Node) -> bool) {
        self.0.retain(|path, node| change(path, node));
    }

    pub fn at(&self, path: &[u8]) -> Option<&Node> {
        self.0.get(path)
    }

    /// Returns only the entry at `path`.
    pub fn only(&self, path: &[u8]) -> Self {
        Self(
            self.0
                .iter()
                .filter(|(at, _)| *at == path)
                .map(|(at, node)| (at.clone(), node.clone()))
                .collect(),
        )
    }

    /// Returns all entries but the root, in the order of their paths.
    pub fn entries(&self) -> impl Iterator<Item = (&[u8], &Node)> {
        self.0.iter().map(|(path, node)| (path.as_slice(), node)).filter(|(path, _)| !path.is_empty())
    }

    /// Returns the paths of all entries but the root, in order and as they are shown.
    pub fn paths(&self) -> Vec<String> {
        self.entries().map(|(path, _)| show(path)).collect()
    }

    /// Returns whether any file has several names.
    pub fn has_links(&self) -> bool {
        self.0.values().any(|node| node.leader.is_some())
    }

    /// Returns the path and the content of every file.
    pub fn files(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.entries().filter_map(|(path, node)| match &node.kind {
            Kind::File(content) => Some((path, content.as_slice())),
            _ => None,
        })
    }

    /// Returns the differences of `other` from this tree, one per line, by path.
    pub fn differences(&self, other: &Self, aspects: Aspects) -> Vec<String> {
        let mut found = Vec::new();
        for (path, node) in &self.0 {
            match other.0.get(path) {
                None => found.push(format!("{}: missing ({})", show(path), node.kind.name())),
                Some(_) if path.is_empty() && !aspects.root => {}
                Some(there) => node.compare(there, path, aspects, &mut found),
            }
        }
        let surplus = other.0.iter().filter(|(path, _)| !self.0.contains_key(*path));
        found.extend(surplus.map(|(path, node)| format!("{}: surplus ({})", show(path), node.kind.name())));
        found
    }

    /// Compares this tree with `expected`. Panics with the differences, if there are any.
    #[track_caller]
    pub fn assert_like(&self, expected: &Self, aspects: Aspects, what: &str) {
        let found = expected.differences(self, aspects);
        if found.is_empty() {
            return;
        }
        let mut text = format!("{what}: {} differences", found.len());
        found.iter().take(MAX_SHOWN).for_each(|line| {
            let _ = write!(text, "\n  {line}");
        });
        panic!("{text}");
    }
}

/// Checks that `copy` equals `original` in all attributes that a copy keeps.
#[track_caller]
pub fn assert_copy(copy: &Path, original: &Path, what: &str) {
    Snapshot::of(copy).assert_like(&Snapshot::of(original), COPY, what);
}

/// Returns the bytes of a path, escaped to one line.
pub fn show(path: &[u8]) -> String {
    match path {
        [] => ".".into(),
        path => path.escape_ascii().to_string(),
    }
}

impl Node {
    fn new(kind: Kind, metadata: &Metadata, attrs: BTreeMap<Vec<u8>, Vec<u8>>) -> Self {
        Self {
            kind,
            attrs,
            leader: None,
            allocated: metadata.blocks() * 512,
            identity: (metadata.dev(), metadata.ino()),
            mode: metadata.mode() & 0o7777,
            owner: (metadata.uid(), metadata.gid()),
            mtime: (metadata.mtime(), metadata.mtime_nsec()),
            touched: (metadata.ino(), metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    fn compare(&self, there: &Self, path: &[u8], aspects: Aspects, found: &mut Vec<String>) {
        let mut differ = |different: bool, text: &dyn Fn() -> String| {
            if different {
                found.push(format!("{}: {}", show(path), text()));
            }
        };
        differ(self.kind != there.kind, &|| self.kind.difference(&there.kind));
        // The kernel gives every link the mode 0777.
        let modes = aspects.modes && !matches!(self.kind, Kind::Symlink(_));
        // A file whose owner is not kept also loses its set-id bits.
        let keeps_ids = self.owner == there.owner || !matches!(self.kind, Kind::File(_));
        let mode = if keeps_ids { self.mode } else { self.mode & !0o6000 };
        differ(modes && mode != there.mode, &|| format!("mode {:o}, not {mode:o}", there.mode));
        differ(aspects.owners && self.owner != there.owner, &|| {
            format!("owner {:?}, not {:?}", there.owner, self.owner)
        });
        differ(aspects.times && self.mtime != there.mtime, &|| {
            format!("mtime {:?}, not {:?}", there.mtime, self.mtime)
        });
        differ(aspects.attrs && self.attrs != there.attrs, &|| {
            format!("attributes {}, not {}", show_attrs(&there.attrs), show_attrs(&self.attrs))
        });
        differ(aspects.links && self.leader != there.leader, &|| {
            let name = |leader: &Option<Vec<u8>>| leader.as_deref().map_or("nothing".into(), show);
            format!("linked with {}, not {}", name(&there.leader), name(&self.leader))
        });
        differ(aspects.touched && self.touched != there.touched, &|| {
            format!("inode and ctime {:?}, not {:?}", there.touched, self.touched)
        });
    }
}

impl Kind {
    fn difference(&self, there: &Self) -> String {
        match (self, there) {
            (Self::File(a), Self::File(b)) if a.len() != b.len() => {
                format!("{} bytes, not {}", b.len(), a.len())
            }
            (Self::File(a), Self::File(b)) => {
                let at = a.iter().zip(b).position(|(a, b)| a != b).unwrap_or(a.len());
                format!("content differs from byte {at} on")
            }
            (Self::Symlink(a), Self::Symlink(b)) => format!("points to {}, not {}", show(b), show(a)),
            (Self::CharDevice(a), Self::CharDevice(b)) | (Self::BlockDevice(a), Self::BlockDevice(b)) => {
                format!("device {b:#x}, not {a:#x}")
            }
            _ => format!("a {}, not a {}", there.name(), self.name()),
        }
    }
}

fn find_links(nodes: &mut BTreeMap<Vec<u8>, Node>) {
    let mut names: BTreeMap<(u64, u64), Vec<Vec<u8>>> = BTreeMap::new();
    for (path, node) in nodes.iter().filter(|(_, node)| node.kind != Kind::Dir) {
        names.entry(node.identity).or_default().push(path.clone());
    }
    for names in names.into_values().filter(|names| names.len() > 1) {
        for name in &names {
            nodes.get_mut(name).unwrap().leader = Some(names[0].clone());
        }
    }
}

/// How much of a tree is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    Everything,
    /// No content of files, which seem empty, and no extended attributes.
    Outline,
}

fn read_dir(
    dir: &File,
    path: &[u8],
    depth: Depth,
    nodes: &mut BTreeMap<Vec<u8>, Node>,
) -> anyhow::Result<()> {
    let here = PathBuf::from(format!("/proc/self/fd/{}", dir.as_raw_fd()));
    for entry in fs::read_dir(&here).with_context(|| show(path))? {
        let name = entry?.file_name().into_vec();
        if path.is_empty() && name == OWN_DIR {
            continue;
        }
        let at = here.join(OsStr::from_bytes(&name));
        let path = if path.is_empty() { name } else { [path, b"/", &name].concat() };
        let node = read_node(&at, depth).with_context(|| show(&path))?;
        if node.kind == Kind::Dir {
            read_dir(&File::open(&at).with_context(|| show(&path))?, &path, depth, nodes)?;
        }
        nodes.insert(path, node);
    }
    Ok(())
}

fn read_node(at: &Path, depth: Depth) -> anyhow::Result<Node> {
    let metadata = fs::symlink_metadata(at)?;
    Ok(Node::new(read_kind(at, &metadata, depth)?, &metadata, read_attrs(at, depth)?))
}

/// Returns the attributes that a copy keeps; labels of SELinux and the like belong to the machine.
fn read_attrs(at: &Path, depth: Depth) -> anyhow::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    if depth == Depth::Outline {
        return Ok(BTreeMap::new());
    }
    let mut names = vec![0; 64 << 10];
    let len = rustix::fs::llistxattr(at, &mut names[..]).unwrap_or(0);
    let kept = |name: &&[u8]| {
        let prefixes: [&[u8]; 4] = [b"user.", b"trusted.", b"security.capability", b"system.posix_acl_"];
        // XFS shows access control lists a second time under such names.
        !name.starts_with(b"trusted.SGI_ACL_") && prefixes.iter().any(|prefix| name.starts_with(prefix))
    };
    let value = |name: &[u8]| {
        let mut value = vec![0; 64 << 10];
        let len = rustix::fs::lgetxattr(at, name, &mut value[..])?;
        Ok((name.to_vec(), value[..len].to_vec()))
    };
    names[..len].split(|&byte| byte == 0).filter(kept).map(value).collect()
}

fn show_attrs(attrs: &BTreeMap<Vec<u8>, Vec<u8>>) -> String {
    let each =
        attrs.iter().map(|(name, value)| format!("{}={}", show(name), show(&value[..value.len().min(60)])));
    format!("[{}]", each.collect::<Vec<_>>().join(" "))
}

fn read_kind(at: &Path, metadata: &Metadata, depth: Depth) -> std::io::Result<Kind> {
    let kind = metadata.file_type();
    Ok(match () {
        () if kind.is_file() && depth == Depth::Outline => Kind::File(Vec::new()),
        () if kind.is_file() => Kind::File(fs::read(at)?),
        () if kind.is_dir() => Kind::Dir,
        () if kind.is_symlink() => Kind::Symlink(fs::read_link(at)?.into_os_string().into_vec()),
        () if kind.is_fifo() => Kind::Fifo,
        () if kind.is_socket() => Kind::Socket,
        () if kind.is_char_device() => Kind::CharDevice(metadata.rdev()),
        () => Kind::BlockDevice(metadata.rdev()),
    })
}
