//! Lines for people: an error, and the next step on a line of its own.

use trend::human::printable;

/// What begins the line of the next step, in an error that names one.
const HINT: &str = "\nhint: ";

/// Returns the lines for a message, which may have hints behind it. Nothing in it can drive a terminal.
pub(crate) fn lines(what: &str, message: &str) -> String {
    let mut parts = message.split(HINT);
    let first = format!("{}: {}\n", printable(what), printable(parts.next().unwrap_or_default()));
    parts.fold(first, |text, hint| text + "hint: " + &printable(hint) + "\n")
}

/// Returns whether a message names the next step on a line of its own.
pub(crate) fn has_hint(message: &str) -> bool {
    message.contains(HINT)
}

#[cfg(test)]
mod messages_test;
