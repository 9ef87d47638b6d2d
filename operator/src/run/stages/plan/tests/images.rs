//! Runs after which the storage takes a VolumeSnapshot of the destination.

use super::*;
use crate::{
    api::{Benchmark, Restore},
    names::TryNames,
    snapshots::destination_image,
};
use contract::Reason;

/// Returns the situation of a run both ends of which have ended well, at that second.
fn over(status: &SyncJobStatus, second: i64) -> Situation<'_> {
    let demand = Demand { image_timeout: Some(Duration::from_secs(60)), ..demand() };
    Situation {
        demand: Ok(demand),
        pairs: pair(ended(0, 9), ended(0, 9)),
        now: at(second),
        ..situation(status)
    }
}

/// Returns a status whose run has asked for its VolumeSnapshot at second 10.
fn asked() -> SyncJobStatus {
    let mut status = with_run();
    destination_image::begin(&mut status, TryNames::new("web", "u", 1, 0).image(), at(10));
    status
}

#[test]
fn a_run_that_succeeded_ends_once_its_image_is_taken() {
    let idle = with_run();
    let Step::Image(StorageStep::Begin(name)) = step(&over(&idle, 10)) else { panic!() };
    let mut status = asked();
    assert_eq!(status.active_run.as_ref().unwrap().image.as_ref().unwrap().name, name);
    let told = |imaged: &Captured| {
        step(&Situation { facts: facts(|it| it.imaged = imaged.clone()), ..over(&status, 11) })
    };
    assert_eq!(told(&Captured::Missing), Step::Image(StorageStep::Wait(None)));
    let full = Fault::new(Reason::Capturing, "The pool is full");
    assert_eq!(told(&Captured::Taking(Some(full.clone()))), Step::Image(StorageStep::Wait(Some(full))));
    let step = told(&Captured::Taken(None));
    let Step::Finish(outcome) = &step else { panic!("{step:?}") };
    assert_eq!(outcome.report.result, RunResult::Succeeded);
    let run = status.active_run.clone().unwrap();
    let result = outcome.report.result;
    destination_image::remember(&mut status, &run, &Captured::Taking(None), result);
    assert_eq!(status.latest_image, None, "the demand was withdrawn before it was taken");
    destination_image::remember(&mut status, &run, &Captured::Taken(None), result);
    assert_eq!(status.latest_image.as_ref().unwrap().name, name);
}

#[test]
fn an_image_that_the_storage_does_not_take_leaves_the_files_in_step_and_says_so() {
    let mut status = asked();
    let taking = Captured::Taking(Some(Fault::new(Reason::Capturing, "The pool is full")));
    let late = finished(step(&Situation { facts: facts(|it| it.imaged = taking), ..over(&status, 70) }));
    assert_eq!(
        (late.result, late.reason.as_deref()),
        (RunResult::PartiallyFailed, Some("VolumeSnapshotFailed"))
    );
    assert!(late.message.starts_with("The files are in step"), "{}", late.message);
    assert!(
        late.message.contains(" 1m00s ") && late.message.ends_with("The pool is full."),
        "{}",
        late.message
    );
    let impossible = Captured::Impossible(Fault::new(Reason::VolumeSnapshotFailed, "No kind."));
    let early = finished(step(&Situation { facts: facts(|it| it.imaged = impossible), ..over(&status, 11) }));
    assert!(early.message.ends_with("No kind."), "{}", early.message);
    let run = status.active_run.clone().unwrap();
    destination_image::remember(&mut status, &run, &Captured::Taken(None), early.result);
    assert_eq!(status.latest_image, None);
}

#[test]
fn no_image_is_taken_of_what_failed_was_restored_or_measured() {
    let failed = with_run();
    let ends = Situation { pairs: pair(ended(5, 5), ended(1, 5)), ..over(&failed, 10) };
    assert!(!matches!(step(&ends), Step::Image(StorageStep::Begin(_))));
    let (restore, benchmark) = (Some(Restore::default()), Some(Benchmark::default()));
    for (restore, benchmark) in [(restore, None), (None, benchmark)] {
        let mut status = with_run();
        let run = status.active_run.take().unwrap();
        status.active_run = Some(ActiveRun { restore, benchmark, ..run });
        assert!(matches!(step(&over(&status, 10)), Step::Finish(_)));
    }
}

#[test]
fn a_name_that_somebody_else_wrote_into_the_status_is_not_the_image_of_a_run() {
    let mut status = with_run();
    let of_another = TryNames::new("web", "another", 1, 0).image();
    for name in ["vf-web-1-image".to_string(), TryNames::new("web", "u", 1, 0).capture(), of_another] {
        destination_image::begin(&mut status, name.clone(), at(0));
        let taken = Situation { facts: facts(|it| it.imaged = Captured::Taken(None)), ..over(&status, 10) };
        assert!(matches!(step(&taken), Step::Image(StorageStep::Begin(own)) if own != name));
    }
}
