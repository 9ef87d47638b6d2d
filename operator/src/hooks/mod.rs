//! The commands of `spec.hooks`: their state, and the tasks that run them in pods.

pub(crate) mod choose_pods;
pub mod exec;
pub mod hook_error;
pub mod hook_state;
pub mod hook_tasks;
pub mod run_hooks;
