//! Small files: read whole, packed many to a frame; of one that the sink has the beginning of, only the rest.

use std::{io, sync::Arc};

use super::{Batch, File, Worker, large::Large};
use crate::{
    entry::Meta,
    session::read::{
        CHANGED, MAX_ATTEMPTS, append_start, has_holes, is_same, meta_of, open_nonblocking, regular, settled,
    },
    transport::TransportError,
    wire::data::{Fresh, MAX_PACKED_BYTES, PackBuilder},
};

impl Worker<'_> {
    pub(super) fn pack(&mut self, batch: &Batch, pack: &mut PackBuilder) -> Result<(), TransportError> {
        for file in &batch.files {
            self.check()?;
            match self.read_small(batch, file, pack) {
                Ok(Read::Packed) => {
                    self.monitor.add_files(1);
                    self.monitor.add_bytes(file.size);
                }
                Ok(Read::Large) => {
                    self.help(Arc::new(Large::begin(self.origin, &batch.path, file.clone(), None)))?;
                }
                Err(error) => pack.push_failed(file.need, "read", &error.to_string()),
            }
            if pack.is_full() {
                self.flush(pack)?;
            }
        }
        Ok(())
    }

    fn read_small(&mut self, batch: &Batch, file: &File, pack: &mut PackBuilder) -> io::Result<Read> {
        let dir = self.dir.open(self.origin.root()?, batch.dir, &batch.path)?;
        let fd = open_nonblocking(dir, &file.name)?;
        let holes = self.holes;
        let (mut size, mut meta) = (file.size, file.meta);
        for _ in 0..MAX_ATTEMPTS {
            if size > MAX_PACKED_BYTES {
                return Ok(Read::Large);
            }
            let fresh = (meta != file.meta).then_some(Fresh { meta });
            let read = pack.push(file.need, fresh, file.prefix, size as usize, |frame| {
                let before = settled(&fd)?;
                let is_whole = append_start(&fd, size as usize, frame)?;
                let stat = regular(&fd)?;
                match (stat.st_size as u64, meta_of(&stat, &file.meta)) {
                    _ if holes && has_holes(&stat) => Err(Misread::Sparse),
                    now if is_whole && now == (size, meta) && is_same(&before, &stat) => Ok(()),
                    now => Err(Misread::Changed(now)),
                }
            });
            match read {
                Ok(()) => return Ok(Read::Packed),
                Err(Misread::Failed(error)) => return Err(error),
                Err(Misread::Sparse) => return Ok(Read::Large),
                Err(Misread::Changed(now)) => (size, meta) = now,
            }
        }
        Err(io::Error::other(CHANGED))
    }
}

enum Read {
    Packed,
    /// It was small when it was scanned and is no more, or it has holes: it goes as large ones do.
    Large,
}

/// Why a read does not count.
enum Misread {
    Failed(io::Error),
    Sparse,
    Changed((u64, Meta)),
}

impl From<io::Error> for Misread {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}
