//! Checks a store: that each pack is as long as its blobs need, that each blob is what was sealed for its place and has
//! its hash, and that each snapshot has all that it needs.

use std::collections::HashMap;

use syncer::snapshot::{
    Roots,
    check::{Damage, DamageNames, ReadPace, StoreShare, Verified},
    store::{ContentRef, Folder, FolderId},
};
use volferry_core::hash::ContentId;

use super::{
    blob::{BlobId, BlobKind, ContentPart, decode_parts},
    bucket_error::BucketError,
    bucket_store::{BucketStore, KnownPacks},
    index::{BlobIndex, BlobPlace, pack_path},
    read_blobs::lacks,
    tree_walk::TreeWalk,
};

/// Checks the contents of a part of a store, and all directories. Also returns the snapshots that were checked.
///
/// # Errors
/// If the store does not answer, or its list or an index is damaged.
pub fn verify_store(
    store: &BucketStore,
    share: StoreShare,
    pace: &ReadPace<'_>,
) -> Result<(Verified, Roots), BucketError> {
    let KnownPacks { mut list, index, .. } = store.known_packs()?;
    let (bad, objects, done) = (HashMap::new(), HashMap::new(), Verified::default());
    let mut check = StoreCheck { store, index: &index, bad, objects, done };
    check.contents(share, pace)?;
    list.roots.snapshots.retain(|snapshot| snapshot.forgotten.is_none());
    let mut walk = TreeWalk::new(store, &index);
    for snapshot in &list.roots.snapshots {
        walk.walk(snapshot.tree.id, &mut |_, id, folder| check.folder(id, folder))?;
    }
    if !check.bad.is_empty() {
        let mut names = DamageNames::at_most(MAX_NAMED);
        for snapshot in &list.roots.snapshots {
            names.begin(snapshot.id);
            check.name_paths(snapshot.tree.id, &mut names)?;
        }
    }
    Ok((check.done, list.roots))
}

/// The largest number of paths that are named of one damaged object. A pack may hold files of the whole tree.
const MAX_NAMED: usize = 1_000;

/// A check that is going on.
struct StoreCheck<'a> {
    store: &'a BucketStore,
    index: &'a BlobIndex,
    /// The damaged blobs, and the numbers of the objects that they are in.
    bad: HashMap<BlobId, usize>,
    /// The numbers of damaged objects.
    objects: HashMap<String, usize>,
    done: Verified,
}

impl StoreCheck<'_> {
    fn is_bad(&mut self, id: BlobId, error: &BucketError) {
        let name = match error {
            BucketError::Damaged { object, .. } | BucketError::Missing { object, .. } => object.clone(),
            BucketError::Lacks { id, .. } => id.clone(),
            _ => String::new(),
        };
        let damaged = &mut self.done.damaged;
        let nth = *self.objects.entry(name.clone()).or_insert(damaged.len());
        if nth == damaged.len() {
            damaged.push(Damage::elsewhere(name, error.to_string()));
        }
        self.bad.insert(id, nth);
    }

    /// Reads the contents of a part of the store in the order of their places.
    fn contents(&mut self, share: StoreShare, pace: &ReadPace<'_>) -> Result<(), BucketError> {
        let is_of_part = |id: &BlobId| id.kind != BlobKind::Folder && share.has(&ContentId(id.hash));
        let mut blobs: Vec<(BlobId, BlobPlace)> =
            self.index.blobs().filter(|(id, _)| is_of_part(id)).map(|(id, place)| (*id, *place)).collect();
        blobs.sort_unstable_by_key(|(_, place)| (place.pack, place.offset));
        let ids: Vec<BlobId> = blobs.iter().map(|(id, _)| *id).collect();
        self.store.read_blobs(self.index, &ids, &mut |nth, bytes| {
            let id = ids[nth];
            let (len, place) = (blobs[nth].1.len, blobs[nth].1);
            pace.spend(len.into()).map_err(BucketError::Runtime)?;
            self.done.objects += 1;
            self.done.bytes += u64::from(len);
            let is_right = |bytes: &Vec<u8>| match id.kind {
                BlobKind::Data => ContentId::of(bytes).0 == id.hash,
                _ => decode_parts(bytes).is_ok(),
            };
            let pack = pack_path(self.index.pack(&place));
            let wrong = || self.store.objects.damaged(&pack, "a blob does not have its hash");
            match bytes.and_then(|bytes| if is_right(&bytes) { Ok(()) } else { Err(wrong()) }) {
                Err(error) if error.is_of_an_object() => self.is_bad(id, &error),
                checked => checked?,
            }
            Ok(())
        })
    }

    /// Checks that a directory can be read, and that what it refers to is there.
    fn folder(&mut self, id: FolderId, folder: Result<&Folder, BucketError>) -> Result<(), BucketError> {
        self.done.objects += 1;
        match folder {
            Err(error) if error.is_of_an_object() => self.is_bad(BlobId::folder(id), &error),
            folder => {
                for content in folder?.files().map(|file| file.content) {
                    let (data, pieces) = (BlobId::data(content.id), BlobId::pieces(content.id));
                    if self.index.get(&data).or_else(|| self.index.get(&pieces)).is_none() {
                        let error = lacks(self.store, &data);
                        self.is_bad(data, &error);
                    }
                }
            }
        }
        Ok(())
    }

    /// Names the paths of a tree that need what is damaged.
    fn name_paths(&mut self, tree: FolderId, names: &mut DamageNames) -> Result<(), BucketError> {
        let (store, index, bad, damaged) = (self.store, self.index, &self.bad, &mut self.done.damaged);
        TreeWalk::new(store, index).walk(tree, &mut |path, id, folder| {
            let Ok(folder) = folder else {
                bad.get(&BlobId::folder(id)).into_iter().for_each(|nth| names.add(damaged, *nth, path));
                return Ok(());
            };
            for file in folder.files() {
                if let Some(nth) = needed_of(store, index, bad, file.content)? {
                    names.add(damaged, nth, &path.join(file.entry.name).unwrap_or_else(|_| path.clone()));
                }
            }
            Ok(())
        })
    }
}

/// Returns the number of the damaged object that content needs a blob of, if any.
fn needed_of(
    store: &BucketStore,
    index: &BlobIndex,
    bad: &HashMap<BlobId, usize>,
    content: ContentRef,
) -> Result<Option<usize>, BucketError> {
    let (data, pieces) = (BlobId::data(content.id), BlobId::pieces(content.id));
    if let Some(nth) = bad.get(&data).or_else(|| bad.get(&pieces)) {
        return Ok(Some(*nth));
    }
    if index.get(&data).is_some() {
        return Ok(None);
    }
    let parts = store.parts(index, &[content])?;
    Ok(parts.iter().flatten().find_map(|part| match part {
        ContentPart::Data(id, _) => bad.get(&BlobId::data(*id)).copied(),
        ContentPart::Hole(_) => None,
    }))
}
