//! Writes the new directories of a snapshot.

use super::{
    find_unchanged::{FOLDERS_PER_THREAD, Making, PlannedFolders, Slot},
    small_changes::small_changes,
};
use crate::{
    hash::TreeDigest,
    listing::{Listing, ListingBuilder},
    snapshot::store::{EncodedFolder, Folder, FolderRef, Packing, Store, with_check},
    sys::cores::on_cores,
    tree::{Tree, stamps::Stamps},
};

/// Writes the new directories of a snapshot, and returns its root.
pub(crate) fn write_folders(
    planned: PlannedFolders,
    tree: &Tree,
    store: &Store,
    packing: &Packing<'_>,
) -> std::io::Result<FolderRef> {
    let there = write_planned(planned, tree, store, packing)?;
    there.first().copied().flatten().ok_or_else(|| std::io::Error::other("the tree has no root"))
}

/// Writes planned directories on several threads, the deepest ones first. Returns the directories of the tree that the
/// store has then, by their numbers.
pub(crate) fn write_planned(
    planned: PlannedFolders,
    tree: &Tree,
    store: &Store,
    packing: &Packing<'_>,
) -> std::io::Result<Vec<Option<FolderRef>>> {
    let PlannedFolders { making, mut there, .. } = planned;
    for level in making.chunk_by(|one, other| one.depth() == other.depth()).rev() {
        let written = on_cores(level.len(), FOLDERS_PER_THREAD, |nth| {
            let making @ Making { dir, old, .. } = &level[nth];
            let scanned = &tree.dirs[*dir as usize];
            let first = scanned.first_child as usize;
            let below = there.get(first..first + scanned.listing.dirs() as usize).unwrap_or_default();
            let folder = assemble(&scanned.listing, below.iter().flatten().copied().collect(), making);
            write_folder(&folder, *old, store, packing)
        });
        for (making, folder) in level.iter().zip(written) {
            there[making.dir as usize] = Some(folder?);
        }
    }
    Ok(there)
}

/// Writes a directory, unless the last snapshot has the same one, undamaged, with the same stamps and objects.
pub(crate) fn write_folder(
    folder: &Folder,
    old: Option<FolderRef>,
    store: &Store,
    packing: &Packing<'_>,
) -> std::io::Result<FolderRef> {
    let (digest, seen) = (digest_of(folder), seen_of(folder));
    let EncodedFolder { id, bytes } = folder.encode_unchecked();
    // The id does not cover the places of objects, which change where damaged ones were stored again.
    let refers_to_same = |old: &FolderRef| {
        let there = store.folder(old);
        there.is_ok_and(|there| there.children == folder.children && there.contents == folder.contents)
    };
    if let Some(old) = old.filter(|old| old.id == id && old.seen == seen && refers_to_same(old)) {
        return Ok(old);
    }
    let changes = old.and_then(|old| small_changes(&old, folder, bytes.len(), store));
    let bytes = changes.unwrap_or_else(|| with_check(bytes));
    Ok(FolderRef { id, place: packing.folder(&bytes)?, digest, seen })
}

/// Returns the digest of a directory's entries and of all below it, as a scan has it.
pub(crate) fn digest_of(folder: &Folder) -> TreeDigest {
    let below: Vec<TreeDigest> = folder.children.iter().map(|child| child.digest).collect();
    let own = folder.listing.digest();
    if below.is_empty() { own } else { own.with_children(&below) }
}

/// Returns what proves that no file in a directory and below has changed.
pub(crate) fn seen_of(folder: &Folder) -> Stamps {
    if folder.listing.is_complete() {
        Stamps::of(folder.stamps.iter().copied(), folder.children.iter().map(|child| child.seen))
    } else {
        Stamps::unknown()
    }
}

/// Joins a listing with the data read from its files. If a file has changed since the scan, the listing gets the data
/// that was read.
pub(crate) fn assemble(listing: &Listing, children: Vec<FolderRef>, making: &Making) -> Folder {
    let listing = if is_as_listed(listing, making) { listing.clone() } else { relist(listing, making) };
    let mut folder = Folder { listing, children, ..Folder::default() };
    for slot in &making.slots {
        let (content, stamp) = match slot {
            Slot::Stored(content, stamp) => (Some(*content), *stamp),
            Slot::Read(taken) => (taken.content, taken.stamp),
            Slot::Wanted(_) | Slot::Gone | Slot::Failed => (None, 0),
        };
        if let Some(content) = content {
            folder.contents.push(content);
            folder.stamps.push(stamp);
        }
    }
    folder
}

fn is_as_listed(listing: &Listing, Making { slots, dangling, .. }: &Making) -> bool {
    let mut files = listing.iter().filter(|entry| entry.kind.has_content()).zip(slots);
    dangling.is_empty()
        && files.all(|(entry, slot)| match slot {
            Slot::Stored(..) => true,
            Slot::Read(taken) => taken.entry(entry.name, entry.attrs) == entry,
            Slot::Wanted(_) | Slot::Gone | Slot::Failed => false,
        })
}

fn relist(listing: &Listing, Making { slots, dangling, .. }: &Making) -> Listing {
    let mut builder = ListingBuilder::default();
    let (mut slots, mut dangling) = (slots.iter(), dangling.iter().peekable());
    for (index, entry) in (0..).zip(listing) {
        let slot = entry.kind.has_content().then(|| slots.next()).flatten();
        match slot {
            None if dangling.next_if_eq(&&index).is_some() => builder.mark_incomplete(),
            None | Some(Slot::Stored(..)) => builder.push(&entry),
            Some(Slot::Read(taken)) => builder.push(&taken.entry(entry.name, entry.attrs)),
            Some(Slot::Gone) => {}
            Some(Slot::Failed | Slot::Wanted(_)) => builder.mark_incomplete(),
        }
    }
    if !listing.is_complete() {
        builder.mark_incomplete();
    }
    builder.finish()
}
