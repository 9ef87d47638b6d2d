//! Faults: the obstacles of a SyncJob, each with a reason for programs and a message for people.

use contract::Reason;

use crate::api::conditions::Cause;

/// The reason why a job or one of its pods makes no progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The reason of a condition.
    pub reason: Reason,
    /// The problem, and what to do about it.
    pub message: String,
}

impl Fault {
    /// Creates a fault with that reason and message.
    pub fn new(reason: impl Into<Reason>, message: impl Into<String>) -> Self {
        Self { reason: reason.into(), message: message.into() }
    }

    /// Returns the fault as the cause of a condition about that generation.
    pub fn cause(&self, generation: i64) -> Cause<'_> {
        Cause { reason: &self.reason, message: &self.message, generation }
    }
}
