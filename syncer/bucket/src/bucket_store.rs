//! A store of snapshots in object storage: opens it, reads its indexes, and changes its list.

use bytes::Bytes;
use contract::{BucketUrl, StoreKey};
use parking_lot::Mutex;

use super::{
    bucket_error::BucketError,
    conditional_writes::ConditionalWrites,
    kept_lists::{follows, old_lists},
    object_names::{HEAD, HEAD_COPY, INDEXES, LISTS, PACKS},
    object_requests::{MAX_NEW_BYTES, Objects, Stop, never},
    pack_index::{NewerIndex, ObjectName, PackIndex, index_path},
    seal::{SEAL_BYTES, Seal, StoreId, random},
    store_list::{StoreList, list_path},
};

const HEAD_MAGIC: &[u8; 8] = b"vfbucket";
pub(crate) const VERSION: u32 = 1;
const HEAD_BYTES: usize = 8 + 4 + 16 + SEAL_BYTES + HEAD_MAGIC.len();

/// The longest index that is read, in bytes.
const MAX_INDEX_BYTES: u64 = 256 << 20;

/// A writer gives up after so many changes by others.
pub(crate) const MAX_TRIES: usize = 64;

/// What the indexes of a list say.
#[derive(Default)]
pub(crate) struct ReadIndexes {
    pub packs: Vec<PackIndex>,
    pub lost: Vec<LostIndex>,
}

/// An index that is missing or damaged.
pub(crate) struct LostIndex {
    pub name: ObjectName,
    pub error: BucketError,
}

/// The head of a store, and what is sealed by its id.
struct FoundHead {
    head: Bytes,
    seal: Seal,
    /// Whether the head itself is missing or damaged.
    is_copy: bool,
}

impl FoundHead {
    fn of(self, objects: Objects) -> BucketStore {
        let Self { head, seal, is_copy: lost_head } = self;
        let (conditional, newer) = (ConditionalWrites::default(), Mutex::default());
        BucketStore { objects, seal, head, lost_head, conditional, newer }
    }
}

/// Reads the object `name` as the head of a store.
fn judge_head(objects: &Objects, key: &StoreKey, name: &str, head: Bytes) -> Result<FoundHead, BucketError> {
    let url = || objects.url.clone();
    let magic = head.strip_prefix(HEAD_MAGIC).and_then(|rest| rest.split_first_chunk::<4>());
    let Some((version, rest)) = magic else { return Err(BucketError::Foreign(url())) };
    let version = u32::from_le_bytes(*version);
    if version != VERSION {
        return Err(BucketError::Version { url: url(), version, known: VERSION });
    }
    let Some((id, sealed)) = rest.split_first_chunk::<16>().filter(|_| head.len() == HEAD_BYTES) else {
        return Err(objects.damaged(name, "it does not have the length that this program writes"));
    };
    let seal = Seal::new(key, id);
    match seal.open(&head[..head.len() - sealed.len()], sealed) {
        Some(_) => Ok(FoundHead { head, seal, is_copy: false }),
        None => Err(BucketError::WrongKey(url())),
    }
}

/// A store that is open.
pub struct BucketStore {
    pub(crate) objects: Objects,
    pub(crate) seal: Seal,
    head: Bytes,
    /// Whether only the copy of the head is right.
    lost_head: bool,
    conditional: ConditionalWrites,
    /// What a prune by others has left, if it removed something that was read.
    pub(crate) newer: Mutex<Option<NewerIndex>>,
}

impl std::fmt::Debug for BucketStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BucketStore").field("url", &self.objects.url).finish_non_exhaustive()
    }
}

/// The state of the head and its copy.
#[derive(Default)]
pub(crate) struct CheckedHeads {
    /// What is wrong with them.
    pub wrong: Vec<BucketError>,
    /// Whether there is no copy yet.
    pub lacks_copy: bool,
}

impl BucketStore {
    /// Opens the store at `url`.
    ///
    /// # Errors
    /// If there is none, it cannot be read, or the key is another one.
    pub fn open(url: &BucketUrl, key: &StoreKey) -> Result<Self, BucketError> {
        let objects = Objects::connect(url, never())?;
        match Self::find(&objects, key)? {
            Some(found) => Ok(found.of(objects)),
            None if has_parts(&objects)? => Err(BucketError::NoHead(url.clone())),
            None => Err(BucketError::NoStore(url.clone())),
        }
    }

    /// Finds the store by its head, or else by the copy of it.
    fn find(objects: &Objects, key: &StoreKey) -> Result<Option<FoundHead>, BucketError> {
        let read = |name| {
            objects.get(name, MAX_NEW_BYTES)?.map(|head| judge_head(objects, key, name, head)).transpose()
        };
        match read(HEAD) {
            Ok(Some(found)) => Ok(Some(found)),
            Err(error) if !error.is_of_head() => Err(error),
            missing_or_damaged => match read(HEAD_COPY) {
                Ok(Some(copy)) => Ok(Some(FoundHead { is_copy: true, ..copy })),
                _ => missing_or_damaged,
            },
        }
    }

    /// Opens the store at `url`, and makes it if the place is empty.
    ///
    /// # Errors
    /// If it cannot be read or made, or the key is another one.
    pub fn open_or_make(url: &BucketUrl, key: &StoreKey) -> Result<Self, BucketError> {
        Self::open_or_make_until(url, key, never())
    }

    /// Does the same for a run, of which no request goes on after `stop`.
    pub(crate) fn open_or_make_until(
        url: &BucketUrl,
        key: &StoreKey,
        stop: Stop,
    ) -> Result<Self, BucketError> {
        Self::make(Objects::connect(url, stop)?, key)
    }

    fn make(objects: Objects, key: &StoreKey) -> Result<Self, BucketError> {
        if let Some(found) = Self::find(&objects, key)? {
            return Ok(found.of(objects));
        }
        if !objects.list("", true)?.is_empty() {
            // They may be those of a store that another writer has just made.
            return match Self::find(&objects, key)? {
                Some(found) => Ok(found.of(objects)),
                None if has_parts(&objects)? => Err(BucketError::NoHead(objects.url.clone())),
                None => Err(BucketError::Foreign(objects.url.clone())),
            };
        }
        let id: StoreId = random()?;
        let mut head = [&HEAD_MAGIC[..], &VERSION.to_le_bytes(), &id].concat();
        let sealed = Seal::new(key, &id).seal(&head, HEAD_MAGIC)?;
        head.extend_from_slice(&sealed);
        objects.put_new(HEAD, &Bytes::from(head))?;
        // Another writer may have made it first.
        let found = Self::find(&objects, key)?.ok_or_else(|| objects.missing(HEAD))?;
        Ok(found.of(objects))
    }

    /// Checks, before this process writes, that the server refuses what others have written first. Writes the head or
    /// its copy again where one is lost.
    pub(crate) fn check_conditional(&self) -> Result<(), BucketError> {
        if self.conditional.check(&self.objects, &[HEAD_COPY, HEAD], &self.head)? && self.lost_head {
            self.objects.wait(self.objects.put(HEAD, self.head.clone()))??;
        }
        Ok(())
    }

    /// Checks the head and its copy.
    pub(crate) fn check_heads(&self) -> Result<CheckedHeads, BucketError> {
        let mut checked = CheckedHeads::default();
        for name in [HEAD, HEAD_COPY] {
            let what = match self.objects.get(name, MAX_NEW_BYTES) {
                Ok(Some(there)) if there == self.head => continue,
                // A first copy that was cut off has not written it, and nor have earlier versions.
                Ok(None) if name == HEAD_COPY => {
                    checked.lacks_copy = true;
                    continue;
                }
                Ok(None) => "it is missing",
                Err(error) if !error.is_of_an_object() => return Err(error),
                _ => "it is not what this program has written",
            };
            checked.wrong.push(self.objects.damaged(name, what));
        }
        Ok(checked)
    }

    /// Writes the head and its copy again.
    pub(crate) fn write_heads(&self) -> Result<(), BucketError> {
        for name in [HEAD, HEAD_COPY] {
            self.objects.wait(self.objects.put(name, self.head.clone()))??;
        }
        Ok(())
    }

    /// Returns its place.
    pub fn url(&self) -> &BucketUrl {
        &self.objects.url
    }

    /// Changes the list: `change` gets the newest one, again and again if others change it meanwhile, and returns
    /// whether it has to be written. Returns the list as it is then. The one commit point is that no object of the next
    /// name exists.
    pub(crate) fn change(
        &self,
        change: &mut dyn FnMut(&mut StoreList) -> Result<bool, BucketError>,
    ) -> Result<StoreList, BucketError> {
        self.change_after(
            &mut || {
                let list = self.list()?;
                Ok((list.roots.changes, list))
            },
            change,
        )
    }

    /// Changes a list as [`Self::change`] does. `read` returns the list with the number that the next one follows.
    pub(crate) fn change_after(
        &self,
        read: &mut dyn FnMut() -> Result<(u64, StoreList), BucketError>,
        change: &mut dyn FnMut(&mut StoreList) -> Result<bool, BucketError>,
    ) -> Result<StoreList, BucketError> {
        for _ in 0..MAX_TRIES {
            let (before, mut list) = read()?;
            if !change(&mut list)? {
                return Ok(list);
            }
            self.check_conditional()?;
            list.roots.changes = before + 1;
            let name = list_path(list.roots.changes);
            let sealed = self.seal.seal(name.as_bytes(), &list.encode())?;
            if !self.objects.put_new(&name, &Bytes::from(sealed))? {
                continue;
            }
            let there = self.lists()?;
            // What was just written is there, or newer ones are. So this is no answer of the store.
            if there.first().is_none_or(|newest| *newest <= before) {
                return Err(self.objects.lost("list", LISTS, "what was just written is not there"));
            }
            if follows(&there, before) {
                self.remove_old_lists(&there);
                return Ok(list);
            }
        }
        Err(BucketError::Contended(self.objects.url.clone()))
    }

    /// Writes the first list of a store that has none. It comes before the first pack: so packs without a list are
    /// damage, and no first copy that was cut off.
    pub(crate) fn begin_list(&self) -> Result<(), BucketError> {
        self.change(&mut |list| Ok(list.roots.changes == 0)).map(|_| ())
    }

    /// Removes lists that nobody needs. One who may not remove objects leaves them to others.
    fn remove_old_lists(&self, there: &[u64]) {
        let old: Vec<String> = old_lists(there).iter().map(|changes| list_path(*changes)).collect();
        if !old.is_empty() {
            let _ = self.objects.delete(&old);
        }
    }

    /// Reads the indexes of a list, the newest first, and returns which of them are lost.
    pub(crate) fn read_indexes(&self, list: &StoreList) -> Result<ReadIndexes, BucketError> {
        let mut read = ReadIndexes::default();
        for name in list.indexes.iter().rev() {
            match self.read_index(*name) {
                Ok(packs) => read.packs.extend(packs),
                Err(error) if error.is_of_an_object() => read.lost.push(LostIndex { name: *name, error }),
                Err(error) => return Err(error),
            }
        }
        Ok(read)
    }

    fn read_index(&self, name: ObjectName) -> Result<Vec<PackIndex>, BucketError> {
        let name = index_path(name);
        let sealed = self.objects.get(&name, MAX_INDEX_BYTES)?.ok_or_else(|| self.objects.missing(&name))?;
        let opened = self.seal.open(name.as_bytes(), &sealed);
        let opened = opened.ok_or_else(|| self.objects.damaged(&name, NOT_SEALED))?;
        PackIndex::decode_all(&opened).map_err(|_| self.objects.damaged(&name, "it is no index"))
    }

    /// Writes what packs have as an index, and returns its name.
    pub(crate) fn write_index(&self, packs: &[PackIndex]) -> Result<ObjectName, BucketError> {
        self.check_conditional()?;
        let name = ObjectName(random()?);
        let path = index_path(name);
        let mut bytes = Vec::new();
        packs.iter().for_each(|pack| pack.encode(&mut bytes));
        let sealed = self.seal.seal(path.as_bytes(), &bytes)?;
        self.objects.wait(self.objects.put(&path, sealed.into()))??;
        Ok(name)
    }
}

/// What is wrong with bytes that the key of the store has not sealed for their place.
pub(crate) const NOT_SEALED: &str = "it is not what was written there with the key of the store";

/// Returns whether the place has objects of a store.
fn has_parts(objects: &Objects) -> Result<bool, BucketError> {
    for folder in [LISTS, INDEXES, PACKS] {
        if !objects.list(folder, true)?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    impl BucketStore {
        /// Makes a store that is gone with its process.
        pub(crate) fn in_memory() -> Arc<Self> {
            let key = StoreKey::generate().unwrap();
            Arc::new(Self::make(Objects::in_memory(), &key).unwrap())
        }
    }

    #[test]
    fn a_list_counts_where_it_follows_the_one_before() {
        for (there, before, does) in [
            (&[1][..], 0, true),
            (&[3, 2, 1], 0, true),
            (&[9, 8, 7], 8, true),
            (&[9, 8, 7], 7, true),
            (&[16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1], 0, true),
            (&[17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1], 0, false),
            // The ones before were removed.
            (&[9, 8, 7], 6, false),
            // Told that there were none, a writer has made the first one again.
            (&[9, 8, 1], 0, false),
            (&[9, 8], 0, false),
        ] {
            assert_eq!(follows(there, before), does, "{there:?} {before}");
        }
    }
}
