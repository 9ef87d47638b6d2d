//! Makes text from other machines safe for a terminal and a log.

use std::{
    borrow::Cow,
    fmt::{self, Write},
};

/// Returns whether a character drives a terminal instead of being shown: controls, ends of lines, and marks that change
/// the direction of text (Unicode's `Bidi_Control`), by which a name shows as another one.
pub fn drives_terminal(c: char) -> bool {
    let is_mark =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || is_mark
}

/// Escapes characters that drive a terminal on the way to a writer, so that text cannot forge lines of a log or move
/// the cursor.
pub(crate) struct Escaping<'a, W: ?Sized>(pub(crate) &'a mut W);

impl<W: Write + ?Sized> fmt::Write for Escaping<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.chars().try_for_each(|c| {
            if drives_terminal(c) { write!(self.0, "{}", c.escape_default()) } else { self.0.write_char(c) }
        })
    }
}

/// Returns `text` with the characters escaped that drive a terminal: a file's name must not write on the terminal, or
/// end the line.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(drives_terminal) {
        return text.into();
    }
    let mut escaped = String::with_capacity(text.len());
    // Writing to a String never fails.
    let _ = Escaping(&mut escaped).write_str(text);
    escaped.into()
}

/// Returns a JSON text with the characters escaped that drive a terminal, but for the ends of lines between values:
/// JSON's own rules leave those above ASCII.
pub fn printable_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\n' => escaped.push(c),
            c if drives_terminal(c) => drop(write!(escaped, "\\u{:04x}", u32::from(c))),
            c => escaped.push(c),
        }
    }
    escaped
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
    use super::{printable, printable_json};

    #[test]
    fn json_stays_the_same_value() {
        let value = serde_json::json!({ "a\u{202e}b": "c\x1b\u{9b}\n\u{2028}d" });
        let text = printable_json(&serde_json::to_string_pretty(&value).unwrap());
        assert!(!text.contains(|c| super::drives_terminal(c) && c != '\n'), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }

    #[test]
    fn text_from_elsewhere_cannot_drive_the_terminal() {
        assert_eq!(printable("naïve/名前"), "naïve/名前");
        assert_eq!(printable("log\u{202e}fdp.exe"), "log\\u{202e}fdp.exe");
        assert_eq!(printable("a\nb\x1b[2J\u{9b}1m"), "a\\nb\\u{1b}[2J\\u{9b}1m");
    }
}
