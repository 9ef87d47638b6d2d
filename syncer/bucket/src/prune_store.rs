//! Removes snapshots, and the packs that no other one needs. No pack is read as a whole: what is in packs is known by
//! the indexes, and what trees need by their directories.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    sync::Arc,
    time::Duration,
};

use syncer::snapshot::{Roots, Snapshot, SnapshotError, SnapshotId};

use super::{
    blob::{BlobId, BlobKind, ContentPart},
    bucket_error::BucketError,
    bucket_store::BucketStore,
    known_packs::KnownPacks,
    leftover_objects::KeptUnlisted,
    object_names::INDEXES,
    object_requests::Listed,
    pack_index::{BlobIndex, ObjectName, PackIndex, PackOffset, PackedBlob, index_path, pack_path},
    pack_writer::{PACK_BYTES, PackWriter},
    seal::random,
    store_list::StoreList,
    tree_walk::TreeWalk,
};

/// Small packs are put together if there are at least so many of a kind.
const FEW_PACKS: usize = 8;

/// Blobs that one index names at most.
const BLOBS_OF_INDEX: usize = 400_000;

/// A prune begins again after so many changes by others.
const MAX_BEGINNINGS: usize = 8;

/// What a prune did, or would do.
#[derive(Debug, Default)]
pub struct PrunedStore {
    /// The snapshots that went.
    pub snapshots: BTreeSet<SnapshotId>,
    /// Bytes of packs that went, less those that were written for what they shared.
    pub bytes: u64,
    /// Packs that went.
    pub packs: u64,
}

/// Edits the snapshots of the list that `choose` finds, and returns the new list and which they are.
///
/// # Errors
/// If one of them cannot be chosen or edited so; if the list cannot be changed.
pub fn change_list(
    store: &BucketStore,
    choose: &dyn Fn(&Roots) -> Result<Vec<SnapshotId>, SnapshotError>,
    edit: &dyn Fn(&mut Snapshot) -> Result<(), SnapshotError>,
) -> Result<(Roots, Vec<SnapshotId>), BucketError> {
    let mut chosen = Vec::new();
    let list = store.change(&mut |list| {
        chosen = choose(&list.roots)?;
        for id in &chosen {
            list.roots.get_mut(*id).map_or(Ok(()), edit)?;
        }
        Ok(true)
    })?;
    Ok((list.roots, chosen))
}

/// Removes the snapshots that `judge` names, and the packs that no other one needs.
///
/// # Errors
/// If the list, an index, or a directory of a snapshot that stays cannot be read: then nothing is removed. If the store
/// cannot be written to.
pub fn prune_store(
    store: &Arc<BucketStore>,
    judge: &dyn Fn(&Roots) -> Result<BTreeSet<SnapshotId>, SnapshotError>,
    is_dry: bool,
) -> Result<PrunedStore, BucketError> {
    for nth in 0..MAX_BEGINNINGS {
        if nth > 0 {
            store.objects.pause(&mut pause_after(nth)?)?;
        }
        let mut known = store.known_packs()?;
        // Packs that only a lost index names look like those of a copy that was cut off.
        if let Some(error) = known.take_around().pop() {
            return Err(error);
        }
        let KnownPacks { list, index, .. } = &known;
        let gone = judge(&list.roots)?;
        let used = match used_blobs(store, list, index, &gone) {
            Err(error) if is_overtaken(store, list, &error)? => continue,
            used => used?,
        };
        let kept = KeptUnlisted::read(store)?;
        let plan = PackPlan::new(&known, &used, kept.packs_since);
        if is_dry {
            return Ok(plan.pruned(gone, 0));
        }
        match carry_out(store, list, &kept, index, &plan, &gone) {
            Ok(None) => {}
            Err(error) if is_overtaken(store, list, &error)? => {}
            written => return Ok(plan.pruned(gone, written?.unwrap_or_default())),
        }
    }
    Err(BucketError::Contended(store.url().clone()))
}

/// Returns whether another prune may have removed what an object lacks, because it dropped snapshots since this list.
fn is_overtaken(store: &BucketStore, list: &StoreList, error: &BucketError) -> Result<bool, BucketError> {
    Ok(error.is_of_an_object() && store.list()?.roots.changes != list.roots.changes)
}

/// Returns a pause before a prune begins again, of any length up to a bound that doubles: others wait for another time.
fn pause_after(nth: usize) -> Result<Duration, BucketError> {
    let most_ms = 100_u64 << nth;
    Ok(Duration::from_millis(u64::from_le_bytes(random()?) % most_ms))
}

/// Finds the blobs that the snapshots need that stay.
fn used_blobs(
    store: &BucketStore,
    list: &StoreList,
    index: &BlobIndex,
    gone: &BTreeSet<SnapshotId>,
) -> Result<HashSet<BlobId>, BucketError> {
    let (mut used, mut long) = (HashSet::new(), HashSet::new());
    let mut walk = TreeWalk::new(store, index);
    for snapshot in list.roots.snapshots.iter().filter(|it| !gone.contains(&it.id)) {
        walk.walk(snapshot.tree.id, &mut |_, id, folder| {
            let folder = folder?;
            used.insert(BlobId::folder(id));
            for content in folder.files().map(|file| file.content) {
                let data = BlobId::data(content.id);
                match index.get(&data) {
                    Some(_) => drop(used.insert(data)),
                    None => drop(long.insert(content)),
                }
            }
            Ok(())
        })?;
    }
    let long: Vec<_> = long.into_iter().collect();
    for (content, parts) in long.iter().zip(store.parts(index, &long)?) {
        used.insert(BlobId::pieces(content.id));
        used.extend(parts.iter().filter_map(|part| match part {
            ContentPart::Data(id, _) => Some(BlobId::data(*id)),
            ContentPart::Hole(_) => None,
        }));
    }
    Ok(used)
}

/// What becomes of the packs.
struct PackPlan {
    /// Those that stay, with the blobs of them that are needed.
    stay: BTreeMap<ObjectName, Vec<PackedBlob>>,
    /// Blobs of packs that go, in the order of their places.
    moved: Vec<BlobId>,
    /// Those that go, with their lengths.
    go: BTreeMap<ObjectName, u64>,
    /// Whether no pack goes.
    is_over: bool,
}

impl PackPlan {
    fn new(known: &KnownPacks, used: &HashSet<BlobId>, kept_since: i64) -> Self {
        let KnownPacks { list, index, there, .. } = known;
        let mut needed: BTreeMap<ObjectName, Vec<PackedBlob>> =
            index.packs().iter().map(|name| (*name, Vec::new())).collect();
        for (id, place) in index.blobs().filter(|(id, _)| used.contains(id)) {
            needed.entry(index.pack(place)).or_default().push(place.packed(*id));
        }
        needed.values_mut().for_each(|blobs| blobs.sort_unstable_by_key(|blob| blob.offset));
        let mut plan = Self { stay: BTreeMap::new(), moved: Vec::new(), go: BTreeMap::new(), is_over: true };
        for (name, listed) in there {
            let is_old = listed.written < kept_since || list.dropped.contains(name);
            if !needed.contains_key(name) && is_old {
                plan.go.insert(*name, listed.bytes);
            }
        }
        let small = small_packs(&needed, there);
        for (name, blobs) in needed {
            let len = there.get(&name).map_or(0, |listed| listed.bytes);
            let bytes: u64 = blobs.iter().map(|blob| blob.len).sum();
            // What is lost cannot be moved.
            let is_whole = !blobs.iter().any(|blob| known.is_lost(name, blob.offset, blob.len));
            if is_whole && (bytes * 2 < len || small.contains(&name) || blobs.is_empty()) {
                plan.moved.extend(blobs.iter().map(|blob| blob.id));
                plan.go.insert(name, len);
            } else {
                plan.stay.insert(name, blobs);
            }
        }
        plan.is_over = plan.go.is_empty() && plan.moved.is_empty();
        plan
    }

    /// Returns whether a blob is needed at its place.
    fn needs(&self, at: &PackOffset) -> bool {
        self.stay.get(&at.pack).is_some_and(|blobs| blobs.iter().any(|blob| blob.offset == at.offset))
    }

    fn pruned(&self, snapshots: BTreeSet<SnapshotId>, written: u64) -> PrunedStore {
        let bytes = self.go.values().sum::<u64>().saturating_sub(written);
        PrunedStore { snapshots, bytes, packs: self.go.len() as u64 }
    }
}

/// Returns the packs that are so small, and so many, that they are put together.
fn small_packs(
    needed: &BTreeMap<ObjectName, Vec<PackedBlob>>,
    there: &BTreeMap<ObjectName, Listed>,
) -> BTreeSet<ObjectName> {
    let is_small =
        |name: &ObjectName| there.get(name).is_some_and(|listed| listed.bytes < PACK_BYTES as u64 / 4);
    let of = |is_data: bool| {
        let kind = move |blobs: &[PackedBlob]| {
            blobs.first().is_some_and(|blob| (blob.id.kind == BlobKind::Data) == is_data)
        };
        let small: Vec<ObjectName> = needed
            .iter()
            .filter(|(name, blobs)| is_small(name) && kind(blobs))
            .map(|(name, _)| *name)
            .collect();
        if small.len() < FEW_PACKS { Vec::new() } else { small }
    };
    of(true).into_iter().chain(of(false)).collect()
}

/// Writes what is moved, then the list, and then removes what nothing refers to any more. Returns the bytes of new
/// packs; `None` if others have changed the list meanwhile.
fn carry_out(
    store: &Arc<BucketStore>,
    before: &StoreList,
    kept: &KeptUnlisted,
    index: &BlobIndex,
    plan: &PackPlan,
    gone: &BTreeSet<SnapshotId>,
) -> Result<Option<u64>, BucketError> {
    if plan.is_over && gone.is_empty() && before.indexes.len() < FEW_PACKS {
        store.objects.delete(&kept.old_marks)?;
        return Ok(Some(0));
    }
    let mut packs = PackWriter::new(Arc::clone(store), BlobIndex::default());
    store.read_blobs(index, &plan.moved, &mut |nth, plain| packs.add(plan.moved[nth], &plain?))?;
    packs.finish()?;
    let stay = plan.stay.iter().map(|(name, blobs)| PackIndex { name: *name, blobs: blobs.clone() });
    let all: Vec<PackIndex> = stay.chain(std::mem::take(&mut packs.unpublished)).collect();
    let indexes = write_indexes(store, &all)?;
    let mut is_ours = false;
    store.change(&mut |list| {
        is_ours = list.roots.changes == before.roots.changes;
        if is_ours {
            list.roots.snapshots.retain(|snapshot| !gone.contains(&snapshot.id));
            list.roots.collections += 1;
            list.gone.extend(gone);
            list.dropped = plan.go.keys().copied().collect();
            list.indexes.clone_from(&indexes);
            list.damaged.retain(|at| plan.needs(at));
        }
        Ok(is_ours)
    })?;
    if !is_ours {
        // Of the packs that were written, the next copy takes what it can use, and a later prune removes the rest, and
        // these indexes. Not now: where an answer was wrong, a list may name them.
        return Ok(None);
    }
    packs.published();
    let left = left_indexes(store, before, &indexes, kept.since)?;
    let old = before.indexes.iter().chain(&left).map(|name| index_path(*name));
    store.objects.delete(&old.collect::<Vec<_>>())?;
    store.objects.delete(&kept.old_marks)?;
    store.objects.delete(&plan.go.keys().map(|name| pack_path(*name)).collect::<Vec<_>>())?;
    Ok(Some(packs.written))
}

/// Returns the indexes that copies have left which were cut off before they named them.
fn left_indexes(
    store: &BucketStore,
    before: &StoreList,
    now: &[ObjectName],
    kept_since: i64,
) -> Result<Vec<ObjectName>, BucketError> {
    let there = store.objects.list(INDEXES, false)?;
    let old = there.iter().filter(|listed| listed.written < kept_since);
    let old = old.filter_map(|listed| ObjectName::parse(&listed.name));
    Ok(old.filter(|name| !before.indexes.contains(name) && !now.contains(name)).collect())
}

pub(crate) fn write_indexes(
    store: &BucketStore,
    packs: &[PackIndex],
) -> Result<Vec<ObjectName>, BucketError> {
    let (mut indexes, mut some, mut blobs) = (Vec::new(), Vec::new(), 0);
    for pack in packs {
        blobs += pack.blobs.len();
        some.push(pack.clone());
        if blobs >= BLOBS_OF_INDEX {
            indexes.push(store.write_index(&some)?);
            some.clear();
            blobs = 0;
        }
    }
    if !some.is_empty() {
        indexes.push(store.write_index(&some)?);
    }
    Ok(indexes)
}
