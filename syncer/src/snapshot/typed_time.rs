//! Times as users type them, and as clocks give them.

use std::time::SystemTime;

use jiff::{Span, SpanRelativeTo, Timestamp, civil, tz::TimeZone};

use crate::{entry::Time, snapshot::store::SnapshotError};

/// Parses a time: RFC 3339 with a zone, or without a zone in the machine's time zone; a date, which means the end of
/// that day; or a length of time before `now`, such as `2h ago`.
///
/// # Errors
/// If the text is none of these.
pub fn parse(text: &str, now: Timestamp) -> Result<Time, SnapshotError> {
    let zoned = text.parse::<Timestamp>().ok();
    let local = || in_zone(text.parse::<civil::DateTime>().ok().filter(|_| text.len() > "2026-11-22".len())?);
    let day = || in_zone(text.parse::<civil::Date>().ok()?.tomorrow().ok()?.at(0, 0, 0, 0));
    let ago = || {
        let span: Span = text.strip_suffix(" ago")?.parse().ok().filter(|span: &Span| !span.is_negative())?;
        let days = SpanRelativeTo::days_are_24_hours();
        now.checked_sub(span.to_duration(days).ok()?).ok()
    };
    let found = zoned.or_else(local).or_else(day).or_else(ago);
    let found = found.ok_or_else(|| {
        SnapshotError::Invalid(format!(
            "`{text}` is no time: write it as 2026-11-22T18:00:00Z, 2026-11-22 or 2h ago"
        ))
    })?;
    Ok(Time { seconds: found.as_second(), nanos: found.subsec_nanosecond().unsigned_abs() })
}

fn in_zone(time: civil::DateTime) -> Option<Timestamp> {
    Some(time.to_zoned(TimeZone::system()).ok()?.timestamp())
}

/// Converts a clock's time to the store's form.
pub fn time_of(time: SystemTime) -> Time {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => Time { seconds: since.as_secs() as i64, nanos: since.subsec_nanos() },
        Err(before) => Time { seconds: -(before.duration().as_secs() as i64), nanos: 0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        let time = Time { seconds: 1_795_370_400, nanos: 0 };
        let parse = |text| super::parse(text, Timestamp::from_second(time.seconds).unwrap());
        for (text, ago) in [("2h ago", 7200), ("1d 30m ago", 88_200), ("1w ago", 604_800)] {
            assert_eq!(parse(text).unwrap(), Time { seconds: time.seconds - ago, nanos: 0 }, "{text}");
        }
        assert!(parse("-2h ago").is_err() && parse("1mo ago").is_err() && parse("ago").is_err());
        assert_eq!(parse("2026-11-22T18:00:00Z").unwrap(), time);
        assert_eq!(parse("2026-11-22T19:00:00+01:00").unwrap(), time);
        assert_eq!(parse("2026-11-22").unwrap(), parse("2026-11-23T00:00").unwrap());
        assert!(parse("yesterday").is_err());
    }
}
