//! Heals damaged objects that have a good copy: elsewhere in the store, or in the live tree. Without one they are left
//! as they are.

use std::{collections::HashMap, io, os::fd::AsFd as _};

use rustix::fs::{AtFlags, Mode, OFlags};

use super::{
    damaged_paths::{Damage, Damaged, DamagedPath},
    heal_folders::heal_by_repointing,
    verify_objects::Verified,
};
use crate::{
    hash::ContentId,
    monitor::Monitor,
    root::Root,
    snapshot::store::{
        ContentRef, FolderId, FolderRef, Home, SnapshotError, SnapshotId, StoreFolder, Writer, id_of_file,
        id_of_visited, open_content_folder, overwrite, walk, write_data,
    },
    sys::file_part::Slice,
};

/// Heals the damaged objects that have a good copy, and records in each where that came from. An object that cannot be
/// written does not keep others from being healed.
///
/// # Errors
/// If the list of snapshots or the log cannot be written to.
pub fn heal(
    writer: &mut Writer<'_>,
    live: &Root,
    verified: &mut Verified,
    by: &str,
    monitor: &Monitor,
) -> Result<(), SnapshotError> {
    let copies = copies(writer, &verified.damaged)?;
    let changes = writer.roots.changes;
    writer.log("heal", by, &[])?;
    for damage in &mut verified.damaged {
        let healed = match damage.what {
            Damaged::Content(content, len) => heal_content(writer, live, content, len, damage, &copies),
            Damaged::Folder(folder) => heal_folder(writer, &folder, &copies),
            Damaged::Record(id) => heal_record(writer, id),
            Damaged::Elsewhere => Ok(None),
        };
        match healed {
            Ok(from) => damage.healed_from = from,
            Err(error) => damage.error.push_str(&format!("; it cannot be put right: {error}")),
        }
    }
    heal_by_repointing(writer, live, &mut verified.damaged, &copies.folders, monitor)?;
    if verified.list.is_some() {
        // That of a healed directory has put the list right.
        if writer.roots.changes == changes {
            writer.commit(writer.roots.clone())?;
        }
        verified.is_list_healed = writer.roots.damages() == 0;
    }
    Ok(())
}

/// Other copies of damaged objects.
#[derive(Debug, Default)]
struct Copies {
    contents: HashMap<ContentId, Vec<ContentRef>>,
    folders: HashMap<FolderId, Vec<FolderRef>>,
}

fn copies(writer: &Writer<'_>, damaged: &[Damage]) -> Result<Copies, SnapshotError> {
    let mut copies = Copies::default();
    for damage in damaged {
        match damage.what {
            Damaged::Content(content, _) => drop(copies.contents.insert(content.id, Vec::new())),
            Damaged::Folder(folder) => drop(copies.folders.insert(folder.id, Vec::new())),
            Damaged::Record(_) | Damaged::Elsewhere => {}
        }
    }
    walk(&writer.store, writer.roots.snapshots.iter(), &mut |visited, folder| {
        if let Some(others) = copies.folders.get_mut(&visited.id) {
            others.push(*visited);
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
    content: ContentRef,
    len: u64,
    damage: &Damage,
    copies: &Copies,
) -> io::Result<Option<String>> {
    let store = &writer.store;
    let own = ContentRef { id: content.id, home: Home::Own };
    let others = copies.contents.get(&content.id).into_iter().flatten().chain(std::iter::once(&own));
    for other in others.filter(|other| **other != content) {
        let Ok(open) = store.content(other) else { continue };
        if replace(writer, open.slice(), content, len)? {
            return Ok(Some(store.name_of(other)));
        }
    }
    for DamagedPath { path, .. } in &damage.files {
        let Ok(file) = live.file(path) else { continue };
        if replace(writer, Slice::all_of(file.as_fd()), content, len)? {
            return Ok(Some(format!("the volume's own {path}")));
        }
    }
    Ok(None)
}

/// Replaces damaged content by that of a file, if it has the id. Otherwise returns false.
fn replace(writer: &Writer<'_>, from: Slice<'_>, content: ContentRef, len: u64) -> io::Result<bool> {
    if !matches!(id_of_file(from, len), Ok(id) if id == content.id) {
        return Ok(false);
    }
    match content.home {
        Home::Own => replace_own(writer, from, &content.id, len),
        Home::Pack { pack, offset } => {
            let mut bytes = vec![0; len as usize];
            from.read_exact_at(&mut bytes, 0)?;
            if ContentId::of(&bytes) == content.id {
                overwrite(&writer.store, pack, offset, &bytes).map(|()| true)
            } else {
                Ok(false)
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
        // Holes stay holes: what is zeros in it may be longer than the volume.
        rustix::fs::ftruncate(&to, len)?;
        let written = id_of_visited(from, len, &|bytes, offset| write_data(to.as_fd(), bytes, offset))?;
        if written != *id {
            return Ok(false);
        }
        rustix::fs::fsync(&to)?;
        let name = id.to_string();
        let place = open_content_folder(writer.store.within(StoreFolder::Content)?, &name)?;
        rustix::fs::renameat(&dir, "healed", place, name)?;
        Ok(true)
    })();
    if !matches!(done, Ok(true)) {
        let _ = rustix::fs::unlinkat(&dir, "healed", AtFlags::empty());
    }
    writer.drop_new(folder);
    done
}

/// Heals a directory in its place from an equal one of the same length, and with it all that are stored as changes of
/// it.
fn heal_folder(writer: &Writer<'_>, folder: &FolderRef, copies: &Copies) -> io::Result<Option<String>> {
    let others = copies.folders.get(&folder.id).into_iter().flatten();
    let fits = |other: &&FolderRef| other.place != folder.place && other.place.len == folder.place.len;
    for other in others.filter(fits) {
        let Ok(bytes) = writer.store.folder_bytes(other) else { continue };
        overwrite(&writer.store, folder.place.pack, folder.place.offset, &bytes)?;
        return Ok(Some(writer.store.name_of_folder(other)));
    }
    Ok(None)
}

/// Appends a new record to a pack that has lost the one at its end.
fn heal_record(writer: &Writer<'_>, id: SnapshotId) -> io::Result<Option<String>> {
    let Some(snapshot) = writer.roots.get(id) else { return Ok(None) };
    let packs = writer.store.within(StoreFolder::Packs)?;
    let len = rustix::fs::statat(packs, id.to_string(), AtFlags::SYMLINK_NOFOLLOW)?.st_size as u64;
    overwrite(&writer.store, id.0, len, &snapshot.record())?;
    Ok(Some("the list of snapshots".into()))
}
