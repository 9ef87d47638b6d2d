//! Waits for a state that no event reports.

use std::{
    thread,
    time::{Duration, Instant},
};

use crate::process::PATIENCE;

/// The pause between two looks, which leaves the processor to the process that is waited for.
const PAUSE: Duration = Duration::from_millis(20);

/// Returns once `holds` is true. Panics after [`PATIENCE`] with the words of `missing`.
#[track_caller]
pub fn poll(mut holds: impl FnMut() -> bool, missing: impl FnOnce() -> String) {
    let began = Instant::now();
    while !holds() {
        if began.elapsed() > PATIENCE {
            panic!("{}", missing());
        }
        thread::sleep(PAUSE);
    }
}
