//! Gives types the text by which flags, reports and files know them.

/// Lets serde read and write a type by its text, as `#[serde(try_from = "String", into = "String")]` asks.
macro_rules! serde_by_text {
    ($type:ident) => {
        impl TryFrom<String> for $type {
            type Error = $crate::parse_error::ParseParamError;
            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }
        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }
    };
}

/// Writes and reads a type's bytes as hex digits, two a byte, everywhere.
macro_rules! hex_digits {
    ($type:ident, $expected:literal) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
            }
        }
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({self})", stringify!($type))
            }
        }
        impl std::str::FromStr for $type {
            type Err = $crate::parse_error::ParseParamError;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let bytes = $crate::text_form::hex_bytes(text).map(Self);
                bytes.ok_or_else(|| $crate::parse_error::bad(text, $expected))
            }
        }
        $crate::text_form::serde_by_text!($type);
    };
}

pub(crate) use {hex_digits, serde_by_text};

/// Parses as many bytes as there are to be, of two hex digits each; `None` if the text is anything else.
pub(crate) fn hex_bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits: Option<Vec<u32>> = text.chars().map(|digit| digit.to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() == 2 * N)?;
    Some(std::array::from_fn(|at| (digits[2 * at] << 4 | digits[2 * at + 1]) as u8))
}
