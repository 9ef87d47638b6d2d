//! Runs, from their first step to their report.

pub(crate) mod answer_sink;
pub(crate) mod check_free;
pub(crate) mod device_run;
pub(crate) mod entry_points;
pub(crate) mod find_device_base;
pub(crate) mod history_session;
pub(crate) mod key_exchange;
pub(crate) mod link_options;
pub(crate) mod local;
pub(crate) mod local_session;
pub(crate) mod make_report;
pub(crate) mod offsite_run;
pub(crate) mod outcome;
pub(crate) mod pipeline;
pub(crate) mod receive;
pub(crate) mod receive_session;
pub(crate) mod restore;
pub(crate) mod send;
pub(crate) mod send_session;
pub(crate) mod send_snapshot;
pub(crate) mod service;
pub(crate) mod session_link;
