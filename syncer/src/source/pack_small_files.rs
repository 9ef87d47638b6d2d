//! Sends small files: reads them whole, and packs many into a frame. If the sink has the beginning of a file, only the
//! rest is sent.

use std::{io, sync::Arc};

use crate::{
    hash::{ContentId, TransferHash},
    source::{
        read_again::until_unchanged,
        send_frames::{PackBatch, RequestedFile, SendWorker},
        send_large_file::Large,
        settled_times::settled,
        source_file::{DAMAGED, Origin, Stored, append_start, is_same, open_nonblocking},
    },
    sys::{find_holes::has_holes, in_motion::is_in_motion, stat::regular},
    transport::TransportError,
    wire::{
        MAX_PACKED_BYTES,
        data::{Fresh, PackBuilder},
    },
};

impl SendWorker<'_> {
    pub(crate) fn pack(&mut self, batch: &PackBatch, pack: &mut PackBuilder) -> Result<(), TransportError> {
        for file in &batch.files {
            self.check()?;
            match self.read_small(batch, file, pack) {
                Ok(SmallRead::Packed) => {
                    self.monitor.add_files(1);
                    self.monitor.add_bytes(file.size);
                }
                Ok(SmallRead::Large) => {
                    self.help(Arc::new(Large::begin(
                        self.origin,
                        &batch.path,
                        file.clone(),
                        None,
                        self.monitor,
                    )))?;
                }
                Err(error) => pack.push_failed(file.need, "read", &error.to_string()),
            }
            if pack.is_full() {
                self.flush(pack)?;
            }
        }
        Ok(())
    }

    fn read_small(
        &mut self,
        batch: &PackBatch,
        file: &RequestedFile,
        pack: &mut PackBuilder,
    ) -> io::Result<SmallRead> {
        if let Origin::Stored(stored) = self.origin {
            return self.read_stored(stored, file, pack);
        }
        let root = self.origin.root()?;
        let dir = self.dir.open(root, batch.dir, &batch.path)?;
        let fd = open_nonblocking(dir, &file.name)?;
        let holes = self.holes;
        until_unchanged(|| {
            let before = settled(&fd, self.monitor)?;
            let size = before.st_size as u64;
            if size > MAX_PACKED_BYTES {
                return Ok(Some(SmallRead::Large));
            }
            let in_motion = root.doubts(&batch.path, &file.name, &before) || is_in_motion(&fd, &before);
            let fresh = file.as_listed.fresh(&fd, &before, &file.meta)?;
            let fresh = fresh.as_ref().map(|it| Fresh { meta: it.meta, attrs: it.attrs.as_attrs() });
            let read = pack.push(file.need, fresh, file.prefix, size as usize, |frame| {
                let is_whole = append_start(&fd, size as usize, frame)?;
                let after = regular(&fd)?;
                if holes && has_holes(&after) {
                    Err(Misread::Sparse)
                } else if is_whole && is_same(&before, &after) {
                    Ok(())
                } else {
                    Err(Misread::Changed)
                }
            });
            match read {
                Ok(()) => {
                    if in_motion {
                        pack.mark_in_motion();
                    }
                    Ok(Some(SmallRead::Packed))
                }
                Err(Misread::Failed(error)) => Err(error),
                Err(Misread::Sparse) => Ok(Some(SmallRead::Large)),
                Err(Misread::Changed) => Ok(None),
            }
        })
    }

    /// Reads a file of a snapshot. It never changes, and may only be damaged.
    fn read_stored(
        &self,
        stored: &dyn Stored,
        file: &RequestedFile,
        pack: &mut PackBuilder,
    ) -> io::Result<SmallRead> {
        let opened = stored.open(file.dir, &file.name)?;
        let size = opened.len() as usize;
        if self.holes && size > 0 && opened.has_holes() {
            return Ok(SmallRead::Large);
        }
        pack.push(file.need, None, file.prefix, size, |frame| {
            let start = frame.len();
            frame.resize(start + size, 0);
            opened.content().read_exact_at(&mut frame[start..], 0)?;
            if opened.is_whole(&TransferHash(ContentId::of(&frame[start..]).0)) {
                Ok(())
            } else {
                Err(io::Error::other(DAMAGED))
            }
        })?;
        Ok(SmallRead::Packed)
    }
}

enum SmallRead {
    Packed,
    /// It has grown since it was scanned, or has holes: it is sent as a large one.
    Large,
}

/// Why a read does not count.
enum Misread {
    Failed(io::Error),
    Sparse,
    Changed,
}

impl From<io::Error> for Misread {
    fn from(error: io::Error) -> Self {
        Self::Failed(error)
    }
}
