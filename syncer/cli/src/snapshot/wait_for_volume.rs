//! Waits while another run or command holds the volume.

use std::time::{Duration, Instant};

use syncer::snapshot::SnapshotError;

/// The pause between two tries to lock a volume: another machine may hold it, of which no event comes.
const PAUSE_BETWEEN_TRIES: Duration = Duration::from_millis(100);

/// Tries again for so many seconds as long as another run or command holds the volume.
pub(crate) fn waiting<T>(
    seconds: u64,
    attempt: impl FnMut() -> Result<T, SnapshotError>,
) -> Result<T, SnapshotError> {
    while_busy(seconds, attempt, |result| result.as_ref().is_err_and(SnapshotError::is_busy))
}

/// Tries again for so many seconds as long as the result says that the volume is busy.
pub(super) fn while_busy<T>(seconds: u64, mut attempt: impl FnMut() -> T, is_busy: impl Fn(&T) -> bool) -> T {
    let began = Instant::now();
    loop {
        let result = attempt();
        if !is_busy(&result) || began.elapsed().as_secs() >= seconds {
            return result;
        }
        std::thread::sleep(PAUSE_BETWEEN_TRIES);
    }
}
