//! Runs, from their first step to their report.

pub(crate) mod choose_sink;
pub(crate) mod endpoint;
pub(crate) mod exchange;
pub(crate) mod free;
pub(crate) mod history_session;
pub(crate) mod link_options;
pub(crate) mod local_run;
pub(crate) mod local_session;
pub(crate) mod make_report;
pub(crate) mod network;
pub(crate) mod outcome;
pub(crate) mod pipeline;
pub(crate) mod restore;
pub(crate) mod service;
pub(crate) mod session_link;
pub(crate) mod sink_session;
pub(crate) mod source_session;
