//! The queue of a folder: one peer writes at a time, or several read.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use contract::BusyAnswer;
use parking_lot::{Condvar, Mutex};

/// The most peers that read a folder at once.
const MAX_READERS: usize = 16;

/// The peers of a folder, in the order in which they came.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    line: Mutex<Line>,
    moved: Condvar,
}

#[derive(Debug, Default)]
struct Line {
    /// The number of the next peer.
    next: u64,
    places: Vec<Place>,
}

#[derive(Debug)]
struct Place {
    number: u64,
    peer: String,
    reads: bool,
    /// When its turn began.
    since: Option<String>,
}

/// The place of one peer. It leaves the queue when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Arc<Turns>,
    number: u64,
}

/// The lengths of a folder's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct QueueLengths {
    /// The peers that have their turn.
    pub running: usize,
    pub waiting: usize,
}

impl Turns {
    /// Adds a peer; `None` if `most` wait already.
    pub(crate) fn join(turns: &Arc<Self>, peer: &str, reads: bool, most: usize) -> Option<Turn> {
        let mut line = turns.line.lock();
        let number = line.next;
        line.next += 1;
        line.places.push(Place { number, peer: peer.into(), reads, since: None });
        if line.lengths().waiting > most {
            line.places.pop();
            return None;
        }
        drop(line);
        Some(Turn { turns: Arc::clone(turns), number })
    }

    pub(crate) fn lengths(&self) -> QueueLengths {
        self.line.lock().lengths()
    }
}

impl Line {
    /// Returns how many of the first peers have their turn, and how many wait.
    fn lengths(&self) -> QueueLengths {
        let readers = self.places.iter().take(MAX_READERS).take_while(|place| place.reads).count();
        let running = readers.max(self.places.len().min(1));
        QueueLengths { running, waiting: self.places.len() - running }
    }
}

impl Turn {
    /// Returns what to tell the peer while it has to wait; `None` once it is its turn.
    pub(crate) fn busy(&self) -> Option<BusyAnswer> {
        let mut line = self.turns.line.lock();
        let running = line.lengths().running;
        let at = line.places.iter().position(|place| place.number == self.number)?;
        if at < running {
            line.places[at].since.get_or_insert_with(|| contract::timestamp(SystemTime::now()));
            return None;
        }
        let first = line.places.first()?;
        let since = first.since.clone().unwrap_or_else(|| contract::timestamp(SystemTime::now()));
        Some(BusyAnswer { peer: first.peer.clone(), since, number: (at - running) as u32 + 1 })
    }

    /// Waits until the queue has moved, at most for this time.
    pub(crate) fn wait(&self, most: Duration) {
        self.turns.moved.wait_for(&mut self.turns.line.lock(), most);
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.line.lock().places.retain(|place| place.number != self.number);
        self.turns.moved.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(turn: &Turn) -> Option<u32> {
        turn.busy().map(|answer| answer.number)
    }

    #[test]
    fn one_writes_at_a_time_and_the_others_follow_in_their_order() {
        let turns = Arc::<Turns>::default();
        let join = |peer| Turns::join(&turns, peer, false, 2).unwrap();
        let (first, second, third) = (join("first"), join("second"), join("third"));
        assert_eq!([&first, &second, &third].map(number), [None, Some(1), Some(2)]);
        assert_eq!(third.busy().unwrap().peer, "first");
        assert!(Turns::join(&turns, "fourth", false, 2).is_none(), "two wait");
        drop(second);
        assert_eq!([&first, &third].map(number), [None, Some(1)]);
        drop(first);
        assert_eq!(number(&third), None);
        assert_eq!(turns.lengths(), QueueLengths { running: 1, waiting: 0 });
    }

    #[test]
    fn peers_that_read_do_not_wait_for_one_another_and_none_overtakes_one_that_writes() {
        let turns = Arc::<Turns>::default();
        let join = |reads| Turns::join(&turns, "peer", reads, 9).unwrap();
        let (first, second, writer, late) = (join(true), join(true), join(false), join(true));
        assert_eq!([&first, &second, &writer, &late].map(number), [None, None, Some(1), Some(2)]);
        drop((first, second));
        assert_eq!([&writer, &late].map(number), [None, Some(1)]);
    }
}
