//! Reads the basis of needed files, and sends its manifest to the source with the request.
//!
//! The manifest of a small file that may have grown is the hash of the whole file. Of a large file, a private copy is
//! staged (a clone where the file system supports it) and hashed in granules: the unchanged granules are in place
//! already, and were read by this run, so nothing has to be trusted. A file that is written in place needs no copy. If
//! lengths differ, bytes may have moved: then the old file is cut into chunks, and the new one is assembled from them.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    sync::Arc,
};

use async_channel::{Receiver, WeakSender};
use parking_lot::Mutex;

use crate::{
    block_sizes::block_bytes,
    delta::short_name::ShortName,
    destination::{Leftover, Staged, read_exact_at},
    fetch::{
        assemble_file::FileBasis,
        chunk_basis::{ChunkBasis, ListedBasis},
        granule_basis::GranuleBasis,
        in_flight::InFlight,
    },
    measure::thread_time::{Activity, during},
    plan::needed_files::Need,
    sink::writing::Writing,
    sys::{
        cores::cores,
        file_part::SizedFile,
        find_holes::{data_end, has_holes},
        stat::regular,
    },
    transport::Control,
    wire::{BasisManifest, MAX_PACKED_BYTES, Message, Needs, Prefix, Update},
};

/// Files longer than this many bytes are compared in granules only: their chunk manifests would be too long.
const MAX_CHUNKED_BYTES: u64 = 1 << 40;

/// A unit of reading.
pub(crate) enum BasisJob {
    /// Small files of one directory, and the number of the first.
    Small(u32, Vec<Arc<Need>>),
    /// A large file, and its basis: opened now, because files that are requested later may replace it.
    Large(u32, Arc<Need>, Vec<OwnedFd>),
    /// A large file that another thread has begun to read.
    Help(Arc<GranuleRead>),
}

/// Reads requested files and sends their manifests to the source. Runs on several threads.
pub(crate) struct BasisReader<'a> {
    pub writing: Writing<'a>,
    pub control: &'a Control,
    pub in_flight: &'a InFlight,
    /// Weak, so that the queue closes when its producer ends.
    pub jobs: WeakSender<BasisJob>,
}

impl BasisReader<'_> {
    pub(crate) fn run(&self, queue: &Receiver<BasisJob>) {
        while let Ok(job) = during(Activity::Idle, || queue.recv_blocking()) {
            // A run that is about to end does not need the jobs in the queue.
            if self.is_over() {
                continue;
            }
            match job {
                BasisJob::Small(first, needs) => self.send(&Message::Need(self.small(first, &needs))),
                BasisJob::Large(number, need, old) => self.large(number, &need, old),
                BasisJob::Help(reading) => self.help(&reading),
            }
        }
    }

    /// Returns whether the run was told to stop, or its connection has ended.
    fn is_over(&self) -> bool {
        self.writing.run.monitor.check().is_err() || self.in_flight.is_broken()
    }

    /// Sends a message. The threads that wait for an answer notice a lost peer.
    fn send(&self, message: &Message) {
        let _ = self.control.send(message);
    }

    fn small(&self, first: u32, needs: &[Arc<Need>]) -> Needs {
        let prefixes = (0..).zip(needs).filter_map(|(nth, need)| self.prefix(nth, need)).collect();
        request(first, needs, prefixes)
    }

    /// Returns the hash of a small file; `None` if it cannot be read, and is sent in full.
    fn prefix(&self, nth: u32, need: &Need) -> Option<Prefix> {
        let file = self.writing.open_file(&need.old.as_ref()?.path).ok()?;
        let len = usize::try_from(regular(&file).ok()?.st_size).ok();
        let mut bytes = vec![0; len.filter(|&len| len <= MAX_PACKED_BYTES as usize)?];
        read_exact_at(file.as_fd(), &mut bytes, 0).ok()?;
        Some(Prefix { nth, len: bytes.len() as u32, name: ShortName::of(&blake3::hash(&bytes)) })
    }

    fn large(&self, number: u32, need: &Arc<Need>, old: Vec<OwnedFd>) {
        if let Err(error) = self.begin(number, need, old) {
            tracing::debug!(path = %need.path(), %error, "nothing is made use of");
            self.send(&Message::Need(request(number, std::slice::from_ref(need), Vec::new())));
        }
    }

    fn begin(&self, number: u32, need: &Arc<Need>, mut old: Vec<OwnedFd>) -> io::Result<()> {
        if let Some(staged) = self.writing.stage_over(need) {
            return self.share(number, need, GranuleBasis::what_is_in(staged)?);
        }
        if let Some(Leftover { part: leftover, was_tried }) = self.writing.leftover(need) {
            // Assembling chunks records nothing, so an attempt that got no further is not repeated.
            let old = if was_tried { Vec::new() } else { old };
            return self.go_on(number, need, leftover, old);
        }
        if old.len() > 1 {
            return self.chunks(number, need, with_lengths(old)?, None);
        }
        let file = old.pop().ok_or(io::ErrorKind::NotFound)?;
        let stat = regular(&file)?;
        let len = stat.st_size as u64;
        let in_place = len == need.size || len > MAX_CHUNKED_BYTES;
        if !in_place && !has_holes(&stat) {
            return self.chunks(number, need, vec![SizedFile { file, len }], None);
        }
        let tree = self.writing.tree()?;
        let staged = tree.stage_file(&need.path())?;
        let kept = if !staged.clone_of(file.as_fd()) {
            GranuleBasis::copy_of(file, staged)?
        } else if tree.doubtful_since().is_some() {
            // The page cache may differ from the disk, and so from the clone.
            GranuleBasis::what_is_in(staged)?
        } else {
            GranuleBasis::clone_of(file, staged)?
        };
        self.share(number, need, kept)
    }

    /// Continues from the leftover of a file, and reads what is not recorded as checked. The rest comes from the old
    /// version.
    fn go_on(&self, number: u32, need: &Arc<Need>, leftover: Staged, old: Vec<OwnedFd>) -> io::Result<()> {
        if let Some(noted) = self.writing.arrived(&leftover, need) {
            return self.share(number, need, GranuleBasis::left(leftover, noted)?);
        }
        let left = regular(leftover.fd())?;
        let stats = old.iter().map(regular).collect::<io::Result<Vec<_>>>()?;
        let is_whole = !has_holes(&left) && stats.iter().all(|old| old.st_size == left.st_size);
        // Sparse files may be as long as the integer range allows, so the sum saturates.
        let total = stats.iter().map(|old| old.st_size as u64).fold(left.st_size as u64, u64::saturating_add);
        let is_too_long = total > MAX_CHUNKED_BYTES;
        if old.is_empty() || is_whole || is_too_long || stats.iter().any(has_holes) {
            return self.share(number, need, GranuleBasis::what_is_in(leftover)?);
        }
        let len = data_end(leftover.basis(), left.st_size as u64);
        let files = std::iter::once(SizedFile { file: leftover.fd().try_clone_to_owned()?, len });
        self.chunks(number, need, files.chain(with_lengths(old)?).collect(), Some(leftover))
    }

    fn chunks(
        &self,
        number: u32,
        need: &Need,
        files: Vec<SizedFile>,
        leftover: Option<Staged>,
    ) -> io::Result<()> {
        let tree = self.writing.tree()?;
        let ListedBasis { basis, list } = ChunkBasis::cut(tree, files, leftover, self.writing.run.monitor)?;
        self.in_flight.set_at_hand(number, FileBasis::Chunks(Arc::new(basis)));
        self.update(number, need, BasisManifest::Chunks(list));
        Ok(())
    }

    fn update(&self, number: u32, need: &Need, basis: BasisManifest) {
        self.send(&Message::Update(Update { need: number, dir: need.dir.source, index: need.index, basis }));
    }

    /// Has other threads help with a file of many blocks.
    fn share(&self, number: u32, need: &Arc<Need>, kept: GranuleBasis) -> io::Result<()> {
        if kept.granule_bytes() > block_bytes(need.size) {
            return Err(io::Error::other(
                "it is so much longer that no block of the new file has a granule of it",
            ));
        }
        let kept = Arc::new(kept);
        self.in_flight.set_at_hand(number, FileBasis::Granules(Arc::clone(&kept)));
        let telling = Mutex::default();
        let reading = Arc::new(GranuleRead { number, need: Arc::clone(need), kept, telling });
        let threads = cores() as u64;
        for _ in 1..threads.min(reading.kept.blocks()) {
            // If the queue is full, the other threads have enough work.
            let _ = self.jobs.upgrade().map(|jobs| jobs.try_send(BasisJob::Help(Arc::clone(&reading))));
        }
        self.help(&reading);
        Ok(())
    }

    /// Reads blocks until all are taken. The thread that reads the last block of a part sends its manifest.
    fn help(&self, reading: &GranuleRead) {
        let mut buffer = Vec::new();
        while !self.is_over() && reading.kept.do_block(&mut buffer) {
            let _in_order = reading.telling.lock();
            while let Some(part) = reading.kept.next_part() {
                self.update(reading.number, &reading.need, BasisManifest::Granules(part));
            }
        }
    }
}

/// A large file that is read by several threads.
pub(crate) struct GranuleRead {
    number: u32,
    need: Arc<Need>,
    kept: Arc<GranuleBasis>,
    /// Held while a part is sent, so that parts are sent in order.
    telling: Mutex<()>,
}

/// Requests files of one directory; `first` is the number of the first.
pub(crate) fn request(first: u32, needs: &[Arc<Need>], prefixes: Vec<Prefix>) -> Needs {
    let dir = needs.first().map_or(0, |need| need.dir.source);
    Needs { first, dir, indices: needs.iter().map(|need| need.index).collect(), prefixes }
}

/// Opens the files that may have content of a needed one, except for those that do not exist any more.
pub(crate) fn open_all(writing: Writing<'_>, need: &Need) -> Vec<OwnedFd> {
    let paths = need.old.iter().flat_map(|old| std::iter::once(&old.path).chain(&old.also));
    paths.filter_map(|path| writing.open_file(path).ok()).collect()
}

/// Returns files with their lengths, as many as together do not exceed the limit.
fn with_lengths(files: Vec<OwnedFd>) -> io::Result<Vec<SizedFile>> {
    let (mut chosen, mut total) = (Vec::new(), 0);
    for file in files {
        let len = regular(&file)?.st_size as u64;
        if total + len <= MAX_CHUNKED_BYTES {
            total += len;
            chosen.push(SizedFile { file, len });
        }
    }
    Ok(chosen)
}
