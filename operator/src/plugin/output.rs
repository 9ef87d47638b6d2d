//! Prints to the terminal. Every text is escaped, because pods write parts of statuses and logs.

use std::{
    fmt::Write as _,
    io::{self, Write as _},
};

use contract::Escaping;
use serde::Serialize;

use super::error::PluginError;

/// Prints lines on standard output.
pub(super) fn lines<S: AsRef<str>>(lines: &[S]) -> Result<(), PluginError> {
    let text: String = lines.iter().map(|line| escaped(line.as_ref()) + "\n").collect();
    write(text.as_bytes())
}

/// Prints an object as JSON on standard output. JSON escapes control characters itself.
pub(super) fn json<T: Serialize>(object: &T) -> Result<(), PluginError> {
    let mut text = serde_json::to_vec_pretty(object)?;
    text.push(b'\n');
    write(&text)
}

/// Prints a line on standard error.
pub(super) fn complain(line: &str) {
    // Standard error may be closed; the message is dropped then.
    drop(writeln!(io::stderr(), "{}", escaped(line)));
}

fn write(text: &[u8]) -> Result<(), PluginError> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text).and_then(|()| stdout.flush()).map_err(PluginError::Output)
}

fn escaped(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    // Writing to a String never fails.
    let _ = Escaping(&mut text).write_str(line);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_status_moves_the_cursor() {
        assert_eq!(escaped("a\x1b[2J\nb"), "a\\u{1b}[2J\\nb");
    }
}
