use thiserror::Error;

/// The error for a flag's value that cannot be parsed; it names the accepted values.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("`{value}` is not {expected}")]
pub struct ParseParamError {
    value: String,
    expected: &'static str,
}

pub(crate) fn bad(value: &str, expected: &'static str) -> ParseParamError {
    ParseParamError { value: value.into(), expected }
}
