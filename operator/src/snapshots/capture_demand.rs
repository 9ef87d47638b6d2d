//! Reads from a spec how the storage captures the source at one instant, and the destination after a run. Pure.

use std::time::Duration;

use crate::{
    api::{PointInTime, SyncJobSpec, VolumeSnapshots},
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
/// If the timeout is no duration, or the source is a snapshot.
pub fn demand(spec: &SyncJobSpec) -> Result<Option<CaptureDemand>, ValidationError> {
    let Some(of) = spec.source.point_in_time.clone() else { return Ok(None) };
    let timeout = duration("source.pointInTime.timeout", &of.timeout)?;
    if spec.source.snapshot.is_some() {
        return Err(invalid(
            "source.pointInTime",
            "a snapshot of the source does not change; remove one of the two",
        ));
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
