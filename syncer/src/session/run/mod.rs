//! Runs, from their first step to their report.

pub(crate) mod applying;
pub(crate) mod device_run;
pub(crate) mod ends;
pub(crate) mod local_run;
pub(crate) mod make_report;
pub(crate) mod network;
pub(crate) mod outcome;
pub(crate) mod restore;
