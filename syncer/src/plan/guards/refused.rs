//! The objection of a guard, and whether `--force` overrides it.

use contract::Reason;

use crate::session_error::SessionError;

/// The objection of a guard to a run.
pub(super) struct Refused {
    pub reason: Reason,
    pub problem: String,
    pub remedy: &'static str,
}

impl Refused {
    /// Returns a note of the overridden guard if `forced`, else the error.
    pub(super) fn unless(self, forced: bool) -> Result<Vec<String>, SessionError> {
        let Self { reason, problem, remedy } = self;
        if forced {
            Ok(vec![format!("overrode a guard: {problem}")])
        } else {
            Err(SessionError::Guard { reason, message: format!("{problem}: {remedy}") })
        }
    }

    /// Returns the reason of a guard's error, or the number of notes, for tests.
    #[cfg(test)]
    pub(super) fn reason_of(result: Result<Vec<String>, SessionError>) -> Result<usize, Reason> {
        result.map(|notes| notes.len()).map_err(|error| match error {
            SessionError::Guard { reason, .. } => reason,
            _ => Reason::Other("another error".into()),
        })
    }
}
