//! Imports a tar archive as a snapshot. The volume's files stay as they are.
//!
//! An archive may come from anywhere, so a path that leads out of the tree, a link that leads nowhere and a number that
//! no file has are refused, and nothing is published then. What gives rights is doubted when the snapshot is restored.

use std::{
    collections::BTreeMap,
    io::{self, ErrorKind, Read},
    ops::Range,
    time::SystemTime,
};

use super::{
    imported_tree::{ImportedEntry, ImportedTree, WhyRefused},
    tar_header::{BLOCK_DEVICE, CHAR_DEVICE, DIR, FIFO, FILE, HARD_LINK, SYMLINK, TarHeader},
    tar_holes::BLOCK_BYTES,
};
use crate::{
    attrs::{Attrs, AttrsBuf, MAX_VALUE_BYTES, put_attr},
    entry::{MAX_TARGET_BYTES, Meta, Owner},
    kept_xattrs::Classes,
    monitor::Monitor,
    path::{OWN_DIR, RelPath, display},
    snapshot::{
        browse::What,
        copy::{ArrivingContent, ArrivingInto, ContentPiece, PIECE_BYTES},
        store::{
            AuditLine, ContentRef, Engine, Home, Labels, Packing, Snapshot, SnapshotError, SnapshotId,
            Writer, free_bytes, io_error,
        },
        typed_time::time_of,
    },
};

/// The most bytes that are read behind the end of an archive, so that the program that writes it can end, too.
const MAX_TRAILING_BYTES: u64 = 1 << 20;

/// A snapshot that was imported.
#[derive(Debug)]
pub struct Imported {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// Attributes and access control lists that were left out, because snapshots keep none of their kind, or their form
    /// is not read.
    pub left_out: u64,
}

/// Reads an archive to its end, and publishes it as a snapshot. Its files are together at most `max_bytes` long, holes
/// included; by default at most as long as the file system of the volume.
///
/// # Errors
/// If the archive cannot be read, or the store cannot be written to; its list is then unchanged.
pub fn import_tar(
    writer: &mut Writer<'_>,
    from: &mut dyn Read,
    labels: Labels,
    max_bytes: Option<u64>,
) -> Result<Imported, SnapshotError> {
    labels.check()?;
    let id = SnapshotId::random().map_err(io_error("make an id for", writer.store.path()))?;
    let max_bytes = max_bytes.map_or_else(|| size_of_volume(writer), Ok)?;
    let imported =
        import_objects(writer, from, id, labels, max_bytes).inspect_err(|_| writer.drop_new(id))?;
    let by = imported.snapshot.user.clone();
    let mut roots = writer.roots.clone();
    roots.snapshots.push(imported.snapshot.clone());
    writer.publish_new(roots, AuditLine { action: "create", by: &by, note: "from an archive" }, id)?;
    Ok(imported)
}

fn size_of_volume(writer: &Writer<'_>) -> Result<u64, SnapshotError> {
    let stat = rustix::fs::fstatvfs(writer.store.dir());
    let stat = stat.map_err(|error| io_error("look at", writer.store.path())(error.into()))?;
    Ok(stat.f_blocks.saturating_mul(stat.f_frsize))
}

/// Brings the objects of an archive into the store.
fn import_objects(
    writer: &Writer<'_>,
    from: &mut dyn Read,
    id: SnapshotId,
    labels: Labels,
    max_bytes: u64,
) -> Result<Imported, SnapshotError> {
    let failed = || io_error("write to", writer.store.path());
    let began = time_of(SystemTime::now());
    let (packing, monitor) = (Packing::new(writer, id, None), Monitor::default());
    let mut import = TarImport::new(writer, &packing, &monitor, max_bytes);
    while let Some(header) = TarHeader::read(from).map_err(unreadable)? {
        import.entry(header, from)?;
    }
    io::copy(&mut from.take(MAX_TRAILING_BYTES), &mut io::sink()).map_err(unreadable)?;
    let tree = import.tree.write(&writer.store, &packing).map_err(failed())?;
    let packed = packing.finish().map_err(failed())?;
    let Labels { tags, note, purpose, run, job, user, pinned } = labels;
    let root = import.tree.root();
    let snapshot = Snapshot {
        id,
        tree,
        root_meta: root.meta,
        root_attrs: root.attrs.clone(),
        began,
        taken: time_of(SystemTime::now()),
        entries: import.tree.entries(),
        bytes: import.bytes,
        added_bytes: packed + import.own_bytes,
        failed: 0,
        engine: Engine::Copy,
        purpose,
        run,
        job,
        user,
        note,
        tags,
        pinned,
        forgotten: None,
        // Whoever wrote the archive chose its owners and modes.
        is_exposed: true,
        origin: None,
    };
    packing.close(&snapshot.record()).map_err(failed())?;
    Ok(Imported { snapshot, left_out: import.left_out })
}

fn unreadable(error: io::Error) -> SnapshotError {
    match error.kind() {
        ErrorKind::InvalidData => SnapshotError::Archive(error.to_string()),
        ErrorKind::UnexpectedEof => SnapshotError::Archive("it ends in the middle".into()),
        _ => io_error("read", "the archive")(error),
    }
}

fn refused(path: &RelPath, why: WhyRefused) -> SnapshotError {
    SnapshotError::Archive(format!("{path} {why}"))
}

/// An archive that is being read.
struct TarImport<'p> {
    writer: &'p Writer<'p>,
    packing: &'p Packing<'p>,
    tree: ImportedTree,
    monitor: &'p Monitor,
    max_bytes: u64,
    bytes: u64,
    own_bytes: u64,
    left_out: u64,
}

impl<'p> TarImport<'p> {
    fn new(writer: &'p Writer<'p>, packing: &'p Packing<'p>, monitor: &'p Monitor, max_bytes: u64) -> Self {
        let tree = ImportedTree::new();
        Self { writer, packing, tree, monitor, max_bytes, bytes: 0, own_bytes: 0, left_out: 0 }
    }

    /// Takes an entry and its data.
    fn entry(&mut self, header: TarHeader, from: &mut dyn Read) -> Result<(), SnapshotError> {
        let path = path_of(&header.path)?;
        if path.names().next().is_some_and(|name| *name == *OWN_DIR) {
            return Err(refused(&path, "is in the folder that Volferry keeps for itself"));
        }
        self.left_out += header.left_out;
        let attrs = self.attrs(&path, &header.attrs)?;
        let TarHeader { mode, mtime, uid, gid, kind, .. } = header;
        let meta = Meta { mode, mtime, owner: Owner { uid, gid } };
        // Links have no data, whatever their headers say.
        let data = if [FILE, HARD_LINK].contains(&kind) { 0 } else { header.data_bytes };
        let placed = match kind {
            DIR => self.tree.dir(&path, meta, attrs),
            HARD_LINK => self.tree.link(&path, &path_of(&header.link)?),
            _ => {
                let what = self.what(&path, header, from)?;
                self.tree.put(&path, ImportedEntry { what, meta, attrs, in_motion: false })
            }
        };
        placed.map_err(|why| refused(&path, why))?;
        skip(from, data)
    }

    fn what(
        &mut self,
        path: &RelPath,
        header: TarHeader,
        from: &mut dyn Read,
    ) -> Result<What<usize>, SnapshotError> {
        let device = rustix::fs::makedev(header.device.0, header.device.1);
        Ok(match header.kind {
            FILE => self.file(path, header, from)?,
            SYMLINK => {
                let is_target = (1..=MAX_TARGET_BYTES).contains(&header.link.len());
                if !is_target || header.link.contains(&0) {
                    return Err(refused(path, "is a symbolic link without a target that one can have"));
                }
                What::Symlink(header.link)
            }
            FIFO => What::Fifo,
            CHAR_DEVICE => What::CharDevice(device),
            BLOCK_DEVICE => What::BlockDevice(device),
            _ => return Err(refused(path, "is of a kind that is not read")),
        })
    }

    /// Encodes the attributes that snapshots keep.
    fn attrs(&mut self, path: &RelPath, attrs: &[(Vec<u8>, Vec<u8>)]) -> Result<AttrsBuf, SnapshotError> {
        let sorted: BTreeMap<&[u8], &[u8]> =
            attrs.iter().map(|(name, value)| (name.as_slice(), value.as_slice())).collect();
        let mut out = Vec::new();
        for (name, value) in sorted {
            match Classes::of(name) {
                Some(_) if name.len() <= usize::from(u8::MAX) && value.len() <= MAX_VALUE_BYTES => {
                    put_attr(&mut out, name, value);
                }
                Some(_) => return Err(refused(path, "has an attribute that is longer than any")),
                None => self.left_out += 1,
            }
        }
        let attrs = Attrs::decode(&out).map_err(|_| refused(path, "has attributes that no file has"))?;
        Ok(attrs.into())
    }

    /// Takes the content of a file.
    fn file(
        &mut self,
        path: &RelPath,
        header: TarHeader,
        from: &mut dyn Read,
    ) -> Result<What<usize>, SnapshotError> {
        let bytes = header.data_bytes;
        let (len, data) = match header.holes {
            None => (bytes, vec![Range { start: 0, end: bytes }]),
            Some(holes) => (holes.len, holes.ranges(from, bytes).map_err(unreadable)?),
        };
        self.count(path, len)?;
        if len == 0 {
            return Ok(What::File { len, content: None });
        }
        let failed = || io_error("write to", self.writer.store.path());
        let mut arriving = ArrivingContent::begin(self.packing, self.monitor, len).map_err(failed())?;
        if let ArrivingInto::File(_) = arriving.into {
            self.check_room(data.iter().map(|range| range.end - range.start).sum())?;
        }
        let (mut at, mut buffer) = (0, vec![0; bytes.min(PIECE_BYTES) as usize]);
        for range in data {
            arriving.push(ContentPiece::Hole(range.start - at), None).map_err(failed())?;
            at = range.start;
            while at < range.end {
                let piece = &mut buffer[..(range.end - at).min(PIECE_BYTES) as usize];
                from.read_exact(piece).map_err(unreadable)?;
                arriving.push(ContentPiece::Data(piece), None).map_err(failed())?;
                at += piece.len() as u64;
            }
        }
        arriving.push(ContentPiece::Hole(len - at), None).map_err(failed())?;
        skip_padding(from, bytes)?;
        Ok(What::File { len, content: Some(self.store_content(&arriving, len)?) })
    }

    /// Counts the bytes of a file. An archive of a few bytes may have files of any length, which would all be hashed.
    fn count(&mut self, path: &RelPath, len: u64) -> Result<(), SnapshotError> {
        self.bytes = self.bytes.saturating_add(len);
        if self.bytes <= self.max_bytes {
            Ok(())
        } else {
            Err(SnapshotError::ArchiveTooLong { path: path.to_string(), max: self.max_bytes })
        }
    }

    fn check_room(&self, bytes: u64) -> Result<(), SnapshotError> {
        let path = self.writer.store.path();
        let free = free_bytes(self.writer.store.dir()).map_err(io_error("look at", path))?;
        if bytes > free {
            Err(SnapshotError::NoRoomForCopy { path: path.into(), bytes, free })
        } else {
            Ok(())
        }
    }

    /// Stores content that was read.
    fn store_content(
        &mut self,
        arrived: &ArrivingContent<'_>,
        len: u64,
    ) -> Result<ContentRef, SnapshotError> {
        let id = arrived.id();
        let failed = || io_error("write to", self.writer.store.path());
        let home = match &arrived.into {
            ArrivingInto::Memory(bytes) => self.packing.content(id, bytes).map_err(failed())?,
            ArrivingInto::File(part) => {
                let own = ContentRef { id, home: Home::Own };
                let is_stored = self.packing.is_stored(&own, len, &|_, _| Ok(()));
                let is_new = self.packing.name(&part.name, id, is_stored).map_err(failed())?;
                self.own_bytes += if is_new { len } else { 0 };
                Home::Own
            }
        };
        Ok(ContentRef { id, home })
    }
}

/// Reads a path of an archive, which begins at the root of the tree.
fn path_of(bytes: &[u8]) -> Result<RelPath, SnapshotError> {
    let mut names = bytes.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && *name != b".");
    let path = names.try_fold(RelPath::root(), |path, name| path.join(name));
    path.ok().filter(|_| bytes.first() != Some(&b'/')).ok_or_else(|| {
        SnapshotError::Archive(format!("{} leads out of the tree, or is no path", display(bytes)))
    })
}

/// Reads past data that is not taken, and past what fills its last block.
fn skip(from: &mut dyn Read, len: u64) -> Result<(), SnapshotError> {
    skip_exactly(from, len)?;
    skip_padding(from, len)
}

fn skip_padding(from: &mut dyn Read, len: u64) -> Result<(), SnapshotError> {
    let block = BLOCK_BYTES as u64;
    skip_exactly(from, (block - len % block) % block)
}

fn skip_exactly(from: &mut dyn Read, len: u64) -> Result<(), SnapshotError> {
    if io::copy(&mut from.take(len), &mut io::sink()).map_err(unreadable)? == len {
        Ok(())
    } else {
        Err(unreadable(ErrorKind::UnexpectedEof.into()))
    }
}
