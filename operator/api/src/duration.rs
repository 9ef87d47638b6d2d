//! Decides what a duration in a spec is: its form in the CRDs, and its length.

use std::time::Duration;

use super::rules::{Rule, quoting};

/// The units in their order, each with its greatest number of digits and its seconds.
const UNITS: [(char, usize, u64); 3] = [('h', 4, 3600), ('m', 5, 60), ('s', 6, 1)];

/// Requires a duration between one second and 9999 hours.
pub(super) fn rule() -> [Rule; 1] {
    let form: String =
        UNITS.iter().map(|(unit, digits, _)| format!("([0-9]{{1,{digits}}}{unit})?")).collect();
    quoting(
        format!("self.matches(r'^{form}$') && duration(self) >= duration('1s')"),
        "is not a duration of a second or more: write hours, minutes and seconds such as 90s, 10m or 1h30m",
    )
}

/// Parses a duration as the rule of the CRDs allows it: what a stored object holds may have passed no rule. Returns
/// nothing for any other text.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let (mut rest, mut seconds) = (text, 0);
    for (unit, digits, each) in UNITS {
        let Some((number, after)) = rest.split_once(unit) else { continue };
        if !(1..=digits).contains(&number.len()) || !number.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
        seconds += number.parse::<u64>().ok()? * each;
        rest = after;
    }
    (rest.is_empty() && seconds > 0).then_some(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_hours_minutes_and_seconds_in_this_order() {
        for (text, seconds) in
            [("90s", 90), ("10m", 600), ("1h30m", 5400), ("9999h", 35_996_400), ("1h1s", 3601)]
        {
            assert_eq!(parse_duration(text), Some(Duration::from_secs(seconds)), "{text}");
        }
    }

    /// Some of these overflow, or are negative, where a parser of more forms computes with them.
    #[test]
    fn any_other_text_is_none() {
        for text in [
            "",
            "0s",
            "s",
            "5",
            "1.5h",
            "-5s",
            "+5s",
            "5s-5s",
            "10s1m",
            "1h1h",
            " 5s",
            "99999999999999999999h",
            "10000h",
        ] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
    }
}
