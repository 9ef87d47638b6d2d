//! Decides which list of a store is read: the newest, or an older one in its place, for those who change nothing.

use syncer::snapshot::Roots;

use super::{
    bucket_error::BucketError,
    bucket_store::{BucketStore, MAX_TRIES, NOT_SEALED, VERSION},
    object_names::{INDEXES, LISTS, PACKS},
    object_requests::MAX_NEW_BYTES,
    store_list::{StoreList, changes_of, list_path},
};

/// The snapshots of a store.
#[derive(Debug)]
pub struct ReadRoots {
    /// The list of them.
    pub roots: Roots,
    /// Which damaged list is newer than this one.
    pub older: Option<BucketError>,
}

/// The lists of a store, as they were found.
#[derive(Default)]
pub(crate) struct FoundLists {
    /// The number of changes of the newest one; 0 without any.
    pub newest: u64,
    /// The newest one that can be read.
    pub list: Option<StoreList>,
    /// Why that is not the newest.
    pub damaged: Option<BucketError>,
}

/// A list to read by.
pub(crate) struct ReadList {
    pub list: StoreList,
    /// Which damaged list is newer.
    pub older: Option<BucketError>,
}

impl BucketStore {
    /// Returns its snapshots. Their root directories have no places.
    ///
    /// # Errors
    /// If no list can be read.
    pub fn roots(&self) -> Result<ReadRoots, BucketError> {
        let ReadList { list, older } = self.list_to_read()?;
        Ok(ReadRoots { roots: list.roots, older })
    }

    /// Reads the newest list. A store without packs may have none yet, and then has an empty one.
    ///
    /// # Errors
    /// If it is damaged, or there is none beside packs or indexes.
    pub(crate) fn list(&self) -> Result<StoreList, BucketError> {
        match self.list_to_read()? {
            ReadList { older: Some(BucketError::OlderList { damaged, .. }), .. } => Err(*damaged),
            ReadList { list, .. } => Ok(list),
        }
    }

    /// Reads the newest list, or the newest one that is not damaged. An older one is what the store had some changes
    /// ago: whoever writes by it undoes these.
    ///
    /// # Errors
    /// If all are damaged, or there is none beside packs or indexes.
    pub(crate) fn list_to_read(&self) -> Result<ReadList, BucketError> {
        match self.found_lists()? {
            FoundLists { list: Some(list), damaged: None, .. } => Ok(ReadList { list, older: None }),
            FoundLists { list: Some(list), damaged: Some(damaged), .. } => {
                let read = list_path(list.roots.changes);
                Ok(ReadList { list, older: Some(BucketError::OlderList { damaged: damaged.into(), read }) })
            }
            FoundLists { list: None, damaged: Some(damaged), .. } => Err(damaged),
            FoundLists { list: None, damaged: None, .. } if self.has_packs()? => {
                // The first copy may have written its list meanwhile, which it does before any pack.
                let found = self.found_lists()?;
                let list = found.list.filter(|_| found.damaged.is_none());
                let list = list.ok_or_else(|| BucketError::NoList(self.objects.url.clone()))?;
                Ok(ReadList { list, older: None })
            }
            FoundLists { .. } => Ok(ReadList { list: StoreList::default(), older: None }),
        }
    }

    /// Looks for the newest list that can be read.
    pub(crate) fn found_lists(&self) -> Result<FoundLists, BucketError> {
        // A list that goes between the two requests was replaced by newer ones.
        'again: for _ in 0..MAX_TRIES {
            let there = self.lists()?;
            let mut found =
                FoundLists { newest: there.first().copied().unwrap_or(0), ..FoundLists::default() };
            for changes in there {
                match self.read_list(changes) {
                    Ok(Some(list)) => return Ok(FoundLists { list: Some(list), ..found }),
                    Ok(None) => continue 'again,
                    Err(error) if error.is_of_an_object() => drop(found.damaged.get_or_insert(error)),
                    Err(error) => return Err(error),
                }
            }
            return Ok(found);
        }
        Err(BucketError::Contended(self.objects.url.clone()))
    }

    /// Returns the numbers of changes of the lists that are there, the newest first.
    pub(crate) fn lists(&self) -> Result<Vec<u64>, BucketError> {
        let found = self.objects.list(LISTS, true)?;
        Ok(found.iter().filter_map(|listed| changes_of(&listed.name)).collect())
    }

    fn has_packs(&self) -> Result<bool, BucketError> {
        Ok(!self.objects.list(PACKS, true)?.is_empty() || !self.objects.list(INDEXES, true)?.is_empty())
    }

    fn read_list(&self, changes: u64) -> Result<Option<StoreList>, BucketError> {
        let name = list_path(changes);
        let Some(sealed) = self.objects.get(&name, MAX_NEW_BYTES)? else { return Ok(None) };
        let damaged = |what| self.objects.damaged(&name, what);
        let opened = self.seal.open(name.as_bytes(), &sealed).ok_or_else(|| damaged(NOT_SEALED))?;
        let list = StoreList::decode(&opened).map_err(|error| match error {
            Ok(version) => BucketError::Version { url: self.objects.url.clone(), version, known: VERSION },
            Err(_) => damaged("it is no list"),
        })?;
        if list.roots.changes == changes {
            Ok(Some(list))
        } else {
            Err(damaged("it is the list of another change"))
        }
    }
}
