//! Prints to the terminal. Every text is escaped, because pods write parts of statuses and logs.

use std::io::{self, Write as _};

use contract::{printable, printable_json};
use rustix::termios::tcgetwinsize;
use serde::Serialize;

use super::{args::Output, error::PluginError};

const ALTERNATE_SCREEN: &str = "\x1b[?1049h";
const USUAL_SCREEN: &str = "\x1b[?1049l";
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// Prints lines of YAML on standard output. Their tabs are content, and move no cursor where it should not be.
pub(super) fn yaml<S: AsRef<str>>(lines: &[S]) -> Result<(), PluginError> {
    write(yaml_text(lines).as_bytes())
}

/// Escapes in lines of YAML all control characters but tabs. A serializer leaves no others.
fn yaml_text<S: AsRef<str>>(lines: &[S]) -> String {
    let mut text = String::new();
    for line in lines {
        for c in line.as_ref().chars() {
            if c.is_control() && c != '\t' { text.extend(c.escape_default()) } else { text.push(c) }
        }
        text.push('\n');
    }
    text
}

/// Prints lines on standard output.
pub(super) fn lines<S: AsRef<str>>(lines: &[S]) -> Result<(), PluginError> {
    let text: String = lines.iter().map(|line| printable(line.as_ref()).into_owned() + "\n").collect();
    write(text.as_bytes())
}

/// Prints an object on standard output if it is wanted in a form for programs. Returns whether it is.
pub(super) fn object<T: Serialize>(wanted: Output, object: &T) -> Result<bool, PluginError> {
    match wanted {
        Output::Text => return Ok(false),
        Output::Json => json(object)?,
        Output::Yaml => {
            let text = serde_saphyr::to_string(object).map_err(|error| PluginError::Yaml(Box::new(error)))?;
            yaml(&text.lines().collect::<Vec<_>>())?;
        }
    }
    Ok(true)
}

/// Prints an object as JSON on standard output.
pub(super) fn json<T: Serialize>(object: &T) -> Result<(), PluginError> {
    let text = serde_json::to_string_pretty(object)?;
    write(format!("{}\n", printable_json(&text)).as_bytes())
}

/// Prints a line on standard error.
pub(super) fn complain(line: &str) {
    // Standard error may be closed; the message is dropped then.
    drop(writeln!(io::stderr(), "{}", printable(line)));
}

/// A terminal that is filled again and again. What it showed before comes back when this is dropped.
#[derive(Debug)]
pub(super) struct Screen(());

impl Screen {
    pub(super) fn open() -> Result<Self, PluginError> {
        write(ALTERNATE_SCREEN.as_bytes()).map(|()| Self(()))
    }

    /// Shows lines from the top of the terminal on, as far as there is room.
    pub(super) fn show(&self, lines: impl Iterator<Item = String>) -> Result<(), PluginError> {
        let size = tcgetwinsize(io::stdout()).ok();
        let columns = size.map_or(80, |size| size.ws_col.into());
        let rows = size.map_or(24, |size| size.ws_row.into());
        write(frame(lines, columns, rows).as_bytes())
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The terminal may be gone.
        drop(write(USUAL_SCREEN.as_bytes()));
    }
}

/// Returns what fills a terminal of these columns and rows with lines.
fn frame(lines: impl Iterator<Item = String>, columns: usize, rows: usize) -> String {
    let shown = lines.take(rows).map(|line| printable(&line).chars().take(columns).collect::<String>());
    let text: Vec<String> = shown.map(|line| line + CLEAR_LINE).collect();
    format!("{HOME}{}{CLEAR_BELOW}", text.join("\r\n"))
}

fn write(text: &[u8]) -> Result<(), PluginError> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text).and_then(|()| stdout.flush()).map_err(PluginError::Output)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_in_an_object_starts_a_command_to_the_terminal() {
        assert_eq!(printable_json("\"\u{9b}2J é\x7f\""), r#""\u009b2J é\u007f""#);
    }

    #[test]
    fn a_text_comes_through_yaml_as_it_is_and_starts_no_command_to_the_terminal() {
        let folded = "words ".repeat(30) + "a\ttab and more";
        let texts = [
            "if x:\n\treturn\n",
            "\tfirst\n\t\tsecond\t\n\n",
            "a\r\nb\rc\n",
            "a\u{85}b\u{2028}c\u{2029}d\n",
            "\x1b[2J\u{9b}2J\x07\x7f\nnext\n",
            folded.as_str(),
        ];
        for text in texts {
            let object = serde_json::json!({ "text": text, "list": [{ "text": text }] });
            let yaml = serde_saphyr::to_string(&object).unwrap();
            let printed = yaml_text(&yaml.lines().collect::<Vec<_>>());
            let read: serde_json::Value = serde_saphyr::from_str(&printed).unwrap();
            assert_eq!(read, object, "{printed}");
            assert!(!printed.contains(|c: char| c.is_control() && c != '\n' && c != '\t'), "{printed:?}");
        }
        assert_eq!(yaml_text(&["# from \x1b[2J\t."]), "# from \\u{1b}[2J\t.\n");
    }

    #[test]
    fn a_frame_fits_the_terminal_and_no_status_moves_its_cursor() {
        let lines = ["é long", "a\x1b[2J", "no room"].map(String::from);
        assert_eq!(frame(lines.into_iter(), 4, 2), "\x1b[Hé lo\x1b[K\r\na\\u{\x1b[K\x1b[J");
    }
}
