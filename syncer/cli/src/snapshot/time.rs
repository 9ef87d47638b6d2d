//! Times as users read and type them.

use jiff::{Timestamp, civil, tz::TimeZone};

use syncer::{entry::Time, snapshot::SnapshotError};

/// Writes a time as RFC 3339 has it, in UTC and to the second.
pub(super) fn rfc3339(time: Time) -> String {
    match Timestamp::from_second(time.seconds) {
        Ok(timestamp) => timestamp.to_string(),
        // Beyond the years that a calendar has.
        Err(_) => format!("@{}", time.seconds),
    }
}

/// Reads a time: with a zone as RFC 3339 has it, else by the clock of this machine's zone; a date alone is its last moment.
pub(super) fn parse(text: &str) -> Result<Time, SnapshotError> {
    let zoned = text.parse::<Timestamp>().ok();
    let local = || in_zone(text.parse::<civil::DateTime>().ok().filter(|_| text.len() > "2026-11-22".len())?);
    let day = || in_zone(text.parse::<civil::Date>().ok()?.tomorrow().ok()?.at(0, 0, 0, 0));
    let found = zoned.or_else(local).or_else(day);
    let found = found.ok_or_else(|| {
        SnapshotError::Invalid(format!("{text} is no time: write it as 2026-11-22T18:00:00Z"))
    })?;
    Ok(Time { seconds: found.as_second(), nanos: found.subsec_nanosecond().unsigned_abs() })
}

/// Reads a length of time such as `48h`, `2d` or `1w 2d`; a day has 24 hours. In seconds.
pub(crate) fn span_seconds(text: &str) -> Result<u64, String> {
    let why = || format!("`{text}` is no length of time: write it as 48h or 2d12h");
    let span: jiff::Span = text.parse().map_err(|_| why())?;
    let days = jiff::SpanRelativeTo::days_are_24_hours();
    let duration = span.to_duration(days).map_err(|_| why())?;
    u64::try_from(duration.as_secs()).map_err(|_| why())
}

/// Reads the name of a time zone.
pub(super) fn zone(text: &str) -> Result<TimeZone, String> {
    TimeZone::get(text).map_err(|_| format!("`{text}` is no time zone: write it as Europe/Berlin or UTC"))
}

fn in_zone(time: civil::DateTime) -> Option<Timestamp> {
    Some(time.to_zoned(TimeZone::system()).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        let time = Time { seconds: 1_795_370_400, nanos: 0 };
        assert_eq!(rfc3339(time), "2026-11-22T18:00:00Z");
        assert_eq!(parse("2026-11-22T18:00:00Z").unwrap(), time);
        assert_eq!(parse("2026-11-22T19:00:00+01:00").unwrap(), time);
        let day = parse("2026-11-22").unwrap();
        assert_eq!(day, parse("2026-11-23T00:00").unwrap());
        assert!(parse("yesterday").is_err());
        assert_eq!(
            ["48h", "2d12h", "1w"].map(|text| span_seconds(text).unwrap()),
            [172_800, 216_000, 604_800]
        );
        assert!(span_seconds("1mo").is_err() && span_seconds("-1h").is_err() && zone("Nowhere").is_err());
        assert_eq!(rfc3339(Time { seconds: i64::MAX, nanos: 0 }), format!("@{}", i64::MAX));
    }
}
