//! Combines the states of the pairs of pods that share a run, one pair for each shard. Pure.

use contract::{Reason, Side};
use jiff::{SignedDuration, Timestamp};

use super::outcome::{self, Ending, Outcome};
use crate::{api::ActiveRun, ends::source_and_sink::Ends, fault::Fault, pods::pod_state::EndState};

/// How long the other end, or the other shards after a failure, may take to end by themselves. The engine notices a
/// lost peer within 10 s.
const GRACE: SignedDuration = SignedDuration::from_secs(30);

/// The two ends of one shard.
pub type Pair = Ends<EndState>;

/// The combined state of all pairs of a try.
#[derive(Debug, Clone, PartialEq)]
pub enum Stand {
    /// The try is over.
    Over(Box<Outcome>),
    /// Some ends have ended, and the rest may end by itself until this time.
    Ending(Timestamp),
    /// Some ends are terminating.
    Stopping,
    /// Some ends do not exist.
    Absent,
    /// Some ends do not run yet.
    Starting(Option<Fault>),
    /// All ends that have not ended are running.
    Running,
}

/// The state of one pair.
enum PairStand {
    /// Ended, at that time if it is known.
    Over(Box<Outcome>, Option<Timestamp>),
    Ending(Timestamp),
    Open,
}

impl Pair {
    /// Returns the pair with an end that ran counted as ended if its Job is gone, whoever deleted it.
    pub fn settled(&self, run: &ActiveRun) -> Self {
        let settled = |end: &EndState| match end {
            EndState::Absent if run.pods_ready_time.is_some() => {
                let fault = Fault::new(Reason::JobDeleted, "A syncer's Job was deleted while it ran.");
                EndState::Ended(Box::new(Ending::of(fault)))
            }
            other => other.clone(),
        };
        self.map(settled)
    }

    /// Returns whether no objects of either end exist.
    pub fn is_absent(&self) -> bool {
        self.iter().all(|end| *end == EndState::Absent)
    }

    fn stand(&self, now: Timestamp) -> PairStand {
        let silent = Ending::default();
        let (source, sink, other) = match (&self.source, &self.sink) {
            (EndState::Ended(source), EndState::Ended(sink)) => (&**source, &**sink, None),
            (EndState::Ended(source), other) => (&**source, &silent, Some(other)),
            (other, EndState::Ended(sink)) => (&silent, &**sink, Some(other)),
            _ => return PairStand::Open,
        };
        let at = source.at.max(sink.at);
        let may_report = match other {
            Some(EndState::Running | EndState::Stopping) => true,
            // The kubelet of a busy node is late to report that a pod runs, or has ended.
            Some(EndState::Starting(_)) => source.met_peer() || sink.met_peer(),
            _ => false,
        };
        match patience(at, now).filter(|_| may_report) {
            Some(until) => PairStand::Ending(until),
            None => PairStand::Over(Box::new(outcome::judge(source, sink)), at),
        }
    }
}

/// Returns until when others may still end by themselves after something ended `at` that time; `None` if that time is
/// over or unknown.
fn patience(at: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    at?.checked_add(GRACE).ok().filter(|until| *until > now)
}

/// Returns the combined state of a try's pairs.
pub fn stand(pairs: &[Pair], now: Timestamp) -> Stand {
    let stands: Vec<PairStand> = pairs.iter().map(|pair| pair.stand(now)).collect();
    let told = || {
        let told = (0..).zip(&stands).filter_map(|(shard, stand)| match stand {
            PairStand::Over(outcome, _) => Some((shard, (**outcome).clone())),
            PairStand::Ending(_) | PairStand::Open => None,
        });
        Box::new(outcome::of_shards(told.collect(), pairs.len()))
    };
    let over = || Stand::Over(told());
    if stands.iter().all(|stand| matches!(stand, PairStand::Over(..))) {
        return over();
    }
    if let Some(broken) = broken_at(&stands) {
        return match patience(broken, now).filter(|_| any_is_under_way(pairs, &stands)) {
            Some(until) => Stand::Ending(until),
            None => over(),
        };
    }
    let ending = stands.iter().filter_map(|stand| match stand {
        PairStand::Ending(until) => Some(*until),
        PairStand::Over(..) | PairStand::Open => None,
    });
    match ending.min() {
        Some(until) => Stand::Ending(until),
        None => standing(pairs, open(pairs, &stands)),
    }
}

/// Returns the side that waits for the other one, or does not exist yet, while no end of that other side can start.
pub fn partner_of_stuck(pairs: &[Pair]) -> Option<Side> {
    [Side::Source, Side::Sink].into_iter().find(|side| {
        let is_stuck = |pair: &Pair| matches!(pair.of(other(*side)), EndState::Starting(Some(_)));
        let waits = |pair: &Pair| matches!(pair.of(*side), EndState::Running | EndState::Absent);
        pairs.iter().all(is_stuck) && pairs.iter().any(waits)
    })
}

/// Returns the opposite side.
pub fn other(side: Side) -> Side {
    match side {
        Side::Source => Side::Sink,
        Side::Sink => Side::Source,
    }
}

/// Returns when the first pair failed in a way that breaks the other pairs. A pair that only failed to sync some files
/// does not.
fn broken_at(stands: &[PairStand]) -> Option<Option<Timestamp>> {
    let broken = stands.iter().filter_map(|stand| match stand {
        PairStand::Over(outcome, at) if outcome.breaks_others() => Some(*at),
        _ => None,
    });
    broken.min()
}

fn any_is_under_way(pairs: &[Pair], stands: &[PairStand]) -> bool {
    let left = pairs.iter().zip(stands).filter(|(_, stand)| !matches!(stand, PairStand::Over(..)));
    let runs = |end: &EndState| matches!(end, EndState::Running | EndState::Stopping);
    left.flat_map(|(pair, _)| pair.iter()).any(runs)
}

/// Returns the ends of those pairs of which neither end has ended.
fn open<'a>(pairs: &'a [Pair], stands: &[PairStand]) -> Vec<&'a EndState> {
    let open = pairs.iter().zip(stands).filter(|(_, stand)| matches!(stand, PairStand::Open));
    open.flat_map(|(pair, _)| pair.iter()).collect()
}

fn standing(pairs: &[Pair], ends: Vec<&EndState>) -> Stand {
    if ends.contains(&&EndState::Stopping) {
        return Stand::Stopping;
    }
    let is_held_back = partner_of_stuck(pairs).is_some();
    if ends.contains(&&EndState::Absent) && !is_held_back {
        return Stand::Absent;
    }
    if ends.iter().any(|end| matches!(end, EndState::Starting(_))) {
        Stand::Starting(obstacle(ends))
    } else {
        Stand::Running
    }
}

/// Returns the obstacle of the first end that cannot start.
fn obstacle<'a>(ends: impl IntoIterator<Item = &'a EndState>) -> Option<Fault> {
    ends.into_iter().find_map(|end| match end {
        EndState::Starting(fault) => fault.clone(),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use contract::{Report, RunResult, Work};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + second).unwrap()
    }

    fn ended(exit: i32, reason: Option<&str>, second: i64) -> EndState {
        let result = match exit {
            0 => RunResult::Succeeded,
            3 => RunResult::PartiallyFailed,
            _ => RunResult::Failed,
        };
        let work = Work { files_created: 10, ..Work::default() };
        let report = Report { result, work, reason: reason.map(Into::into), ..Report::default() };
        let ending =
            Ending { exit: Some(exit), at: Some(at(second)), report: Some(report), ..Ending::default() };
        EndState::Ended(Box::new(ending))
    }

    fn pair(end: &EndState) -> Pair {
        Pair { source: end.clone(), sink: end.clone() }
    }

    fn pairs<const N: usize>(ends: [EndState; N]) -> Vec<Pair> {
        ends.map(|end| pair(&end)).into()
    }

    fn over(pairs: &[Pair], now: Timestamp) -> Outcome {
        match stand(pairs, now) {
            Stand::Over(outcome) => *outcome,
            other => panic!("not over: {other:?}"),
        }
    }

    #[test]
    fn shards_that_all_succeeded_are_one_success_with_the_sum_of_their_work() {
        let done = ended(0, None, 5);
        let outcome = over(&pairs([done.clone(), done.clone(), done]), at(6));
        assert_eq!((outcome.report.result, outcome.report.work.files_created), (RunResult::Succeeded, 30));
    }

    #[test]
    fn a_shard_that_is_done_or_partly_done_waits_for_the_others_as_long_as_they_take() {
        for exit in [0, 3] {
            let some = pairs([EndState::Running, ended(exit, None, 5), EndState::Running]);
            assert_eq!(stand(&some, at(5000)), Stand::Running, "{exit}");
        }
    }

    #[test]
    fn a_shard_that_failed_leaves_the_others_a_while_and_is_what_the_run_is_blamed_on() {
        let mut some = pairs([EndState::Running, ended(1, Some("NoSpace"), 5), EndState::Running]);
        assert_eq!(stand(&some, at(6)), Stand::Ending(at(35)));
        some[0] = pair(&ended(5, Some("ShardLost"), 7));
        assert_eq!(stand(&some, at(8)), Stand::Ending(at(35)));
        for last in [EndState::Running, ended(5, Some("ShardLost"), 9)] {
            some[2] = pair(&last);
            let outcome = over(&some, at(35));
            assert_eq!(outcome.report.reason.as_deref(), Some("NoSpace"));
            assert!(outcome.report.message.starts_with("Shard 1 of 3: "), "{}", outcome.report.message);
            assert!(outcome.may_retry);
        }
    }

    #[test]
    fn an_end_that_met_its_peer_waits_for_it_although_the_peer_seems_not_to_run_yet() {
        let starting = || EndState::Starting(Some(Fault::new(Reason::PodPending, "FailedMount")));
        let pair = |exit| [Pair { source: ended(exit, None, 5), sink: starting() }];
        for exit in [0, 3, 5] {
            assert_eq!(stand(&pair(exit), at(6)), Stand::Ending(at(35)), "{exit}");
            assert_ne!(over(&pair(exit), at(35)).exit, contract::ExitCode::Done, "{exit}");
        }
        assert_eq!(over(&pair(1), at(6)).exit, contract::ExitCode::Failed);
    }

    #[test]
    fn a_shard_that_failed_does_not_wait_for_what_never_ran() {
        let broken = ended(2, Some("SyncerUsage"), 5);
        for other in [EndState::Starting(None), EndState::Absent] {
            let outcome = over(&pairs([other, broken.clone()]), at(6));
            assert_eq!((outcome.report.reason.as_deref(), outcome.may_retry), (Some("SyncerUsage"), false));
        }
    }

    #[test]
    fn one_shard_that_stops_is_missing_or_starts_decides_over_those_that_run() {
        let fault = Fault::new(Reason::PodPending, "no node");
        let cases = [
            (EndState::Stopping, Stand::Stopping),
            (EndState::Absent, Stand::Absent),
            (EndState::Starting(Some(fault.clone())), Stand::Starting(Some(fault))),
            (EndState::Running, Stand::Running),
        ];
        for (state, expected) in cases {
            let mut some = pairs([EndState::Running, EndState::Running, EndState::Running]);
            some[1].sink = state;
            assert_eq!(stand(&some, at(1)), expected);
        }
    }
}
