//! Receives frames from the source, checks them and writes their content.

use std::{io, os::fd::AsFd as _, sync::Arc};

use parking_lot::{Mutex, MutexGuard};

use crate::{
    buffers,
    delta::checked::{BlockCheck, FileVersion},
    destination::{Staged, let_go, read_exact_at},
    fetch::{
        assemble_file::{Assembly, Expected, FileBasis, Made, as_listed, has_arrived, write_patch},
        granule_basis::GranuleBasis,
        in_flight::{Arriving, FileInFlight, InFlight},
    },
    hash::{BlockHash, ContentId},
    measure::thread_time::{Activity, during},
    plan::needed_files::Need,
    sink::writing::Writing,
    source::source_file::LastDir,
    transport::{Frame, Peer, TransportError},
    wire::{
        WireError,
        check::{SplitFrame, split_check},
        compress::{self, COMPRESSED},
        data::{self, BLOCK, Block, ContentFrame, END, EndFrame, Failed, Fresh, PACK, Pack, Packed},
        patch::{BlockHeader, CHUNKS, Chunks, PATCH, Patch},
    },
};

/// One of the threads that receive and write.
pub(crate) struct Receiver<'a> {
    writing: Writing<'a>,
    in_flight: &'a InFlight,
    dir: LastDir,
    buffer: Vec<u8>,
}

impl<'a> Receiver<'a> {
    pub(crate) fn new(writing: Writing<'a>, in_flight: &'a InFlight) -> Self {
        Self { writing, in_flight, dir: LastDir::default(), buffer: Vec::new() }
    }

    pub(crate) fn run(mut self, peer: &Peer) {
        while let Some(frame) = peer.receiver.recv() {
            if let Err(error) = self.take(frame) {
                peer.give_up(error);
            }
            if self.writing.is_lost() {
                peer.receiver.close();
            }
        }
        self.in_flight.break_off();
    }

    /// Handles one frame. Errors are those of the peer; an error of a file is recorded as its failure.
    fn take(&mut self, frame: Frame) -> Result<(), TransportError> {
        let body = during(Activity::Compressing, || compress::open(frame.kind, frame.body))?;
        let SplitFrame { kind, body: plain, check } = split_check(frame.kind & !COMPRESSED, &body)?;
        let taken = match kind {
            PACK => self.take_pack(plain),
            BLOCK => self.take_block(&Block::decode(plain)?, check.as_ref()),
            PATCH => self.take_patch(&Patch::decode(plain)?, check.as_ref()),
            CHUNKS => self.take_chunks(&Chunks::decode(plain)?),
            END => self.take_end(&EndFrame::decode(plain)?),
            unknown => Err(WireError::UnknownKind(unknown).into()),
        };
        buffers::give_back(body);
        taken
    }

    fn take_pack(&mut self, body: &[u8]) -> Result<(), TransportError> {
        if self.writing.is_device() {
            return Err(MIXED);
        }
        let files = Pack::open(body)?;
        let is_intact = files.is_intact;
        for packed in files {
            let Packed { need: number, content } = packed?;
            let Some(need) = self.in_flight.need(number)? else { continue };
            match content {
                Ok(_) if !is_intact => self.fail(&need, "verify", &CORRUPT),
                Ok(content) => self.write_small(&need, &content),
                Err(failed) => self.fail(&need, failed.operation, &failed.error),
            }
            self.done(number);
        }
        Ok(())
    }

    fn write_small(&mut self, need: &Need, content: &ContentFrame<'_>) {
        let mut buffer = std::mem::take(&mut self.buffer);
        let bytes = match content.kept {
            None => content.bytes,
            Some(data::BasisPrefix { len, id }) => {
                if let Err(error) = self.join(need, len as usize, content.bytes, &mut buffer) {
                    return self.fail(need, "read what is there", &error);
                }
                if ContentId::of(&buffer) != id {
                    return self.fail(need, "verify", &CORRUPT);
                }
                &buffer
            }
        };
        match self.write(need, content, bytes) {
            Ok(()) => self.writing.count_reused(need, content.kept.map_or(0, |kept| kept.len.into())),
            Err(error) => self.fail(need, "write", &error),
        }
        self.buffer = buffer;
    }

    /// Puts the `kept` bytes that the content begins with, from the old file, and then the `rest` into `whole`.
    fn join(&self, need: &Need, kept: usize, rest: &[u8], whole: &mut Vec<u8>) -> io::Result<()> {
        let old = need.old.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let file = self.writing.open_file(&old.path)?;
        whole.clear();
        whole.resize(kept, 0);
        read_exact_at(file.as_fd(), whole, 0)?;
        whole.extend_from_slice(rest);
        Ok(())
    }

    fn write(&mut self, need: &Need, content: &ContentFrame<'_>, bytes: &[u8]) -> io::Result<()> {
        let Fresh { meta, attrs } = content.fresh.unwrap_or_else(|| as_listed(need));
        let (writing, len) = (self.writing, bytes.len() as u64);
        let staged = writing.create(need, &mut self.dir, meta.mode)?;
        staged.write_at(bytes, 0)?;
        if content.in_motion {
            writing.note_in_motion(need, &meta)?;
        }
        writing.publish(need, &mut self.dir, &staged, &meta, attrs, len)?;
        writing.remember(need, &staged, &meta, attrs, bytes);
        writing.run.monitor.add_bytes(len);
        Ok(())
    }

    fn take_block(&mut self, block: &Block<'_>, check: Option<&BlockCheck>) -> Result<(), TransportError> {
        let version = check.map(|check| check.version);
        let Some((need, assembly)) = self.assembly(block.need, block.attempt, block.file_len, version)?
        else {
            return Ok(());
        };
        let len = block.bytes.len() as u64;
        kept_before(&assembly, block.attempt, block.offset + len)?;
        let hash = during(Activity::Hashing, || BlockHash::of(block.bytes, block.offset, block.file_len));
        let written = write_to(&assembly, block.attempt, |staged, writing| {
            let written = {
                let _alone = during(Activity::Turn, || writing.lock());
                staged.write_at(block.bytes, block.offset)
            };
            staged.begin_write_back(block.offset, len);
            written
        });
        let Some(written) = written else { return Ok(()) };
        let written = written.and_then(|()| as_checked(hash, check));
        self.take_hashes(&assembly, block.attempt, block.offset, written, 0)?;
        self.note_arrival(&assembly, block.attempt, block.offset, len, check);
        self.writing.run.monitor.add_bytes(len);
        self.complete(block.need, &need, &assembly);
        Ok(())
    }

    fn take_patch(&mut self, patch: &Patch<'_>, check: Option<&BlockCheck>) -> Result<(), TransportError> {
        let BlockHeader { need: number, attempt, file_len, offset } = patch.place;
        let version = check.map(|check| check.version);
        let Some((need, assembly)) = self.assembly(number, attempt, file_len, version)? else {
            return Ok(());
        };
        let kept = kept_before(&assembly, attempt, offset + patch.len())?;
        if kept.is_none() && patch.kept() > 0 {
            return Err(TransportError::Nonsense("bytes were to be kept of a file that there is not"));
        }
        let kept = kept.as_deref();
        let written = write_to(&assembly, attempt, |staged, _| write_patch(staged, kept, patch, check));
        let Some(written) = written else { return Ok(()) };
        let written = written.and_then(|hash| as_checked(hash, check));
        self.take_hashes(&assembly, attempt, offset, written, patch.kept())?;
        let is_noted = |check: &&BlockCheck| kept.is_some_and(|kept| has_arrived(kept, patch, check));
        let is_new = check.filter(|_| !patch.is_hole()).filter(|check| !is_noted(check));
        self.note_arrival(&assembly, attempt, offset, patch.len(), is_new);
        self.writing.run.monitor.add_bytes(patch.len());
        self.complete(number, &need, &assembly);
        Ok(())
    }

    /// Records the hash of the blocks that were written at `offset`, or the error of writing them.
    fn take_hashes(
        &self,
        assembly: &Mutex<Assembly>,
        attempt: u32,
        offset: u64,
        written: io::Result<BlockHash>,
        reused: u64,
    ) -> Result<(), TransportError> {
        let Some(mut assembly) = lock_attempt(assembly, attempt) else { return Ok(()) };
        assembly.reused += reused;
        match (written, &mut assembly.made) {
            (Ok(hash), Made::Blocks { hashes, .. }) => {
                if !hashes.set(offset, hash) {
                    return Err(TWICE);
                }
            }
            (Err(error), _) => assembly.spoil(self.writing, error),
            (_, Made::Chunks(_)) => return Err(MIXED),
        }
        Ok(())
    }

    /// Records a block that was written. At intervals, arrived blocks are made durable and recorded for the next run.
    fn note_arrival(
        &self,
        assembly: &Mutex<Assembly>,
        attempt: u32,
        offset: u64,
        len: u64,
        check: Option<&BlockCheck>,
    ) {
        let due = |mut assembly: MutexGuard<'_, Assembly>| {
            let staged = Arc::clone(assembly.staged.as_ref().ok()?);
            Some((assembly.arrivals.as_mut()?.came(offset, len, check?)?, staged))
        };
        let Some((batch, staged)) = lock_attempt(assembly, attempt).and_then(due) else { return };
        let mut next = Some(batch);
        while let Some(batch) = next {
            let noted = self.writing.tree().and_then(|tree| batch.note(tree, &staged));
            let log = noted.inspect_err(|error| tracing::debug!(%error, "no arrivals are noted")).ok();
            let of_attempt = lock_attempt(assembly, attempt);
            next = of_attempt.and_then(|mut assembly| assembly.arrivals.as_mut()?.noted(log));
        }
    }

    fn take_chunks(&mut self, chunks: &Chunks<'_>) -> Result<(), TransportError> {
        let BlockHeader { need: number, attempt, file_len, offset } = chunks.place;
        let Some((need, assembly)) = self.assembly(number, attempt, file_len, None)? else { return Ok(()) };
        let old = match lock_attempt(&assembly, attempt).as_deref() {
            Some(Assembly { made: Made::Chunks(made), .. }) => Arc::clone(&made.old),
            Some(_) => return Err(MIXED),
            None => return Ok(()),
        };
        let written = write_to(&assembly, attempt, |staged, _| {
            old.write(staged, chunks, &mut self.buffer, self.writing.run.monitor)
        });
        let Some(written) = written else { return Ok(()) };
        // A file that is not written because the run stops is not given up: the next run continues from its leftover.
        if self.writing.run.monitor.cancelled() {
            return Ok(());
        }
        if let Some(mut assembly) = lock_attempt(&assembly, attempt) {
            assembly.reused += chunks.copied();
            match (written, &mut assembly.made) {
                (Ok(written), Made::Chunks(made)) => made.add(offset, written, file_len)?,
                (Err(error), _) => assembly.spoil(self.writing, error),
                (_, Made::Blocks { .. }) => return Err(MIXED),
            }
        }
        self.writing.run.monitor.add_bytes(chunks.len());
        self.complete(number, &need, &assembly);
        Ok(())
    }

    /// Returns the file that a frame of this attempt belongs to; `None` if a newer attempt has begun, or the file is
    /// done.
    fn assembly(
        &self,
        number: u32,
        attempt: u32,
        file_len: u64,
        version: Option<FileVersion>,
    ) -> Result<Option<Arriving>, TransportError> {
        let writing = self.writing;
        let begin = |need: &Need, at_hand: Option<FileBasis>| {
            Assembly::begin(writing, need, attempt, file_len, version, at_hand)
        };
        let Some((need, assembly)) = self.in_flight.assembly(number, begin)? else { return Ok(None) };
        {
            let mut current = assembly.lock();
            if attempt < current.attempt {
                return Ok(None);
            }
            if attempt > current.attempt {
                let last_writes = Arc::clone(&current.under_way);
                drop(last_writes.write());
                let old = std::mem::replace(&mut *current, begin(&need, None));
                old.staged.iter().for_each(|staged| writing.unstage(staged));
            }
            if writing.is_device() && file_len != need.size {
                return Err(TransportError::Nonsense("a part of a device came that has another length"));
            }
            if file_len != current.file_len {
                return Err(TransportError::Nonsense("a file has two lengths in one attempt"));
            }
        }
        Ok(Some((need, assembly)))
    }

    fn take_end(&mut self, end: &EndFrame<'_>) -> Result<(), TransportError> {
        let Some(need) = self.in_flight.need(end.need)? else { return Ok(()) };
        match end.outcome {
            Err(Failed { operation, error }) => {
                self.fail(&need, operation, &error);
                if let Some(assembly) = self.in_flight.arrived(end.need) {
                    assembly.lock().spoil(self.writing, io::ErrorKind::Interrupted.into());
                }
                self.done(end.need);
            }
            Ok(whole) => {
                if let Some((need, assembly)) = self.assembly(end.need, end.attempt, whole.file_len, None)? {
                    if let Some(mut assembly) = lock_attempt(&assembly, end.attempt) {
                        assembly.expected = Some(Expected::new(&whole, &need));
                    }
                    self.complete(end.need, &need, &assembly);
                }
            }
        }
        Ok(())
    }

    /// Publishes a large file if all of it has arrived, or gives it up if it could not be written.
    fn complete(&mut self, number: u32, need: &Need, assembly: &Mutex<Assembly>) {
        let mut assembly = assembly.lock();
        let failed = assembly.staged.is_err();
        let Some(whole) = assembly.expected.take() else { return };
        let hash = assembly.hash();
        if hash.is_none() && !failed {
            assembly.expected = Some(whole);
            return;
        }
        let staged = assembly.take();
        let noted = staged.as_ref().ok().filter(|_| assembly.has_log()).cloned();
        let published = match staged {
            Ok(staged) if hash != Some(whole.hash) => {
                self.writing.unstage(&staged);
                return self.give_up(number, need, "verify", &CORRUPT);
            }
            staged => staged.and_then(|staged| {
                let attrs = whole.attrs.as_attrs();
                if whole.in_motion {
                    self.writing.note_in_motion(need, &whole.meta)?;
                }
                self.writing.publish(need, &mut self.dir, &staged, &whole.meta, attrs, whole.file_len)?;
                let id = || assembly.content_id();
                self.writing.remember_id(&staged, whole.file_len, whole.meta.mtime, id);
                Ok(())
            }),
        };
        match published {
            Ok(()) => {
                noted.iter().for_each(|staged| self.writing.end_arrivals(staged));
                self.writing.count_reused(need, assembly.reused);
                assembly.leftover().iter().for_each(|leftover| self.writing.unstage(leftover));
                self.done(number);
            }
            Err(error) => self.give_up(number, need, "write", &error),
        }
    }

    /// Ends a file, and releases its basis. The part of a device is closed at once, so that the device is free when the
    /// run ends.
    fn done(&self, number: u32) {
        let Some(need) = self.in_flight.end(number) else { return };
        self.writing.has_done(&need);
        let held = self.in_flight.done(number);
        if let Some(untouched) = held.as_ref().and_then(FileInFlight::untouched) {
            self.writing.unstage(untouched);
        }
        if held.is_some() && !self.writing.is_device() {
            let_go(held);
        }
    }

    fn give_up(&self, number: u32, need: &Need, operation: &str, error: &dyn std::fmt::Display) {
        self.fail(need, operation, error);
        self.done(number);
    }

    fn fail(&self, need: &Need, operation: &str, error: &dyn std::fmt::Display) {
        self.writing.run.failures.add(&need.path(), operation, error);
    }
}

/// Returns the hash of a written block, if it equals the one that the source computed.
fn as_checked(hash: BlockHash, check: Option<&BlockCheck>) -> io::Result<BlockHash> {
    match (hash, check) {
        (BlockHash::Part(value), Some(check)) if value != check.value => Err(io::Error::other(CORRUPT)),
        _ => Ok(hash),
    }
}

const CORRUPT: &str = "the content does not have the hash that the source sent; run again";

const TWICE: TransportError = TransportError::Nonsense("parts of a file came more than once");

const MIXED: TransportError = TransportError::Nonsense("a file came in another way than it was begun");

/// Locks the file; `None` if another worker has begun a newer attempt meanwhile.
fn lock_attempt(assembly: &Mutex<Assembly>, attempt: u32) -> Option<MutexGuard<'_, Assembly>> {
    Some(assembly.lock()).filter(|assembly| assembly.attempt == attempt)
}

/// Returns the basis of a file for a frame that ends before `end`.
///
/// # Errors
/// If the manifest of the basis up to `end` was not sent: that range may still be copied into the file.
fn kept_before(
    assembly: &Mutex<Assembly>,
    attempt: u32,
    end: u64,
) -> Result<Option<Arc<GranuleBasis>>, TransportError> {
    let kept = lock_attempt(assembly, attempt).and_then(|assembly| assembly.kept().cloned());
    if kept.as_ref().is_none_or(|kept| kept.is_told(end)) {
        Ok(kept)
    } else {
        Err(TransportError::Nonsense("a part of a file came before it was asked for"))
    }
}

/// Runs `write` on a file, with the lock that its writers share. No newer attempt begins meanwhile. Returns `None` if
/// one has begun, or the file is done.
fn write_to<T>(
    assembly: &Mutex<Assembly>,
    attempt: u32,
    write: impl FnOnce(&Staged, &Mutex<()>) -> T,
) -> Option<T> {
    let current = lock_attempt(assembly, attempt)?;
    let Assembly { staged: Ok(staged), writing, under_way, .. } = &*current else { return None };
    let (staged, writing, under_way) = (Arc::clone(staged), Arc::clone(writing), Arc::clone(under_way));
    let _one_of_them = under_way.read();
    drop(current);
    Some(write(&staged, &writing))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{destination::Destination, hash::BlockHashes, path::RelPath};

    #[test]
    fn while_a_file_is_written_to_no_other_attempt_begins() {
        let dir = tempfile::tempdir().unwrap();
        let tree = Destination::of_test(dir.path());
        let staged = tree.stage_file(&RelPath::parse(b"file").unwrap()).unwrap();
        let assembly = Mutex::new(Assembly {
            attempt: 1,
            file_len: 10,
            staged: Ok(Arc::new(staged)),
            under_way: Arc::default(),
            writing: Arc::default(),
            made: Made::Blocks { hashes: BlockHashes::new(10), kept: None },
            arrivals: None,
            reused: 0,
            expected: None,
        });
        let may_begin = || assembly.lock().under_way.try_write().is_some();
        assert_eq!(write_to(&assembly, 1, |_, _| may_begin()), Some(false));
        assert!(may_begin());
        assert_eq!(write_to(&assembly, 0, |_, _| ()), None);
    }
}
