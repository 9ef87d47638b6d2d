//! Converts the retention rules of restic, as VolSync has them, to those of a SyncJob.

use std::num::ParseIntError;

use serde::Deserialize;
use serde_json::Value;

use super::{fields::Fields, migrate_error::MigrateError};
use api::Retain;

/// The maximum number of hours that a SyncJob can express.
const MAX_HOURS: u64 = 9_999;
/// The hours of restic's units. A month counts as 31 days and a year as 366, so that no snapshot is removed too early.
const HOURS: [(char, u64); 4] = [('y', 366 * 24), ('m', 31 * 24), ('d', 24), ('h', 1)];

/// A number, which newer versions of VolSync write as text for `last`.
#[derive(Deserialize)]
#[serde(try_from = "Value")]
struct Count(i32);

impl TryFrom<Value> for Count {
    type Error = ParseIntError;

    fn try_from(value: Value) -> Result<Self, ParseIntError> {
        value.as_str().map_or_else(|| value.to_string(), Into::into).parse().map(Self)
    }
}

/// Converts restic's retention rules to those of a SyncJob. For each rule without a counterpart, a note is added to
/// `notes`.
pub(super) fn of_restic(mut rules: Fields, notes: &mut Vec<String>) -> Result<Retain, MigrateError> {
    let mut count = |rule: &str| rules.take::<Count>(rule).map(|count| count.map_or(0, |count| count.0));
    let mut retain = Retain {
        hourly: count("hourly")?,
        daily: count("daily")?,
        weekly: count("weekly")?,
        monthly: count("monthly")?,
        yearly: count("yearly")?,
        last: count("last")?,
        ..Retain::default()
    };
    if let Some(within) = rules.take::<String>("within")? {
        match hours(&within) {
            Some(hours) => retain.within = Some(format!("{hours}h")),
            None => {
                notes.push(format!("retain.within {within:?} cannot be said in at most {MAX_HOURS} hours."));
            }
        }
    }
    notes.extend(rules.leftovers());
    if retain == Retain::default() {
        retain.last = 1;
        notes.push("Without rules, VolSync keeps the last snapshot only.".into());
    }
    Ok(retain)
}

/// Parses a duration such as `1y5m7d2h` to hours.
fn hours(text: &str) -> Option<u64> {
    let mut total = 0_u64;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let unit = rest[digits..].chars().next()?;
        let (_, hours) = HOURS.iter().find(|(name, _)| *name == unit)?;
        total = rest[..digits].parse::<u64>().ok()?.checked_mul(*hours)?.checked_add(total)?;
        rest = &rest[digits + unit.len_utf8()..];
    }
    (1..=MAX_HOURS).contains(&total).then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_restic_are_hours() {
        assert_eq!(hours("3d"), Some(72));
        assert_eq!(hours("1m2d3h"), Some(31 * 24 + 51));
        for odd in ["", "3", "d", "3w", "2y", "-1d", "99999999999999999999d"] {
            assert_eq!(hours(odd), None, "{odd}");
        }
    }
}
