//! Moves the data of a run between a session's queue and any free stream of any connection.

use std::sync::Arc;

use async_channel::{Receiver, Sender};
use quinn::RecvStream;
use tokio::{sync::watch, task::JoinSet};

use super::{
    errors::connection_error,
    pump::{read_frame, write_paced},
};
use crate::{
    pace::Pace,
    transport::{Frame, TransportError},
    wire::MAX_FRAME_BYTES,
};

/// The data of a run, for any stream of any of its connections.
#[derive(Clone)]
pub(super) struct Data {
    way: Direction,
    /// Bytes of frames so far.
    crossed: Arc<watch::Sender<u64>>,
}

/// The direction of frames.
#[derive(Clone)]
enum Direction {
    Out(Receiver<Vec<u8>>, Option<Arc<Pace>>),
    In(Sender<Frame>),
}

impl Data {
    pub(super) fn out(queue: Receiver<Vec<u8>>, pace: Option<Arc<Pace>>) -> Self {
        Self { way: Direction::Out(queue, pace), crossed: Arc::default() }
    }

    pub(super) fn into(frames: Sender<Frame>) -> Self {
        Self { way: Direction::In(frames), crossed: Arc::default() }
    }

    /// Waits until this many bytes have crossed.
    pub(super) async fn has_crossed(&self, bytes: u64) {
        let _ = self.crossed.subscribe().wait_for(|crossed| *crossed >= bytes).await;
    }

    fn count(&self, frame: usize) {
        self.crossed.send_modify(|crossed| *crossed += frame as u64);
    }

    /// Carries data over `connection`, outwards over up to this many `streams`, until there is no more or the
    /// connection is lost.
    pub(super) async fn carry(
        &self,
        connection: &quinn::Connection,
        streams: usize,
    ) -> Result<(), TransportError> {
        match &self.way {
            Direction::Out(queue, pace) => {
                let send = || self.clone().send(connection.clone(), queue.clone(), pace.clone());
                let mut sending: JoinSet<_> = (0..streams).map(|_| send()).collect();
                while let Some(ended) = sending.join_next().await {
                    ended.unwrap_or(Ok(()))?;
                }
                Ok(())
            }
            Direction::In(frames) => self.receive(connection, frames).await,
        }
    }

    async fn send(
        self,
        connection: quinn::Connection,
        queue: Receiver<Vec<u8>>,
        pace: Option<Arc<Pace>>,
    ) -> Result<(), TransportError> {
        // The first frame opens the stream, so a run without data has no data streams.
        let Ok(mut frame) = queue.recv().await else { return Ok(()) };
        let mut stream = connection.open_uni().await.map_err(|error| connection_error(&error))?;
        loop {
            self.count(frame.len());
            write_paced(&mut stream, frame, pace.as_deref()).await?;
            match queue.recv().await {
                Ok(next) => frame = next,
                Err(_) => break,
            }
        }
        let _ = stream.finish();
        Ok(())
    }

    async fn receive(
        &self,
        connection: &quinn::Connection,
        frames: &Sender<Frame>,
    ) -> Result<(), TransportError> {
        let mut streams = JoinSet::new();
        loop {
            tokio::select! {
                stream = connection.accept_uni() => {
                    let stream = stream.map_err(|error| connection_error(&error))?;
                    streams.spawn(self.clone().read(stream, frames.clone()));
                }
                Some(ended) = streams.join_next() => ended.unwrap_or(Ok(()))?,
            }
        }
    }

    /// Reads all frames, wanted or not: stopping a stream would be an error at the peer, which shall read the reason on
    /// the control stream instead.
    async fn read(self, mut stream: RecvStream, frames: Sender<Frame>) -> Result<(), TransportError> {
        while let Some((kind, body)) = read_frame(&mut stream, MAX_FRAME_BYTES).await? {
            self.count(body.len());
            let _ = frames.send(Frame { kind, body }).await;
        }
        Ok(())
    }

    fn close(&self) {
        match &self.way {
            Direction::Out(queue, _) => queue.close(),
            Direction::In(frames) => frames.close(),
        };
    }
}

/// Wakes threads that wait for data when it is dropped.
pub(super) struct ClosesData(pub(super) Data);

impl Drop for ClosesData {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[cfg(test)]
mod tests {
    use contract::ExitCode;

    use crate::{
        transport::{TransportError, quic::linked::Linked},
        wire::{Message, Refusal, data::Block},
    };

    #[test]
    fn a_source_whose_data_nobody_takes_any_more_hears_why() {
        let run = Linked::new();
        // The peer sees a stream once something was sent on it.
        run.source.1.control.send(&Message::NeedsEnd).unwrap();
        assert!(matches!(run.sink.1.control.recv(), Ok(Message::NeedsEnd)));
        run.sink.1.receiver.close();
        let frame = || Block::seal(vec![0; Block::PREFIX_BYTES + (64 << 10)], 0, 0, 64 << 10, 0);
        // Far more than any window.
        (0..1000).for_each(|_| run.source.1.senders[0].send(frame()).unwrap());
        let why = Refusal { exit: ExitCode::Partial, reason: "Any".into(), message: "any".into() };
        run.sink.1.control.send(&Message::Refuse(why.clone())).unwrap();
        let heard = loop {
            if let Err(error) = run.source.1.senders[0].send(frame()) {
                break error;
            }
        };
        assert!(matches!(&heard, TransportError::Refused(heard) if **heard == why), "{heard}");
    }
}
