//! The store that snapshots are copied from, on this machine or another: what it lists, and how its objects are read.
//!
//! Whoever asks believes no answer. A directory has to have its id, content its hash, and every place in a reference
//! has a meaning only for the store that gave it.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
};

use contract::VolumeId;
use rustix::{fs::SeekFrom, io::Errno};

use super::content_basis::{GranuleHash, granule_bytes, hash_of};
use crate::{
    destination::{Candidate, volume_of},
    root::{Root, TreeLocation},
    snapshot::store::{
        ContentRef, Folder, FolderRef, Home, Roots, Snapshot, SnapshotError, Store, hold_for_reading,
        io_error,
    },
};

/// The number of bytes of content that are passed on at once.
pub(crate) const PIECE_BYTES: u64 = 256 << 10;

/// The snapshots of another store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferedHistory {
    /// The id of its volume, if that has one.
    pub volume: Option<VolumeId>,
    /// The readable snapshots, in the order of its list.
    pub snapshots: Vec<Snapshot>,
}

/// A part of content that is being read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContentPiece<'a> {
    /// These bytes follow.
    Data(&'a [u8]),
    /// Zeros follow, as many as this.
    Hole(u64),
    /// So many bytes follow that are at the same place of the basis.
    Same(u64),
    /// All of the content was passed on.
    End,
}

/// Content that is asked for.
#[derive(Debug)]
pub struct RequestedContent {
    /// Its hash, and its place there.
    pub content: ContentRef,
    /// Its length in bytes.
    pub len: u64,
    /// The hashes of the granules of an older version that the asking store has; none without one.
    pub granules: Vec<GranuleHash>,
}

/// Receives a directory, with its number in the request.
pub type ReceiveFolder<'t> = dyn FnMut(usize, Folder) -> Result<(), SnapshotError> + 't;

/// Receives a piece of content, with the number of the content in the request.
pub type ReceivePiece<'t> = dyn FnMut(usize, ContentPiece<'_>) -> Result<(), SnapshotError> + 't;

/// A store that snapshots are copied from.
pub trait HistorySource {
    /// Lists its snapshots.
    ///
    /// # Errors
    /// If the list cannot be read.
    fn offer(&mut self) -> Result<OfferedHistory, SnapshotError>;

    /// Passes these directories on, in their order, each with the id that it was asked for by.
    ///
    /// # Errors
    /// If one cannot be read or is damaged; any error of `receive`.
    fn folders(&mut self, wanted: &[FolderRef], receive: &mut ReceiveFolder<'_>)
    -> Result<(), SnapshotError>;

    /// Returns whether it helps to tell of older versions of contents, because bytes are dear.
    fn wants_bases(&self) -> bool {
        false
    }

    /// Returns the bytes that these contents take there, without their holes.
    ///
    /// # Errors
    /// If one is missing.
    fn allocated(&mut self, wanted: &[ContentRef]) -> Result<Vec<u64>, SnapshotError>;

    /// Passes these contents on, in their order. The caller checks their lengths and hashes.
    ///
    /// # Errors
    /// If one cannot be read; any error of `receive`.
    fn contents(
        &mut self,
        wanted: &[RequestedContent],
        receive: &mut ReceivePiece<'_>,
    ) -> Result<(), SnapshotError>;
}

/// A store on this machine as a source.
#[derive(Debug)]
pub struct StoredHistory<'a> {
    /// The store. The caller keeps collections from removing objects.
    pub store: &'a Store,
    /// Its list.
    pub roots: &'a Roots,
    /// The id of its volume.
    pub volume: Option<VolumeId>,
}

/// A source without snapshots. A peer that asks it for more than that does not speak as a store does.
#[derive(Debug)]
pub struct NoHistory;

impl HistorySource for NoHistory {
    fn offer(&mut self) -> Result<OfferedHistory, SnapshotError> {
        Ok(OfferedHistory { volume: None, snapshots: Vec::new() })
    }

    fn folders(&mut self, _: &[FolderRef], _: &mut ReceiveFolder<'_>) -> Result<(), SnapshotError> {
        Err(SnapshotError::malformed())
    }

    fn allocated(&mut self, _: &[ContentRef]) -> Result<Vec<u64>, SnapshotError> {
        Err(SnapshotError::malformed())
    }

    fn contents(&mut self, _: &[RequestedContent], _: &mut ReceivePiece<'_>) -> Result<(), SnapshotError> {
        Err(SnapshotError::malformed())
    }
}

/// Returns the id of the volume at `place`, if it has one. Changes nothing.
///
/// # Errors
/// If it cannot be read.
pub fn volume_at(place: &TreeLocation) -> Result<Option<VolumeId>, SnapshotError> {
    Ok(Candidate::find(place)?.map(|candidate| candidate.volume()).transpose()?.flatten())
}

impl HistorySource for StoredHistory<'_> {
    fn offer(&mut self) -> Result<OfferedHistory, SnapshotError> {
        Ok(OfferedHistory { volume: self.volume, snapshots: self.roots.snapshots.clone() })
    }

    fn folders(
        &mut self,
        wanted: &[FolderRef],
        receive: &mut ReceiveFolder<'_>,
    ) -> Result<(), SnapshotError> {
        wanted.iter().enumerate().try_for_each(|(nth, folder)| receive(nth, self.store.folder(folder)?))
    }

    fn allocated(&mut self, wanted: &[ContentRef]) -> Result<Vec<u64>, SnapshotError> {
        wanted.iter().map(|content| Ok(self.store.allocated(content)?.unwrap_or_default())).collect()
    }

    fn contents(
        &mut self,
        wanted: &[RequestedContent],
        receive: &mut ReceivePiece<'_>,
    ) -> Result<(), SnapshotError> {
        let mut buffer = vec![0; PIECE_BYTES as usize];
        for (nth, asked) in wanted.iter().enumerate() {
            let receive = &mut |piece: ContentPiece<'_>| receive(nth, piece);
            if asked.granules.is_empty() {
                read_content(self.store, asked, &mut buffer, receive)?;
            } else {
                read_difference(self.store, asked, receive)?;
            }
        }
        Ok(())
    }
}

/// Reads content piece by piece, and passes its holes on as such.
fn read_content(
    store: &Store,
    RequestedContent { content, len, .. }: &RequestedContent,
    buffer: &mut [u8],
    receive: &mut dyn FnMut(ContentPiece<'_>) -> Result<(), SnapshotError>,
) -> Result<(), SnapshotError> {
    let len = *len;
    let open = store.content(content)?;
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => SnapshotError::Hash(store.name_of(content)),
        _ => io_error("read", store.name_of(content))(error),
    };
    let mut at = 0;
    while at < len {
        let data = if content.home == Home::Own { next_data(open.file.as_fd(), at, len) } else { at };
        if data > at {
            receive(ContentPiece::Hole(data - at))?;
            at = data;
            continue;
        }
        let piece = &mut buffer[..(len - at).min(PIECE_BYTES) as usize];
        open.slice().read_exact_at(piece, at).map_err(failed)?;
        receive(ContentPiece::Data(piece))?;
        at += piece.len() as u64;
    }
    receive(ContentPiece::End)
}

/// Reads content granule by granule, and passes on those that differ from the older version.
fn read_difference(
    store: &Store,
    RequestedContent { content, len, granules }: &RequestedContent,
    receive: &mut dyn FnMut(ContentPiece<'_>) -> Result<(), SnapshotError>,
) -> Result<(), SnapshotError> {
    let granule = granule_bytes(*len);
    // Holes within a granule are zeros, so that granules are whole when they are compared.
    let mut whole = vec![0; granule as usize];
    let open = store.content(content)?;
    let mut at = 0;
    while at < *len {
        let piece = &mut whole[..(len - at).min(granule) as usize];
        open.slice().read_exact_at(piece, at).map_err(|_| SnapshotError::Hash(store.name_of(content)))?;
        if granules.get((at / granule) as usize).is_some_and(|known| *known == hash_of(piece)) {
            receive(ContentPiece::Same(piece.len() as u64))?;
        } else {
            piece.chunks(PIECE_BYTES as usize).try_for_each(|part| receive(ContentPiece::Data(part)))?;
        }
        at += piece.len() as u64;
    }
    receive(ContentPiece::End)
}

/// Returns where data begins at `at` or after it; `at` where the file system cannot tell.
pub(crate) fn next_data(file: std::os::fd::BorrowedFd<'_>, at: u64, len: u64) -> u64 {
    match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(data) => data.clamp(at, len),
        // A file that ends before `len` is found by the read.
        Err(Errno::NXIO) if rustix::fs::fstat(file).is_ok_and(|stat| stat.st_size as u64 >= len) => len,
        Err(_) => at,
    }
}

/// A store and its list. Collections remove no objects as long as it is there.
#[derive(Debug)]
pub struct OpenHistory {
    store: Store,
    roots: Roots,
    volume: Option<VolumeId>,
    _reading: OwnedFd,
}

impl OpenHistory {
    /// Opens the store of the volume at `root`, which messages call `path`; `None` if it has none.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn open(root: &Root, path: &Path) -> Result<Option<Self>, SnapshotError> {
        let Some(store) = Store::open(root, path)? else { return Ok(None) };
        // The lock comes first: no collection removes what the list has then.
        let reading = hold_for_reading(&store)?;
        let roots = store.roots()?;
        let volume = volume_of(root).map_err(io_error("read the id of", path))?;
        Ok(Some(Self { store, roots, volume, _reading: reading }))
    }

    /// Returns the store as a source of snapshots.
    pub fn source(&self) -> StoredHistory<'_> {
        StoredHistory { store: &self.store, roots: &self.roots, volume: self.volume }
    }
}
