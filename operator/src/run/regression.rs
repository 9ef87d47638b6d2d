//! Detects from its history whether a job's runs have become slower. Pure.
//!
//! The rule is the one of `volferry report`, in [`contract::regression`]. Since a history forgets, the baseline for
//! later runs is stored in the status, for each kind of run.

use contract::Reason;
use contract::regression::{self, Judged, Rule, Sample, Slower, Verdict};
use jiff::Timestamp;

use crate::{
    api::{
        Baseline, HistoryEntry, SyncJobStatus,
        conditions::{self, Cause, PERFORMANCE_REGRESSED},
    },
    human,
};

/// Judges the run that has just ended, which is the first of the history, and updates the baseline of its kind and the
/// condition. Runs that did not succeed are ignored.
pub fn judge(status: &mut SyncJobStatus, rule: Rule, generation: i64, now: Timestamp) {
    let Some((last, sample)) = status.history.first().and_then(|last| Some((last, sample(last)?))) else {
        return;
    };
    let runs: Vec<Sample> = status.history.iter().rev().filter_map(self::sample).collect();
    let at = status.baseline.iter().position(|it| it.usual.kind == sample.kind);
    let known = at.map(|at| &status.baseline[at].usual);
    let known = known.filter(|known| known.runs as usize == rule.window);
    let Judged { baseline: usual, verdict } = regression::judge_by(&runs, known, rule);
    let said = said(last, &sample, &verdict);
    let slower = verdict.slower.and_then(|_| said.clone());
    match (at, usual) {
        (Some(at), Some(usual)) => status.baseline[at] = Baseline { usual, slower },
        // Runs of this kind have another size now, and the usual duration for it is not known yet.
        (Some(at), None) => status.baseline[at].slower = None,
        (None, Some(usual)) => status.baseline.push(Baseline { usual, slower }),
        (None, None) => {}
    }
    status.baseline.sort_by_key(|it| it.usual.kind);
    set_condition(status, said, generation, now);
}

/// Removes the baselines and the condition, because the spec no longer asks for the comparison.
pub fn forget(status: &mut SyncJobStatus) {
    status.baseline.clear();
    conditions::remove(&mut status.conditions, PERFORMANCE_REGRESSED);
}

/// Sets the condition, which is true as long as the runs of any kind are slower.
fn set_condition(status: &mut SyncJobStatus, said: Option<String>, generation: i64, now: Timestamp) {
    let slower = status.baseline.iter().find_map(|it| it.slower.clone());
    let (is_slower, reason) = match &slower {
        Some(_) => (true, &Reason::Slower),
        None => (false, &Reason::AsUsual),
    };
    let Some(message) = slower.or(said) else {
        return conditions::remove(&mut status.conditions, PERFORMANCE_REGRESSED);
    };
    let cause = Cause { reason, message: &message, generation };
    conditions::set(&mut status.conditions, PERFORMANCE_REGRESSED, is_slower, cause, now);
}

/// Describes the verdict on a run, with its figures.
fn said(run: &HistoryEntry, sample: &Sample, verdict: &Verdict) -> Option<String> {
    let usual = verdict.usual?;
    let ms = human::milliseconds;
    let held = format!(
        "Usual is {}, the median of {} comparable runs, and up to {} is ordinary.",
        ms(usual.median_ms),
        usual.runs,
        ms(usual.limit_ms)
    );
    let took = match &verdict.slower {
        None => format!("Run {} took {}.", run.id, ms(sample.timings.running())),
        Some(Slower { ratio, phase, phase_before_ms, phase_now_ms }) => format!(
            "Run {} and the two like it before took {ratio:.2} times as long as usual; {phase} has grown most, from {} to {}.",
            run.id,
            ms(*phase_before_ms),
            ms(*phase_now_ms)
        ),
    };
    Some(format!("{took} {held}"))
}

fn sample(entry: &HistoryEntry) -> Option<Sample> {
    let kind = entry.kind.filter(|_| entry.result == contract::RunResult::Succeeded)?;
    let HistoryEntry { files_scanned, bytes_changed, timings, .. } = *entry;
    Some(Sample { kind, files_scanned, bytes_changed, timings })
}

#[cfg(test)]
mod tests {
    use contract::{RunKind, RunResult, Timings};

    use super::*;

    const RULE: Rule = Rule { window: 4, threshold: 1.5 };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// Returns a run with that transfer time.
    fn run(number: usize, kind: RunKind, transfer: u64) -> HistoryEntry {
        HistoryEntry {
            id: format!("web-{number}"),
            kind: Some(kind),
            files_scanned: 5_000,
            timings: Timings {
                queue: 77,
                scan: 1_000,
                transfer,
                total: transfer + 1_077,
                ..Timings::default()
            },
            ..HistoryEntry::default()
        }
    }

    /// Adds runs with these transfer times to the status, whose history keeps the last five.
    fn after(status: &mut SyncJobStatus, kind: RunKind, transfers: &[u64]) {
        for transfer in transfers {
            let number = 1 + status.history.len();
            status.history.insert(0, run(number, kind, *transfer));
            status.history.truncate(5);
            judge(status, RULE, 3, at(number as i64));
        }
    }

    fn condition(status: &SyncJobStatus) -> Option<(&str, &str, &str)> {
        let found = conditions::find(&status.conditions, PERFORMANCE_REGRESSED)?;
        Some((&found.status, &found.reason, &found.message))
    }

    #[test]
    fn a_job_says_nothing_until_there_are_enough_runs_and_then_what_is_usual() {
        let mut status = SyncJobStatus::default();
        after(&mut status, RunKind::Changed, &[4000, 4000, 4000]);
        assert_eq!((condition(&status), status.baseline.len()), (None, 0));
        after(&mut status, RunKind::Changed, &[4100]);
        assert_eq!(
            condition(&status),
            Some((
                "False",
                "AsUsual",
                "Run web-4 took 5.1s. Usual is 5.0s, the median of 4 comparable runs, and up to 6.1s is ordinary."
            ))
        );
        assert_eq!((status.baseline[0].usual.median_ms, status.baseline[0].usual.runs), (5000, 4));
    }

    #[test]
    fn three_slow_runs_raise_the_condition_once_and_a_usual_one_clears_it() {
        let mut status = SyncJobStatus::default();
        after(&mut status, RunKind::Changed, &[4000, 4000, 4000, 4000, 9000, 9000]);
        assert_eq!(condition(&status).unwrap().0, "False");
        after(&mut status, RunKind::Changed, &[9000]);
        let (is, why, message) = condition(&status).unwrap();
        assert_eq!((is, why), ("True", "Slower"));
        assert!(
            message.contains("took 2.00 times as long as usual; transfer has grown most, from 4.0s to 9.0s."),
            "{message}"
        );
        let since =
            conditions::find(&status.conditions, PERFORMANCE_REGRESSED).unwrap().last_transition_time.clone();
        // The history contains only slow runs by now; the baseline stays.
        after(&mut status, RunKind::Changed, &[9000; 8]);
        let there = conditions::find(&status.conditions, PERFORMANCE_REGRESSED).unwrap();
        assert_eq!((there.status.as_str(), &there.last_transition_time), ("True", &since));
        after(&mut status, RunKind::Changed, &[4000]);
        assert_eq!(condition(&status).unwrap().0, "False");
    }

    #[test]
    fn kinds_of_runs_are_judged_apart_and_one_does_not_clear_the_other() {
        let mut status = SyncJobStatus::default();
        after(&mut status, RunKind::Unchanged, &[100; 4]);
        after(&mut status, RunKind::Changed, &[4000; 4]);
        after(&mut status, RunKind::Changed, &[9000; 3]);
        assert_eq!(condition(&status).unwrap().0, "True");
        after(&mut status, RunKind::Unchanged, &[100]);
        let (is, _, message) = condition(&status).unwrap();
        assert!(is == "True" && message.contains("transfer has grown most"), "{message}");
        assert_eq!(status.baseline.len(), 2);
        after(&mut status, RunKind::Changed, &[4000]);
        assert_eq!(condition(&status).unwrap().0, "False");
    }

    #[test]
    fn runs_that_failed_say_nothing_and_runs_of_another_size_end_the_alarm() {
        let mut status = SyncJobStatus::default();
        after(&mut status, RunKind::Changed, &[4000, 4000, 4000, 4000, 9000, 9000, 9000]);
        let before = status.clone();
        status.history.insert(0, HistoryEntry { result: RunResult::Failed, ..run(9, RunKind::Changed, 1) });
        judge(&mut status, RULE, 3, at(99));
        assert_eq!((&status.conditions, &status.baseline), (&before.conditions, &before.baseline));
        status.history.insert(0, HistoryEntry { files_scanned: 50_000, ..run(10, RunKind::Changed, 90_000) });
        judge(&mut status, RULE, 3, at(100));
        assert_eq!(condition(&status), None);
        assert_eq!(status.baseline[0].usual, before.baseline[0].usual, "the tree may shrink again");
    }

    #[test]
    fn a_job_that_asks_for_no_comparison_any_more_has_no_condition() {
        let mut status = SyncJobStatus::default();
        after(&mut status, RunKind::Changed, &[4000; 4]);
        forget(&mut status);
        assert_eq!((condition(&status), status.baseline.len()), (None, 0));
    }
}
