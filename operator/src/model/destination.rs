//! Remembers which volume a job's destination is. Pure.
//!
//! A claim can lead to another volume than before, for example if an export is not mounted, or a node with a local
//! folder was replaced. So the volume id that the engine stores on a destination is remembered in the status, and the
//! next run expects it. A claim that was deleted and created again is another claim, with no expectation.

use contract::{Report, RunResult, VolumeId};

use super::validate::ValidatedSyncJob;
use crate::api::{KnownDestination, SyncJobStatus};

/// The reason of a run that was refused because its destination is a different volume.
pub const OTHER_DESTINATION: &str = "OtherDestination";
/// The remedy for that, which follows the engine's message.
pub const REMEDY: &str = "The expected id is that of the last successful run. If this volume shall be written to \
                          instead, remove status.destination of the SyncJob (`kubectl edit syncjob \
                          --subresource=status`).";

/// Returns the volume id that a run must find, if the job's destination is the remembered one; `uid` is the UID of its
/// claim.
pub fn expected(status: &SyncJobStatus, job: &ValidatedSyncJob, uid: Option<&str>) -> Option<VolumeId> {
    let known = status.destination.as_ref()?;
    (*known == place(job, uid, known.volume)).then_some(known.volume)
}

/// Returns whether the claim that the last successful run wrote to was recreated since, so that the copy is gone.
pub fn is_new(status: &SyncJobStatus, job: &ValidatedSyncJob, uid: Option<&str>) -> bool {
    let known = status.destination.as_ref().filter(|known| known.claim_name == job.destination.claim.name);
    known.is_some_and(|known| known.claim_uid.is_some() && uid.is_some() && known.claim_uid.as_deref() != uid)
}

/// Stores the volume id of a successful run in the status.
pub fn remember(status: &mut SyncJobStatus, job: &ValidatedSyncJob, uid: Option<&str>, report: &Report) {
    if let (RunResult::Succeeded, Some(volume)) = (report.result, report.volume) {
        status.destination = Some(place(job, uid, volume));
    } else if report.result == RunResult::Succeeded && is_new(status, job, uid) {
        status.destination = None;
    }
}

fn place(job: &ValidatedSyncJob, uid: Option<&str>, volume: VolumeId) -> KnownDestination {
    KnownDestination {
        claim_name: job.destination.claim.name.clone(),
        claim_uid: uid.map(Into::into),
        path: job.destination.folder.as_str().into(),
        volume,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::validate::validate;

    const ID: VolumeId = VolumeId::new([7; 16]);

    fn job(claim: &str, path: &str) -> ValidatedSyncJob {
        let spec = json!({
            "source": {"persistentVolumeClaim": {"claimName": "a"}},
            "destination": {"persistentVolumeClaim": {"claimName": claim}, "path": path},
        });
        validate(&serde_json::from_value(spec).unwrap(), "web", "prod").unwrap()
    }

    fn report(result: RunResult, volume: Option<VolumeId>) -> Report {
        Report { result, volume, ..Report::default() }
    }

    fn after(report: &Report) -> SyncJobStatus {
        let mut status = SyncJobStatus::default();
        remember(&mut status, &job("b", "/"), Some("u"), report);
        status
    }

    #[test]
    fn the_destination_of_a_success_is_expected_by_the_next_run() {
        let status = after(&report(RunResult::Succeeded, Some(ID)));
        assert_eq!(expected(&status, &job("b", "/"), Some("u")), Some(ID));
    }

    #[test]
    fn another_claim_another_folder_and_a_claim_that_was_made_anew_are_not_known() {
        let status = after(&report(RunResult::Succeeded, Some(ID)));
        for (job, uid) in [
            (job("c", "/"), Some("u")),
            (job("b", "/x"), Some("u")),
            (job("b", "/"), Some("v")),
            (job("b", "/"), None),
        ] {
            assert_eq!(expected(&status, &job, uid), None, "{:?} {uid:?}", job.destination);
        }
    }

    #[test]
    fn only_a_success_with_an_id_is_remembered_and_nothing_else_forgets_it() {
        for report in [
            report(RunResult::PartiallyFailed, Some(ID)),
            report(RunResult::Failed, Some(ID)),
            report(RunResult::Succeeded, None),
        ] {
            assert_eq!(after(&report).destination, None);
            let mut known =
                after(&Report { result: RunResult::Succeeded, volume: Some(ID), ..Report::default() });
            remember(&mut known, &job("b", "/"), Some("u"), &report);
            assert_eq!(expected(&known, &job("b", "/"), Some("u")), Some(ID));
        }
    }
}
