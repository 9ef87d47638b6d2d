//! The files in flight, by the number of their need.

use std::{
    collections::HashMap,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use crate::{
    apply::Staged,
    session::{
        plan::need::Need,
        sink::receive::assembly::{Assembly, FileBasis},
    },
    transport::TransportError,
};

/// How many files may be on their way. Each costs the sink about 100 bytes.
pub(crate) const MAX_UNDER_WAY: usize = 32 << 10;

/// How many of them may be updates of large files. Each holds open files, and the names of what the sink has.
const MAX_UPDATES: usize = 64;

#[derive(Default)]
pub(crate) struct InFlight {
    state: Mutex<InFlightState>,
    changed: Condvar,
}

#[derive(Default)]
struct InFlightState {
    slots: HashMap<u32, FileInFlight>,
    /// How many of the slots are updates.
    updates: usize,
    /// The first number that nothing was asked for with yet.
    next: u32,
    /// How few files somebody waits for.
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
    /// What was staged for it and never begun with.
    pub(crate) fn untouched(&self) -> Option<&Arc<Staged>> {
        match &self.at_hand {
            Some(FileBasis::Granules(kept)) => Some(kept.staged()),
            _ => None,
        }
    }
}

/// A large file and the need that it answers.
pub(crate) type Arriving = (Arc<Need>, Arc<Mutex<Assembly>>);

impl InFlight {
    fn lock(&self) -> MutexGuard<'_, InFlightState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes needs, and returns the number of the first; the others follow on.
    pub(crate) fn add(&self, needs: &[Arc<Need>], is_update: bool) -> u32 {
        let mut state = self.lock();
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

    /// Whether anything was asked for.
    pub(crate) fn was_used(&self) -> bool {
        self.lock().next > 0
    }

    /// Waits until at most `most` are in flight, and not too many updates among them; false when the connection is
    /// gone.
    pub(crate) fn wait(&self, most: usize) -> bool {
        let mut state = self.lock();
        state.awaited = most;
        while !state.has_room() && !state.broken {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.has_room()
    }

    /// Looks at the slot of a need. `None` when the file is done with: each stream keeps its order, but one may be
    /// behind another, and bring a block of a file that has failed, or of an attempt before the one that succeeded.
    fn slot<T>(
        &self,
        number: u32,
        look: impl FnOnce(&mut FileInFlight) -> T,
    ) -> Result<Option<T>, TransportError> {
        let mut state = self.lock();
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

    /// Keeps what there is to make a file from until its first frame comes.
    pub(crate) fn set_at_hand(&self, number: u32, at_hand: FileBasis) {
        if let Some(slot) = self.lock().slots.get_mut(&number) {
            slot.at_hand = Some(at_hand);
        }
    }

    /// The large file that answers this need, begun if this is its first frame.
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

    /// What has arrived of a large file, if anything has.
    pub(crate) fn arrived(&self, number: u32) -> Option<Arc<Mutex<Assembly>>> {
        self.lock().slots.get(&number)?.assembly.clone()
    }

    /// Begins to have done with a file. Its need, if nobody did before; until [`Self::done`] it still counts as in
    /// flight.
    pub(crate) fn end(&self, number: u32) -> Option<Arc<Need>> {
        let mut state = self.lock();
        let slot = state.slots.get_mut(&number).filter(|slot| !slot.is_ending)?;
        slot.is_ending = true;
        Some(Arc::clone(&slot.need))
    }

    /// Has done with a file. What was held for it, if anything large was.
    pub(crate) fn done(&self, number: u32) -> Option<FileInFlight> {
        let mut state = self.lock();
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

    /// Whether nothing arrives any more.
    pub(crate) fn is_broken(&self) -> bool {
        self.lock().broken
    }

    pub(crate) fn break_off(&self) {
        self.lock().broken = true;
        self.changed.notify_all();
    }
}

impl InFlightState {
    fn has_room(&self) -> bool {
        self.slots.len() <= self.awaited && self.updates < MAX_UPDATES
    }
}
