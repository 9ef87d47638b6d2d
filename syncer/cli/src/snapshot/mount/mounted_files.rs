//! Answers the kernel's requests about mounted snapshots.

use std::{
    ffi::{OsStr, c_int},
    os::unix::ffi::OsStrExt as _,
    sync::{Arc, OnceLock},
    time::{Duration, SystemTime},
};

use fuser::{
    FileAttr, FileType, Filesystem, KernelConfig, Notifier, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEntry, ReplyLseek, ReplyOpen, ReplyXattr, Request,
    consts::{FUSE_DO_READDIRPLUS, FUSE_NO_OPENDIR_SUPPORT, FUSE_READDIRPLUS_AUTO},
};
use rustix::{fs::SeekFrom, io::Errno};
use syncer::{
    entry::{Meta, Time},
    snapshot::{
        browse::{Node, What},
        store::{Home, OpenContent},
    },
};

use super::{
    mode_under_acl::{NamedValue, left_by_acl},
    mounted_tree::{MountedNode, MountedTree, StoredNode, told},
    read_ahead::{ReadAhead, SmallFile},
};

/// How long the kernel may keep what it was told. Snapshots do not change.
const FOREVER: Duration = Duration::from_secs(86_400);

/// Content of at most so many bytes is checked before any of it is read.
const CHECKED_BYTES: u64 = 16 << 20;

/// Lets the kernel keep the names of a directory (`FOPEN_KEEP_CACHE` and `FOPEN_CACHE_DIR` of linux/fuse.h; before 4.20
/// it ignores the second).
const KEPT_NAMES: u32 = 1 << 1 | 1 << 3;

/// The files that were read last and stay open.
const OPEN_FILES: usize = 32;

/// The mode of the mount's own folders.
const OWN_MODE: u16 = 0o555;

/// The file system of a mount.
#[derive(Debug)]
pub(super) struct MountedFiles {
    tree: MountedTree,
    /// The one that was read last is at the end.
    open: Vec<OpenedFile>,
    ahead: ReadAhead,
    /// Whether the kernel knows that directories need not be opened.
    opens_no_dirs: bool,
}

/// A file whose content was found and checked.
#[derive(Debug)]
struct OpenedFile {
    number: u64,
    /// `None` for an empty one.
    content: Option<OpenContent>,
    len: u64,
}

impl MountedFiles {
    /// Serves a tree. `notifier` comes with the mount.
    pub(super) fn new(tree: MountedTree, notifier: Arc<OnceLock<Notifier>>) -> Self {
        let ahead = ReadAhead::start(Arc::clone(&tree.store), notifier);
        Self { tree, open: Vec::new(), ahead, opens_no_dirs: false }
    }

    fn attr(&self, number: u64) -> Result<FileAttr, Errno> {
        Ok(match self.tree.node(number)? {
            MountedNode::Fixed(_) => own_attr(number, FileType::Directory, 0),
            MountedNode::Name(target) => own_attr(number, FileType::Symlink, target.len() as u64),
            MountedNode::Stored(stored) => self.stored_attr(number, stored),
        })
    }

    fn stored_attr(&self, number: u64, StoredNode { node, names, .. }: &StoredNode) -> FileAttr {
        let (size, rdev) = match &node.what {
            What::File { len, .. } => (*len, 0),
            What::Symlink(target) => (target.len() as u64, 0),
            What::CharDevice(device) | What::BlockDevice(device) => (0, *device),
            What::Dir(_) | What::Fifo | What::HardLink(_) => (0, 0),
        };
        let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
        let Meta { mode, mtime, owner } = node.meta;
        let time = system_time(mtime);
        FileAttr {
            ino: number,
            size,
            blocks: self.blocks(node, size),
            atime: time,
            mtime: time,
            ctime: time,
            crtime: time,
            kind: kind_of(&node.what),
            perm: mode & left_by_acl(node.attrs.as_attrs().iter()),
            nlink: *names,
            uid: owner.uid,
            gid: owner.gid,
            rdev: (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12),
            blksize: 4096,
            flags: 0,
        }
    }

    /// Returns the blocks that content takes in the store, by which programs see that a file has holes.
    fn blocks(&self, node: &Node, size: u64) -> u64 {
        let all = size.div_ceil(512);
        let What::File { content: Some(content), .. } = &node.what else { return all };
        if content.home != Home::Own {
            return all;
        }
        let alone = self.tree.store.content(content).ok();
        let stat = alone.and_then(|open| rustix::fs::fstat(&open.file).ok());
        stat.and_then(|stat| u64::try_from(stat.st_blocks).ok()).map_or(all, |blocks| blocks.min(all))
    }

    /// Returns a file, opened now unless it was read of late.
    fn open_file(&mut self, number: u64) -> Result<&OpenedFile, Errno> {
        let opened = match self.open.iter().position(|file| file.number == number) {
            Some(at) => self.open.remove(at),
            None => self.find_content(number)?,
        };
        if self.open.len() == OPEN_FILES {
            self.open.remove(0);
        }
        self.open.push(opened);
        self.open.last().ok_or(Errno::BADF)
    }

    fn find_content(&self, number: u64) -> Result<OpenedFile, Errno> {
        let (content, len) = match self.tree.node(number)? {
            MountedNode::Stored(StoredNode {
                node: Node { what: What::File { len, content }, .. }, ..
            }) => (*content, *len),
            _ => return Err(Errno::ISDIR),
        };
        let store = &self.tree.store;
        let content = content.map(|content| {
            if len <= CHECKED_BYTES {
                store.check(&content, len)?;
            }
            store.content(&content)
        });
        let content = content.transpose().map_err(|error| told(&error))?;
        Ok(OpenedFile { number, content, len })
    }

    /// Has the files read ahead that follow this one.
    fn read_ahead(&mut self, number: u64) {
        let tree = &self.tree;
        self.ahead.note(number, |from| {
            let file = |number| match tree.node(number).ok()? {
                MountedNode::Stored(StoredNode {
                    node: Node { what: What::File { len, content }, .. },
                    ..
                }) => Some((number, SmallFile::new(number, *content, *len))),
                _ => Some((number, None)),
            };
            (from..).map_while(file)
        });
    }

    fn read_file(&mut self, number: u64, offset: u64, size: u32) -> Result<Vec<u8>, Errno> {
        let OpenedFile { content, len, .. } = self.open_file(number)?;
        let Some(content) = content else { return Ok(Vec::new()) };
        let mut bytes = vec![0; len.saturating_sub(offset).min(size.into()) as usize];
        let read = content.slice().read_exact_at(&mut bytes, offset);
        read.map(|()| bytes).map_err(|_| Errno::IO)
    }

    /// Finds where data or a hole begins. Content in a pack is all data.
    fn seek(&mut self, number: u64, offset: i64, whence: c_int) -> Result<i64, Errno> {
        let OpenedFile { content, len, .. } = self.open_file(number)?;
        let offset = u64::try_from(offset).map_err(|_| Errno::INVAL)?;
        let to = match whence {
            SEEK_DATA => SeekFrom::Data(offset),
            SEEK_HOLE => SeekFrom::Hole(offset),
            _ => return Err(Errno::INVAL),
        };
        if offset >= *len {
            return Err(Errno::NXIO);
        }
        let found = match content.as_ref().filter(|content| content.is_alone) {
            Some(content) => rustix::fs::seek(&content.file, to)?,
            None if whence == SEEK_DATA => offset,
            None => *len,
        };
        i64::try_from(found).map_err(|_| Errno::OVERFLOW)
    }

    fn attrs(&self, number: u64) -> Result<Vec<NamedValue<'_>>, Errno> {
        Ok(match self.tree.node(number)? {
            MountedNode::Stored(stored) => stored.node.attrs.as_attrs().iter().collect(),
            _ => Vec::new(),
        })
    }
}

/// `lseek` to the next data, and to the next hole.
const SEEK_DATA: c_int = 3;
const SEEK_HOLE: c_int = 4;

/// Returns the attributes of an entry that is not in a snapshot: it belongs to the user who mounted them.
fn own_attr(number: u64, kind: FileType, size: u64) -> FileAttr {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    let time = SystemTime::UNIX_EPOCH;
    FileAttr {
        ino: number,
        size,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        crtime: time,
        kind,
        perm: OWN_MODE,
        // One means that nobody counted them.
        nlink: 1,
        uid,
        gid,
        rdev: 0,
        blksize: 4096,
        flags: 0,
    }
}

fn kind_of(what: &What) -> FileType {
    match what {
        What::File { .. } => FileType::RegularFile,
        What::Dir(_) => FileType::Directory,
        What::Symlink(_) => FileType::Symlink,
        What::Fifo | What::HardLink(_) => FileType::NamedPipe,
        What::CharDevice(_) => FileType::CharDevice,
        What::BlockDevice(_) => FileType::BlockDevice,
    }
}

/// Returns a time in the form in which the crate passes it on as it is: before 1970 it sends the seconds and the
/// nanoseconds of the distance, and the kernel adds the latter to the negative seconds.
fn system_time(Time { seconds, nanos }: Time) -> SystemTime {
    let distance = Duration::new(seconds.unsigned_abs(), nanos);
    let time = if seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(distance)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(distance)
    };
    time.unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Answers with the length of a value if the kernel asks for it, or else with the value.
fn reply_value(reply: ReplyXattr, size: u32, value: Result<Vec<u8>, Errno>) {
    match value {
        Err(error) => reply.error(error.raw_os_error()),
        Ok(value) if size == 0 => reply.size(value.len() as u32),
        Ok(value) if value.len() > size as usize => reply.error(Errno::RANGE.raw_os_error()),
        Ok(value) => reply.data(&value),
    }
}

impl Filesystem for MountedFiles {
    /// Offers the attributes of entries along with their names.
    fn init(&mut self, _: &Request<'_>, config: &mut KernelConfig) -> Result<(), c_int> {
        // A kernel without it asks for each.
        let _ = config.add_capabilities(FUSE_DO_READDIRPLUS | FUSE_READDIRPLUS_AUTO);
        self.opens_no_dirs = config.add_capabilities(FUSE_NO_OPENDIR_SUPPORT).is_ok();
        Ok(())
    }

    fn lookup(&mut self, _: &Request<'_>, parent: u64, name: &OsStr, reply: ReplyEntry) {
        let found = self.tree.lookup(parent, name.as_bytes());
        match found.and_then(|number| self.attr(number)) {
            Ok(attr) => reply.entry(&FOREVER, &attr, 0),
            Err(error) => reply.error(error.raw_os_error()),
        }
    }

    fn getattr(&mut self, _: &Request<'_>, number: u64, _: Option<u64>, reply: ReplyAttr) {
        match self.attr(number) {
            Ok(attr) => reply.attr(&FOREVER, &attr),
            Err(error) => reply.error(error.raw_os_error()),
        }
    }

    fn readlink(&mut self, _: &Request<'_>, number: u64, reply: ReplyData) {
        match self.tree.node(number) {
            Ok(MountedNode::Name(target)) => reply.data(target),
            Ok(MountedNode::Stored(StoredNode {
                node: Node { what: What::Symlink(target), .. }, ..
            })) => {
                reply.data(target);
            }
            Ok(_) => reply.error(Errno::INVAL.raw_os_error()),
            Err(error) => reply.error(error.raw_os_error()),
        }
    }

    /// Tells the kernel that directories need not be opened, as [`Self::open`] does of files, if it knows that.
    fn opendir(&mut self, _: &Request<'_>, _: u64, _: i32, reply: ReplyOpen) {
        if self.opens_no_dirs {
            reply.error(Errno::NOSYS.raw_os_error());
        } else {
            reply.opened(0, KEPT_NAMES);
        }
    }

    fn readdir(&mut self, _: &Request<'_>, dir: u64, _: u64, offset: i64, mut reply: ReplyDirectory) {
        let skip = usize::try_from(offset).unwrap_or(usize::MAX);
        let entries = match self.tree.entries(dir, skip) {
            Ok(entries) => entries,
            Err(error) => return reply.error(error.raw_os_error()),
        };
        for (nth, (name, number)) in entries.into_iter().enumerate() {
            let kind = match self.tree.node(number) {
                Ok(MountedNode::Stored(stored)) => kind_of(&stored.node.what),
                Ok(MountedNode::Name(_)) => FileType::Symlink,
                _ => FileType::Directory,
            };
            if reply.add(number, (skip + nth + 1) as i64, kind, OsStr::from_bytes(&name)) {
                break;
            }
        }
        reply.ok();
    }

    fn readdirplus(&mut self, _: &Request<'_>, dir: u64, _: u64, offset: i64, mut reply: ReplyDirectoryPlus) {
        let skip = usize::try_from(offset).unwrap_or(usize::MAX);
        let entries = match self.tree.entries(dir, skip) {
            Ok(entries) => entries,
            Err(error) => return reply.error(error.raw_os_error()),
        };
        for (nth, (name, number)) in entries.into_iter().enumerate() {
            let attr = match self.attr(number) {
                Ok(attr) => attr,
                Err(error) => return reply.error(error.raw_os_error()),
            };
            let next = (skip + nth + 1) as i64;
            if reply.add(number, next, OsStr::from_bytes(&name), &FOREVER, &attr, 0) {
                break;
            }
        }
        reply.ok();
    }

    /// Tells the kernel that files need not be opened: it asks for their bytes at once, and keeps what it was told.
    fn open(&mut self, _: &Request<'_>, _: u64, _: i32, reply: ReplyOpen) {
        reply.error(Errno::NOSYS.raw_os_error());
    }

    fn read(
        &mut self,
        _: &Request<'_>,
        number: u64,
        _: u64,
        offset: i64,
        size: u32,
        _: i32,
        _: Option<u64>,
        reply: ReplyData,
    ) {
        if offset == 0 {
            self.read_ahead(number);
        }
        match self.read_file(number, offset.max(0) as u64, size) {
            Ok(bytes) => reply.data(&bytes),
            Err(error) => reply.error(error.raw_os_error()),
        }
    }

    fn lseek(&mut self, _: &Request<'_>, number: u64, _: u64, offset: i64, whence: i32, reply: ReplyLseek) {
        match self.seek(number, offset, whence) {
            Ok(offset) => reply.offset(offset),
            Err(error) => reply.error(error.raw_os_error()),
        }
    }

    fn getxattr(&mut self, _: &Request<'_>, number: u64, name: &OsStr, size: u32, reply: ReplyXattr) {
        let value = self.attrs(number).and_then(|attrs| {
            let found = attrs.into_iter().find(|(other, _)| *other == name.as_bytes());
            found.map(|(_, value)| value.to_vec()).ok_or(Errno::NODATA)
        });
        reply_value(reply, size, value);
    }

    fn listxattr(&mut self, _: &Request<'_>, number: u64, size: u32, reply: ReplyXattr) {
        let names = self.attrs(number).map(|attrs| {
            attrs.into_iter().flat_map(|(name, _)| name.iter().copied().chain([0])).collect::<Vec<u8>>()
        });
        reply_value(reply, size, names);
    }
}
