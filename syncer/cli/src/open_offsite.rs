//! Opens object storage for a run that takes a snapshot into it.

use bucket::{OffsiteBucket, offsite};
use contract::BucketUrl;
use syncer::{
    monitor::Monitor,
    snapshot::{SnapshotError, offsite::OffsiteStore},
};

use crate::snapshot::key_flags::KeyFlags;

/// Opens the store at `url`, which is made if the place is empty.
pub(crate) fn open_offsite(
    url: &BucketUrl,
    key: &KeyFlags,
    monitor: &Monitor,
) -> Result<Box<dyn OffsiteStore>, SnapshotError> {
    let opened = key.key().and_then(|key| OffsiteBucket::open(url, &key, monitor.until_cancelled()));
    Ok(Box::new(opened.map_err(offsite)?))
}
