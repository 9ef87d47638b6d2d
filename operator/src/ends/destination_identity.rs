//! Remembers which volume a job's destination is. Pure.
//!
//! A claim can lead to another volume than before, for example if an export is not mounted, or a node with a local
//! folder was replaced. So the volume id that the engine stores on a destination is remembered in the status, and the
//! next run expects it. A claim that was deleted and created again is another claim, with no expectation.

use contract::{Reason, Report, RunResult, Side, VolumeId};

use crate::{
    api::{KnownDestination, RunFolder, SyncJobStatus},
    run::run_annotations::RunNames,
    spec::validate::ValidatedSyncJob,
};

/// The remedy for a run that was refused because its destination is another volume. It follows the engine's message.
pub const REMEDY: &str = "The expected id is that of the last successful run. If this volume shall be written to \
                          instead, annotate the SyncJob with its id, volferry.dev/accept-volume=ID, or, if it has none, \
                          with the UID of this run (status.lastRun.uid).";

/// Returns the volume id that a run must find, if the job's destination is the remembered one; `uid` is the UID of its
/// claim.
pub fn expected(status: &SyncJobStatus, job: &ValidatedSyncJob, uid: Option<&str>) -> Option<VolumeId> {
    let known = status.destination.as_ref()?;
    let folder = job.run_folder(Side::Sink);
    (*known == known_as(&folder, uid.map(Into::into), known.volume)).then_some(known.volume)
}

/// Remembers another volume as the destination, if the last run was refused because of it and a person has `accepted`
/// it: by its id, or, for a volume without one, by the UID of that run. `job` is the SyncJob's name.
pub fn accept(status: &mut SyncJobStatus, job: &str, accepted: Option<&str>) {
    let Some(last) = status.last_run.as_ref().filter(|_| status.active_run.is_none()) else { return };
    let Some(accepted) = accepted.filter(|_| last.reason == Some(Reason::OtherDestination)) else {
        return;
    };
    if RunNames::from(last).is_meant(accepted, job) {
        status.destination = None;
    } else if let (Some(known), Ok(id)) = (&mut status.destination, accepted.parse()) {
        known.volume = id;
    }
}

/// Returns whether the claim that the last successful run wrote to was recreated since, so that the copy is gone.
pub fn is_new(status: &SyncJobStatus, job: &ValidatedSyncJob, uid: Option<&str>) -> bool {
    let Some(claim) = job.ends.sink.claim() else { return false };
    let namespace = claim.namespace_from(&job.namespace);
    let is_it = |known: &&KnownDestination| known.claim_name == claim.name && known.namespace == namespace;
    let known = status.destination.as_ref().filter(is_it);
    known.is_some_and(|known| known.claim_uid.is_some() && uid.is_some() && known.claim_uid.as_deref() != uid)
}

/// Stores the volume id of a successful run in the status, with the `folder` that it wrote to. `job` is the SyncJob of
/// now, if it is valid, which may name another one by then, and `uid` the UID of its claim.
pub fn remember(
    status: &mut SyncJobStatus,
    folder: &RunFolder,
    job: Option<&ValidatedSyncJob>,
    uid: Option<&str>,
    report: &Report,
) {
    if report.result != RunResult::Succeeded {
        return;
    }
    if let Some(volume) = report.volume {
        let is_it = |other: &RunFolder| known_as(other, None, volume) == known_as(folder, None, volume);
        let before = status
            .destination
            .take()
            .filter(|known| *known == known_as(folder, known.claim_uid.clone(), known.volume));
        let claim_uid = match job {
            Some(job) if is_it(&job.run_folder(Side::Sink)) => uid.map(Into::into),
            _ => before.and_then(|known| known.claim_uid),
        };
        status.destination = Some(known_as(folder, claim_uid, volume));
    } else if job.is_some_and(|job| is_new(status, job, uid)) {
        status.destination = None;
    }
}

fn known_as(folder: &RunFolder, claim_uid: Option<String>, volume: VolumeId) -> KnownDestination {
    let RunFolder { claim_name, address, namespace, path, .. } = folder.clone();
    KnownDestination { claim_name, address, namespace, claim_uid, path, volume }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{api::Run, spec::validate::validate};

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
        remember_in(&mut status, &job("b", "/"), &job("b", "/"), report);
        status
    }

    /// Remembers the folder of a run of one spec, while the SyncJob has another one.
    fn remember_in(
        status: &mut SyncJobStatus,
        ran: &ValidatedSyncJob,
        now: &ValidatedSyncJob,
        report: &Report,
    ) {
        remember(status, &ran.run_folder(Side::Sink), Some(now), Some("u"), report);
    }

    #[test]
    fn the_destination_of_a_success_is_expected_by_the_next_run() {
        let status = after(&report(RunResult::Succeeded, Some(ID)));
        assert_eq!(expected(&status, &job("b", "/"), Some("u")), Some(ID));
    }

    #[test]
    fn what_a_run_wrote_is_remembered_under_its_own_claim_although_the_job_names_another_by_then() {
        let mut status = after(&report(RunResult::Succeeded, Some(ID)));
        remember_in(&mut status, &job("b", "/"), &job("c", "/"), &report(RunResult::Succeeded, Some(ID)));
        assert_eq!(expected(&status, &job("c", "/"), Some("u")), None);
        assert_eq!(expected(&status, &job("b", "/"), Some("u")), Some(ID));
        let folder = job("b", "/").run_folder(Side::Sink);
        remember(&mut status, &folder, None, None, &report(RunResult::Succeeded, Some(ID)));
        assert_eq!(expected(&status, &job("b", "/"), Some("u")), Some(ID), "the spec cannot be read");
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
            assert_eq!(expected(&status, &job, uid), None, "{:?} {uid:?}", job.ends.sink);
        }
    }

    #[test]
    fn another_volume_is_accepted_by_its_id_once_a_run_was_refused_for_it() {
        let other = VolumeId::new([8; 16]);
        let accepted = |reason: Option<&str>, id: &str| {
            let mut status = after(&report(RunResult::Succeeded, Some(ID)));
            let reason = reason.map(Into::into);
            status.last_run = Some(Run { id: "web-3".into(), number: 3, reason, ..Run::default() });
            accept(&mut status, "web", Some(id));
            expected(&status, &job("b", "/"), Some("u"))
        };
        assert_eq!(accepted(Some("OtherDestination"), &other.to_string()), Some(other));
        assert_eq!(accepted(Some("OtherDestination"), "web-3"), None, "it has no id");
        assert_eq!(accepted(Some("OtherDestination"), "web-2"), Some(ID), "that run was another");
        assert_eq!(
            accepted(None, &other.to_string()),
            Some(ID),
            "an annotation that was left is of no effect"
        );
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
            remember_in(&mut known, &job("b", "/"), &job("b", "/"), &report);
            assert_eq!(expected(&known, &job("b", "/"), Some("u")), Some(ID));
        }
    }
}
