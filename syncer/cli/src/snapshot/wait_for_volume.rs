//! Waits while another run or command holds the volume.

use std::time::{Duration, Instant};

use syncer::snapshot::SnapshotError;

/// The pause between two tries to lock a volume.
pub(super) const PAUSE_BETWEEN_TRIES: Duration = Duration::from_millis(100);

/// Tries again for so many seconds as long as another run or command holds the volume.
pub(crate) fn waiting<T>(
    seconds: u64,
    mut attempt: impl FnMut() -> Result<T, SnapshotError>,
) -> Result<T, SnapshotError> {
    let began = Instant::now();
    loop {
        match attempt() {
            Err(error) if error.is_busy() && began.elapsed().as_secs() < seconds => {
                std::thread::sleep(PAUSE_BETWEEN_TRIES);
            }
            result => return result,
        }
    }
}
