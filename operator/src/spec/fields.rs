//! Parses fields of a spec, and reports invalid ones.

use std::{borrow::Cow, time::Duration};

use contract::Reason;
use thiserror::Error;

use crate::{api::parse_duration, fault::Fault, run::due_times::ScheduleError};

/// The reasons why a spec cannot be run. Only a change of the spec can help.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ValidationError {
    /// An invalid field, which the CRD's rules would have rejected. It gets here if the installed CRD is older than the
    /// operator, or if a rule would need the SyncJob's namespace.
    #[error("spec.{field}: {problem}")]
    Invalid {
        /// The field's path below `spec`.
        field: Cow<'static, str>,
        /// The problem, and what to write instead.
        problem: String,
    },
    /// An invalid schedule.
    #[error("spec.{0}")]
    Schedule(#[from] ScheduleError),
}

impl ValidationError {
    /// Returns the reason for the condition `Stalled`.
    pub fn reason(&self) -> Reason {
        Reason::InvalidSpec
    }
}

impl From<ValidationError> for Fault {
    fn from(error: ValidationError) -> Self {
        Self::new(error.reason(), error.to_string())
    }
}

/// Parses a duration of a second or more. Fails if the text is no such duration.
pub(crate) fn duration(field: &'static str, text: &str) -> Result<Duration, ValidationError> {
    let unknown = || invalid(field, format!("`{text}` is not a duration; write 90s, 10m or 1h30m"));
    parse_duration(text).ok_or_else(unknown)
}

/// Converts a number of a field. Fails if it does not fit the type.
pub(crate) fn number<T: TryFrom<i32>>(field: &'static str, value: i32) -> Result<T, ValidationError> {
    T::try_from(value).map_err(|_| invalid(field, format!("{value} is out of range")))
}

/// Returns the error for an invalid field.
pub(crate) fn invalid(field: impl Into<Cow<'static, str>>, problem: impl Into<String>) -> ValidationError {
    ValidationError::Invalid { field: field.into(), problem: problem.into() }
}
