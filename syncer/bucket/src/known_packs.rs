//! What a store has by its newest list: the packs that are there, where each blob is, and which blobs are lost.

use std::collections::{BTreeMap, HashMap, HashSet};

use syncer::snapshot::store::Folder;

use super::{
    blob::{BlobId, BlobKind, ContentPart, decode_parts},
    bucket_error::BucketError,
    bucket_store::BucketStore,
    object_requests::Listed,
    pack_index::{BlobIndex, ObjectName, PACKS, PackIndex, PackOffset},
    store_list::StoreList,
};

/// What a store has.
pub(crate) struct KnownPacks {
    pub list: StoreList,
    pub index: BlobIndex,
    /// The packs that are in the bucket, also those that no list names.
    pub there: BTreeMap<ObjectName, Listed>,
}

impl KnownPacks {
    /// Makes the index of these packs. What is in several of them is found where it is not lost, if anywhere: it was
    /// sent again because another was lost, or by two copies at once.
    pub(crate) fn new(list: StoreList, packs: &[PackIndex], there: BTreeMap<ObjectName, Listed>) -> Self {
        let mut known = Self { list, index: BlobIndex::default(), there };
        for is_lost in [false, true] {
            for PackIndex { name, blobs } in packs {
                let blobs = blobs.iter().filter(|it| known.is_lost(*name, it.offset, it.len) == is_lost);
                let some = PackIndex { name: *name, blobs: blobs.copied().collect() };
                known.index.add(&some);
            }
        }
        known
    }

    /// Returns whether a blob is lost: with its pack, beyond the end of one that was cut off, or because a verify has
    /// found it damaged.
    pub(crate) fn is_lost(&self, pack: ObjectName, offset: u64, len: u64) -> bool {
        self.there.get(&pack).is_none_or(|listed| offset.saturating_add(len) > listed.bytes)
            || self.list.damaged.contains(&PackOffset { pack, offset })
    }

    /// Removes lost blobs from the index, and returns those that are there and need one of them: lists of pieces, and
    /// directories with all above them. Reads these only if something is lost.
    pub(crate) fn drop_lost(&mut self, store: &BucketStore) -> Result<HashSet<BlobId>, BucketError> {
        let mut index = std::mem::take(&mut self.index);
        let has_lost = index.drop_places(|pack, place| self.is_lost(pack, place.offset, place.len.into()));
        let mut broken = HashSet::new();
        if has_lost {
            add_broken_pieces(store, &index, &mut broken)?;
            add_broken_folders(store, &index, &mut broken)?;
        }
        self.index = index;
        Ok(broken)
    }
}

impl BucketStore {
    /// Reads the newest list, its indexes, and the names of the packs that are there. A prune that replaces indexes
    /// meanwhile has written a newer list before.
    pub(crate) fn known_packs(&self) -> Result<KnownPacks, BucketError> {
        let list = self.list()?;
        let (list, packs) = match self.read_indexes(&list) {
            Err(BucketError::Missing { .. }) => {
                let list = self.list()?;
                let packs = self.read_indexes(&list)?;
                (list, packs)
            }
            packs => (list, packs?),
        };
        let listed = self.objects.list(PACKS, false)?.into_iter();
        let there = listed.filter_map(|it| Some((ObjectName::parse(&it.name)?, it))).collect();
        Ok(KnownPacks::new(list, &packs, there))
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
