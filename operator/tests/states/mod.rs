//! The states that a SyncJob of generation 1 comes through, each with what tools have to make of it.

#![allow(dead_code)] // each program that includes this asks some of the tools

use contract::{ExitCode, Reason, Report, RunResult};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use operator::{
    api::{ActiveRun, Restore, RunCause, SyncJobStatus},
    fault::Fault,
    run::outcome::Outcome,
    status::{readiness, run_status, synced},
    volumes::claims::Blocked,
};

/// A state, and the verdicts of tools on it.
pub(crate) struct State {
    /// What has happened.
    pub(crate) name: &'static str,
    /// The status.
    pub(crate) status: SyncJobStatus,
    /// What kstatus says, which looks at `Ready`, `Reconciling` and `Stalled`.
    pub(crate) kstatus: &'static str,
    /// What Flux says by the expressions in `config/flux`.
    pub(crate) flux: &'static str,
    /// What Argo CD says by the Lua in `config/argocd`.
    pub(crate) argo: &'static str,
}

const NOW: Timestamp = Timestamp::UNIX_EPOCH;
const IN_PROGRESS: &str = "InProgress";
const CURRENT: &str = "Current";
const FAILED: &str = "Failed";

/// Returns all states.
pub(crate) fn all() -> Vec<State> {
    [unseen(), asked_for(), by_the_schedule(), restored()].into_iter().flatten().collect()
}

fn state(name: &'static str, status: SyncJobStatus, verdicts: [&'static str; 3]) -> State {
    let [kstatus, flux, argo] = verdicts;
    State { name, status, kstatus, flux, argo }
}

fn unseen() -> Vec<State> {
    let seen =
        |generation| SyncJobStatus { observed_generation: Some(generation), ..SyncJobStatus::default() };
    let older = SyncJobStatus { observed_generation: Some(0), ..over(begun(RunCause::Spec), &good()) };
    vec![
        state("new", seen(-1), [IN_PROGRESS, IN_PROGRESS, "Progressing"]),
        state("changed", older, [IN_PROGRESS, IN_PROGRESS, "Progressing"]),
    ]
}

/// Runs that the spec or a person asks for, without a schedule.
fn asked_for() -> Vec<State> {
    let progressing = [IN_PROGRESS, IN_PROGRESS, "Progressing"];
    let needs_person = [FAILED, FAILED, "Degraded"];
    let done = || over(begun(RunCause::Spec), &good());
    let again = |before| begins(before, RunCause::Manual);
    let lost = Fault::new(Reason::ClaimNotFound, "no claim");
    let pending = Fault::new(Reason::ClaimNotBound, "not bound");
    vec![
        state("begun", begun(RunCause::Spec), progressing),
        state("pods start", stuck(begun(RunCause::Spec)), progressing),
        state("running", running(begun(RunCause::Spec)), progressing),
        state("succeeded", done(), [CURRENT, CURRENT, "Healthy"]),
        state("asked for once more", again(done()), progressing),
        state("failed", over(begun(RunCause::Spec), &bad()), needs_person),
        state("asked for after a failure", again(over(begun(RunCause::Spec), &bad())), progressing),
        state("refused", over(begun(RunCause::Spec), &refused()), needs_person),
        state("suspended", suspended(SyncJobStatus::default(), false), [CURRENT, CURRENT, "Suspended"]),
        state(
            "suspended after a failure",
            suspended(over(begun(RunCause::Spec), &bad()), false),
            needs_person,
        ),
        state("no claim", blocked(done(), &Blocked::Stalled(lost)), needs_person),
        state("claim not bound", blocked(SyncJobStatus::default(), &Blocked::Waiting(pending)), progressing),
    ]
}

/// Runs that fall due by a schedule.
fn by_the_schedule() -> Vec<State> {
    let healthy = [CURRENT, CURRENT, "Healthy"];
    let missed = [CURRENT, FAILED, "Degraded"];
    let new = || settled(SyncJobStatus { next_run_time: Some(Time(NOW)), ..SyncJobStatus::default() });
    let scheduled = |status| begins(status, RunCause::Schedule);
    let done = || over(scheduled(new()), &good());
    let failed = || over(scheduled(new()), &bad());
    let refused = || over(scheduled(new()), &refused());
    vec![
        state("waits for its first time", new(), [CURRENT, IN_PROGRESS, "Healthy"]),
        state("first run", running(scheduled(new())), [CURRENT, IN_PROGRESS, "Progressing"]),
        state("succeeded by schedule", done(), healthy),
        state("next run", scheduled(done()), healthy),
        state("next run, pods do not start", stuck(scheduled(done())), healthy),
        state("next run, running", running(scheduled(done())), healthy),
        state("failed by schedule", failed(), missed),
        state("next run after a failure", running(scheduled(failed())), missed),
        state("refused by schedule", refused(), [FAILED, FAILED, "Degraded"]),
        state("next run after a refusal", running(scheduled(refused())), [FAILED, FAILED, "Degraded"]),
        state("succeeded after a failure", over(scheduled(failed()), &good()), healthy),
        state("run now", begins(done(), RunCause::Manual), [IN_PROGRESS, IN_PROGRESS, "Progressing"]),
        state("suspended with schedule", suspended(done(), true), [CURRENT, CURRENT, "Suspended"]),
    ]
}

/// Restores in place.
fn restored() -> Vec<State> {
    let before = || over(begun(RunCause::Spec), &good());
    let back = || begins(before(), RunCause::Restore);
    vec![
        state("restoring", running(back()), [IN_PROGRESS, IN_PROGRESS, "Progressing"]),
        state("restored", over(back(), &good()), [CURRENT, IN_PROGRESS, "Suspended"]),
        state("restore failed", over(back(), &bad()), [FAILED, FAILED, "Degraded"]),
    ]
}

fn begun(cause: RunCause) -> SyncJobStatus {
    begins(SyncJobStatus::default(), cause)
}

fn begins(mut status: SyncJobStatus, cause: RunCause) -> SyncJobStatus {
    let restore = Restore { snapshot: "latest".into(), safety: true, ..Restore::default() };
    let restore = (cause == RunCause::Restore).then_some(restore);
    let run = run_status::new_run("web", 1, 1, None, NOW);
    run_status::begin(&mut status, ActiveRun { cause: Some(cause), restore, ..run }, NOW);
    tell(status)
}

fn running(mut status: SyncJobStatus) -> SyncJobStatus {
    run_status::running(&mut status, NOW);
    tell(status)
}

fn stuck(mut status: SyncJobStatus) -> SyncJobStatus {
    run_status::preparing(&mut status, Some(&Fault::new(Reason::PodPending, "no node")), NOW);
    tell(status)
}

fn over(mut status: SyncJobStatus, outcome: &Outcome) -> SyncJobStatus {
    run_status::finish(&mut status, outcome, None, NOW);
    tell(status)
}

fn suspended(mut status: SyncJobStatus, is_scheduled: bool) -> SyncJobStatus {
    readiness::suspended(&mut status, is_scheduled, 1, NOW);
    tell(status)
}

fn blocked(mut status: SyncJobStatus, why: &Blocked) -> SyncJobStatus {
    readiness::blocked(&mut status, why, 1, NOW);
    tell(status)
}

fn settled(mut status: SyncJobStatus) -> SyncJobStatus {
    readiness::rest(&mut status, 1, NOW);
    tell(status)
}

/// Completes a status as each step does.
fn tell(mut status: SyncJobStatus) -> SyncJobStatus {
    let settles = status.active_run.as_ref().is_none_or(ActiveRun::is_routine);
    synced::set_synced(&mut status, settles, false, 1, NOW);
    status
}

fn good() -> Outcome {
    Outcome { report: Report::default(), may_retry: false, exit: ExitCode::Done }
}

fn bad() -> Outcome {
    ended(ExitCode::Failed, "NoSpace")
}

fn refused() -> Outcome {
    ended(ExitCode::Guard, "DeleteLimitExceeded")
}

fn ended(exit: ExitCode, reason: &str) -> Outcome {
    let report = Report {
        result: RunResult::Failed,
        reason: Some(reason.into()),
        message: "said".into(),
        ..Report::default()
    };
    Outcome { report, may_retry: false, exit }
}
