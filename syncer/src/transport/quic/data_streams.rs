//! Moves the data of runs between their queues and any free stream of any connection.

use std::sync::Arc;

use async_channel::Receiver;
use quinn::RecvStream;
use tokio::{sync::watch, task::JoinSet};

use super::{
    errors::connection_error,
    lanes::Lanes,
    pump::{read_frame, write_paced},
};
use crate::{
    pace::Pace,
    transport::{Frame, TransportError},
    wire::{Header, MAX_FRAME_BYTES},
};

/// The data of a link's runs, for any stream of any of its connections.
#[derive(Clone)]
pub(super) struct Data {
    lanes: Lanes,
    way: Direction,
    /// Bytes of frames so far.
    crossed: Arc<watch::Sender<u64>>,
}

/// The direction of frames.
#[derive(Clone)]
enum Direction {
    Out(Option<Arc<Pace>>),
    In,
}

impl Data {
    pub(super) fn out(lanes: Lanes, pace: Option<Arc<Pace>>) -> Self {
        Self { lanes, way: Direction::Out(pace), crossed: Arc::default() }
    }

    pub(super) fn into(lanes: Lanes) -> Self {
        Self { lanes, way: Direction::In, crossed: Arc::default() }
    }

    /// Waits until this many bytes have crossed.
    pub(super) async fn has_crossed(&self, bytes: u64) {
        let _ = self.crossed.subscribe().wait_for(|crossed| *crossed >= bytes).await;
    }

    fn count(&self, frame: usize) {
        self.crossed.send_modify(|crossed| *crossed += frame as u64);
    }

    /// Carries data over `connection`, outwards over up to this many `streams` in each run, until the connection is
    /// lost.
    pub(super) async fn carry(
        &self,
        connection: &quinn::Connection,
        streams: usize,
    ) -> Result<(), TransportError> {
        match &self.way {
            Direction::Out(pace) => tokio::select! {
                result = self.send_runs(connection, streams, pace.as_ref()) => result,
                error = connection.closed() => Err(connection_error(&error)),
            },
            Direction::In => self.receive(connection).await,
        }
    }

    async fn send_runs(
        &self,
        connection: &quinn::Connection,
        streams: usize,
        pace: Option<&Arc<Pace>>,
    ) -> Result<(), TransportError> {
        let mut last = None;
        while let Some(lane) = self.lanes.after(last).await {
            last = Some(lane.run);
            let send = || self.clone().send(connection.clone(), lane.data.clone(), pace.cloned());
            let mut sending: JoinSet<_> = (0..streams).map(|_| send()).collect();
            while let Some(ended) = sending.join_next().await {
                ended.unwrap_or(Ok(()))?;
            }
        }
        Ok(())
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

    async fn receive(&self, connection: &quinn::Connection) -> Result<(), TransportError> {
        let mut streams = JoinSet::new();
        loop {
            tokio::select! {
                stream = connection.accept_uni() => {
                    let stream = stream.map_err(|error| connection_error(&error))?;
                    streams.spawn(self.clone().read(stream));
                }
                Some(ended) = streams.join_next() => ended.unwrap_or(Ok(()))?,
            }
        }
    }

    /// Reads all frames, wanted or not: stopping a stream would be an error at the peer, which shall read the reason on
    /// the control stream instead.
    async fn read(self, mut stream: RecvStream) -> Result<(), TransportError> {
        while let Some((Header { kind, run, .. }, body)) = read_frame(&mut stream, MAX_FRAME_BYTES).await? {
            self.count(body.len());
            if let Some(lane) = self.lanes.of_data(run)? {
                let _ = lane.frames.send(Frame { kind, body }).await;
            }
        }
        Ok(())
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
