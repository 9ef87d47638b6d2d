//! Reads a live file into a store elsewhere, again if it changes meanwhile.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
};

use rustix::fs::Stat;

use super::offsite_store::OffsiteStore;
use crate::{
    hash::ContentId,
    monitor::Monitor,
    snapshot::{
        copy::{ContentPiece, PIECE_BYTES, next_data},
        create::{Attempt, KeptRead, LiveFile, OpenedFile, ReadLive, ScanTerms, read_until_quiet},
        store::{ContentRef, Home, SnapshotError},
    },
    sys::{
        file_part::Slice,
        find_holes::has_holes,
        stat::{Identity, meta_of, regular},
    },
};

/// The most zeros that are passed on between two checks for a stop: a store hashes them.
const HOLE_BYTES: u64 = 64 << 20;

/// Why a file is not in the store.
pub(crate) enum NotRead {
    /// The file cannot be read.
    File(io::Error),
    /// The store does not take it, which ends the run.
    Store(SnapshotError),
}

impl From<io::Error> for NotRead {
    fn from(error: io::Error) -> Self {
        Self::File(error)
    }
}

impl From<rustix::io::Errno> for NotRead {
    fn from(error: rustix::io::Errno) -> Self {
        Self::File(error.into())
    }
}

impl From<SnapshotError> for NotRead {
    fn from(error: SnapshotError) -> Self {
        Self::Store(error)
    }
}

/// Reads files of one tree.
pub(crate) struct OffsiteReader<'a> {
    terms: ScanTerms,
    monitor: &'a Monitor,
    buffer: Vec<u8>,
}

impl<'a> OffsiteReader<'a> {
    pub(crate) fn new(terms: ScanTerms, monitor: &'a Monitor) -> Self {
        Self { terms, monitor, buffer: vec![0; PIECE_BYTES as usize] }
    }

    /// Takes the content of an open file, which has the stamp `listed` in its listing, into the store.
    pub(crate) fn read(
        &mut self,
        store: &mut dyn OffsiteStore,
        opened: OpenedFile,
        listed: u64,
    ) -> Result<LiveFile, NotRead> {
        let terms = self.terms;
        let KeptRead { content, stat, attrs, stamp, kept_changing } =
            read_until_quiet(&mut ReadInto { reader: self, store }, opened, listed, terms)?;
        let (identity, len, meta) = (Identity::of(&stat), stat.st_size as u64, meta_of(&stat));
        Ok(LiveFile { identity, content, len, meta, attrs, stamp, kept_changing, added: 0 })
    }

    /// Reads as much of a file as its status says, and passes its holes on as such.
    fn pass_on(
        &mut self,
        store: &mut dyn OffsiteStore,
        file: &OwnedFd,
        stat: &Stat,
    ) -> Result<Option<ContentRef>, NotRead> {
        let len = stat.st_size as u64;
        if len == 0 {
            return Ok(None);
        }
        let has_holes = has_holes(stat);
        let most = self.monitor.copy_bytes().min(PIECE_BYTES);
        store.begin_content(len);
        let mut at = 0;
        while at < len {
            let data = if has_holes { next_data(file.as_fd(), at, len) } else { at };
            if data > at {
                self.check()?;
                let hole = (data - at).min(HOLE_BYTES);
                store.add_piece(ContentPiece::Hole(hole))?;
                at += hole;
                continue;
            }
            let piece = (len - at).min(most);
            self.monitor.may_copy(piece).map_err(stopped)?;
            let bytes = &mut self.buffer[..piece as usize];
            Slice::all_of(file.as_fd()).read_exact_at(bytes, at)?;
            store.add_piece(ContentPiece::Data(bytes))?;
            at += piece;
        }
        let id: ContentId = store.end_content()?;
        Ok(Some(ContentRef { id, home: Home::Own }))
    }

    fn check(&self) -> Result<(), NotRead> {
        self.monitor.check().map_err(stopped)
    }
}

/// Reads into a store.
struct ReadInto<'a, 'b> {
    reader: &'a mut OffsiteReader<'b>,
    store: &'a mut dyn OffsiteStore,
}

impl ReadLive for ReadInto<'_, '_> {
    type Content = Option<ContentRef>;
    type Error = NotRead;

    fn read(&mut self, file: &OwnedFd, stat: &Stat) -> Result<Attempt<Self::Content>, NotRead> {
        let content = self.reader.pass_on(self.store, file, stat)?;
        Ok(Attempt { content, after: regular(file)?, is_clone: false })
    }

    fn is_of_store(&self, error: &NotRead) -> bool {
        matches!(error, NotRead::Store(_))
    }
}

/// Makes a stop the end of the run, and not of the file that is being read.
fn stopped(error: io::Error) -> NotRead {
    NotRead::Store(SnapshotError::Link(error))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{
        entry::Time,
        kept_xattrs::Classes,
        snapshot::{
            check::{ReadPace, StoreShare, Verified},
            offsite::{ChangeRoots, JudgeRoots, ReceiveOldFolder, RemovedSnapshots, VerifiedShare},
            store::{Folder, FolderId, Roots, Snapshot},
        },
    };

    /// A store that notes the zeros that it takes, and does nothing else.
    #[derive(Default)]
    struct CountedZeros {
        taken: u64,
        roots: Roots,
    }

    impl OffsiteStore for CountedZeros {
        fn roots(&self) -> &Roots {
            &self.roots
        }
        fn old_folders(&mut self, _: &[FolderId], _: &mut ReceiveOldFolder<'_>) -> Result<(), SnapshotError> {
            Ok(())
        }
        fn has_folder(&self, _: FolderId) -> bool {
            false
        }
        fn has_content(&self, _: ContentId, _: u64) -> bool {
            false
        }
        fn begin_content(&mut self, _: u64) {}
        fn add_piece(&mut self, piece: ContentPiece<'_>) -> Result<(), SnapshotError> {
            if let ContentPiece::Hole(len) = piece {
                self.taken += len;
            }
            Ok(())
        }
        fn end_content(&mut self) -> Result<ContentId, SnapshotError> {
            Ok(ContentId::of(&[]))
        }
        fn add_folder(&mut self, folder: &Folder) -> Result<FolderId, SnapshotError> {
            Ok(folder.id())
        }
        fn finish(&mut self) -> Result<(), SnapshotError> {
            Ok(())
        }
        fn written(&self) -> u64 {
            0
        }
        fn publish(&mut self, _: &Snapshot, _: &mut ChangeRoots<'_>) -> Result<bool, SnapshotError> {
            Ok(true)
        }
        fn remove(&mut self, _: &JudgeRoots<'_>) -> Result<RemovedSnapshots, SnapshotError> {
            Ok(RemovedSnapshots { snapshots: BTreeSet::new(), bytes: 0 })
        }
        fn verify(&mut self, of: u64, _: &ReadPace<'_>) -> Result<VerifiedShare, SnapshotError> {
            Ok(VerifiedShare { part: StoreShare { nth: 1, of }, verified: Verified::default() })
        }
    }

    #[test]
    fn a_stop_ends_a_hole_of_any_length() {
        let dir = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(dir.path().join("sparse")).unwrap();
        file.set_len(1 << 40).unwrap();
        let dir = std::fs::File::open(dir.path()).unwrap();
        let opened = OpenedFile::open(dir.as_fd(), b"sparse").unwrap();
        let terms = ScanTerms { before: Time::default(), device: 0, attrs: Classes::ALL };
        let monitor = Monitor::canceled_at(3);
        let mut store = CountedZeros::default();
        let read = OffsiteReader::new(terms, &monitor).read(&mut store, opened, 0);
        assert!(matches!(read, Err(NotRead::Store(_))));
        assert_eq!(store.taken, 2 * HOLE_BYTES);
    }
}
