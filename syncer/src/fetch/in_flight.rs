//! The files in flight, by the number of their request.

use std::{collections::HashMap, sync::Arc};

use parking_lot::{Condvar, Mutex};

use crate::{
    destination::Staged,
    fetch::assemble_file::{Assembly, FileBasis},
    plan::needed_files::Need,
    transport::TransportError,
};

/// The largest number of files in flight. Each takes about 100 bytes at the sink.
pub(crate) const MAX_UNDER_WAY: usize = 32 << 10;

/// The largest number of updates of large files in flight. Each holds open files, and the manifest of its basis.
const MAX_UPDATES: usize = 64;

#[derive(Default)]
pub(crate) struct InFlight {
    state: Mutex<InFlightState>,
    changed: Condvar,
}

#[derive(Default)]
struct InFlightState {
    slots: HashMap<u32, FileInFlight>,
    /// The number of slots that are updates.
    updates: usize,
    /// The first number that no request has used yet.
    next: u32,
    /// The number of files in flight, at most, that a thread waits for.
    awaited: usize,
    broken: bool,
}

/// A file in flight.
pub(crate) struct FileInFlight {
    need: Arc<Need>,
    is_update: bool,
    is_ending: bool,
    at_hand: Option<FileBasis>,
    assembly: Option<Arc<Mutex<Assembly>>>,
}

impl FileInFlight {
    /// Returns the staged file of a basis that was never used.
    pub(crate) fn untouched(&self) -> Option<&Arc<Staged>> {
        match &self.at_hand {
            Some(FileBasis::Granules(kept)) => Some(kept.staged()),
            _ => None,
        }
    }
}

/// A large file and its request.
pub(crate) type Arriving = (Arc<Need>, Arc<Mutex<Assembly>>);

impl InFlight {
    /// Registers requests, and returns the number of the first; the others follow consecutively.
    pub(crate) fn add(&self, needs: &[Arc<Need>], is_update: bool) -> u32 {
        let mut state = self.state.lock();
        let first = state.next;
        state.next += needs.len() as u32;
        state.updates += if is_update { needs.len() } else { 0 };
        for (number, need) in (first..).zip(needs) {
            let slot = FileInFlight {
                need: Arc::clone(need),
                is_update,
                is_ending: false,
                at_hand: None,
                assembly: None,
            };
            state.slots.insert(number, slot);
        }
        first
    }

    /// Returns whether any file was requested.
    pub(crate) fn was_used(&self) -> bool {
        self.state.lock().next > 0
    }

    /// Waits until at most `most` files are in flight, and not too many updates among them. Returns false if the
    /// connection is lost.
    pub(crate) fn wait(&self, most: usize) -> bool {
        let mut state = self.state.lock();
        state.awaited = most;
        while !state.has_room() && !state.broken {
            self.changed.wait(&mut state);
        }
        state.has_room()
    }

    /// Accesses the slot of a request. `None` if the file is done: each stream keeps its order, but one stream may lag
    /// behind, and bring a block of a file that has failed, or of an attempt before the one that succeeded.
    fn slot<T>(
        &self,
        number: u32,
        look: impl FnOnce(&mut FileInFlight) -> T,
    ) -> Result<Option<T>, TransportError> {
        let mut state = self.state.lock();
        let next = state.next;
        match state.slots.get_mut(&number) {
            Some(slot) => Ok(Some(look(slot))),
            None if number < next => Ok(None),
            None => Err(TransportError::Nonsense("a file came that was not asked for")),
        }
    }

    pub(crate) fn need(&self, number: u32) -> Result<Option<Arc<Need>>, TransportError> {
        self.slot(number, |slot| Arc::clone(&slot.need))
    }

    /// Stores the basis of a file until its first frame arrives.
    pub(crate) fn set_at_hand(&self, number: u32, at_hand: FileBasis) {
        if let Some(slot) = self.state.lock().slots.get_mut(&number) {
            slot.at_hand = Some(at_hand);
        }
    }

    /// Returns the large file of this request, and begins it if this is its first frame.
    pub(crate) fn assembly(
        &self,
        number: u32,
        begin: impl FnOnce(&Need, Option<FileBasis>) -> Assembly,
    ) -> Result<Option<Arriving>, TransportError> {
        self.slot(number, |slot| {
            let FileInFlight { need, at_hand, assembly, .. } = slot;
            let assembly = assembly.get_or_insert_with(|| Arc::new(Mutex::new(begin(need, at_hand.take()))));
            (Arc::clone(need), Arc::clone(assembly))
        })
    }

    /// Returns the large file of this request, if any of it has arrived.
    pub(crate) fn arrived(&self, number: u32) -> Option<Arc<Mutex<Assembly>>> {
        self.state.lock().slots.get(&number)?.assembly.clone()
    }

    /// Marks a file as ending. Returns its need, unless another thread ended it before; the file counts as in flight
    /// until [`Self::done`].
    pub(crate) fn end(&self, number: u32) -> Option<Arc<Need>> {
        let mut state = self.state.lock();
        let slot = state.slots.get_mut(&number).filter(|slot| !slot.is_ending)?;
        slot.is_ending = true;
        Some(Arc::clone(&slot.need))
    }

    /// Removes a file that is done. Returns its slot if it was an update.
    pub(crate) fn done(&self, number: u32) -> Option<FileInFlight> {
        let mut state = self.state.lock();
        let slot = state.slots.remove(&number).filter(|slot| slot.is_update);
        state.updates -= usize::from(slot.is_some());
        if state.has_room() {
            self.changed.notify_all();
        }
        if let Some(FileBasis::Granules(kept)) = slot.as_ref().and_then(|slot| slot.at_hand.as_ref()) {
            kept.give_up();
        }
        slot
    }

    /// Returns whether the connection is lost.
    pub(crate) fn is_broken(&self) -> bool {
        self.state.lock().broken
    }

    pub(crate) fn break_off(&self) {
        self.state.lock().broken = true;
        self.changed.notify_all();
    }
}

impl InFlightState {
    fn has_room(&self) -> bool {
        self.slots.len() <= self.awaited && self.updates < MAX_UPDATES
    }
}
