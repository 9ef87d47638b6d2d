//! Goes on without a list or indexes that are lost: says first by what older list, and what is not whole then.

use std::{
    cell::Cell,
    collections::{BTreeMap, HashSet},
    fmt,
};

use syncer::snapshot::SnapshotId;

use super::{
    blob::BlobId,
    bucket_error::BucketError,
    bucket_store::BucketStore,
    known_packs::KnownPacks,
    pack_index::{BlobIndex, ObjectName, PackIndex, PackedBlob},
    prune_store::write_indexes,
    seal::random,
    store_list::{StoreList, list_path},
};

/// A repair begins again after so many changes by others.
const MAX_BEGINNINGS: usize = 8;

/// One of the things that a repair does, or says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreRepairStep {
    /// Begins a list without snapshots.
    BeginList,
    /// Writes an older list anew.
    OlderList {
        /// The name of the newest list.
        newest: String,
        /// The name of the list that can be read.
        read: String,
        /// The number of its snapshots.
        snapshots: usize,
    },
    /// Writes the indexes anew, without so many that are lost.
    WriteIndexes(usize),
    /// A snapshot lacks something.
    NotWhole(SnapshotId),
}

impl fmt::Display for StoreRepairStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BeginList => f.write_str(
                "begin a list without snapshots: `volferry snapshot copy` brings back those that a volume has, and takes \
                 what is there of them; the first prune removes the rest",
            ),
            Self::OlderList { newest, read, snapshots } => write!(
                f,
                "write the list of {read} anew, which has {snapshots} snapshots: what was changed after it, up to {newest}, \
                 is lost"
            ),
            Self::WriteIndexes(lost) => {
                write!(f, "write the indexes anew without {lost} that are lost, by what packs say of themselves")
            }
            Self::NotWhole(id) => {
                write!(f, "{id} is not whole: copy it once more from a volume that has it, or forget it")
            }
        }
    }
}

/// Says what a repair of the store's list and indexes does, nothing if they can be read, and does it if `is_applied`.
/// It removes nothing.
///
/// # Errors
/// If the store does not answer, or cannot be written to.
pub fn repair_store(store: &BucketStore, is_applied: bool) -> Result<Vec<StoreRepairStep>, BucketError> {
    let mut told = Vec::new();
    for _ in 0..MAX_BEGINNINGS {
        let plan = RepairPlan::new(store)?;
        if plan.steps.is_empty() {
            return Ok(told);
        }
        told.clone_from(&plan.steps);
        if !is_applied || plan.carry_out(store)? {
            return Ok(told);
        }
    }
    Err(BucketError::Contended(store.url().clone()))
}

/// What a repair would do.
struct RepairPlan {
    /// The number of changes of the newest list.
    newest: u64,
    /// The list that is written after it.
    list: StoreList,
    /// What the indexes name that are written anew.
    indexes: Option<Vec<PackIndex>>,
    steps: Vec<StoreRepairStep>,
}

impl RepairPlan {
    fn new(store: &BucketStore) -> Result<Self, BucketError> {
        let newest = store.found_lists()?.newest;
        match store.known_to_read() {
            Ok(known) => Self::go_on(store, newest, known),
            Err(BucketError::NoList(_) | BucketError::Damaged { .. }) => Self::begin(newest),
            Err(error) => Err(error),
        }
    }

    /// Begins anew where no list can be read.
    fn begin(newest: u64) -> Result<Self, BucketError> {
        let mut list = StoreList::default();
        list.roots.collections = unseen_collections()?;
        Ok(Self { newest, list, indexes: None, steps: vec![StoreRepairStep::BeginList] })
    }

    /// Goes on with the newest list that can be read.
    fn go_on(store: &BucketStore, newest: u64, mut known: KnownPacks) -> Result<Self, BucketError> {
        let mut steps = Vec::new();
        let (read, snapshots) = (known.list.roots.changes, known.list.roots.snapshots.len());
        if known.older.is_some() {
            steps.push(StoreRepairStep::OlderList {
                newest: list_path(newest),
                read: list_path(read),
                snapshots,
            });
        }
        let mut indexes = None;
        if known.older.is_some() || !known.lost.is_empty() {
            let broken = known.drop_lost(store)?;
            if !known.lost.is_empty() {
                steps.push(StoreRepairStep::WriteIndexes(known.lost.len()));
                indexes = Some(whole_packs(&known.index, &broken));
            }
            let is_whole = |tree: BlobId| known.index.get(&tree).is_some() && !broken.contains(&tree);
            let all = known.list.roots.snapshots.iter();
            let not_whole = all.filter(|it| !is_whole(BlobId::folder(it.tree.id)));
            steps.extend(not_whole.map(|it| StoreRepairStep::NotWhole(it.id)));
        }
        let mut list = known.list;
        list.roots.collections = unseen_collections()?;
        Ok(Self { newest, list, indexes, steps })
    }

    /// Writes the list, after the indexes that it names. Returns false if others have changed the list meanwhile.
    fn carry_out(&self, store: &BucketStore) -> Result<bool, BucketError> {
        store.check_conditional()?;
        let indexes = self.indexes.as_ref().map(|packs| write_indexes(store, packs)).transpose()?;
        let is_ours = Cell::new(false);
        store.change_after(
            &mut || {
                let newest = store.found_lists()?.newest;
                is_ours.set(newest == self.newest);
                Ok((newest, self.list.clone()))
            },
            &mut |list| {
                if let Some(indexes) = &indexes {
                    list.indexes.clone_from(indexes);
                }
                Ok(is_ours.get())
            },
        )?;
        Ok(is_ours.get())
    }
}

/// Returns a number of prunes that no writer has seen: one that knows a list which is lost then looks whether all that
/// it needs is still there.
fn unseen_collections() -> Result<u64, BucketError> {
    Ok(u32::from_le_bytes(random()?).into())
}

/// Returns what indexes may name: an index says of a directory that all below it is there.
fn whole_packs(index: &BlobIndex, broken: &HashSet<BlobId>) -> Vec<PackIndex> {
    let mut packs: BTreeMap<ObjectName, Vec<PackedBlob>> = BTreeMap::new();
    for (id, place) in index.in_order(|id| !broken.contains(id)) {
        packs.entry(index.pack(&place)).or_default().push(place.packed(id));
    }
    packs.into_iter().map(|(name, blobs)| PackIndex { name, blobs }).collect()
}
