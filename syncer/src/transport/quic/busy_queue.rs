//! Takes the peers that dial, one after the other. During a session, the others are told that this end is busy.

use std::{collections::VecDeque, future, sync::Arc, time::Instant};

use contract::BusyAnswer;
use quinn::{Connection, SendStream, WriteError};
use tokio::{
    runtime::Handle,
    sync::{oneshot, watch},
    task::{JoinHandle, JoinSet},
};

use crate::{
    transport::{
        TransportError,
        quic::{
            closing::close_and_tell,
            handshakes::{EndedHandshake, Handshakes, Shaken, TurnedAway, shake_over_stream},
            listener::Listener,
            proven_peer::Proven,
        },
        tls::LinkUse,
    },
    wire::code,
};

/// The most peers that wait; one more is turned away, and dials again.
const MAX_WAITING: usize = 32;

/// The peers of a listening end: those that wait for their turn, and those that have not shown their key yet.
pub(super) struct PeerQueue {
    door: Arc<Listener>,
    handshakes: Handshakes,
    turned_away: TurnedAway,
    /// The peer that has waited longest is the first.
    waiting: VecDeque<Waiting>,
    /// Each tells one peer of its turn, and ends when that peer has left.
    attendants: JoinSet<()>,
}

struct Waiting {
    met: Proven,
    /// What the peer is told; `None` once it is its turn.
    answer: watch::Sender<Option<BusyAnswer>>,
}

/// The session that the others wait for.
pub(super) struct PresentSession {
    pub(super) peer: String,
    pub(super) since: String,
}

impl PresentSession {
    fn answer(&self, at: usize) -> BusyAnswer {
        let Self { peer, since } = self;
        BusyAnswer { peer: peer.clone(), since: since.clone(), number: at as u32 + 1 }
    }
}

impl PeerQueue {
    pub(super) fn new(door: Arc<Listener>) -> Self {
        let (handshakes, turned_away, waiting) = Default::default();
        Self { door, handshakes, turned_away, waiting, attendants: JoinSet::new() }
    }

    #[cfg(test)]
    pub(super) fn door(&self) -> Arc<Listener> {
        Arc::clone(&self.door)
    }

    /// Returns the peer that has waited longest, or the next to show the right key. The end of the command that started
    /// this end also ends the wait, except for a handshake that is in progress: the peer may have given up the command
    /// for it.
    pub(super) async fn next_peer(&mut self) -> Result<Proven, TransportError> {
        let door = Arc::clone(&self.door);
        let mut over_command = Box::pin(shake_over_command(&door));
        let mut cut = None;
        loop {
            if let Some(met) = self.first_waiting() {
                return Ok(met);
            }
            if let Some(error) = cut.take_if(|_| self.handshakes.are_over()) {
                return Err(error);
            }
            tokio::select! {
                arrival = door.next() => self.handshakes.begin(arrival.ok_or_else(closed)?, &door),
                Some(ended) = self.handshakes.next() => self.shook(ended, None),
                shaken = &mut over_command, if cut.is_none() => match shaken {
                    Ok(met) => return Ok(met),
                    Err(error) => {
                        let over = || "the command that started this end is over".into();
                        cut = Some(TransportError::Lost(error.unwrap_or_else(over)));
                    }
                },
            }
        }
    }

    /// Answers the peers that dial during a `session`.
    pub(super) fn attend(self, session: PresentSession, runtime: &Handle) -> AttendedQueue {
        let (stop, stopped) = oneshot::channel();
        AttendedQueue { _stop: stop, task: runtime.spawn(self.until_over(session, stopped)) }
    }

    async fn until_over(mut self, session: PresentSession, mut over: oneshot::Receiver<()>) -> Self {
        let door = Arc::clone(&self.door);
        door.open_for(LinkUse::Queue);
        loop {
            for (at, peer) in self.waiting.iter().enumerate() {
                peer.report(session.answer(at));
            }
            tokio::select! {
                _ = &mut over => break,
                Some(arrival) = door.next() => self.handshakes.begin(arrival, &door),
                Some(ended) = self.handshakes.next() => self.shook(ended, Some(&session)),
                Some(_) = self.attendants.join_next() => self.waiting.retain(Waiting::is_there),
            }
        }
        door.open_for(LinkUse::Runs);
        self
    }

    /// Adds a peer that has shown its key to those that wait, during a `session` or for none.
    fn shook(&mut self, EndedHandshake { from, shaken }: EndedHandshake, session: Option<&PresentSession>) {
        match shaken {
            Ok(met) if self.waiting.len() >= MAX_WAITING => {
                met.connection.close(code::FAILED.into(), b"too many peers wait");
            }
            Ok(met) => {
                let answer = watch::Sender::new(session.map(|session| session.answer(self.waiting.len())));
                if met.link_use == LinkUse::Queue {
                    self.attendants.spawn(attend_to(met.connection.clone(), answer.subscribe()));
                }
                self.waiting.push_back(Waiting { met, answer });
            }
            Err(Some(error)) => self.turned_away.add(from, &error),
            Err(None) => {}
        }
    }

    fn first_waiting(&mut self) -> Option<Proven> {
        self.waiting.retain(Waiting::is_there);
        let Waiting { mut met, answer } = self.waiting.pop_front()?;
        answer.send_replace(None);
        if met.link_use == LinkUse::Queue {
            met.began = Instant::now();
        }
        Some(met)
    }
}

/// Sends away the peers that wait, so that they dial again and find out that nobody listens.
impl Drop for PeerQueue {
    fn drop(&mut self) {
        self.waiting.iter().for_each(|peer| close_and_tell(&peer.met.connection, code::DONE));
    }
}

impl Waiting {
    fn is_there(&self) -> bool {
        self.met.connection.close_reason().is_none()
    }

    fn report(&self, news: BusyAnswer) {
        self.answer.send_if_modified(|told| {
            let is_new = told.as_ref() != Some(&news);
            *told = Some(news);
            is_new
        });
    }
}

/// A queue during a session.
pub(super) struct AttendedQueue {
    /// Ends the task when it is dropped.
    _stop: oneshot::Sender<()>,
    task: JoinHandle<PeerQueue>,
}

impl AttendedQueue {
    /// Ends the answers; `None` if the task has failed.
    pub(super) async fn end(self) -> Option<PeerQueue> {
        let Self { _stop, task } = self;
        drop(_stop);
        task.await.ok()
    }
}

pub(super) fn closed() -> TransportError {
    TransportError::Lost("the socket was closed".into())
}

/// Performs the handshake over the command that started this end, which may take any time to begin. Never ends if there
/// is no such command.
async fn shake_over_command(door: &Arc<Listener>) -> Shaken {
    match door.command() {
        Some(stream) => shake_over_stream(stream, None, door).await,
        None => future::pending().await,
    }
}

/// Tells a peer each of the `answers`, and waits until it has left.
pub(super) async fn attend_to(connection: Connection, answers: watch::Receiver<Option<BusyAnswer>>) {
    let telling = async {
        if let Ok(words) = connection.open_uni().await {
            let _ = send_answers(words, answers).await;
        }
        future::pending::<()>().await;
    };
    tokio::select! {
        () = telling => {}
        _ = connection.closed() => {}
    }
}

/// Sends each answer as a line, and ends the stream when it is the peer's turn.
async fn send_answers(
    mut words: SendStream,
    mut answers: watch::Receiver<Option<BusyAnswer>>,
) -> Result<(), WriteError> {
    loop {
        let answer = answers.borrow_and_update().clone();
        let Some(answer) = answer else {
            let _ = words.finish();
            return Ok(());
        };
        words.write_all(&answer.to_line()).await?;
        if answers.changed().await.is_err() {
            // A stream that is dropped would end, as if it were the peer's turn.
            let _ = words.reset(code::DONE.into());
            return Ok(());
        }
    }
}
