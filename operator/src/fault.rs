//! Faults: what stands in a SyncJob's way, as a reason for programs and a message for people.

/// Why a job or one of its pods does not get on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// A CamelCase word: the reason of a condition.
    pub reason: String,
    /// What is wrong and what to do about it.
    pub message: String,
}

impl Fault {
    /// A fault with that reason and message.
    pub fn new(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason: reason.into(), message: message.into() }
    }
}
