use super::*;
use crate::{
    api::{ActiveRun, Restore},
    status::run_status::{
        begin, finish, new_run,
        tests::{KEEP, at, begun, failed, succeeded},
    },
};

/// Returns `Synced` as status, reason and generation.
fn synced(status: &SyncJobStatus) -> (&str, &str, Option<i64>) {
    let it = conditions::find(&status.conditions, conditions::SYNCED).unwrap();
    (&it.status, &it.reason, it.observed_generation)
}

fn message(status: &SyncJobStatus) -> &str {
    &conditions::find(&status.conditions, conditions::SYNCED).unwrap().message
}

#[test]
fn a_job_is_synced_from_its_first_success_until_a_failure() {
    let mut status = begun();
    set_synced(&mut status, false, false, 3, at(0));
    assert_eq!(synced(&status), ("False", "NoCopyYet", Some(3)));
    finish(&mut status, &succeeded(), KEEP, at(3000));
    set_synced(&mut status, true, false, 3, at(3000));
    assert_eq!(synced(&status), ("True", "Succeeded", Some(3)));
    assert_eq!(message(&status), "Run web-1 made the copy at 2027-01-15T08:00:02Z.");
    begin(&mut status, new_run("web", 2, 3, None, at(0)), at(4000));
    set_synced(&mut status, false, false, 3, at(4000));
    assert_eq!(synced(&status).0, "True", "the last run succeeded");
    finish(&mut status, &failed("NoSpace"), KEEP, at(5000));
    set_synced(&mut status, true, false, 3, at(5000));
    assert_eq!(synced(&status), ("False", "NoSpace", Some(3)));
    let said = "Run web-2 did not succeed. It broke. The last success was at 2027-01-15T08:00:02Z.";
    assert_eq!(message(&status), said);
}

#[test]
fn a_spec_that_asks_for_a_run_is_not_synced_by_the_run_before() {
    let mut status = begun();
    finish(&mut status, &succeeded(), KEEP, at(3000));
    set_synced(&mut status, true, false, 3, at(3000));
    begin(&mut status, new_run("web", 2, 4, None, at(0)), at(4000));
    set_synced(&mut status, false, false, 4, at(4000));
    assert_eq!((synced(&status), status.observed_generation), (("True", "Succeeded", Some(3)), Some(4)));
    finish(&mut status, &succeeded(), KEEP, at(5000));
    set_synced(&mut status, true, false, 4, at(5000));
    assert_eq!(synced(&status), ("True", "Succeeded", Some(4)));
}

#[test]
fn a_copy_whose_claim_was_made_anew_is_gone_until_the_next_success() {
    let mut status = begun();
    finish(&mut status, &succeeded(), KEEP, at(3000));
    set_synced(&mut status, true, true, 3, at(3000));
    assert_eq!(synced(&status).1, "CopyGone");
    let before = status.clone();
    set_synced(&mut status, true, true, 3, at(9000));
    assert_eq!(status, before, "told once more, it changes nothing");
    set_synced(&mut status, true, false, 3, at(9000));
    assert_eq!(synced(&status).0, "True");
}

#[test]
fn a_restore_in_place_leaves_no_copy_from_its_beginning_on() {
    let mut status = begun();
    finish(&mut status, &succeeded(), KEEP, at(3000));
    let restore: Restore = serde_json::from_value(serde_json::json!({"snapshot": "gold"})).unwrap();
    let run = ActiveRun { cause: Some(RunCause::Restore), ..new_run("web", 2, 3, None, at(0)) };
    begin(&mut status, ActiveRun { restore: Some(restore), ..run }, at(4000));
    set_synced(&mut status, false, false, 3, at(4000));
    assert_eq!(synced(&status).1, "RestoredInPlace");
    finish(&mut status, &succeeded(), KEEP, at(5000));
    set_synced(&mut status, true, false, 3, at(5000));
    assert_eq!(synced(&status).1, "RestoredInPlace");
}

#[test]
fn damage_in_old_snapshots_makes_no_copy_old() {
    let run =
        Run { result: RunResult::PartiallyFailed, reason: Some("SnapshotsDamaged".into()), ..Run::default() };
    assert!(is_copied(&run));
}
