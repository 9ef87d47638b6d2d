//! Content over the network: needs go out on the control stream, workers take what comes on the data streams, check it and write it.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use super::{
    SessionError,
    execute::{Context, Fetch, Need},
    read::LastDir,
};
use crate::{
    apply::Staged,
    entry::Meta,
    hash::{BlockHash, BlockHashes, ContentHash},
    transport::{Control, Frame, Peer, TransportError},
    wire::{
        Message, Needs, WireError, compress,
        data::{BLOCK, Block, Content, END, End, Failed, PACK, Pack, Packed, Whole},
    },
};

/// How many files may be on their way. Each costs the sink about 100 bytes.
const MAX_UNDER_WAY: usize = 32 << 10;

/// Files of one directory are asked for in messages of at most this many, so that the first are sent while the rest is planned.
const NEEDS_PER_MESSAGE: usize = 4096;

/// Runs `work` with workers that write what it fetches. Returns whether anything was asked for; if so, the source still has to say
/// that it is done.
pub(super) fn run(
    context: Context<'_>,
    peer: &Peer,
    work: impl FnOnce(&mut dyn Fetch) -> Result<(), SessionError>,
) -> Result<bool, SessionError> {
    let table = Table::default();
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| Worker { context, table: &table, dir: LastDir::default() }.run(peer));
        }
        let mut fetch = RemoteFetch { control: &peer.control, table: &table, peer, next: 0 };
        let result = work(&mut fetch);
        peer.receiver.close();
        result.map(|()| fetch.next > 0)
    })
}

struct RemoteFetch<'a> {
    control: &'a Control,
    table: &'a Table,
    peer: &'a Peer,
    next: u32,
}

impl Fetch for RemoteFetch<'_> {
    fn fetch(&mut self, mut needs: Vec<Need>) -> Result<(), SessionError> {
        while !needs.is_empty() {
            let rest = needs.split_off(needs.len().min(NEEDS_PER_MESSAGE));
            self.ask(needs)?;
            needs = rest;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), SessionError> {
        if self.next > 0 {
            self.control.send(&Message::NeedsEnd)?;
        }
        self.wait(0)
    }
}

impl RemoteFetch<'_> {
    fn ask(&mut self, needs: Vec<Need>) -> Result<(), SessionError> {
        self.wait(MAX_UNDER_WAY)?;
        let Some(dir) = needs.first().map(|need| need.dir.source) else { return Ok(()) };
        let indices = needs.iter().map(|need| need.index).collect();
        let first = self.next;
        self.next += needs.len() as u32;
        self.table.add(first, needs);
        Ok(self.control.send(&Message::Need(Needs { first, dir, indices }))?)
    }

    /// Waits until at most `most` files are under way.
    fn wait(&self, most: usize) -> Result<(), SessionError> {
        match self.table.wait(most) {
            true => Ok(()),
            false => Err(self.peer.fault.get().into()),
        }
    }
}

/// The files that are under way, by the number of their need.
#[derive(Default)]
struct Table {
    state: Mutex<TableState>,
    changed: Condvar,
}

#[derive(Default)]
struct TableState {
    slots: HashMap<u32, Slot>,
    /// The first number that nothing was asked for with yet.
    next: u32,
    /// How few files somebody waits for.
    awaited: usize,
    broken: bool,
}

#[derive(Clone)]
struct Slot {
    need: Arc<Need>,
    assembly: Option<Arc<Mutex<Assembly>>>,
}

impl Table {
    fn lock(&self) -> MutexGuard<'_, TableState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, first: u32, needs: Vec<Need>) {
        let mut state = self.lock();
        state.next = first + needs.len() as u32;
        let slots = needs.into_iter().map(|need| Slot { need: Arc::new(need), assembly: None });
        state.slots.extend((first..).zip(slots));
    }

    /// Waits until at most `most` are under way; false when the connection is gone.
    fn wait(&self, most: usize) -> bool {
        let mut state = self.lock();
        state.awaited = most;
        while state.slots.len() > most && !state.broken {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.slots.len() <= most
    }

    /// Looks at the slot of a need. `None` when the file is done with: each stream keeps its order, but one may be behind another, and
    /// bring a block of a file that has failed, or of an attempt before the one that succeeded.
    fn slot<T>(&self, number: u32, look: impl FnOnce(&mut Slot) -> T) -> Result<Option<T>, TransportError> {
        let mut state = self.lock();
        let next = state.next;
        match state.slots.get_mut(&number) {
            Some(slot) => Ok(Some(look(slot))),
            None if number < next => Ok(None),
            None => Err(TransportError::Nonsense("a file came that was not asked for")),
        }
    }

    fn need(&self, number: u32) -> Result<Option<Arc<Need>>, TransportError> {
        self.slot(number, |slot| Arc::clone(&slot.need))
    }

    /// The large file that answers this need, begun if this is its first block.
    fn assembly(
        &self,
        number: u32,
        begin: impl FnOnce() -> Assembly,
    ) -> Result<Option<Arriving>, TransportError> {
        self.slot(number, |slot| {
            let assembly = slot.assembly.get_or_insert_with(|| Arc::new(Mutex::new(begin())));
            (Arc::clone(&slot.need), Arc::clone(assembly))
        })
    }

    fn done(&self, number: u32) {
        let mut state = self.lock();
        state.slots.remove(&number);
        if state.slots.len() <= state.awaited {
            self.changed.notify_all();
        }
    }

    fn break_off(&self) {
        self.lock().broken = true;
        self.changed.notify_all();
    }
}

/// A large file and the need that it answers.
type Arriving = (Arc<Need>, Arc<Mutex<Assembly>>);

/// A large file that is arriving, its blocks in any order.
struct Assembly {
    attempt: u32,
    file_len: u64,
    staged: io::Result<Arc<Staged>>,
    hashes: BlockHashes,
    expected: Option<Whole>,
}

impl Assembly {
    fn begin(context: Context<'_>, attempt: u32, file_len: u64) -> Self {
        let staged = context.destination.stage_file().map(Arc::new);
        Self { attempt, file_len, staged, hashes: BlockHashes::new(file_len), expected: None }
    }
}

struct Worker<'a> {
    context: Context<'a>,
    table: &'a Table,
    dir: LastDir,
}

impl Worker<'_> {
    fn run(mut self, peer: &Peer) {
        while let Some(frame) = peer.receiver.recv() {
            if let Err(error) = self.take(frame) {
                peer.fault.set(error);
                peer.receiver.close();
            }
        }
        self.table.break_off();
    }

    /// Takes one frame. Errors are the peer's; what goes wrong with a file is that file's failure.
    fn take(&mut self, frame: Frame) -> Result<(), TransportError> {
        let (kind, body) = compress::open(frame.kind, frame.body)?;
        match kind {
            PACK => self.take_pack(&body),
            BLOCK => self.take_block(&Block::decode(&body)?),
            END => self.take_end(&End::decode(&body)?),
            unknown => Err(WireError::UnknownKind(unknown).into()),
        }
    }

    fn take_pack(&mut self, body: &[u8]) -> Result<(), TransportError> {
        for packed in Pack::new(body) {
            let Packed { need: number, content } = packed?;
            let Some(need) = self.table.need(number)? else { continue };
            match content {
                Ok(content) => self.write_small(&need, &content),
                Err(failed) => self.fail(&need, failed.operation, &failed.error),
            }
            self.table.done(number);
        }
        Ok(())
    }

    fn write_small(&mut self, need: &Need, content: &Content<'_>) {
        if ContentHash::of(content.bytes) != content.hash {
            return self.fail(need, "verify", &CORRUPT);
        }
        let meta = content.fresh.map_or(need.meta, |fresh| fresh.meta);
        let len = content.bytes.len() as u64;
        let context = self.context;
        let written =
            self.dir.open(context.destination.root(), need.dir.source, &need.dir.path).and_then(|dir| {
                let staged = context.destination.create_file(dir, need.replaces)?;
                staged.write_at(content.bytes, 0)?;
                context.publish(need, dir, staged, &meta, len)
            });
        match written {
            Ok(()) => context.monitor.add_bytes(len),
            Err(error) => self.fail(need, "write", &error),
        }
    }

    fn take_block(&mut self, block: &Block<'_>) -> Result<(), TransportError> {
        let Some((need, assembly)) = self.assembly(block.need, block.attempt, block.file_len)? else {
            return Ok(());
        };
        let hash = BlockHash::of(block.bytes, block.offset, block.file_len);
        self.write_block(block, &assembly);
        if let Some(mut assembly) = lock_attempt(&assembly, block.attempt) {
            assembly.hashes.set(block.offset, hash);
        }
        self.context.monitor.add_bytes(block.bytes.len() as u64);
        self.complete(block.need, &need, &assembly);
        Ok(())
    }

    /// Writes a block without holding the file's lock, so that several workers write one file.
    fn write_block(&self, block: &Block<'_>, assembly: &Mutex<Assembly>) {
        let staged = match lock_attempt(assembly, block.attempt).as_deref() {
            Some(Assembly { staged: Ok(staged), .. }) => Arc::clone(staged),
            _ => return,
        };
        if let Err(error) = staged.write_at(block.bytes, block.offset)
            && let Some(mut assembly) = lock_attempt(assembly, block.attempt)
        {
            assembly.staged = Err(error);
        }
    }

    /// The file that a block or an end of this attempt belongs to; `None` when a newer attempt has begun, or the file is done with.
    fn assembly(&self, number: u32, attempt: u32, file_len: u64) -> Result<Option<Arriving>, TransportError> {
        let begin = || Assembly::begin(self.context, attempt, file_len);
        let Some((need, assembly)) = self.table.assembly(number, begin)? else { return Ok(None) };
        {
            let mut current = lock(&assembly);
            if attempt < current.attempt {
                return Ok(None);
            }
            if attempt > current.attempt {
                *current = begin();
            }
            if file_len != current.file_len {
                return Err(TransportError::Nonsense("a file has two lengths in one attempt"));
            }
        }
        Ok(Some((need, assembly)))
    }

    fn take_end(&mut self, end: &End<'_>) -> Result<(), TransportError> {
        let Some(need) = self.table.need(end.need)? else { return Ok(()) };
        match end.outcome {
            Err(Failed { operation, error }) => {
                self.fail(&need, operation, &error);
                self.table.done(end.need);
            }
            Ok(whole) => {
                if let Some((need, assembly)) = self.assembly(end.need, end.attempt, whole.file_len)? {
                    if let Some(mut assembly) = lock_attempt(&assembly, end.attempt) {
                        assembly.expected = Some(whole);
                    }
                    self.complete(end.need, &need, &assembly);
                }
            }
        }
        Ok(())
    }

    /// Publishes a large file if all of it is here.
    fn complete(&mut self, number: u32, need: &Need, assembly: &Mutex<Assembly>) {
        let mut assembly = lock(assembly);
        let (Some(whole), Some(hash)) = (assembly.expected, assembly.hashes.finish()) else { return };
        assembly.expected = None;
        let staged = std::mem::replace(&mut assembly.staged, Err(io::ErrorKind::NotFound.into()));
        let meta = whole.fresh.map_or(need.meta, |fresh| fresh.meta);
        if hash != whole.hash {
            self.fail(need, "verify", &CORRUPT);
        } else if let Err(error) = staged.and_then(|staged| self.publish(need, staged, &meta, whole.file_len))
        {
            self.fail(need, "write", &error);
        }
        self.table.done(number);
    }

    fn publish(&mut self, need: &Need, staged: Arc<Staged>, meta: &Meta, len: u64) -> io::Result<()> {
        // Every block is hashed after it was written, so nobody writes to a file that is complete.
        let staged = Arc::into_inner(staged).ok_or(io::ErrorKind::ResourceBusy)?;
        let context = self.context;
        let dir = self.dir.open(context.destination.root(), need.dir.source, &need.dir.path)?;
        context.publish(need, dir, staged, meta, len)
    }

    fn fail(&self, need: &Need, operation: &str, error: &dyn std::fmt::Display) {
        self.context.failures.add(&need.path(), operation, error);
    }
}

const CORRUPT: &str = "the content does not have the hash that the source sent; run again";

fn lock(assembly: &Mutex<Assembly>) -> MutexGuard<'_, Assembly> {
    assembly.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The file, unless another worker has begun a newer attempt since this one looked.
fn lock_attempt(assembly: &Mutex<Assembly>, attempt: u32) -> Option<MutexGuard<'_, Assembly>> {
    Some(lock(assembly)).filter(|assembly| assembly.attempt == attempt)
}
