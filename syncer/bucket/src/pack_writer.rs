//! Packs: many blobs in one object, with what is where at the end.
//!
//! ```text
//! "vfpack" 'b' 1 · sealed blobs… · sealed index of these blobs · its length u32
//! ```

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use syncer::snapshot::store::{Folder, FolderId};
use tokio::task::JoinSet;

use super::{
    blob::{BlobId, BlobKind, compress},
    bucket_error::BucketError,
    bucket_store::BucketStore,
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

/// Packs go one at a time if one alone takes so long, since a request that takes too long begins anew.
const SLOW_PUT: Duration = Duration::from_secs(15);

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
    /// Packs on their way, each with how long it took.
    puts: JoinSet<Result<Duration, BucketError>>,
    /// So many packs share the line.
    at_a_time: usize,
    mark: SendingMark,
    /// What is known to be in the store, with what is on its way.
    pub index: BlobIndex,
    /// So many packs of the index are those of the list, and come before those that were sent.
    pub listed: usize,
    /// The indexes of the list that are missing or damaged.
    pub lost_indexes: Vec<ObjectName>,
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
            at_a_time: 1,
            mark: SendingMark::begin(None),
            listed: index.packs().len(),
            index,
            lost_indexes: Vec::new(),
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
        while self.puts.len() >= self.at_a_time {
            self.await_one()?;
        }
        self.written += bytes.len() as u64;
        self.unpublished.push(index);
        let store = Arc::clone(&self.store);
        let put = async move {
            let began = Instant::now();
            store.objects.put(&path, Bytes::from(bytes)).await.map(|()| began.elapsed())
        };
        self.puts.spawn_on(put, self.store.objects.runtime().handle());
        Ok(())
    }

    fn await_one(&mut self) -> Result<(), BucketError> {
        let joined = self.store.objects.wait(self.puts.join_next())?.unwrap_or(Ok(Ok(Duration::ZERO)));
        let took = joined.unwrap_or_else(|failed| Err(BucketError::Runtime(failed.into())))?;
        let alone = took / u32::try_from(self.at_a_time).unwrap_or(1);
        self.at_a_time = if alone < SLOW_PUT { PUTS } else { 1 };
        Ok(())
    }

    /// Goes on with the newest list after others have pruned, and returns it. Returns `None` if a pack that was sent is
    /// gone, or an index, or something that is or may be needed.
    pub(crate) fn follow(&mut self) -> Result<Option<StoreList>, BucketError> {
        let mut known = self.store.known_packs()?;
        let broken = known.drop_lost(&self.store)?;
        let KnownPacks { list, mut index, there, lost, .. } = known;
        let stays = |pack: &PackIndex| there.contains_key(&pack.name) && !list.dropped.contains(&pack.name);
        let is_whole = |id: &BlobId| index.get(id).is_some() && !broken.contains(id);
        if !lost.is_empty() || !self.unpublished.iter().all(stays) || !self.needed.iter().all(is_whole) {
            return Ok(None);
        }
        self.broken = broken;
        self.listed = index.packs().len();
        self.unpublished.iter().for_each(|pack| index.add(pack));
        self.index = index;
        Ok(Some(list))
    }

    /// Returns whether all that a list needs is known, and so its lost indexes are not needed any more.
    pub(crate) fn replaces_lost(&self, list: &StoreList) -> bool {
        let mut trees = list.roots.snapshots.iter().map(|snapshot| BlobId::folder(snapshot.tree.id));
        list.indexes.iter().any(|name| self.lost_indexes.contains(name))
            && self.broken.is_empty()
            && trees.all(|tree| self.has(&tree))
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

impl Drop for PackWriter {
    /// Ends the packs that are on their way. One that outlived the store would end its runtime from within.
    fn drop(&mut self) {
        self.puts.abort_all();
        let ended = async { while self.puts.join_next().await.is_some() {} };
        self.store.objects.runtime().block_on(ended);
    }
}
