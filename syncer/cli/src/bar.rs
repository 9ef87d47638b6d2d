//! Formats the line of the progress bar. Pure: no terminal, no clock.

use std::time::Duration;

use contract::{Phase, Progress, human};

/// The narrowest bar that is shown. A narrower one would be less useful than the figure that it displaces.
const MIN_BAR: usize = 10;
const MAX_BAR: usize = 40;

/// The longest remaining time that is shown as a forecast.
const MAX_TIME_LEFT: Duration = Duration::from_secs(100 * 3600);

/// The state of a run at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moment {
    pub(super) progress: Progress,
    /// Whether this end listens for its peer.
    pub(super) listens: bool,
    /// The time since the run began.
    pub(super) elapsed: Duration,
    /// Bytes per second over a longer span than [`Progress::rate`], so that the time left does not jump.
    pub(super) steady_rate: u64,
}

/// Returns the line for `moment`, at most `width` columns wide: the phase, a bar, files, bytes, rate and remaining
/// time. In a narrow terminal the bar shrinks first, and then figures are left out from the right.
pub(super) fn line(moment: &Moment, width: usize, color: bool) -> String {
    let phase = format!("{:<12}", phase_name(moment));
    let Some(done) = share_done(&moment.progress) else {
        return clip(format!("{phase} {}", human::clock(moment.elapsed)), width);
    };
    let mut figures = figures(moment);
    let taken = |figures: &[String]| {
        phase.len() + 1 + figures.iter().map(|figure| figure.chars().count() + 2).sum::<usize>()
    };
    while figures.len() > 1 && taken(&figures) > width {
        figures.pop();
    }
    let figures = figures.join("  ");
    let room = width.saturating_sub(phase.len() + figures.chars().count() + 3);
    if room < MIN_BAR {
        return clip(format!("{phase} {figures}"), width);
    }
    format!("{phase} {}  {figures}", bar(done, room.min(MAX_BAR), color))
}

fn phase_name(moment: &Moment) -> &'static str {
    match moment.progress.phase {
        Phase::Connect if moment.listens => "Waiting",
        Phase::Connect => "Connecting",
        Phase::Scan => "Scanning",
        Phase::Plan => "Comparing",
        Phase::Delta => "Matching",
        Phase::Transfer => "Transferring",
        Phase::Apply => "Applying",
        Phase::Commit => "Committing",
        Phase::Snapshot => "Snapshotting",
    }
}

/// Returns the share that is done, from 0 to 1, by bytes, or by files if all are empty; `None` until the plan is made.
fn share_done(progress: &Progress) -> Option<f64> {
    let (part, total) = match (progress.bytes_total, progress.files_total) {
        (0, 0) => return None,
        (0, files_total) => (progress.files, files_total),
        (bytes_total, _) => (progress.bytes, bytes_total),
    };
    Some((part as f64 / total as f64).min(1.0))
}

fn figures(moment: &Moment) -> Vec<String> {
    let progress = &moment.progress;
    let files = format!("{}/{} files", human::count(progress.files), human::count(progress.files_total));
    let mut figures = vec![files, human::bytes_of(progress.bytes, progress.bytes_total)];
    if progress.phase == Phase::Transfer {
        figures.push(format!("{}/s", human::bytes(progress.rate)));
        figures.extend(
            time_left(progress, moment.steady_rate).map(|left| format!("{} left", human::clock(left))),
        );
    }
    figures
}

/// Returns the remaining time at `steady_rate`, in bytes per second; `None` while hardly any bytes arrive.
fn time_left(progress: &Progress, steady_rate: u64) -> Option<Duration> {
    let left = progress.bytes_total.saturating_sub(progress.bytes);
    let seconds = left as f64 / steady_rate as f64;
    Duration::try_from_secs_f64(seconds).ok().filter(|left| *left < MAX_TIME_LEFT)
}

fn bar(done: f64, width: usize, color: bool) -> String {
    let inner = if color { width } else { width - 2 };
    let full = (done * inner as f64) as usize;
    if color {
        return format!("\x1b[36m{}\x1b[2m{}\x1b[0m", "━".repeat(full), "━".repeat(inner - full));
    }
    format!("[{}{}]", "#".repeat(full), "-".repeat(inner - full))
}

fn clip(line: String, width: usize) -> String {
    match line.char_indices().nth(width) {
        Some((at, _)) => line[..at].into(),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment() -> Moment {
        let progress = Progress {
            phase: Phase::Transfer,
            files: 812,
            files_total: 1008,
            bytes: 15_000_000,
            bytes_total: 20_000_000,
            rate: 2_000_000,
        };
        Moment { progress, listens: false, elapsed: Duration::from_secs(9), steady_rate: 1_250_000 }
    }

    #[test]
    fn a_wide_line_has_the_bar_and_every_figure() {
        assert_eq!(
            line(&moment(), 79, false),
            "Transferring [#########---]  812/1,008 files  15.0/20.0 MB  2.0 MB/s  0:04 left"
        );
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for width in 0..200 {
            let line = line(&moment(), width, false);
            assert!(line.chars().count() <= width, "{width}: {line}");
        }
    }

    #[test]
    fn a_coloured_line_is_as_wide_as_a_plain_one() {
        let coloured = line(&moment(), 120, true);
        let visible: String =
            ["\x1b[36m", "\x1b[2m", "\x1b[0m"].iter().fold(coloured, |s, code| s.replace(code, ""));
        assert_eq!(visible.chars().count(), line(&moment(), 120, false).chars().count());
    }

    #[test]
    fn before_the_plan_only_time_passes() {
        let moment = Moment { progress: Progress { phase: Phase::Scan, ..Progress::default() }, ..moment() };
        assert_eq!(line(&moment, 79, false), "Scanning     0:09");
    }

    #[test]
    fn an_end_that_listens_waits_for_its_peer_and_one_that_dials_connects() {
        let dials = Moment { progress: Progress::default(), ..moment() };
        assert_eq!(line(&dials, 79, false), "Connecting   0:09");
        assert_eq!(line(&Moment { listens: true, ..dials }, 79, false), "Waiting      0:09");
    }

    #[test]
    fn nothing_is_promised_while_nothing_moves() {
        let mut stalled = moment();
        (stalled.progress.rate, stalled.steady_rate) = (0, 0);
        let line = line(&stalled, 79, false);
        assert!(line.ends_with("0 B/s"), "{line}");
    }

    #[test]
    fn empty_files_are_counted_where_there_are_no_bytes() {
        let progress = Progress { files: 5, files_total: 10, bytes: 0, bytes_total: 0, ..moment().progress };
        assert_eq!(share_done(&progress), Some(0.5));
    }

    #[test]
    fn more_than_was_planned_is_no_more_than_all() {
        let progress = Progress { bytes: 30_000_000, ..moment().progress };
        assert_eq!(share_done(&progress), Some(1.0));
        let over = Moment { progress, ..moment() };
        assert!(line(&over, 79, false).contains('#'));
    }
}
