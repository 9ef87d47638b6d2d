//! The bottleneck of a run: what it waited for most. Pure.
//!
//! Each end measures its phases, and in each phase its busiest thread: the step of a pipeline that holds up the others
//! has a thread that waits for none of them. The time of a phase is charged first to the activities of the busier end's
//! thread, then to those of the other end's while the first one waited, and the rest to the link between them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{phase::Phase, phase_effort::Effort};

/// The length of a phase, in microseconds, from which it is measured in full and judged. The bottleneck of a
/// run of some milliseconds does not matter, and a query of the kernel would cost such a run more than one percent.
pub const MIN_JUDGED_US: u64 = 250_000;
/// The share of its bandwidth limit from which a transfer counts as waiting for the limit, rather than for the link.
const LIMITED_FROM: f64 = 0.75;

/// The cause of a bottleneck.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Cause {
    /// Reading at the source.
    SourceDisk,
    /// The source's processors.
    SourceCpu,
    /// The link: its bandwidth, or its round trips.
    Network,
    /// The limit that the user set.
    BandwidthLimit,
    /// The destination's processors.
    SinkCpu,
    /// Reading, writing or syncing at the destination.
    SinkDisk,
    /// The processors of the one machine that has both ends.
    Cpu,
    /// The source, which has not reported its activities.
    Peer,
}

/// Writes the word for programs.
impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::SourceDisk => "sourceDisk",
            Self::SourceCpu => "sourceCpu",
            Self::Network => "network",
            Self::BandwidthLimit => "bandwidthLimit",
            Self::SinkCpu => "sinkCpu",
            Self::SinkDisk => "sinkDisk",
            Self::Cpu => "cpu",
            Self::Peer => "peer",
        })
    }
}

/// The bottleneck of a run: what it waited for most.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bottleneck {
    /// One word for programs.
    pub cause: Cause,
    /// Percent of the run's time.
    pub share: u8,
    /// One sentence for people.
    pub message: String,
}

/// The measurements of a run from which its bottleneck is found.
#[derive(Debug, Clone, Copy, Default)]
pub struct Measured<'a> {
    /// The efforts of the source's end.
    pub source: &'a [Effort],
    /// The efforts of the sink's end.
    pub sink: &'a [Effort],
    /// Whether both ends are one process.
    pub is_local: bool,
    /// The bandwidth limit, in bytes per second.
    pub bandwidth_limit: Option<u64>,
    /// Bytes that crossed the network.
    pub bytes_on_wire: u64,
}

/// Phases that are judged together, because the source does not measure them separately.
const GROUPS: [&[Phase]; 7] = [
    &[Phase::Connect],
    &[Phase::Scan],
    &[Phase::Plan, Phase::Delta],
    &[Phase::Transfer],
    &[Phase::Apply],
    &[Phase::Commit],
    &[Phase::Snapshot],
];

/// Returns the bottleneck of a run; `None` if nothing was measured.
pub fn bottleneck(run: &Measured<'_>) -> Option<Bottleneck> {
    let mut blame = Blame::default();
    for phases in GROUPS {
        run.judge(phases, &mut blame);
    }
    let (cause, time) =
        blame.0.iter().copied().max_by_key(|(_, time)| *time).filter(|(_, time)| *time > 0)?;
    let total = run.sink.iter().map(|effort| effort.wall_us).fold(0, u64::saturating_add);
    let share = (time as f64 / total.max(1) as f64 * 100.0).round().min(100.0) as u8;
    let predicate = match run.limited_end(cause) {
        Some(end) => format!("{end} waited for its CPU limit"),
        None => format!("waited for the {}{}", cause.words(), run.mostly(cause)),
    };
    let message = format!("{share} % of {} {predicate}", seconds(total));
    Some(Bottleneck { cause, share, message })
}

impl Cause {
    /// Returns what a run waited for, in words for people.
    pub fn words(self) -> &'static str {
        match self {
            Self::SourceDisk => "source's disk",
            Self::SourceCpu => "source's processors",
            Self::Network => "network",
            Self::BandwidthLimit => "bandwidth limit",
            Self::SinkCpu => "destination's processors",
            Self::SinkDisk => "destination's disk",
            Self::Cpu => "processors",
            Self::Peer => "source",
        }
    }
}

/// The time of each cause, in microseconds.
#[derive(Debug, Default)]
struct Blame(Vec<(Cause, u64)>);

impl Blame {
    /// Charges `time` to a cause, but no more than is `left`.
    fn charge(&mut self, cause: Cause, time: u64, left: &mut u64) {
        let time = time.min(*left);
        *left -= time;
        match self.0.iter_mut().find(|(known, _)| *known == cause) {
            Some((_, sum)) => *sum = sum.saturating_add(time),
            None => self.0.push((cause, time)),
        }
    }
}

/// The causes of one end's time.
struct EndTime {
    parts: [(Cause, u64); 3],
}

impl EndTime {
    fn busy(&self) -> u64 {
        self.parts.iter().fold(0, |sum, (_, time)| sum.saturating_add(*time))
    }

    /// Charges the end's time; in proportion if it is more than is left.
    fn charge(&self, blame: &mut Blame, left: &mut u64) {
        let (busy, room) = (self.busy(), *left);
        for (cause, time) in self.parts {
            let fitted = if busy > room { (time as f64 / busy as f64 * room as f64) as u64 } else { time };
            blame.charge(cause, fitted, left);
        }
    }
}

impl Measured<'_> {
    fn judge(&self, phases: &[Phase], blame: &mut Blame) {
        let [source, sink] = [self.source, self.sink].map(|end| sum(end, phases).with_limit());
        let mut left = sink.wall_us;
        if left < MIN_JUDGED_US {
            return;
        }
        let (here, there) = (self.of_sink(&sink, phases), self.of_source(&source));
        let (first, second) = if here.busy() >= there.busy() { (here, there) } else { (there, here) };
        first.charge(blame, &mut left);
        second.charge(blame, &mut left);
        self.charge_rest(phases, &sink, source == Effort::default(), blame, left);
    }

    fn of_source(&self, effort: &Effort) -> EndTime {
        let cpu = if self.is_local { Cause::Cpu } else { Cause::SourceCpu };
        EndTime { parts: [(Cause::SourceDisk, effort.disk()), (cpu, effort.cpu()), (Cause::SinkDisk, 0)] }
    }

    /// Returns the causes of the sink's time. On one machine, its threads also read the files that they copy.
    fn of_sink(&self, effort: &Effort, phases: &[Phase]) -> EndTime {
        let cpu = if self.is_local { Cause::Cpu } else { Cause::SinkCpu };
        let copies = self.is_local && phases == [Phase::Transfer];
        let read = if copies { effort.reading_us } else { 0 };
        let parts = [(Cause::SinkDisk, effort.disk() - read), (cpu, effort.cpu()), (Cause::SourceDisk, read)];
        EndTime { parts }
    }

    /// Charges the time in which neither end was busy.
    fn charge_rest(&self, phases: &[Phase], sink: &Effort, is_silent: bool, blame: &mut Blame, left: u64) {
        let mut left = left;
        match phases[0] {
            _ if self.is_local => blame.charge(Cause::BandwidthLimit, sink.network_us, &mut left),
            Phase::Connect => blame.charge(Cause::Network, left, &mut left),
            Phase::Transfer if self.is_at_limit(sink.wall_us) => {
                blame.charge(Cause::BandwidthLimit, left, &mut left);
            }
            Phase::Transfer => blame.charge(Cause::Network, left, &mut left),
            _ => {
                let cause = if is_silent { Cause::Peer } else { Cause::Network };
                blame.charge(cause, sink.peer_us, &mut left);
            }
        }
    }

    fn is_at_limit(&self, wall_us: u64) -> bool {
        self.bandwidth_limit.is_some_and(|limit| {
            let rate = self.bytes_on_wire as f64 / (wall_us.max(1) as f64 / 1e6);
            rate >= LIMITED_FROM * limit as f64
        })
    }

    /// Returns the sum of the efforts of the end whose processors are the cause.
    fn effort_of(&self, cause: Cause) -> Option<Effort> {
        let efforts = match cause {
            Cause::SourceCpu => self.source,
            Cause::SinkCpu | Cause::Cpu => self.sink,
            _ => return None,
        };
        Some(sum(efforts, &GROUPS.concat()).with_limit())
    }

    /// Returns the end that was stopped by its CPU limit for most of the time that is charged to its processors.
    fn limited_end(&self, cause: Cause) -> Option<&'static str> {
        let effort = self.effort_of(cause)?;
        (effort.stopped() > effort.cpu() / 2).then_some(match cause {
            Cause::SourceCpu => "the source",
            Cause::SinkCpu => "the destination",
            _ => "the run",
        })
    }

    /// Returns the activity that took more than half of the processors' time, or an empty text if none did.
    fn mostly(&self, cause: Cause) -> &'static str {
        let Some(effort) = self.effort_of(cause) else { return "" };
        let half = effort.cpu() / 2;
        match effort {
            Effort { queued_us, .. } if queued_us > half => ", which others used",
            Effort { compressing_us, .. } if compressing_us > half => ", mostly for compression",
            Effort { hashing_us, .. } if hashing_us > half => ", mostly for hashing",
            _ => "",
        }
    }
}

fn sum(efforts: &[Effort], phases: &[Phase]) -> Effort {
    let mut sum = Effort::default();
    efforts.iter().filter(|effort| phases.contains(&effort.phase)).for_each(|effort| sum.add(effort));
    sum
}

fn seconds(us: u64) -> String {
    match us {
        0..1_000_000 => format!("{} ms", us.div_ceil(1000)),
        1_000_000..60_000_000 => format!("{:.1} s", us as f64 / 1e6),
        _ => format!("{} s", us / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a transfer of ten seconds with this effort.
    fn transfer(effort: Effort) -> Vec<Effort> {
        vec![Effort { phase: Phase::Transfer, wall_us: 10_000_000, ..effort }]
    }

    fn word(run: &Measured<'_>) -> (Cause, u8) {
        bottleneck(run).map(|it| (it.cause, it.share)).unwrap()
    }

    /// Returns an example for each cause: the source's effort, the sink's, and the cause that follows.
    fn remote_cases() -> [(Effort, Effort, Cause); 6] {
        const S: u64 = 1_000_000;
        let idle = Effort { running_us: S, peer_us: 9 * S, ..Effort::default() };
        let blocked = Effort { running_us: S, network_us: 9 * S, ..Effort::default() };
        let busy = Effort { running_us: 9 * S, queued_us: S, ..Effort::default() };
        [
            (Effort { reading_us: 8 * S, running_us: S, ..Effort::default() }, idle, Cause::SourceDisk),
            (busy, idle, Cause::SourceCpu),
            (blocked, idle, Cause::Network),
            (blocked, busy, Cause::SinkCpu),
            (blocked, Effort { writing_us: 7 * S, running_us: 2 * S, ..Effort::default() }, Cause::SinkDisk),
            (blocked, Effort { reading_us: 9 * S, ..Effort::default() }, Cause::SinkDisk),
        ]
    }

    #[test]
    fn the_step_that_keeps_the_others_waiting_is_named() {
        for (source, sink, cause) in remote_cases() {
            let (source, sink) = (transfer(source), transfer(sink));
            let run = Measured { source: &source, sink: &sink, ..Measured::default() };
            assert_eq!(word(&run).0, cause, "{run:?}");
        }
    }

    #[test]
    fn a_machine_that_is_five_times_slower_gives_the_same_word_and_share() {
        let slower = |effort: &Effort| {
            let mut sum = *effort;
            (1..5).for_each(|_| sum.add(effort));
            sum
        };
        for (source, sink, _) in remote_cases() {
            let (source, sink) = (transfer(source), transfer(sink));
            let slow: [Vec<Effort>; 2] = [&source, &sink].map(|end| end.iter().map(slower).collect());
            let run = Measured { source: &source, sink: &sink, ..Measured::default() };
            assert_eq!(word(&run), word(&Measured { source: &slow[0], sink: &slow[1], ..run }));
        }
    }

    #[test]
    fn a_link_that_is_as_fast_as_its_limit_waits_for_the_limit() {
        let (source, sink) = (transfer(Effort::default()), transfer(Effort::default()));
        let run = Measured { source: &source, sink: &sink, bytes_on_wire: 95, ..Measured::default() };
        let of = |limit| word(&Measured { bandwidth_limit: limit, ..run }).0;
        assert_eq!(
            [of(None), of(Some(10)), of(Some(100))],
            [Cause::Network, Cause::BandwidthLimit, Cause::Network]
        );
    }

    #[test]
    fn an_end_that_its_cpu_limit_stops_waits_for_the_limit_and_not_for_the_network_or_a_disk() {
        const S: u64 = 1_000_000;
        let says = |source: Effort, sink: Effort, is_local| {
            let (source, sink) = (transfer(source), transfer(sink));
            let run = Measured { source: &source, sink: &sink, is_local, ..Measured::default() };
            let found = bottleneck(&run).unwrap();
            (found.cause, found.message)
        };
        let idle = Effort { running_us: S, peer_us: 9 * S, ..Effort::default() };
        let stopped = Effort { throttled_us: 8 * S, ..idle };
        let (cause, message) = says(idle, stopped, false);
        assert_eq!(cause, Cause::SinkCpu);
        assert_eq!(message, "90 % of 10.0 s the destination waited for its CPU limit");
        let (cause, message) = says(stopped, idle, false);
        assert_eq!(
            (cause, message.as_str()),
            (Cause::SourceCpu, "90 % of 10.0 s the source waited for its CPU limit")
        );
        let blocked = Effort { running_us: S, writing_us: 9 * S, throttled_us: 7 * S, ..Effort::default() };
        let (cause, message) = says(Effort::default(), blocked, true);
        assert_eq!(
            (cause, message.as_str()),
            (Cause::Cpu, "80 % of 10.0 s the run waited for its CPU limit")
        );
        let hardly = Effort { throttled_us: S, ..blocked };
        assert_eq!(says(Effort::default(), hardly, true).0, Cause::SinkDisk);
    }

    #[test]
    fn on_one_machine_what_a_copy_reads_is_the_sources_and_the_processors_are_shared() {
        let of =
            |effort| word(&Measured { sink: &transfer(effort), is_local: true, ..Measured::default() }).0;
        assert_eq!(
            of(Effort { reading_us: 6_000_000, writing_us: 1, ..Effort::default() }),
            Cause::SourceDisk
        );
        assert_eq!(of(Effort { writing_us: 6_000_000, reading_us: 1, ..Effort::default() }), Cause::SinkDisk);
        assert_eq!(of(Effort { running_us: 6_000_000, ..Effort::default() }), Cause::Cpu);
        assert_eq!(
            of(Effort { network_us: 6_000_000, running_us: 1, ..Effort::default() }),
            Cause::BandwidthLimit
        );
    }

    #[test]
    fn the_share_is_of_all_phases() {
        let phase = |phase, wall_us, effort| Effort { phase, wall_us, ..effort };
        let sink = [
            phase(Phase::Scan, 2_000_000, Effort { reading_us: 1_000_000, ..Effort::default() }),
            phase(Phase::Transfer, 5_000_000, Effort { writing_us: 4_000_000, ..Effort::default() }),
            phase(Phase::Commit, 5_300_000, Effort { syncing_us: 3_733_000, ..Effort::default() }),
        ];
        let found = bottleneck(&Measured { sink: &sink, is_local: true, ..Measured::default() }).unwrap();
        assert_eq!((found.cause, found.share), (Cause::SinkDisk, 71));
        assert_eq!(found.message, "71 % of 12.3 s waited for the destination's disk");
    }

    #[test]
    fn a_wait_for_answers_is_the_peers_unless_it_has_said_what_it_did() {
        let waited =
            Effort { phase: Phase::Delta, wall_us: 1_000_000, peer_us: 900_000, ..Effort::default() };
        let run = Measured { sink: &[waited], ..Measured::default() };
        assert_eq!(word(&run).0, Cause::Peer);
        let hashed =
            Effort { phase: Phase::Plan, running_us: 800_000, hashing_us: 700_000, ..Effort::default() };
        let run = Measured { source: &[hashed], ..run };
        assert_eq!(word(&run).0, Cause::SourceCpu);
        assert!(bottleneck(&run).unwrap().message.ends_with("processors, mostly for hashing"));
    }

    #[test]
    fn a_run_of_short_phases_is_not_judged() {
        let short = Effort { wall_us: MIN_JUDGED_US - 1, ..transfer(Effort::default())[0] };
        assert_eq!(bottleneck(&Measured { sink: &[short], ..Measured::default() }), None);
    }

    #[test]
    fn figures_of_a_hostile_peer_neither_overflow_nor_exceed_the_run() {
        let most = Effort {
            phase: Phase::Transfer,
            wall_us: u64::MAX,
            running_us: u64::MAX,
            queued_us: u64::MAX,
            throttled_us: u64::MAX,
            reading_us: u64::MAX,
            writing_us: u64::MAX,
            ..Effort::default()
        };
        let sink = transfer(Effort { running_us: 1, ..Effort::default() });
        let run = Measured {
            source: &[most; crate::phase_effort::MAX_EFFORTS],
            sink: &sink,
            ..Measured::default()
        };
        assert!(word(&run).1 <= 100);
        assert_eq!(bottleneck(&Measured { source: &[most], ..Measured::default() }), None);
    }
}
