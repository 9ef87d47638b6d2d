//! The pack that a publication writes: directories and small contents, one after the other. It has no table, because
//! each reference to an object contains its place. The record of its snapshot is the last object.

use std::{
    collections::HashMap,
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
};

use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};

use super::{
    commit::Writer,
    content_id::{ContentRef, Home, VisitData},
    folder::ObjectRef,
    read_store::Store,
    snapshot_id::SnapshotId,
    snapshot_list::Engine,
    store_dir::StoreFolder,
    store_files::{OLD_PACK_MAGIC, PACK_MAGIC, PACK_NEW, PART, open_content_folder},
};
use crate::{
    destination::{link_held, open_own_with_stat, write_all},
    hash::ContentId,
};

/// Bytes that are gathered before they are written.
const BUFFER_BYTES: usize = 1 << 20;

/// Contents up to this length in bytes are packed if files are cloned: a clone takes an inode, which is about as large.
const PACKED_BESIDE_CLONES: u64 = 1 << 10;

/// Contents up to this length in bytes are packed if files are copied.
const PACKED_BESIDE_COPIES: u64 = 64 << 10;

impl Engine {
    /// Returns whether content of `len` bytes goes into a pack. Empty content goes nowhere.
    pub(crate) fn packs(self, len: u64) -> bool {
        let most = match self {
            Engine::Clone => PACKED_BESIDE_CLONES,
            Engine::Copy => PACKED_BESIDE_COPIES,
        };
        (1..=most).contains(&len)
    }
}

/// A pack that is being written, and its folder. Both are created with the first object.
#[derive(Debug)]
pub(crate) struct Packing<'a> {
    writer: &'a Writer<'a>,
    id: SnapshotId,
    has_begun: bool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    folder: Option<OwnedFd>,
    pack: Option<PackFile>,
    /// The pack that a run began, until the publication needs an object in it.
    begun: Option<PackFile>,
    /// Small contents that are in the pack.
    small: HashMap<ContentId, u64>,
    /// Contents in files of their own that this publication has made.
    own: HashMap<ContentId, ()>,
    names: u64,
}

/// The file of a pack. Objects are appended to it.
#[derive(Debug)]
pub(crate) struct PackFile {
    file: OwnedFd,
    buffer: Vec<u8>,
    written: u64,
}

impl PackFile {
    /// Begins a pack in an empty file.
    pub(crate) fn new(file: OwnedFd) -> Self {
        Self { file, buffer: PACK_MAGIC.to_vec(), written: 0 }
    }

    /// Appends an object, and returns its offset.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> io::Result<u64> {
        let offset = self.written + self.buffer.len() as u64;
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(offset)
    }

    fn flush(&mut self) -> io::Result<()> {
        write_all(self.file.as_fd(), &self.buffer, self.written)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }
}

/// A pack in an unnamed file, which leaves nothing behind if it is dropped.
#[derive(Debug)]
pub(crate) struct BegunPack {
    file: PackFile,
    small: HashMap<ContentId, u64>,
    /// Bytes that may still be appended.
    room: u64,
}

impl BegunPack {
    /// Begins a pack on the file system of `dir`, of about `room` bytes at most.
    ///
    /// # Errors
    /// If the file system does not support unnamed files, or the file cannot be created.
    pub(crate) fn begin(dir: BorrowedFd<'_>, room: u64) -> io::Result<Self> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::openat(dir, c".", flags, Mode::RUSR | Mode::WUSR)?;
        Ok(Self { file: PackFile::new(file), small: HashMap::new(), room })
    }

    /// Appends small content, unless the pack has it already, and returns its offset; `None` if the pack is full.
    ///
    /// # Errors
    /// If the file cannot be written to. The pack is then unusable.
    pub(crate) fn add(&mut self, id: ContentId, bytes: &[u8]) -> io::Result<Option<u64>> {
        if let Some(offset) = self.small.get(&id) {
            return Ok(Some(*offset));
        }
        let Some(room) = self.room.checked_sub(bytes.len() as u64) else { return Ok(None) };
        self.room = room;
        let offset = self.file.append(bytes)?;
        self.small.insert(id, offset);
        Ok(Some(offset))
    }
}

/// A file of content that has no final name yet.
pub(crate) struct PartFile {
    pub file: OwnedFd,
    /// Its name in the folder of the publication.
    pub name: String,
}

impl<'a> Packing<'a> {
    /// Prepares the pack of the publication of `id`, or continues the one that a run began.
    pub(crate) fn new(writer: &'a Writer<'a>, id: SnapshotId, begun: Option<BegunPack>) -> Self {
        let has_begun = begun.is_some();
        let state = match begun {
            Some(BegunPack { file, small, .. }) => State { begun: Some(file), small, ..State::default() },
            None => State::default(),
        };
        Self { writer, id, has_begun, state: Mutex::new(state) }
    }

    /// Returns whether it continues a pack that a run began.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Returns the place of content at this offset of the pack that a run has begun.
    pub(crate) fn begun(&self, offset: u64) -> io::Result<Home> {
        self.pack_of(&mut self.state.lock())?;
        Ok(Home::Pack { pack: self.id.0, offset })
    }

    /// Appends small content, unless this publication has it already, and returns its place.
    pub(crate) fn content(&self, id: ContentId, bytes: &[u8]) -> io::Result<Home> {
        let mut state = self.state.lock();
        self.pack_of(&mut state)?;
        if let Some(offset) = state.small.get(&id) {
            return Ok(Home::Pack { pack: self.id.0, offset: *offset });
        }
        let offset = self.pack_of(&mut state)?.append(bytes)?;
        state.small.insert(id, offset);
        Ok(Home::Pack { pack: self.id.0, offset })
    }

    /// Appends the encoding of a directory.
    pub(crate) fn folder(&self, bytes: &[u8]) -> io::Result<ObjectRef> {
        let len =
            u32::try_from(bytes.len()).map_err(|_| io::Error::other("a directory has too many entries"))?;
        let offset = self.pack_of(&mut self.state.lock())?.append(bytes)?;
        Ok(ObjectRef { pack: self.id.0, offset, len })
    }

    /// Returns the pack. The first call creates it, or names the pack that a run began.
    fn pack_of<'s>(&self, state: &'s mut State) -> io::Result<&'s mut PackFile> {
        let pack = match (state.pack.take(), state.begun.take()) {
            (Some(pack), _) => pack,
            (None, Some(begun)) => {
                link_held(begun.file.as_fd(), self.folder_of(state)?.as_fd(), PACK_NEW.as_bytes())?;
                begun
            }
            (None, None) => {
                let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
                let folder = self.folder_of(state)?;
                PackFile::new(rustix::fs::openat(folder, PACK_NEW, flags, Mode::RUSR | Mode::WUSR)?)
            }
        };
        Ok(state.pack.insert(pack))
    }

    fn folder_of<'s>(&self, state: &'s mut State) -> io::Result<&'s OwnedFd> {
        let made = match state.folder.take() {
            Some(folder) => folder,
            None => self.writer.make_new(self.id)?,
        };
        Ok(state.folder.insert(made))
    }

    /// Returns whether the store has this content of `len` bytes, and it is undamaged. `visit` may end the check.
    pub(crate) fn is_stored(&self, content: &ContentRef, len: u64, visit: &VisitData<'_>) -> bool {
        // Most content is new, and a look for its name alone shows that.
        let is_there = content.home != Home::Own || self.writer.has_own(&content.id);
        is_there && self.writer.store.check_visited(content, len, visit).is_ok()
    }

    /// Creates the file of content that is not packed. [`Self::name`] gives it its final name.
    pub(crate) fn create(&self) -> io::Result<PartFile> {
        let mut state = self.state.lock();
        let name = format!("{}{PART}", state.names);
        state.names += 1;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::openat(self.folder_of(&mut state)?, &name, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(PartFile { file, name })
    }

    /// Gives a complete file the name of its content, or removes it if the store has that content undamaged.
    pub(crate) fn name(&self, part: &str, id: ContentId, is_stored: bool) -> io::Result<bool> {
        let mut state = self.state.lock();
        let is_new = !state.own.contains_key(&id) && !is_stored;
        state.own.insert(id, ());
        let folder = self.folder_of(&mut state)?;
        if is_new {
            rustix::fs::renameat(folder, part, folder, id.to_string())?;
        } else {
            rustix::fs::unlinkat(folder, part, rustix::fs::AtFlags::empty())?;
        }
        Ok(is_new)
    }

    /// Moves a complete file to the place of its content at once, where a publication that is tried again finds it.
    /// Returns whether the store had none there.
    pub(crate) fn place_own(&self, part: &str, id: ContentId) -> io::Result<bool> {
        let mut state = self.state.lock();
        let is_new = !self.writer.has_own(&id);
        let name = id.to_string();
        let to = open_content_folder(self.writer.store.within(StoreFolder::Content)?, &name)?;
        rustix::fs::renameat(self.folder_of(&mut state)?, part, to, name)?;
        state.own.insert(id, ());
        Ok(is_new)
    }

    /// Removes content of [`Self::place_own`] that nothing refers to.
    pub(crate) fn remove_own(&self, id: &ContentId) {
        let name = id.to_string();
        let contents = self.writer.store.within(StoreFolder::Content);
        let folder = contents.and_then(|contents| open_content_folder(contents, &name));
        let _ = folder.map(|folder| rustix::fs::unlinkat(folder, name, rustix::fs::AtFlags::empty()));
    }

    /// Removes a file of [`Self::create`] that is not kept.
    pub(crate) fn discard(&self, part: &str) {
        if let Some(folder) = &self.state.lock().folder {
            let _ = rustix::fs::unlinkat(folder, part, rustix::fs::AtFlags::empty());
        }
    }

    /// Writes the remaining bytes, and returns the length of the pack.
    pub(crate) fn finish(&self) -> io::Result<u64> {
        let mut state = self.state.lock();
        let Some(pack) = &mut state.pack else { return Ok(0) };
        pack.flush()?;
        Ok(pack.written)
    }

    /// Appends the snapshot's record, from which a lost list is repaired. A publication without a pack leaves none.
    pub(crate) fn close(&self, record: &[u8]) -> io::Result<()> {
        let mut state = self.state.lock();
        let Some(pack) = &mut state.pack else { return Ok(()) };
        pack.append(record)?;
        pack.flush()
    }

    /// Returns whether the publication has added anything to the store.
    pub(crate) fn is_used(&self) -> bool {
        self.state.lock().folder.is_some()
    }
}

/// Writes an object at its place in a pack. A pack that is missing is made anew, with holes in place of other objects.
pub(crate) fn overwrite(store: &Store, pack: u64, offset: u64, bytes: &[u8]) -> io::Result<()> {
    let (packs, name) = (store.within(StoreFolder::Packs)?, SnapshotId(pack).to_string());
    let (file, stat) = open_own_with_stat(packs, name, OFlags::WRONLY | OFlags::CREATE)?;
    if stat.st_size == 0 {
        write_all(file.as_fd(), OLD_PACK_MAGIC, 0)?;
    }
    write_all(file.as_fd(), bytes, offset)?;
    rustix::fs::fsync(&file)?;
    store.close_pack(pack);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pack_that_was_begun_takes_no_more_than_its_room() {
        let folder = tempfile::tempdir().unwrap();
        let dir = std::fs::File::open(folder.path()).unwrap();
        let mut pack = BegunPack::begin(dir.as_fd(), 10).unwrap();
        let mut add = |bytes: &[u8]| pack.add(ContentId::of(bytes), bytes).unwrap();
        assert_eq!(add(b"123456"), Some(8));
        assert_eq!(add(b"12345"), None);
        assert_eq!(add(b"1234"), Some(14));
        assert_eq!(add(b"123456"), Some(8), "equal contents are packed once");
        assert_eq!(add(b"1"), None);
    }
}
