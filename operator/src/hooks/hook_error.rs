//! The reasons why a hook failed, in words for the status.

use std::fmt::Write as _;

use contract::chain;
use thiserror::Error;

use super::hook_state::Point;
use crate::{
    human::{clipped, sentence},
    spec::fields::ValidationError,
};

/// The maximum number of pods that one hook runs in.
pub(super) const MAX_PODS: u32 = 64;
/// How much of a command's last output is kept for the status, in bytes for each pod.
pub(super) const TAIL_BYTES: usize = 2048;
/// The maximum length of the message about one hook, in bytes.
const MAX_MESSAGE_BYTES: usize = 3072;
/// The number of pods that a message names.
const NAMED: usize = 3;

/// The reasons why a hook failed.
#[derive(Debug, Error)]
pub enum HookError {
    /// The hook's spec is invalid.
    #[error("The hook {point} cannot run: {source}.")]
    Invalid {
        /// The hook.
        point: Point,
        /// The violated rule.
        source: ValidationError,
    },
    /// The pods cannot be listed.
    #[error("The hook {point} cannot run: the pods cannot be listed: {}", sentence(&chain(source)))]
    List {
        /// The hook.
        point: Point,
        /// The API server's error.
        source: kube::Error,
    },
    /// The API server did not answer in time.
    #[error("The hook {point} cannot run: the API server has not listed the pods in time.")]
    NoAnswer {
        /// The hook.
        point: Point,
    },
    /// No pod can run the command.
    #[error(
        "The hook {point} found no pod to run in: {found} with the labels {labels} run, and none of them {wanted}. \
         Correct spec.hooks.{point}.target.matchLabels, or start the application."
    )]
    NoPod {
        /// The hook.
        point: Point,
        /// The number of running pods with the labels.
        found: usize,
        /// The labels.
        labels: String,
        /// What the pods lack, such as readiness.
        wanted: &'static str,
    },
    /// Too many pods have the labels.
    #[error(
        "The hook {point} does not run: more than {MAX_PODS} pods have the labels {labels}. Name more labels in \
             spec.hooks.{point}.target.matchLabels."
    )]
    TooManyPods {
        /// The hook.
        point: Point,
        /// The labels.
        labels: String,
    },
    /// The command failed in some pods.
    #[error("The hook {point} failed in {} of {of} pods. {}", failures.len(), told(failures))]
    Failed {
        /// The hook.
        point: Point,
        /// One sentence for each pod that it failed in; never empty.
        failures: Vec<String>,
        /// The number of pods that it ran in.
        of: usize,
    },
}

fn told(failures: &[String]) -> String {
    let more = failures.len().saturating_sub(NAMED);
    let mut told = failures.iter().take(NAMED).map(|it| sentence(it)).collect::<Vec<_>>().join(" ");
    if more > 0 {
        let _ = write!(told, " And {more} more.");
    }
    clipped(&told, MAX_MESSAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_three_pods_and_how_many_failed() {
        let failures = (0..5).map(|i| format!("p{i}: exit code 1")).collect();
        let error = HookError::Failed { point: Point::Before, failures, of: 7 };
        let words = "The hook before failed in 5 of 7 pods. p0: exit code 1. p1: exit code 1. p2: exit code 1. And 2 more.";
        assert_eq!(error.to_string(), words);
    }
}
