//! The rules that keep snapshots, and the record of those that a job applied last.
//!
//! `syncer/doc/snapshots.md` draws the bytes.

use contract::Retention;

use super::snapshot_record::{MAX_NAME_BYTES, read_tags, read_text};
use crate::codec::{DecodeError, Reader, put_bytes, put_varint};

/// A natural period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Period {
    /// Each snapshot is its own period.
    Snapshot,
    /// An hour of the clock.
    Hour,
    /// A day of the calendar.
    Day,
    /// A week from Monday on.
    Week,
    /// A month of the calendar.
    Month,
    /// A year of the calendar.
    Year,
}

/// Returns how many periods of each kind keep a snapshot.
pub(crate) fn counts(rules: &Retention) -> [(Period, u32); 6] {
    [
        (Period::Snapshot, rules.last),
        (Period::Hour, rules.hourly),
        (Period::Day, rules.daily),
        (Period::Week, rules.weekly),
        (Period::Month, rules.monthly),
        (Period::Year, rules.yearly),
    ]
}

/// The rules that a job applied after its last run, by which the list says why its snapshots are kept.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobRules {
    /// The rules.
    pub retention: Retention,
    /// The IANA name of the time zone of days and weeks; empty for that of the machine.
    pub zone: String,
}

impl JobRules {
    /// Appends the record of the rules of `job`.
    pub(crate) fn encode(&self, job: &str, out: &mut Vec<u8>) {
        let Self { retention, zone } = self;
        put_bytes(out, job.as_bytes());
        counts(retention).iter().for_each(|(_, count)| put_varint(out, u64::from(*count)));
        put_option(out, retention.within_seconds);
        put_varint(out, retention.tags.len() as u64);
        retention.tags.iter().for_each(|tag| put_bytes(out, tag.as_bytes()));
        put_option(out, retention.max_bytes);
        put_bytes(out, zone.as_bytes());
    }

    /// Decodes a record: a job and its rules.
    pub(crate) fn decode(bytes: &[u8]) -> Result<(String, Self), DecodeError> {
        let mut reader = Reader::new(bytes);
        let r = &mut reader;
        let job = read_text(r, MAX_NAME_BYTES)?;
        let retention = Retention {
            last: r.varint32()?,
            hourly: r.varint32()?,
            daily: r.varint32()?,
            weekly: r.varint32()?,
            monthly: r.varint32()?,
            yearly: r.varint32()?,
            within_seconds: read_option(r)?,
            tags: read_tags(r)?,
            max_bytes: read_option(r)?,
        };
        let zone = read_text(r, MAX_NAME_BYTES)?;
        reader.finish()?;
        Ok((job, Self { retention, zone }))
    }
}

/// Appends 0 for none, or 1 and the number.
fn put_option(out: &mut Vec<u8>, number: Option<u64>) {
    put_varint(out, u64::from(number.is_some()));
    number.into_iter().for_each(|number| put_varint(out, number));
}

fn read_option(reader: &mut Reader<'_>) -> Result<Option<u64>, DecodeError> {
    match reader.varint()? {
        0 => Ok(None),
        1 => reader.varint().map(Some),
        _ => Err(DecodeError::Invalid("a number is neither there nor missing")),
    }
}
