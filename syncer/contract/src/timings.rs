//! How long the phases of a run took.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::phase::Phase;

/// Wall time of each phase of a run, in milliseconds. Phases follow one another, so they add up to `total`;
/// work that overlaps is charged to the phase that was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Timings {
    /// Waiting for a place in the operator's queue, and the pauses between tries.
    pub queue: u64,
    /// From creating the pods until both ends ran; of all tries.
    pub pod_start: u64,
    /// Dialling and the TLS handshake.
    pub connect: u64,
    /// Walking the trees.
    pub scan: u64,
    /// Comparing the trees and planning; also reading the destination back, if that was asked for.
    pub plan: u64,
    /// Comparing contents, checking the guards, and deletes that go first, before content is transferred.
    pub delta: u64,
    /// Transferring data.
    pub transfer: u64,
    /// Links, directory metadata and deletes, after all data has arrived.
    pub apply: u64,
    /// Making the destination durable.
    pub commit: u64,
    /// Taking a snapshot of the destination.
    pub snapshot: u64,
    /// The whole run.
    pub total: u64,
}

impl Timings {
    /// Takes the milliseconds of each phase, in the order of [`Phase::ALL`], and of all together.
    pub fn of_phases(phases: [u64; Phase::COUNT], total: u64) -> Self {
        let [connect, scan, plan, delta, transfer, apply, commit, snapshot] = phases;
        let (queue, pod_start) = (0, 0);
        Self { queue, pod_start, connect, scan, plan, delta, transfer, apply, commit, snapshot, total }
    }

    /// Adds the phases of an earlier try of the same run.
    pub fn add_try(&mut self, earlier: &Self) {
        let Self { queue, pod_start, connect, scan, plan, delta, transfer, apply, commit, snapshot, total } =
            self;
        *queue = queue.saturating_add(earlier.queue);
        *pod_start = pod_start.saturating_add(earlier.pod_start);
        *connect = connect.saturating_add(earlier.connect);
        *scan = scan.saturating_add(earlier.scan);
        *plan = plan.saturating_add(earlier.plan);
        *delta = delta.saturating_add(earlier.delta);
        *transfer = transfer.saturating_add(earlier.transfer);
        *apply = apply.saturating_add(earlier.apply);
        *commit = commit.saturating_add(earlier.commit);
        *snapshot = snapshot.saturating_add(earlier.snapshot);
        *total = total.saturating_add(earlier.total);
    }

    /// Returns how long both ends ran, in milliseconds: the whole run without the time before its pods ran.
    pub fn running(&self) -> u64 {
        self.total.saturating_sub(self.queue).saturating_sub(self.pod_start)
    }
}
