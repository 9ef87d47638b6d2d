//! Lines for people: an error, and the next step on a line of its own.

use contract::{Reason, printable};

/// What begins the line of the next step, in an error that names one.
const HINT: &str = "\nhint: ";

/// Returns the lines for a message, which may have hints behind it. Nothing in it can drive a terminal.
pub(crate) fn lines(what: &str, message: &str) -> String {
    let mut parts = message.split(HINT);
    let first = format!("{}: {}\n", printable(what), printable(parts.next().unwrap_or_default()));
    parts.fold(first, |text, hint| text + "hint: " + &printable(hint) + "\n")
}

/// Returns the hint of a reason for a run with `host`, as ssh takes it, if the hint is about the host.
pub(crate) fn hint_at(reason: &Reason, host: &str) -> Option<String> {
    let hint = reason.hint().filter(|hint| hint.contains("HOST"))?;
    let name = host.rsplit_once('@').map_or(host, |(_, name)| name);
    Some(hint.replace("-R HOST", &format!("-R {name}")).replace("HOST", host))
}

/// Returns whether a message names the next step on a line of its own.
pub(crate) fn has_hint(message: &str) -> bool {
    message.contains(HINT)
}

#[cfg(test)]
mod messages_test;
