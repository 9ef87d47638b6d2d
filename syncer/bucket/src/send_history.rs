//! Copies snapshots into a store of object storage.
//!
//! A directory is sent after all that is below it. So one that an index has is whole, and is not looked into.

use std::{collections::BTreeSet, sync::Arc};

use contract::CopySelection;
use syncer::{
    path::RelPath,
    snapshot::{
        Engine, Snapshot, SnapshotError, Stamps,
        copy::{ContentPiece, CopiedHistory, HistorySource, OfferedHistory, RequestedContent, selected},
        offsite::ChangeRoots,
        store::{ContentRef, EncodedFolder, Folder, FolderFile, FolderRef, Home, ObjectRef},
    },
};
use volferry_core::tree::stamps::IN_MOTION;

use super::{
    blob::{BlobId, BlobKind},
    bucket_error::BucketError,
    bucket_store::{BucketStore, LostIndex},
    content_sender::ContentSender,
    known_packs::KnownPacks,
    pack_index::{ObjectName, PackIndex},
    pack_writer::PackWriter,
    store_list::StoreList,
};

/// A copy begins again after so many prunes by others that removed what it needs, and goes on after as many others.
const MAX_BEGINNINGS: usize = 8;

/// What a copy has sent.
#[derive(Debug)]
pub struct SentHistory {
    /// What became of the snapshots.
    pub done: CopiedHistory,
    /// What was wrong with indexes that were replaced.
    pub replaced: Vec<BucketError>,
    /// What is wrong with indexes that something still needs.
    pub around: Vec<BucketError>,
}

/// Copies snapshots of `source` into the store.
///
/// # Errors
/// If the source cannot be read, or the store not be written to. What was copied before stays.
pub fn send_history(
    store: &Arc<BucketStore>,
    source: &mut dyn HistorySource,
    selection: &CopySelection,
) -> Result<SentHistory, BucketError> {
    let offer = source.offer()?;
    let chosen = selected(&offer, selection)?;
    let is_named = matches!(selection, CopySelection::Named(_));
    let mut done = CopiedHistory::default();
    let WritableStore { list, packs, lost } = packs_of(store)?;
    let mut sending = Sending { store, source, offer: &offer, list, packs, bytes: 0 };
    sending.heal(&chosen, &mut done)?;
    for offered in chosen {
        let id = offered.id;
        let own = sending.list.roots.get(id);
        let is_forgotten = own.map_or(sending.list.gone.contains(&id), |own| own.forgotten.is_some());
        let sent = match own {
            Some(own) if own.tree.id != offered.tree.id => {
                done.failed.push((id, "another snapshot has this id there".into()));
                continue;
            }
            Some(_) if done.failed.iter().any(|(failed, _)| *failed == id) => continue,
            _ if is_forgotten && !is_named => {
                done.forgotten.push(id);
                continue;
            }
            Some(_) if !is_forgotten => {
                done.present.push(id);
                continue;
            }
            _ => sending.publish(offered),
        };
        match sent {
            Ok(copied) => done.copied.push(copied),
            Err(BucketError::Snapshot(error)) if error.is_of_an_object() => {
                done.failed.push((id, error.to_string()));
            }
            Err(error) => return Err(error),
        }
    }
    done.bytes = sending.bytes;
    let (around, replaced): (Vec<_>, Vec<_>) =
        lost.into_iter().partition(|lost| sending.list.indexes.contains(&lost.name));
    let errors = |lost: Vec<LostIndex>| lost.into_iter().map(|lost| lost.error).collect();
    Ok(SentHistory { done, replaced: errors(replaced), around: errors(around) })
}

/// A copy that is going on.
struct Sending<'a> {
    store: &'a Arc<BucketStore>,
    source: &'a mut dyn HistorySource,
    offer: &'a OfferedHistory,
    /// The list as it was read or written last.
    list: StoreList,
    packs: PackWriter,
    /// Bytes of packs of the snapshots that were published.
    bytes: u64,
}

/// What became of a snapshot whose objects are in the store.
pub(crate) enum Published {
    Done,
    /// A prune has removed something meanwhile that the snapshot needs.
    Pruned,
}

impl Sending<'_> {
    /// Sends again what the store has lost of snapshots that it lists.
    fn heal(&mut self, chosen: &[&Snapshot], done: &mut CopiedHistory) -> Result<(), BucketError> {
        for _ in 0..MAX_BEGINNINGS {
            let before = self.packs.written;
            (done.healed, done.failed) = (Vec::new(), Vec::new());
            for offered in chosen {
                let (id, tree) = (offered.id, BlobId::folder(offered.tree.id));
                let is_listed = self.list.roots.get(id).is_some_and(|own| own.tree.id == offered.tree.id);
                if !is_listed || self.packs.has(&tree) {
                    continue;
                }
                match self.folder(&offered.tree, &RelPath::root()) {
                    Ok(()) => {
                        self.packs.need(tree);
                        done.healed.push(id);
                    }
                    Err(BucketError::Snapshot(error)) if error.is_of_an_object() => {
                        done.failed.push((id, format!("the store has lost some of it, and {error}")));
                    }
                    Err(error) => return Err(error),
                }
            }
            self.packs.finish()?;
            self.bytes += self.packs.written - before;
            if self.packs.unpublished.is_empty() && !self.packs.replaces_lost(&self.list) {
                return Ok(());
            }
            let published = publish(self.store, &mut self.list, &mut self.packs, &mut |_| Ok(true))?;
            if let Published::Done = published {
                return Ok(());
            }
            WritableStore { list: self.list, packs: self.packs, .. } = packs_of(self.store)?;
        }
        Err(BucketError::Contended(self.store.url().clone()))
    }

    /// Sends what the store lacks of a snapshot, and publishes it, or brings it back if it is forgotten there. Returns
    /// it as the store has it.
    fn publish(&mut self, offered: &Snapshot) -> Result<Snapshot, BucketError> {
        offered.check_tags()?;
        for _ in 0..MAX_BEGINNINGS {
            let before = self.packs.written;
            self.folder(&offered.tree, &RelPath::root())?;
            self.packs.finish()?;
            let snapshot = Snapshot {
                tree: without_place(&offered.tree),
                added_bytes: self.packs.written - before,
                engine: Engine::Copy,
                forgotten: None,
                origin: offered.origin.or(self.offer.volume),
                ..offered.clone()
            };
            self.bytes += snapshot.added_bytes;
            let (list, packs) = (&mut self.list, &mut self.packs);
            let published = publish_snapshot(self.store, list, packs, &snapshot, &mut |_| Ok(()))?;
            if let Published::Done = published {
                return Ok(self.list.roots.get(snapshot.id).cloned().unwrap_or(snapshot));
            }
            // The packs that were sent are found by their ends.
            WritableStore { list: self.list, packs: self.packs, .. } = packs_of(self.store)?;
        }
        Err(BucketError::Contended(self.store.url().clone()))
    }

    /// Sends what the store lacks of a directory and of all below it, and then the directory.
    fn folder(&mut self, there: &FolderRef, path: &RelPath) -> Result<(), BucketError> {
        let id = BlobId::folder(there.id);
        if self.packs.has(&id) {
            return Ok(());
        }
        let mut read = None;
        self.source.folders(std::slice::from_ref(there), &mut |_, folder| {
            read = Some(folder);
            Ok(())
        })?;
        let folder = read.unwrap_or_default();
        self.contents(&folder, path)?;
        for (name, child) in folder.subfolders() {
            self.folder(&child, &below(path, name))?;
        }
        let folder = without_places(folder);
        let EncodedFolder { id, bytes } = folder.encode();
        if id == there.id {
            self.packs.add_folder(&folder, id, &bytes)
        } else {
            Err(BucketError::Snapshot(SnapshotError::Elsewhere(format!("it has a damaged directory {path}"))))
        }
    }

    /// Sends the contents that the store lacks of a directory's files.
    fn contents(&mut self, folder: &Folder, path: &RelPath) -> Result<(), BucketError> {
        let mut asked_ids = BTreeSet::new();
        let is_missing = |file: &FolderFile<'_>| {
            let id = BlobId::content(file.content.id, file.len);
            !self.packs.has(&id) && asked_ids.insert(file.content.id.0)
        };
        let missing: Vec<FolderFile<'_>> = folder.files().filter(is_missing).collect();
        let asked = missing.iter().map(|file| RequestedContent {
            content: file.content,
            len: file.len,
            granules: Vec::new(),
        });
        let asked: Vec<RequestedContent> = asked.collect();
        let mut failed = None;
        let mut now: Option<ContentSender> = None;
        let packs = &mut self.packs;
        let sent = self.source.contents(&asked, &mut |nth, piece| {
            let file = &missing[nth];
            let sender = now.get_or_insert_with(|| ContentSender::new(file.len));
            let pushed = match piece {
                ContentPiece::End => sender.finish(packs).and_then(|id| match id {
                    Some(id) if id == file.content.id => Ok(()),
                    _ => {
                        let path = below(path, file.entry.name);
                        Err(SnapshotError::Elsewhere(format!("it has a damaged {path}")).into())
                    }
                }),
                piece => sender.push(piece, packs),
            };
            if piece == ContentPiece::End {
                now = None;
            }
            pushed.map_err(|error| {
                failed = Some(error);
                SnapshotError::Elsewhere(String::new())
            })
        });
        match failed {
            Some(error) => Err(error),
            None => Ok(sent?),
        }
    }
}

/// Adds a snapshot to the list, with an index of the packs that were sent for it, or brings it back if it is forgotten
/// there. `change` makes further changes.
pub(crate) fn publish_snapshot(
    store: &BucketStore,
    known: &mut StoreList,
    packs: &mut PackWriter,
    snapshot: &Snapshot,
    change: &mut ChangeRoots<'_>,
) -> Result<Published, BucketError> {
    packs.need(BlobId::folder(snapshot.tree.id));
    publish(store, known, packs, &mut |list| {
        if let Some(own) = list.roots.get_mut(snapshot.id) {
            return Ok(own.forgotten.take().is_some());
        }
        list.gone.remove(&snapshot.id);
        let later = |other: &Snapshot| other.taken > snapshot.taken;
        let snapshots = &mut list.roots.snapshots;
        let at = snapshots.iter().position(later).unwrap_or(snapshots.len());
        snapshots.insert(at, snapshot.clone());
        change(&mut list.roots)?;
        Ok(true)
    })
}

/// Adds an index of the packs that were sent to the list. `add` adds what needs them, or returns that nothing does.
pub(crate) fn publish(
    store: &BucketStore,
    known: &mut StoreList,
    packs: &mut PackWriter,
    add: &mut dyn FnMut(&mut StoreList) -> Result<bool, BucketError>,
) -> Result<Published, BucketError> {
    let sent = &packs.unpublished;
    let index = if sent.is_empty() { None } else { Some(store.write_index(sent)?) };
    for _ in 0..MAX_BEGINNINGS {
        let collections = known.roots.collections;
        let (mut is_pruned, mut is_added) = (false, false);
        *known = store.change(&mut |list| {
            is_pruned = list.roots.collections != collections;
            is_added = !is_pruned && add(list)?;
            if is_added {
                list.indexes.extend(index);
                if packs.replaces_lost(list) {
                    list.indexes.retain(|name| !packs.lost_indexes.contains(name));
                }
            }
            Ok(is_added)
        })?;
        if is_added {
            packs.published();
        }
        if !is_pruned {
            return Ok(Published::Done);
        }
        match packs.follow()? {
            Some(list) => *known = list,
            None => break,
        }
    }
    Ok(Published::Pruned)
}

/// The newest list of a store, and a writer that knows its blobs.
pub(crate) struct WritableStore {
    pub list: StoreList,
    pub packs: PackWriter,
    /// The indexes of the list that are missing or damaged.
    pub lost: Vec<LostIndex>,
}

/// Returns the newest list, which it begins if there is none, and a writer that knows its blobs, but for those that are
/// lost, and the contents in packs that no list refers to: those that a copy has sent that was cut off, or another copy
/// is sending. If an index is lost, it also knows what is whole in them.
pub(crate) fn packs_of(store: &Arc<BucketStore>) -> Result<WritableStore, BucketError> {
    let mut known = store.known_packs()?;
    if known.list.roots.changes == 0 {
        store.begin_list()?;
        known = store.known_packs()?;
    }
    let broken = known.drop_lost(store)?;
    let adopted = if known.lost.is_empty() { unlisted_contents(store, &known) } else { known.unnamed };
    let written = adopted.iter().filter_map(|pack| known.there.get(&pack.name)).map(|listed| listed.written);
    let oldest = written.min();
    let mut packs = PackWriter::new(Arc::clone(store), known.index);
    packs.listed = known.named;
    packs.lost_indexes = known.lost.iter().map(|lost| lost.name).collect();
    packs.take_over(adopted, oldest);
    packs.broken = broken;
    Ok(WritableStore { list: known.list, packs, lost: known.lost })
}

/// Returns the contents in packs that no list refers to.
fn unlisted_contents(store: &BucketStore, known: &KnownPacks) -> Vec<PackIndex> {
    let listed: BTreeSet<ObjectName> = known.index.packs().iter().copied().collect();
    let is_listed = |name: &ObjectName| listed.contains(name) || known.list.dropped.contains(name);
    let unlisted = known.there.iter().filter(|(name, _)| !is_listed(name));
    let unlisted: Vec<_> = unlisted.map(|(name, listed)| (*name, listed.bytes)).collect();
    // A pack that cannot be read is as good as none, and the next prune removes it.
    let mut packs: Vec<PackIndex> = store.pack_indexes(&unlisted).into_iter().flatten().collect();
    packs.iter_mut().for_each(|pack| pack.blobs.retain(|blob| blob.id.kind == BlobKind::Data));
    packs
}

/// Returns the path of an entry, for messages.
fn below(dir: &RelPath, name: &[u8]) -> RelPath {
    dir.join(name).unwrap_or_else(|_| dir.clone())
}

/// Returns a directory without what only its own store knows: places and stamps. The marks of files in motion stay.
fn without_places(mut folder: Folder) -> Folder {
    folder.children.iter_mut().for_each(|child| *child = without_place(child));
    folder.contents.iter_mut().for_each(|content| *content = ContentRef { home: Home::Own, ..*content });
    folder.stamps.iter_mut().filter(|stamp| **stamp != IN_MOTION).for_each(|stamp| *stamp = 0);
    folder
}

fn without_place(tree: &FolderRef) -> FolderRef {
    let place = ObjectRef { pack: 0, offset: 0, len: 0 };
    FolderRef { place, seen: Stamps::unknown(), ..*tree }
}

#[cfg(test)]
mod tests {
    use volferry_core::hash::ContentId;

    use super::*;
    use crate::{
        blob::{ContentPart, encode_parts},
        pack_index::index_path,
    };

    #[test]
    fn what_a_copy_has_sent_that_was_cut_off_is_not_named_as_whole_where_an_index_is_lost() {
        let store = BucketStore::in_memory();
        let WritableStore { mut list, mut packs, .. } = packs_of(&store).unwrap();
        let [here, cut, gone] = [&b"here"[..], b"is cut", b"gone"].map(ContentId::of);
        let [whole, broken] = [1, 2].map(|byte| BlobId::pieces(ContentId([byte; 32])));
        packs.add(BlobId::data(here), b"here").unwrap();
        packs.finish().unwrap();
        publish(&store, &mut list, &mut packs, &mut |_| Ok(true)).unwrap();
        // The next copy sends two lists of pieces, and not all pieces.
        packs.add(BlobId::data(cut), b"is cut").unwrap();
        let parts = |last, len| encode_parts(&[ContentPart::Data(here, 4), ContentPart::Data(last, len)]);
        packs.add(whole, &parts(cut, 6)).unwrap();
        packs.add(broken, &parts(gone, 4)).unwrap();
        packs.finish().unwrap();
        drop(packs);

        let [index] = list.indexes[..] else { panic!("{:?}", list.indexes) };
        store.objects.delete(&[index_path(index)]).unwrap();
        let WritableStore { mut list, mut packs, lost } = packs_of(&store).unwrap();
        assert_eq!(lost.iter().map(|lost| lost.name).collect::<Vec<_>>(), [index]);
        let has = |packs: &PackWriter| [BlobId::data(here), whole, broken].map(|id| packs.has(&id));
        assert_eq!(has(&packs), [true, true, false]);
        publish(&store, &mut list, &mut packs, &mut |_| Ok(true)).unwrap();
        assert!(!list.indexes.contains(&index));
        let WritableStore { packs, lost, .. } = packs_of(&store).unwrap();
        assert_eq!((has(&packs), lost.len()), ([true, true, false], 0));
    }
}
