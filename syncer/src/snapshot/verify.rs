//! Checks the objects of a store against their ids, names the files that need damaged ones, and heals them.
//!
//! Damaged content is replaced by content with the same id: another copy in the store, or a file of the live tree.
//! Without one it is left as it is.

use std::{
    collections::{HashMap, HashSet},
    io,
    os::fd::AsFd as _,
};

use rustix::fs::{AtFlags, Mode, OFlags};

use super::{
    content::{ContentRef, Home, id_of_file, id_of_visited},
    folder::FolderRef,
    id::SnapshotId,
    roots::Roots,
    scrub::ReadPace,
    snapshot_error::{SnapshotError, chain, io_error},
    store::Store,
    store_files::{PACKS, make_dir, own_name},
    store_writer::Writer,
    turn::Turn,
    walk::walk,
};
use crate::{
    apply::write_all, cores::on_cores, entry::Kind, hash::ContentId, path::RelPath, root::Root, slice::Slice,
};

/// The most files of a damaged object that are named.
const MAX_NAMED: usize = 20;

/// The number of contents that all cores check together.
const BATCH: usize = 4096;

/// The number of contents for which one more thread is started.
const CONTENTS_PER_THREAD: usize = 64;

/// A damaged object.
#[derive(Debug)]
pub struct Damage {
    /// The object and its place.
    pub object: String,
    /// The error.
    pub error: String,
    /// The number of files and directories that need it.
    pub count: u64,
    /// The first of them.
    pub files: Vec<(SnapshotId, RelPath)>,
    /// The origin of the bytes that healed it.
    pub healed_from: Option<String>,
    what: Damaged,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Damaged {
    Content(ContentRef, u64),
    Folder(FolderRef),
}

/// The results of a check.
#[derive(Debug, Default)]
pub struct Verified {
    /// The number of checked objects.
    pub objects: u64,
    /// The number of bytes read.
    pub bytes: u64,
    /// The damaged objects.
    pub damaged: Vec<Damage>,
    /// Unreadable places of the list of snapshots.
    pub damaged_records: u64,
    /// The first line of the audit log that does not continue its chain.
    pub audit_broken_at: Option<u64>,
}

impl Verified {
    /// Returns whether any damage was found.
    pub fn is_damaged(&self) -> bool {
        !self.damaged.is_empty() || self.damaged_records > 0 || self.audit_broken_at.is_some()
    }

    /// Returns the ids of damaged contents that nothing healed; `None` for each such directory.
    pub fn unhealed_contents(&self) -> impl Iterator<Item = Option<ContentId>> {
        self.unhealed().map(Damage::content)
    }

    /// Returns the damaged objects that nothing healed.
    pub(super) fn unhealed(&self) -> impl Iterator<Item = &Damage> {
        self.damaged.iter().filter(|damage| damage.healed_from.is_none())
    }
}

/// Checks every directory of all snapshots, and the contents that `turn` selects, at this pace. Changes nothing.
///
/// # Errors
/// If the audit log cannot be read, or the pace's monitor is told to stop. Damage of an object is in the result.
pub fn verify(
    store: &Store,
    roots: &Roots,
    turn: &Turn,
    pace: &ReadPace<'_>,
) -> Result<Verified, SnapshotError> {
    let log = store.audit()?;
    let mut verified = Verified {
        damaged_records: roots.damages() as u64,
        audit_broken_at: log.broken,
        ..Verified::default()
    };
    let mut checks = ContentsToCheck { store, turn, pace, seen: HashSet::new(), batch: Vec::new() };
    let stopped = || io_error("check", store.path());
    walk(store, roots.snapshots.iter(), &mut |visited, folder| {
        verified.objects += 1;
        verified.bytes += u64::from(visited.folder.place.len);
        pace.spend(u64::from(visited.folder.place.len)).map_err(stopped())?;
        match folder {
            Ok(folder) => {
                let files = folder.files().filter_map(|(entry, content, _)| match entry.kind {
                    Kind::File { size } => Some((content, size)),
                    _ => None,
                });
                files.for_each(|(content, len)| checks.push(content, len));
            }
            Err(error) => {
                verified.damaged.push(Damage::new(Damaged::Folder(*visited.folder), String::new(), &error));
            }
        }
        if checks.batch.len() >= BATCH {
            checks.run(&mut verified).map_err(stopped())?;
        }
        Ok(())
    })?;
    checks.run(&mut verified).map_err(stopped())?;
    name_files(store, roots, &mut verified.damaged)?;
    Ok(verified)
}

impl Damage {
    fn new(what: Damaged, object: String, error: &SnapshotError) -> Self {
        Self { object, error: chain(error), count: 0, files: Vec::new(), healed_from: None, what }
    }

    /// Returns the id of damaged content; `None` for a directory.
    fn content(&self) -> Option<ContentId> {
        match self.what {
            Damaged::Content(content, _) => Some(content.id),
            Damaged::Folder(_) => None,
        }
    }

    fn is_of(&self, content: &ContentRef) -> bool {
        matches!(&self.what, Damaged::Content(own, _) if own == content)
    }
}

/// Contents to check, each once.
struct ContentsToCheck<'a> {
    store: &'a Store,
    turn: &'a Turn,
    pace: &'a ReadPace<'a>,
    seen: HashSet<(u64, u64, [u8; 8])>,
    batch: Vec<(ContentRef, u64)>,
}

impl ContentsToCheck<'_> {
    fn push(&mut self, content: ContentRef, len: u64) {
        let mut first = [0; 8];
        first.copy_from_slice(&content.id.0[..8]);
        let key = match content.home {
            Home::Own => (0, 0, first),
            Home::Pack { pack, offset } => (pack, offset, first),
        };
        if self.turn.has(&content.id) && self.seen.insert(key) {
            self.batch.push((content, len));
        }
    }

    fn run(&mut self, verified: &mut Verified) -> io::Result<()> {
        let check = |nth: usize| {
            let (content, len) = &self.batch[nth];
            self.pace.go_on().ok()?;
            let visit = |piece: &[u8], _| self.pace.spend(piece.len() as u64);
            let checked = self.store.check_visited(content, *len, &visit);
            // What was cut off by a stop is not damaged.
            self.pace.go_on().ok()?;
            let damaged = Damaged::Content(*content, *len);
            checked.err().map(|error| Damage::new(damaged, self.store.name_of(content), &error))
        };
        let damaged = on_cores(self.batch.len(), CONTENTS_PER_THREAD, check);
        verified.objects += self.batch.len() as u64;
        verified.bytes += self.batch.iter().map(|(_, len)| len).sum::<u64>();
        verified.damaged.extend(damaged.into_iter().flatten());
        self.batch.clear();
        self.pace.go_on()
    }
}

/// Names the files and directories that need the damaged objects.
fn name_files(store: &Store, roots: &Roots, damaged: &mut [Damage]) -> Result<(), SnapshotError> {
    if damaged.is_empty() {
        return Ok(());
    }
    for snapshot in &roots.snapshots {
        walk(store, std::iter::once(snapshot), &mut |visited, folder| {
            for damage in &mut *damaged {
                if damage.what == Damaged::Folder(*visited.folder) {
                    damage.object = store.name_of_folder(visited.folder);
                    damage.name(snapshot.id, visited.path.clone());
                }
            }
            let Ok(folder) = folder else { return Ok(()) };
            for (entry, content, _) in folder.files() {
                for damage in damaged.iter_mut().filter(|damage| damage.is_of(&content)) {
                    damage.name(
                        snapshot.id,
                        visited.path.join(entry.name).unwrap_or_else(|_| visited.path.clone()),
                    );
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

impl Damage {
    fn name(&mut self, id: SnapshotId, path: RelPath) {
        self.count += 1;
        if self.files.len() < MAX_NAMED {
            self.files.push((id, path));
        }
    }
}

/// Heals the damaged objects that have a good copy, and records in each where that came from.
///
/// # Errors
/// If the store cannot be written to.
pub fn heal(writer: &Writer<'_>, live: &Root, damaged: &mut [Damage]) -> Result<(), SnapshotError> {
    let copies = copies(writer, damaged)?;
    for damage in damaged {
        let healed = match damage.what {
            Damaged::Content(content, len) => heal_content(writer, live, (content, len), damage, &copies),
            Damaged::Folder(folder) => heal_folder(writer, &folder, &copies),
        };
        damage.healed_from = healed.map_err(io_error("heal an object of", writer.store.path()))?;
    }
    Ok(())
}

/// Other copies of damaged objects.
#[derive(Debug, Default)]
struct Copies {
    contents: HashMap<ContentId, Vec<ContentRef>>,
    folders: HashMap<super::folder::FolderId, Vec<FolderRef>>,
}

fn copies(writer: &Writer<'_>, damaged: &[Damage]) -> Result<Copies, SnapshotError> {
    let mut copies = Copies::default();
    for damage in damaged {
        match damage.what {
            Damaged::Content(content, _) => drop(copies.contents.insert(content.id, Vec::new())),
            Damaged::Folder(folder) => drop(copies.folders.insert(folder.id, Vec::new())),
        }
    }
    walk(&writer.store, writer.roots.snapshots.iter(), &mut |visited, folder| {
        if let Some(others) = copies.folders.get_mut(&visited.folder.id) {
            others.push(*visited.folder);
        }
        if let Ok(folder) = folder {
            for content in &folder.contents {
                if let Some(others) =
                    copies.contents.get_mut(&content.id).filter(|others| !others.contains(content))
                {
                    others.push(*content);
                }
            }
        }
        Ok(())
    })?;
    Ok(copies)
}

fn heal_content(
    writer: &Writer<'_>,
    live: &Root,
    (content, len): (ContentRef, u64),
    damage: &Damage,
    copies: &Copies,
) -> io::Result<Option<String>> {
    let store = &writer.store;
    let own = ContentRef { id: content.id, home: Home::Own };
    let others = copies.contents.get(&content.id).into_iter().flatten().chain(std::iter::once(&own));
    for other in others.filter(|other| **other != content) {
        let Ok(open) = store.content(other) else { continue };
        if replace(writer, open.slice(), (content, len))? {
            return Ok(Some(store.name_of(other)));
        }
    }
    for (_, path) in &damage.files {
        let Ok(file) = live.file(path) else { continue };
        if replace(writer, Slice::all_of(file.as_fd()), (content, len))? {
            return Ok(Some(format!("the volume's own {path}")));
        }
    }
    Ok(None)
}

/// Replaces damaged content by that of a file, if it has the id. Otherwise returns false.
fn replace(writer: &Writer<'_>, from: Slice<'_>, (content, len): (ContentRef, u64)) -> io::Result<bool> {
    if !matches!(id_of_file(from, len), Ok(id) if id == content.id) {
        return Ok(false);
    }
    match content.home {
        Home::Own => replace_own(writer, from, &content.id, len),
        Home::Pack { pack, offset } => {
            let mut bytes = vec![0; len as usize];
            from.read_exact_at(&mut bytes, 0)?;
            match ContentId::of(&bytes) == content.id {
                true => overwrite(writer, pack, offset, &bytes).map(|()| true),
                false => Ok(false),
            }
        }
    }
}

/// Writes a new file, checks it, and renames it over the damaged one.
fn replace_own(writer: &Writer<'_>, from: Slice<'_>, id: &ContentId, len: u64) -> io::Result<bool> {
    let folder = SnapshotId::random()?;
    let dir = writer.make_new(folder)?;
    let done = (|| {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let to = rustix::fs::openat(&dir, "healed", flags, Mode::RUSR | Mode::WUSR)?;
        let written = id_of_visited(from, len, &|bytes, offset| write_all(to.as_fd(), bytes, offset))?;
        if written != *id {
            return Ok(false);
        }
        rustix::fs::fsync(&to)?;
        let name = own_name(id);
        make_dir(writer.store.dir(), name.rsplit_once('/').map_or("", |(parent, _)| parent))?;
        rustix::fs::renameat(&dir, "healed", writer.store.dir(), &name)?;
        Ok(true)
    })();
    if !matches!(done, Ok(true)) {
        let _ = rustix::fs::unlinkat(&dir, "healed", AtFlags::empty());
    }
    writer.drop_new(folder);
    done
}

fn heal_folder(writer: &Writer<'_>, folder: &FolderRef, copies: &Copies) -> io::Result<Option<String>> {
    let others = copies.folders.get(&folder.id).into_iter().flatten();
    let fits = |other: &&FolderRef| other.place != folder.place && other.place.len == folder.place.len;
    for other in others.filter(fits) {
        let Ok(bytes) = writer.store.folder_bytes(other) else { continue };
        overwrite(writer, folder.place.pack, folder.place.offset, &bytes)?;
        return Ok(Some(writer.store.name_of_folder(other)));
    }
    Ok(None)
}

fn overwrite(writer: &Writer<'_>, pack: u64, offset: u64, bytes: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let name = format!("{PACKS}/{}", SnapshotId(pack));
    let file = rustix::fs::openat(writer.store.dir(), name, flags, Mode::empty())?;
    write_all(file.as_fd(), bytes, offset)?;
    Ok(rustix::fs::fsync(&file)?)
}
