//! Moves the data of runs between their queues and any free stream of the connection.

use std::sync::Arc;

use async_channel::Receiver;
use quinn::RecvStream;
use tokio::task::JoinSet;

use crate::{
    sys::bandwidth_limit::Pace,
    transport::{
        Frame, TransportError,
        quic::{
            connection_config::data_streams,
            link_errors::connection_error,
            pump::{RunFrame, read_frame, write_paced},
            run_queues::Lanes,
        },
    },
    wire::MAX_FRAME_BYTES,
};

/// The data of a link's runs, for any of its streams.
#[derive(Clone)]
pub(super) struct Data {
    lanes: Lanes,
    way: Direction,
}

/// The direction of frames.
#[derive(Clone)]
enum Direction {
    Out(Option<Arc<Pace>>),
    In(Option<Arc<Pace>>),
}

impl Data {
    pub(super) fn out(lanes: Lanes, pace: Option<Arc<Pace>>) -> Self {
        Self { lanes, way: Direction::Out(pace) }
    }

    pub(super) fn into(lanes: Lanes, pace: Option<Arc<Pace>>) -> Self {
        Self { lanes, way: Direction::In(pace) }
    }

    /// Carries data over `connection` until it is lost.
    pub(super) async fn carry(&self, connection: &quinn::Connection) -> Result<(), TransportError> {
        match &self.way {
            Direction::Out(pace) => tokio::select! {
                result = self.send_runs(connection, pace.as_ref()) => result,
                error = connection.closed() => Err(connection_error(&error)),
            },
            Direction::In(pace) => self.receive(connection, pace.as_ref()).await,
        }
    }

    async fn send_runs(
        &self,
        connection: &quinn::Connection,
        pace: Option<&Arc<Pace>>,
    ) -> Result<(), TransportError> {
        let mut last = None;
        while let Some(lane) = self.lanes.after(last).await {
            last = Some(lane.run);
            let send = || send(connection.clone(), lane.data.clone(), pace.cloned());
            let mut sending: JoinSet<_> = (0..data_streams()).map(|_| send()).collect();
            while let Some(ended) = sending.join_next().await {
                ended.unwrap_or(Ok(()))?;
            }
        }
        Ok(())
    }

    async fn receive(
        &self,
        connection: &quinn::Connection,
        pace: Option<&Arc<Pace>>,
    ) -> Result<(), TransportError> {
        let mut streams = JoinSet::new();
        loop {
            tokio::select! {
                stream = connection.accept_uni() => {
                    let stream = stream.map_err(|error| connection_error(&error))?;
                    streams.spawn(self.clone().read(stream, pace.cloned()));
                }
                Some(ended) = streams.join_next() => ended.unwrap_or(Ok(()))?,
            }
        }
    }

    /// Reads all frames, wanted or not: stopping a stream would be an error at the peer, which has to read the reason
    /// on the control stream instead.
    async fn read(self, mut stream: RecvStream, pace: Option<Arc<Pace>>) -> Result<(), TransportError> {
        while let Some(RunFrame { kind, run, body }) = read_frame(&mut stream, MAX_FRAME_BYTES).await? {
            if let Some(pace) = &pace {
                wait_for_all(pace, body.len()).await;
            }
            if let Some(lane) = self.lanes.of_data(run)? {
                let _ = lane.frames.send(Frame { kind, body }).await;
            }
        }
        Ok(())
    }
}

/// Waits until this many bytes may have come.
async fn wait_for_all(pace: &Pace, mut bytes: usize) {
    while bytes > 0 {
        let piece = bytes.min(pace.piece_bytes());
        pace.wait(piece).await;
        bytes -= piece;
    }
}

/// Sends the frames of a queue over a stream of its own.
async fn send(
    connection: quinn::Connection,
    queue: Receiver<Vec<u8>>,
    pace: Option<Arc<Pace>>,
) -> Result<(), TransportError> {
    // The first frame opens the stream, so a run without data has no data streams.
    let Ok(mut frame) = queue.recv().await else { return Ok(()) };
    let mut stream = connection.open_uni().await.map_err(|error| connection_error(&error))?;
    loop {
        write_paced(&mut stream, frame, pace.as_deref()).await?;
        match queue.recv().await {
            Ok(next) => frame = next,
            Err(_) => break,
        }
    }
    let _ = stream.finish();
    Ok(())
}

#[cfg(test)]
mod tests {
    use contract::ExitCode;

    use crate::{
        transport::{TransportError, quic::test_link::Linked},
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
