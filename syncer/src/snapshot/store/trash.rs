//! The trash of a store: objects that a collection removed because no snapshot needs them.

use std::{
    io,
    os::fd::BorrowedFd,
    time::{Duration, Instant},
};

use rustix::{fs::AtFlags, io::Errno};

use super::store_files::{names, remove_flat};
use crate::monitor::Monitor;

/// Removes the files in the folder `trash`, at most `per_second` a second. A stop leaves the rest to the
/// next call.
pub(crate) fn empty(trash: BorrowedFd<'_>, per_second: Option<u32>, monitor: &Monitor) -> io::Result<()> {
    let began = Instant::now();
    for (nth, name) in (0_u32..).zip(names(trash, ".")?) {
        let rate = per_second.filter(|rate| *rate > 0);
        let due = rate.map_or(0.0, |rate| f64::from(nth) / f64::from(rate));
        if monitor.pause(Duration::from_secs_f64(due).saturating_sub(began.elapsed())).is_err() {
            return Ok(());
        }
        match rustix::fs::unlinkat(trash, &name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::ISDIR) => remove_flat(trash, &name)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
