//! Numbers and times as archives have them in text, and the error of what cannot be read.

use std::io;

use crate::entry::Time;

/// A file's time is less than so many seconds away from 1970.
pub(crate) const MAX_SECONDS: i64 = 1 << 55;

/// Makes the error for an archive that cannot be read.
pub(crate) fn bad(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Reads a decimal number.
///
/// # Errors `InvalidData`.
pub(crate) fn text_number(text: &[u8]) -> io::Result<u64> {
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| bad("a number cannot be read"))
}

/// Writes a time in seconds, with as many digits behind the point as it needs.
pub(crate) fn time_text(Time { seconds, nanos }: Time) -> String {
    let text = match (seconds < 0, nanos) {
        (_, 0) => return seconds.to_string(),
        // The part after the point counts away from zero.
        (true, nanos) => format!("-{}.{:09}", -(seconds + 1), 1_000_000_000 - nanos),
        (false, nanos) => format!("{seconds}.{nanos:09}"),
    };
    text.trim_end_matches('0').to_owned()
}

/// Reads a time.
///
/// # Errors `InvalidData`, also if no file has it.
pub(crate) fn time(text: &[u8]) -> io::Result<Time> {
    let read = || {
        let text = std::str::from_utf8(text).ok()?;
        let (is_negative, text) = text.strip_prefix('-').map_or((false, text), |text| (true, text));
        let (whole, part) = text.split_once('.').unwrap_or((text, ""));
        let seconds: i64 = whole.parse().ok()?;
        let digits: String = part.chars().chain(std::iter::repeat('0')).take(9).collect();
        let nanos: u32 = digits.parse().ok()?;
        (0..MAX_SECONDS).contains(&seconds).then_some(match (is_negative, nanos) {
            (false, nanos) => Time { seconds, nanos },
            (true, 0) => Time { seconds: -seconds, nanos: 0 },
            (true, nanos) => Time { seconds: -seconds - 1, nanos: 1_000_000_000 - nanos },
        })
    };
    read().ok_or_else(|| bad("a time cannot be read"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_survive_the_trip_and_those_of_no_file_are_refused() {
        for (seconds, nanos) in
            [(0, 0), (0, 1), (1_700_000_000, 500_000_000), (-1, 0), (-2, 999_999_999), (-1, 1)]
        {
            let moment = Time { seconds, nanos };
            assert_eq!(time(time_text(moment).as_bytes()).unwrap(), moment, "{moment:?}");
        }
        for text in ["", "-", "1.x", "--1", "99999999999999999999", "4611686018427387904", "1,5"] {
            assert!(time(text.as_bytes()).is_err(), "{text}");
        }
    }
}
