//! Formats numbers, durations and foreign text for people.

use std::{borrow::Cow, time::Duration};

pub use contract::human_bytes::{bytes, bytes_of};

/// Returns `1,008`.
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Returns `1 file`, `1,008 files`: `noun` with the plural that an `s` makes.
pub fn counted(n: u64, noun: &str) -> String {
    format!("{} {noun}{}", count(n), if n == 1 { "" } else { "s" })
}

/// Returns `140 ms`, `12.3 s`, `4:07`, `1:02:33`: for a measured time.
pub fn measured(duration: Duration) -> String {
    match duration.as_millis() {
        ms @ ..1_000 => format!("{ms} ms"),
        ms @ ..59_950 => format!("{:.1} s", ms as f64 / 1000.0),
        _ => clock(duration),
    }
}

/// Returns `0:04`, `4:07`, `1:02:33`: for a running clock.
pub fn clock(duration: Duration) -> String {
    let seconds = duration.as_secs_f64().round() as u64;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        _ => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

/// Returns `text` with its control characters escaped: a file's name must not write on the terminal, or end the line.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(char::is_control) {
        return text.into();
    }
    let escape = |c: char| if c.is_control() { c.escape_default().to_string() } else { c.into() };
    text.chars().map(escape).collect::<String>().into()
}

/// Escapes text for a page, because a report may come from another user.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_000), "1,000");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(counted(1, "file"), "1 file");
        assert_eq!(counted(0, "file"), "0 files");
    }

    #[test]
    fn durations_grow_from_milliseconds_to_hours() {
        let ms = Duration::from_millis;
        assert_eq!(measured(ms(8)), "8 ms");
        assert_eq!(measured(ms(12_340)), "12.3 s");
        assert_eq!(measured(ms(59_949)), "59.9 s");
        assert_eq!(measured(ms(59_950)), "1:00");
        assert_eq!(measured(ms(247_000)), "4:07");
        assert_eq!(clock(ms(3_753_000)), "1:02:33");
        assert_eq!(clock(ms(3_600)), "0:04");
    }

    #[test]
    fn text_from_elsewhere_cannot_drive_the_terminal() {
        assert_eq!(printable("naïve/名前"), "naïve/名前");
        assert_eq!(printable("a\nb\x1b[2J\u{9b}1m"), "a\\nb\\u{1b}[2J\\u{9b}1m");
    }
}
