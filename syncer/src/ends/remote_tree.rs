//! The listings and hashes of a source over the network, from the control stream.

use std::collections::{HashMap, VecDeque};

use crate::{
    plan::{
        compare_contents::{HashBatch, SourceHashes},
        source_tree::SourceTree,
    },
    session_error::SessionError,
    transport::{Control, TransportError},
    tree::dir::DirId,
    wire::{Hashed, Listed, Message, SourceDone, TreeHead},
};

/// The largest number of entries that a source may push before the sink has asked for any. A source stops at 64 KiB of
/// listings, and no entry takes less than five bytes.
const MAX_PUSHED_ENTRIES: usize = 16 << 10;

/// The fewest bytes that an entry of a listing takes.
const MIN_ENTRY_BYTES: usize = 5;

/// The source's tree over the control stream. The source pushes its first listings unasked, to save a round trip.
pub(crate) struct RemoteTree<'a> {
    control: &'a Control,
    pushed: HashMap<DirId, Listed>,
    pushed_entries: usize,
    asked: VecDeque<DirId>,
}

impl<'a> RemoteTree<'a> {
    pub(crate) fn new(control: &'a Control) -> Self {
        Self { control, pushed: HashMap::new(), pushed_entries: 0, asked: VecDeque::new() }
    }

    /// Waits for the end of the source's scan.
    pub(crate) fn head(&mut self) -> Result<TreeHead, TransportError> {
        loop {
            match self.control.recv()? {
                Message::Tree(head) => return Ok(*head),
                Message::Listed(listed) => self.store(listed)?,
                other => return Err(TransportError::Unexpected { got: other.what(), expected: "Tree" }),
            }
        }
    }

    fn store(&mut self, listed: Listed) -> Result<(), TransportError> {
        self.pushed_entries += 1 + listed.listing.len() + listed.rules.len() / MIN_ENTRY_BYTES;
        if self.pushed_entries > MAX_PUSHED_ENTRIES {
            return Err(TransportError::Nonsense("more was pushed than may be"));
        }
        self.pushed.insert(listed.dir, listed);
        Ok(())
    }
}

impl SourceTree for RemoteTree<'_> {
    fn request(&mut self, dirs: &[DirId]) -> Result<(), SessionError> {
        self.asked.extend(dirs);
        let missing: Vec<DirId> = dirs.iter().copied().filter(|dir| !self.pushed.contains_key(dir)).collect();
        if !missing.is_empty() {
            self.control.send(&Message::Want(missing))?;
        }
        Ok(())
    }

    fn next(&mut self) -> Result<Listed, SessionError> {
        if let Some(listed) = self.asked.pop_front().and_then(|dir| self.pushed.remove(&dir)) {
            return Ok(listed);
        }
        match self.control.recv()? {
            Message::Listed(listed) => Ok(listed),
            other => Err(TransportError::Unexpected { got: other.what(), expected: "Listed" }.into()),
        }
    }
}

/// The source's hashes over the control stream.
pub(crate) struct RemoteHashes<'a>(pub &'a Control);

impl SourceHashes for RemoteHashes<'_> {
    fn ask(&mut self, batch: &HashBatch) -> Result<(), SessionError> {
        Ok(self.0.send(&Message::Hash(batch.groups.clone()))?)
    }

    fn next(&mut self, batch: &HashBatch) -> Result<Vec<Hashed>, SessionError> {
        match self.0.recv()? {
            Message::Hashed(hashes) if hashes.len() == batch.files.len() => Ok(hashes),
            Message::Hashed(_) => {
                Err(TransportError::Nonsense("other hashes came than were asked for").into())
            }
            other => Err(TransportError::Unexpected { got: other.what(), expected: "Hashed" }.into()),
        }
    }
}

pub(crate) fn expect_done(control: &Control) -> Result<SourceDone, TransportError> {
    match control.recv()? {
        Message::SourceDone(done) => Ok(*done),
        other => Err(TransportError::Unexpected { got: other.what(), expected: "SourceDone" }),
    }
}
