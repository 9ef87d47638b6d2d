//! Decides which VolumeSnapshot of a device is kept as the base of the next run's changed blocks. Pure.

use contract::{Report, RunResult};
use k8s_openapi::ByteString;
use serde::{Deserialize, Serialize};

use crate::{
    api::{ActiveRun, CaptureMethod, ChangeBase, SyncJobStatus},
    ends::end_kind::EndKind,
    names,
    spec::validate::ValidatedSyncJob,
};

/// The most bytes of certificates that a pod takes in its command line.
pub(crate) const MAX_CERTIFICATE_BYTES: usize = 48 << 10;

/// What a pod needs to learn from the storage which blocks have changed; a part of its command line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangedDemand {
    /// The host and port of the driver's service.
    pub address: String,
    /// Whom a token for it is for.
    pub audience: String,
    /// The certificates of its authorities.
    pub ca_cert: ByteString,
    /// The VolumeSnapshot that the run reads.
    pub target: String,
    /// The VolumeSnapshot of the last run, and what the destination had after it.
    pub base: ChangeBase,
    /// The driver's id of that VolumeSnapshot.
    pub base_id: String,
    /// How long the whole list may take, in seconds.
    pub patience_seconds: u64,
}

/// How a run finds out what has changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Changes {
    /// The storage does not list it.
    #[default]
    Unlisted,
    /// The storage lists it, but there is no base: the run becomes that of the next one.
    FromNowOn,
    /// Since a base.
    Since(Box<ChangedDemand>),
}

/// Returns whether a job reads VolumeSnapshots of a device, by turns the base of the next one. Its pods must all be of
/// its own namespace: those of others are not to get the right to read VolumeSnapshots there.
pub fn may_have_base(job: &ValidatedSyncJob) -> bool {
    let is_block = matches!(&job.ends.source, EndKind::Claim(end) if end.is_block);
    let mut claims = job.ends.iter().filter_map(EndKind::claim);
    is_block && takes_snapshots(job) && claims.all(|claim| claim.namespace == job.namespace)
}

fn takes_snapshots(job: &ValidatedSyncJob) -> bool {
    job.capture.as_ref().is_some_and(|capture| capture.of.method == CaptureMethod::Snapshot)
}

/// Returns the base of a job's next run. Others may write statuses, so only a name of the job's own is believed.
pub fn of_job<'a>(status: &'a SyncJobStatus, job: &str, uid: &str) -> Option<&'a ChangeBase> {
    status.change_base.as_ref().filter(|base| names::is_capture_of(&base.snapshot, job, uid))
}

/// Returns whether a VolumeSnapshot is kept for the next run.
pub fn is_kept(status: &SyncJobStatus, name: &str) -> bool {
    status.change_base.as_ref().is_some_and(|base| base.snapshot == name)
}

/// Notes the base of the next run, once a run has ended, if the limit on snapshots leaves room for it. A run that found
/// a difference, or could not write a part, leaves none: what its storage listed is in doubt. Any other run that did
/// not succeed leaves the base that is there: the next one finds out whether the destination still has it.
pub fn remember(
    status: &mut SyncJobStatus,
    job: &ValidatedSyncJob,
    run: &ActiveRun,
    has_room: bool,
    report: &Report,
) {
    let Some(capture) = &run.capture else { return };
    let has_succeeded = report.result == RunResult::Succeeded;
    if !has_succeeded && report.work.files_failed == 0 {
        return;
    }
    let content = report.content.filter(|_| has_succeeded && has_room && may_have_base(job));
    let base = content.zip(capture.uid.clone()).map(|(content, snapshot_uid)| ChangeBase {
        snapshot: capture.name.clone(),
        snapshot_uid,
        content_hash: content.hash,
    });
    replace(status, base);
}

/// Gives up the base of a job that does not read VolumeSnapshots any more, once no pod may need it.
pub fn give_up(status: &mut SyncJobStatus, job: &ValidatedSyncJob) {
    let is_launched = status.active_run.as_ref().is_some_and(|run| run.launched);
    if !takes_snapshots(job) && !is_launched {
        replace(status, None);
    }
}

/// Sets the base. The one before is removed like any other capture.
fn replace(status: &mut SyncJobStatus, base: Option<ChangeBase>) {
    let Some(before) = std::mem::replace(&mut status.change_base, base) else { return };
    if !is_kept(status, &before.snapshot) && !status.captures.contains(&before.snapshot) {
        status.captures.push(before.snapshot);
    }
}

#[cfg(test)]
mod tests {
    use contract::{ContentHash, DeviceContent, Work};
    use serde_json::json;

    use super::*;
    use crate::{api::Capture, names::TryNames, spec::validate::validate};

    fn job(point_in_time: &str) -> ValidatedSyncJob {
        let spec = json!({
            "source": {"persistentVolumeClaim": {"claimName": "a"}, "pointInTime": {"method": point_in_time}},
            "destination": {"persistentVolumeClaim": {"claimName": "b"}},
        });
        let mut job = validate(&serde_json::from_value(spec).unwrap(), "web", "prod").unwrap();
        job.ends.source = job.ends.source.of_kind(true);
        job
    }

    fn ended(status: &mut SyncJobStatus, number: i64, result: RunResult, byte: Option<u8>) -> String {
        let name = TryNames::new("web", "u", number, 0).capture();
        status.captures.push(name.clone());
        let content = byte.map(|byte| DeviceContent { hash: ContentHash([byte; 32]), bytes_listed: None });
        let report = Report { result, content, ..Report::default() };
        remember(status, &job("Snapshot"), &reading(&name), true, &report);
        name
    }

    fn reading(name: &str) -> ActiveRun {
        let capture = Capture { name: name.into(), uid: Some("s".into()), ..Capture::default() };
        ActiveRun { capture: Some(capture), ..ActiveRun::default() }
    }

    #[test]
    fn the_snapshot_of_the_last_success_is_kept_and_the_one_before_goes() {
        let mut status = SyncJobStatus::default();
        let first = ended(&mut status, 1, RunResult::Succeeded, Some(1));
        assert!(is_kept(&status, &first));
        assert_eq!(of_job(&status, "web", "u").unwrap().content_hash, ContentHash([1; 32]));
        assert_eq!(of_job(&status, "web", "another"), None, "a name of another job");
        // Its temporary claim is gone.
        status.captures.clear();
        let failed = ended(&mut status, 2, RunResult::Failed, None);
        assert!(is_kept(&status, &first) && !is_kept(&status, &failed));
        let third = ended(&mut status, 3, RunResult::Succeeded, Some(3));
        assert!(is_kept(&status, &third));
        assert_eq!(status.captures, [failed, third.clone(), first]);
        let fourth = ended(&mut status, 4, RunResult::Succeeded, None);
        assert_eq!(status.change_base, None, "the storage does not list changes any more");
        assert!(status.captures.contains(&third) && status.captures.contains(&fourth));
    }

    #[test]
    fn a_run_that_found_a_difference_leaves_no_base() {
        let mut status = SyncJobStatus::default();
        let first = ended(&mut status, 1, RunResult::Succeeded, Some(1));
        let work = Work { files_failed: 1, ..Work::default() };
        let report = Report { result: RunResult::PartiallyFailed, work, ..Report::default() };
        remember(&mut status, &job("Snapshot"), &reading("second"), true, &report);
        assert!(status.change_base.is_none() && status.captures.contains(&first));
    }

    #[test]
    fn pods_of_other_namespaces_do_not_get_to_read_snapshots() {
        let mut job = job("Snapshot");
        assert!(may_have_base(&job));
        let EndKind::Claim(end) = &mut job.ends.sink else { panic!() };
        end.claim.namespace = "backups".into();
        assert!(!may_have_base(&job));
    }

    #[test]
    fn a_job_without_room_or_without_snapshots_of_a_device_keeps_none() {
        let base = || {
            let content_hash = ContentHash([1; 32]);
            ChangeBase { snapshot: "s".into(), snapshot_uid: "s".into(), content_hash }
        };
        let mut status = SyncJobStatus { change_base: Some(base()), ..SyncJobStatus::default() };
        give_up(&mut status, &job("Snapshot"));
        assert!(is_kept(&status, "s"));
        status.active_run = Some(ActiveRun { launched: true, ..ActiveRun::default() });
        give_up(&mut status, &job("Clone"));
        assert!(is_kept(&status, "s"), "its pods may have to list what changed since");
        status.active_run = None;
        give_up(&mut status, &job("Clone"));
        assert_eq!((status.change_base, status.captures), (None, vec!["s".into()]));
        let run = reading("c");
        let content = Some(DeviceContent { hash: ContentHash([1; 32]), bytes_listed: None });
        let report = Report { result: RunResult::Succeeded, content, ..Report::default() };
        let mut status = SyncJobStatus::default();
        remember(&mut status, &job("Snapshot"), &run, false, &report);
        assert_eq!(status.change_base, None);
        let mut files = job("Snapshot");
        files.ends.source = files.ends.source.of_kind(false);
        remember(&mut status, &files, &run, true, &report);
        assert_eq!(status.change_base, None);
    }
}
