//! Checks a store: that each pack is as long as its blobs need, that each blob is what was sealed for its place and has
//! its hash, and that each snapshot has all that it needs.

use std::{
    collections::{BTreeSet, HashMap},
    io,
};

use syncer::snapshot::{
    Roots, Snapshot, SnapshotError,
    check::{Damage, DamageNames, ReadPace, StoreShare, Verified},
    store::{ContentRef, Folder, FolderId},
};
use volferry_core::hash::ContentId;

use super::{
    blob::{BlobId, BlobKind, ContentPart, decode_parts},
    bucket_error::BucketError,
    bucket_store::BucketStore,
    known_packs::{KnownPacks, has_part},
    pack_index::{BlobIndex, BlobPlace, PackOffset, pack_path},
    read_blobs::lacks,
    store_list::StoreList,
    tree_walk::TreeWalk,
};

/// What a check has found.
#[derive(Debug)]
pub struct VerifiedStore {
    /// The damage.
    pub verified: Verified,
    /// The snapshots that were checked.
    pub roots: Roots,
    /// Whether the damage is named in the store, so that the next copies send it again.
    pub noted: Result<(), BucketError>,
    /// What is wrong with a list and with indexes, which is damage, too: others were read in their place.
    pub around: Vec<BucketError>,
}

/// Checks the contents of a part of a store, those that its list names as damaged, and all directories. With `notes`,
/// names in the list what is damaged.
///
/// # Errors
/// If the store does not answer, or no list can be read; if `pace` is told to stop.
pub fn verify_store(
    store: &BucketStore,
    share: StoreShare,
    pace: &ReadPace<'_>,
    notes: bool,
) -> Result<VerifiedStore, BucketError> {
    let mut known = store.known_to_read()?;
    let mut around = known.take_around();
    let heads = store.check_heads()?;
    let has_lost_head = heads.lacks_copy || !heads.wrong.is_empty();
    around.extend(heads.wrong);
    let mut check = StoreCheck::new(store, &known);
    let damage = |error: &BucketError| Damage::elsewhere(error.object().to_owned(), error.to_string());
    check.done.damaged.extend(around.iter().map(damage));
    check.contents(share, pace)?;
    let (mut roots, now) = (known.list.roots.clone(), store.list_to_read()?.list.roots);
    // A prune may have removed some meanwhile.
    roots.snapshots.retain(|it| it.forgotten.is_none() && now.get(it.id).is_some());
    // Folders of snapshots that a prune drops while they are walked may go, and are no damage.
    let mut lacking = check.folders(&roots, pace)?;
    for _ in 0..MAX_WALKS {
        let is_there = |ids: &Roots, it: &Snapshot| ids.get(it.id).is_some();
        let now = if lacking.is_empty() { roots.clone() } else { store.list_to_read()?.list.roots };
        if roots.snapshots.iter().all(|it| is_there(&now, it)) {
            break;
        }
        roots.snapshots.retain(|it| is_there(&now, it));
        lacking = check.folders(&roots, pace)?;
    }
    lacking.iter().for_each(|(id, error)| check.note_bad(*id, error));
    if !check.bad.is_empty() {
        let mut names = DamageNames::at_most(MAX_NAMED);
        for snapshot in &roots.snapshots {
            names.begin(snapshot.id);
            check.name_paths(snapshot.tree.id, &mut names)?;
        }
    }
    let noted = match (notes, has_lost_head) {
        (false, _) => Ok(()),
        (true, false) => check.note(),
        (true, true) => store.write_heads().and_then(|()| check.note()),
    };
    Ok(VerifiedStore { noted, verified: check.done, roots, around })
}

/// How often folders are walked again because a prune has dropped snapshots meanwhile.
const MAX_WALKS: usize = 4;

/// The largest number of damaged blobs that a list names, which takes 2 MB. Others are named when these are replaced.
const MAX_NOTED: usize = 100_000;

/// The largest number of paths that are named of one damaged object. A pack may hold files of the whole tree.
const MAX_NAMED: usize = 1_000;

/// A check that is going on.
struct StoreCheck<'a> {
    store: &'a BucketStore,
    known: &'a KnownPacks,
    index: &'a BlobIndex,
    /// The damaged blobs, and the numbers of the objects that they are in.
    bad: HashMap<BlobId, usize>,
    /// The numbers of damaged objects.
    objects: HashMap<String, usize>,
    done: Verified,
    /// The folders among the objects that were checked.
    folders: u64,
    /// Where damaged blobs are that the list does not name.
    found: BTreeSet<PackOffset>,
    /// Where the list names damaged blobs that are right, or that were replaced.
    right: BTreeSet<PackOffset>,
}

impl<'a> StoreCheck<'a> {
    fn new(store: &'a BucketStore, known: &'a KnownPacks) -> Self {
        let (bad, objects, done) = (HashMap::new(), HashMap::new(), Verified::default());
        let used = known.index.blobs().map(|(_, place)| known.index.offset(place));
        let used: BTreeSet<PackOffset> = used.filter(|at| known.list.damaged.contains(at)).collect();
        let right = known.list.damaged.difference(&used).copied().collect();
        let found = BTreeSet::new();
        Self { store, known, index: &known.index, bad, objects, done, folders: 0, found, right }
    }

    /// Names what was found damaged in the list, and no longer what was found right.
    fn note(&self) -> Result<(), BucketError> {
        if self.found.is_empty() && self.right.is_empty() {
            return Ok(());
        }
        let change = &mut |list: &mut StoreList| {
            let before = list.damaged.clone();
            list.damaged.retain(|at| !self.right.contains(at));
            let new = self.found.iter().filter(|at| !list.dropped.contains(&at.pack));
            list.damaged.extend(new.take(MAX_NOTED.saturating_sub(list.damaged.len())));
            Ok(list.damaged != before)
        };
        let noted = self.store.change(change).map(|_| ());
        if self.found.is_empty() { Ok(()) } else { noted }
    }

    fn note_right(&mut self, id: &BlobId) {
        let place = self.index.get(id).map(|place| self.index.offset(&place));
        self.right.extend(place.filter(|at| self.known.list.damaged.contains(at)));
    }

    fn note_bad(&mut self, id: BlobId, error: &BucketError) {
        let name = error.object().to_owned();
        let damaged = &mut self.done.damaged;
        let nth = *self.objects.entry(name.clone()).or_insert(damaged.len());
        if nth == damaged.len() {
            damaged.push(Damage::elsewhere(name, error.to_string()));
        }
        self.bad.insert(id, nth);
        let is_new =
            |place: &BlobPlace| !self.known.is_lost(self.index.pack(place), place.offset, place.len.into());
        let place = self.index.get(&id).filter(is_new);
        self.found.extend(place.map(|place| self.index.offset(&place)));
    }

    /// Reads the contents of a part of the store, and those that are known to be damaged, in the order of their places.
    fn contents(&mut self, share: StoreShare, pace: &ReadPace<'_>) -> Result<(), BucketError> {
        let is_known = |id: &BlobId| {
            let place = self.index.get(id).map(|place| self.index.offset(&place));
            place.is_some_and(|at| self.known.list.damaged.contains(&at))
        };
        let is_of_part =
            |id: &BlobId| id.kind != BlobKind::Folder && (share.has(&ContentId(id.hash)) || is_known(id));
        let blobs = self.index.in_order(is_of_part);
        let ids: Vec<BlobId> = blobs.iter().map(|(id, _)| *id).collect();
        self.store.read_blobs(self.index, &ids, &mut |nth, bytes| {
            let id = ids[nth];
            let (len, place) = (blobs[nth].1.len, blobs[nth].1);
            pace.spend(len.into()).map_err(|error| stopped(self.store, error))?;
            self.done.objects += 1;
            self.done.bytes += u64::from(len);
            let checked = match bytes {
                // A prune has removed it meanwhile, because nothing needs it.
                Err(BucketError::Lacks { .. }) => return Ok(()),
                bytes => bytes.and_then(|bytes| self.content(&id, &place, &bytes)),
            };
            match checked {
                Err(error) if error.is_of_an_object() => self.note_bad(id, &error),
                checked => checked.map(|()| self.note_right(&id))?,
            }
            Ok(())
        })
    }

    /// Checks that content has its hash, and that a list of pieces has them all.
    fn content(&self, id: &BlobId, place: &BlobPlace, bytes: &[u8]) -> Result<(), BucketError> {
        let pack = pack_path(self.index.pack(place));
        if id.kind == BlobKind::Data {
            let is_right = ContentId::of(bytes).0 == id.hash;
            return is_right
                .then_some(())
                .ok_or_else(|| self.store.objects.damaged(&pack, "a blob does not have its hash"));
        }
        let parts = decode_parts(bytes);
        let parts = parts.map_err(|_| self.store.objects.damaged(&pack, "a list of pieces is none"))?;
        match parts.iter().find(|part| !has_part(self.index, part)) {
            Some(ContentPart::Data(missing, _)) => Err(lacks(self.store, &BlobId::data(*missing))),
            _ => Ok(()),
        }
    }

    /// Checks the folders of all snapshots, and returns what is damaged or missing.
    fn folders(
        &mut self,
        roots: &Roots,
        pace: &ReadPace<'_>,
    ) -> Result<Vec<(BlobId, BucketError)>, BucketError> {
        let (store, mut lacking, mut folders) = (self.store, Vec::new(), 0);
        let mut walk = TreeWalk::new(store, self.index);
        for snapshot in &roots.snapshots {
            walk.walk(snapshot.tree.id, &mut |_, id, folder| {
                let bytes = folder.as_ref().map_or(0, |folder| folder.listing.encoded_len() as u64);
                pace.spend(bytes).map_err(|error| stopped(store, error))?;
                folders += 1;
                self.folder(id, folder, &mut lacking)
            })?;
        }
        self.done.objects = self.done.objects + folders - self.folders;
        self.folders = folders;
        Ok(lacking)
    }

    /// Checks that a directory can be read, and that what it refers to is there.
    fn folder(
        &mut self,
        id: FolderId,
        folder: Result<&Folder, BucketError>,
        lacking: &mut Vec<(BlobId, BucketError)>,
    ) -> Result<(), BucketError> {
        match folder {
            Err(error) if error.is_of_an_object() => lacking.push((BlobId::folder(id), error)),
            folder => {
                self.note_right(&BlobId::folder(id));
                for content in folder?.files().map(|file| file.content) {
                    let (data, pieces) = (BlobId::data(content.id), BlobId::pieces(content.id));
                    if self.index.get(&data).or_else(|| self.index.get(&pieces)).is_none() {
                        lacking.push((data, lacks(self.store, &data)));
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

fn stopped(store: &BucketStore, source: io::Error) -> BucketError {
    SnapshotError::Io { operation: "check", path: store.url().to_string().into(), source }.into()
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

#[cfg(test)]
mod tests {
    use syncer::monitor::Monitor;

    use super::*;
    use crate::{
        blob::encode_parts,
        send_history::{WritableStore, packs_of, publish},
    };

    #[test]
    fn a_list_of_pieces_that_are_not_all_there_is_damaged_and_named_in_the_list() {
        let store = BucketStore::in_memory();
        let WritableStore { mut list, mut packs, .. } = packs_of(&store).unwrap();
        let [here, gone] = [b"here", b"gone"].map(|bytes| ContentId::of(bytes));
        packs.add(BlobId::data(here), b"here").unwrap();
        for (whole, parts) in [
            (1, vec![ContentPart::Hole(1 << 40), ContentPart::Data(here, 4)]),
            (2, vec![ContentPart::Data(here, 4), ContentPart::Data(gone, 4)]),
            (3, vec![ContentPart::Data(here, 5)]),
        ] {
            packs.add(BlobId::pieces(ContentId([whole; 32])), &encode_parts(&parts)).unwrap();
        }
        packs.finish().unwrap();
        publish(&store, &mut list, &mut packs, &mut |_| Ok(true)).unwrap();
        let verify = || {
            let monitor = Monitor::default();
            verify_store(&store, StoreShare::default(), &ReadPace::new(None, &monitor), true).unwrap()
        };
        let checked = verify();
        checked.noted.unwrap();
        assert_eq!(checked.verified.damaged.len(), 2, "{:?}", checked.verified);
        assert_eq!(store.list().unwrap().damaged.len(), 2);
        let packs = packs_of(&store).unwrap().packs;
        let has = [1, 2, 3].map(|whole| packs.has(&BlobId::pieces(ContentId([whole; 32]))));
        assert_eq!(has, [true, false, false]);
        assert_eq!(verify().verified.damaged.len(), 2, "it is still damaged, and named once");
        assert_eq!(store.list().unwrap().damaged.len(), 2);
    }
}
