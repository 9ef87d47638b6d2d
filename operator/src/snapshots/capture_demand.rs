//! Reads from a spec how the storage captures the source at one instant, and the destination after a run. Pure.

use std::time::Duration;

use crate::{
    api::{CaptureMethod, PointInTime, SyncJobSpec, VolumeSnapshots},
    spec::fields::{ValidationError, duration, invalid},
};

/// How the spec has the source captured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CaptureDemand {
    /// The field of the spec.
    pub of: PointInTime,
    /// How long it may take.
    pub timeout: Duration,
}

/// Returns how the spec has the source captured.
///
/// # Errors
/// If the timeout is no duration, the source is a snapshot, or the class is one of another method.
pub fn demand(spec: &SyncJobSpec) -> Result<Option<CaptureDemand>, ValidationError> {
    let Some(of) = spec.source.point_in_time.clone() else { return Ok(None) };
    let timeout = duration("source.pointInTime.timeout", &of.timeout)?;
    if spec.source.snapshot.is_some() {
        return Err(invalid(
            "source.pointInTime",
            "a snapshot of the source does not change; remove one of the two",
        ));
    }
    let is_group = of.method == CaptureMethod::Group;
    if is_group && of.volume_snapshot_class_name.is_some() {
        let problem = "the method Group has a class of its own; name it in volumeGroupSnapshotClassName";
        return Err(invalid("source.pointInTime.volumeSnapshotClassName", problem));
    }
    if is_group && spec.schedule.as_ref().is_some_and(|it| it.jitter.is_some()) {
        return Err(invalid("schedule.jitter", "the runs of a group have to begin together; remove it"));
    }
    if !is_group && of.volume_group_snapshot_class_name.is_some() {
        let problem = "only the method Group has this class; remove it";
        return Err(invalid("source.pointInTime.volumeGroupSnapshotClassName", problem));
    }
    Ok(Some(CaptureDemand { of, timeout }))
}

/// How the spec has VolumeSnapshots of the destination taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageDemand {
    /// The field of the spec.
    pub of: VolumeSnapshots,
    /// How long one may take.
    pub timeout: Duration,
}

/// Returns how the spec has VolumeSnapshots of the destination taken.
///
/// # Errors
/// If the timeout is no duration.
pub fn images(spec: &SyncJobSpec) -> Result<Option<ImageDemand>, ValidationError> {
    let Some(of) = spec.destination.volume_snapshots.clone() else { return Ok(None) };
    let timeout = duration("destination.volumeSnapshots.timeout", &of.timeout)?;
    Ok(Some(ImageDemand { of, timeout }))
}
