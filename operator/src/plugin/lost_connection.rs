//! Goes on with a run whose connection through the API server was lost, as it is in an upgrade of the cluster.

use std::time::{Duration, Instant};

use contract::ExitCode;
use tokio::time::sleep;

use super::{exec_stream::LOST, output};

/// How many times a run goes on.
const MOST: u32 = 10;
/// The pause before it does.
const PAUSE: Duration = Duration::from_secs(3);
/// A connection that was lost sooner than this most likely never was one.
const LEAST: Duration = Duration::from_secs(20);

/// The tries of a run.
#[derive(Debug, Default)]
pub(super) struct Tries {
    count: u32,
    begun: Option<Instant>,
}

impl Tries {
    /// Notes that a try begins.
    pub(super) fn begin(&mut self) {
        self.count += 1;
        self.begun = Some(Instant::now());
    }

    /// Returns whether another try may follow one that ended with this status.
    pub(super) fn may_go_on(&self, status: u8) -> bool {
        let is_lost = status == LOST || i32::from(status) == ExitCode::PeerLost as i32;
        is_lost && self.count <= MOST && self.begun.is_some_and(|begun| begun.elapsed() >= LEAST)
    }

    /// Says that another try follows, and waits a moment.
    pub(super) async fn pause(&self) {
        output::complain("note: the connection was lost; the run goes on with what has arrived");
        sleep(PAUSE).await;
    }
}
