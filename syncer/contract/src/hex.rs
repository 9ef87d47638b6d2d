use std::fmt;

/// Writes bytes as hex digits.
pub(crate) fn write(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// Parses as many bytes as there are to be, of two hex digits each; `None` if the text is anything else.
pub(crate) fn parse<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() == 2 * N)?;
    Some(std::array::from_fn(|at| (digits[2 * at] << 4 | digits[2 * at + 1]) as u8))
}
