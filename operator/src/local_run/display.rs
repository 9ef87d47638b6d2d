//! Shows the progress of `run` on standard error, and a summary at its end.

use std::{
    cell::RefCell,
    io::{self, IsTerminal as _, Write as _},
};

use contract::{Phase, PlannedAction, Progress};
use serde::Serialize;

use super::args::LineForm;
use crate::{
    api::{Run, SyncJobStatus},
    human,
};

/// The live line of one run. On a terminal it is redrawn; otherwise, each phase gets its own line.
pub(super) struct Display {
    job: String,
    live: bool,
    phase: Option<Phase>,
    dry: Option<LineForm>,
}

/// A display that the pairs of a run share, which shows their total progress.
pub(super) struct SharedDisplay<'a> {
    shared: RefCell<(&'a mut Display, Vec<Progress>)>,
}

impl<'a> SharedDisplay<'a> {
    /// Creates a screen for that number of pairs.
    pub(super) fn new(display: &'a mut Display, pairs: usize) -> Self {
        Self { shared: RefCell::new((display, vec![Progress::default(); pairs])) }
    }

    /// Records the progress of a pair.
    pub(super) fn progress(&self, pair: usize, progress: Progress) {
        let (display, pairs) = &mut *self.shared.borrow_mut();
        if let Some(known) = pairs.get_mut(pair) {
            *known = progress;
        }
        display.progress(&Progress::of_shards(pairs));
    }

    /// Does the same as [`Display::planned`].
    pub(super) fn planned(&self, action: &PlannedAction) {
        self.shared.borrow_mut().0.planned(action);
    }
}

/// A JSON line of a dry run.
#[derive(Serialize)]
struct PlannedLine<'a> {
    job: &'a str,
    #[serde(flatten)]
    action: &'a PlannedAction,
}

impl Display {
    /// Creates a display for a job of that name; `dry` is the output format of a dry run.
    pub(super) fn new(job: &str, dry: Option<LineForm>) -> Self {
        Self { job: job.into(), live: io::stderr().is_terminal(), phase: None, dry }
    }

    /// Returns whether it is a dry run.
    pub(super) fn is_dry(&self) -> bool {
        self.dry.is_some()
    }

    /// Prints an action that a dry run plans. A closed standard output does not end the run.
    pub(super) fn planned(&mut self, action: &PlannedAction) {
        if self.live && self.phase.take().is_some() {
            eprint!("\r\x1b[K");
        }
        let line = match self.dry {
            Some(LineForm::Json) => {
                serde_json::to_string(&PlannedLine { job: &self.job, action }).unwrap_or_default()
            }
            _ => format!("{}: {action}", self.job),
        };
        let _ = writeln!(io::stdout().lock(), "{line}");
    }

    /// Shows the progress of the run.
    pub(super) fn progress(&mut self, progress: &Progress) {
        let changed = self.phase.replace(progress.phase) != Some(progress.phase);
        if self.live {
            eprint!("\r\x1b[K{}: {}", self.job, progress_text(progress));
            let _ = io::stderr().flush();
        } else if changed {
            eprintln!("{}: {}", self.job, progress_text(progress));
        }
    }

    /// Replaces the live line by a summary of the run.
    pub(super) fn finish(&mut self, status: &SyncJobStatus) {
        let start = if self.live && self.phase.is_some() { "\r\x1b[K" } else { "" };
        let summary = status.last_run.as_ref().map(summary).unwrap_or_default();
        let dry = if self.is_dry() { "dry run, nothing was changed: " } else { "" };
        eprintln!("{start}{}: {dry}{summary}", self.job);
    }
}

fn progress_text(progress: &Progress) -> String {
    let phase = format!("{:?}", progress.phase);
    if progress.files_total == 0 {
        return phase;
    }
    format!(
        "{phase}  {}/{} files  {} of {}  {}/s",
        progress.files,
        progress.files_total,
        human::bytes(progress.bytes),
        human::bytes(progress.bytes_total),
        human::bytes(progress.rate)
    )
}

fn summary(run: &Run) -> String {
    let work = &run.work;
    let result = match &run.reason {
        Some(reason) => format!("{:?} ({reason})", run.result),
        None => format!("{:?}", run.result),
    };
    let mut text = format!(
        "{result}  {} entries: {} created, {} updated, {} deleted  {} changed, {} on the wire  in {}",
        work.files_scanned,
        work.files_created,
        work.files_updated,
        work.files_deleted,
        human::bytes(work.bytes_changed),
        human::bytes(work.bytes_on_wire),
        human::milliseconds(run.timings.running())
    );
    if let Some(message) = run.message.as_ref().filter(|_| run.reason.is_some()) {
        text.push_str(&format!("\n  {message}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use contract::{RunResult, Timings, Work};

    use super::*;

    #[test]
    fn a_run_is_summed_up_in_a_line() {
        let run = Run {
            work: Work { files_scanned: 1008, files_created: 8, bytes_changed: 1 << 20, ..Work::default() },
            timings: Timings { total: 143, ..Timings::default() },
            ..Run::default()
        };
        assert_eq!(
            summary(&run),
            "Succeeded  1008 entries: 8 created, 0 updated, 0 deleted  1.0Mi changed, 0 on the wire  in 143ms"
        );
    }

    #[test]
    fn a_failure_says_why_on_a_second_line() {
        let run = Run {
            result: RunResult::Failed,
            reason: Some("SourceEmpty".into()),
            message: Some("The source is empty.".into()),
            ..Run::default()
        };
        let text = summary(&run);
        assert!(text.starts_with("Failed (SourceEmpty)  0 entries"), "{text}");
        assert!(text.ends_with("\n  The source is empty."), "{text}");
    }

    #[test]
    fn pairs_share_a_display_that_shows_their_sum() {
        let mut display = Display::new("web", None);
        let screen = SharedDisplay::new(&mut display, 2);
        screen.progress(1, Progress { phase: Phase::Transfer, ..Progress::default() });
        assert_eq!(screen.shared.borrow().0.phase, Some(Phase::Connect), "the other has not begun");
        screen.progress(0, Progress { phase: Phase::Scan, ..Progress::default() });
        assert_eq!(screen.shared.borrow().0.phase, Some(Phase::Scan));
    }

    #[test]
    fn totals_are_shown_once_they_are_known() {
        let scanning = Progress { phase: Phase::Scan, ..Progress::default() };
        assert_eq!(progress_text(&scanning), "Scan");
        let moving =
            Progress { phase: Phase::Transfer, files: 3, files_total: 9, bytes: 2048, ..Progress::default() };
        assert_eq!(progress_text(&moving), "Transfer  3/9 files  2.0Ki of 0  0/s");
    }
}
