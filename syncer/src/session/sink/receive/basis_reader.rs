//! What the destination has of files that are needed: read, named, and told to the source with the need.
//!
//! A small file that may have grown is named as a whole. Of a large one a private copy is staged (a clone where the
//! file system can) and hashed in granules: what the source then finds unchanged is in its place already, and was read
//! by this run, so nothing has to be believed. A file that is written in place takes the copy's part itself. Where
//! lengths differ bytes may have moved: then the old file is cut into chunks, and the new one is put together from
//! them.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    sync::{Arc, Mutex, PoisonError},
};

use async_channel::{Receiver, WeakSender};
use rustix::fs::Stat;

use crate::{
    apply::{Staged, read_exact_at},
    cores::cores,
    delta::name::ShortName,
    effort::{Activity, during},
    hash::block_bytes,
    session::{
        plan::need::Need,
        reading::{
            data_map::data_end,
            source_file::{has_holes, regular},
        },
        sink::{
            receive::{
                assembly::FileBasis, basis_cost::BasisCost, chunk_basis::ChunkBasis,
                granule_basis::GranuleBasis, in_flight::InFlight,
            },
            writing::Writing,
        },
    },
    transport::Control,
    wire::{BasisManifest, MAX_PACKED_BYTES, Message, Needs, Prefix, Update},
};

/// Shorter files are compared in granules only: a chunk would be much of them.
const MIN_CHUNKED_BYTES: u64 = (1 << 20) + 1;

/// Files beyond this length are compared in granules only: the names of their chunks would be too many.
const MAX_CHUNKED_BYTES: u64 = 1 << 40;

/// Something to be read.
pub(crate) enum BasisJob {
    /// Small files of one directory, the first with this number.
    Small(u32, Vec<Arc<Need>>),
    /// A large file, and what it may be made from: opened before what is asked for later can take its place.
    Large(u32, Arc<Need>, Vec<OwnedFd>),
    /// A large file that another thread has begun.
    Help(Arc<GranuleRead>),
}

/// Reads what is asked for and tells the source. Runs on several threads.
pub(crate) struct BasisReader<'a> {
    pub writing: Writing<'a>,
    pub control: &'a Control,
    pub in_flight: &'a InFlight,
    pub cost: &'a BasisCost,
    /// Weak, so that the queue ends with who fills it.
    pub jobs: WeakSender<BasisJob>,
}

impl BasisReader<'_> {
    pub(crate) fn run(&self, queue: &Receiver<BasisJob>) {
        while let Ok(job) = during(Activity::Idle, || queue.recv_blocking()) {
            // What waits in the queue is of no use to a run that is about to end.
            if self.is_over() {
                continue;
            }
            match job {
                BasisJob::Small(first, needs) => self.tell(&Message::Need(self.small(first, &needs))),
                BasisJob::Large(number, need, old) => self.large(number, &need, old),
                BasisJob::Help(reading) => self.help(&reading),
            }
        }
    }

    /// Whether the run was told to stop, or its connection has ended.
    fn is_over(&self) -> bool {
        self.writing.monitor.check().is_err() || self.in_flight.is_broken()
    }

    /// A peer that is gone is noticed by those who wait for its answer.
    fn tell(&self, message: &Message) {
        let _ = self.control.send(message);
    }

    fn small(&self, first: u32, needs: &[Arc<Need>]) -> Needs {
        let prefixes = (0..).zip(needs).filter_map(|(nth, need)| self.prefix(nth, need)).collect();
        request(first, needs, prefixes)
    }

    /// What there is of a small file; `None` where it cannot be read, and all of it is needed.
    fn prefix(&self, nth: u32, need: &Need) -> Option<Prefix> {
        let (file, stat) = self.open_old(need).ok()?;
        let mut bytes =
            vec![0; usize::try_from(stat.st_size).ok().filter(|&len| len <= MAX_PACKED_BYTES as usize)?];
        read_exact_at(file.as_fd(), &mut bytes, 0).ok()?;
        Some(Prefix { nth, len: bytes.len() as u32, name: ShortName::of(&blake3::hash(&bytes)) })
    }

    fn open_old(&self, need: &Need) -> io::Result<(OwnedFd, Stat)> {
        let old = need.old.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let file = self.writing.open_file(&old.path)?;
        let stat = regular(&file)?;
        Ok((file, stat))
    }

    fn large(&self, number: u32, need: &Arc<Need>, old: Vec<OwnedFd>) {
        if let Err(error) = self.begin(number, need, old) {
            tracing::debug!(path = %need.path(), %error, "nothing is made use of");
            self.tell(&Message::Need(request(number, std::slice::from_ref(need), Vec::new())));
        }
    }

    fn begin(&self, number: u32, need: &Arc<Need>, mut old: Vec<OwnedFd>) -> io::Result<()> {
        if let Some(staged) = self.writing.stage_over(need) {
            // What is not read is written, and here that costs room in the journal, or in snapshots below a device.
            return self.share(number, need, GranuleBasis::what_is_in(staged)?, false);
        }
        if let Some((leftover, was_tried)) = self.writing.leftover(need) {
            // A run that puts chunks together notes nothing, so one that got no further is not repeated.
            let old = if was_tried { Vec::new() } else { old };
            return self.go_on(number, need, leftover, old);
        }
        if old.len() > 1 {
            return self.worth_chunks(number, need, with_lengths(old)?);
        }
        let file = old.pop().ok_or(io::ErrorKind::NotFound)?;
        let stat = regular(&file)?;
        let len = stat.st_size as u64;
        let in_place = len == need.size || len.max(need.size) < MIN_CHUNKED_BYTES || len > MAX_CHUNKED_BYTES;
        if !in_place && !has_holes(&stat) {
            return self.worth_chunks(number, need, vec![(file, len)]);
        }
        let tree = self.writing.tree()?;
        let staged = tree.stage_file(&need.path())?;
        let kept = match staged.clone_of(file.as_fd()) {
            // What is in memory may not be what is on the disk, and in the clone.
            true if tree.doubtful_since().is_some() => GranuleBasis::what_is_in(staged)?,
            true => GranuleBasis::clone_of(file, staged)?,
            false => GranuleBasis::copy_of(file, staged)?,
        };
        self.share(number, need, kept, need.is_version())
    }

    /// Goes on from what a run that was cut off left of a file, and reads what is not noted as checked. What that run
    /// had not come to is in the old version.
    fn go_on(&self, number: u32, need: &Arc<Need>, leftover: Staged, old: Vec<OwnedFd>) -> io::Result<()> {
        if let Some(noted) = self.writing.arrived(&leftover, need) {
            return self.share(number, need, GranuleBasis::left(leftover, noted)?, false);
        }
        let left = regular(leftover.fd())?;
        let stats = old.iter().map(regular).collect::<io::Result<Vec<_>>>()?;
        let is_whole = !has_holes(&left) && stats.iter().all(|old| old.st_size == left.st_size);
        // Sparse files may be as long as a number can be.
        let total = stats.iter().map(|old| old.st_size as u64).fold(left.st_size as u64, u64::saturating_add);
        let is_too_long = total > MAX_CHUNKED_BYTES;
        if old.is_empty() || is_whole || is_too_long || stats.iter().any(has_holes) {
            return self.share(number, need, GranuleBasis::what_is_in(leftover)?, false);
        }
        let len = data_end(leftover.basis(), left.st_size as u64);
        let files = std::iter::once((leftover.fd().try_clone_to_owned()?, len));
        self.chunks(number, need, files.chain(with_lengths(old)?).collect(), Some(leftover))
    }

    fn chunks(
        &self,
        number: u32,
        need: &Need,
        files: Vec<(OwnedFd, u64)>,
        leftover: Option<Staged>,
    ) -> io::Result<()> {
        let tree = self.writing.tree()?;
        let (old, list) = ChunkBasis::cut(tree, files, leftover, self.cost, self.writing.monitor)?;
        self.in_flight.set_at_hand(number, FileBasis::Chunks(Arc::new(old)));
        self.update(number, need, BasisManifest::Chunks(list));
        Ok(())
    }

    /// The same, if reading all of it pays.
    fn worth_chunks(&self, number: u32, need: &Need, files: Vec<(OwnedFd, u64)>) -> io::Result<()> {
        match !need.is_version() || self.cost.pays(files.iter().map(|(_, len)| len).sum()) {
            true => self.chunks(number, need, files, None),
            false => Err(io::Error::other("to read what is there costs more than to send what is needed")),
        }
    }

    fn update(&self, number: u32, need: &Need, basis: BasisManifest) {
        self.tell(&Message::Update(Update { need: number, dir: need.dir.source, index: need.index, basis }));
    }

    /// Has other threads help with a file of many blocks. Unless it `is_judged`, all of it is read.
    fn share(&self, number: u32, need: &Arc<Need>, kept: GranuleBasis, is_judged: bool) -> io::Result<()> {
        if kept.granule_bytes() > block_bytes(need.size) {
            return Err(io::Error::other(
                "it is so much longer that no block of the new file has a granule of it",
            ));
        }
        let kept = Arc::new(kept);
        self.in_flight.set_at_hand(number, FileBasis::Granules(Arc::clone(&kept)));
        let telling = Mutex::default();
        let reading = Arc::new(GranuleRead { number, need: Arc::clone(need), kept, is_judged, telling });
        let threads = cores() as u64;
        for _ in 1..threads.min(reading.kept.blocks()) {
            // Where the queue is full, the others have enough to do.
            let _ = self.jobs.upgrade().map(|jobs| jobs.try_send(BasisJob::Help(Arc::clone(&reading))));
        }
        self.help(&reading);
        Ok(())
    }

    /// Does blocks until all are taken. Who does the last one of a part tells the source.
    fn help(&self, reading: &GranuleRead) {
        let cost = reading.is_judged.then_some(self.cost);
        let mut buffer = Vec::new();
        while !self.is_over() && reading.kept.do_block(&mut buffer, cost) {
            let _in_order = reading.telling.lock().unwrap_or_else(PoisonError::into_inner);
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
    /// Only what pays is read.
    is_judged: bool,
    /// Held while the source is told: a part before the next.
    telling: Mutex<()>,
}

/// Asks for files of one directory, the first with this number.
pub(crate) fn request(first: u32, needs: &[Arc<Need>], prefixes: Vec<Prefix>) -> Needs {
    let dir = needs.first().map_or(0, |need| need.dir.source);
    Needs { first, dir, indices: needs.iter().map(|need| need.index).collect(), prefixes }
}

/// Opens the files that may have content of a needed one, but for those that are gone.
pub(crate) fn open_all(writing: Writing<'_>, need: &Need) -> Vec<OwnedFd> {
    let paths = need.old.iter().flat_map(|old| std::iter::once(&old.path).chain(&old.also));
    paths.filter_map(|path| writing.open_file(path).ok()).collect()
}

/// Files and their lengths: as many as are not too long together.
fn with_lengths(files: Vec<OwnedFd>) -> io::Result<Vec<(OwnedFd, u64)>> {
    let (mut chosen, mut total) = (Vec::new(), 0);
    for file in files {
        let len = regular(&file)?.st_size as u64;
        if total + len <= MAX_CHUNKED_BYTES {
            total += len;
            chosen.push((file, len));
        }
    }
    Ok(chosen)
}
