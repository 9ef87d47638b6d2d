//! Claims that are made or grow before a run, that cannot be mounted, and that are lost.

use super::*;
use crate::volumes::claims::LostClaim;

#[test]
fn a_claim_that_is_to_be_created_is_before_a_run_begins_or_starts_and_not_while_suspended() {
    let idle = SyncJobStatus::default();
    fn creates(status: &SyncJobStatus) -> Situation<'_> {
        let missing = Err(Blocked::Stalled(Fault::new(Reason::ClaimNotFound, "m")));
        Situation { claim_step: Some(ClaimStep::Create), claims: missing, ..situation(status) }
    }
    assert_eq!(step(&creates(&idle)), Step::Claim(ClaimStep::Create));
    let waiting = ActiveRun { start_time: None, ..with_run().active_run.unwrap() };
    let waiting = SyncJobStatus { active_run: Some(waiting), ..SyncJobStatus::default() };
    assert_eq!(
        (step(&creates(&waiting)), step(&creates(&with_run()))),
        (Step::Claim(ClaimStep::Create), Step::Claim(ClaimStep::Create))
    );
    let suspended = Situation { demand: Ok(Demand { suspend: true, ..demand() }), ..creates(&idle) };
    assert_eq!(step(&suspended), Step::Suspend);
}

#[test]
fn a_claim_that_is_to_grow_is_told_so_before_a_run_begins_or_starts_and_not_while_suspended() {
    let idle = SyncJobStatus::default();
    fn grows(status: &SyncJobStatus) -> Situation<'_> {
        Situation { claim_step: Some(ClaimStep::Grow), ..situation(status) }
    }
    let waiting = ActiveRun { start_time: None, ..with_run().active_run.unwrap() };
    let waiting = SyncJobStatus { active_run: Some(waiting), ..SyncJobStatus::default() };
    for status in [&idle, &waiting, &with_run()] {
        assert_eq!(step(&grows(status)), Step::Claim(ClaimStep::Grow), "{status:?}");
    }
    let suspended = Situation { demand: Ok(Demand { suspend: true, ..demand() }), ..grows(&idle) };
    assert_eq!(step(&suspended), Step::Suspend);
    let running = Situation { pairs: pair(EndState::Running, EndState::Running), ..grows(&waiting) };
    assert_ne!(step(&running), Step::Claim(ClaimStep::Grow), "a volume in use is left alone");
}

#[test]
fn a_claim_that_cannot_be_mounted_holds_the_run_back_before_it_begins() {
    let status = SyncJobStatus::default();
    let blocked = Blocked::Stalled(Fault::new(Reason::ClaimNotFound, "m"));
    let Decision { step, again } = next(&Situation { claims: Err(blocked.clone()), ..situation(&status) });
    assert_eq!(step, Step::Block(blocked));
    assert!(again.is_some(), "a storage class is not watched");
}

#[test]
fn a_destination_that_is_lost_halts_the_run_until_it_is_back_and_a_lost_source_lets_it_end() {
    let fault = Fault::new(Reason::ClaimTerminating, "m");
    let mut status = running_since(1);
    let both_run = pair(EndState::Running, EndState::Running);
    let losing = |side, pairs, status| {
        let lost = Some(LostClaim { side, fault: fault.clone() });
        Situation { lost, pairs, ..situation(status) }
    };
    assert_eq!(step(&losing(Side::Source, both_run.clone(), &status)), Step::Run);
    let halt = Step::Halt(fault.clone());
    assert_eq!(step(&losing(Side::Sink, both_run, &status)), halt);
    let over = losing(Side::Sink, pair(ended(0, 5), ended(0, 5)), &status);
    assert_eq!(finished(step(&over)).result, RunResult::Succeeded);

    run_status::halt(&mut status, &fault, at(6));
    let run = status.active_run.as_ref().unwrap();
    assert_eq!((run.retries, run.postponed, run.is_started()), (0, 1, false));
    assert_eq!(step(&situation(&status)), Step::Queue, "the claim is back");
}

#[test]
fn a_job_at_rest_stalls_when_a_claim_is_lost_and_runs_onto_a_destination_made_anew() {
    let mut status = after_run(GENERATION);
    let fault = Fault::new(Reason::ClaimNotFound, "m");
    for side in [Side::Source, Side::Sink] {
        let lost = Situation { lost: Some(LostClaim { side, fault: fault.clone() }), ..situation(&status) };
        assert_eq!(step(&lost), Step::Block(Blocked::Stalled(fault.clone())));
    }
    let anew = |status: &SyncJobStatus| step(&Situation { is_new_destination: true, ..situation(status) });
    assert!(matches!(anew(&status), Step::Begin(_)));
    status.last_run.as_mut().unwrap().result = RunResult::Failed;
    assert_eq!(anew(&status), Step::Rest, "a run onto it was made, and failed");
}

#[test]
fn a_newer_spec_whose_claim_is_not_granted_is_not_recorded_before_that_is_judged() {
    let mut status = with_run();
    let run = status.active_run.as_mut().unwrap();
    (run.start_time, run.stage) = (None, api::Stage::Queued);
    let changed = Situation { job: job(GENERATION + 1, "h2"), ..situation(&status) };
    assert!(matches!(step(&changed), Step::Begin(_)));
    let fault = Fault::new(Reason::NotGranted, "no grant");
    let refused = Situation { not_granted: Some(fault.clone()), ..changed };
    assert_eq!(step(&refused), Step::Block(Blocked::Stalled(fault)));
}

#[test]
fn a_run_waits_while_an_annotation_of_its_namespace_forbids_it_and_ends_by_a_spec_that_cannot_be_run() {
    let started = with_run();
    let mut waiting = with_run();
    waiting.active_run.as_mut().unwrap().start_time = None;
    for status in [&started, &waiting] {
        for (reason, waits) in
            [(Reason::InvalidAnnotation, true), (Reason::RootNotAllowed, true), (Reason::InvalidSpec, false)]
        {
            let fault = Fault::new(reason, "so it is");
            let step = step(&Situation { demand: Err(fault.clone()), ..situation(status) });
            assert_eq!(step == Step::Block(Blocked::Stalled(fault)), waits, "{step:?}");
            assert_eq!(matches!(step, Step::Finish(_)), !waits);
        }
    }
    let mut launched = with_run();
    launched.active_run.as_mut().unwrap().launched = true;
    for (reason, waits) in [(Reason::InvalidAnnotation, true), (Reason::InvalidSpec, false)] {
        let fault = Fault::new(reason, "so it is");
        let step = step(&Situation { demand: Err(fault.clone()), ..situation(&launched) });
        assert_eq!(
            step == Step::Start(Some(fault)),
            waits,
            "another operator may be making its pods: {step:?}"
        );
        assert_eq!(matches!(step, Step::Finish(_)), !waits);
    }
}

#[test]
fn a_run_does_not_wait_for_a_time_that_a_wrong_clock_has_written() {
    let mut status = with_run();
    let run = status.active_run.as_mut().unwrap();
    (run.start_time, run.queue_time) = (None, None);
    for (ahead_s, step_then) in [(60, Step::Await), (3600, Step::Queue)] {
        status.active_run.as_mut().unwrap().again_time = Some(MicroTime(at(ahead_s)));
        assert_eq!(step(&situation(&status)), step_then);
    }
}
