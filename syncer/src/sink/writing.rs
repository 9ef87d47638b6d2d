//! The target of file content: a tree, where files are staged and then renamed, or the parts of a device, in place.

use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
    sync::atomic::Ordering::Relaxed,
};

use crate::{
    attrs::Attrs,
    destination::{Arrived, Destination, Device, EntryAt, Leftover, Staged, is_long_enough, is_too_large},
    entry::{Meta, Time},
    hash::ContentId,
    path::RelPath,
    plan::{
        needed_files::{Need, NeededDir},
        run_state::Run,
    },
    snapshot::create::WrittenFiles,
    source::source_file::LastDir,
};

/// The target that files are written to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum WriteTarget<'a> {
    /// A tree.
    Tree(&'a Destination),
    /// A device, whose parts are the files.
    Device(&'a Device),
}

/// References to the state that every thread that writes files needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writing<'a> {
    pub store: WriteTarget<'a>,
    pub run: &'a Run<'a>,
    /// Records the files that are written, if the run takes a snapshot.
    pub written: Option<&'a WrittenFiles>,
}

impl<'a> Writing<'a> {
    pub(crate) fn is_device(&self) -> bool {
        matches!(self.store, WriteTarget::Device(_))
    }

    /// Returns the tree that is written to.
    ///
    /// # Errors
    /// If the target is a device, which has no files except its parts.
    pub(crate) fn tree(&self) -> io::Result<&'a Destination> {
        match self.store {
            WriteTarget::Tree(destination) => Ok(destination),
            WriteTarget::Device(_) => Err(io::Error::other("a device is written to in its parts only")),
        }
    }

    /// Returns whether another run is known to have taken the destination over.
    pub(crate) fn is_lost(&self) -> bool {
        self.tree().is_ok_and(|tree| tree.state().is_lost())
    }

    /// Opens a file of the destination for reading.
    pub(crate) fn open_file(&self, path: &RelPath) -> io::Result<OwnedFd> {
        self.tree()?.open_file(path)
    }

    /// Returns whether a run that was cut off left a leftover of the file.
    pub(crate) fn has_leftover(&self, need: &Need) -> bool {
        self.tree().is_ok_and(|tree| tree.has_leftover(&need.path()))
    }

    /// Returns the leftover of the file.
    pub(crate) fn leftover(&self, need: &Need) -> Option<Leftover<Staged>> {
        self.tree().ok()?.leftover(&need.path(), self.run.monitor)
    }

    /// Returns the blocks recorded for a leftover, if it is of a file as long as the needed one.
    pub(crate) fn arrived(&self, leftover: &Staged, need: &Need) -> Option<Arrived> {
        self.tree().ok()?.arrived(leftover).filter(|arrived| arrived.blocks.file_len() == need.size)
    }

    /// Begins an update in place of a large file; returns `None` if the file is to be replaced by a new one.
    pub(crate) fn stage_over(&self, need: &Need) -> Option<Staged> {
        let tree = match self.store {
            WriteTarget::Tree(tree) => tree,
            WriteTarget::Device(device) => return part_of(device, need).ok(),
        };
        let path = need.path();
        let old = need.old.as_ref().filter(|old| old.path == path)?;
        is_long_enough(old.len, need.size).then(|| tree.stage_over(&path)).flatten()
    }

    /// Stages a large file whose content arrives in pieces.
    pub(crate) fn stage(&self, need: &Need) -> io::Result<Staged> {
        match self.store {
            WriteTarget::Tree(tree) => {
                self.stage_over(need).map_or_else(|| tree.stage_file(&need.path()), Ok)
            }
            WriteTarget::Device(device) => part_of(device, need),
        }
    }

    /// Creates a file whose content is written as a whole, and which gets this `mode` in the end. `dir` caches the
    /// directory used last.
    pub(crate) fn create(&self, need: &Need, dir: &mut LastDir, mode: u16) -> io::Result<Staged> {
        let tree = self.tree()?;
        match need.dir.hidden(tree) {
            Some(hidden) => tree.create_inside(hidden, &need.name, mode),
            None => tree.create_file(open(tree, need, dir)?, need.replaces, mode),
        }
    }

    /// Discards a staged file. Bytes that were written to a device stay.
    pub(crate) fn unstage(&self, staged: &Staged) {
        if let Ok(tree) = self.tree() {
            tree.unstage(staged);
        }
    }

    /// Removes the records of arrived blocks of a file that is complete.
    pub(crate) fn end_arrivals(&self, staged: &Staged) {
        if let Ok(tree) = self.tree() {
            tree.end_arrivals(staged);
        }
    }

    /// Notes on the destination that another process may have been writing to the needed file while it was read.
    /// Callers do this before they publish it.
    pub(crate) fn note_in_motion(&self, need: &Need, meta: &Meta) -> io::Result<()> {
        self.tree()?.note_in_motion(&need.path(), meta.mtime)
    }

    /// Makes `staged` visible as the needed file, and counts it. `dir` caches the directory used last.
    pub(crate) fn publish(
        &self,
        need: &Need,
        dir: &mut LastDir,
        staged: &Staged,
        meta: &Meta,
        attrs: Attrs<'_>,
        len: u64,
    ) -> io::Result<()> {
        let changed = match self.store {
            WriteTarget::Tree(tree) => {
                match (&need.aside, need.dir.hidden(tree)) {
                    (Some(aside), _) => {
                        let place =
                            if aside.beside { open(tree, need, dir)? } else { tree.state().staging() };
                        let at = EntryAt::staged(place, aside.name.as_bytes());
                        let copy = self.publish_at(need, tree, staged, at, meta, attrs)?;
                        aside.has_arrived(copy.map_or_else(|| staged.inode(), Ok)?);
                    }
                    (None, Some(hidden)) => {
                        let at = EntryAt::staged(hidden.fd(), &need.name);
                        self.settle_attrs(need, tree.publish(staged, at, meta, attrs))?;
                    }
                    (None, None) => {
                        let dir = open(tree, need, dir)?;
                        let at = EntryAt::new(dir, &need.dir.path, &need.name, self.run.monitor)
                            .planned_as_new(!need.replaces);
                        self.publish_at(need, tree, staged, at, meta, attrs)?;
                    }
                }
                if need.aside.is_none() {
                    self.run.counters.count(need.replaces);
                }
                self.run.monitor.add_files(1);
                len
            }
            WriteTarget::Device(device) => device.done(staged),
        };
        self.run.counters.bytes_changed.fetch_add(changed, Relaxed);
        Ok(())
    }

    /// Publishes a file in any directory of the tree. Returns the inode number of the copy that was published instead,
    /// if the directory is on another file system than staging.
    fn publish_at(
        &self,
        need: &Need,
        tree: &Destination,
        staged: &Staged,
        at: EntryAt<'_>,
        meta: &Meta,
        attrs: Attrs<'_>,
    ) -> io::Result<Option<u64>> {
        match self.settle_attrs(need, tree.publish(staged, at, meta, attrs)) {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                tree.publish_copy(staged, at, meta, attrs, self.run.monitor).map(Some)
            }
            published => published.map(|()| None),
        }
    }

    /// Reports an attribute that is too large for the destination at the end, because the file is there.
    fn settle_attrs(&self, need: &Need, published: io::Result<()>) -> io::Result<()> {
        match published {
            Err(error) if is_too_large(&error) => {
                self.run.failures.add_late(need.path(), "set metadata", &error);
                Ok(())
            }
            published => published,
        }
    }

    /// Returns whether the snapshot after the run need not read a file of `len` bytes, if [`Self::remember`] gets its
    /// content.
    pub(crate) fn remembers(&self, need: &Need, len: u64) -> bool {
        self.written.is_some_and(|written| {
            // The store may have the content of a replaced file already, and then does not need it again.
            if need.replaces { written.wants_id(len) } else { written.packs(len) || written.wants_id(len) }
        })
    }

    /// Records the content of a file that was just published, for the snapshot after the run.
    pub(crate) fn remember(
        &self,
        need: &Need,
        staged: &Staged,
        meta: &Meta,
        attrs: Attrs<'_>,
        content: &[u8],
    ) {
        let (len, mtime) = (content.len() as u64, meta.mtime);
        if let Some(written) = self.written.filter(|_| self.remembers(need, len)) {
            if !written.packs(len) {
                written.add(staged.fd(), len, mtime, ContentId::of(content));
            } else if attrs.is_empty() {
                written.add_new(&need.dir.path, &need.name, staged.fd(), mtime, content);
            }
        }
    }

    /// Records the `id` of a large file that was just published, if it is known.
    pub(crate) fn remember_id(
        &self,
        staged: &Staged,
        len: u64,
        mtime: Time,
        id: impl FnOnce() -> Option<ContentId>,
    ) {
        if let Some(written) = self.written.filter(|written| written.wants_id(len))
            && let Some(id) = id()
        {
            written.add(staged.fd(), len, mtime, id);
        }
    }

    /// Records that a file has been written or has failed.
    pub(crate) fn has_done(&self, need: &Need) {
        let NeededDir { path, fill: Some(fill), .. } = &*need.dir else { return };
        let done = self.tree().and_then(|tree| fill.one_done(tree));
        if let Err(error) = done {
            self.run.failures.add(path, "move into place", &error);
        }
    }

    /// Counts bytes of a file that were taken from the destination.
    pub(crate) fn count_reused(&self, need: &Need, bytes: u64) {
        self.run.counters.bytes_reused.fetch_add(bytes, Relaxed);
        if bytes == 0 && need.old.as_ref().is_some_and(|old| old.is_guess) {
            self.run.counters.wrong_guesses.fetch_add(1, Relaxed);
        }
    }
}

/// Opens the directory of a file, and checks that it is the planned one. An open directory stays the one it is.
fn open<'d>(tree: &Destination, need: &Need, dir: &'d mut LastDir) -> io::Result<BorrowedFd<'d>> {
    dir.open_with(need.dir.source, || tree.known_dir(&need.dir.path, Some(need.dir.inode)))
}

fn part_of(device: &Device, need: &Need) -> io::Result<Staged> {
    let part = device.opened().part(&need.name);
    device.part(part.ok_or(io::ErrorKind::NotFound)?)
}
