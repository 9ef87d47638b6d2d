//! Checks whether the destination has room for a run, by comparing a lower bound of the bytes that it needs with the
//! free ones.
//!
//! Only a run that cannot fit may be refused, so files that may need no blocks count nothing; `syncer/doc/design.md`
//! names them.

use std::{
    collections::HashSet,
    io,
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

use contract::{DeleteTiming, Reason, RunParams, WriteMode, human};
use rustix::{
    fs::{AtFlags, Mode, OFlags},
    process::geteuid,
};

use crate::{
    compare_entries::Step,
    destination::is_long_enough,
    entry::Kind,
    measure::monitor::Monitor,
    path::RelPath,
    plan::{
        guards::refused::Refused,
        planned::{Compared, PlannedDir, file_in},
    },
    session_error::{SessionError, go_on},
    sys::root::{Root, each_name},
    tree::{Tree, dir::Totals},
    wire::MAX_PACKED_BYTES,
};

const EXT4: i64 = 0xef53;
const XFS: i64 = 0x5846_5342;
const TMPFS: i64 = 0x0102_1994;

/// The free space of a destination's file system, and its ability to share blocks.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    /// The destination, to find file systems that are mounted in it.
    root: Arc<Root>,
    /// The number of bytes that this process may still write, including the bytes in staging, which a run uses or
    /// frees.
    free: u64,
    /// The length of a block in bytes, at least 1.
    block: u64,
    sharing: Sharing,
    /// Bytes of holes in the files that are written, as far as the totals of the source do not have them.
    holes: u64,
}

/// Whether files can share blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sharing {
    /// Each file has its own blocks for all its bytes.
    Never,
    /// Files of at least a block have their own; a smaller one may be kept in its inode.
    NotBlocks,
    /// A file that is similar to one of the destination may become a clone of it.
    Clones,
}

/// A run that needs more bytes, at least, than are free.
#[derive(Debug)]
struct TooFewBytes {
    needed: u64,
    free: u64,
}

impl Room {
    /// Reads the state of `root`'s file system. `None` where no lower bound holds: it compresses, is remote, or is of
    /// an unknown type.
    pub(crate) fn of(root: &Root, source: Option<BorrowedFd<'_>>) -> Option<Self> {
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
        // Root may also use the reserved blocks. A tmpfs without a limit reports no blocks at all.
        let blocks = if geteuid().is_root() { stat.f_bfree } else { stat.f_bavail };
        if stat.f_blocks == 0 {
            return None;
        }
        let free = blocks.saturating_mul(block).saturating_add(staged_bytes(root).ok()?);
        let root = Arc::new(root.again().ok()?);
        Some(Self { root, free, block, sharing, holes: 0 })
    }

    /// Lets a run leave so many bytes as holes.
    pub(crate) fn with_holes(self, holes: u64) -> Self {
        Self { holes, ..self }
    }

    /// Returns the objection to a run that needs more bytes than are free.
    ///
    /// # Errors
    /// When the run is stopped.
    pub(super) fn refusal(
        &self,
        params: &RunParams,
        source: &Totals,
        sink: &Tree,
        planned: &Compared,
        deletes: bool,
        monitor: &Monitor,
    ) -> Result<Option<Refused>, SessionError> {
        let lacks = self.lacks(params, source, sink, planned, deletes, monitor)?;
        Ok(lacks.map(|TooFewBytes { needed, free }| Refused {
            reason: Reason::NotEnoughSpace,
            problem: format!(
                "the run needs at least {} at the destination, and {} are free",
                human::bytes(needed),
                human::bytes(free)
            ),
            remedy: "make room there",
        }))
    }

    /// Returns what is missing if fewer bytes are free than a run needs.
    fn lacks(
        &self,
        params: &RunParams,
        source: &Totals,
        sink: &Tree,
        planned: &Compared,
        deletes: bool,
        monitor: &Monitor,
    ) -> Result<Option<TooFewBytes>, SessionError> {
        let holes = if params.preserve.sparse { source.sparse.saturating_add(self.holes) } else { 0 };
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
        // This opens each folder, so only a run that may not fit pays for it.
        let is_short = needed(&HashSet::new())? > free;
        let bytes = if is_short { needed(&self.elsewhere(planned, monitor)?)? } else { 0 };
        Ok((bytes > free).then_some(TooFewBytes { needed: bytes, free }))
    }

    /// Returns the planned directories on other file systems that are mounted in the destination, which have room of
    /// their own.
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
                // A new directory is made on its parent's file system; parents come first.
                None => dir.path.split_last().is_some_and(|(parent, _)| elsewhere.contains(&parent)),
                Some(_) => self.root.dir(&dir.path).is_ok_and(|there| device(&there) != here),
            };
            if is_elsewhere {
                elsewhere.insert(&dir.path);
            }
        }
        Ok(elsewhere)
    }

    /// Returns an upper bound of the bytes that deletes free.
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

/// Returns the bytes of the files that a plan deletes in one directory and below.
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

/// The sums over the files of a plan, in bytes.
struct NeededBytes<'a> {
    room: &'a Room,
    in_place: bool,
    /// Whether a large new file may be similar to one of the destination.
    has_large: bool,
    /// The blocks of new files and of those that replace others.
    written: u64,
    /// The blocks that replaced files free, each when its successor is complete.
    given_back: u64,
    /// The bytes that files which become shorter free, less those that they take.
    shrunk: u64,
    /// The largest file that is staged beside the old one.
    largest: u64,
    /// The largest new file that may not be a clone, on a file system with clones.
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
                    self.add_update(size, old.map_or(0, |old| old.len));
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
        let is_in_place = self.in_place && is_long_enough(old, size);
        match self.room.sharing {
            Sharing::Clones => {}
            Sharing::NotBlocks if size < self.room.block => {}
            _ => {
                self.written = self.written.saturating_add(new_bytes);
                self.largest = self.largest.max(if is_in_place { 0 } else { new_bytes });
            }
        }
    }

    /// Returns the lower bound: the larger of the bytes after the transfer, before any delete, and the bytes while the
    /// largest file is staged beside its old version.
    fn at_least(&self) -> u64 {
        let unlike = if self.has_large { 0 } else { self.largest_unlike };
        let in_the_end = self.written.saturating_add(unlike).saturating_sub(self.given_back);
        in_the_end.max(self.largest.max(unlike).saturating_sub(self.shrunk))
    }
}

fn device(dir: impl AsFd) -> Option<u64> {
    rustix::fs::fstat(dir).ok().map(|stat| stat.st_dev)
}

/// Returns the bytes that earlier runs left in staging.
fn staged_bytes(root: &Root) -> io::Result<u64> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = |dir: BorrowedFd<'_>, name: &[u8]| rustix::fs::openat(dir, name, flags, Mode::empty());
    let staging = open(root.as_fd(), crate::path::OWN_DIR).and_then(|own| open(own.as_fd(), b"staging"));
    let staging = match staging {
        Err(rustix::io::Errno::NOENT) => return Ok(0),
        result => result?,
    };
    let mut bytes = 0u64;
    each_name(&staging, |name| {
        let stat = rustix::fs::statat(&staging, name, AtFlags::SYMLINK_NOFOLLOW)?;
        bytes = bytes.saturating_add((stat.st_blocks as u64).saturating_mul(512));
        Ok(())
    })?;
    Ok(bytes)
}
