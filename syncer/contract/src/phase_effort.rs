//! How long each end was busy with what, in each phase.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::phase::Phase;

/// The largest number of efforts of one end: one for each phase.
pub const MAX_EFFORTS: usize = Phase::COUNT;

/// The times of one end in one phase, in microseconds. All but `wall_us`, `cpu_us` and `throttled_us` are those of its
/// busiest thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Effort {
    /// The phase.
    pub phase: Phase,
    /// Wall time of the phase at this end.
    #[serde(skip_serializing_if = "is_zero")]
    pub wall_us: u64,
    /// CPU time of all threads of this end's process; 0 of a service, whose process has other runs at the same time.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_us: u64,
    /// Time in which the CPU limit of this end's control group stopped it.
    #[serde(skip_serializing_if = "is_zero")]
    pub throttled_us: u64,
    /// CPU time of the busiest thread.
    #[serde(skip_serializing_if = "is_zero")]
    pub running_us: u64,
    /// Time in which the thread was ready to run, but had no core.
    #[serde(skip_serializing_if = "is_zero")]
    pub queued_us: u64,
    /// Time in which it waited for reads of data or names.
    #[serde(skip_serializing_if = "is_zero")]
    pub reading_us: u64,
    /// Time in which it waited for its writes.
    #[serde(skip_serializing_if = "is_zero")]
    pub writing_us: u64,
    /// Time in which it waited until a volume was durable.
    #[serde(skip_serializing_if = "is_zero")]
    pub syncing_us: u64,
    /// Time that hashing took, most of it also in `running_us`.
    #[serde(skip_serializing_if = "is_zero")]
    pub hashing_us: u64,
    /// Time that compressing or decompressing took, most of it also in `running_us`.
    #[serde(skip_serializing_if = "is_zero")]
    pub compressing_us: u64,
    /// Time in which the link was full; of a run on one machine, in which its bandwidth limit was reached.
    #[serde(skip_serializing_if = "is_zero")]
    pub network_us: u64,
    /// Time in which it waited for the other end.
    #[serde(skip_serializing_if = "is_zero")]
    pub peer_us: u64,
}

fn is_zero(time: &u64) -> bool {
    *time == 0
}

impl Effort {
    /// Returns how long the thread kept others waiting, in microseconds: it ran, waited for a core, or waited for a
    /// disk.
    pub fn busy_us(&self) -> u64 {
        self.cpu().saturating_add(self.disk())
    }

    pub(crate) fn cpu(&self) -> u64 {
        self.running_us.saturating_add(self.queued_us)
    }

    pub(crate) fn disk(&self) -> u64 {
        self.reading_us.saturating_add(self.writing_us).saturating_add(self.syncing_us)
    }

    /// Returns how long the CPU limit stopped the thread, in microseconds, while it did not run.
    pub(crate) fn stopped(&self) -> u64 {
        self.throttled_us.min(self.wall_us.saturating_sub(self.running_us))
    }

    /// Counts the time in which the CPU limit stopped the thread as time without a core. Not every kernel does so; on
    /// others, that time looks like time in which a disk blocked the thread.
    pub(crate) fn with_limit(self) -> Self {
        let stopped = self.stopped();
        if stopped <= self.queued_us {
            return self;
        }
        let room = self.wall_us.saturating_sub(self.running_us).saturating_sub(stopped);
        let scale = (room as f64 / self.disk().max(1) as f64).min(1.0);
        let [reading_us, writing_us, syncing_us] =
            [self.reading_us, self.writing_us, self.syncing_us].map(|us| (us as f64 * scale) as u64);
        Self { queued_us: stopped, reading_us, writing_us, syncing_us, ..self }
    }

    /// Adds the effort of the thread, or of one that followed it, later in the same phase.
    pub fn add(&mut self, later: &Self) {
        let Self {
            phase: _,
            wall_us,
            cpu_us,
            throttled_us,
            running_us,
            queued_us,
            reading_us,
            writing_us,
            syncing_us,
            hashing_us,
            compressing_us,
            network_us,
            peer_us,
        } = self;
        let sums = [
            (wall_us, later.wall_us),
            (cpu_us, later.cpu_us),
            (throttled_us, later.throttled_us),
            (running_us, later.running_us),
            (queued_us, later.queued_us),
            (reading_us, later.reading_us),
            (writing_us, later.writing_us),
            (syncing_us, later.syncing_us),
            (hashing_us, later.hashing_us),
            (compressing_us, later.compressing_us),
            (network_us, later.network_us),
            (peer_us, later.peer_us),
        ];
        sums.into_iter().for_each(|(sum, more)| *sum = sum.saturating_add(more));
    }
}

/// The efforts of both ends in each phase.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Efforts {
    /// The source's end, as far as it has reported.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub source: Vec<Effort>,
    /// The sink's end; of a run on one machine, also the threads that copy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sink: Vec<Effort>,
}

impl Efforts {
    /// Returns whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.source.is_empty() && self.sink.is_empty()
    }
}
