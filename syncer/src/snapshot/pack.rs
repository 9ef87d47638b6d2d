//! The pack that a publication writes: directories and small contents, one after the other. It has no table, because
//! each reference to an object contains its place.

use std::{
    collections::HashMap,
    io,
    os::fd::OwnedFd,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rustix::fs::{Mode, OFlags};

use super::{
    content::{ContentRef, Home, VisitData},
    folder::ObjectRef,
    id::SnapshotId,
    store::Writer,
    store_files::{PACK_MAGIC, PACK_NEW, PART, write_all},
};
use crate::hash::ContentId;

/// Bytes that are gathered before they are written.
const BUFFER_BYTES: usize = 1 << 20;

/// A pack that is being written, and its folder. Both are made with the first object.
#[derive(Debug)]
pub(super) struct Packing<'a> {
    writer: &'a Writer<'a>,
    id: SnapshotId,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    folder: Option<OwnedFd>,
    file: Option<OwnedFd>,
    buffer: Vec<u8>,
    written: u64,
    /// Small contents that this publication has packed.
    small: HashMap<ContentId, u64>,
    /// Contents in files of their own that this publication has made.
    own: HashMap<ContentId, ()>,
    names: u64,
}

impl<'a> Packing<'a> {
    pub(super) fn new(writer: &'a Writer<'a>, id: SnapshotId) -> Self {
        Self { writer, id, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends small content, unless this publication has it already, and returns its place.
    pub(super) fn content(&self, id: ContentId, bytes: &[u8]) -> io::Result<Home> {
        let mut state = self.lock();
        if let Some(offset) = state.small.get(&id) {
            return Ok(Home::Pack { pack: self.id.0, offset: *offset });
        }
        let offset = self.append(&mut state, bytes)?;
        state.small.insert(id, offset);
        Ok(Home::Pack { pack: self.id.0, offset })
    }

    /// Appends the encoding of a directory.
    pub(super) fn folder(&self, bytes: &[u8]) -> io::Result<ObjectRef> {
        let len =
            u32::try_from(bytes.len()).map_err(|_| io::Error::other("a directory has too many entries"))?;
        let offset = self.append(&mut self.lock(), bytes)?;
        Ok(ObjectRef { pack: self.id.0, offset, len })
    }

    fn append(&self, state: &mut State, bytes: &[u8]) -> io::Result<u64> {
        if state.file.is_none() {
            let folder = self.folder_of(state)?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            state.file = Some(rustix::fs::openat(folder, PACK_NEW, flags, Mode::RUSR | Mode::WUSR)?);
            state.buffer.extend_from_slice(PACK_MAGIC);
        }
        let offset = state.written + state.buffer.len() as u64;
        state.buffer.extend_from_slice(bytes);
        if state.buffer.len() >= BUFFER_BYTES {
            state.flush()?;
        }
        Ok(offset)
    }

    fn folder_of<'s>(&self, state: &'s mut State) -> io::Result<&'s OwnedFd> {
        let made = match state.folder.take() {
            Some(folder) => folder,
            None => self.writer.make_new(self.id)?,
        };
        Ok(state.folder.insert(made))
    }

    /// Whether the store has this content of `len` bytes, and it is undamaged. `visit` may end the check.
    pub(super) fn is_stored(&self, content: &ContentRef, len: u64, visit: &VisitData<'_>) -> bool {
        // A look at the name alone is enough for most content, which is new.
        let is_there = content.home != Home::Own || self.writer.has_own(&content.id);
        is_there && self.writer.store.check_visited(content, len, visit).is_ok()
    }

    /// Makes a file for content that gets a file of its own. [`Self::name`] names it afterwards.
    pub(super) fn create(&self) -> io::Result<(OwnedFd, String)> {
        let mut state = self.lock();
        let name = format!("{}{PART}", state.names);
        state.names += 1;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(self.folder_of(&mut state)?, &name, flags, Mode::RUSR | Mode::WUSR)?;
        Ok((file, name))
    }

    /// Gives a complete file the name of its content, or removes it if the store has that content undamaged.
    pub(super) fn name(&self, part: &str, id: ContentId, is_stored: bool) -> io::Result<bool> {
        let mut state = self.lock();
        let is_new = !state.own.contains_key(&id) && !is_stored;
        state.own.insert(id, ());
        let folder = self.folder_of(&mut state)?;
        match is_new {
            true => rustix::fs::renameat(folder, part, folder, id.to_string())?,
            false => rustix::fs::unlinkat(folder, part, rustix::fs::AtFlags::empty())?,
        }
        Ok(is_new)
    }

    /// Removes a file that is not kept.
    pub(super) fn discard(&self, part: &str) {
        if let Some(folder) = &self.lock().folder {
            let _ = rustix::fs::unlinkat(folder, part, rustix::fs::AtFlags::empty());
        }
    }

    /// Writes the remaining bytes, and returns the length of the pack.
    pub(super) fn finish(&self) -> io::Result<u64> {
        let mut state = self.lock();
        state.flush()?;
        Ok(state.written)
    }

    /// Whether the publication has added anything to the store.
    pub(super) fn is_used(&self) -> bool {
        self.lock().folder.is_some()
    }
}

impl State {
    fn flush(&mut self) -> io::Result<()> {
        if let Some(file) = &self.file {
            write_all(file, &self.buffer)?;
            self.written += self.buffer.len() as u64;
            self.buffer.clear();
        }
        Ok(())
    }
}
