//! The check of a part of the volume's snapshots that follows the snapshot of a run.

use contract::{MAX_DAMAGED, Reason, SnapshotReport, SnapshotVerify, VerifyReport, chain};

use crate::{
    monitor::Monitor,
    root::Root,
    snapshot::{
        check::{Damage, ReadPace, StoreShare, Turn, Verified, heal, verify},
        store::{SnapshotError, Writer},
    },
};

/// The most characters of a damaged file's name in a report.
const MAX_NAME: usize = 300;

/// Checks the next part of the volume's snapshots after a run, heals what it can, and adds the result to the report.
pub(crate) fn verify_after_run(
    writer: &mut Writer<'_>,
    live: &Root,
    asked: SnapshotVerify,
    by: &str,
    monitor: &Monitor,
    report: &mut SnapshotReport,
) {
    report_check(check(writer, live, asked, by, monitor), report);
}

/// Adds the result of a check to the report.
pub(super) fn report_check(found: Result<VerifyReport, SnapshotError>, report: &mut SnapshotReport) {
    let (reason, message) = match found {
        Ok(found) => {
            let damage = found.damage();
            report.verify = Some(found);
            let Some(damage) = damage else { return };
            (Reason::SnapshotsDamaged, format!("the run succeeded, and its check found {damage}"))
        }
        Err(error) => (
            Reason::VerifyFailed,
            format!("the run succeeded, and the check of snapshots failed: {}", chain(&error)),
        ),
    };
    if report.reason.is_none() {
        (report.reason, report.message) = (Some(reason), message);
    }
}

fn check(
    writer: &mut Writer<'_>,
    live: &Root,
    asked: SnapshotVerify,
    by: &str,
    monitor: &Monitor,
) -> Result<VerifyReport, SnapshotError> {
    let turn = Turn::next(&writer.store, asked.parts)?;
    let pace = ReadPace::new(asked.bandwidth_limit, monitor);
    let mut verified = verify(&writer.store, &writer.roots, &turn, &pace)?;
    if verified.may_heal() {
        heal(writer, live, &mut verified, by, monitor)?;
    }
    turn.note(&writer.store, verified.unhealed_contents())?;
    Ok(report_of(turn.part, &verified))
}

pub(super) fn report_of(part: StoreShare, verified: &Verified) -> VerifyReport {
    let is_list_damaged =
        verified.damaged_records > 0 || (verified.list.is_some() && !verified.is_list_healed);
    let lists = u64::from(is_list_damaged) + u64::from(verified.audit_broken_at.is_some());
    let damaged = verified.unhealed().count() as u64;
    let mut files: Vec<String> = verified.unhealed().take(MAX_DAMAGED).map(name).collect();
    files.extend(is_list_damaged.then(|| "the list of snapshots".into()));
    files.extend(verified.audit_broken_at.map(|line| format!("the audit log from line {line} on")));
    files.truncate(MAX_DAMAGED);
    VerifyReport {
        part: part.to_string(),
        checked: verified.objects,
        bytes: verified.bytes,
        damaged: damaged + lists,
        healed: verified.damaged.len() as u64 - damaged,
        files,
    }
}

fn name(damage: &Damage) -> String {
    let Some(first) = damage.files.first() else { return damage.object.clone() };
    let path: String = first.path.to_string().chars().take(MAX_NAME).collect();
    format!("{path} in {}", first.first)
}
