//! What a store has by a list: the packs that are there, where each blob is, and which blobs and indexes are lost.

use std::collections::{BTreeMap, HashMap, HashSet};

use syncer::snapshot::store::Folder;

use super::{
    blob::{BlobId, BlobKind, ContentPart, decode_parts},
    bucket_error::BucketError,
    bucket_store::{BucketStore, LostIndex, MAX_TRIES, ReadIndexes},
    object_names::PACKS,
    object_requests::Listed,
    pack_index::{BlobIndex, ObjectName, PackIndex, PackOffset},
    read_list::ReadList,
    store_list::StoreList,
};

/// What a store has.
pub(crate) struct KnownPacks {
    pub list: StoreList,
    /// Which damaged list is newer.
    pub older: Option<BucketError>,
    pub index: BlobIndex,
    /// The packs that are in the bucket, also those that no list names.
    pub there: BTreeMap<ObjectName, Listed>,
    /// The indexes of the list that are missing or damaged.
    pub lost: Vec<LostIndex>,
    /// The number of packs that other indexes name. They come first in `index`.
    pub named: usize,
    /// What other packs say of themselves. Without lost indexes, nobody asks them.
    pub unnamed: Vec<PackIndex>,
}

impl KnownPacks {
    /// Makes the index of these packs. What is in several of them is found where it is not lost, if anywhere: it was
    /// sent again because another was lost, or by two copies at once.
    fn new(
        read: ReadList,
        indexes: ReadIndexes,
        there: BTreeMap<ObjectName, Listed>,
        unnamed: Vec<PackIndex>,
    ) -> Self {
        let (ReadList { list, older }, ReadIndexes { packs, lost }) = (read, indexes);
        let index = BlobIndex::default();
        let mut known = Self { list, older, index, there, lost, named: 0, unnamed: Vec::new() };
        for is_lost in [false, true] {
            packs.iter().for_each(|pack| known.add(pack, is_lost));
            if !is_lost {
                known.named = known.index.packs().len();
            }
            unnamed.iter().for_each(|pack| known.add(pack, is_lost));
        }
        known.unnamed = unnamed;
        known
    }

    /// Adds the blobs of a pack that are lost, or those that are not.
    fn add(&mut self, PackIndex { name, blobs }: &PackIndex, is_lost: bool) {
        let blobs = blobs.iter().filter(|it| self.is_lost(*name, it.offset, it.len) == is_lost);
        let some = PackIndex { name: *name, blobs: blobs.copied().collect() };
        self.index.add(&some);
    }

    /// Returns whether a blob is lost: with its pack, beyond the end of one that was cut off, or because a verify has
    /// found it damaged.
    pub(crate) fn is_lost(&self, pack: ObjectName, offset: u64, len: u64) -> bool {
        self.there.get(&pack).is_none_or(|listed| offset.saturating_add(len) > listed.bytes)
            || self.list.damaged.contains(&PackOffset { pack, offset })
    }

    /// Takes out what is wrong with lists and indexes that others were read in the place of.
    pub(crate) fn take_around(&mut self) -> Vec<BucketError> {
        self.older.take().into_iter().chain(self.lost.drain(..).map(|lost| lost.error)).collect()
    }

    /// Removes lost blobs from the index, and returns those that are there and need one of them: lists of pieces, and
    /// directories with all above them. Reads these only if something is lost.
    pub(crate) fn drop_lost(&mut self, store: &BucketStore) -> Result<HashSet<BlobId>, BucketError> {
        let mut index = std::mem::take(&mut self.index);
        let has_lost = index.drop_blobs(|_, pack, at| self.is_lost(pack, at.offset, at.len.into()));
        let mut broken = HashSet::new();
        if has_lost || !self.lost.is_empty() {
            add_broken_pieces(store, &index, &mut broken)?;
            add_broken_folders(store, &index, &mut broken)?;
        }
        self.index = index;
        if !self.lost.is_empty() {
            self.drop_unnamed(&mut broken);
        }
        Ok(broken)
    }

    /// Leaves out what packs without an index have in vain: what a copy has sent that was cut off needs what is lost,
    /// or was never there. An index that names it would say that it is whole.
    fn drop_unnamed(&mut self, broken: &mut HashSet<BlobId>) {
        let named = self.named;
        self.index.drop_blobs(|id, _, place| place.pack as usize >= named && broken.contains(id));
        let mut unnamed = std::mem::take(&mut self.unnamed);
        for PackIndex { name, blobs } in &mut unnamed {
            blobs.retain(|it| !broken.contains(&it.id) && !self.is_lost(*name, it.offset, it.len));
        }
        self.unnamed = unnamed;
        broken.retain(|id| self.index.get(id).is_some());
    }
}

impl BucketStore {
    /// Reads the newest list, its indexes, and the names of the packs that are there.
    ///
    /// # Errors
    /// If the list is damaged. Where an index is, packs are asked themselves.
    pub(crate) fn known_packs(&self) -> Result<KnownPacks, BucketError> {
        let known = self.known_to_read()?;
        match known.older {
            Some(BucketError::OlderList { damaged, .. }) => Err(*damaged),
            _ => Ok(known),
        }
    }

    /// Does so with the newest list that is not damaged, for those who change nothing.
    ///
    /// # Errors
    /// If no list can be read.
    pub(crate) fn known_to_read(&self) -> Result<KnownPacks, BucketError> {
        for _ in 0..MAX_TRIES {
            let read = self.list_to_read()?;
            let indexes = self.read_indexes(&read.list)?;
            let changes = read.list.roots.changes;
            // A prune that replaces indexes meanwhile has written a newer list before.
            if !indexes.lost.is_empty() && self.list_to_read()?.list.roots.changes != changes {
                continue;
            }
            let listed = self.objects.list(PACKS, false)?.into_iter();
            let there = listed.filter_map(|it| Some((ObjectName::parse(&it.name)?, it))).collect();
            let unnamed = match indexes.lost[..] {
                [] => Vec::new(),
                _ => self.unnamed(&read.list, &indexes.packs, &there)?,
            };
            return Ok(KnownPacks::new(read, indexes, there, unnamed));
        }
        Err(BucketError::Contended(self.url().clone()))
    }

    /// Reads what the packs have that no index names, and that no prune has dropped. One that cannot be read is lost.
    fn unnamed(
        &self,
        list: &StoreList,
        named: &[PackIndex],
        there: &BTreeMap<ObjectName, Listed>,
    ) -> Result<Vec<PackIndex>, BucketError> {
        let named: HashSet<ObjectName> = named.iter().map(|pack| pack.name).collect();
        let unnamed = there.iter().filter(|(name, _)| !named.contains(name) && !list.dropped.contains(name));
        let unnamed: Vec<_> = unnamed.map(|(name, listed)| (*name, listed.bytes)).collect();
        let read = self.pack_indexes(&unnamed).into_iter();
        read.filter(|pack| !pack.as_ref().is_err_and(BucketError::is_of_an_object)).collect()
    }
}

/// Reads the blobs of a kind, and passes each to `visit`; `None` for one that is damaged.
fn visit_blobs(
    store: &BucketStore,
    index: &BlobIndex,
    kind: BlobKind,
    visit: &mut dyn FnMut(BlobId, Option<Vec<u8>>),
) -> Result<(), BucketError> {
    let blobs = index.in_order(|id| id.kind == kind);
    let ids: Vec<BlobId> = blobs.into_iter().map(|(id, _)| id).collect();
    store.read_blobs(index, &ids, &mut |nth, bytes| {
        match bytes {
            Err(error) if error.is_of_an_object() => visit(ids[nth], None),
            bytes => visit(ids[nth], Some(bytes?)),
        }
        Ok(())
    })
}

/// Adds the lists of pieces that cannot be read, or name a piece that is not in the index.
fn add_broken_pieces(
    store: &BucketStore,
    index: &BlobIndex,
    broken: &mut HashSet<BlobId>,
) -> Result<(), BucketError> {
    visit_blobs(store, index, BlobKind::Pieces, &mut |id, bytes| {
        let parts = bytes.and_then(|bytes| decode_parts(&bytes).ok());
        if !parts.is_some_and(|parts| parts.iter().all(|part| has_part(index, part))) {
            broken.insert(id);
        }
    })
}

/// Returns whether an index has a piece of content, of its length.
pub(crate) fn has_part(index: &BlobIndex, part: &ContentPart) -> bool {
    match part {
        ContentPart::Data(id, len) => {
            index.get(&BlobId::data(*id)).is_some_and(|place| u64::from(place.plain) == *len)
        }
        ContentPart::Hole(_) => true,
    }
}

/// Adds the directories that cannot be read, that need what is broken or not in the index, and all above them.
fn add_broken_folders(
    store: &BucketStore,
    index: &BlobIndex,
    broken: &mut HashSet<BlobId>,
) -> Result<(), BucketError> {
    let mut above: HashMap<BlobId, Vec<BlobId>> = HashMap::new();
    let mut found = Vec::new();
    visit_blobs(store, index, BlobKind::Folder, &mut |id, bytes| {
        let folder = bytes.and_then(|bytes| Folder::decode(&bytes).ok());
        let Some(folder) = folder.filter(|folder| BlobId::folder(folder.id()) == id) else {
            return found.push(id);
        };
        let is_there = |id: &BlobId| index.get(id).is_some() && !broken.contains(id);
        let contents = folder.files().map(|file| BlobId::content(file.content.id, file.len));
        let folders: Vec<BlobId> = folder.subfolders().map(|(_, child)| BlobId::folder(child.id)).collect();
        if !contents.chain(folders.iter().copied()).all(|needed| is_there(&needed)) {
            found.push(id);
        }
        folders.into_iter().for_each(|child| above.entry(child).or_default().push(id));
    })?;
    while let Some(id) = found.pop() {
        if broken.insert(id) {
            found.extend(above.get(&id).into_iter().flatten());
        }
    }
    Ok(())
}
