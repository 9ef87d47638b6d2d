//! Heals damaged directories from equal ones at other places: the directories above are written anew and refer to
//! these, and so does the list. The ids stay, because they do not cover places.

use std::{
    collections::{HashMap, HashSet},
    io,
    sync::OnceLock,
};

use contract::SnapshotEngine;

use super::damaged_paths::{Damage, Damaged};
use crate::{
    entry::FullMeta,
    failures::Failures,
    monitor::Monitor,
    path::RelPath,
    root::Root,
    scan::scan,
    snapshot::{
        create::{
            ComparedDir, EarlierReads, FileStorer, ScannedTree, before_tick, options_of, plan_all_below,
            store_contents, write_planned,
        },
        store::{
            Engine, Folder, FolderId, FolderRef, ObjectRef, Packing, Roots, SnapshotError, SnapshotId, Store,
            Writer, choose_engine, io_error,
        },
        typed_time::time_of,
    },
};

/// The origin of a directory that was read from the live tree.
const LIVE: &str = "the volume's own tree";

/// Heals directories that have an equal one, from the other directories with their ids in `copies`, or from the live
/// tree where it still has the directory. Records in each where it came from.
///
/// # Errors
/// If the store cannot be written to; its list is then unchanged.
pub(crate) fn heal_by_repointing(
    writer: &mut Writer<'_>,
    live: &Root,
    damaged: &mut [Damage],
    copies: &HashMap<FolderId, Vec<FolderRef>>,
    monitor: &Monitor,
) -> Result<(), SnapshotError> {
    let bad: HashSet<ObjectRef> = folders(damaged).map(|(folder, _)| folder.place).collect();
    if bad.is_empty() {
        return Ok(());
    }
    let id = SnapshotId::random().map_err(io_error("make an id for", writer.store.path()))?;
    let (good, roots) = {
        let packing = Packing::new(writer, id, None);
        let mut good = Healthy::of_store(writer, &bad, copies);
        let found = good.add_live(writer, live, damaged, &packing, monitor).and_then(|()| {
            let mut repointing = Repointing {
                writer,
                packing: &packing,
                bad: &bad,
                good: &good.folders,
                done: HashMap::new(),
            };
            let roots = repointing.roots()?;
            packing.finish()?;
            Ok(roots)
        });
        match found {
            Ok(roots) => (good, roots),
            Err(error) => {
                writer.drop_new(id);
                return Err(io_error("write to", writer.store.path())(error));
            }
        }
    };
    if roots == writer.roots {
        writer.drop_new(id);
        return Ok(());
    }
    // Nothing refers to these objects until the list does, so they are moved to their places before.
    writer.settle_one(id)?;
    writer.commit_synced(roots)?;
    for damage in damaged.iter_mut().filter(|damage| damage.healed_from.is_none()) {
        if let Damaged::Folder(folder) = damage.what {
            damage.healed_from = good.origin(&writer.store, &folder);
        }
    }
    Ok(())
}

/// Yields the damaged directories that are not healed yet, with a path of each.
fn folders(damaged: &[Damage]) -> impl Iterator<Item = (FolderRef, &RelPath)> {
    damaged.iter().filter(|damage| damage.healed_from.is_none()).filter_map(|damage| match damage.what {
        Damaged::Folder(folder) => Some((folder, &damage.files.first()?.path)),
        _ => None,
    })
}

/// Undamaged directories by their ids, and the ids of those that were read from the live tree.
#[derive(Default)]
struct Healthy {
    folders: HashMap<FolderId, FolderRef>,
    live: HashSet<FolderId>,
}

impl Healthy {
    fn of_store(
        writer: &Writer<'_>,
        bad: &HashSet<ObjectRef>,
        copies: &HashMap<FolderId, Vec<FolderRef>>,
    ) -> Self {
        let is_good = |copy: &&FolderRef| !bad.contains(&copy.place) && writer.store.folder(copy).is_ok();
        let folders = copies.iter().filter_map(|(id, copies)| Some((*id, *copies.iter().find(is_good)?)));
        Self { folders: folders.collect(), live: HashSet::new() }
    }

    /// Adds the directories of the live tree that have the digest of a damaged one in their place.
    fn add_live(
        &mut self,
        writer: &Writer<'_>,
        live: &Root,
        damaged: &[Damage],
        packing: &Packing<'_>,
        monitor: &Monitor,
    ) -> io::Result<()> {
        let wanted: Vec<(FolderRef, &RelPath)> =
            folders(damaged).filter(|(folder, _)| !self.folders.contains_key(&folder.id)).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let began = time_of(std::time::SystemTime::now());
        let before = before_tick(writer.now().map_err(io::Error::other)?);
        let (options, failures) = (options_of(before), Failures::default());
        let tree = scan(live, &options, &failures, monitor)?;
        let mut dirs: Vec<ComparedDir> = Vec::new();
        for (folder, path) in wanted {
            let dir = tree.find(path).filter(|dir| tree.dirs[*dir as usize].digest == folder.digest);
            dirs.extend(dir.map(|dir| ComparedDir { dir, path: path.clone(), old: None }));
        }
        // A directory below another one of them is written with that.
        dirs.sort_by_key(|dir| dir.path.names().count());
        let mut tops: Vec<ComparedDir> = Vec::new();
        for dir in dirs {
            if !tops.iter().any(|top| dir.path.starts_with(&top.path)) {
                tops.push(dir);
            }
        }
        let root_meta = FullMeta { meta: tree.root_meta, attrs: tree.root_attrs.clone() };
        let source =
            ScannedTree { tree: &tree, options: &options, root_meta, root: live, began, written: None };
        let engine = choose_engine(SnapshotEngine::Auto, writer.store.dir()).unwrap_or(Engine::Copy);
        let terms = source.terms()?;
        let storer = FileStorer { packing, engine, terms, written: None, monitor, broken: OnceLock::new() };
        let mut planned = plan_all_below(tops, &tree, &writer.store);
        store_contents(&mut planned, &source, &EarlierReads::default(), &storer, &failures);
        if let Some(error) = storer.broken.into_inner() {
            return Err(error);
        }
        let written = write_planned(planned, &tree, &writer.store, packing)?;
        for folder in written.into_iter().flatten() {
            self.folders.entry(folder.id).or_insert_with(|| {
                self.live.insert(folder.id);
                folder
            });
        }
        Ok(())
    }

    /// Names the origin of the directory that takes the place of a damaged one.
    fn origin(&self, store: &Store, folder: &FolderRef) -> Option<String> {
        let good = self.folders.get(&folder.id)?;
        Some(if self.live.contains(&folder.id) { LIVE.into() } else { store.name_of_folder(good) })
    }
}

/// Writes directories anew that have a damaged one below them.
struct Repointing<'a> {
    writer: &'a Writer<'a>,
    packing: &'a Packing<'a>,
    bad: &'a HashSet<ObjectRef>,
    good: &'a HashMap<FolderId, FolderRef>,
    /// The directories that were looked at, and what takes their places.
    done: HashMap<ObjectRef, FolderRef>,
}

impl Repointing<'_> {
    /// Returns the list with the new places of its root directories.
    fn roots(&mut self) -> io::Result<Roots> {
        let mut roots = self.writer.roots.clone();
        for snapshot in &mut roots.snapshots {
            snapshot.tree = self.folder(&snapshot.tree)?;
        }
        Ok(roots)
    }

    /// Returns the directory that takes the place of one: an equal one, or the same if nothing below it is healed.
    fn folder(&mut self, folder: &FolderRef) -> io::Result<FolderRef> {
        if let Some(done) = self.done.get(&folder.place) {
            return Ok(FolderRef { place: done.place, ..*folder });
        }
        let is_bad = self.bad.contains(&folder.place);
        let place = match self.good.get(&folder.id).filter(|_| is_bad) {
            Some(good) => self.folder(good)?.place,
            None if is_bad => folder.place,
            None => match self.writer.store.folder(folder) {
                Ok(read) => self.below(folder, read)?,
                Err(_) => folder.place,
            },
        };
        self.done.insert(folder.place, FolderRef { place, ..*folder });
        Ok(FolderRef { place, ..*folder })
    }

    fn below(&mut self, folder: &FolderRef, read: Folder) -> io::Result<ObjectRef> {
        let children =
            read.children.iter().map(|child| self.folder(child)).collect::<io::Result<Vec<_>>>()?;
        if children == read.children {
            Ok(folder.place)
        } else {
            self.packing.folder(&Folder { children, ..read }.encode().bytes)
        }
    }
}
