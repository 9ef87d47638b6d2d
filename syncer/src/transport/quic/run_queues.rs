//! The runs of a link, one after the other. Each has queues of its own, so that data of one run never reaches another.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use async_channel::{Receiver, Sender, WeakSender, bounded};
use contract::Side;
use tokio::sync::watch;

use crate::transport::{
    Control, DataReceiver, DataSender, Fault, Frame, Peer, QUEUE_FRAMES, Queued, Threads, TransportError,
    quic::connection_config::data_streams,
};

/// Frames that wait for each stream, at most.
const FRAMES_A_STREAM: usize = 2;

const TOO_EARLY: TransportError = TransportError::Nonsense("a frame came of a run that has not begun");

/// The queues of one run, as the transport sees them.
#[derive(Clone)]
pub(super) struct Lane {
    /// The number of the run.
    pub(super) run: u32,
    /// Messages for the session.
    pub(super) messages: Sender<Queued>,
    /// Data for the session.
    pub(super) frames: Sender<Frame>,
    /// Data for the peer.
    pub(super) data: Receiver<Vec<u8>>,
    /// The reason why the run cannot go on.
    pub(super) fault: Fault,
    last: Arc<AtomicBool>,
}

impl Lane {
    /// Begins a run. Also returns the session's ends of its queues; messages to the peer go to `outgoing`.
    fn begin(run: u32, side: Side, outgoing: &Sender<Vec<u8>>, link: &Fault) -> (Self, Peer) {
        let (messages, incoming) = bounded(QUEUE_FRAMES);
        let (frames, received) = bounded(QUEUE_FRAMES);
        let (sent, data) = bounded(FRAMES_A_STREAM * data_streams());
        let (fault, last) = (Fault::below(link), Arc::new(AtomicBool::new(true)));
        let sender = DataSender { run, outgoing: sent, fault: fault.clone() };
        let senders = if side == Side::Source { vec![sender; data_streams()] } else { Vec::new() };
        let control = Control { run, outgoing: outgoing.clone(), incoming, fault: fault.clone() };
        let receiver = DataReceiver { incoming: received };
        let (fault_of_peer, last_of_peer, threads) = (fault.clone(), Arc::clone(&last), Threads::default());
        let peer = Peer {
            control,
            senders,
            receiver,
            fault: fault_of_peer,
            link: None,
            pace: None,
            last: last_of_peer,
            threads,
        };
        (Self { run, messages, frames, data, fault, last }, peer)
    }

    /// Returns whether the session ends with this run.
    pub(super) fn is_last(&self) -> bool {
        self.last.load(Relaxed)
    }

    /// Notes whether the session ends with this run.
    pub(super) fn set_last(&self, last: bool) {
        self.last.store(last, Relaxed);
    }

    /// Ends the run for one `reason`, and wakes all threads of the session that wait at its queues.
    pub(super) fn give_up(&self, reason: TransportError) {
        self.fault.set(reason);
        self.close();
    }

    fn close(&self) {
        self.messages.close();
        self.close_data();
    }

    fn close_data(&self) {
        self.frames.close();
        self.data.close();
    }
}

/// The present run of a link.
#[derive(Default)]
struct Present {
    /// `None` before the first run.
    lane: Option<Lane>,
    /// Whether the connection is lost, so that no run continues.
    is_over: bool,
}

/// The runs of a link.
#[derive(Clone)]
pub(super) struct Lanes {
    present: Arc<watch::Sender<Present>>,
    side: Side,
    outgoing: Sender<Vec<u8>>,
    link: Fault,
}

impl Lanes {
    /// Makes the runs of a link that ends with the `link`'s fault and sends messages from `outgoing`.
    pub(super) fn new(side: Side, outgoing: Sender<Vec<u8>>, link: Fault) -> Self {
        Self { present: Arc::default(), side, outgoing, link }
    }

    /// Returns the queue of messages to the peer, which may be closed.
    pub(super) fn messages_to_peer(&self) -> WeakSender<Vec<u8>> {
        self.outgoing.downgrade()
    }

    /// Returns the fault of the link.
    pub(super) fn fault(&self) -> Fault {
        self.link.clone()
    }

    /// Begins the next run. Queues of the one before are closed. Also returns the session's ends of the new ones.
    pub(super) fn next(&self) -> (Lane, Peer) {
        let before = self.present();
        before.iter().for_each(Lane::close);
        let run = before.map_or(0, |before| before.run + 1);
        let (lane, peer) = Lane::begin(run, self.side, &self.outgoing, &self.link);
        self.present.send_modify(|present| {
            if present.is_over {
                lane.close();
            }
            present.lane = Some(lane.clone());
        });
        (lane, peer)
    }

    fn present(&self) -> Option<Lane> {
        self.present.borrow().lane.clone()
    }

    /// Waits for a run after the one of this number. `None` if the connection is lost first.
    pub(super) async fn after(&self, run: Option<u32>) -> Option<Lane> {
        let mut changes = self.present.subscribe();
        let begun = |now: &Present| now.lane.as_ref().map(|lane| lane.run);
        let next = changes.wait_for(|now| now.is_over || begun(now) > run).await.ok()?;
        next.lane.clone().filter(|_| !next.is_over)
    }

    /// Returns the run that a message belongs to, and waits for it if it is the next one; `None` if that run is over.
    ///
    /// # Errors
    /// If the message belongs to a later run.
    pub(super) async fn of_message(&self, run: u32) -> Result<Option<Lane>, TransportError> {
        let begun = self.present().map(|lane| lane.run);
        if begun.map_or(0, |begun| begun + 1) == run {
            Ok(self.after(begun).await.filter(|lane| lane.run == run))
        } else {
            self.of_data(run)
        }
    }

    /// Returns the run that data belongs to; `None` if that run is over.
    ///
    /// # Errors
    /// If that run has not begun: data only follows requests.
    pub(super) fn of_data(&self, run: u32) -> Result<Option<Lane>, TransportError> {
        match self.present() {
            Some(lane) if run == lane.run => Ok(Some(lane)),
            Some(lane) if run < lane.run => Ok(None),
            _ => Err(TOO_EARLY),
        }
    }

    /// Ends the present run and all later ones.
    fn end(&self) {
        self.present.send_modify(|present| {
            present.is_over = true;
            present.lane.iter().for_each(Lane::close);
        });
    }
}

/// Ends the runs of a link when it is dropped.
pub(super) struct EndsRuns(pub(super) Lanes);

impl Drop for EndsRuns {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Wakes threads that wait for data when it is dropped. Messages may still give the reason why the peer stops.
pub(super) struct EndsData(pub(super) Lanes);

impl Drop for EndsData {
    fn drop(&mut self) {
        self.0.present().iter().for_each(Lane::close_data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        measure::monitor::Monitor,
        transport::quic::test_link::Linked,
        wire::{Message, data::Block},
    };

    fn block(need: u32) -> Vec<u8> {
        Block::seal(vec![0; Block::PREFIX_BYTES + 9], need, 0, 9, 0)
    }

    fn need_of(frame: &Frame) -> u32 {
        Block::decode(&frame.body).unwrap().need
    }

    #[test]
    fn what_a_run_that_was_given_up_still_sends_does_not_reach_the_next() {
        let Linked { source: (mut source, old), sink: (mut sink, at_sink) } = Linked::new();
        let monitor = Monitor::default();
        drop(at_sink);
        let at_sink = sink.next(&monitor);
        old.senders[0].send(block(7)).unwrap();
        old.control.send(&Message::NeedsEnd).unwrap();
        let new = source.next(&monitor);
        new.control.send(&Message::Want(vec![1])).unwrap();
        assert_eq!(at_sink.control.recv().unwrap(), Message::Want(vec![1]));
        [1, 2].into_iter().for_each(|need| new.senders[0].send(block(need)).unwrap());
        let mut needs = [(); 2].map(|()| need_of(&at_sink.receiver.recv().unwrap()));
        needs.sort_unstable();
        assert_eq!(needs, [1, 2]);
        assert!(old.control.recv().is_err() && old.senders[0].send(block(8)).is_err());
    }

    #[test]
    fn data_of_a_run_that_has_not_begun_ends_the_session() {
        let Linked { source: (mut source, _), sink: (_sink, at_sink) } = Linked::new();
        let new = source.next(&Monitor::default());
        new.senders[0].send(block(1)).unwrap();
        // The first message opens the control stream.
        let _ = new.control.send(&Message::NeedsEnd);
        assert!(at_sink.receiver.recv().is_none());
        assert!(matches!(at_sink.fault.get(), TransportError::Nonsense(_)), "{}", at_sink.fault.get());
    }

    #[test]
    fn a_message_waits_for_the_next_run_and_for_no_later_one() {
        let Linked { source: (mut source, _old), sink: (mut sink, at_sink) } = Linked::new();
        let monitor = Monitor::default();
        let second = source.next(&monitor);
        second.control.send(&Message::Want(vec![2])).unwrap();
        drop(at_sink);
        let at_sink = sink.next(&monitor);
        assert_eq!(at_sink.control.recv().unwrap(), Message::Want(vec![2]));
        source.next(&monitor);
        let fourth = source.next(&monitor);
        fourth.control.send(&Message::Want(vec![4])).unwrap();
        let error = at_sink.control.recv().unwrap_err();
        assert!(matches!(error, TransportError::Nonsense(_)), "{error}");
    }
}
