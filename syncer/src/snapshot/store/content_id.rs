//! The content of a file in the store: its id and its place.

use std::{
    io,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use parking_lot::Mutex;

use crate::{
    block_sizes::block_bytes,
    hash::{BlockHash, BlockHashes, ContentId},
    sys::cores::cores,
    sys::file_part::Slice,
};

/// The length of an id in bytes.
pub(crate) const ID_BYTES: usize = 32;

/// The number of bytes of a small file that are read at once.
const PIECE_BYTES: u64 = 256 << 10;

/// Files of at least this many bytes are hashed by several threads.
const SHARED_BYTES: u64 = 8 << 20;

/// Computes the id of the first `len` bytes of a file.
///
/// # Errors `UnexpectedEof` if the file is shorter.
pub fn id_of_file(file: Slice<'_>, len: u64) -> io::Result<ContentId> {
    id_of_visited(file, len, &|_, _| Ok(()))
}

/// Computes the id of the first `len` bytes of a file, and passes every piece with its offset to `visit`. Pieces of
/// large files come in any order.
///
/// # Errors `UnexpectedEof` if the file is shorter; any error of `visit`.
pub(crate) fn id_of_visited(file: Slice<'_>, len: u64, visit: &VisitData<'_>) -> io::Result<ContentId> {
    if len >= SHARED_BYTES {
        return by_blocks(file, len, visit);
    }
    let mut hasher = blake3::Hasher::new();
    let mut buffer = vec![0; len.min(PIECE_BYTES) as usize];
    let mut at = 0;
    while at < len {
        let part = &mut buffer[..(len - at).min(PIECE_BYTES) as usize];
        file.read_exact_at(part, at)?;
        visit(part, at)?;
        hasher.update(part);
        at += part.len() as u64;
    }
    Ok(ContentId(*hasher.finalize().as_bytes()))
}

/// Receives a piece of a file and its offset.
pub type VisitData<'a> = dyn Fn(&[u8], u64) -> io::Result<()> + Sync + 'a;

/// Hashes a file on all cores, block by block.
fn by_blocks(file: Slice<'_>, len: u64, visit: &VisitData<'_>) -> io::Result<ContentId> {
    let (next, hashes) = (AtomicU64::new(0), Mutex::new(BlockHashes::new(len)));
    let block = block_bytes(len) as u64;
    let work = || {
        let mut buffer = vec![0; block as usize];
        loop {
            let start = next.fetch_add(block, Relaxed);
            if start >= len {
                return Ok(());
            }
            let part = &mut buffer[..(len - start).min(block) as usize];
            file.read_exact_at(part, start)?;
            visit(part, start)?;
            let hash = BlockHash::of(part, start, len);
            let _ = hashes.lock().set(start, hash);
        }
    };
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..cores()).map(|_| scope.spawn(work)).collect();
        let mine = work();
        let failed = |_| Err(io::Error::other("a hashing thread failed"));
        others.into_iter().map(|other| other.join().unwrap_or_else(failed)).fold(mine, Result::and)
    })?;
    let hash = hashes.lock().finish();
    hash.map(|hash| ContentId(hash.0)).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// The place of a file's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Home {
    /// In a file of its own, named by its id.
    Own,
    /// In a pack.
    Pack {
        /// The pack.
        pack: u64,
        /// The offset of its first byte there.
        offset: u64,
    },
}

/// The content of a file that is not empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentRef {
    /// Its hash.
    pub id: ContentId,
    /// Its place.
    pub home: Home,
}

/// Content with its length.
#[derive(Debug, Clone, Copy)]
pub struct SizedContent {
    /// The content.
    pub content: ContentRef,
    /// Its length in bytes.
    pub len: u64,
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, os::fd::AsFd as _};

    use super::*;

    #[test]
    fn a_file_has_the_id_of_its_bytes_however_it_is_read() {
        for len in [1, 4096, 300 << 10, (SHARED_BYTES as usize) + 12_345] {
            let bytes: Vec<u8> = (0..len).map(|at| ((at * 31) >> 7) as u8).collect();
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&bytes).unwrap();
            let id = id_of_file(Slice::all_of(file.as_fd()), len as u64).unwrap();
            assert_eq!(id, ContentId::of(&bytes));
            assert!(id_of_file(Slice::from(file.as_fd(), 1), len as u64).is_err());
        }
    }
}
