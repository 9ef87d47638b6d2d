//! Times as users read and type them.

use jiff::{Timestamp, tz::TimeZone};

use syncer::entry::Time;

/// Formats a time as RFC 3339, in UTC and to the second.
pub(super) fn rfc3339(time: Time) -> String {
    match Timestamp::from_second(time.seconds) {
        Ok(timestamp) => timestamp.to_string(),
        // The time is outside the calendar's range of years.
        Err(_) => format!("@{}", time.seconds),
    }
}

/// Parses a length of time such as `48h`, `2d` or `1w 2d`, in which a day has 24 hours. Returns seconds.
pub(crate) fn span_seconds(text: &str) -> Result<u64, String> {
    let why = || format!("`{text}` is no length of time: write it as 48h or 2d12h");
    let span: jiff::Span = text.parse().map_err(|_| why())?;
    let days = jiff::SpanRelativeTo::days_are_24_hours();
    let duration = span.to_duration(days).map_err(|_| why())?;
    u64::try_from(duration.as_secs()).map_err(|_| why())
}

/// Parses the name of a time zone.
pub(super) fn zone(text: &str) -> Result<TimeZone, String> {
    TimeZone::get(text).map_err(|_| format!("`{text}` is no time zone: write it as Europe/Berlin or UTC"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_lengths_of_time_are_written_and_read() {
        let time = Time { seconds: 1_795_370_400, nanos: 0 };
        assert_eq!(rfc3339(time), "2026-11-22T18:00:00Z");
        assert_eq!(
            ["48h", "2d12h", "1w"].map(|text| span_seconds(text).unwrap()),
            [172_800, 216_000, 604_800]
        );
        assert!(span_seconds("1mo").is_err() && span_seconds("-1h").is_err() && zone("Nowhere").is_err());
        assert_eq!(rfc3339(Time { seconds: i64::MAX, nanos: 0 }), format!("@{}", i64::MAX));
    }
}
