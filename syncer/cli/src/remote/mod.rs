//! Runs with another machine, whose end this program starts there by ssh. Both ends make a key for the run in memory,
//! and tell each other its public half over ssh.

pub(crate) mod bootstrap;
mod ciphers;
pub(crate) mod far_end;
mod far_history;
pub(crate) mod greeting;
pub(crate) mod history_request;
pub(crate) mod link_to_starter;
pub(crate) mod near_end;
pub(crate) mod place;
pub(crate) mod ssh;
pub(crate) mod ssh_settings;
pub(crate) mod why_ssh_failed;
