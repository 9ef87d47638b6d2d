//! Formats numbers and texts for people: the printer columns, messages and the summary lines of `run`.

use std::time::Duration;

use jiff::Timestamp;

/// Formats a number of bytes with one decimal and a binary suffix: `0`, `512`, `19.9Mi`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if count < 1024 {
        return count.to_string();
    }
    let mut value = count as f64;
    let mut unit = "";
    for next in UNITS {
        // 1023.96 would be shown as 1024.0.
        if value < 1023.95 {
            break;
        }
        value /= 1024.0;
        unit = next;
    }
    format!("{value:.1}{unit}")
}

/// Formats a duration in at most two units: `340ms`, `1.2s`, `5m12s`, `2h05m`, `3d04h`.
pub fn duration(duration: Duration) -> String {
    let (ms, seconds) = (duration.as_millis(), duration.as_secs());
    match (ms, seconds) {
        (..1000, _) => format!("{ms}ms"),
        (_, ..60) => format!("{:.1}s", ((ms / 100) as f64) / 10.0),
        (_, ..3600) => format!("{}m{:02}s", seconds / 60, seconds % 60),
        (_, ..86_400) => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// Formats milliseconds like [`duration`].
pub fn milliseconds(ms: u64) -> String {
    duration(Duration::from_millis(ms))
}

/// Formats a time in whole seconds, as Kubernetes does: `2026-11-22T18:00:00Z`.
pub fn seconds(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Shortens a text to at most `max` bytes of whole characters, with an ellipsis if something is cut off.
pub fn clipped(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_string();
    }
    format!("{}…", &text[..text.floor_char_boundary(max.saturating_sub('…'.len_utf8()))])
}

/// Ends a text with a full stop if it lacks one, so that another sentence can follow. An empty text stays empty.
pub fn sentence(text: &str) -> String {
    let text = text.trim();
    if text.is_empty() || text.ends_with(['.', '!', '?']) { text.to_string() } else { format!("{text}.") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_have_one_decimal() {
        let shown: Vec<String> =
            [0, 1023, 1024, 20_873_216, 1 << 40, u64::MAX, (1 << 20) - 1].map(bytes).into();
        assert_eq!(shown, ["0", "1023", "1.0Ki", "19.9Mi", "1.0Ti", "16.0Ei", "1.0Mi"]);
    }

    #[test]
    fn durations_have_two_steps() {
        let shown: Vec<String> =
            [0, 999, 1_000, 59_999, 60_000, 312_400, 7_500_000, 273_600_000].map(milliseconds).into();
        assert_eq!(shown, ["0ms", "999ms", "1.0s", "59.9s", "1m00s", "5m12s", "2h05m", "3d04h"]);
    }

    #[test]
    fn a_sentence_ends() {
        assert_eq!(["", "a", "a. ", "a?"].map(sentence), ["", "a.", "a.", "a?"]);
    }

    #[test]
    fn a_clipped_text_is_short_enough_and_whole() {
        assert_eq!(clipped("short", 5), "short");
        assert_eq!(clipped("ééééé", 7), "éé…");
    }
}
