//! Phrases with numbers, for messages.

/// Returns a phrase with a number: `one` follows 1, and `many` any other, as in `1 file was`, `2 files were`.
pub fn plural(n: u64, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}
