//! Makes text from other machines safe for a terminal and a log.

use std::fmt::{self, Write};

/// Escapes control characters on the way to a writer, so that text cannot forge lines of a log or move the cursor.
pub struct Escaping<'a, W: ?Sized>(pub &'a mut W);

impl<W: Write + ?Sized> fmt::Write for Escaping<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|c| {
            if c.is_control() { write!(self.0, "{}", c.escape_default()) } else { self.0.write_char(c) }
        })
    }
}

impl<W: ?Sized> fmt::Debug for Escaping<'_, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Escaping")
    }
}

/// Writes a field of a log line, for both programs' logs: the message without its name, and all others after theirs.
pub fn write_escaped_field(writer: &mut impl Write, name: &str, value: &dyn fmt::Debug) -> fmt::Result {
    if name != "message" {
        write!(writer, "{name}=")?;
    }
    write!(Escaping(writer), "{value:?}")
}
