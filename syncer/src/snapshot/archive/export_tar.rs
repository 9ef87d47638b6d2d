//! Exports a snapshot as a tar archive: the same bytes for the same tree, whatever store it is in.
//!
//! Entries come in the order in which a walk finds them, so that a program that unpacks them is done with a directory
//! when it leaves it. The first name of a file that has several is the file, and the others are links to it. Zeros of a
//! page and more that make up 64 KiB in a row are holes, whether the file had holes there or not.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    ops::Range,
    path::Path,
};

use parking_lot::Mutex;

use super::{
    tar_header::{BLOCK_DEVICE, CHAR_DEVICE, DIR, FIFO, FILE, HARD_LINK, SYMLINK, TarHeader},
    tar_holes::{BLOCK_BYTES, TarHoles, encode_map},
};
use crate::{
    attrs::AttrsBuf,
    entry::Meta,
    path::RelPath,
    snapshot::{
        browse::{Node, What, node_at, nodes},
        copy::PIECE_BYTES,
        store::{ContentRef, FolderRef, ReadObjects, Snapshot, SnapshotError, io_error},
    },
    sys::file_part::data_in,
};

/// Zeros in a row that are left out.
const MIN_HOLE_BYTES: u64 = 64 << 10;

/// Writes the archive of the entries at `of` and below them, which may be the root, to `to`, which errors name by
/// `path`. Every content is checked before it is written.
///
/// # Errors
/// If the snapshot has no entry at one of the paths, an object cannot be read or is damaged, or the archive cannot be
/// written; it then has no end.
pub fn export_tar(
    store: &dyn ReadObjects,
    snapshot: &Snapshot,
    of: &[RelPath],
    path: &Path,
    to: &mut dyn Write,
) -> Result<(), SnapshotError> {
    let mut stack = Vec::new();
    for top in of {
        let missing = || SnapshotError::NoPath { id: snapshot.id, path: top.to_string() };
        stack.push((top.clone(), node_at(store, snapshot, top)?.ok_or_else(missing)?));
    }
    // The last one is the first to be written.
    stack.sort_by(|(one, _), (other, _)| other.names().cmp(one.names()));
    let is_below_another = |path: &RelPath| of.iter().any(|top| top != path && path.starts_with(top));
    stack.retain(|(path, _)| !is_below_another(path));
    stack.dedup_by(|(one, _), (other, _)| one == other);
    let tops = stack.iter().map(|(path, _)| path.clone()).collect();
    let mut export = TarExport { store, snapshot, tops, path, to, early: BTreeMap::new(), metas: None };
    while let Some((path, node)) = stack.pop() {
        let folder = if let What::Dir(folder) = node.what { Some(folder) } else { None };
        export.entry(&path, &node)?;
        if let Some(folder) = folder {
            stack.extend(export.below(&path, &folder)?);
        }
    }
    export.write(&[0; 2 * BLOCK_BYTES])?;
    export.to.flush().map_err(not_written(path))
}

struct TarExport<'a> {
    store: &'a dyn ReadObjects,
    snapshot: &'a Snapshot,
    /// The paths that are exported with all below them.
    tops: Vec<RelPath>,
    path: &'a Path,
    to: &'a mut dyn Write,
    /// Entries that were written at the path of an earlier name, by their own paths.
    early: BTreeMap<RelPath, RelPath>,
    /// The directory in which the last link led, and the metadata of its entries.
    metas: Option<(RelPath, Metas)>,
}

/// The metadata of a directory's entries, by their names.
type Metas = BTreeMap<Box<[u8]>, Meta>;

fn not_written(path: &Path) -> impl FnOnce(io::Error) -> SnapshotError {
    |source| SnapshotError::ArchiveNotWritten { path: path.into(), source }
}

impl TarExport<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<(), SnapshotError> {
        self.to.write_all(bytes).map_err(not_written(self.path))
    }

    /// Returns the entries of a directory, the last one first.
    fn below(&self, path: &RelPath, folder: &FolderRef) -> Result<Vec<(RelPath, Node)>, SnapshotError> {
        let folder = self.store.folder(folder)?;
        let below = nodes(&folder).map(|(name, node)| match path.join(name) {
            Ok(path) => Ok((path, node)),
            Err(_) => Err(SnapshotError::NoArchive(format!("a path below {path} is longer than any"))),
        });
        let mut below = below.collect::<Result<Vec<_>, _>>()?;
        below.reverse();
        Ok(below)
    }

    fn entry(&mut self, path: &RelPath, node: &Node) -> Result<(), SnapshotError> {
        match &node.what {
            What::HardLink(to) => {
                let to = RelPath::parse(to).map_err(|_| no_target(path))?;
                self.further_name(path, &to)
            }
            _ => match self.early.remove(path) {
                Some(first) => self.link(path, &first, node.meta),
                None => self.whole(path, node),
            },
        }
    }

    fn whole(&mut self, path: &RelPath, node: &Node) -> Result<(), SnapshotError> {
        match node.what {
            What::File { len, content: Some(content) } => self.file(header_of(path, node), &content, len),
            _ => self.write(&header_of(path, node).encode()),
        }
    }

    /// Writes a further name of the entry at `to`, or that entry, if the walk has not come to it yet.
    fn further_name(&mut self, path: &RelPath, to: &RelPath) -> Result<(), SnapshotError> {
        if to.names().lt(path.names()) && self.tops.iter().any(|top| to.starts_with(top)) {
            let meta = self.meta_of(to)?;
            return self.link(path, to, meta);
        }
        if let Some(first) = self.early.get(to).cloned() {
            let meta = self.meta_of(to)?;
            return self.link(path, &first, meta);
        }
        let node = node_at(self.store, self.snapshot, to)?.ok_or_else(|| no_target(path))?;
        self.early.insert(to.clone(), path.clone());
        self.whole(path, &node)
    }

    /// Writes a link, with the metadata of its file, which some programs set again.
    fn link(&mut self, path: &RelPath, to: &RelPath, meta: Meta) -> Result<(), SnapshotError> {
        let (what, attrs) = (What::HardLink(to.as_bytes().into()), AttrsBuf::default());
        self.write(&header_of(path, &Node { what, meta, attrs, in_motion: false }).encode())
    }

    fn file(&mut self, header: TarHeader, content: &ContentRef, len: u64) -> Result<(), SnapshotError> {
        let found = Mutex::new(Vec::new());
        let open = self.store.checked(content, len, &|bytes, offset| {
            found.lock().append(&mut data_in(bytes, offset));
            Ok(())
        })?;
        let data = without_short_holes(found.into_inner(), len);
        let bytes = data.iter().map(|range| range.end - range.start).sum::<u64>();
        let (holes, map) = if bytes < len {
            (Some(TarHoles { len, map: None }), encode_map(&data))
        } else {
            (None, Vec::new())
        };
        self.write(&TarHeader { data_bytes: bytes + map.len() as u64, holes, ..header }.encode())?;
        self.write(&map)?;
        let mut buffer = vec![0; bytes.min(PIECE_BYTES) as usize];
        for Range { start, end } in data {
            let mut at = start;
            while at < end {
                let piece = &mut buffer[..(end - at).min(PIECE_BYTES) as usize];
                let read = open.slice().read_exact_at(piece, at);
                read.map_err(|error| io_error("read", self.store.name_of(content))(error))?;
                self.to.write_all(piece).map_err(not_written(self.path))?;
                at += piece.len() as u64;
            }
        }
        let over = (bytes % BLOCK_BYTES as u64) as usize;
        self.write(&[0; BLOCK_BYTES][..(BLOCK_BYTES - over) % BLOCK_BYTES])
    }

    fn meta_of(&mut self, path: &RelPath) -> Result<Meta, SnapshotError> {
        let (dir, name) = path.split_last().ok_or_else(|| no_target(path))?;
        let metas = match self.metas.take().filter(|(known, _)| *known == dir) {
            Some((_, metas)) => metas,
            None => self.metas_in(&dir)?,
        };
        let meta = metas.get(name).copied().ok_or_else(|| no_target(path));
        self.metas = Some((dir, metas));
        meta
    }

    fn metas_in(&self, dir: &RelPath) -> Result<Metas, SnapshotError> {
        let node = node_at(self.store, self.snapshot, dir)?.ok_or_else(|| no_target(dir))?;
        let What::Dir(folder) = node.what else { return Err(no_target(dir)) };
        Ok(nodes(&self.store.folder(&folder)?).map(|(name, node)| (name.into(), node.meta)).collect())
    }
}

fn no_target(path: &RelPath) -> SnapshotError {
    SnapshotError::NoArchive(format!("{path} is a hard link to what the snapshot does not have"))
}

/// Sorts ranges of data, and joins those between which a hole would save little. An empty range at the end shows where
/// a last hole ends.
fn without_short_holes(mut found: Vec<Range<u64>>, len: u64) -> Vec<Range<u64>> {
    found.sort_unstable_by_key(|range| range.start);
    let mut data: Vec<Range<u64>> = Vec::new();
    for range in found.into_iter().chain(std::iter::once(len..len)) {
        let end = data.last().map_or(0, |last| last.end);
        match data.last_mut() {
            _ if range.start - end >= MIN_HOLE_BYTES => data.push(range),
            Some(last) => last.end = range.end,
            None => data.push(0..range.end),
        }
    }
    data
}

fn header_of(path: &RelPath, node: &Node) -> TarHeader {
    let (kind, link, device) = match &node.what {
        What::File { .. } => (FILE, &[][..], 0),
        What::Dir(_) => (DIR, &[][..], 0),
        What::Symlink(target) => (SYMLINK, &target[..], 0),
        What::HardLink(to) => (HARD_LINK, &to[..], 0),
        What::Fifo => (FIFO, &[][..], 0),
        What::CharDevice(device) => (CHAR_DEVICE, &[][..], *device),
        What::BlockDevice(device) => (BLOCK_DEVICE, &[][..], *device),
    };
    let path = match (path.is_root(), kind) {
        (true, _) => b"./".to_vec(),
        (false, DIR) => [path.as_bytes(), b"/"].concat(),
        (false, _) => path.as_bytes().to_vec(),
    };
    let attrs = node.attrs.as_attrs();
    TarHeader {
        path,
        kind,
        mode: node.meta.mode,
        uid: node.meta.owner.uid,
        gid: node.meta.owner.gid,
        mtime: node.meta.mtime,
        link: link.to_vec(),
        device: (rustix::fs::major(device), rustix::fs::minor(device)),
        attrs: attrs.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect(),
        ..TarHeader::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_rows_of_zeros_are_data_at_the_start_between_and_at_the_end() {
        let long = MIN_HOLE_BYTES;
        let joined = |found: &[(u64, u64)], len| {
            let found = found.iter().map(|(start, end)| *start..*end).collect();
            let data = without_short_holes(found, len).into_iter();
            data.map(|range| (range.start, range.end)).collect::<Vec<_>>()
        };
        assert_eq!(joined(&[(4096, 8192)], 8192), [(0, 8192)]);
        assert_eq!(joined(&[(long, long + 10)], long + 10), [(long, long + 10)]);
        assert_eq!(joined(&[(0, 4096), (8192, 9000)], 20_000), [(0, 20_000)]);
        let (end, found) = (5000 + 2 * long, [(0, 4096), (4096 + long, 5000 + long)]);
        assert_eq!(joined(&found, end), [found[0], found[1], (end, end)]);
        assert_eq!(joined(&[], 4096), [(0, 4096)]);
        assert_eq!(joined(&[], long), [(long, long)]);
    }
}
