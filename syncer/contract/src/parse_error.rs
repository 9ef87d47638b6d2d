use thiserror::Error;

/// A flag's value that cannot be read; says what would be accepted.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("`{value}` is not {expected}")]
pub struct ParseParamError {
    value: String,
    expected: &'static str,
}

pub(crate) fn bad(value: &str, expected: &'static str) -> ParseParamError {
    ParseParamError { value: value.into(), expected }
}
