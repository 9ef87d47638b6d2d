//! Pods for one command of a user of `kubectl volferry`: the Jobs that make them, and the processes in them.
//!
//! What a command prints crosses the user's attached connection, which ends when the pod does and may then lose the
//! last bytes. So [`answer`] sends it in [`frames`], the last of which has the command's exit status, and stays until
//! the user has read it.

pub mod answer;
pub mod browse_job;
pub mod frames;
pub mod hold;
pub mod one_off_job;
