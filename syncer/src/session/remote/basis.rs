//! What the destination has of files that are needed: read, named, and told to the source with the need.
//!
//! A small file that may have grown is named as a whole. Of a large one a private copy is staged (a clone where the file system can) and
//! hashed in granules: what the source then finds unchanged is in its place already, and was read by this run, so nothing has to be
//! believed. A file that is written in place takes the copy's part itself. Where lengths differ bytes may have moved: then the old file is cut into chunks, and the new one is put together from them.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use async_channel::{Receiver, WeakSender};
use blake3::hazmat::ChainingValue;
use rustix::fs::Stat;

use super::{
    assembly::{AtHand, Kept},
    table::Table,
};
use crate::{
    apply::{Staged, read_exact_at},
    delta::{
        chunk::ChunkSizes,
        granules::{Granules, named},
        list::{ChunkList, Lister},
        name::{Name as _, ShortName},
        window::Window,
    },
    hash::{BLOCK_BYTES, granule_bytes, granule_value},
    session::{
        execute::Need,
        holes::DataMap,
        read::{has_holes, regular},
        writing::Writing,
    },
    slice::Slice,
    transport::Control,
    wire::{Basis, Message, Needs, Prefix, Update},
};

const BLOCK: u64 = BLOCK_BYTES as u64;

/// Files beyond this length are compared in granules only: the names of their chunks would be too many.
const MAX_CHUNKED_BYTES: u64 = 1 << 40;

/// Something to be read.
pub(super) enum Job {
    /// Small files of one directory, the first with this number.
    Small(u32, Vec<Arc<Need>>),
    /// A large file.
    Large(u32, Arc<Need>),
    /// A large file that another thread has begun.
    Help(Arc<Listing>),
}

/// Reads what is asked for and tells the source. Runs on several threads.
pub(super) struct Reader<'a> {
    pub writing: Writing<'a>,
    pub control: &'a Control,
    pub table: &'a Table,
    /// Weak, so that the queue ends with who fills it.
    pub jobs: WeakSender<Job>,
}

impl Reader<'_> {
    pub(super) fn run(&self, queue: &Receiver<Job>) {
        while let Ok(job) = queue.recv_blocking() {
            match job {
                Job::Small(first, needs) => self.tell(&Message::Need(self.small(first, &needs))),
                Job::Large(number, need) => self.large(number, &need),
                Job::Help(listing) => self.help(&listing),
            }
        }
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
        let mut bytes = vec![0; usize::try_from(stat.st_size).ok().filter(|&len| len <= BLOCK_BYTES)?];
        read_exact_at(file.as_fd(), &mut bytes, 0).ok()?;
        Some(Prefix { nth, len: bytes.len() as u32, name: ShortName::of(&blake3::hash(&bytes)) })
    }

    fn open_old(&self, need: &Need) -> io::Result<(OwnedFd, Stat)> {
        let old = need.old.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let file = self.writing.open_file(&old.path)?;
        let stat = regular(&file)?;
        Ok((file, stat))
    }

    fn large(&self, number: u32, need: &Arc<Need>) {
        if let Err(error) = self.begin(number, need) {
            tracing::debug!(path = %need.path(), %error, "nothing is made use of");
            self.tell(&Message::Need(request(number, std::slice::from_ref(need), Vec::new())));
        }
    }

    fn begin(&self, number: u32, need: &Arc<Need>) -> io::Result<()> {
        if let Some(staged) = self.writing.stage_over(need).or_else(|| self.writing.leftover(need)) {
            let content = content_of(&staged)?;
            return self.share(Listing::new(number, Arc::clone(need), staged, None, content));
        }
        let (file, stat) = self.open_old(need)?;
        let len = stat.st_size as u64;
        let in_place = len == need.size || len.max(need.size) <= BLOCK || len > MAX_CHUNKED_BYTES;
        if !in_place && !has_holes(&stat) {
            return self.chunks(number, need, file, len);
        }
        let staged = self.writing.tree()?.stage_file(&need.path())?;
        let from = if staged.clone_of(file.as_fd()) { None } else { Some(file) };
        staged.set_len(len)?;
        let content = Content { len, has_holes: has_holes(&stat) };
        self.share(Listing::new(number, Arc::clone(need), staged, from, content))
    }

    fn chunks(&self, number: u32, need: &Need, file: OwnedFd, len: u64) -> io::Result<()> {
        let sizes = ChunkSizes::for_len(len);
        let list = list_chunks(&file, len, sizes)?;
        self.table.set_at_hand(number, AtHand::Chunks(Arc::new(file), sizes));
        self.update(number, need, Basis::Chunks(list.short()));
        Ok(())
    }

    fn update(&self, number: u32, need: &Need, basis: Basis) {
        self.tell(&Message::Update(Update { need: number, dir: need.dir.source, index: need.index, basis }));
    }

    /// Has other threads help with a file of many blocks.
    fn share(&self, listing: Listing) -> io::Result<()> {
        let listing = Arc::new(listing);
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        for _ in 1..threads.min((listing.len / BLOCK) as usize) {
            // Where the queue is full, the others have enough to do.
            let _ = self.jobs.upgrade().map(|jobs| jobs.try_send(Job::Help(Arc::clone(&listing))));
        }
        self.help(&listing);
        Ok(())
    }

    /// Hashes blocks until all are taken. Who does the last one tells the source.
    fn help(&self, listing: &Listing) {
        let mut buffer = vec![0; listing.len.min(BLOCK) as usize];
        while let Some(offset) = listing.next_block() {
            let values = listing.block(offset, &mut buffer);
            if let Some(result) = listing.block_done(offset, values) {
                self.finish(listing, result);
            }
        }
    }

    fn finish(&self, listing: &Listing, result: io::Result<Vec<Option<ChainingValue>>>) {
        let granules = result.and_then(|values| listing.granules(&values).map(|names| (values, names)));
        match granules {
            Ok((values, names)) => {
                let values = values.into_iter().map(Option::unwrap_or_default).collect();
                let kept = Kept { len: listing.len, bytes: listing.granule, values };
                let at_hand = AtHand::Granules(Arc::clone(&listing.staged), Arc::new(kept));
                self.table.set_at_hand(listing.number, at_hand);
                self.update(listing.number, &listing.need, Basis::Granules(names));
            }
            Err(error) => {
                tracing::debug!(path = %listing.need.path(), %error, "nothing is made use of");
                self.writing.unstage(&listing.staged);
                self.tell(&Message::Need(request(
                    listing.number,
                    std::slice::from_ref(&listing.need),
                    Vec::new(),
                )));
            }
        }
    }
}

/// Asks for files of one directory, the first with this number.
pub(super) fn request(first: u32, needs: &[Arc<Need>], prefixes: Vec<Prefix>) -> Needs {
    let dir = needs.first().map_or(0, |need| need.dir.source);
    Needs { first, dir, indices: needs.iter().map(|need| need.index).collect(), prefixes }
}

fn list_chunks(file: &OwnedFd, len: u64, sizes: ChunkSizes) -> io::Result<ChunkList> {
    let (mut lister, mut window) = (Lister::new(sizes), Window::new(sizes, len));
    let mut read = 0;
    loop {
        while let Some(cut) = lister.next(window.bytes(), read == len) {
            window.consume(cut);
        }
        if read == len {
            return Ok(lister.finish().0);
        }
        let spare = window.spare();
        let most = usize::try_from(len - read).map_or(spare.len(), |rest| rest.min(spare.len()));
        read_exact_at(file.as_fd(), &mut spare[..most], read)?;
        window.filled(most);
        read += most as u64;
    }
}

/// What there is to be hashed of a file.
#[derive(Debug, Clone, Copy)]
struct Content {
    len: u64,
    has_holes: bool,
}

/// What a staged file was before anything was written to it.
fn content_of(staged: &Staged) -> io::Result<Content> {
    if staged.is_part() {
        // A device does not say where it has none, and then all of it is data.
        return Ok(Content { len: staged.basis_len()?, has_holes: true });
    }
    let stat = regular(staged.basis().fd)?;
    Ok(Content { len: stat.st_size as u64, has_holes: has_holes(&stat) })
}

/// A staged file whose granules are being hashed, by several threads.
pub(super) struct Listing {
    number: u32,
    need: Arc<Need>,
    staged: Arc<Staged>,
    /// Where its content has to be copied from, if it is not there yet.
    from: Option<OwnedFd>,
    len: u64,
    has_holes: bool,
    data: DataMap,
    granule: usize,
    next: AtomicU64,
    /// Held while the file is written to: see `Assembly::writing`.
    writing: Mutex<()>,
    state: Mutex<ListingState>,
}

struct ListingState {
    /// Of granules that are in a hole there is none.
    values: Vec<Option<ChainingValue>>,
    left: u64,
    error: Option<io::Error>,
}

impl Listing {
    fn new(number: u32, need: Arc<Need>, staged: Staged, from: Option<OwnedFd>, content: Content) -> Self {
        let Content { len, has_holes } = content;
        let granule = granule_bytes(len);
        let values = vec![None; len.div_ceil(granule as u64) as usize];
        Self {
            number,
            need,
            staged: Arc::new(staged),
            from,
            len,
            has_holes,
            data: DataMap::new(len),
            granule,
            next: AtomicU64::new(0),
            writing: Mutex::default(),
            state: Mutex::new(ListingState { values, left: len.max(1), error: None }),
        }
    }

    fn next_block(&self) -> Option<u64> {
        let block = self.next.fetch_add(BLOCK, Ordering::Relaxed);
        (block < self.len.max(1)).then_some(block)
    }

    /// Reads a block, copies it where it is not in place yet, and hashes its granules. A block that is a hole has no values.
    fn block(&self, offset: u64, buffer: &mut [u8]) -> io::Result<Vec<ChainingValue>> {
        let end = (offset + BLOCK).min(self.len);
        let from = self.from.as_ref().map_or(self.staged.basis(), |from| Slice::all_of(from.as_fd()));
        let data: Vec<_> = match self.has_holes {
            true => self.data.within(from, offset, end),
            false => std::iter::once(offset..end).collect(),
        };
        if data.is_empty() {
            return Ok(Vec::new());
        }
        let bytes = &mut buffer[..(end - offset) as usize];
        from.read_exact_at(bytes, offset)?;
        let granules = bytes.chunks(self.granule).zip((offset..).step_by(self.granule));
        let values = granules.map(|(granule, at)| granule_value(granule, at)).collect();
        if self.from.is_some() {
            // Alone, as the other parts of the file are written.
            let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
            for range in data {
                self.staged.write_at(
                    &bytes[(range.start - offset) as usize..(range.end - offset) as usize],
                    range.start,
                )?;
            }
        }
        Ok(values)
    }

    /// Takes what came of a block; after the last one, what came of all.
    fn block_done(
        &self,
        offset: u64,
        values: io::Result<Vec<ChainingValue>>,
    ) -> Option<io::Result<Vec<Option<ChainingValue>>>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match values {
            Ok(values) => {
                let first = (offset / self.granule as u64) as usize;
                for (slot, value) in state.values[first..].iter_mut().zip(values) {
                    *slot = Some(value);
                }
            }
            Err(error) => {
                state.error.get_or_insert(error);
            }
        }
        state.left -= (self.len.max(1) - offset).min(BLOCK);
        (state.left == 0).then(|| match state.error.take() {
            None => Ok(std::mem::take(&mut state.values)),
            Some(error) => Err(error),
        })
    }

    /// The names that the source compares with. That of a granule in a hole is one that no bytes have.
    fn granules(&self, values: &[Option<ChainingValue>]) -> io::Result<Granules> {
        let hole = ShortName::from_prefix(&[0; ShortName::LEN]);
        let name = |value: &Option<ChainingValue>| value.as_ref().map(named).or(hole);
        let names = values.iter().map(name).collect::<Option<Vec<_>>>();
        let granules = names.and_then(|names| Granules::new(self.len, self.granule as u64, names));
        granules.ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}
