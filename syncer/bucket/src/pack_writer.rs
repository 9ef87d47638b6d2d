//! Packs: many blobs in one object, with what is where at the end.
//!
//! ```text
//! "vfpack" 'b' 1 · sealed blobs… · sealed index of these blobs · its length u32
//! ```

use std::{collections::HashSet, sync::Arc};

use bytes::Bytes;
use syncer::snapshot::store::{Folder, FolderId};
use tokio::task::JoinSet;
use volferry_core::codec::{DecodeError, Reader};

use super::{
    blob::{BlobId, BlobKind, compress},
    bucket_error::BucketError,
    bucket_store::{BucketStore, NOT_SEALED},
    known_packs::KnownPacks,
    leftover_objects::SendingMark,
    pack_index::{BlobIndex, ObjectName, PackIndex, PackedBlob, pack_path},
    seal::random,
    store_list::StoreList,
};

/// The first bytes of a pack.
const MAGIC: &[u8; 8] = b"vfpackb\x01";

/// A pack is written when it has so many bytes.
pub(crate) const PACK_BYTES: usize = 16 << 20;

/// Packs that are on their way at the same time; each is in memory.
const PUTS: usize = 4;

/// The end of a pack that nearly always has its index.
const FEW_END_BYTES: u64 = 64 << 10;

/// The longest end of a pack that is read, in bytes.
const MAX_END_BYTES: u64 = 64 << 20;

/// Returns what a blob is sealed for.
pub(crate) fn blob_place(pack: ObjectName, offset: u64, id: &BlobId) -> Vec<u8> {
    let mut place = [&pack.0[..], &offset.to_le_bytes()].concat();
    id.put(&mut place);
    place
}

/// A pack that is being filled.
struct OpenPack {
    index: PackIndex,
    bytes: Vec<u8>,
}

impl OpenPack {
    fn new() -> Result<Self, BucketError> {
        let index = PackIndex { name: ObjectName(random()?), blobs: Vec::new() };
        Ok(Self { index, bytes: MAGIC.to_vec() })
    }
}

/// Writes blobs in packs: directories in some, contents in others, so that trees are read without contents.
pub(crate) struct PackWriter {
    store: Arc<BucketStore>,
    folders: Option<OpenPack>,
    contents: Option<OpenPack>,
    puts: JoinSet<Result<(), BucketError>>,
    mark: SendingMark,
    /// What is known to be in the store, with what is on its way.
    pub index: BlobIndex,
    /// So many packs of the index are those of the list, and come before those that were sent.
    listed: usize,
    /// What is needed of the packs of the list.
    needed: HashSet<BlobId>,
    /// Directories and lists of pieces that are there, and need what is lost. They are sent again after that.
    pub broken: HashSet<BlobId>,
    /// What the packs have that no list refers to yet.
    pub unpublished: Vec<PackIndex>,
    /// Bytes of packs that were written.
    pub written: u64,
}

impl PackWriter {
    /// Begins with the index of the list.
    pub(crate) fn new(store: Arc<BucketStore>, index: BlobIndex) -> Self {
        Self {
            store,
            folders: None,
            contents: None,
            puts: JoinSet::new(),
            mark: SendingMark::begin(None),
            listed: index.packs().len(),
            index,
            needed: HashSet::new(),
            broken: HashSet::new(),
            unpublished: Vec::new(),
            written: 0,
        }
    }

    /// Takes over packs that others have sent, the oldest of them at that time by the clock of the store.
    pub(crate) fn take_over(&mut self, packs: Vec<PackIndex>, oldest: Option<i64>) {
        packs.iter().for_each(|pack| self.index.add(pack));
        self.unpublished = packs;
        self.mark = SendingMark::begin(oldest);
    }

    /// Adds a directory with its encoding, after all that it refers to.
    pub(crate) fn add_folder(
        &mut self,
        folder: &Folder,
        id: FolderId,
        bytes: &[u8],
    ) -> Result<(), BucketError> {
        folder.subfolders().for_each(|(_, child)| self.need(BlobId::folder(child.id)));
        folder.files().for_each(|file| self.need(BlobId::content(file.content.id, file.len)));
        self.add(BlobId::folder(id), bytes)
    }

    /// Returns whether the store has a blob, and all that it needs.
    pub(crate) fn has(&self, id: &BlobId) -> bool {
        self.index.get(id).is_some() && !self.broken.contains(id)
    }

    /// Notes that a blob is needed, if it is in a pack of the list.
    pub(crate) fn need(&mut self, id: BlobId) {
        if self.index.get(&id).is_some_and(|place| (place.pack as usize) < self.listed) {
            self.needed.insert(id);
        }
    }

    /// Adds a blob, unless the store has it.
    pub(crate) fn add(&mut self, id: BlobId, plain: &[u8]) -> Result<(), BucketError> {
        self.mark.keep(&self.store)?;
        if self.has(&id) {
            self.need(id);
            return Ok(());
        }
        let slot = if id.kind == BlobKind::Data { &mut self.contents } else { &mut self.folders };
        let mut pack = match slot.take() {
            Some(pack) => pack,
            None => OpenPack::new()?,
        };
        let offset = pack.bytes.len() as u64;
        let sealed = self.store.seal.seal(&blob_place(pack.index.name, offset, &id), &compress(plain))?;
        let blob = PackedBlob { id, offset, len: sealed.len() as u64, plain: plain.len() as u64 };
        pack.bytes.extend_from_slice(&sealed);
        pack.index.blobs.push(blob);
        self.index.replace(&PackIndex { name: pack.index.name, blobs: vec![blob] });
        self.broken.remove(&id);
        if pack.bytes.len() < PACK_BYTES {
            *slot = Some(pack);
        } else {
            self.send(pack)?;
        }
        Ok(())
    }

    /// Sends a pack on its way, when one of those before has arrived if they are too many.
    fn send(&mut self, pack: OpenPack) -> Result<(), BucketError> {
        self.store.check_conditional()?;
        let OpenPack { index, mut bytes } = pack;
        let path = pack_path(index.name);
        let mut end = Vec::new();
        index.encode(&mut end);
        let end = self.store.seal.seal(path.as_bytes(), &end)?;
        bytes.extend_from_slice(&end);
        bytes.extend_from_slice(&(end.len() as u32).to_le_bytes());
        while self.puts.len() >= PUTS {
            self.await_one()?;
        }
        self.written += bytes.len() as u64;
        self.unpublished.push(index);
        let store = Arc::clone(&self.store);
        let put = async move { store.objects.put(&path, Bytes::from(bytes)).await };
        self.puts.spawn_on(put, self.store.objects.runtime().handle());
        Ok(())
    }

    fn await_one(&mut self) -> Result<(), BucketError> {
        let joined = self.store.objects.runtime().block_on(self.puts.join_next());
        joined.unwrap_or(Ok(Ok(()))).unwrap_or_else(|failed| Err(BucketError::Runtime(failed.into())))
    }

    /// Goes on with the newest list after others have pruned, and returns it. Returns `None` if a pack that was sent is
    /// gone, or something that is or may be needed.
    pub(crate) fn follow(&mut self) -> Result<Option<StoreList>, BucketError> {
        let mut known = self.store.known_packs()?;
        let broken = known.drop_lost(&self.store)?;
        let KnownPacks { list, mut index, there } = known;
        let stays = |pack: &PackIndex| there.contains_key(&pack.name) && !list.dropped.contains(&pack.name);
        let is_whole = |id: &BlobId| index.get(id).is_some() && !broken.contains(id);
        if !self.unpublished.iter().all(stays) || !self.needed.iter().all(is_whole) {
            return Ok(None);
        }
        self.broken = broken;
        self.listed = index.packs().len();
        self.unpublished.iter().for_each(|pack| index.add(pack));
        self.index = index;
        Ok(Some(list))
    }

    /// Notes that the list names all that was sent.
    pub(crate) fn published(&mut self) {
        self.unpublished.clear();
        self.needed.clear();
        self.listed = self.index.packs().len();
        self.mark.end(&self.store);
    }

    /// Writes what is left, and waits until all packs are in the store.
    pub(crate) fn finish(&mut self) -> Result<(), BucketError> {
        for pack in [self.contents.take(), self.folders.take()].into_iter().flatten() {
            self.send(pack)?;
        }
        while !self.puts.is_empty() {
            self.await_one()?;
        }
        Ok(())
    }
}

impl BucketStore {
    /// Reads what a pack of `bytes` bytes has, from its end. Some servers refuse a range beyond an object.
    pub(crate) fn pack_index(&self, name: ObjectName, bytes: u64) -> Result<PackIndex, BucketError> {
        let path = pack_path(name);
        let damaged = |what| self.objects.damaged(&path, what);
        let get_end = |count| self.objects.get_range(&path, bytes.saturating_sub(count)..bytes);
        let mut end = get_end(FEW_END_BYTES)?;
        let len = end.last_chunk().map_or(0, |len| u64::from(u32::from_le_bytes(*len)));
        if len + 4 > MAX_END_BYTES {
            return Err(damaged("its index is longer than any that this program writes"));
        }
        if len + 4 > end.len() as u64 {
            end = get_end(len + 4)?;
        }
        let from = (end.len() as u64).checked_sub(len + 4).ok_or_else(|| damaged("it is cut off"))?;
        let sealed = &end[from as usize..end.len() - 4];
        let opened = self.seal.open(path.as_bytes(), sealed).ok_or_else(|| damaged(NOT_SEALED))?;
        let mut reader = Reader::new(&opened);
        let read = PackIndex::read(&mut reader).and_then(|index| {
            reader.finish()?;
            Ok::<_, DecodeError>(index)
        });
        read.ok().filter(|index| index.name == name).ok_or_else(|| damaged("its index is of another pack"))
    }
}
