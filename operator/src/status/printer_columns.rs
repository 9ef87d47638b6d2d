//! Makes the values of the printer columns. Pure.

use contract::Progress;

use crate::{
    api::{Run, Summary},
    human,
};

/// Returns the values of the printer columns while a run is under way.
pub fn summary_of_progress(progress: &Progress) -> Summary {
    Summary {
        files: format!("{}/{}", progress.files, progress.files_total),
        transferred: human::bytes(progress.bytes),
        duration: None,
    }
}

/// Returns the values of the printer columns for a run that ended.
pub fn summary_of(run: &Run) -> Summary {
    Summary {
        files: format!("{}/{}", run.work.changed(), run.work.files_scanned),
        transferred: human::bytes(run.work.bytes_changed),
        duration: Some(human::milliseconds(run.timings.running())),
    }
}
