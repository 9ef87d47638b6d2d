//! Checks a store: that each pack is as long as its blobs need, that each blob is what was sealed for its place and has
//! its hash, and that each snapshot has all that it needs.

use std::collections::{BTreeMap, HashMap};

use syncer::{
    path::RelPath,
    snapshot::{
        SnapshotId,
        content::ContentRef,
        folder::{Folder, FolderId},
        scrub::{ReadPace, StoreShare},
    },
};
use volferry_core::hash::ContentId;

use super::{
    blob::{BlobId, BlobKind, ContentPart, decode_parts},
    bucket_error::BucketError,
    bucket_store::BucketStore,
    index::{BlobIndex, BlobPlace, pack_path},
    read_blobs::lacks,
    tree_walk::TreeWalk,
};

/// The most paths of a damaged object that are named.
const MAX_NAMED: usize = 1000;

/// A path that a snapshot has damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedPath {
    /// The snapshot.
    pub snapshot: SnapshotId,
    /// The file, or the directory with all below it.
    pub path: String,
}

/// What a check found.
#[derive(Debug, Default)]
pub struct VerifiedStore {
    /// Blobs that were read.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The damaged packs, and the hashes of what is missing.
    pub damaged: BTreeMap<String, DamagedObject>,
}

/// A damaged or missing object.
#[derive(Debug, Default)]
pub struct DamagedObject {
    /// What is wrong with it.
    pub error: String,
    /// The number of paths that need what is damaged of it.
    pub count: u64,
    /// The first of these paths.
    pub paths: Vec<DamagedPath>,
}

/// Checks the contents of a part of a store, and all directories.
///
/// # Errors
/// If the store does not answer, or its list or an index is damaged.
pub fn verify_store(
    store: &BucketStore,
    share: StoreShare,
    pace: &ReadPace<'_>,
) -> Result<VerifiedStore, BucketError> {
    let (list, index) = store.list_and_index()?;
    let mut check = StoreCheck { store, index: &index, bad: HashMap::new(), done: VerifiedStore::default() };
    check.contents(share, pace)?;
    let snapshots: Vec<_> = list.roots.kept().map(|snapshot| (snapshot.id, snapshot.tree.id)).collect();
    let mut walk = TreeWalk::new(store, &index);
    for (_, tree) in &snapshots {
        walk.walk(*tree, &mut |_, id, folder| check.folder(id, folder))?;
    }
    if !check.bad.is_empty() {
        for (snapshot, tree) in snapshots {
            check.name_paths(snapshot, tree)?;
        }
    }
    Ok(check.done)
}

/// A check that is going on.
struct StoreCheck<'a> {
    store: &'a BucketStore,
    index: &'a BlobIndex,
    /// The damaged blobs, and the objects that they are in.
    bad: HashMap<BlobId, String>,
    done: VerifiedStore,
}

impl StoreCheck<'_> {
    fn is_bad(&mut self, id: BlobId, error: &BucketError) {
        let name = match error {
            BucketError::Damaged { object, .. } | BucketError::Missing { object, .. } => object.clone(),
            BucketError::Lacks { id, .. } => id.clone(),
            _ => String::new(),
        };
        let object = || DamagedObject { error: error.to_string(), ..DamagedObject::default() };
        self.done.damaged.entry(name.clone()).or_insert_with(object);
        self.bad.insert(id, name);
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
                for (_, content, _) in folder?.files() {
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

    /// Names the paths of a snapshot that need what is damaged.
    fn name_paths(&mut self, snapshot: SnapshotId, tree: FolderId) -> Result<(), BucketError> {
        let (store, index, bad, damaged) = (self.store, self.index, &self.bad, &mut self.done.damaged);
        let mut name = |object: &str, path: String| {
            let Some(object) = damaged.get_mut(object) else { return };
            object.count += 1;
            if object.paths.len() < MAX_NAMED {
                object.paths.push(DamagedPath { snapshot, path });
            }
        };
        TreeWalk::new(store, index).walk(tree, &mut |path, id, folder| {
            let Ok(folder) = folder else {
                bad.get(&BlobId::folder(id)).into_iter().for_each(|object| name(object, path.to_string()));
                return Ok(());
            };
            for (entry, content, _) in folder.files() {
                if let Some(object) = needed_of(store, index, bad, content)? {
                    name(object, path.join(entry.name).unwrap_or_else(|_| RelPath::root()).to_string());
                }
            }
            Ok(())
        })
    }
}

/// Returns the damaged object that content needs a blob of, if any.
fn needed_of<'b>(
    store: &BucketStore,
    index: &BlobIndex,
    bad: &'b HashMap<BlobId, String>,
    content: ContentRef,
) -> Result<Option<&'b str>, BucketError> {
    let (data, pieces) = (BlobId::data(content.id), BlobId::pieces(content.id));
    if let Some(object) = bad.get(&data).or_else(|| bad.get(&pieces)) {
        return Ok(Some(object));
    }
    if index.get(&data).is_some() {
        return Ok(None);
    }
    let parts = store.parts(index, &[content])?;
    let object = parts.iter().flatten().find_map(|part| match part {
        ContentPart::Data(id, _) => bad.get(&BlobId::data(*id)),
        ContentPart::Hole(_) => None,
    });
    Ok(object.map(String::as_str))
}
