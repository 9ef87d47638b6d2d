//! Whether the destination has room for what a run writes: a lower bound of the bytes that it needs against the free
//! ones.
//!
//! Only a run that cannot fit may be refused, so whatever may need no blocks counts nothing: `syncer/doc/design.md`
//! says what that is.

use std::{
    collections::HashSet,
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use contract::{DeleteTiming, RunParams, WriteMode};
use rustix::{
    fs::{AtFlags, Dir, Mode, OFlags},
    process::geteuid,
};

use crate::{
    entry::Kind,
    monitor::Monitor,
    path::RelPath,
    plan::Step,
    root::Root,
    session::{
        plan::{
            need::MIN_IN_PLACE_BYTES,
            planned::{Compared, PlannedDir, file_in},
        },
        session_error::{SessionError, go_on},
    },
    tree::{Tree, dir::Totals},
    wire::MAX_PACKED_BYTES,
};

const EXT4: i64 = 0xef53;
const XFS: i64 = 0x5846_5342;
const TMPFS: i64 = 0x0102_1994;

/// What the file system of a destination says of itself.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    /// The destination, to look where other file systems are mounted in it.
    root: Arc<Root>,
    /// Bytes that this process may still write, with those of staging, which a run uses or removes.
    free: u64,
    /// The length of a block in bytes, at least 1.
    block: u64,
    sharing: Sharing,
}

/// Whether files may have blocks in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sharing {
    /// Each file has its own blocks for all its bytes.
    Never,
    /// A file of at least a block has them; a smaller one may be kept in its inode.
    NotBlocks,
    /// What is like a file of the destination may be a clone of it.
    Clones,
}

impl Room {
    /// Asks the file system of `root`. `None` where nothing can be said: it compresses, is on another machine, or is
    /// not known.
    pub(crate) fn of(root: &Root, source: Option<&Root>) -> Option<Self> {
        let stat = rustix::fs::fstatfs(root).ok()?;
        let is_local = source.is_some();
        let shares_with_source = source.is_some_and(|source| device(source) == device(root));
        let sharing = match stat.f_type {
            EXT4 => Sharing::NotBlocks,
            TMPFS => Sharing::Never,
            XFS if shares_with_source => return None,
            XFS if is_local => Sharing::Never,
            XFS => Sharing::Clones,
            _ => return None,
        };
        let block = u64::try_from(stat.f_frsize).ok().filter(|block| *block > 0)?;
        // Root also has what is reserved for it. A tmpfs without a limit has no blocks at all.
        let blocks = if geteuid().is_root() { stat.f_bfree } else { stat.f_bavail };
        if stat.f_blocks == 0 {
            return None;
        }
        let free = blocks.saturating_mul(block).saturating_add(staged_bytes(root).ok()?);
        let root = Arc::new(root.again().ok()?);
        Some(Self { root, free, block, sharing })
    }

    /// The bytes that a run needs at least, and those that it may have, where these are less.
    ///
    /// # Errors
    /// Where the run is stopped.
    pub(crate) fn lacks(
        &self,
        params: &RunParams,
        source: &Totals,
        sink: &Tree,
        planned: &Compared,
        deletes: bool,
        monitor: &Monitor,
    ) -> Result<Option<(u64, u64)>, SessionError> {
        let holes = if params.preserve.sparse { source.sparse } else { 0 };
        let needed = |elsewhere: &HashSet<&RelPath>| {
            let mut needed = NeededBytes::new(self, params, sink);
            for dir in planned.dirs.iter().filter(|dir| !elsewhere.contains(&dir.path)) {
                go_on(monitor)?;
                needed.add(dir, sink);
            }
            Ok::<_, SessionError>(needed.at_least().saturating_sub(holes))
        };
        let freed = match params.delete_timing {
            DeleteTiming::Before if deletes => self.freed(sink, planned),
            _ => 0,
        };
        let free = self.free.saturating_add(freed);
        // Each folder is opened for this, which only a run that may not fit has to pay for.
        let is_short = needed(&HashSet::new())? > free;
        let bytes = if is_short { needed(&self.elsewhere(planned, monitor)?)? } else { 0 };
        Ok((bytes > free).then_some((bytes, free)))
    }

    /// Finds the planned directories that lie on other file systems, which are mounted in the destination and have room
    /// of their own.
    fn elsewhere<'p>(
        &self,
        planned: &'p Compared,
        monitor: &Monitor,
    ) -> Result<HashSet<&'p RelPath>, SessionError> {
        let here = device(&self.root);
        let mut elsewhere = HashSet::new();
        for dir in &planned.dirs {
            go_on(monitor)?;
            let is_elsewhere = match dir.sink {
                // It is made where its parent is, which comes before it.
                None => dir.path.split_last().is_some_and(|(parent, _)| elsewhere.contains(&parent)),
                Some(_) => self.root.dir(&dir.path).is_ok_and(|there| device(&there) != here),
            };
            if is_elsewhere {
                elsewhere.insert(&dir.path);
            }
        }
        Ok(elsewhere)
    }

    /// The most that deletes give back.
    fn freed(&self, sink: &Tree, planned: &Compared) -> u64 {
        let files = planned.dirs.iter().flat_map(|dir| {
            let id = dir.sink.filter(|_| !dir.plan.deletes.is_empty())?;
            Some(deleted_bytes(dir, sink, id, self))
        });
        files.fold(0, u64::saturating_add)
    }

    fn rounded(&self, size: u64) -> u64 {
        size.checked_next_multiple_of(self.block).unwrap_or(u64::MAX)
    }
}

/// What the files take that a plan deletes in one directory and below.
fn deleted_bytes(dir: &PlannedDir, sink: &Tree, id: u32, room: &Room) -> u64 {
    let there = &sink.dirs[id as usize];
    let mut child = there.first_child;
    let (mut bytes, mut left) = (0u64, Vec::new());
    for (index, entry) in (0..).zip(&there.listing) {
        if dir.plan.deletes.binary_search(&index).is_ok() {
            match entry.kind {
                Kind::File { size } => bytes = bytes.saturating_add(room.rounded(size)),
                Kind::Dir => left.push(child),
                _ => {}
            }
        }
        child += u32::from(entry.kind == Kind::Dir);
    }
    while let Some(id) = left.pop() {
        let there = &sink.dirs[id as usize];
        left.extend(there.first_child..there.first_child + there.listing.dirs());
        let sizes = there.listing.iter().map(|entry| match entry.kind {
            Kind::File { size } => room.rounded(size),
            _ => 0,
        });
        bytes = sizes.fold(bytes, u64::saturating_add);
    }
    bytes
}

/// The files of a plan, added up.
struct NeededBytes<'a> {
    room: &'a Room,
    in_place: bool,
    /// Whether a large new file may be like one of the destination.
    has_large: bool,
    /// Blocks of what is new or replaces a file.
    written: u64,
    /// Blocks that replaced files give back, each when its successor is there.
    given_back: u64,
    /// What becomes smaller gives back so much more than it takes.
    shrunk: u64,
    /// The file that takes most while it is staged.
    largest: u64,
    /// The large new file that takes most, where files may be clones.
    largest_unlike: u64,
}

impl<'a> NeededBytes<'a> {
    fn new(room: &'a Room, params: &RunParams, sink: &Tree) -> Self {
        let is_large = |size| size > MAX_PACKED_BYTES;
        let mut entries = sink.dirs.iter().flat_map(|dir| &dir.listing);
        let has_large = room.sharing == Sharing::Clones
            && entries.any(|entry| matches!(entry.kind, Kind::File { size } if is_large(size)));
        let in_place = params.write == WriteMode::InPlace;
        Self {
            room,
            in_place,
            has_large,
            written: 0,
            given_back: 0,
            shrunk: 0,
            largest: 0,
            largest_unlike: 0,
        }
    }

    fn add(&mut self, dir: &PlannedDir, sink: &Tree) {
        let mut there = dir.sink.map(|id| sink.dirs[id as usize].listing.iter().peekable());
        for (step, entry) in dir.steps() {
            let Kind::File { size } = entry.kind else { continue };
            match step {
                Step::Meta => {}
                Step::Create | Step::Replace { .. } => self.add_new(size),
                Step::Update => {
                    let old = there.as_mut().and_then(|there| file_in(there, entry.name));
                    self.add_update(size, old.map_or(0, |(len, _)| len));
                }
            }
        }
    }

    fn add_new(&mut self, size: u64) {
        let bytes = self.room.rounded(size);
        match self.room.sharing {
            Sharing::NotBlocks if size < self.room.block => {}
            Sharing::Clones if size > MAX_PACKED_BYTES => {
                self.largest_unlike = self.largest_unlike.max(bytes);
            }
            _ => {
                self.written = self.written.saturating_add(bytes);
                self.largest = self.largest.max(bytes);
            }
        }
    }

    fn add_update(&mut self, size: u64, old: u64) {
        let (new_bytes, old_bytes) = (self.room.rounded(size), self.room.rounded(old));
        self.shrunk = self.shrunk.saturating_add(old_bytes.saturating_sub(new_bytes));
        self.given_back = self.given_back.saturating_add(old_bytes);
        let is_in_place = self.in_place && old.min(size) >= MIN_IN_PLACE_BYTES;
        match self.room.sharing {
            Sharing::Clones => {}
            Sharing::NotBlocks if size < self.room.block => {}
            _ => {
                self.written = self.written.saturating_add(new_bytes);
                self.largest = self.largest.max(if is_in_place { 0 } else { new_bytes });
            }
        }
    }

    /// When all content is there, no delete was made yet; and the largest file was staged beside what it replaces.
    fn at_least(&self) -> u64 {
        let unlike = if self.has_large { 0 } else { self.largest_unlike };
        let in_the_end = self.written.saturating_add(unlike).saturating_sub(self.given_back);
        in_the_end.max(self.largest.max(unlike).saturating_sub(self.shrunk))
    }
}

fn device(dir: impl AsFd) -> Option<u64> {
    rustix::fs::fstat(dir).ok().map(|stat| stat.st_dev)
}

/// What runs before left in staging.
fn staged_bytes(root: &Root) -> io::Result<u64> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = |dir: BorrowedFd<'_>, name: &[u8]| rustix::fs::openat(dir, name, flags, Mode::empty());
    let staging = open(root.as_fd(), crate::path::OWN_DIR).and_then(|own| open(own.as_fd(), b"staging"));
    let staging = match staging {
        Err(rustix::io::Errno::NOENT) => return Ok(0),
        result => result?,
    };
    let mut bytes = 0u64;
    for entry in Dir::read_from(&staging)? {
        let stat = rustix::fs::statat(&staging, entry?.file_name(), AtFlags::SYMLINK_NOFOLLOW)?;
        bytes = bytes.saturating_add((stat.st_blocks as u64).saturating_mul(512));
    }
    Ok(bytes)
}
