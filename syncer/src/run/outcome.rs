//! The outcome of a run: its report and the exit code.

use std::{net::SocketAddr, time::SystemTime};

use contract::{ExitCode, Report, RunLink, RunResult, SnapshotParams, SnapshotReport};

use crate::{
    measure::{monitor::Monitor, report::Stopwatch},
    session_error::SessionError,
    transport::quic::MetPeer,
    wire::Refusal,
};

/// The outcome of a run.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The work of the run; for a failed run, also the reason.
    pub report: Report,
    /// The exit code of the process.
    pub exit: ExitCode,
    /// The address of the other end, once the two had met, if it has one.
    pub peer: Option<SocketAddr>,
    /// Whether the message of the report is the other end's, about paths and flags of its own.
    pub is_told_by_peer: bool,
}

impl Outcome {
    /// Returns the outcome of an end that serves runs and was told to stop between two of them, which is not a failure.
    pub(crate) fn between_runs() -> Self {
        Self { report: Report::default(), exit: ExitCode::Done, peer: None, is_told_by_peer: false }
    }

    /// Reports that an unsuccessful run took no snapshot, if it was to take one.
    #[must_use]
    pub(crate) fn with_no_snapshot(mut self, asked: Option<&SnapshotParams>) -> Self {
        if asked.is_some() && self.report.snapshot.is_none() && self.exit != ExitCode::Done {
            self.report.snapshot = Some(SnapshotReport::of_failed_run());
        }
        self
    }
}

/// The wall clock of a run.
pub(crate) struct Clock<'a> {
    pub began: SystemTime,
    pub watch: Stopwatch<'a>,
    peer: Option<SocketAddr>,
    link: Option<RunLink>,
}

impl<'a> Clock<'a> {
    pub(crate) fn start(monitor: &'a Monitor) -> Self {
        Self::of(Stopwatch::start(monitor))
    }

    /// Starts in a process that has other runs at the same time.
    pub(crate) fn start_beside_others(monitor: &'a Monitor) -> Self {
        Self::of(Stopwatch::start_beside_others(monitor))
    }

    /// Starts anew for the next run of the same peer.
    pub(crate) fn start_next(&self) -> Self {
        Self::of(self.watch.start_next())
    }

    fn of(watch: Stopwatch<'a>) -> Self {
        Self { began: SystemTime::now(), watch, peer: None, link: None }
    }

    /// Records the link and the peer's address. In the first run of a session, moves the start to the moment of the
    /// peer's first packet, so that the wait for it does not count.
    pub(crate) fn met(&mut self, MetPeer { link, peer, began }: MetPeer, is_first: bool) {
        (self.link, self.peer) = (Some(link), peer);
        if is_first {
            self.began = SystemTime::now() - began.elapsed();
            self.watch.started_at(began);
        }
    }

    pub(crate) fn outcome(&self, run: &str, result: Result<Report, SessionError>) -> Outcome {
        match result {
            Ok(report) => {
                Outcome { exit: exit_of(report.result), report, peer: self.peer, is_told_by_peer: false }
            }
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
            link: self.link,
            timings: self.watch.timings(),
            work: self.watch.work(),
            ..Report::default()
        };
        report.fill_rates();
        Outcome { report, exit, peer: self.peer, is_told_by_peer: error.is_of_peer() && !error.is_canceled() }
    }
}

fn exit_of(result: RunResult) -> ExitCode {
    match result {
        RunResult::Succeeded => ExitCode::Done,
        RunResult::PartiallyFailed => ExitCode::Partial,
        RunResult::Failed | RunResult::Canceled => ExitCode::Failed,
    }
}
