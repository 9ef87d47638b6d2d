//! Tells how a SyncJobSet stands by how its SyncJobs do: counts, the worst of them, and the conditions. Pure.

use std::sync::Arc;

use contract::{Reason, RunResult};
use jiff::Timestamp;
use kube::{ResourceExt as _, core::DeserializeGuard};

use super::members::Plan;
use crate::{
    api::{
        ActiveRun, SyncJob, SyncJobSet, SyncJobSetStatus, WorstJob,
        conditions::{self, Cause},
    },
    human,
};

/// The bound of a message that a SyncJob's status has and a set's repeats.
const MAX_MESSAGE_BYTES: usize = 1024;

/// How badly a SyncJob stands; the worst comes last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Trouble {
    /// The last run left files out.
    Incomplete,
    /// The last run failed.
    Failed,
    /// Snapshots are damaged.
    Corrupt,
    /// It does not go on until a person acts.
    Stalled,
}

/// A SyncJob that stands badly, and what its set tells of it.
struct Troubled<'a> {
    how: Trouble,
    job: &'a SyncJob,
    told: WorstJob,
}

/// Returns the status of a set. `members` are the SyncJobs of the claims that match.
pub fn status(
    set: &SyncJobSet,
    plan: &Plan,
    members: &[Arc<DeserializeGuard<SyncJob>>],
    now: Timestamp,
) -> SyncJobSetStatus {
    let old = set.status.clone().unwrap_or_default();
    let readable: Vec<&SyncJob> = members.iter().filter_map(|job| job.0.as_ref().ok()).collect();
    let with = |kind| readable.iter().filter(|job| is(job, kind)).count();
    let mut troubled: Vec<Troubled<'_>> = readable.iter().filter_map(|job| trouble(job)).collect();
    // Of those that stand equally badly, the one whose copy is the oldest comes first.
    troubled.sort_by_key(|Troubled { how, job, .. }| {
        (std::cmp::Reverse(*how), job.status.as_ref().and_then(last_success), job.name_any())
    });
    let stalled = troubled.iter().filter(|it| it.how == Trouble::Stalled).count();
    let running = readable.iter().filter(|job| active(job).is_some_and(ActiveRun::is_started)).count();
    let mut status = SyncJobSetStatus {
        observed_generation: set.metadata.generation,
        conditions: old.conditions,
        matched: count(plan.matched),
        ready: count(with(conditions::READY)),
        synced: count(with(conditions::SYNCED)),
        running: count(running),
        failed: count(troubled.len()),
        kept: count(plan.kept.len()),
        worst: troubled.into_iter().next().map(|worst| worst.told),
        group_capture: old.group_capture,
        problems: plan.problems.clone(),
    };
    stand(&mut status, stalled, set.metadata.generation.unwrap_or(0), now);
    status
}

/// Sets the conditions by what the status says.
fn stand(status: &mut SyncJobSetStatus, stalled: usize, generation: i64, now: Timestamp) {
    let SyncJobSetStatus { matched, ready, .. } = *status;
    if let Some(first) = status.problems.first() {
        let whom = first.claim.as_ref().map(|claim| format!("Claim {claim}: ")).unwrap_or_default();
        let more = match status.problems.len() {
            1 => String::new(),
            more => format!(" status.problems has {more} such claims."),
        };
        let message = format!("{whom}{}{more}", human::sentence(&first.message));
        let cause = Cause { reason: &first.reason.clone(), message: &message, generation };
        return conditions::stalled(&mut status.conditions, cause, now);
    }
    if let Some(worst) = status.worst.as_ref().filter(|_| stalled > 0) {
        let message = format!(
            "Of {matched} SyncJobs, {stalled} cannot go on until a person acts. The first to look at is {}: {}",
            worst.name, worst.message
        );
        let cause = Cause { reason: &Reason::JobStalled, message: &message, generation };
        return conditions::stalled(&mut status.conditions, cause, now);
    }
    if ready < matched {
        let message = format!("Of {matched} SyncJobs, {ready} are ready.");
        let cause = Cause { reason: &Reason::JobsNotReady, message: &message, generation };
        return conditions::reconciling(&mut status.conditions, cause, now);
    }
    let (reason, message) = match matched {
        0 => (&Reason::NoClaimMatches, "No claim matches spec.claimSelector.".to_string()),
        _ => (&Reason::JobsReady, format!("All SyncJobs are ready, one for each of {matched} claims.")),
    };
    conditions::ready(&mut status.conditions, Cause { reason, message: &message, generation }, now);
}

/// Returns how badly a SyncJob stands; `None` if nothing is wrong.
fn trouble(job: &SyncJob) -> Option<Troubled<'_>> {
    let status = job.status.as_ref()?;
    let troubled = |how, reason: Reason, message: &str| {
        let message = human::clipped(message, MAX_MESSAGE_BYTES);
        Some(Troubled { how, job, told: WorstJob { name: job.name_any(), reason, message } })
    };
    for (how, kind) in [(Trouble::Stalled, conditions::STALLED), (Trouble::Corrupt, conditions::CORRUPT)] {
        let there = conditions::find(&status.conditions, kind).filter(|it| it.status == "True");
        if let Some(condition) = there {
            return troubled(how, condition.reason.as_str().into(), &condition.message);
        }
    }
    let run = status.last_run.as_ref()?;
    let how = match run.result {
        RunResult::Failed => Trouble::Failed,
        RunResult::PartiallyFailed => Trouble::Incomplete,
        RunResult::Succeeded | RunResult::Canceled => return None,
    };
    let reason = run.reason.clone().unwrap_or(Reason::Failed);
    troubled(how, reason, run.message.as_deref().unwrap_or_default())
}

fn is(job: &SyncJob, kind: &str) -> bool {
    let Some(status) = &job.status else { return false };
    // What an older spec came to says nothing of this one.
    let is_current = kind != conditions::READY || status.observed_generation == job.metadata.generation;
    is_current && conditions::is_true(&status.conditions, kind)
}

fn active(job: &SyncJob) -> Option<&ActiveRun> {
    job.status.as_ref()?.active_run.as_ref()
}

fn last_success(status: &crate::api::SyncJobStatus) -> Option<Timestamp> {
    status.last_success_time.as_ref().map(|time| time.0)
}

fn count(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Returns whether two statuses differ in more than counts, so that somebody may wait for the difference.
pub fn is_news(old: &SyncJobSetStatus, new: &SyncJobSetStatus) -> bool {
    let words = |status: &SyncJobSetStatus| -> Vec<(String, String, String)> {
        let of = status.conditions.iter();
        of.map(|it| (it.type_.clone(), it.status.clone(), it.reason.clone())).collect()
    };
    old.observed_generation != new.observed_generation
        || old.problems != new.problems
        || old.group_capture != new.group_capture
        || words(old) != words(new)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};

    use super::*;
    use crate::api::{Run, SetProblem, SyncJobSetSpec, SyncJobSpec, SyncJobStatus};

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn job(name: &str, change: impl Fn(&mut SyncJobStatus)) -> Arc<DeserializeGuard<SyncJob>> {
        let mut job = SyncJob::new(name, SyncJobSpec::default());
        job.metadata.generation = Some(1);
        let status = job.status.get_or_insert_default();
        status.observed_generation = Some(1);
        let cause = Cause { reason: &Reason::Succeeded, message: "m", generation: 1 };
        conditions::ready(&mut status.conditions, cause, NOW);
        conditions::set(&mut status.conditions, conditions::SYNCED, true, cause, NOW);
        change(status);
        Arc::new(DeserializeGuard(Ok(job)))
    }

    fn ended(status: &mut SyncJobStatus, result: RunResult, success: Option<i64>) {
        let message = Some(format!("it {result:?}"));
        status.last_run = Some(Run { result, reason: Some("PeerLost".into()), message, ..Run::default() });
        status.last_success_time = success.map(|at| Time(Timestamp::from_second(at).unwrap()));
        let cause = Cause { reason: &Reason::PeerLost, message: "m", generation: 1 };
        conditions::set(&mut status.conditions, conditions::SYNCED, false, cause, NOW);
    }

    fn stall(status: &mut SyncJobStatus) {
        let cause = Cause { reason: &Reason::ClaimNotFound, message: "Create it.", generation: 1 };
        conditions::stalled(&mut status.conditions, cause, NOW);
    }

    fn status_of(members: &[Arc<DeserializeGuard<SyncJob>>], problems: Vec<SetProblem>) -> SyncJobSetStatus {
        let plan = Plan { matched: members.len(), problems, ..Plan::default() };
        status(&SyncJobSet::new("web", SyncJobSetSpec::default()), &plan, members, NOW)
    }

    fn said(status: &SyncJobSetStatus) -> (&str, &str) {
        let kinds = [conditions::STALLED, conditions::RECONCILING, conditions::READY];
        let found = kinds.iter().find_map(|kind| conditions::find(&status.conditions, kind)).unwrap();
        (found.type_.as_str(), found.reason.as_str())
    }

    #[test]
    fn a_set_is_ready_once_all_of_its_jobs_are_and_progresses_until_then() {
        let fresh = job("b", |status| status.observed_generation = Some(0));
        let (done, underway) = (
            job("a", |_| {}),
            job("c", |status| {
                status.active_run =
                    Some(ActiveRun { start_time: Some(MicroTime(NOW)), ..ActiveRun::default() });
            }),
        );
        let told = status_of(&[done.clone(), fresh, underway], vec![]);
        assert_eq!(said(&told), ("Reconciling", "JobsNotReady"));
        assert_eq!((told.matched, told.ready, told.synced, told.running, told.failed), (3, 2, 3, 1, 0));
        assert_eq!((said(&status_of(&[done], vec![])), told.worst), (("Ready", "JobsReady"), None));
        assert_eq!(said(&status_of(&[], vec![])), ("Ready", "NoClaimMatches"));
    }

    #[test]
    fn the_worst_job_is_one_that_needs_a_person_and_else_the_one_with_the_oldest_copy() {
        let failed = |name, at| job(name, move |status| ended(status, RunResult::Failed, at));
        let partly = job("partly", |status| ended(status, RunResult::PartiallyFailed, None));
        let told = status_of(&[failed("a", Some(5)), partly.clone(), failed("b", Some(3))], vec![]);
        assert_eq!((told.failed, told.worst.as_ref().unwrap().name.as_str()), (3, "b"));
        assert_eq!(said(&told), ("Ready", "JobsReady"), "the next run of a schedule may succeed");
        let never = status_of(&[failed("a", Some(5)), failed("never", None)], vec![]);
        assert_eq!(never.worst.unwrap().name, "never");
        let told = status_of(&[failed("a", None), job("stuck", stall), partly], vec![]);
        assert_eq!(said(&told), ("Stalled", "JobStalled"));
        let message = &conditions::find(&told.conditions, conditions::STALLED).unwrap().message;
        assert!(message.ends_with("The first to look at is stuck: Create it."), "{message}");
    }

    #[test]
    fn a_claim_without_its_job_stalls_the_set_by_name() {
        let problem = SetProblem {
            claim: Some("data-0".into()),
            reason: "NameTaken".into(),
            message: "it is there".into(),
            ..SetProblem::default()
        };
        let told = status_of(&[job("a", |_| {})], vec![problem]);
        assert_eq!(said(&told), ("Stalled", "NameTaken"));
        let message = &conditions::find(&told.conditions, conditions::STALLED).unwrap().message;
        assert!(message.starts_with("Claim data-0: it is there"), "{message}");
    }

    #[test]
    fn counts_alone_are_no_news() {
        let (one, two) = (
            status_of(&[job("a", |_| {})], vec![]),
            status_of(&[job("a", |_| {}), job("b", |_| {})], vec![]),
        );
        assert!(one != two && !is_news(&one, &two));
        assert!(is_news(&one, &status_of(&[job("a", stall)], vec![])));
    }
}
