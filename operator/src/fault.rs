//! Faults: the obstacles of a SyncJob, each with a reason for programs and a message for people.

/// The reason why a job or one of its pods makes no progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The reason of a condition, a CamelCase word.
    pub reason: String,
    /// The problem, and what to do about it.
    pub message: String,
}

impl Fault {
    /// Creates a fault with that reason and message.
    pub fn new(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason: reason.into(), message: message.into() }
    }
}
