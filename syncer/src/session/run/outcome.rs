//! How a run ended, as its report and the exit code say it.

use std::time::{Instant, SystemTime};

use contract::{ExitCode, Report, RunResult};

use crate::{monitor::Monitor, report::Stopwatch, session::session_error::SessionError, wire::Refusal};

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// What was done; for a failed run, why it failed.
    pub report: Report,
    /// What the process exits with.
    pub exit: ExitCode,
}

impl Outcome {
    /// Of an end that serves runs and was told to stop while it had none: that is how serving ends, and no run's failure.
    pub(crate) fn between_runs() -> Self {
        Self { report: Report::default(), exit: ExitCode::Done }
    }
}

/// The wall clock of a run.
pub(crate) struct Clock<'a> {
    pub began: SystemTime,
    pub watch: Stopwatch<'a>,
}

impl<'a> Clock<'a> {
    pub(crate) fn start(monitor: &'a Monitor) -> Self {
        Self { began: SystemTime::now(), watch: Stopwatch::start(monitor) }
    }

    /// Moves the start to another moment, so that the time in which an end waited for its peer does not count.
    pub(crate) fn started_at(&mut self, start: Instant) {
        self.began = SystemTime::now() - start.elapsed();
        self.watch.started_at(start);
    }

    pub(crate) fn outcome(&self, run: &str, result: Result<Report, SessionError>) -> Outcome {
        match result {
            Ok(report) => Outcome { exit: exit_of(report.result), report },
            Err(error) => self.failed(run, &error),
        }
    }

    fn failed(&self, run: &str, error: &SessionError) -> Outcome {
        let Refusal { exit, reason, message } = error.refusal();
        let mut report = Report {
            run: run.into(),
            result: if error.is_canceled() { RunResult::Canceled } else { RunResult::Failed },
            reason: Some(reason),
            message,
            start_time: contract::timestamp(self.began),
            completion_time: contract::timestamp(SystemTime::now()),
            timings: self.watch.timings(),
            work: self.watch.work(),
            ..Report::default()
        };
        report.fill_rates();
        Outcome { report, exit }
    }
}

fn exit_of(result: RunResult) -> ExitCode {
    match result {
        RunResult::Succeeded => ExitCode::Done,
        RunResult::PartiallyFailed => ExitCode::Partial,
        RunResult::Failed | RunResult::Canceled => ExitCode::Failed,
    }
}
