//! Makes text from other machines safe for a terminal and a log.

use std::{
    borrow::Cow,
    fmt::{self, Write},
};

/// Escapes control characters on the way to a writer, so that text cannot forge lines of a log or move the cursor.
pub(crate) struct Escaping<'a, W: ?Sized>(pub(crate) &'a mut W);

impl<W: Write + ?Sized> fmt::Write for Escaping<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|c| {
            if c.is_control() { write!(self.0, "{}", c.escape_default()) } else { self.0.write_char(c) }
        })
    }
}

/// Returns `text` with its control characters escaped: a file's name must not write on the terminal, or end the line.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len());
    // Writing to a String never fails.
    let _ = Escaping(&mut escaped).write_str(text);
    escaped.into()
}

/// Writes a field of a log line, for both programs' logs: the message without its name, and all others after theirs.
pub fn write_escaped_field(writer: &mut impl Write, name: &str, value: &dyn fmt::Debug) -> fmt::Result {
    if name != "message" {
        write!(writer, "{name}=")?;
    }
    write!(Escaping(writer), "{value:?}")
}

#[cfg(test)]
mod tests {
    use super::printable;

    #[test]
    fn text_from_elsewhere_cannot_drive_the_terminal() {
        assert_eq!(printable("naïve/名前"), "naïve/名前");
        assert_eq!(printable("a\nb\x1b[2J\u{9b}1m"), "a\\nb\\u{1b}[2J\\u{9b}1m");
    }
}
